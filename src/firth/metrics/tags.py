"""Tag schemes, and metrics of tagged words: entity F1 as in CoNLL-2003, word F1 as in the SIGHAN bakeoffs.

BIO tags the first word of an entity B- and the others I-; IOB1 uses B- only directly after an entity of the same type;
BIOES also tags the last word E- and a single one S-. BIES is BIOES without types and O, for the characters of Chinese
words. The aliases M for I, L for E and U for S are accepted. Other tags, such as parts of speech, are plain.
The bootstrap resamples sentences, because the words of a sentence are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from firth.metrics.bootstrap import Floats, Sample, ratio, sums_sample

Scheme = Literal["BIO", "IOB1", "BIOES", "BIES", "plain"]
_PREFIXES = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}
Tags = Sequence[str]
Chunk = tuple[str, int, int]


def segment_tags(words: Iterable[str]) -> list[str]:
    """The BIES tags of the characters of words.

    >>> segment_tags(["我", "喜欢", "自然语言"])
    ['S', 'B', 'E', 'B', 'I', 'I', 'E']
    """
    return [tag for word in words for tag in (["S"] if len(word) == 1 else ["B", *"I" * (len(word) - 2), "E"])]


def scheme_of(tags: Iterable[str] | Iterable[Sequence[str]]) -> Scheme:
    """The scheme of the tags of one sentence or of many.

    >>> scheme_of(["O", "B-PER", "I-PER"]), scheme_of(["O", "I-PER", "I-PER"]), scheme_of(["DET", "NOUN"])
    ('BIO', 'IOB1', 'plain')
    """
    listed: list[Any] = list(tags)
    sentences = [listed] if all(isinstance(tag, str) for tag in listed) else listed
    return scheme_of_pairs({pair for sentence in sentences for pair in tag_pairs(sentence)})


def tag_pairs(tags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each tag with the one before it; the empty string stands for the beginning and the end.

    >>> list(tag_pairs(["B", "E"]))
    [('', 'B'), ('B', 'E'), ('E', '')]
    """
    return zip(("", *tags), (*tags, ""), strict=True)


def scheme_of_pairs(pairs: Iterable[tuple[str, str]]) -> Scheme:
    """The scheme of tags given as bigrams."""
    known = [(_parts(before), _parts(tag)) for before, tag in pairs if tag]
    prefixes = {prefix for _, (prefix, _) in known}
    if "" in prefixes or not prefixes:
        return "plain"
    if prefixes & {"E", "S"}:
        has_types = any(kind for _, (_, kind) in known)
        return "BIOES" if has_types or "O" in prefixes else "BIES"
    starts = {prefix for before, (prefix, kind) in known if before[0] not in ("B", "I") or before[1] != kind}
    return "IOB1" if "I" in starts and "B" not in starts else "BIO"


def is_fault(before: str, tag: str, scheme: Scheme) -> bool:
    """Whether a tag may not follow another in a scheme; the empty string stands for the beginning and the end.

    >>> is_fault("B-PER", "I-LOC", "BIO"), is_fault("B-PER", "", "BIO"), is_fault("B-PER", "", "BIOES")
    (True, False, True)
    """
    if scheme == "plain":
        return False
    (prefix_before, kind_before), (prefix, kind) = _parts(before), _parts(tag)
    is_open = prefix_before in ("B", "I")
    is_same = is_open and kind == kind_before
    if scheme == "BIO":
        return prefix == "I" and not is_same
    if scheme == "IOB1":
        return prefix == "B" and not is_same
    continues = prefix in ("I", "E")
    return not is_same if is_open and continues else is_open != continues


def fault_table(labels: Sequence[str], scheme: Scheme) -> npt.NDArray[np.bool_]:
    """(labels + 1, labels + 1): whether a label (column) may not follow another (row).

    The last row is the beginning of a sentence and the last column its end.

    >>> fault_table(["B", "I", "E", "S"], "BIES").astype(int)[:4, :4].tolist()
    [[1, 0, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0]]
    """
    tags = (*labels, "")
    return np.array([[is_fault(before, tag, scheme) for tag in tags] for before in tags])


@lru_cache(maxsize=65536)
def _parts(tag: str) -> tuple[str, str]:
    """The prefix of a tag, empty if it is plain, and its type."""
    if tag in ("O", ""):
        return "O", ""
    prefix = _PREFIXES.get(tag[0], "")
    if prefix and (len(tag) == 1 or (tag[1] == "-" and len(tag) > 2)):
        return prefix, tag[2:]
    return "", tag


def tags_sample(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Sample:
    """accuracy; if there are entities, also entity_f1 with precision and recall."""
    if has_entities(gold) or has_entities(predicted):
        return _chunks_sample(gold, predicted, entities, "entity_f1")
    return sums_sample(_right_tags(gold, predicted), lambda sums, _: {"accuracy": ratio(sums[:, 0], sums[:, 1])})


def segments_sample(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Sample:
    """word_f1 with precision and recall, and accuracy of the characters' tags."""
    return _chunks_sample(gold, predicted, words, "word_f1")


def has_entities(sentences: Sequence[Tags]) -> bool:
    """Whether any tag is like `B-PER` or `I-PER`."""
    return any(tag.startswith(("B-", "I-")) for tag in {tag for tags in sentences for tag in tags})


def entities(tags: Tags) -> set[Chunk]:
    """The entities of BIO, IOB or BIOES tags as type, first and last word.

    As in CoNLL's evaluation, an invalid `I-` or `E-` begins an entity. Tags of other forms are outside.

    >>> sorted(entities(["B-PER", "I-PER", "O", "I-LOC", "I-ORG"]))
    [('LOC', 3, 3), ('ORG', 4, 4), ('PER', 0, 1)]
    """
    found = set()
    before, kind, first = "O", "", 0  # prefix, type and first word of the open entity
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, own = tag.partition("-")
        if prefix not in ("B", "I", "E", "S"):
            prefix, own = "O", ""
        continues = before in ("B", "I") and prefix in ("I", "E") and own == kind
        if not continues:
            if before != "O":
                found.add((kind, first, index - 1))
            first = index
        before, kind = prefix, own
    return found


def words(tags: Tags) -> set[Chunk]:
    """The words of BIES (BMES, BI) tags of characters, as first and last character.

    A word begins at `B` and `S`, after `E` and `S`, and with the sentence, so every character is in one word.

    >>> sorted(words("BESBIE"))
    [('', 0, 1), ('', 2, 2), ('', 3, 5)]
    """
    begins = [
        index
        for index, tag in enumerate(tags)
        if index == 0 or tag[:1] in ("B", "S") or tags[index - 1][:1] in ("E", "S")
    ]
    return {("", first, after - 1) for first, after in pairwise([*begins, len(tags)])}


def _chunks_sample(
    gold: Sequence[Tags], predicted: Sequence[Tags], chunks: Callable[[Tags], set[Chunk]], metric: str
) -> Sample:
    counts = []
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        true, guessed = chunks(gold_tags), chunks(predicted_tags)
        counts.append((len(true & guessed), len(true), len(guessed)))

    def measures(sums: Floats, _: Any) -> dict[str, Floats]:
        right, words, both, true, guessed = sums.T
        return {
            "accuracy": ratio(right, words),
            metric: ratio(2 * both, true + guessed),
            "precision": ratio(both, guessed),
            "recall": ratio(both, true),
        }

    return sums_sample(np.hstack([_right_tags(gold, predicted), np.array(counts, dtype=np.float64)]), measures)


def _right_tags(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Floats:
    """(sentences, 2): the number of correct tags and of all."""
    rows = [
        (sum(one == two for one, two in zip(true, guessed, strict=True)), len(true))
        for true, guessed in zip(gold, predicted, strict=True)
    ]
    return np.array(rows, dtype=np.float64)
