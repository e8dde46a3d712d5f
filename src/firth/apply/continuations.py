"""Log-probabilities of continuations: the tokens of an answer after a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from firth.abilities import ScoresTokens
from firth.errors import AbilityError
from firth.progress import note, progress

_CHUNK = 512  # continuations scored at once
_SPECIAL = 2  # tokens around a text


class Continuation(NamedTuple):
    """An answer after a prompt."""

    before: tuple[str, ...]
    """The lines before that of the answer."""
    begin: str
    """The line of the answer, up to it."""
    answer: str


class ContinuationScore(NamedTuple):
    """The log-probability of an answer, its size, and how many of the first lines were left out."""

    logprob: float
    tokens: int
    bytes: int
    dropped: int


def score_continuations(model: Any, asked: Sequence[Continuation]) -> list[ContinuationScore]:
    """The score of each answer: the sum of the log-probabilities of its tokens after the prompt.

    A model that carries context over sentences reads the lines as sentences of a document, any other one as a single
    sentence. Of masked models the scores are pseudo-log-likelihoods, each token given all others. If a prompt is longer
    than the model's context, its oldest lines are left out.
    """
    if not isinstance(model, ScoresTokens):
        raise AbilityError(
            f"a {type(model).__name__} has no probabilities of tokens: use a language model, such as gpt or kn5."
        )
    left, found = iter(asked), list[ContinuationScore]()
    with progress("scoring", len(asked), "answers") as advance:
        while some := list(islice(left, _CHUNK)):
            found += _score_some(model, some)
            advance(len(some))
    if cut := sum(one.dropped > 0 for one in found):
        note(
            f"{cut:,} of {len(found):,} prompts are longer than the model's context: their oldest examples are left out"
        )
    return found


def _score_some(model: ScoresTokens, asked: Sequence[Continuation]) -> list[ContinuationScore]:
    scorer = model.token_scorer
    sizes = _sizes(scorer, sorted({line for one in asked for line in one.before}))
    lines, counts, dropped = list[str](), list[int](), list[int]()
    heads = _encode(scorer, [one.begin for one in asked])
    wholes = _encode(scorer, [one.begin + one.answer for one in asked])
    for one, whole in zip(asked, wholes, strict=True):
        kept = _fitting([sizes[line] for line in one.before], len(whole), model.max_tokens)
        before = one.before[len(one.before) - kept :]
        made = [*before, one.begin + one.answer]
        made = made if scorer.carries_context else [" ".join(line.strip() for line in made)]
        lines += made
        counts.append(len(made))
        dropped.append(len(one.before) - kept)
    stream, _ = scorer.stream(lines, counts)
    ends = stream.bounds[np.cumsum(counts)] - 1  # of the answers
    lengths = [len(whole) - _common(head, whole) for head, whole in zip(heads, wholes, strict=True)]
    wanted = np.zeros(stream.ids.size, dtype=np.bool_)
    for end, length in zip(ends.tolist(), lengths, strict=True):
        wanted[end - length : end] = True
    logprobs = scorer.wanted_logprobs(stream, wanted)
    return [
        ContinuationScore(float(logprobs[end - length : end].sum()), length, len(one.answer.encode()), lost)
        for one, end, length, lost in zip(asked, ends.tolist(), lengths, dropped, strict=True)
    ]


def _encode(scorer: Any, lines: Sequence[str]) -> list[list[int]]:
    if not lines:
        return []
    stream, _ = scorer.stream([line.strip() for line in lines])
    return [part[:-1].tolist() for part in np.split(stream.ids, stream.bounds[1:-1])]


def _sizes(scorer: Any, lines: Sequence[str]) -> dict[str, int]:
    return {line: len(ids) + 1 for line, ids in zip(lines, _encode(scorer, lines), strict=True)}


def _fitting(sizes: Sequence[int], own: int, most: int | None) -> int:
    """How many of the last lines fit before the line of an answer.

    >>> _fitting([5, 5, 5], 4, 16), _fitting([5, 5, 5], 40, 16), _fitting([5, 5], 4, None)
    (2, 0, 2)
    """
    if most is None:
        return len(sizes)
    space, kept = most - _SPECIAL - own, 0
    for size in reversed(sizes):
        space -= size
        if space < 0:
            break
        kept += 1
    return kept


def _common(one: Sequence[int], two: Sequence[int]) -> int:
    """The number of first tokens that two lines share, at least one token of the second being left.

    >>> _common([5, 6], [5, 6, 7]), _common([5, 6], [5, 8]), _common([5], [5])
    (2, 1, 0)
    """
    shared = next(
        (index for index, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
    )
    return max(0, min(shared, len(two) - 1))
