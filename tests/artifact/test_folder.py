"""Artifacts are saved completely or not at all, and damaged ones are refused with a remedy."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save

from firth.artifact.folder import artifact_info, open_artifact, save_artifact, verify_artifact
from firth.artifact.manifest import FORMAT, Manifest
from firth.artifact.tensors import map_tensors, write_tensors
from firth.errors import ArtifactError, OutputError
from firth.files import digest_bytes, digest_file

TENSORS = {"counts": np.arange(6, dtype=np.uint32).reshape(2, 3), "total": np.array(15.0)}
TOKENIZER = '{"model": {"vocab": {"的": 0, "the": 1}}}\n'.encode()
Content = bytes | Callable[[Path], None]


def make(folder: Path, files: dict[str, Content] | None = None, **changes: Any) -> Manifest:
    if files is None:
        files = {"tokenizer.json": TOKENIZER, "counts.safetensors": lambda path: write_tensors(path, TENSORS)}
    values: dict[str, Any] = {
        "kind": "counts",
        "name": "unigram",
        "recipe": {"smoothing": "additive", "orders": (1, 2)},
        "budget": {"asked": None, "spent": {"tokens": 15}},
        "corpus": {"digest": "ab", "documents": 2},
        "seed": 3,
        "metrics": {"bits_per_byte": 2.5},
    }
    return save_artifact(folder, Manifest(**{**values, **changes}), files)


def refusal(folder: Path, *, check: Callable[[Path], object] = open_artifact) -> str:
    with pytest.raises(ArtifactError) as caught:
        check(folder)
    message = caught.value.message
    assert message.endswith((".", "?"))
    assert "\n" not in message
    return message


def fail(error: Exception) -> Callable[..., Any]:
    def failing(*_: object, **__: object) -> Any:
        raise error

    return failing


def test_a_round_trip(tmp_path: Path) -> None:
    made = make(tmp_path / "deep" / "uni")
    artifact = open_artifact(tmp_path / "deep" / "uni")
    assert artifact.manifest == made
    assert made.recipe == {"smoothing": "additive", "orders": [1, 2]}
    assert made.tokenizer == digest_bytes(TOKENIZER)
    assert artifact.read("tokenizer.json") == TOKENIZER
    assert artifact.path("tokenizer.json") == tmp_path / "deep" / "uni" / "tokenizer.json"
    assert sorted(os.listdir(artifact.folder)) == ["counts.safetensors", "manifest.json", "tokenizer.json"]
    assert os.listdir(tmp_path / "deep") == ["uni"]


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b")
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_tensors_are_equal_read_only_and_stay_on_disk(tmp_path: Path) -> None:
    make(tmp_path / "uni")
    tensors = open_artifact(tmp_path / "uni").tensors("counts.safetensors")
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, TENSORS[name], strict=True)
        assert not tensor.flags.writeable
        assert not tensor.flags.owndata


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter(lambda name: name != "__metadata__"),
        hnp.arrays(
            st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.int8, np.uint16, np.bool_]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        max_size=4,
    )
)
def test_a_round_trip_of_any_tensors(tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        make(Path(parent, "m"), {"m.safetensors": save(tensors)})
        verify_artifact(Path(parent, "m"))
        found = open_artifact(Path(parent, "m")).tensors("m.safetensors")
        assert found.keys() == tensors.keys()
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(found[name], tensor, strict=True)


def test_verify_reports_every_file(tmp_path: Path) -> None:
    made = make(tmp_path / "uni")
    report = verify_artifact(tmp_path / "uni")
    sizes = {name: os.path.getsize(tmp_path / "uni" / name) for name in made.files}
    assert {name: entry["size"] for name, entry in report["files"].items()} == sizes
    assert report["files"]["tokenizer.json"]["sha256"] == digest_bytes(TOKENIZER)
    assert report["bytes"] == sum(sizes.values())
    assert (report["ok"], report["kind"], report["name"], report["format"]) == (True, "counts", "unigram", FORMAT)
    assert json.loads(json.dumps(report)) == report


def test_info_has_all_keys_of_the_manifest(tmp_path: Path) -> None:
    made = make(tmp_path / "uni")
    info = artifact_info(tmp_path / "uni")
    assert info == {"folder": str(tmp_path / "uni"), "bytes": info["bytes"], **made.to_dict()}
    assert info["bytes"] == sum(entry.size for entry in made.files.values())
    assert json.loads(json.dumps(info)) == info


def test_a_name_that_is_not_listed_gets_the_nearest(tmp_path: Path) -> None:
    make(tmp_path / "uni")
    with pytest.raises(ArtifactError, match=r"did you mean 'tokenizer\.json'\?$"):
        open_artifact(tmp_path / "uni").read("tokeniser.json")


def test_read_checks_the_digest_even_if_opening_did_not(tmp_path: Path) -> None:
    make(tmp_path / "uni")
    (tmp_path / "uni" / "tokenizer.json").write_bytes(TOKENIZER.replace(b"the", b"teh"))
    artifact = open_artifact(tmp_path / "uni", verify=False)
    with pytest.raises(ArtifactError, match="SHA-256"):
        artifact.read("tokenizer.json")


def test_a_symbolic_link_to_the_folder_is_followed(tmp_path: Path) -> None:
    make(tmp_path / "uni")
    (tmp_path / "latest").symlink_to("uni")
    assert verify_artifact(tmp_path / "latest")["ok"]


def test_files_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        make(tmp_path / "uni")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "uni").iterdir()}
    assert modes == {0o644}


@given(
    st.dictionaries(
        st.text("abc.", min_size=1, max_size=4),
        hnp.arrays(
            st.sampled_from([np.float64, np.float32, np.uint32, np.uint8, np.int64]), hnp.array_shapes(min_side=0)
        ),
        max_size=4,
    )
)
def test_tensors_are_written_as_the_library_reads_them(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        path = Path(parent, "m.safetensors")
        assert write_tensors(path, arrays) == digest_file(path)
        for read in (load_file(path), map_tensors(path)):
            assert read.keys() == arrays.keys()
            for name, array in arrays.items():
                np.testing.assert_array_equal(read[name], array)
                assert read[name].dtype == array.dtype


# Folders that are no artifacts.


def test_a_missing_folder_gets_the_nearest_artifact(tmp_path: Path) -> None:
    make(tmp_path / "news-unigram")
    (tmp_path / "news-unigrom").mkdir()
    assert refusal(tmp_path / "news-unigran").endswith("does not exist: did you mean 'news-unigram'?")
    assert "firth train -o" in refusal(tmp_path / "news-unigrom" / "x")
    assert "does not exist" in refusal(tmp_path / "no" / "such")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], "is empty: give the folder that firth train -o wrote."),
        (["checkpoint/step.json", "tokenizer.json"], "--resume."),
        (["config.json", "model.safetensors"], "firth import huggingface {folder} -o DIR."),
        (["config.json", "pytorch_model-00001.bin"], "firth import huggingface {folder} -o DIR."),
        (["README", "en.arpa.gz"], "firth import arpa {folder}/en.arpa.gz -o DIR."),
        (["glove.6B.50d.txt"], "firth import glove {folder}/glove.6B.50d.txt -o DIR."),
        (["wiki.vec"], "firth import word2vec {folder}/wiki.vec -o DIR."),
        (["lid.176.ftz"], "firth import fasttext {folder}/lid.176.ftz -o DIR."),
        (["tokenizer.json", "counts.safetensors"], "(it has no manifest.json)"),
    ],
)
def test_the_error_names_the_kind_of_a_foreign_folder(tmp_path: Path, names: list[str], expected: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")
    for check in (open_artifact, verify_artifact, artifact_info):
        assert expected.format(folder=folder) in refusal(folder, check=check)


def test_the_error_names_the_kind_of_a_file(tmp_path: Path) -> None:
    make(tmp_path / "uni")
    assert "is a file: give the folder" in refusal(tmp_path / "uni" / "manifest.json")
    (tmp_path / "lm.arpa").write_bytes(b"\\data\\")
    assert f"firth import arpa {tmp_path / 'lm.arpa'} -o DIR." in refusal(tmp_path / "lm.arpa")


def test_a_manifest_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"manifest_version": 3, "name": "a browser extension"}')
    assert "is not the manifest of a Firth artifact" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "tokenizer.json"])
@pytest.mark.parametrize("verify", [True, False])
def test_only_plain_files_are_read(tmp_path: Path, name: str, verify: bool) -> None:
    make(tmp_path / "uni")
    path = tmp_path / "uni" / name
    os.rename(path, tmp_path / "elsewhere")
    for replaced, what in [
        (lambda: path.symlink_to(tmp_path / "elsewhere"), "a symbolic link"),
        (lambda: os.mkfifo(path), "a device, pipe or socket"),  # opening it would wait for ever
    ]:
        replaced()
        message = refusal(tmp_path / "uni", check=lambda folder: open_artifact(folder, verify=verify))
        assert f"{name} is {what}" in message
        path.unlink()
    path.mkdir()
    assert f"{name} is a folder" in refusal(tmp_path / "uni")


def test_a_linked_sub_folder_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "uni", {"parts/step.json": b"{}"})
    os.rename(tmp_path / "uni" / "parts", tmp_path / "parts")
    (tmp_path / "uni" / "parts").symlink_to(tmp_path / "parts")
    assert "parts is a symbolic link" in refusal(tmp_path / "uni")


@pytest.mark.parametrize("verify", [True, False])
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: bool) -> None:
    make(tmp_path / "uni")
    denied = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr("builtins.open", fail(denied))
    message = refusal(tmp_path / "uni", check=lambda folder: open_artifact(folder, verify=verify))
    assert f"cannot read {tmp_path / 'uni' / 'manifest.json'} (permission denied)" in message
    monkeypatch.undo()
    monkeypatch.setattr(os, "listdir", fail(denied))
    assert f"cannot read {tmp_path / 'uni'} (permission denied)" in refusal(tmp_path / "uni")


# Saving that fails leaves nothing behind.


def no_space(path: Path) -> None:
    path.write_bytes(b"half")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="the disk is full"):
        make(tmp_path / "uni", {"a.json": b"{}", "b.safetensors": no_space})
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_with_the_manifest_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("firth.artifact.folder.write_file", write)
    with pytest.raises(OutputError, match="the disk is full"):
        make(tmp_path / "uni")
    assert os.listdir(tmp_path) == []


def test_a_tensor_that_cannot_be_saved_stays_the_error_of_its_writer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="odd"):
        make(tmp_path / "uni", {"a.safetensors": fail(ValueError("an odd dtype"))})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_without_write_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(os, "mkdir", fail(OSError(code, os.strerror(code))))
    with pytest.raises(OutputError, match=f"cannot write {tmp_path / 'uni'}: {os.strerror(code).lower()}"):
        make(tmp_path / "uni")
    monkeypatch.undo()
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OutputError, match="a part of that path is a file"):
        make(tmp_path / "file" / "models" / "uni")


def test_existing_files_are_never_changed(tmp_path: Path) -> None:
    make(tmp_path / "uni")
    before = {path.name: path.read_bytes() for path in (tmp_path / "uni").iterdir()}
    with pytest.raises(OutputError, match="already holds something"):
        make(tmp_path / "uni", seed=4)
    assert {path.name: path.read_bytes() for path in (tmp_path / "uni").iterdir()} == before
    assert os.listdir(tmp_path) == ["uni"]
    (tmp_path / "empty").mkdir()
    make(tmp_path / "empty")
    assert verify_artifact(tmp_path / "empty")["ok"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metrics": {"loss": float("nan")}}, "'metrics'"),
        ({"seed": "3"}, "'seed'"),
        ({"budget": {}}, "'budget'"),
        ({"files": {"../x": b""}}, "plain name"),
        ({"files": {"manifest.json": b""}}, "plain name"),
    ],
)
def test_an_invalid_manifest_is_refused_before_writing(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ArtifactError, match=reason):
        make(tmp_path / "uni", **{"files": {"a.bin": fail(AssertionError("written too early"))}, **changes})
    assert os.listdir(tmp_path) == []


def test_a_writer_that_leaves_other_files_is_caught(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_bytes(b"x")
        path.with_name("scratch").write_bytes(b"y")

    with pytest.raises(ArtifactError, match="'scratch'"):
        make(tmp_path / "uni", {"a.bin": write})
    assert os.listdir(tmp_path) == []


KILLED = """
import os, sys, time
from pathlib import Path
from firth.artifact.folder import save_artifact
from firth.artifact.manifest import Manifest

def stop():
    print("now", flush=True)
    time.sleep(60)

def slow(path):
    path.write_bytes(b"half of it")
    if sys.argv[2] == "in a file":
        stop()

rename = os.rename
def watched(old, new):
    if sys.argv[2] == "before the rename":
        stop()
    rename(old, new)
    stop()
os.rename = watched
files = {"a.json": b"{}", "b.bin": slow}
manifest = Manifest(kind="counts", name="unigram", recipe={}, corpus={}, seed=1, metrics={})
save_artifact(Path(sys.argv[1]), manifest, files)
"""


@pytest.mark.parametrize("moment", ["in a file", "before the rename", "after the rename"])
def test_kill_leaves_all_or_nothing(tmp_path: Path, moment: str) -> None:
    target = tmp_path / "uni"
    command = [sys.executable, "-c", KILLED, str(target), moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "now\n"
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    if moment == "after the rename":
        assert verify_artifact(target)["ok"]
    else:
        assert not target.exists()
        make(target)
        assert verify_artifact(target)["ok"]
