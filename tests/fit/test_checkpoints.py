"""Checkpoints: atomic, resumed by the same run only, and removed when training is finished."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.folder import open_artifact
from firth.errors import ArtifactError, OutputError, RecipeError
from firth.files import temporary_prefix
from firth.fit.checkpoints import CheckpointFolder, is_unfinished, require_place, training_place
from tests.command import firth

ARRAYS = {"table0": np.arange(6, dtype=np.float32)}


def checkpointer(folder: Path, **changes: object) -> CheckpointFolder:
    return CheckpointFolder(folder, {"recipe": "skipgram", "seed": 0} | changes, resume=True)


def test_the_last_checkpoint_is_loaded(tmp_path: Path) -> None:
    assert checkpointer(tmp_path / "out").load() is None
    one = checkpointer(tmp_path / "out")
    one.save({"table0": np.zeros(6, dtype=np.float32)}, {"done": 1})
    one.save(ARRAYS, {"done": 2, "losses": [0.1]})
    assert len(list((tmp_path / "out" / "checkpoint").iterdir())) == 2
    found = checkpointer(tmp_path / "out").load()
    assert found is not None
    assert np.array_equal(found[0]["table0"], ARRAYS["table0"])
    assert found[1] == {"done": 2, "losses": [0.1]}


def test_a_state_without_its_manifest_is_none(tmp_path: Path) -> None:
    """Killed while the first state was written."""
    checkpointer(tmp_path / "out").save(ARRAYS, {})
    (tmp_path / "out" / "checkpoint" / "manifest.json").unlink()
    assert not is_unfinished(tmp_path / "out")
    require_place(tmp_path / "out", resume=True)
    with training_place(tmp_path / "out", resume=True):
        assert list((tmp_path / "out").iterdir()) == []


def test_killed_between_two_states_the_older_one_counts(tmp_path: Path) -> None:
    checkpointer(tmp_path / "out").save(ARRAYS, {"done": 1})
    (tmp_path / "out" / "checkpoint" / "state-2.safetensors").write_bytes(b"half")
    found = checkpointer(tmp_path / "out").load()
    assert found is not None
    assert found[1] == {"done": 1}


def test_another_run_does_not_go_on(tmp_path: Path) -> None:
    checkpointer(tmp_path / "out").save(ARRAYS, {})
    with pytest.raises(RecipeError, match="something else"):
        checkpointer(tmp_path / "out", seed=1).load()
    with pytest.raises(OutputError, match="resume=True"):
        require_place(tmp_path / "out", resume=False)
    assert CheckpointFolder(tmp_path / "out", {}, resume=False).load() is None


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    checkpointer(tmp_path / "out").save(ARRAYS, {})
    state = tmp_path / "out" / "checkpoint" / "state-1.safetensors"
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(data)
    with pytest.raises(ArtifactError, match="has changed"):
        checkpointer(tmp_path / "out").load()
    (tmp_path / "out" / "checkpoint" / "manifest.json").write_text("{}")
    with pytest.raises(ArtifactError, match="damaged"):
        checkpointer(tmp_path / "out").load()


@pytest.mark.parametrize("content", [b"[]", b"3", b"null", b"\xff", b"{", b"[" * 99_999])
def test_manifests_of_another_type_are_refused(tmp_path: Path, content: bytes) -> None:
    checkpointer(tmp_path / "out").save(ARRAYS, {})
    (tmp_path / "out" / "checkpoint" / "manifest.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"manifest\.json is"):
        checkpointer(tmp_path / "out").load()


@pytest.mark.parametrize(
    ("name", "value"),
    [("state", []), ("state", {"done": 2}), ("file", "../x.safetensors"), ("file", "a\0.safetensors"), ("file", 3)],
)
def test_changed_manifests_are_refused(tmp_path: Path, name: str, value: object) -> None:
    checkpointer(tmp_path / "out").save(ARRAYS, {"done": 1, "rows": {9: 1, 10: 2}})
    path = tmp_path / "out" / "checkpoint" / "manifest.json"
    assert checkpointer(tmp_path / "out").load() is not None
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {name: value}))
    with pytest.raises(ArtifactError, match="damaged"):
        checkpointer(tmp_path / "out").load()


def test_when_a_state_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not checkpointer(tmp_path).due()
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    assert checkpointer(tmp_path).due()
    monkeypatch.setenv("FIRTH_CHECKPOINT", "soon")
    with pytest.raises(RecipeError, match="FIRTH_CHECKPOINT='soon'"):
        checkpointer(tmp_path)


def test_a_checkpoint_that_cannot_be_written_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the half of a state, which would keep a full disk full."""

    def fail(path: Path, arrays: object) -> str:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    one = checkpointer(tmp_path / "out")
    one.save(ARRAYS, {"done": 1})
    before = {path.name: path.read_bytes() for path in (tmp_path / "out" / "checkpoint").iterdir()}
    monkeypatch.setattr("firth.fit.checkpoints.write_tensors", fail)
    with pytest.raises(OutputError, match="disk is full"):
        one.save(ARRAYS, {"done": 2})
    assert {path.name: path.read_bytes() for path in (tmp_path / "out" / "checkpoint").iterdir()} == before


def test_no_two_processes_train_into_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with training_place(out, resume=True):
        checkpointer(out).save(ARRAYS, {})
        assert is_locked(out)
    assert not is_locked(out)
    other = os.open(out, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(OutputError, match="another process is training"), training_place(out, resume=True):
        pass
    for act in (lambda: checkpointer(out).save(ARRAYS, {}), checkpointer(out).load):
        with pytest.raises(OutputError, match="another process is training"):
            act()
    os.close(other)
    with training_place(out, resume=True):
        assert checkpointer(out).load() is not None
    (out / "manifest.json").touch()
    with pytest.raises(OutputError, match="has written"):
        checkpointer(out).save(ARRAYS, {})


def is_locked(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def train(out: Path, *options: str) -> list[str]:
    return ["train", "skipgram", "builtin:oracle", "-o", str(out), "--set", "epochs=60", *options]


def begun(out: Path, sent: int) -> int:
    """Starts training, sends a signal when there is a new checkpoint, and returns the exit code."""
    manifest = out / "checkpoint" / "manifest.json"
    before = manifest.read_bytes() if manifest.exists() else b""
    environment = os.environ | {"FIRTH_CHECKPOINT": "0"}
    command = [sys.executable, "-m", "firth", *train(out, "--resume", "--threads", "2")]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not (manifest.exists() and manifest.read_bytes() != before):
            time.sleep(0.01)
        process.send_signal(sent)
        return process.wait()


def timeless_files(info: dict[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in info["files"].items() if name != "metrics.jsonl"}


def test_killed_interrupted_and_resumed_training_gives_the_same_bytes(tmp_path: Path) -> None:
    whole = firth(*train(tmp_path / "whole", "--threads", "1", "--json"))
    assert whole.code == 0, whole.err
    out = tmp_path / "killed"
    assert begun(out, signal.SIGKILL) == -signal.SIGKILL
    assert begun(out, signal.SIGINT) == 130
    assert "--resume" in firth("info", out).err
    assert "unfinished" in firth(*train(out)).err
    assert "something else" in firth(*train(out, "--resume", "--seed", "5")).err
    resumed = firth(*train(out, "--resume", "--threads", "2", "--json"))
    assert resumed.code == 0, resumed.err
    assert timeless_files(resumed.json) == timeless_files(whole.json)
    assert resumed.json["metrics"] == whole.json["metrics"]
    assert not (out / "checkpoint").exists()


def test_killed_while_the_model_is_saved(tmp_path: Path) -> None:
    """Files beside the checkpoint without a manifest are written again; a checkpoint beside a manifest is ignored."""
    out = tmp_path / "killed"
    assert begun(out, signal.SIGKILL) == -signal.SIGKILL
    (out / "model.safetensors").write_bytes(b"half")
    assert firth(*train(out, "--resume")).code == 0
    open_artifact(out)
    (out / "checkpoint").mkdir()
    (out / "checkpoint" / f"{temporary_prefix()}x.tmp").write_bytes(b"half")  # of the manifest of a checkpoint
    open_artifact(out)
    assert firth(*train(out, "--resume")).code == 0
    assert not (out / "checkpoint").exists()


def test_two_resumes_at_once_do_not_harm_each_other(tmp_path: Path) -> None:
    whole = firth(*train(tmp_path / "whole", "--threads", "1", "--json"))
    out = tmp_path / "killed"
    assert begun(out, signal.SIGKILL) == -signal.SIGKILL
    command = [sys.executable, "-m", "firth", *train(out, "--resume", "--threads", "1")]
    environment = os.environ | {"FIRTH_CHECKPOINT": "0.2"}
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ends = sorted((process.wait(), process.communicate()[1]) for process in both)
    assert ends[0][0] == 0, ends
    assert ends[1][0] == 0 or "another process" in ends[1][1].splitlines()[-1], ends
    assert timeless_files(firth("info", out, "--json").json) == timeless_files(whole.json)
    assert [path.name for path in tmp_path.rglob("*") if path.name.startswith(".") or path.name == "checkpoint"] == []
