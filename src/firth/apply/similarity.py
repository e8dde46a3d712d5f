"""How the vectors of two texts are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from firth.abilities import ComparesTexts


def text_similarities(model: Any, cosines: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The similarities of texts with these cosines: the cosines, or for some models 1 - arccos(cosine) / pi.

    >>> text_similarities(None, [0.5]).tolist()
    [0.5]
    """
    found = np.asarray(cosines, dtype=np.float64)
    if isinstance(model, ComparesTexts) and model.text_similarity == "angular":
        return 1 - np.arccos(np.clip(found, -1, 1)) / np.pi
    return found
