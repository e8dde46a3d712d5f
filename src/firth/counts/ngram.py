"""N-gram models: all smoothing methods as back-off tables over a trie."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.cores import cores, in_order
from firth.counts import _query_kernels as kernels
from firth.counts._query_kernels import BACK_OFF, CHURCH_GALE, ROOT, UNIFORM, find_child
from firth.counts.em import saved_array
from firth.counts.recipe import NgramRecipe as NgramRecipe
from firth.counts.saved import check_links, saved_json, saved_table
from firth.counts.trie import Floats, Trie, WordIds, pack_counts, predictable_words
from firth.decoding.sampling import Sampling
from firth.errors import AbilityError, ArtifactError
from firth.lm.language_model import (
    LanguageModel,
    TokenStream,
    UnknownWordModel,
    current_sentence,
    restore_spelling,
)
from firth.text.layout import Layout, sentences_of
from firth.tokens.tokenizer import BOS, EOS, Tokenizer

_PARALLEL_TOKENS = 1 << 12  # shorter texts are scored in one thread


class ChurchGaleTable(NamedTuple):
    """Church-Gale: log-probabilities of words not seen after a history, by the bucket of the pair."""

    history_scores: Floats
    word_scores: Floats  # the bucket is the sum of both scores, rounded down
    bucket_logp: Floats


NO_CHURCH_GALE = ChurchGaleTable(np.zeros(0), np.zeros(0), np.zeros(0))
_NO_CODEBOOKS = np.zeros((0, 0))


class NgramModel(LanguageModel):
    """A back-off n-gram model.

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
        bow: Floats,
        unknown_word_model: UnknownWordModel,
        *,
        codebooks: Floats = _NO_CODEBOOKS,
        church_gale: ChurchGaleTable = NO_CHURCH_GALE,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(recipe, tokenizer, layout, unknown_word_model)
        if recipe.smoothing == "stupid":
            self.score_kind = "pseudo"  # its scores sum to more than one
        self.trie, self.logp, self.bow = trie, logp, bow
        self.codebooks, self.church_gale = codebooks, church_gale
        self.parameters = dict(parameters or {})
        is_church_gale = church_gale.bucket_logp.size > 0
        self.mode = CHURCH_GALE if is_church_gale else UNIFORM if backs_off_to_uniform(recipe) else BACK_OFF
        mask = predictable_words(trie.vocab_size, recipe.vocabulary == "open")
        self._uniform = np.where(mask, -np.log(mask.sum()), -np.inf)
        self._table = (trie.levels, trie.words, trie.first, trie.links, logp, bow, codebooks)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        names = ("levels", "words", "first", "links", "logp", "bow", "codebooks")
        arrays: dict[str, npt.NDArray[Any]] = dict(zip(names, self._table, strict=True))
        arrays |= pack_counts(self.trie.counts) | {"spelling": self.unknown_word_model.counts}
        arrays["parameters"] = np.frombuffer(json.dumps(self.parameters, sort_keys=True).encode(), dtype=np.uint8)
        if not self.codebooks.size:
            del arrays["codebooks"]
        if self.mode == CHURCH_GALE:
            arrays |= self.church_gale._asdict()
        return arrays

    def token_logprobs(self, stream: TokenStream) -> Floats:
        out = np.empty(stream.ids.size)
        sentences = stream.bounds.size - 1
        if stream.ids.size < _PARALLEL_TOKENS:
            self._score_sentences(stream, 0, sentences, out)
            return out
        cuts = np.linspace(0, sentences, 2 * cores() + 1).astype(np.int64).tolist()
        list(in_order(lambda part: self._score_sentences(stream, *part, out), pairwise(cuts)))
        return out

    def _score_sentences(self, stream: TokenStream, begin: int, end: int, out: Floats) -> None:
        text = (stream.ids, stream.bounds, begin, end, BOS)
        if self.mode != BACK_OFF:
            kernels.score_uniform(*text, *self._table, self.mode, self._uniform, *self.church_gale, out)
        elif self.trie.order > 1 and end - begin > kernels.LANES:
            kernels.score_interleaved(*text, *self._table, out)
        else:
            kernels.score_backing_off(*text, *self._table, out)

    def next_logprobs(self, history: Sequence[int]) -> Floats:
        words = current_sentence(history)
        state, depth = self.find_state(words)
        if self.mode == BACK_OFF:
            return self._logprobs_after(state)
        out = np.empty(self.trie.vocab_size)
        is_known = depth == min(self.trie.order - 1, len(words))
        table = (self.trie.levels, self.trie.words, self.trie.first, self.logp, self.bow, self.codebooks)
        kernels.next_uniform(state, is_known, *table, self.mode, self._uniform, *self.church_gale, out)
        return out

    def _logprobs_after(self, state: np.uint32) -> Floats:
        out = np.empty(self.trie.vocab_size)
        kernels.next_backing_off(state, *self._table, out)
        return out

    def find_state(self, words: Sequence[int]) -> tuple[np.uint32, int]:
        """The node of the longest known suffix of `words`, and its length."""
        trie, ids = self.trie, np.array(words, dtype=np.uint32)
        state, depth = kernels.state_after(ids, trie.contexts, trie.words, trie.first, trie.links)
        return np.uint32(state), int(depth)

    def next(self, history: str = "", top: int | None = 10) -> list[tuple[str, float]]:
        if top is None or self.mode != BACK_OFF:
            return super().next(history, top)
        ids, scores = self.top_next(self.history(history), top)
        words = (self.tokenizer.vocabulary[word] for word in ids.tolist())
        return list(zip(words, map(float, np.exp(scores)), strict=True))

    def top_next(self, history: Sequence[int], top: int) -> tuple[WordIds, Floats]:
        """The likeliest next words and their log-probabilities, without scoring the whole vocabulary."""
        state, _ = self.find_state(current_sentence(history))
        best, scores = np.zeros(top, dtype=np.uint32), np.zeros(top)
        self._stamps[0] += 1
        seen = (self._stamps[1:], self._stamps[0])
        size = kernels.top_backing_off(state, *self._table, self._words_by_frequency, *seen, best, scores)
        return best[:size], scores[:size]

    def explain(self, text: str) -> list[list[dict[str, Any]]]:
        stream, _ = self.stream(sentences_of(text, self.layout))
        return [self._explain_ids(stream.ids[a:b].tolist()) for a, b in pairwise(stream.bounds.tolist())]

    def _explain_ids(self, words: list[int]) -> list[dict[str, Any]]:
        """For each word of a sentence: its log-probability, the matched n-gram and the back-off weights.

        `order` is the length of the matched n-gram; 0 where a model without back-off has not seen the history or word.
        """
        trie, vocabulary = self.trie, self.tokenizer.vocabulary
        rows = []
        for position, word in enumerate(words):
            before = current_sentence(words[:position])
            state, depth = self.find_state(before)
            logprob = float(self.next_logprobs(words[:position])[word])
            backoffs: list[float] = []
            while state != ROOT and find_child(trie.words, trie.first, state, np.uint32(word)) == ROOT:
                backoffs.append(float(self.bow[state]))
                state = trie.links[state]
                depth = 0 if state == ROOT else int(np.searchsorted(trie.levels, int(state), side="right"))
            is_uniform = self.mode != BACK_OFF and (bool(backoffs) or depth < min(trie.order - 1, len(before)))
            history = [] if is_uniform or depth == 0 else before[-depth:]
            order, names = 0 if is_uniform else depth + 1, [vocabulary[number] for number in history]
            row = {"token": vocabulary[word], "logprob": logprob, "order": order, "history": names}
            rows.append(row | {"backoffs": backoffs})
        return rows

    def verify(self) -> None:
        """Check what restoring the model leaves to `firth verify`: that each suffix link is the longest suffix."""
        check_links(self.trie)

    @cached_property
    def _stamps(self) -> npt.NDArray[np.int64]:
        """The number of queries, and for each word the last query that has seen it."""
        return np.zeros(self.trie.vocab_size + 1, dtype=np.int64)

    @cached_property
    def _unigrams(self) -> Floats:
        return self._logprobs_after(ROOT)

    @cached_property
    def _words_by_frequency(self) -> WordIds:
        return np.argsort(-self._unigrams, kind="stable").astype(np.uint32)

    @cached_property
    def _unigram_sums(self) -> Floats:
        return np.cumsum(np.exp(self._unigrams))

    def continuations(
        self, history: Sequence[int], count: int, length: int, sampling: Sampling, beams: int = 1
    ) -> list[list[int]]:
        if self.mode == BACK_OFF and sampling.is_plain and beams == 1:
            return self.sample(history, count, length, sampling.seed)
        return super().continuations(history, count, length, sampling, beams)

    def continuation_steps(self, history: Sequence[int], length: int, sampling: Sampling) -> Iterator[list[int]]:
        if self.mode != BACK_OFF or not sampling.is_plain:
            yield from super().continuation_steps(history, length, sampling)
            return
        (ids,) = self.sample(history, 1, length, sampling.seed)
        yield from (ids[:size] for size in range(len(ids) + 1))

    def sample(self, history: Sequence[int], count: int, length: int, seed: int) -> list[list[int]]:
        """`count` continuations as ids, sampled without computing whole distributions."""
        if self.mode != BACK_OFF:
            raise AbilityError("sampling word by word needs a model that backs off: use generate.")
        start, _ = self.find_state(current_sentence(history))
        out = np.empty(length, dtype=np.uint32)
        rng_state = np.random.default_rng(seed).integers(0, 1 << 64, size=1, dtype=np.uint64)
        sampled = []
        for _ in range(count):
            size = kernels.sample_sentence(start, EOS, *self._table, self._unigram_sums, rng_state, out)
            if size < 0:
                raise ArtifactError("the probabilities of the model do not sum to one: train or import it again.")
            sampled.append(out[:size].tolist())
        return sampled


def backs_off_to_uniform(recipe: NgramRecipe) -> bool:
    """Whether words not seen after a history get equal probabilities instead of those of a shorter history."""
    return recipe.smoothing == "additive" or (recipe.smoothing == "good-turing" and recipe.uniform_backoff)


def restore_ngram(recipe: NgramRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> NgramModel:
    """The model of a saved artifact's arrays, which stay on disk, after a check of all indices in them."""
    trie, logp, bow, codebooks = saved_table(arrays, recipe.order, len(tokenizer))
    church_gale = NO_CHURCH_GALE
    if "bucket_logp" in arrays:
        sizes = {"history_scores": trie.contexts, "word_scores": trie.vocab_size, "bucket_logp": None}
        found = (np.array(saved_array(arrays, name, np.float64, (size,))) for name, size in sizes.items())
        church_gale = ChurchGaleTable(*found)
    return NgramModel(
        recipe, tokenizer, layout, trie, logp, bow, restore_spelling(arrays),
        codebooks=codebooks, church_gale=church_gale, parameters=saved_json(arrays, "parameters"),
    )  # fmt: skip
