"""Tag schemes: how the tags of words say where an entity, or a word of unspaced writing, begins and ends.

BIO marks the first word of an entity B- and the others I-; IOB1 writes B- only where an entity follows another of its
type at once; BIOES also marks the last word E- and a single one S-. BIES is the same without types and without O: the
words of Chinese, each character with a tag. Letters that others use are read too: M for I, L for E, U for S. Whatever
is not written so is plain, such as parts of speech.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

Scheme = Literal["BIO", "IOB1", "BIOES", "BIES", "plain"]
_LETTERS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}


class Span(NamedTuple):
    """An entity or a word: the places from `begin` to before `end`."""

    label: str
    begin: int
    end: int


class Fault(NamedTuple):
    """A tag that may not follow the one before it."""

    place: int
    """The number of tags before it; as many as there are tags if the last one leaves an entity open."""
    before: str
    """The tag before it; nothing at the beginning."""
    tag: str
    """Nothing at the end."""


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The entities of a sentence, whatever its scheme; one that lacks its beginning begins where it is first seen.

    A plain tag is an entity of one word.

    >>> spans_of(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [Span(label='PER', begin=0, end=2), Span(label='LOC', begin=3, end=4), Span(label='LOC', begin=4, end=5)]
    >>> spans_of(["B", "E", "S"])
    [Span(label='', begin=0, end=2), Span(label='', begin=2, end=3)]
    """
    spans: list[Span] = []
    begin, label = -1, ""  # of the entity that is open; none at -1
    for place, tag in enumerate(tags):
        letter, kind = _parts(tag)
        if begin >= 0 and (letter not in ("I", "E") or kind != label):
            spans.append(Span(label, begin, place))
            begin = -1
        if begin < 0 and letter != "O":
            begin, label = place, kind
        if letter in ("E", "S", ""):
            spans.append(Span(label, begin, place + 1))
            begin = -1
    if begin >= 0:
        spans.append(Span(label, begin, len(tags)))
    return spans


def convert(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The same entities in another scheme; plain tags stay as they are.

    >>> convert(["I-PER", "I-PER", "O", "I-LOC"], "BIOES")
    ['B-PER', 'E-PER', 'O', 'S-LOC']
    """
    if scheme == "plain" or scheme_of(tags) == "plain":
        return list(tags)
    written = ["S" if scheme == "BIES" else "O"] * len(tags)
    before = Span("", -1, -1)
    for span in spans_of(tags):
        ending = "" if scheme == "BIES" or not span.label else f"-{span.label}"
        touches = span.begin == before.end and span.label == before.label
        letters = _letters(span.end - span.begin, scheme, touches)
        written[span.begin : span.end] = [letter + ending for letter in letters]
        before = span
    return written


def to_bio(tags: Sequence[str]) -> list[str]:
    """The same entities in BIO.

    >>> to_bio(["B-PER", "E-PER", "S-LOC"])
    ['B-PER', 'I-PER', 'B-LOC']
    """
    return convert(tags, "BIO")


def to_bioes(tags: Sequence[str]) -> list[str]:
    """The same entities in BIOES.

    >>> to_bioes(["B-PER", "I-PER", "B-LOC"])
    ['B-PER', 'E-PER', 'S-LOC']
    """
    return convert(tags, "BIOES")


def segment_tags(words: Iterable[str]) -> list[str]:
    """The BIES tags of the characters of words.

    >>> segment_tags(["我", "喜欢", "自然语言"])
    ['S', 'B', 'E', 'B', 'I', 'I', 'E']
    """
    return [letter for word in words for letter in _letters(len(word), "BIES", False)]


def scheme_of(tags: Iterable[str] | Iterable[Sequence[str]]) -> Scheme:
    """The scheme in which the tags of a sentence, or of many, are written.

    >>> scheme_of(["O", "B-PER", "I-PER"]), scheme_of(["O", "I-PER", "I-PER"]), scheme_of(["DET", "NOUN"])
    ('BIO', 'IOB1', 'plain')
    """
    listed: list[Any] = list(tags)
    sentences = [listed] if all(isinstance(tag, str) for tag in listed) else listed
    return scheme_of_pairs({pair for sentence in sentences for pair in tag_pairs(sentence)})


def tag_pairs(tags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each tag and the one before it; nothing stands before the first and after the last.

    >>> list(tag_pairs(["B", "E"]))
    [('', 'B'), ('B', 'E'), ('E', '')]
    """
    return zip(("", *tags), (*tags, ""), strict=True)


def scheme_of_pairs(pairs: Iterable[tuple[str, str]]) -> Scheme:
    """The scheme of tags of which it is only known which follows which."""
    known = [(_parts(before), _parts(tag)) for before, tag in pairs if tag]
    letters = {letter for _, (letter, _) in known}
    if "" in letters or not letters:
        return "plain"
    if letters & {"E", "S"}:
        typed = any(kind for _, (_, kind) in known)
        return "BIOES" if typed or "O" in letters else "BIES"
    free = {letter for before, (letter, kind) in known if before[0] not in ("B", "I") or before[1] != kind}
    return "IOB1" if "I" in free and "B" not in free else "BIO"


def check_scheme(tags: Sequence[str], scheme: Scheme | None = None) -> list[Fault]:
    """The tags that may not stand where they stand; `scheme` is found out if it is not given.

    >>> check_scheme(["O", "I-PER", "B-LOC"])
    [Fault(place=1, before='O', tag='I-PER')]
    """
    chosen = scheme or scheme_of(tags)
    return [Fault(place, *pair) for place, pair in enumerate(tag_pairs(tags)) if is_fault(*pair, chosen)]


def is_fault(before: str, tag: str, scheme: Scheme) -> bool:
    """Whether a tag may not follow another in a scheme; nothing stands for the beginning and the end.

    >>> is_fault("B-PER", "I-LOC", "BIO"), is_fault("B-PER", "", "BIO"), is_fault("B-PER", "", "BIOES")
    (True, False, True)
    """
    if scheme == "plain":
        return False
    (was, kind_before), (letter, kind) = _parts(before), _parts(tag)
    same = was in ("B", "I") and kind == kind_before
    if scheme == "BIO":
        return letter == "I" and not same
    if scheme == "IOB1":
        return letter == "B" and not same
    is_open, goes_on = was in ("B", "I"), letter in ("I", "E")
    return not same if is_open and goes_on else is_open != goes_on


@lru_cache(maxsize=65536)
def _parts(tag: str) -> tuple[str, str]:
    """The letter of a tag, nothing if it is plain, and the type."""
    if tag in ("O", ""):
        return "O", ""
    letter = _LETTERS.get(tag[0], "")
    if letter and (len(tag) == 1 or (tag[1] == "-" and len(tag) > 2)):
        return letter, tag[2:]
    return "", tag


def _letters(length: int, scheme: Scheme, touches: bool) -> list[str]:
    """The letters of an entity of so many words; `touches` if one of the same type ends where it begins."""
    if scheme in ("BIO", "IOB1"):
        first = "B" if scheme == "BIO" or touches else "I"
        return [first, *"I" * (length - 1)]
    return ["S"] if length == 1 else ["B", *"I" * (length - 2), "E"]
