"""Metrics of tagged words: entities by the rule of CoNLL-2003's evaluation, and words by that of SIGHAN's bakeoffs.

Examples are sentences, so that is what the bootstrap draws: words of one sentence are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from firth.tasks.bootstrap import Floats, Sample, ratio, sums_sample

Tags = Sequence[str]
Chunk = tuple[str, int, int]
_PREFIXES = ("B", "I", "E", "S")


def tags_sample(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Sample:
    """accuracy of the words' tags; if there are entities, entity_f1 with its precision and recall too."""
    if has_entities(gold) or has_entities(predicted):
        return _chunks_sample(gold, predicted, entities, "entity_f1")
    return sums_sample(_right_tags(gold, predicted), lambda sums, _: {"accuracy": ratio(sums[:, 0], sums[:, 1])})


def segments_sample(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Sample:
    """word_f1 with its precision and recall, and accuracy of the characters' tags."""
    return _chunks_sample(gold, predicted, words, "word_f1")


def has_entities(sentences: Sequence[Tags]) -> bool:
    """Whether any tag is like `B-PER` or `I-PER`."""
    return any(tag.startswith(("B-", "I-")) for tag in {tag for tags in sentences for tag in tags})


def entities(tags: Tags) -> set[Chunk]:
    """The entities of a sentence as kind, first and last word, read from BIO, IOB or BIOES tags.

    Illegal tags are read as CoNLL's evaluation reads them: `I-` and `E-` begin an entity where there is none of their
    kind to go on with. Tags of other forms are outside.

    >>> sorted(entities(["B-PER", "I-PER", "O", "I-LOC", "I-ORG"]))
    [('LOC', 3, 3), ('ORG', 4, 4), ('PER', 0, 1)]
    """
    found = set()
    before, kind, first = "O", "", 0  # the tag before this one, and the entity it belongs to
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, own = tag.partition("-")
        if prefix not in _PREFIXES:
            prefix, own = "O", ""
        goes_on = before in ("B", "I") and prefix in ("I", "E") and own == kind
        if not goes_on:
            if before != "O":
                found.add((kind, first, place - 1))
            first = place
        before, kind = prefix, own
    return found


def words(tags: Tags) -> set[Chunk]:
    """The words of a sentence whose characters are tagged BIES (or BMES, or BI), as first and last character.

    A word begins at `B` and `S`, after `E` and `S`, and with the sentence: so every character is in one word, whatever
    the tags.

    >>> sorted(words("BESBIE"))
    [('', 0, 1), ('', 2, 2), ('', 3, 5)]
    """
    begins = [
        place
        for place, tag in enumerate(tags)
        if place == 0 or tag[:1] in ("B", "S") or tags[place - 1][:1] in ("E", "S")
    ]
    return {("", first, after - 1) for first, after in pairwise([*begins, len(tags)])}


def _chunks_sample(
    gold: Sequence[Tags], predicted: Sequence[Tags], chunks: Callable[[Tags], set[Chunk]], metric: str
) -> Sample:
    counts = []
    for true_tags, told_tags in zip(gold, predicted, strict=True):
        true, told = chunks(true_tags), chunks(told_tags)
        counts.append((len(true & told), len(true), len(told)))

    def measures(sums: Floats, _: Any) -> dict[str, Floats]:
        right, words, both, true, told = sums.T
        return {
            "accuracy": ratio(right, words),
            metric: ratio(2 * both, true + told),
            "precision": ratio(both, told),
            "recall": ratio(both, true),
        }

    return sums_sample(np.hstack([_right_tags(gold, predicted), np.array(counts, dtype=np.float64)]), measures)


def _right_tags(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Floats:
    """For each sentence how many tags are right, and how many there are."""
    rows = [
        (sum(one == two for one, two in zip(true, told, strict=True)), len(true))
        for true, told in zip(gold, predicted, strict=True)
    ]
    return np.array(rows, dtype=np.float64)
