"""The language of a text among those of a network, by the script of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from firth.text.scripts import script_counts
from firth.tokens.tokenizer import FIRST_WORD

_SCRIPTS = {
    "han": "zh yue wuu lzh ja",
    "kana": "ja",
    "hangul": "ko",
    "cyrillic": "ru uk be bg mk sr kk ky mn tg tt ba cv",
    "greek": "el",
    "arabic": "ar fa ur ps ug ckb sd",
    "hebrew": "he yi",
    "devanagari": "hi mr ne sa",
    "thai": "th",
}
"""Script -> codes of languages that are written in it; all others are written in Latin script."""
_SHARED = 0.9  # vote of a token in a script that a language has in common with one that is written in it alone


def scripts_of(language: str) -> dict[str, float]:
    """The scripts of a language by its code, with the vote of a token in each of them.

    >>> scripts_of("zh-Hans"), scripts_of("ja"), scripts_of("sw")
    ({'han': 1.0}, {'han': 0.9, 'kana': 1.0}, {'latin': 1.0})
    """
    code = language.lower().replace("_", "-").partition("-")[0]
    found = [script for script, codes in _SCRIPTS.items() if code in codes.split()] or ["latin"]
    return {script: _SHARED if script == "han" and len(found) > 1 else 1.0 for script in found}


class LanguageVotes:
    """Chooses the language of each sequence: that of most of its tokens, or the first of several.

    >>> votes = LanguageVotes(("en", "zh"), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "狗", "!"])
    >>> votes.choose(torch.tensor([[2, 5, 7], [2, 6, 7]])).tolist()
    [[0, 0, 0], [1, 1, 1]]
    """

    def __init__(self, languages: Sequence[str], tokens: Sequence[str], language: str = "") -> None:
        """With a `language`, that one is always chosen."""
        self.chosen = languages.index(language) if language else None if len(languages) > 1 else 0
        if self.chosen is None:
            scripts = [scripts_of(one) for one in languages]
            counts = [script_counts(token) for token in tokens]
            votes = [[max((own.get(script, 0.0) for script in one), default=0.0) for own in scripts] for one in counts]
            self.votes = torch.from_numpy(np.array(votes, dtype=np.float32))
            self.votes[:FIRST_WORD] = 0  # the names of special tokens are not text

    def choose(self, ids: Tensor, sequence_ids: Tensor | None = None) -> Tensor:
        """(batch, length): the language of the sequence of each token."""
        if self.chosen is not None:
            return torch.full_like(ids, self.chosen)
        votes = self.votes[ids.cpu()]
        if sequence_ids is None:
            return votes.sum(1).argmax(-1)[:, None].expand_as(ids).to(ids.device)
        numbers = sequence_ids.cpu() + 1  # padding is a sequence of its own
        sums = votes.new_zeros(len(ids), int(numbers.max()) + 1, votes.shape[-1])
        sums.scatter_add_(1, numbers[..., None].expand_as(votes), votes)
        return sums.argmax(-1).gather(1, numbers).to(ids.device)
