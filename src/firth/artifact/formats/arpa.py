"""ARPA, the text format of back-off models that SRILM, KenLM and others share: writing, reading, checking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from firth.artifact.formats import _arpa_reading_kernels as kernels
from firth.artifact.formats.arpa_reading import Arpa, read_arpa
from firth.artifact.formats.arpa_writing import write_arpa
from firth.cores import in_order
from firth.errors import ArtifactError
from firth.progress import progress

__all__ = ["Arpa", "read_arpa", "verify_arpa", "write_arpa"]

SLACK = np.array([1e-3, 5e-6])
"""How far from 1 the sum of probabilities may be, and how much further for each unit of the back-off weight.

Seven digits of a logarithm are right to about 1e-6 of the probability. A large weight belongs to a history after which
nearly all words were seen, and multiplies a small difference of large sums, so it makes their rounding larger.
"""
_BLOCK = 1 << 16  # histories that are checked as one piece


def verify_arpa(path: Path) -> dict[str, Any]:
    """A report on an ARPA file after every check there is, or an `ArtifactError`.

    Besides the structure it is checked that the probabilities of all words sum to 1 after every history in the file.
    """
    arpa = read_arpa(path)
    history, total, distance = _furthest(arpa)
    if distance > 1.0:
        place = f"after {history!r}" if history else "of single words"
        raise ArtifactError(
            f"{path} is no proper model: the probabilities {place} sum to {total:.6g} instead of 1; get it again from "
            "where it came, or estimate it with a method that gives probabilities."
        )
    return {
        "ok": True,
        "order": arpa.trie.order,
        "ngrams": arpa.sizes,
        "vocabulary": arpa.sizes[0],
        "largest_deviation": abs(total - 1.0),
        "worst_context": history,
    }


def _furthest(arpa: Arpa) -> tuple[str, float, float]:
    """The history after which the sum of probabilities is furthest from 1, the sum, and how many times the slack."""
    trie, logp, bow = arpa.trie, arpa.logp, arpa.bow
    total = float(np.exp(logp[: trie.vocabulary].astype(np.float64)).sum())
    worst = (-1, total, abs(total - 1.0) / SLACK[0])

    def weigh(begin: int) -> tuple[int, float, float]:
        end = min(begin + _BLOCK, trie.contexts)
        found: tuple[int, float, float] = kernels.weigh(
            begin, end, trie.words, trie.first, trie.links, logp, bow, SLACK
        )
        return found

    with progress("checking", trie.contexts, "histories") as advance:
        for found in in_order(weigh, range(0, trie.contexts, _BLOCK)):
            worst = max(worst, found, key=lambda one: one[2])
            advance(_BLOCK)
    node, total, distance = worst
    words = trie.gram(node) if node >= 0 else []
    return " ".join(arpa.vocabulary[word] for word in words), total, float(distance)
