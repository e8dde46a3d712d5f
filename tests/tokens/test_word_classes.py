"""Classes of words: look-up by spelling, and arrays that are damaged."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest

from firth.errors import ArtifactError
from firth.tokens.word_classes import WordClasses, class_counts, word_key


def make_classes(words: str) -> WordClasses:
    """The classes of words: n, 10 + n and 20 + n of the nth."""
    keys = np.array([word_key(word) for word in words.split()])
    order = np.argsort(keys)
    rows = np.arange(keys.size)[:, None] + np.array([0, 10, 20])
    return WordClasses(keys[order], rows.astype(np.int16)[order])


def test_words_are_found_whatever_their_case() -> None:
    table = make_classes("river Paris 语言")
    assert table.find(["PARIS", "paris", "语言", "rivers", ""]).tolist() == [
        [1, 11, 21], [1, 11, 21], [2, 12, 22], [-1, -1, -1], [-1, -1, -1],
    ]  # fmt: skip
    assert make_classes("").find(["a"]).tolist() == [[-1, -1, -1]]
    assert table.find([]).shape == (0, 3)


def test_keys_never_change() -> None:
    """Artifacts rely on them: they are the same on every machine."""
    digest = blake2b("éa".encode(), digest_size=8).digest()
    assert word_key("ÉA") == int.from_bytes(digest, "little", signed=True)


def test_levels() -> None:
    assert class_counts(1000) == (40, 200, 1000)
    assert class_counts(2) == (2, 2, 2)


def test_arrays_are_checked() -> None:
    table = make_classes("a b c")
    whole = table.arrays()
    again = WordClasses.restore(whole)
    assert again is not None
    assert np.array_equal(again.find(["b"]), table.find(["b"]))
    assert WordClasses.restore({}) is None
    for changed in (
        {"words": whole["words"]},
        whole | {"more": whole["words"]},
        whole | {"words": whole["words"][::-1].copy()},
        whole | {"words": whole["words"].astype(np.float64)},
        whole | {"words": whole["words"][:2]},
        whole | {"classes": whole["classes"].astype(np.int32)},
        whole | {"classes": whole["classes"][:, :2].copy()},
        whole | {"classes": whole["classes"] - np.int16(9)},
    ):
        with pytest.raises(ArtifactError, match="classes of words are damaged"):
            WordClasses.restore(changed)
