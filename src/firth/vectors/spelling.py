"""Words of nearly the same spelling, found at a cost that does not grow with the vocabulary."""

from __future__ import annotations

import string
from collections.abc import Container, Iterator, Mapping

_LONG, _LONGEST = 10, 50  # characters of words of which two, or one, may be wrong: others have too many misspellings


def near_spellings(word: str, known: Mapping[str, int], count: int = 3) -> list[str]:
    """Known words that one or, if there are none, two wrong letters make of a word; those with lower numbers first.

    >>> near_spellings("footbal", {"football": 7, "footfall": 5, "foot": 6})
    ['football']
    >>> near_spellings("fotbal", {"football": 7, "footfall": 5, "foot": 6})
    ['football']
    """
    if len(word) > _LONGEST:
        return []
    variants = dict.fromkeys([word.lower(), word.capitalize(), word.upper()])
    found = _known(variants, known) or _known(_misspell(word), known) or _known(_misspell(word.lower()), known)
    if not found and len(word) <= _LONG:
        found = {two for one in set(_misspell(word.lower())) for two in _known(_misspell(one), known)}
    return sorted(found - {word}, key=lambda other: (known[other], other))[:count]


def _known(words: Iterator[str] | dict[str, None], known: Container[str]) -> set[str]:
    return {word for word in words if word in known}


def _misspell(word: str) -> Iterator[str]:
    """The word with a letter left out, exchanged with the next, replaced, or put in."""
    for place in range(len(word) + 1):
        before, after = word[:place], word[place:]
        if after:
            yield before + after[1:]
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
        for letter in string.ascii_lowercase:
            yield before + letter + after
            if after:
                yield before + letter + after[1:]
