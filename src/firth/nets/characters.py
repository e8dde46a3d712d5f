"""CharacterTable: vectors of tokens made from their letters, so that no word is unknown (ELMo's character CNN)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.recipe import NetRecipe
from firth.tokens.tokenizer import MASK

LONGEST = 50
"""Bytes of a token at most, its two marks included; the rest is cut."""
_BEGIN, _END, _SPECIAL = 257, 258, 259  # 0 is nothing, bytes are 1 to 256
_CODES = _SPECIAL + MASK + 1
_LETTER = 16  # numbers of a byte's vector
_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # bytes and filters, for a width of 512
_AT_ONCE = 512  # words, so that what the filters find stays small


class CharacterTable(nn.Module):
    """A look-up table without a table: bytes, convolutions, the largest over time, two highway layers, a projection.

    Jozefowicz et al. 2016; Peters et al. 2018. Filters look only at windows inside of a token and its marks, or at the
    one window that begins it if it is shorter. Each distinct token of a batch is made once.
    """

    spelling: Tensor
    """(tokens, 50): the codes of the bytes of each token of the vocabulary."""

    def __init__(self, recipe: NetRecipe, tokens: Sequence[str]) -> None:
        super().__init__()
        width = recipe.embedding.width
        sizes = [(span, max(1, count * width // 512)) for span, count in _FILTERS]
        total = sum(count for _, count in sizes)
        self.register_buffer("spelling", torch.from_numpy(spell(tokens, first_word=MASK + 1)))
        self.letters = nn.Embedding(_CODES, _LETTER, padding_idx=0)
        self.filters = nn.ModuleList(nn.Conv1d(_LETTER, count, span) for span, count in sizes)
        self.highways = nn.ModuleList(Highway(total) for _ in range(2))
        self.project = nn.Linear(total, width)
        self.distinct = distinct_share(len(tokens), max(1, recipe.learning.batch // recipe.learning.accumulate))

    def forward(self, ids: Tensor) -> Tensor:
        """(rows, places, width): the vectors of tokens."""
        distinct, where = torch.unique(ids, return_inverse=True)
        return f.embedding(where, self._make(self.spelling[distinct]))

    def vectors_of(self, words: Sequence[str]) -> Tensor:
        """(words, width): the vectors of any words, in the vocabulary or not."""
        return self._make(torch.from_numpy(spell(words)).to(self.spelling.device))

    def _make(self, codes: Tensor) -> Tensor:
        """The vectors of spellings: the shortest first, since the work is that of the longest of those done at once."""
        lengths = (codes > 0).sum(1)
        order = torch.argsort(lengths, stable=True)
        pieces = [order[begin : begin + _AT_ONCE] for begin in range(0, len(order), _AT_ONCE)]
        found = [self._filter(codes[some], lengths[some]) for some in pieces]
        nothing = self.project.weight.new_empty(0, self.project.in_features)
        x = torch.cat([nothing, *found])[torch.argsort(order)]
        for highway in self.highways:
            x = highway(x)
        return self.project(x)  # type: ignore[no-any-return]

    def _filter(self, codes: Tensor, lengths: Tensor) -> Tensor:
        """(words, filters): the most that each filter finds anywhere in each word."""
        longest = max(int(lengths[-1]), _FILTERS[-1][0])
        letters = self.letters(codes[:, :longest].int()).transpose(1, 2)
        found = []
        for layer in self.filters:
            at = layer(letters)
            last = (lengths - (longest - at.shape[2] + 1)).clamp(min=0)  # where the last window in the word begins
            outside = torch.arange(at.shape[2], device=at.device) > last[:, None, None]
            found.append(at.masked_fill(outside, -torch.inf).max(-1).values)
        return torch.cat(found, 1).relu()

    def work(self) -> float:
        """Floating-point operations for a token of a batch, forwards, in the mean, most of them being there already."""
        lengths = (self.spelling > 0).sum(1).double()
        shapes = [
            (layer.weight.numel(), layer.kernel_size[0]) for layer in self.filters if isinstance(layer, nn.Conv1d)
        ]
        once = sum(2.0 * size * float((lengths - span + 1).clamp(min=1).mean()) for size, span in shapes)
        total, width = self.project.in_features, self.project.out_features
        once += len(self.highways) * 4.0 * total * total + 2.0 * total * width
        return once * self.distinct


class Highway(nn.Module):
    """y = g relu(W x + b) + (1 - g) x with g = sigmoid(V x + c) (Srivastava et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.both = nn.Linear(width, 2 * width)
        nn.init.constant_(self.both.bias[width:], -2.0)  # carry at first

    def forward(self, x: Tensor) -> Tensor:
        new, gate = self.both(x).chunk(2, -1)
        return torch.lerp(x, new.relu(), gate.sigmoid())


def spell(tokens: Sequence[str], first_word: int = 0) -> npt.NDArray[np.int16]:
    """The codes of the bytes of tokens between two marks; those before `first_word` have a code for the whole.

    >>> spell(["ab"])[0, :5].tolist()
    [257, 98, 99, 258, 0]
    """
    codes = np.zeros((len(tokens), LONGEST), dtype=np.int16)
    for number, (token, row) in enumerate(zip(tokens, codes, strict=True)):
        letters = np.frombuffer(token.encode("utf-8", "surrogatepass")[: LONGEST - 2], dtype=np.uint8)
        inside = np.array([_SPECIAL + number]) if number < first_word else letters.astype(np.int16) + 1
        row[0], row[1 : 1 + inside.size], row[1 + inside.size] = _BEGIN, inside, _END
    return codes


def distinct_share(tokens: int, drawn: int) -> float:
    """How many of the tokens of a batch are expected to be distinct if they follow Zipf's law.

    >>> distinct_share(1, 10)
    0.1
    """
    chances = 1 / np.arange(1, tokens + 1)
    chances /= chances.sum()
    return float((1 - (1 - chances) ** drawn).sum() / drawn)
