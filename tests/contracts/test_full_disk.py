"""A disk that fills in the middle of a writer: one sentence, the older output untouched, no temporary files.

Sizes of files are limited here; `bench/kill.py --all --full-disks 6` does this with disks and every kind of writer.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command import Outcome, assert_refused, firth

OLD = b"an older output\n"
SMALLEST = 16  # bytes, less than any output has
LINES = [f"the {noun} sees a {other}" for noun in ["cat", "dog", "barn", "pear"] for other in ["cow", "oak"]] * 20


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / "text.txt").write_text("\n".join(LINES) + "\n")
    for recipe in ("mkn3", "cbow"):
        settings = ["--set", "dimension=8", "--set", "epochs=1"] if recipe == "cbow" else []
        made = firth("train", recipe, folder / "text.txt", "-o", folder / recipe, "--threads", "1", *settings)
        assert made.code == 0, made.err
    assert firth("export", folder / "mkn3", "arpa", folder / "lm.arpa").code == 0
    return folder


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """No file may be larger; Python ignores the signal, so that writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def assert_sentence(outcome: Outcome, folder: Path) -> None:
    assert_refused(Outcome(outcome.code, "", outcome.err.splitlines(keepends=True)[-1]), "ulimit -f")
    assert "Traceback" not in outcome.err
    assert list(folder.rglob(".firth-*")) == []


@pytest.mark.parametrize(
    "command",
    [
        ("export", "mkn3", "arpa", "out.arpa"),
        ("export", "mkn3", "arpa", "out.arpa.gz"),
        ("export", "cbow", "word2vec", "out.bin"),
        ("score", "mkn3", "text.txt", "-o", "out.jsonl"),
        ("embed", "cbow", "text.txt", "-o", "out.npy"),
    ],
    ids=["arpa", "arpa.gz", "word2vec", "score", "embed"],
)
def test_files(command: tuple[str, ...], models: Path, tmp_path: Path) -> None:
    arguments = [str(models / word) if (models / word).exists() else word for word in command]
    out = tmp_path / arguments[-1]
    arguments = [*arguments[:-1], str(out), "--force"]
    assert firth(*arguments).code == 0
    whole = out.read_bytes()
    rng = random.Random(0)
    for size in (SMALLEST, *(rng.randrange(SMALLEST, len(whole)) for _ in range(3))):
        out.write_bytes(OLD)
        with limited_files(size):
            failed = firth(*arguments)
        assert_sentence(failed, tmp_path)
        assert out.read_bytes() == OLD
    assert firth(*arguments).code == 0
    assert out.read_bytes() == whole


@pytest.mark.parametrize(
    "command",
    [
        ("train", "kn3", "text.txt", "--threads", "1"),
        ("train", "skipgram", "text.txt", "--threads", "1", "--set", "epochs=3", "--set", "dimension=8"),
        ("import", "arpa", "lm.arpa"),
        ("adapt", "mkn3", "--add", "text.txt", "--threads", "1"),
    ],
    ids=["counts", "checkpoints", "import", "adapt"],
)
def test_folders(command: tuple[str, ...], models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An output is missing or holds a checkpoint, and the command can be run again or resumed."""
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    arguments = [str(models / word) if (models / word).exists() else word for word in command]
    assert firth(*arguments, "-o", tmp_path / "whole").code == 0
    largest = max(path.stat().st_size for path in (tmp_path / "whole").iterdir())
    rng = random.Random(0)
    for number, size in enumerate((SMALLEST, *(rng.randrange(SMALLEST, largest) for _ in range(3)))):
        out = tmp_path / f"out{number}"
        monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / f"cache{number}"))
        with limited_files(size):
            failed = firth(*arguments, "-o", out)
        assert_sentence(failed, tmp_path)
        assert {path.name for path in out.glob("*")} <= {"checkpoint"}
        again = firth(*arguments, "-o", out, *(["--resume"] if command[0] == "train" else []))
        assert again.code == 0, again.err
        weights = [(folder / "model.safetensors").read_bytes() for folder in (out, tmp_path / "whole")]
        assert weights[0] == weights[1]
