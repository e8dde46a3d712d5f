"""Reading many texts of different lengths: by length, in parts that fit, and no more states than are asked for.

V = tokens of the vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.errors import AbilityError
from firth.nets.batch import Batch
from firth.nets.network import Memory
from firth.nets.outputs.output import OutputLayer
from firth.nets.recipe import NetRecipe
from firth.progress import Advance
from firth.tokens.language import LanguageModel, Stream

Numbers = npt.NDArray[np.int64]
Extend = Callable[[Tensor, Memory | None], tuple[Tensor, Memory]]
"""New tokens (rows, places) and what is remembered -> their states (rows, places, width) and what is remembered now."""
Look = Callable[[Batch, Tensor], Tensor]
"""A batch and the numbers of some of its places -> their states (places, width)."""

ROOM = 1 << 11
"""Tokens that are read at once: their states stay in the processor's cache."""
_LOGITS = 1 << 24  # numbers of a table of probabilities, at most
_STEP = 256  # tokens that a recurrent network reads on at once


class Window(NamedTuple):
    """A part of a text that is read by itself, because the whole is too long; places are those of the text."""

    begin: int
    end: int
    first: int
    """What is said of the places from here..."""
    last: int
    """...to here is believed."""


def one_line(text: str) -> str:
    """A text that tokenizers take: one line, without NULs and without bytes that are no text, as command lines have."""
    return " ".join(text.encode(errors="replace").decode().replace("\0", " ").splitlines())


def longest(recipe: NetRecipe) -> int | None:
    """Tokens of a row at most, special ones included; None if the network reads on forever."""
    positions = recipe.embedding.positions != "none"
    return recipe.rows.length if positions or recipe.encoder.kind == "transformer" else None


def following(length: int, most: int, overlap: int) -> list[Window]:
    """Windows over a text whose states know what came before: each tells of what the one before it did not reach.

    All but the first have at least `overlap` tokens before the first place that they tell of.

    >>> [tuple(window) for window in following(7, 4, 2)]
    [(0, 4, 0, 4), (2, 6, 4, 6), (4, 7, 6, 7)]
    """
    step = most - overlap
    begins = [0, *range(step, length - overlap, step)]
    return [Window(b, min(b + most, length), b + overlap if b else 0, min(b + most, length)) for b in begins]


def surrounding(length: int, most: int) -> list[Window]:
    """Windows over a text whose states know both sides: each tells of its middle, those at the ends of these, too.

    >>> [tuple(window) for window in surrounding(7, 4)]
    [(0, 4, 0, 3), (2, 6, 3, 4), (3, 7, 4, 7)]
    """
    if length <= most:
        return [Window(0, length, 0, length)]
    step = max(1, most // 2)
    begins = [*range(0, length - most, step), length - most]
    turns = [0, *((a + most + b) // 2 for a, b in pairwise(begins)), length]
    return [Window(b, b + most, low, high) for b, (low, high) in zip(begins, pairwise(turns), strict=True)]


def by_length(lengths: Numbers, equal: bool = False, most: int = ROOM) -> Iterator[Numbers]:
    """Groups of texts of nearly the same length, longest first, that fill the room; with `equal` of the very same.

    `most` tokens of each are read at once.
    """
    order = np.argsort(-lengths, kind="stable")
    falling = -lengths[order]
    begin = 0
    while begin < order.size:
        longest = -int(falling[begin])
        end = begin + max(1, ROOM // max(1, min(longest, most)))
        if equal:
            end = min(end, int(np.searchsorted(falling, -longest, side="right")))
        yield order[begin:end]
        begin = end


def rows_of(ids: Numbers, begins: Numbers, lengths: Numbers) -> tuple[Tensor, Tensor]:
    """(rows, longest): tokens from each beginning on, then padding; and which are tokens."""
    columns = np.arange(int(lengths.max()))
    held = columns < lengths[:, None]
    rows = np.where(held, ids[np.minimum(begins[:, None] + columns, ids.size - 1)], 0)
    return torch.from_numpy(rows), torch.from_numpy(held)


def batch_of(ids: Tensor) -> Batch:
    """Rows of one part each."""
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool))


def at_once(tokens: int) -> int:
    """States whose probabilities of all tokens are held at once."""
    return max(1, _LOGITS // tokens)


def log_probability(output: OutputLayer, states: Tensor, targets: Tensor, tokens: int) -> npt.NDArray[np.float64]:
    """What each state gives to its target, without ever holding a large table; `tokens` are those of the vocabulary."""
    rows = at_once(tokens)
    parts = [slice(begin, begin + rows) for begin in range(0, len(states), rows)]
    return torch.cat([output.log_probability(states[part], targets[part]) for part in parts]).double().numpy()


class Text(NamedTuple):
    """Tokens that are read and those that are to be predicted there, text after text."""

    inputs: Numbers
    targets: Numbers
    bounds: Numbers
    """Text t is from `bounds[t]` to `bounds[t + 1]`."""
    tokens: int
    """Of the vocabulary."""


def log_in_windows(
    look: Look, output: OutputLayer, text: Text, windows: Sequence[Window], advance: Advance, equal: bool = False
) -> npt.NDArray[np.float64]:
    """The log-probability of every target, by windows whose places are those of all texts together.

    Padding follows the tokens, where causal states cannot see it; with `equal` there is none.
    """
    logs = np.empty(text.targets.size)
    begins, ends, firsts, lasts = np.array(windows, dtype=np.int64).reshape(-1, 4).T
    for group in by_length(ends - begins, equal):
        ids, _ = rows_of(text.inputs, begins[group], (ends - begins)[group])
        places = torch.arange(ids.shape[1]) + torch.from_numpy(begins[group])[:, None]
        told = (places >= torch.from_numpy(firsts[group])[:, None]) & (places < torch.from_numpy(lasts[group])[:, None])
        found = places[told].numpy()
        states = look(batch_of(ids), told.flatten().nonzero()[:, 0])
        logs[found] = log_probability(output, states, torch.from_numpy(text.targets[found]), text.tokens)
        advance(found.size)
    return logs


def log_reading_on(extend: Extend, output: OutputLayer, text: Text, advance: Advance) -> npt.NDArray[np.float64]:
    """The log-probability of every target, each text read from its beginning to its end, many side by side."""
    logs = np.empty(text.targets.size)
    lengths = np.diff(text.bounds)
    for group in by_length(lengths, most=_STEP):
        begins, left = text.bounds[group], lengths[group]
        memory: Memory | None = None
        while left.size:
            now = np.minimum(left, _STEP)
            ids, held = rows_of(text.inputs, begins, now)
            states, memory = extend(ids, memory)
            found = (torch.from_numpy(begins)[:, None] + torch.arange(ids.shape[1]))[held].numpy()
            logs[found] = log_probability(output, states[held], torch.from_numpy(text.targets[found]), text.tokens)
            advance(found.size)
            going_on = left > _STEP
            begins, left = begins[going_on] + _STEP, left[going_on] - _STEP
            if left.size and not going_on.all():
                memory = memory.pick(torch.from_numpy(np.flatnonzero(going_on)))
    return logs


class TokenScores(LanguageModel):
    """Scores texts by what a function says of their tokens, for models that say it in another way than word by word."""

    def __init__(self, model: Any, log_tokens: Callable[[Stream], npt.NDArray[np.float64]]) -> None:
        super().__init__(model.recipe, model.tokenizer, model.layout, model.spelling)
        self._log = log_tokens

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {}

    def log_tokens(self, stream: Stream) -> npt.NDArray[np.float64]:
        return self._log(stream)

    def log_next(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        raise AbilityError("these are scores of whole texts: ask a causal model, such as gpt or lstm, what comes next.")


class DocumentScores(TokenScores):
    """Scores sentences of several documents, so many of each; what was said in another is not remembered."""

    def __init__(
        self, model: Any, log_tokens: Callable[[Stream], npt.NDArray[np.float64]], sizes: Sequence[int]
    ) -> None:
        super().__init__(model, log_tokens)
        self._begins = np.cumsum([0, *sizes])[:-1]

    def stream(
        self, sentences: Sequence[str], lengths: Sequence[int] = (), together: bool = False
    ) -> tuple[Stream, npt.NDArray[np.int64]]:
        return super().stream(sentences, np.add.reduceat(lengths, self._begins).tolist())
