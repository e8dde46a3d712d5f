"""What objectives draw their noise by: a key for each row, so that equal rows get equal noise wherever they stand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from firth.nets.batch import Batch
from firth.objectives._draw_kernels import draw_all

Keys = npt.NDArray[np.uint64]


def row_keys(batch: Batch, rng: np.random.Generator) -> Keys:
    """A new key for each row of a batch: a function of the row's own key and of `rng`, which goes on by one number.

    >>> import torch
    >>> ids = torch.zeros((3, 2), dtype=torch.int64)
    >>> one = Batch(ids, ids == 0, keys=torch.tensor([7, 8, 9]))
    >>> other = Batch(ids, ids == 0, keys=torch.tensor([9, 7, 8]))
    >>> keys, same = (row_keys(each, np.random.default_rng(0)).tolist() for each in (one, other))
    >>> same == [keys[2], keys[0], keys[1]]
    True
    """
    rows = np.arange(batch.shape[0]) if batch.keys is None else batch.keys.numpy()
    found: Keys = draw_all(rng.integers(0, 2**64, dtype=np.uint64), rows)
    return found
