"""MemoryBank: what a network with a memory remembers from one training step to the next (Dai et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.nets.batch import StreamOffsets
from firth.nets.visibility import SegmentMemory

PREFIX = "memory."


class RowMemory(NamedTuple):
    """What is remembered of a stream."""

    layers: Tensor
    """(layers, memory, width)."""
    documents: Tensor
    """(memory,): the document of each token."""
    end: int
    """The offset in the text after the last token."""


class MemoryBank:
    """The memories of the streams that a network is trained on, from one step to the next."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.rows: dict[int, RowMemory] = {}

    def recall(self, offsets: StreamOffsets) -> SegmentMemory | None:
        """The memory before each row of a batch; None if there is none. Only its own document is visible to a token."""
        found = [self._continued(*each) for each in zip(offsets.streams.tolist(), offsets.begins.tolist(), strict=True)]
        known = [one for one in found if one is not None]
        if not known:
            return None
        size = max(one.documents.numel() for one in known)
        like = known[0].layers
        states = like.new_zeros(len(like), len(found), size, like.shape[2])
        documents = offsets.documents.new_full((len(found), size), -1)
        for number, one in enumerate(found):
            if one is not None and one.documents.numel():  # the latest tokens are next to the row
                states[:, number, -one.documents.numel() :] = one.layers
                documents[number, -one.documents.numel() :] = one.documents
        visible = (documents[:, None] == offsets.documents[:, :, None]) & (documents >= 0)[:, None]
        return SegmentMemory(list(states), visible)

    def remember(self, offsets: StreamOffsets, layers: Sequence[Tensor]) -> None:
        """Keep the last tokens of each row, and of its memory if the row is shorter than that, without gradient."""
        kept = torch.stack([layer.detach() for layer in layers])
        begins, lengths = offsets.begins.tolist(), offsets.lengths.tolist()
        for number, (stream, begin, length) in enumerate(zip(offsets.streams.tolist(), begins, lengths, strict=True)):
            states, documents = kept[:, number, :length], offsets.documents[number, :length]
            old = self._continued(stream, begin)
            if old is not None and length < self.length:
                states = torch.cat([old.layers, states], 1)
                documents = torch.cat([old.documents, documents])
            self.rows[stream] = RowMemory(
                states[:, -self.length :].clone(), documents[-self.length :].clone(), begin + length
            )

    def _continued(self, stream: int, begin: int) -> RowMemory | None:
        found = self.rows.get(stream)
        return found if found is not None and found.end == begin else None

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The memories as arrays named `memory.STREAM.FIELD`, for a checkpoint."""
        found: dict[str, npt.NDArray[Any]] = {}
        for stream, (layers, documents, end) in self.rows.items():
            name = f"{PREFIX}{stream}"
            found |= {f"{name}.layers": layers.numpy(), f"{name}.documents": documents.numpy()}
            found[f"{name}.end"] = np.array([end])
        return found

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Load the memories that `arrays` returned."""
        names = [name.split(".")[1] for name in arrays if name.startswith(PREFIX) and name.endswith(".end")]
        self.rows = {
            int(name): RowMemory(
                torch.from_numpy(np.array(arrays[f"{PREFIX}{name}.layers"])),
                torch.from_numpy(np.array(arrays[f"{PREFIX}{name}.documents"])),
                int(arrays[f"{PREFIX}{name}.end"][0]),
            )
            for name in names
        }
