"""Writing that is all or nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firth.errors import OutputError
from firth.files import (
    cache_folder,
    digest_bytes,
    digest_file,
    draft_folder,
    new_file,
    new_folder,
    require_new_file,
    write_file,
    writing,
)


def test_a_folder_appears_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "target"
    with new_folder(target) as draft:
        (draft / "a.txt").write_text("a")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["a.txt"]
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), new_folder(tmp_path / "target") as draft:
        (draft / "a.txt").write_text("a")
        raise KeyError
    with pytest.raises(KeyError), new_file(tmp_path / "file") as file:
        file.write(b"half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("x")
    with pytest.raises(OutputError, match="already holds"), new_folder(tmp_path / "taken"):
        raise AssertionError("the block must not run")
    (tmp_path / "late").mkdir()
    with pytest.raises(OutputError, match="already holds"), new_folder(tmp_path / "late"):
        (tmp_path / "late" / "theirs").write_text("y")  # someone else was faster
    assert (tmp_path / "late" / "theirs").read_text() == "y"


def test_a_file_is_replaced_by_force_alone_and_an_input_never(tmp_path: Path) -> None:
    source, other = tmp_path / "in.txt", tmp_path / "out.txt"
    require_new_file(other, False, [source])  # neither exists
    source.write_text("text")
    other.write_text("old")
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "broken").symlink_to(tmp_path / "missing")
    require_new_file(tmp_path / "new", False, [source])
    require_new_file(other, True, [source, "-", "builtin:pydoc", "no such file"])
    for taken in (other, tmp_path / "broken"):
        with pytest.raises(OutputError, match=r"exists already.*force"):
            require_new_file(taken, False, [source])
    for path, inputs in ((source, [source]), (tmp_path / "link", [source]), (other, [str(tmp_path)])):
        with pytest.raises(OutputError, match="is read by this command"):
            require_new_file(path, True, inputs)
    for path, kind in ((tmp_path, "a folder"), (Path(os.devnull), "no regular file")):
        with pytest.raises(OutputError, match=f"is {kind}"):
            require_new_file(path, True)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_drafts_of_dead_writers_are_removed(kind: str, tmp_path: Path) -> None:
    """Whether files or folders are left, and whether the next writer writes a file or a folder."""
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    machine, process = os.uname().nodename.replace(".", "-"), int(dead.stdout)
    abandoned = [tmp_path / f".firth-{machine}-{process}.{name}.tmp" for name in ("file", "folder", "link")]
    alive = tmp_path / f".firth-{machine}-{os.getpid()}.abc.tmp"
    elsewhere = tmp_path / f".firth-another-machine-{process}.abc.tmp"
    abandoned[0].write_bytes(b"half")
    abandoned[2].symlink_to(alive)
    for folder in (abandoned[1], alive, elsewhere):
        folder.mkdir()
    if kind == "folder":
        with new_folder(tmp_path / "target"):
            pass
    else:
        write_file(tmp_path / "target", b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([alive, elsewhere, tmp_path / "target"])


def test_a_killed_writer_of_a_file_leaves_nothing_for_ever(tmp_path: Path) -> None:
    """A process that is killed inside `new_file`, and the next one that writes in the same folder."""
    script = "import os, sys; from pathlib import Path; from firth.files import new_file\n"
    script += "with new_file(Path(sys.argv[1])) as file: file.write(b'half'); file.flush(); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", script, tmp_path / "scores.jsonl"], check=False)
    assert killed.returncode == -9
    (draft,) = tmp_path.iterdir()
    assert draft.read_bytes() == b"half"
    write_file(tmp_path / "other.jsonl", b"whole")
    assert os.listdir(tmp_path) == ["other.jsonl"]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"one")
    write_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert digest_file(path) == digest_bytes(b"two")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EACCES, "permission denied"),
        (errno.ENOTDIR, "is a file"),
    ],
)
def test_refusals_name_the_remedy(code: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=said), writing(tmp_path):
        raise OSError(code, os.strerror(code))


def test_the_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("FIRTH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "firth"


def test_an_interrupt_just_after_a_folder_was_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def interrupted(path: str | Path, *arguments: int) -> None:
        make(path, *arguments)
        if ".firth-" in str(path):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), draft_folder(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
