"""The manifest has one form on disk, and whatever is not that form is refused with a sentence."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.artifact import manifest as module
from firth.artifact.manifest import FORMAT, FileEntry, Manifest, installed_versions, parse_manifest
from firth.errors import ArtifactError

WHERE = Path("uni/manifest.json")
SHA = "0123456789abcdef" * 4
MADE = Manifest(
    kind="counts",
    name="unigram",
    recipe={"smoothing": "additive", "order": 1},
    budget={"asked": "10min", "spent": {"seconds": 1.5}},
    corpus={"digest": SHA, "documents": 3, "语言": "中文"},
    tokenizer=SHA,
    seed=7,
    metrics={"bits_per_byte": 2.25},
    versions={"firth": "0.1.0"},
    files={"tokenizer.json": FileEntry(SHA, 12), "checkpoint/step.json": FileEntry(SHA, 0)},
)

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(_text, _values, max_size=4)


def canonical(values: Any) -> bytes:
    """The canonical form, deliberately implemented a second time."""
    return (json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False) + "\n").encode()


def seal(values: dict[str, Any]) -> bytes:
    """What a forger would write: any values under a right digest."""
    return canonical({**values, "digest": hashlib.sha256(canonical(values)).hexdigest()})


def refusal(data: bytes) -> str:
    with pytest.raises(ArtifactError) as caught:
        parse_manifest(data, WHERE)
    message = str(caught.value)
    assert message.startswith(str(WHERE))
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_the_bytes_are_canonical_and_hold_their_own_digest() -> None:
    data = MADE.to_bytes()
    assert data == seal(MADE.to_dict())
    assert "中文".encode() in data
    assert parse_manifest(data, WHERE) == MADE


@given(recipe=_objects, corpus=_objects, metrics=_objects, spent=_objects, seed=st.integers())
def test_a_round_trip_of_any_json(
    recipe: dict[str, Any], corpus: dict[str, Any], metrics: dict[str, Any], spent: dict[str, Any], seed: int
) -> None:
    budget = {"asked": None, "spent": spent}
    made = replace(MADE, recipe=recipe, corpus=corpus, metrics=metrics, budget=budget, seed=seed)
    assert parse_manifest(made.to_bytes(), WHERE) == made


@given(data=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    refusal(data)


@pytest.mark.parametrize("key", sorted(MADE.to_dict()))
def test_a_missing_key_is_named(key: str) -> None:
    values = MADE.to_dict()
    del values[key]
    assert repr(key) in refusal(seal(values))


def test_an_unknown_key_is_named() -> None:
    assert "unknown key 'colour'" in refusal(seal({**MADE.to_dict(), "colour": "red"}))


def test_a_missing_digest_is_refused() -> None:
    assert "digest" in refusal(canonical(MADE.to_dict()))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", True),
        ("format", 0),
        ("format", "1"),
        ("kind", 3),
        ("name", None),
        ("recipe", []),
        ("budget", "10min"),
        ("budget", {"asked": None}),
        ("budget", {"asked": 3, "spent": {}}),
        ("budget", {"asked": None, "spent": []}),
        ("corpus", None),
        ("tokenizer", 3),
        ("tokenizer", None),
        ("tokenizer", "f" * 64),
        ("seed", 1.5),
        ("seed", False),
        ("metrics", [1]),
        ("versions", {"firth": 1}),
        ("files", []),
    ],
)
def test_a_value_of_the_wrong_type_is_named(key: str, value: object) -> None:
    assert repr(key) in refusal(seal({**MADE.to_dict(), key: value}))


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {"sha256": SHA},
        {"sha256": SHA, "size": -1},
        {"sha256": SHA, "size": 1.0},
        {"sha256": SHA, "size": True},
        {"sha256": SHA[:-1], "size": 1},
        {"sha256": SHA.upper(), "size": 1},
        {"sha256": 5, "size": 1},
        {"sha256": SHA, "size": 1, "mode": 7},
    ],
)
def test_a_wrong_file_entry_is_named(entry: object) -> None:
    files = {**MADE.to_dict()["files"], "words.txt": entry}
    assert "'words.txt'" in refusal(seal({**MADE.to_dict(), "files": files}))


@pytest.mark.parametrize(
    "name",
    [
        *["..", ".", "", "../x", "a/../b", "checkpoint/..", "/etc/passwd", "a/b/c", "a//b", "a/", "~/x"],
        *["c:\\x", "a\\b", "a\0", "a\n", ".hidden", "manifest.json", "x" * 101, "词.txt"],
    ],
)
def test_a_file_name_that_leaves_the_folder_is_refused(name: str) -> None:
    files = {**MADE.to_dict()["files"], name: {"sha256": SHA, "size": 1}}
    assert "plain name" in refusal(seal({**MADE.to_dict(), "files": files}))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (FORMAT + 1, f"a newer Firth (format {FORMAT + 1}, not {FORMAT}): upgrade with pip install -U firth."),
        (FORMAT - 1, f"an older Firth (format {FORMAT - 1}, not {FORMAT}): train or import it again with this one."),
    ],
)
def test_another_format_version_is_refused_with_the_remedy(version: int, expected: str) -> None:
    assert expected in refusal(canonical({"format": version, "shards": [1, 2]}))
    assert expected in refusal(b'{"digest": 5, "format": %d}' % version)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_lacks_are_refused_both_ways(number: float) -> None:
    with pytest.raises(ArtifactError, match=r"'metrics' .* cannot be written"):
        replace(MADE, metrics={"loss": [number]}).to_bytes()
    assert "not a JSON number" in refusal(canonical({"format": 2, "metrics": number}))


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object(), "\ud800", {("a",): 1}, [10**5000]])
def test_what_is_not_json_cannot_be_written(value: object) -> None:
    with pytest.raises(ArtifactError, match=r"'recipe' .* cannot be written"):
        replace(MADE, recipe={"part": value}).to_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "at byte 0"),
        (b"[1]", "no JSON object"),
        (b"\xef\xbb\xbf{}", "at byte 0"),
        (b'{"format": 2, "\xff": 1}', "at byte 15"),
        ('{"名": 1, x}'.encode(), "at byte 11"),
        (b'{"format": 2, "seed": 1e999}', "Out of range"),
        (b'{"format": 2, "name": "\\ud800"}', "surrogates"),
        (b'{"format": 2, "seed": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"format": 2, "format": 2}', "'format' is repeated"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"format": 2, "recipe": ' + b"[" * 700 + b"]" * 700 + b"}", "manifest.json"),
        (b'{"format": ' + b"[" * 700 + b"]" * 700 + b"}", "'format'"),
    ],
)
def test_bytes_that_are_no_manifest_are_refused_with_the_offset(content: bytes, reason: str) -> None:
    assert reason in refusal(content)


def test_another_spelling_of_the_same_values_is_refused_with_its_first_byte() -> None:
    data = MADE.to_bytes()
    assert f"at byte {len(data)} " in refusal(data + b"\n")
    assert "at byte 1 " in refusal(data.replace(b"\n", b"\r\n"))
    assert "at byte 1 " in refusal(json.dumps(json.loads(data), sort_keys=True).encode())
    assert f"at byte {len(data) - 1} " in refusal(data[:-1])
    assert "at byte" in refusal(data.replace(b"2.25", b"225e-2"))


def test_a_changed_value_is_found_by_the_digest() -> None:
    assert "SHA-256" in refusal(MADE.to_bytes().replace(b'"seed": 7', b'"seed": 8'))


def test_a_manifest_of_unreasonable_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = MADE.to_bytes()
    monkeypatch.setattr(module, "MANIFEST_LIMIT", len(data))
    assert parse_manifest(data, WHERE) == MADE
    monkeypatch.setattr(module, "MANIFEST_LIMIT", len(data) - 1)
    assert "larger than" in refusal(data)


def test_versions_are_found_without_importing_the_libraries() -> None:
    script = (
        "import sys, firth.artifact as a; from firth.artifact.manifest import installed_versions as f;"
        "print(sorted(f())); print(sorted({'numpy', 'numba', 'tokenizers', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    names, imported = done.stdout.splitlines()
    assert names == str(["firth", "numba", "numpy", "python", "safetensors", "tokenizers", "torch"])
    assert imported == "[]"
    assert installed_versions()["python"] == ".".join(map(str, sys.version_info[:3]))
