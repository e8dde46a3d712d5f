"""N-gram models: every smoothing method, one trie, one way of asking."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.counts import _next_kernels
from firth.counts import _query_kernels as kernels
from firth.counts._query_kernels import BACK_OFF, FLAT, STEPS
from firth.counts.packing import pack_counts, unpack_counts
from firth.counts.recipe import NgramRecipe as NgramRecipe
from firth.counts.trie import Trie, predictable
from firth.errors import AbilityError, ArtifactError
from firth.text.layout import Layout, sentences_of
from firth.tokens.language import LanguageModel, Stream, going_on
from firth.tokens.spelling import END, Spelling
from firth.tokens.tokenizer import BOS, EOS, Tokenizer

_FEW = 1 << 12  # tokens that are not worth a second thread


class Steps(NamedTuple):
    """Church-Gale: what words never seen after a history get, by how frequent both are."""

    heads: npt.NDArray[np.float64]
    tails: npt.NDArray[np.float64]
    steps: npt.NDArray[np.float64]


NO_STEPS = Steps(np.zeros(0), np.zeros(0), np.zeros(0))
_NO_BOOKS = np.zeros((0, 0))


class NgramModel(LanguageModel):
    """A back-off table over a trie of n-grams; every smoothing method ends up as one.

    >>> from firth.counts.train import train_on_sentences
    >>> model = train_on_sentences(["he reads a book", "she reads a page"], NgramRecipe(order=2, smoothing="mle"))
    >>> model.next("he reads a")
    [('book', 0.5), ('page', 0.5)]
    """

    def __init__(
        self,
        recipe: NgramRecipe,
        tokenizer: Tokenizer,
        layout: Layout,
        trie: Trie,
        logp: npt.NDArray[Any],
        bow: npt.NDArray[np.float64],
        spelling: Spelling,
        *,
        books: npt.NDArray[np.float64] = _NO_BOOKS,
        steps: Steps = NO_STEPS,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(recipe, tokenizer, layout, spelling)
        if recipe.smoothing == "stupid":
            self.score_kind = "pseudo"  # it sums to more than one
        self.trie = trie
        self.logp = logp
        self.bow = bow
        self.books = books
        self.steps = steps
        self.parameters = dict(parameters or {})
        self.mode = STEPS if steps.steps.size else FLAT if falls_flat(recipe) else BACK_OFF
        self._flat = flat_logarithms(trie.vocabulary, recipe)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        trie = self.trie
        arrays: dict[str, npt.NDArray[Any]] = {
            "levels": trie.levels,
            "words": trie.words,
            "first": trie.first,
            "links": trie.links,
        }
        arrays |= {"logp": self.logp, "bow": self.bow, "spelling": self.spelling.counts}
        arrays |= pack_counts(trie.counts)
        arrays["parameters"] = np.frombuffer(json.dumps(self.parameters, sort_keys=True).encode(), dtype=np.uint8)
        if self.books.size:
            arrays["books"] = self.books
        if self.steps.steps.size:
            arrays |= self.steps._asdict()
        return arrays

    def log_tokens(self, stream: Stream) -> npt.NDArray[np.float64]:
        out = np.empty(stream.ids.size)
        sentences = stream.bounds.size - 1
        if stream.ids.size < _FEW:
            self._log_range(stream, 0, sentences, out)
            return out
        cuts = np.linspace(0, sentences, 2 * cores() + 1).astype(np.int64).tolist()
        with ThreadPoolExecutor(cores()) as executor:
            jobs = [executor.submit(self._log_range, stream, a, b, out) for a, b in pairwise(cuts)]
            for job in jobs:
                job.result()
        return out

    def _log_range(self, stream: Stream, begin: int, end: int, out: npt.NDArray[np.float64]) -> None:
        trie = self.trie
        table = (trie.levels, trie.words, trie.first, trie.links, self.logp, self.bow, self.books)
        if self.mode == BACK_OFF and trie.order > 1 and end - begin > kernels.LANES:
            kernels.score_many(stream.ids, stream.bounds, begin, end, BOS, *table, out)
        elif self.mode == BACK_OFF:
            kernels.score_backing_off(stream.ids, stream.bounds, begin, end, BOS, *table, out)
        else:
            unseen = (self.mode, self._flat, *self.steps)
            kernels.score_flat(stream.ids, stream.bounds, begin, end, BOS, *table, *unseen, out)

    def log_next(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        trie = self.trie
        words = going_on(history)
        state, depth = self.state(words)
        out = np.empty(trie.vocabulary)
        if self.mode == BACK_OFF:
            kernels.next_backing_off(
                state, trie.levels, trie.words, trie.first, trie.links, self.logp, self.bow, self.books, out
            )
        else:
            known = depth == min(trie.order - 1, len(words))
            table = (trie.levels, trie.words, trie.first, self.logp, self.bow, self.books)
            kernels.next_flat(state, known, *table, self.mode, self._flat, *self.steps, out)
        return out

    def state(self, words: Sequence[int]) -> tuple[np.uint32, int]:
        """The node of the longest known end of `<s>` and the words, and its length."""
        trie = self.trie
        ids = np.array(words, dtype=np.uint32)
        state, depth = kernels.state_after(ids, trie.contexts, trie.words, trie.first, trie.links)
        return np.uint32(state), int(depth)

    def next(self, history: str = "", top: int | None = 10) -> list[tuple[str, float]]:
        if top is None or self.mode != BACK_OFF:
            return super().next(history, top)
        ids, scores = self.top_next(self.history(history), top)
        return [
            (self.tokenizer.vocabulary[word], float(np.exp(score)))
            for word, score in zip(ids.tolist(), scores.tolist(), strict=True)
        ]

    def explain(self, text: str) -> list[list[dict[str, Any]]]:
        from firth.counts.explain import explain_ids

        stream, _ = self.stream(sentences_of(text, self.layout))
        return [explain_ids(self, stream.ids[a:b].tolist()) for a, b in pairwise(stream.bounds.tolist())]

    def top_next(self, history: Sequence[int], top: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
        """The likeliest next words and their log-probabilities, without looking at the whole vocabulary."""
        trie = self.trie
        state, _ = self.state(going_on(history))
        best, scores = np.zeros(top, dtype=np.uint32), np.zeros(top)
        self._marks[0] += 1
        held = _next_kernels.top_backing_off(
            state, trie.levels, trie.words, trie.first, trie.links, self.logp, self.bow, self.books,
            self._frequent, self._marks[1:], self._marks[0], best, scores,
        )  # fmt: skip
        return best[:held], scores[:held]

    @cached_property
    def _marks(self) -> npt.NDArray[np.int64]:
        return np.zeros(self.trie.vocabulary + 1, dtype=np.int64)

    @cached_property
    def _unigrams(self) -> npt.NDArray[np.float64]:
        out = np.empty(self.trie.vocabulary)
        trie = self.trie
        kernels.next_backing_off(
            kernels.ROOT, trie.levels, trie.words, trie.first, trie.links, self.logp, self.bow, self.books, out
        )
        return out

    @cached_property
    def _frequent(self) -> npt.NDArray[np.uint32]:
        return np.argsort(-self._unigrams, kind="stable").astype(np.uint32)

    @cached_property
    def _sums(self) -> npt.NDArray[np.float64]:
        return np.cumsum(np.exp(self._unigrams))

    def generate(
        self,
        prompt: str = "",
        *,
        count: int = 1,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> list[str]:
        """`count` continuations of the prompt, of at most `length` tokens each."""
        if self.mode != BACK_OFF or temperature != 1 or top_k is not None or top_p is not None:
            return super().generate(
                prompt, count=count, length=length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
            )
        begun = self.history(prompt)
        return [self.tokenizer.decode([*begun, *drawn]) for drawn in self.draw(begun, count, length, seed)]

    def draw(self, history: Sequence[int], count: int, length: int, seed: int) -> list[list[int]]:
        """`count` continuations as ids, drawn without ever making a whole distribution."""
        if self.mode != BACK_OFF:
            raise AbilityError("drawing word by word needs a model that backs off: use generate.")
        trie = self.trie
        start, _ = self.state(going_on(history))
        out = np.empty(length, dtype=np.uint32)
        chance = np.random.default_rng(seed).integers(0, 1 << 64, size=1, dtype=np.uint64)
        drawn = []
        for _ in range(count):
            size = _next_kernels.draw_sentence(
                start, EOS, trie.levels, trie.words, trie.first, trie.links, self.logp, self.bow, self.books,
                self._sums, chance, out,
            )  # fmt: skip
            drawn.append(out[:size].tolist())
        return drawn


def falls_flat(recipe: NgramRecipe) -> bool:
    """Whether a word never seen after a history gets a share that no shorter history decides."""
    return recipe.smoothing == "additive" or (recipe.smoothing == "good-turing" and recipe.equal)


def flat_logarithms(vocabulary: int, recipe: NgramRecipe) -> npt.NDArray[np.float64]:
    """The logarithm of the uniform distribution over the words that may follow."""
    mask = predictable(vocabulary, recipe.vocabulary == "open")
    flat = np.full(vocabulary, -np.inf)
    flat[mask] = -np.log(mask.sum())
    return flat


_WANTED: dict[str, tuple[str, ...]] = {
    "levels": ("int64",),
    "words": ("uint32",),
    "first": ("uint32",),
    "links": ("uint32",),
    "logp": ("float64", "float32", "uint8"),
    "bow": ("float64",),
    "spelling": ("int64",),
    "parameters": ("uint8",),
}


def restore_ngram(recipe: NgramRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> NgramModel:
    """The model of a saved artifact's arrays, which stay on disk; their shapes and bounds are checked first."""
    for name, types in _WANTED.items():
        if name not in arrays or arrays[name].dtype.name not in types:
            raise ArtifactError(f"the array {name!r} is missing or of a wrong type: train the model again.")
    levels = np.array(arrays["levels"])
    size, contexts = (int(levels[-1]), int(levels[-2])) if levels.size > 1 else (0, 0)
    shapes = {
        "levels": (recipe.order + 1,),
        "words": (size,),
        "first": (contexts + 1,),
        "links": (size,),
        "logp": (size,),
        "bow": (contexts,),
        "spelling": (END + 1, END + 1),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ArtifactError(f"the array {name!r} has the shape {arrays[name].shape}, not {shape}: train it again.")
    if levels[0] != 0 or (np.diff(levels) < 0).any() or levels[1] != len(tokenizer):
        raise ArtifactError("the array 'levels' does not fit the vocabulary: train the model again.")
    trie = Trie(levels, arrays["words"], arrays["first"], arrays["links"], unpack_counts(arrays, size))
    books = np.array(arrays["books"]) if "books" in arrays else _NO_BOOKS
    steps = Steps(*(np.array(arrays[name]) for name in Steps._fields)) if "steps" in arrays else NO_STEPS
    parameters = json.loads(bytes(arrays["parameters"]))
    return NgramModel(
        recipe, tokenizer, layout, trie, arrays["logp"], arrays["bow"], Spelling(np.array(arrays["spelling"])),
        books=books, steps=steps, parameters=parameters,
    )  # fmt: skip
