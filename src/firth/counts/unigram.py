"""The unigram model: words drawn independently, with additive smoothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from firth.abilities import Score
from firth.errors import ArtifactError, RecipeError
from firth.text.layout import Layout, sentences_of
from firth.tokens.encoder import Encoder
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.spelling import END, Spelling
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import EOS, UNK, Tokenizer

_FIRST_WORD = EOS + 2  # ids below are special tokens
_STEP = 1 << 22  # tokens counted between two looks at the clock


@dataclass(frozen=True, kw_only=True)
class UnigramRecipe:
    """p(w) = (c(w) + delta) / (N + delta V), over all words, `<unk>` and the end of the sentence."""

    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words"))
    delta: float = 1.0
    """What is added to every count; 1 is Laplace's add-one."""

    def __post_init__(self) -> None:
        if not self.delta > 0:
            raise RecipeError(f"delta={self.delta} would give unseen words no probability: set it above 0.")

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "counts"

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> UnigramModel:
        """The model of a saved artifact's arrays."""
        wanted = {"counts": (len(tokenizer),), "spelling": (END + 1, END + 1)}
        for name, shape in wanted.items():
            if name not in arrays or arrays[name].shape != shape or arrays[name].dtype != np.int64:
                raise ArtifactError(f"the array {name!r} is missing or not int64 of shape {shape}: train it again.")
        return UnigramModel(self, tokenizer, layout, arrays["counts"], Spelling(arrays["spelling"]))


class UnigramModel:
    """A model that knows how frequent words are and nothing else: the floor under all others."""

    score_kind: ClassVar[Literal["causal", "pseudo"]] = "causal"

    def __init__(
        self,
        recipe: UnigramRecipe,
        tokenizer: Tokenizer,
        layout: Layout,
        counts: npt.NDArray[np.int64],
        spelling: Spelling,
    ) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.layout = layout
        self.counts = counts
        self.spelling = spelling
        self._log = _log_probabilities(counts, recipe.delta)
        self._encoder = Encoder(tokenizer)

    def arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        return {"counts": self.counts, "spelling": self.spelling.counts}

    def score(self, texts: Sequence[str]) -> list[Score]:
        """The score of each text; a text of several sentences has an end for each of them."""
        split = [sentences_of(text, self.layout) for text in texts]
        encoded = self._encoder.encode([sentence for sentences in split for sentence in sentences])
        encoded.ids[encoded.ids < _FIRST_WORD] = UNK  # a special token written out in the text
        bounds = np.concatenate([[0], np.cumsum(encoded.lengths)])
        logs = np.concatenate([[0.0], np.cumsum(self._log[encoded.ids])])
        words = np.concatenate([[0], np.cumsum(encoded.starts)])
        scores, first = [], 0
        for text, sentences in zip(texts, split, strict=True):
            begin, end = bounds[first], bounds[first + len(sentences)]
            unknown = int(np.count_nonzero(encoded.ids[begin:end] == UNK)) - self._written_out(sentences)
            scores.append(
                Score(
                    logprob=float(logs[end] - logs[begin] + len(sentences) * self._log[EOS]),
                    tokens=int(end - begin) + len(sentences),
                    words=int(words[end] - words[begin]),
                    sentences=len(sentences),
                    bytes=len(text.encode()),
                    oov=unknown,
                    spelling=self._spell(sentences) if unknown else 0.0,
                )
            )
            first += len(sentences)
        return scores

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
        probabilities = sharpen(self._log, temperature=temperature, top_k=top_k, top_p=top_p)
        rng = np.random.default_rng(seed)
        begun = self.tokenizer.encode(prompt).ids
        texts = []
        for _ in range(count):
            drawn = rng.choice(probabilities.size, size=length, p=probabilities).tolist()
            texts.append(self.tokenizer.decode(begun + (drawn[: drawn.index(EOS)] if EOS in drawn else drawn)))
        return texts

    def _written_out(self, sentences: Sequence[str]) -> int:
        """How often the text itself says `<unk>`, as the Penn Treebank does: a word like any other."""
        return sum(sentence.count(self.tokenizer.vocabulary[UNK]) for sentence in sentences)

    def _spell(self, sentences: Sequence[str]) -> float:
        """The probability of the letters of all unknown tokens."""
        cost = 0.0
        for sentence in sentences:
            text = self.tokenizer.spaced(sentence)
            tokens = self.tokenizer.encode(sentence)
            for number, (begin, end) in zip(tokens.ids, tokens.offsets, strict=True):
                if number == UNK and text[begin:end] != self.tokenizer.vocabulary[UNK]:
                    cost += self.spelling.log_probability(text[begin:end])
        return cost


def train_unigram(
    recipe: UnigramRecipe,
    store: TokenStore,
    tokenizer: Tokenizer,
    layout: Layout,
    *,
    most_tokens: int | None = None,
    deadline: float | None = None,
) -> tuple[UnigramModel, int]:
    """The model of the store's first tokens, and how many of them were counted.

    Counting stops at the end of a sentence once `most_tokens` are counted or the `deadline` (of `time.monotonic`) is
    past, but never before the first sentence.
    """
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    last = len(store) if most_tokens is None else min(most_tokens, len(store))
    sentences = max(1, int(np.searchsorted(store.sentences, last, side="right")) - 1)
    done = 0
    while done < sentences and not (done and deadline is not None and time.monotonic() > deadline):
        begin = int(store.sentences[done])
        reached = int(np.searchsorted(store.sentences, begin + _STEP, side="right")) - 1
        upto = min(max(reached, done + 1), sentences)
        counts += np.bincount(store.ids[begin : int(store.sentences[upto])], minlength=counts.size)
        done = upto
    counts[UNK], counts[:UNK], counts[UNK + 1 : _FIRST_WORD] = counts[:_FIRST_WORD].sum(), 0, 0
    counts[EOS] = done
    rare = (tokenizer.vocabulary[number] for number in np.flatnonzero(counts == 1).tolist() if number >= _FIRST_WORD)
    model = UnigramModel(recipe, tokenizer, layout, counts, Spelling.train(rare))
    return model, int(store.sentences[done])


def sharpen(
    log_probabilities: npt.NDArray[np.float64], *, temperature: float, top_k: int | None, top_p: float | None
) -> npt.NDArray[np.float64]:
    """The distribution to draw from: cooled or heated, cut to the k likeliest or to the likeliest with mass p.

    >>> sharpen(np.log([0.5, 0.3, 0.2]), temperature=1.0, top_k=2, top_p=None).round(3).tolist()
    [0.625, 0.375, 0.0]
    """
    if not temperature > 0:
        raise RecipeError(f"temperature={temperature} must be above 0; 0.1 is nearly greedy.")
    weights = log_probabilities / temperature
    weights = np.exp(weights - weights.max())
    order = np.argsort(-weights, kind="stable")
    if top_k is not None:
        weights[order[top_k:]] = 0
    if top_p is not None:
        reached = np.cumsum(weights[order]) / weights.sum()
        weights[order[int(np.searchsorted(reached, top_p)) + 1 :]] = 0
    return np.asarray(weights / weights.sum())


def _log_probabilities(counts: npt.NDArray[np.int64], delta: float) -> npt.NDArray[np.float64]:
    """Over all tokens but the special ones that never occur in a sentence."""
    weights = counts + delta
    weights[[number for number in range(_FIRST_WORD) if number not in (UNK, EOS)]] = 0
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights) - np.log(weights.sum()))
