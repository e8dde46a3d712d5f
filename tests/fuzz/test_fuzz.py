"""A short fuzzing run of every reader, and the findings of the past."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.fuzzing import CASES, Inputs, copy_input, find_readers, is_refused

READERS = find_readers()
FOUND = sorted(CASES.glob("*/*"))


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.short])
def test_every_sample_is_read_and_no_mutation_of_it_fails(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    inputs = Inputs(reader, tmp_path)
    for sample in inputs.samples():
        assert not is_refused(reader, sample)
    for index in range(reader.short):
        is_refused(reader, inputs.make(index))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_findings_of_the_past_stay_mended(path: Path, tmp_path: Path) -> None:
    is_refused(READERS[path.parent.name], copy_input(path, tmp_path))
