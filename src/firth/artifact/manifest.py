"""manifest.json: kind and provenance of an artifact, and the size and digest of every file in it.

The bytes are canonical: a manifest has exactly one form on disk, so any changed byte is detected, even a space.
"""

from __future__ import annotations

import json
import platform
import re
from collections import Counter
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from firth.errors import ArtifactError
from firth.files import digest_bytes

FORMAT = 2
"""Version of the folder layout, recipe fields and array names; no other version is read."""
MANIFEST = "manifest.json"
MANIFEST_LIMIT = 64 << 20
COPY_AGAIN = "copy the folder again, or train again"
_GIVE_FOLDER = "give the folder that firth train -o wrote"

_LIBRARIES = ("firth", "numpy", "numba", "safetensors", "tokenizers", "torch")
_PLAIN = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"
_FILE_NAME = re.compile(rf"{_PLAIN}(/{_PLAIN})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TYPES: dict[str, tuple[type, ...]] = {
    "format": (int,),
    "kind": (str,),
    "name": (str,),
    "recipe": (dict,),
    "budget": (dict,),
    "corpus": (dict,),
    "tokenizer": (str, type(None)),
    "seed": (int,),
    "metrics": (dict,),
    "versions": (dict,),
    "files": (dict,),
}
_TYPE_NAMES = {int: "a whole number", str: "a string", dict: "an object", type(None): "null"}


@dataclass(frozen=True)
class FileEntry:
    """One file of an artifact: the SHA-256 and the number of its bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Kind, provenance and files of an artifact.

    `budget` is `{"asked": str or None, "spent": {...}}`; `corpus` holds digest, counts and layout of the text;
    `tokenizer` is the SHA-256 of tokenizer.json if there is one; `files` lists all files but the manifest itself.

    >>> made = Manifest(kind="counts", name="unigram", recipe={}, corpus={}, seed=1, metrics={"bits_per_byte": 2.5})
    >>> parse_manifest(made.to_bytes(), Path("uni/manifest.json")) == made
    True
    """

    format: int = FORMAT
    kind: str
    name: str
    recipe: dict[str, Any]
    budget: dict[str, Any] = field(default_factory=lambda: {"asked": None, "spent": {}})
    corpus: dict[str, Any]
    tokenizer: str | None = None
    seed: int
    metrics: dict[str, Any]
    versions: dict[str, str] = field(default_factory=lambda: installed_versions())
    files: dict[str, FileEntry] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON values, without its own digest."""
        return {**vars(self), "files": {name: dict(vars(entry)) for name, entry in self.files.items()}}

    def to_bytes(self) -> bytes:
        """The canonical bytes of manifest.json, including the digest of the other keys."""
        values = self.to_dict()
        for key, value in values.items():
            try:
                _canonical(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise ArtifactError(
                    f"{key!r} of an artifact's manifest cannot be written as JSON ({error}): "
                    "give finite numbers, strings, lists and objects only."
                ) from error
        return _canonical({**values, "digest": digest_bytes(_canonical(values))})


def parse_manifest(data: bytes, where: Path) -> Manifest:
    """The manifest in `data`, the content of the file `where`, or an `ArtifactError`."""
    if len(data) > MANIFEST_LIMIT:
        raise ArtifactError(f"{where} is larger than {MANIFEST_LIMIT} bytes, so no manifest: {COPY_AGAIN}.")
    values = parse_json(data, where)
    if not isinstance(values, dict):
        raise ArtifactError(f"{where} is not the manifest of a Firth artifact (no JSON object): {_GIVE_FOLDER}.")
    _check_format(values, where)
    _check_digest(values, data, where)
    del values["digest"]
    _check_keys(values, where)
    _check_values(values, where)
    entries = {name: _parse_entry(name, entry, where) for name, entry in values["files"].items()}
    tokenizer = entries.get("tokenizer.json")
    is_same = values["tokenizer"] == (tokenizer.sha256 if tokenizer else None)
    _require(is_same, where, "'tokenizer' is not the digest of tokenizer.json")
    return Manifest(**{**values, "files": entries})


def parse_json(data: bytes, where: Path, start: int = 0) -> Any:
    """The JSON value in `data`, which begins at byte `start` of the file `where`; errors name the byte."""
    offset = None
    try:
        text = data.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        offset, reason = error.start, "it is not UTF-8"
    except json.JSONDecodeError as error:
        offset, reason = len(text[: error.pos].encode("utf-8")), error.msg
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    position = "" if offset is None else f" at byte {start + offset}"
    raise ArtifactError(f"{where} is not valid JSON{position} ({reason}): {COPY_AGAIN}.")


def check_file_name(name: str, where: Path) -> None:
    """Raise `ArtifactError` unless `name` is a plain name, or a plain name in one sub-folder.

    >>> check_file_name("checkpoint/step.json", Path("model"))
    >>> check_file_name("../secret", Path("model"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    firth.errors.ArtifactError: model: '../secret' may not be a file of an artifact: use a plain name ...
    """
    if name == MANIFEST or not _FILE_NAME.fullmatch(name):
        example = "use a plain name such as counts.safetensors or checkpoint/step.json"
        raise ArtifactError(f"{where}: {name!r:.80} may not be a file of an artifact: {example}.")


def installed_versions() -> dict[str, str]:
    """The versions of Python, Firth and the libraries that affect models, without importing them.

    >>> sorted(installed_versions())[:2]
    ['firth', 'numba']
    """
    found = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found


def _canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8") + b"\n"


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object from its pairs; a repeated key, which readers interpret differently, is refused."""
    values = dict(pairs)
    if len(values) < len(pairs):
        repeated, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {repeated!r:.80} is repeated")
    return values


def _check_format(values: dict[str, Any], where: Path) -> None:
    """Check the version before anything else: the manifest of another version may differ in every other key."""
    found = values.get("format")
    if type(found) is not int or found < 1:
        raise ArtifactError(f"{where} is not the manifest of a Firth artifact (no 'format' number): {_GIVE_FOLDER}.")
    if found > FORMAT:
        age, remedy = "a newer", "upgrade with pip install -U firth"
    else:
        age, remedy = "an older", "train or import it again with this one"
    if found != FORMAT:
        raise ArtifactError(f"{where} was made by {age} Firth (format {found}, not {FORMAT}): {remedy}.")


def _check_digest(values: dict[str, Any], data: bytes, where: Path) -> None:
    """Raise unless `data` is the canonical form of `values` with the right digest."""
    try:
        digest = digest_bytes(_canonical({key: value for key, value in values.items() if key != "digest"}))
        canonical = _canonical(values)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where} holds values that no manifest may hold ({error}): {COPY_AGAIN}.") from error
    if values.get("digest") != digest:
        reason = f"its content has the SHA-256 {digest}, which is not its 'digest'"
        raise ArtifactError(f"{where} was changed after it was saved ({reason}): {COPY_AGAIN}.")
    if data != canonical:
        pairs = enumerate(zip(data, canonical, strict=False))
        offset = next((at for at, (found, wanted) in pairs if found != wanted), min(len(data), len(canonical)))
        raise ArtifactError(f"{where} was changed at byte {offset} after it was saved: {COPY_AGAIN}.")


def _check_keys(values: dict[str, Any], where: Path) -> None:
    if odd := sorted(_TYPES.keys() ^ values.keys()):
        fault = "lacks the key" if odd[0] in _TYPES else "has the unknown key"
        raise ArtifactError(f"{where} {fault} {odd[0]!r:.80}: {COPY_AGAIN}.")
    for key, types in _TYPES.items():
        wanted = " or ".join(_TYPE_NAMES[kind] for kind in types)
        _require(type(values[key]) in types, where, f"{key!r} must be {wanted}")


def _check_values(values: dict[str, Any], where: Path) -> None:
    budget = values["budget"]
    is_complete = budget.keys() == {"asked", "spent"} and isinstance(budget["spent"], dict)
    _require(is_complete, where, "'budget' must hold 'asked' and an object 'spent'")
    _require(isinstance(budget["asked"], str | None), where, "'asked' of 'budget' must be a string or null")
    for library, version in values["versions"].items():
        _require(isinstance(version, str), where, f"{library!r:.80} of 'versions' must be a string")


def _parse_entry(name: str, entry: Any, where: Path) -> FileEntry:
    check_file_name(name, where)
    is_complete = isinstance(entry, dict) and entry.keys() == {"sha256", "size"}
    _require(is_complete, where, f"{name!r} of 'files' must hold 'sha256' and 'size'")
    digest, size = entry["sha256"], entry["size"]
    is_digest = isinstance(digest, str) and _SHA256.fullmatch(digest) is not None
    _require(is_digest, where, f"'sha256' of {name!r} must be 64 hexadecimal digits")
    _require(type(size) is int and size >= 0, where, f"'size' of {name!r} must be a whole number from 0 up")
    return FileEntry(digest, size)


def _require(condition: bool, where: Path, reason: str) -> None:
    if not condition:
        raise ArtifactError(f"{where}: {reason}: {COPY_AGAIN}.")
