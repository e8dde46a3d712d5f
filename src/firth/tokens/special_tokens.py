"""Special tokens around and between texts, as the post-processor of a tokenizer.json has them."""

from __future__ import annotations

from typing import NamedTuple

import tokenizers

from firth.tokens.tokenizer import BOS, EOS, Tokenizer


class SpecialTokens(NamedTuple):
    """Tokens around and between texts."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    end: tuple[int, ...]
    second: int  # segment of the second text
    last: int | None = None  # segment of the last token, if it has one of its own


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
    segment, last = found.type_ids[second[0]], found.type_ids[-1]
    return SpecialTokens(before, between, end, segment, last if end and last != segment else None)


class PairFormat(NamedTuple):
    """The special tokens of the source and the target that an encoder and its decoder read."""

    before: tuple[int, ...] = (BOS,)
    """Before a source."""
    end: tuple[int, ...] = (EOS,)
    """After a source; a target ends with EOS."""
    start: int = EOS
    """What the decoder reads first."""
    prefix: tuple[int, ...] = ()
    """What it reads next, before every target: fixed tokens that are not predicted."""

    @property
    def first(self) -> list[int]:
        """The input of the decoder before a target."""
        return [self.start, *self.prefix]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> PairFormat:
        """That of training, unless a tokenizer has a template of pairs: before, source, end, start, prefix, target."""
        found = tokenizer_special_tokens(tokenizer.backend)
        if not found or len(found.between) <= len(found.end):
            return cls()
        start, *prefix = found.between[len(found.end) :]
        return cls(found.before, found.end, start, tuple(prefix))
