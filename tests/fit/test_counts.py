"""Text that does not fit into memory is counted in runs, with the same result to the byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import firth
from firth.errors import RecipeError


@pytest.mark.parametrize("name", ["mkn5", "katz3", "witten-bell"])
def test_runs_on_disk_give_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(4)
    text = [" ".join(f"w{rng.zipf(1.3) % 5000}" for _ in range(rng.integers(1, 30))) for _ in range(4000)]
    firth.train(name, [text], out=tmp_path / "memory")
    assert "in runs on disk" not in capsys.readouterr().err
    monkeypatch.setenv("FIRTH_MEMORY", "2")
    firth.train(name, [text], out=tmp_path / "disk")
    assert "in runs on disk" in capsys.readouterr().err
    one, two = (firth.info(tmp_path / folder)["files"] for folder in ("memory", "disk"))
    assert one == two


def test_a_limit_that_is_no_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_MEMORY", "lots")
    with pytest.raises(RecipeError, match="megabytes"):
        firth.train("mkn3", [["a b"]], out=tmp_path / "m")
