"""Special tokens around and between texts, as the post-processor of a tokenizer.json has them."""

from __future__ import annotations

from typing import NamedTuple

import tokenizers


class SpecialTokens(NamedTuple):
    """Tokens around and between texts."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    end: tuple[int, ...]
    second: int  # segment of the second text


NO_SPECIAL_TOKENS = SpecialTokens((), (), (), 0)


def tokenizer_special_tokens(backend: tokenizers.Tokenizer) -> SpecialTokens | None:
    """The special tokens of the post-processor of a tokenizer.json, if it has a template for pairs."""
    if backend.post_processor is None:
        return None
    found = backend.encode("a", "b")
    first, second = ([index for index, text in enumerate(found.sequence_ids) if text == own] for own in (0, 1))
    if not first or not second:
        return None
    outside = slice(0, first[0]), slice(first[-1] + 1, second[0]), slice(second[-1] + 1, None)
    before, between, end = (tuple(found.ids[part]) for part in outside)
    return SpecialTokens(before, between, end, found.type_ids[second[0]])
