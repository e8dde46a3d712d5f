"""Vectors in context: what a network makes of the tokens, words and texts that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.errors import AbilityError
from firth.nets.scoring import Numbers, batch_of, by_length, following, longest, one_line, surrounding
from firth.progress import progress
from firth.text.layout import sentences_of
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import BOS, EOS, UNK, Tokens

if TYPE_CHECKING:
    from firth.nets.model import NetModel

Floats = npt.NDArray[np.float32]
Layer = str | int
POOLINGS = ("mean", "whole", "first", "last", "max")
_LONGEST = 2048  # tokens that are read at once by networks that could read any number
_SENTENCES = 512  # whose words are compared at once


class Row(NamedTuple):
    """A text as a network reads it."""

    ids: Numbers
    own: npt.NDArray[np.bool_]
    """Which are tokens of the text: not what stands around it or between its sentences."""


class Occurrence(NamedTuple):
    """A word in a sentence, and how near it is to what was asked for."""

    word: str
    score: float
    context: str


def embed_texts(model: NetModel, texts: Sequence[str], layer: Layer, pooling: str) -> Floats:
    """A row for each text; zeros for those without tokens."""
    if pooling not in POOLINGS:
        raise AbilityError(f"there is no pooling {pooling!r}: choose from {', '.join(POOLINGS)}.")
    check_layer(model, layer)
    rows = lay_out(model, texts)
    pools = [_Pool(pooling, row) for row in rows]
    width = 0
    with progress("reading", len(texts), "texts") as advance:
        for number, first, states in read(model, [row.ids for row in rows], layer):
            pools[number].add(first, states)
            width = states.shape[1]
            advance(first == 0)
    found = np.zeros((len(texts), width or _width(model, layer)), dtype=np.float32)
    for number, pool in enumerate(pools):
        if rows[number].own.any():
            found[number] = pool.result()
    return found


class _Pool:
    """One vector of many states, which come in parts."""

    def __init__(self, pooling: str, row: Row) -> None:
        self.pooling = pooling
        places = np.flatnonzero(row.own)
        # [CLS] is there to stand for the text; what stands before it otherwise says nothing of it
        self.first = 0 if row.ids[0] == BOS else int(places[0]) if places.size else 0
        self.last = int(places[-1]) if places.size else 0
        self.own = torch.ones(row.own.size, dtype=torch.bool) if pooling == "whole" else torch.from_numpy(row.own)
        self.value: Tensor | None = None

    def add(self, first: int, states: Tensor) -> None:
        """Takes the states from the place `first` on."""
        own = states[self.own[first : first + len(states)]]
        if self.pooling in ("first", "last"):
            place = (self.first if self.pooling == "first" else self.last) - first
            if 0 <= place < len(states):
                self.value = states[place].clone()
        elif len(own):
            part = own.amax(0) if self.pooling == "max" else own.sum(0)
            combine = torch.maximum if self.pooling == "max" else torch.add
            self.value = part if self.value is None else combine(self.value, part)

    def result(self) -> Floats:
        assert self.value is not None
        value = self.value / int(self.own.sum()) if self.pooling in ("mean", "whole") else self.value
        return value.numpy()


def all_layers(model: NetModel, texts: Sequence[str]) -> list[list[Floats]]:
    """For each text the states of its tokens, layer by layer, those of both directions apart."""
    widths = _widths(model)
    found = token_states(model, lay_out(model, texts), "all")
    if model.recipe.directions == 2:
        widths = [width // 2 for width in widths for _ in range(2)]
    split = [np.split(states, np.cumsum(widths)[:-1], axis=1) for states in found]
    if model.recipe.directions == 2:  # what enters is the same for both
        return [layers[1:] for layers in split]
    return split


def token_states(model: NetModel, rows: Sequence[Row], layer: Layer) -> list[Floats]:
    """(tokens, width) for each row: the states of the text's own tokens."""
    width = _width(model, layer)
    found = [np.empty((row.ids.size, width), dtype=np.float32) for row in rows]
    for number, first, states in read(model, [row.ids for row in rows], layer):
        found[number][first : first + len(states)] = states.numpy()
    return [states[row.own] for states, row in zip(found, rows, strict=True)]


def lay_out(model: NetModel, texts: Sequence[str]) -> list[Row]:
    """Texts as the network has learnt to read them: see `NetModel.frame`."""
    split = [[one_line(sentence) for sentence in sentences_of(text, model.layout)] for text in texts]
    encoded = iter(model.encode([sentence for one in split for sentence in one]))
    return [_framed(list(islice(encoded, len(one))), *model.frame) for one in split]


def _framed(sentences: Sequence[Numbers], first: int, ends: bool) -> Row:
    """Sentences with what stands before them, between them and at the end."""
    parts, own = [np.array([first])], [np.zeros(1, dtype=np.bool_)]
    for number, ids in enumerate(sentences):
        closed = int(ends or number + 1 == len(sentences))
        parts += [np.where(ids >= FIRST_WORD, ids, UNK), np.full(closed, EOS)]
        own += [np.ones(ids.size, dtype=np.bool_), np.zeros(closed, dtype=np.bool_)]
    return Row(np.concatenate(parts), np.concatenate(own))


def read(model: NetModel, rows: Sequence[Numbers], layer: Layer) -> Iterator[tuple[int, int, Tensor]]:
    """(number of the row, first place, states from there on) for all places of all rows, long ones in parts."""
    most = longest(model.recipe) or _LONGEST
    causal = model.recipe.visibility == "causal"
    numbers, windows = [], []
    for number, ids in enumerate(rows):
        parts = following(ids.size, most, most // 2) if causal else surrounding(ids.size, most)
        numbers += [number] * len(parts)
        windows += parts
    lengths = np.array([window.end - window.begin for window in windows], dtype=np.int64)
    for group in by_length(lengths, equal=True):
        chosen = [(numbers[one], windows[one]) for one in group.tolist()]
        ids = np.array([rows[number][window.begin : window.end] for number, window in chosen])
        with torch.inference_mode():
            states = choose(model.network(batch_of(torch.from_numpy(ids))).layers, layer)
        for (number, window), one in zip(chosen, states, strict=True):
            yield number, window.first, one[window.first - window.begin : window.last - window.begin]


def choose(layers: Sequence[Tensor], layer: Layer) -> Tensor:
    """A layer by its number, or last, mix (the mean of all) or all (side by side)."""
    if layer == "all":
        return torch.cat(list(layers), -1)
    if layer == "mix":
        if len({one.shape[-1] for one in layers}) > 1:
            raise AbilityError("the layers have different widths, so they have no mean: choose one, or all.")
        return torch.stack(list(layers)).mean(0)
    return layers[-1] if layer == "last" else layers[int(layer)]


def check_layer(model: NetModel, layer: Layer) -> None:
    """Raises `AbilityError` if there is no such layer."""
    depth = model.recipe.encoder.layers + 1
    if layer not in ("last", "mix", "all") and not (isinstance(layer, int) and -depth <= layer < depth):
        raise AbilityError(f"there is no layer {layer}: choose from 0 to {depth - 1}, last, mix and all.")


def _width(model: NetModel, layer: Layer) -> int:
    """Numbers of a state of a layer."""
    widths = _widths(model)
    return sum(widths) if layer == "all" else widths[layer if isinstance(layer, int) else -1]


def _widths(model: NetModel) -> list[int]:
    """Numbers of a state of each layer."""
    with torch.inference_mode():
        return [one.shape[-1] for one in model.network(batch_of(torch.tensor([[EOS]]))).layers]


class Span(NamedTuple):
    """A word of a sentence, and which of its tokens are it."""

    word: str
    first: int
    end: int


def spans_of(text: str, tokens: Tokens) -> list[Span]:
    """The words of a sentence; `text` is what the tokens' offsets are places in.

    >>> spans_of("play on", Tokens([7, 8, 9], [True, False, True], [(0, 2), (2, 4), (4, 7)]))
    [Span(word='play', first=0, end=2), Span(word='on', first=2, end=3)]
    """
    begins = [place for place, starts in enumerate(tokens.starts) if starts]
    spans, seen = [], 0
    for first, end in zip(begins, [*begins[1:], len(tokens.ids)], strict=True):
        low, high = max(tokens.offsets[first][0], seen), tokens.offsets[end - 1][1]
        word, seen = text[low:high].strip(), high  # a token of bytes may hold the end of the word before
        if word:
            spans.append(Span(word, first, end))
    return spans


def word_states(model: NetModel, sentences: Sequence[str], layer: Layer) -> list[tuple[list[Span], Floats]]:
    """The words of each sentence and their states: the mean of those of a word's tokens."""
    lines = [one_line(sentence) for sentence in sentences]
    found = model.tokenizer.encode_batch(lines)
    rows = [_framed([np.array(tokens.ids, dtype=np.int64)], *model.frame) for tokens in found]
    words = []
    for line, tokens, states in zip(lines, found, token_states(model, rows, layer), strict=True):
        spans = spans_of(model.tokenizer.spaced(line), tokens)
        means = [states[span.first : span.end].mean(axis=0) for span in spans]
        words.append((spans, np.array(means, dtype=np.float32).reshape(len(spans), states.shape[1])))
    return words


def nearest_occurrences(
    model: NetModel,
    word: str,
    context: str,
    sentences: Iterable[str] = (),
    count: int = 10,
    layer: Layer = "last",
) -> list[Occurrence]:
    """The words of sentences that are nearest to a word as it is meant in a context, nearest first.

    Without sentences those of the context are looked at. The word itself in its context is not its own neighbour, and
    the same word in the same sentence is told once.
    """
    check_layer(model, layer)
    with progress("reading", None, "sentences") as advance:
        asked = sentences_of(context, model.layout)
        home, query = _find_word(model, word, asked, layer)
        best: dict[tuple[str, str], float] = {}
        stream = iter(sentences or asked)
        while part := list(islice(stream, _SENTENCES)):
            for sentence, (spans, states) in zip(part, word_states(model, part, layer), strict=True):
                for span, score in zip(spans, _cosines(states, query).tolist(), strict=True):
                    if sentence.strip() != home.strip() or span.word.casefold() != word.casefold():
                        key = (span.word, sentence.strip())
                        best[key] = max(score, best.get(key, -2.0))
            best = dict(sorted(best.items(), key=lambda one: -one[1])[: max(count, 0)])
            advance(len(part))
    return [Occurrence(near, score, where) for (near, where), score in best.items()]


def _find_word(model: NetModel, word: str, sentences: Sequence[str], layer: Layer) -> tuple[str, Floats]:
    """The first sentence that has the word, and the word's state in it."""
    wanted = one_line(word).strip().casefold()
    for exact in (True, False):
        for sentence, (spans, states) in zip(sentences, word_states(model, sentences, layer), strict=True):
            for span, state in zip(spans, states, strict=True):
                found = span.word.casefold()
                if wanted and (found == wanted if exact else wanted in found):
                    return sentence, np.asarray(state)
    raise AbilityError(f"the context does not have the word {word!r}: give a text in which it stands.")


def _cosines(rows: Floats, vector: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    return np.asarray(rows @ vector / np.maximum(lengths, 1e-12))
