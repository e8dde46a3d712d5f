"""CharacterTable: token vectors from their bytes (the character CNN of ELMo)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.recipe import NetRecipe
from firth.tokens.tokenizer import MASK

_MAX_BYTES = 50  # of a token, including its boundary codes
_BEGIN, _END, _SPECIAL = 257, 258, 259  # 0 is padding, bytes are 1 to 256
_CODES = _SPECIAL + MASK + 1
_BYTE_WIDTH = 16
_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # kernel and channels at width 512
_CHUNK = 512  # words, to bound the memory of the convolutions


class CharacterTable(nn.Module):
    """Byte embeddings, convolutions, max-pooling over time, two highway layers and a projection.

    Jozefowicz et al. 2016; Peters et al. 2018. Convolutions stay inside of a token with its boundary codes; a token
    shorter than the kernel has one window. Each distinct token of a batch is computed once.
    """

    codes: Tensor
    """(vocabulary, 50): the byte codes of each token."""

    def __init__(self, recipe: NetRecipe, tokens: Sequence[str]) -> None:
        super().__init__()
        width = recipe.embedding.width
        sizes = [(kernel, max(1, channels * width // 512)) for kernel, channels in _FILTERS]
        total = sum(channels for _, channels in sizes)
        self.register_buffer("codes", torch.from_numpy(encode_bytes(tokens, first_word=MASK + 1)))
        self.bytes = nn.Embedding(_CODES, _BYTE_WIDTH, padding_idx=0)
        self.filters = nn.ModuleList(nn.Conv1d(_BYTE_WIDTH, channels, kernel) for kernel, channels in sizes)
        self.highways = nn.ModuleList(Highway(total) for _ in range(2))
        self.project = nn.Linear(total, width)
        batch = max(1, recipe.learning.batch // recipe.learning.grad_accumulation)
        self.distinct = distinct_fraction(len(tokens), batch)

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, length, width): token vectors."""
        distinct, where = torch.unique(ids, return_inverse=True)
        return f.embedding(where, self._vectors(self.codes[distinct]))

    def _vectors(self, codes: Tensor) -> Tensor:
        """Vectors of byte codes, sorted by length, because the cost of a chunk is that of its longest word."""
        lengths = (codes > 0).sum(1)
        order = torch.argsort(lengths, stable=True)
        chunks = [order[begin : begin + _CHUNK] for begin in range(0, len(order), _CHUNK)]
        pooled = [self._convolve(codes[some], lengths[some]) for some in chunks]
        empty = self.project.weight.new_empty(0, self.project.in_features)
        x = torch.cat([empty, *pooled])[torch.argsort(order)]
        for highway in self.highways:
            x = highway(x)
        return self.project(x)  # type: ignore[no-any-return]

    def _convolve(self, codes: Tensor, lengths: Tensor) -> Tensor:
        """(words, channels): the maximum of each filter over the windows of each word."""
        longest = max(int(lengths[-1]), _FILTERS[-1][0])
        embedded = self.bytes(codes[:, :longest].int()).transpose(1, 2)
        pooled = []
        for layer in self.filters:
            x = layer(embedded)
            last = (lengths - (longest - x.shape[2] + 1)).clamp(min=0)  # start of the last window inside the word
            outside = torch.arange(x.shape[2], device=x.device) > last[:, None, None]
            pooled.append(x.masked_fill(outside, -torch.inf).max(-1).values)
        return torch.cat(pooled, 1).relu()

    def flops(self) -> float:
        """Mean floating-point operations per token of a batch, most of them being repeated tokens."""
        lengths = (self.codes > 0).sum(1).double()
        shapes = [
            (layer.weight.numel(), layer.kernel_size[0]) for layer in self.filters if isinstance(layer, nn.Conv1d)
        ]
        once = sum(2.0 * size * float((lengths - kernel + 1).clamp(min=1).mean()) for size, kernel in shapes)
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


def encode_bytes(tokens: Sequence[str], first_word: int = 0) -> npt.NDArray[np.int16]:
    """(tokens, 50): byte codes between boundary codes; tokens before `first_word` have one code for the whole.

    >>> encode_bytes(["ab"])[0, :5].tolist()
    [257, 98, 99, 258, 0]
    """
    codes = np.zeros((len(tokens), _MAX_BYTES), dtype=np.int16)
    found = [token.encode("utf-8", "surrogatepass")[: _MAX_BYTES - 2] for token in tokens]
    lengths = np.array([len(one) for one in found], dtype=np.int64)
    rows, begins = np.repeat(np.arange(len(tokens)), lengths), np.cumsum(lengths) - lengths
    columns = 1 + np.arange(rows.size) - begins[rows]
    codes[rows, columns] = np.frombuffer(b"".join(found), dtype=np.uint8).astype(np.int16) + 1
    special = np.arange(min(first_word, len(tokens)))
    codes[special], codes[special, 1], lengths[special] = 0, _SPECIAL + special, 1
    codes[:, 0], codes[np.arange(len(tokens)), 1 + lengths] = _BEGIN, _END
    return codes


def distinct_fraction(vocabulary: int, draws: int) -> float:
    """The expected fraction of distinct tokens in a batch of Zipf-distributed tokens.

    >>> distinct_fraction(1, 10)
    0.1
    """
    probabilities = 1 / np.arange(1, vocabulary + 1)
    probabilities /= probabilities.sum()
    return float((1 - (1 - probabilities) ** draws).sum() / draws)
