"""A few random changes of tensor values for every kind of artifact, with digests made right again.

Each kind runs in a child process, so that a segmentation fault or a hang is a failure of its test alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.artifact_readers import READERS
from tests.fuzz.run import Limits, fuzz
from tests.fuzz.small_artifacts import KINDS

VALUES = {reader.name: reader for reader in READERS if reader.name.startswith("values-")}
LIMITS = Limits(inputs=8, seconds=600.0, hang=300.0, memory_mb=8192)


@pytest.mark.parametrize("kind", KINDS)
def test_changed_values_are_refused_or_used(kind: str, tmp_path: Path) -> None:
    report = fuzz(VALUES[f"values-{kind}"], LIMITS, seed=0, save=tmp_path / "findings")
    assert not report.findings
    assert report.inputs == LIMITS.inputs
