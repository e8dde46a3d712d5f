"""Damaged artifacts are detected: any byte, any length, any file, and malformed files with valid digests."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from firth.artifact.folder import open_artifact, save_artifact, verify_artifact
from firth.artifact.manifest import FORMAT, Manifest
from firth.errors import ArtifactError

NAMES = ["manifest.json", "tokenizer.json", "counts.safetensors", "parts/step.json", "empty.txt"]


def save_small(folder: Path, files: dict[str, bytes] | None = None, seed: int = 1) -> None:
    default = {
        "tokenizer.json": '{"vocab": {"的": 0, "the": 1}}\n'.encode(),
        "counts.safetensors": save({"counts": np.arange(seed, 8 + seed, dtype=np.uint16)}),
        "parts/step.json": b'{"step": 12}\n',
        "empty.txt": b"",
    }
    manifest = Manifest(
        kind="counts",
        name="unigram",
        recipe={"smoothing": "additive"},
        budget={"asked": "20s", "spent": {"seconds": 0.5}},
        corpus={"digest": "ab" * 32, "documents": 2, "source": "新闻.txt"},
        seed=seed,
        metrics={"bits_per_byte": 2.5},
    )
    save_artifact(folder, manifest, default if files is None else files)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One artifact for all tests, which restore what they damage."""
    folder = tmp_path_factory.mktemp("damage") / "uni"
    save_small(folder)
    assert sorted(verify_artifact(folder)["files"]) == sorted(NAMES[1:])
    return folder


@contextmanager
def replaced(path: Path, data: bytes) -> Iterator[None]:
    """Replace the content of a file temporarily."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


def error_message(folder: Path, check: Callable[[Path], object] = verify_artifact) -> str:
    with pytest.raises(ArtifactError) as caught:
        check(folder)
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", NAMES)
def test_flipped_bits_are_detected(artifact: Path, name: str) -> None:
    data = (artifact / name).read_bytes()
    rng = random.Random(name)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        with replaced(artifact / name, bytes(damaged)):
            assert name in error_message(artifact)
    assert verify_artifact(artifact)["ok"]


@pytest.mark.parametrize("name", NAMES)
def test_truncation_is_detected(artifact: Path, name: str) -> None:
    data = (artifact / name).read_bytes()
    for length in range(len(data)):
        with replaced(artifact / name, data[:length]):
            message = error_message(artifact, lambda folder: open_artifact(folder, verify=False))
            assert name in message
            if name != "manifest.json":
                assert f"cut off at byte {length} instead of {len(data)}" in message
    assert verify_artifact(artifact)["ok"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tail", [b"\0", b"\n", b" ", b"{}", b"x" * 5000])
def test_trailing_bytes_are_detected(artifact: Path, name: str, tail: bytes) -> None:
    data = (artifact / name).read_bytes()
    with replaced(artifact / name, data + tail):
        message = error_message(artifact, lambda folder: open_artifact(folder, verify=False))
        assert name in message
        assert str(len(data)) in message


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(NAMES[:-1]),
    start=st.integers(0, 10**6),
    cut=st.integers(0, 40),
    put=st.binary(max_size=40),
)
def test_replaced_bytes_are_detected(artifact: Path, name: str, start: int, cut: int, put: bytes) -> None:
    data = (artifact / name).read_bytes()
    start %= len(data)
    damaged = data[:start] + put + data[start + cut :]
    with replaced(artifact / name, damaged):
        if damaged == data:
            assert verify_artifact(artifact)["ok"]
        else:
            assert name in error_message(artifact)


@pytest.mark.parametrize("name", NAMES)
def test_missing_files_are_named(artifact: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "uni"
    shutil.copytree(artifact, folder)
    (folder / name).unlink()
    message = error_message(folder)
    if name == "manifest.json":
        assert "not a complete Firth artifact" in message
    else:
        assert f"{name} is missing" in message


@pytest.mark.parametrize("name", NAMES[1:])
def test_renamed_files_are_named_with_both_names(artifact: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "uni"
    shutil.copytree(artifact, folder)
    os.rename(folder / name, folder / f"{name}.old")
    message = error_message(folder)
    assert f"{folder / name} is missing" in message
    assert f"{name}.old" in message


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "parts/more.json", "weird\n\udcff", "sub/x"])
def test_extra_files_are_named(artifact: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "uni"
    shutil.copytree(artifact, folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"")
    assert f"holds {name!r}, which its manifest does not list" in error_message(folder)


@pytest.mark.parametrize("name", ["sub", "parts/sub"])
def test_extra_folders_are_named(artifact: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "uni"
    shutil.copytree(artifact, folder)
    (folder / name).mkdir()
    assert f"holds {name!r}, which its manifest does not list" in error_message(folder)


def test_swapped_files_are_detected(artifact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "uni"
    shutil.copytree(artifact, folder)
    os.rename(folder / "tokenizer.json", folder / "x")
    os.rename(folder / "parts/step.json", folder / "tokenizer.json")
    os.rename(folder / "x", folder / "parts/step.json")
    assert "its size is 32 instead of 13" in error_message(folder)


def test_the_manifest_of_another_artifact_is_detected(artifact: Path, tmp_path: Path) -> None:
    """The files of the other one have the same names and sizes, so only digests differ."""
    folder = tmp_path / "uni"
    shutil.copytree(artifact, folder)
    save_small(tmp_path / "other", seed=2)
    shutil.copy(tmp_path / "other" / "manifest.json", folder / "manifest.json")
    open_artifact(folder, verify=False)
    message = error_message(folder)
    assert "counts.safetensors was changed after it was saved (its SHA-256 is" in message


@pytest.mark.parametrize(
    ("version", "remedy"),
    [(FORMAT + 1, "upgrade with pip install -U firth."), (FORMAT - 1, "train or import it again")],
)
def test_another_format_version_is_refused_with_the_remedy(artifact: Path, version: int, remedy: str) -> None:
    data = (artifact / "manifest.json").read_bytes()
    other = data.replace(b'"format": %d' % FORMAT, b'"format": %d' % version)
    with replaced(artifact / "manifest.json", other):
        assert remedy in error_message(artifact)


# Malformed files whose digests are valid.


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: object = "U8", shape: object = (4,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (b"", 0),
        (b"\x02\0\0\0", 0),
        (safetensors({}, length=3), 0),
        (safetensors({}, length=2**63), 0),
        (safetensors({}, length=100_000_001), 0),
        (safetensors(b' {"a": 1}'), 8),
        (safetensors(b"[1]"), 8),
        (safetensors(b'{"a" 1}'), 13),
        (safetensors(b'{"\xff": 1}'), 10),
        (safetensors({"__metadata__": {"a": 1}}), 8),
        (safetensors({"__metadata__": []}), 8),
        (safetensors({"a": 3}), 8),
        (safetensors({"a": {"dtype": "U8", "shape": [4]}}), 8),
        (safetensors({"a": {**entry(), "more": 1}}, b"1234"), 8),
        (safetensors({"a": entry(dtype="X8")}, b"1234"), 8),
        (safetensors({"a": entry(dtype=[])}, b"1234"), 8),
        (safetensors({"a": entry(shape=[-4])}, b"1234"), 8),
        (safetensors({"a": entry(shape=[4.0])}, b"1234"), 8),
        (safetensors({"a": entry(shape=[4, True])}, b"1234"), 8),
        (safetensors({"a": entry(shape=[1] * 64 + [4])}, b"1234"), 8),
        (safetensors({"a": entry(offsets=[0, 4, 4])}, b"1234"), 8),
        (safetensors({"a": entry(offsets=[-1, 3])}, b"1234"), 8),
        (safetensors({"a": entry(shape=[5])}, b"1234"), -4),
        (safetensors({"a": entry(dtype="F64")}, b"1234"), -4),
        (safetensors({"a": entry(shape=[0, 2**62, 2], offsets=[0, 0])}), None),
        (safetensors({"a": entry(offsets=[1, 5])}, b"12345"), -5),
        (safetensors({"a": entry()}, b"12345"), -1),
        (safetensors({"a": entry()}, b"123"), None),
        (safetensors({"a": entry(), "b": entry()}, b"1234"), None),
        (safetensors({"a": entry(), "b": entry(offsets=[3, 7])}, b"1234567"), -3),
        (safetensors({"a": entry(), "b": entry(offsets=[5, 9])}, b"123456789"), -5),
        (safetensors({}, b"1"), -1),
    ],
)
def test_malformed_safetensors_are_refused_with_the_offset(tmp_path: Path, content: bytes, offset: int | None) -> None:
    """Negative offsets count from the end of the file; None is the end itself."""
    at = len(content) if offset is None else offset % max(len(content), 1)
    save_small(tmp_path / "m", {"m.safetensors": content})
    message = error_message(tmp_path / "m")
    assert f"{tmp_path / 'm' / 'm.safetensors'} is not" in message
    assert f" at byte {at} " in message
    with pytest.raises(ArtifactError, match=f" at byte {at} "):
        open_artifact(tmp_path / "m").tensors("m.safetensors")


def test_repeated_tensors_and_deep_headers_are_refused(tmp_path: Path) -> None:
    one = json.dumps(entry(shape=[0], offsets=[0, 0]))
    for number, header in enumerate([f'{{"a": {one}, "a": {one}}}', '{"a":' * 50_000]):
        save_small(tmp_path / str(number), {"m.safetensors": safetensors(header.encode())})
        assert "is not valid JSON" in error_message(tmp_path / str(number))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_accepted_files_are_valid_for_the_safetensors_library(changes: list[tuple[int, int]]) -> None:
    tensors = {"counts": np.arange(6, dtype=np.uint32).reshape(2, 3), "total": np.array(15.0)}
    content = bytearray(save(tensors))
    for at, byte in changes:
        content[at % len(content)] = byte
    with tempfile.TemporaryDirectory() as parent:
        save_small(Path(parent, "m"), {"m.safetensors": bytes(content)})
        try:
            found = open_artifact(Path(parent, "m")).tensors("m.safetensors")
        except ArtifactError:
            return
    expected = load(bytes(content))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, strict=True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"{", "at byte 1"), (b'"\xff"', "at byte 1"), (b"NaN", "NaN"), (b"[" * 99_999, "deep")],
)
def test_malformed_json_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    save_small(tmp_path / "m", {"labels.json": content})
    message = error_message(tmp_path / "m")
    assert "labels.json is not valid JSON" in message
    assert reason in message
