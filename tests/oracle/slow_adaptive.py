"""Cache, mixture and class models in slow and obvious Python, for comparison, and a small model for them to wrap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.lm.language_model import LanguageModel, TokenStream, UnknownWordModel, current_sentence
from firth.text.corpus import read_corpus
from firth.text.layout import Layout
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, Tokenizer
from firth.tokens.train import train_tokenizer

Distribution = list[float]
WORDS = ["the", "cat", "dog", "saw", "a", "ran", ",", "."]
"""Ids 5 to 12 of `small_tokenizer`, in another order."""


@dataclass(frozen=True)
class TableRecipe:
    """The recipe of `TableModel`, in position of that of an n-gram model."""

    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words", split="space"))
    kind: str = "counts"

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> TableRecipe:
        return TableRecipe(tokenizer)


class TableModel(LanguageModel):
    """The probability of every word after every word, given as a table."""

    def __init__(self, tokenizer: Tokenizer, table: npt.NDArray[np.float64], layout: Layout = "lines") -> None:
        super().__init__(TableRecipe(), tokenizer, layout, UnknownWordModel.train(["cat"]))
        self.table = table

    @classmethod
    def random(cls, tokenizer: Tokenizer, seed: int, size: int | None = None) -> TableModel:
        """Any probabilities; none for `<pad>`, `<s>` and `<mask>`."""
        size = size or len(tokenizer)
        table = np.random.default_rng(seed).gamma(0.5, size=(size, size)) + 1e-3
        table[:, [PAD, BOS, MASK]] = 0
        return cls(tokenizer, table / table.sum(axis=1, keepdims=True))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"table": self.table}

    def token_logprobs(self, stream: TokenStream) -> npt.NDArray[np.float64]:
        before = np.concatenate([[BOS], stream.ids[:-1]])
        before[stream.bounds[:-1]] = BOS
        return np.asarray(np.log(self.table[before, stream.ids]))

    def next_logprobs(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.table[current_sentence(history)[-1]]))


def restore_table(recipe: object, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> TableModel:
    """The saved model, in position of `restore_ngram`."""
    return TableModel(tokenizer, arrays["table"], layout)


def small_tokenizer() -> Tokenizer:
    """Words, ids 5 to 12."""
    return train_tokenizer(TableRecipe().tokenizer, read_corpus([WORDS]))


def random_text(seed: int, sentences: int = 12, vocabulary: int = 13, longest: int = 8) -> TokenStream:
    """Some sentences; about a third of them begin new texts. Words 1 and 5 up occur."""
    rng = np.random.default_rng(seed)
    words = np.array([1, *range(5, vocabulary)])
    drawn = [rng.choice(words, size=rng.integers(0, longest)).tolist() for _ in range(sentences)]
    stream = TokenStream.of(drawn)
    starts_document = rng.random(sentences) < 0.3
    starts_document[0] = True
    return stream._replace(starts_document=starts_document)


def histories(stream: TokenStream) -> list[list[int]]:
    """For every token of a stream what the text says before it, from where the text began."""
    found: list[list[int]] = []
    text: list[int] = []
    for sentence, starts_document in enumerate(stream.starts_document.tolist()):
        if starts_document:
            text = []
        for word in stream.ids[stream.bounds[sentence] : stream.bounds[sentence + 1]].tolist():
            found.append(list(text))
            text.append(word)
    return found


def before(history: Sequence[int], position: int, length: int) -> list[int]:
    """The `length` words before a position in their sentence, with `<s>` for those that are missing."""
    words: list[int] = []
    while len(words) < length:
        position -= 1
        ended = position < 0 or history[position] == EOS
        words.insert(0, BOS if ended else history[position])
        if ended:
            words = [BOS] * (length - len(words)) + words
    return words


def slow_cache(
    base: LanguageModel,
    enters: Callable[[int], bool],
    size: int,
    decay: float,
    order: int,
    weights: Callable[[int, int, int], Sequence[float]],
    history: Sequence[int],
) -> Distribution:
    """The distribution of a cache model; `weights(known, times, entries)` gives those of base and orders."""
    entries = [position for position, word in enumerate(history) if enters(word)][-size:]
    parts: list[Distribution] = []
    times = 0
    for length in range(order):
        same = [e for e in entries if before(history, e, length) == before(history, len(history), length)]
        if not same:
            break
        times = len(same)
        part = [0.0] * len(base.tokenizer)
        whole = sum(math.exp(-decay * (len(entries) - entries.index(e))) for e in same)
        for e in same:
            part[history[e]] += math.exp(-decay * (len(entries) - entries.index(e))) / whole
        parts.append(part)
    known = [math.exp(log) for log in base.next_logprobs(history)]
    if not parts:
        return known
    row = weights(len(parts), times, len(entries))
    return [row[0] * p + sum(row[n + 1] * part[word] for n, part in enumerate(parts)) for word, p in enumerate(known)]


def slow_mixture(
    parts: Sequence[LanguageModel], weights: Sequence[float], strength: float, keep: float, history: Sequence[int]
) -> Distribution:
    """The distribution of a mixture whose weights follow the text."""
    counts = [0.0] * len(parts)
    now = list(weights)
    for position, word in enumerate(history):
        given = [w * math.exp(part.next_logprobs(history[:position])[word]) for w, part in zip(now, parts, strict=True)]
        counts = [keep * c + g / sum(given) for c, g in zip(counts, given, strict=True)]
        now = [(strength * w + c) / (strength + sum(counts)) for w, c in zip(weights, counts, strict=True)]
    found = [part.next_logprobs(history) for part in parts]
    return [sum(w * math.exp(f[word]) for w, f in zip(now, found, strict=True)) for word in range(len(found[0]))]


def slow_classes(
    inner: LanguageModel, classes: Sequence[int], counts: Sequence[int], delta: float, history: Sequence[int]
) -> Distribution:
    """The distribution of a class model."""
    over_classes = [math.exp(log) for log in inner.next_logprobs([classes[word] for word in history])]
    found = []
    for word, name in enumerate(classes):
        same = [other for other, its in enumerate(classes) if its == name]
        probability = (counts[word] + delta) / (sum(counts[other] for other in same) + delta * len(same))
        found.append(over_classes[name] * probability)
    return found
