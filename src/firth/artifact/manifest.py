"""manifest.json: what an artifact is, how it was made, and the size and digest of every file in it.

The bytes are canonical: a manifest has exactly one form on disk, so any changed byte is found, even a space.
"""

from __future__ import annotations

import json
import platform
import re
from collections import Counter
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from firth.errors import ArtifactError
from firth.files import digest_bytes

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_LIMIT = 64 << 20
COPY_AGAIN = "copy the folder again from where it came, or train again"

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
_SPOKEN = {int: "a whole number", str: "a string", dict: "an object", type(None): "null"}


@dataclass(frozen=True)
class FileEntry:
    """One file of an artifact: the SHA-256 of its bytes and how many there are."""

    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an artifact is and how it was made.

    `budget` is `{"asked": str or None, "spent": {...}}`; `corpus` holds the digest, the counts and how the
    text was read; `tokenizer` is the SHA-256 of tokenizer.json where there is one; `files` lists all but
    the manifest itself.

    >>> made = Manifest(
    ...     kind="counts", name="unigram", recipe={}, budget={"asked": None, "spent": {}}, corpus={},
    ...     tokenizer=None, seed=1, metrics={"bits_per_byte": 2.5}, versions={"firth": "0.1.0"}, files={})
    >>> parse_manifest(made.to_bytes(), Path("uni/manifest.json")) == made
    True
    """

    format: int = FORMAT
    kind: str
    name: str
    recipe: dict[str, Any]
    budget: dict[str, Any]
    corpus: dict[str, Any]
    tokenizer: str | None
    seed: int
    metrics: dict[str, Any]
    versions: dict[str, str]
    files: dict[str, FileEntry]

    def to_dict(self) -> dict[str, Any]:
        """The manifest as plain JSON values, without its own digest."""
        return {**vars(self), "files": {name: dict(vars(entry)) for name, entry in self.files.items()}}

    def to_bytes(self) -> bytes:
        """The canonical bytes of manifest.json, which hold the digest of all the rest."""
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
    """The manifest that `data`, the content of the file `where`, spells out, or an `ArtifactError`."""
    if len(data) > MANIFEST_LIMIT:
        raise ArtifactError(f"{where} is larger than {MANIFEST_LIMIT} bytes, so no manifest: {COPY_AGAIN}.")
    values = parse_json(data, where)
    if not isinstance(values, dict):
        raise ArtifactError(
            f"{where} is not the manifest of a Firth artifact (it holds no JSON object): "
            "give the folder that firth train -o wrote."
        )
    _check_format(values, where)
    _check_seal(values, data, where)
    del values["digest"]
    _check_keys(values, where)
    _check_values(values, where)
    entries = {name: _parse_entry(name, entry, where) for name, entry in values["files"].items()}
    tokenizer = entries.get("tokenizer.json")
    if values["tokenizer"] != (tokenizer.sha256 if tokenizer else None):
        raise ArtifactError(f"{where}: 'tokenizer' is not the digest of tokenizer.json: {COPY_AGAIN}.")
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
    place = "" if offset is None else f" at byte {start + offset}"
    raise ArtifactError(f"{where} is not valid JSON{place} ({reason}): {COPY_AGAIN}.")


def check_file_name(name: str, where: Path) -> None:
    """Raises `ArtifactError` unless `name` is a plain name, or a plain name in one sub-folder.

    >>> check_file_name("checkpoint/step.json", Path("model"))
    >>> check_file_name("../secret", Path("model"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    firth.errors.ArtifactError: model: '../secret' may not be a file of an artifact: use a plain name ...
    """
    if name == MANIFEST or not _FILE_NAME.fullmatch(name):
        raise ArtifactError(
            f"{where}: {name!r:.80} may not be a file of an artifact: "
            "use a plain name such as counts.safetensors or checkpoint/step.json."
        )


def installed_versions() -> dict[str, str]:
    """The versions of Python, Firth and the libraries that decide what a model is; none of them is imported.

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
    """An object from its pairs; of a repeated key two readers might take different ones, so it is refused."""
    values = dict(pairs)
    if len(values) < len(pairs):
        repeated, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {repeated!r:.80} is repeated")
    return values


def _check_format(values: dict[str, Any], where: Path) -> None:
    """Looks at the version before anything else, since a newer manifest may differ in all other ways."""
    found = values.get("format")
    if type(found) is not int or found < 1:
        raise ArtifactError(
            f"{where} is not the manifest of a Firth artifact ('format' is not a whole number from 1 up): "
            "give the folder that firth train -o wrote."
        )
    if found > FORMAT:
        raise ArtifactError(
            f"{where} was made by a newer Firth (format {found}, this one reads up to {FORMAT}): "
            "upgrade with pip install -U firth."
        )


def _check_seal(values: dict[str, Any], data: bytes, where: Path) -> None:
    """Raises unless `data` is the canonical form of `values` and carries the right digest."""
    try:
        digest = digest_bytes(_canonical({key: value for key, value in values.items() if key != "digest"}))
        canonical = _canonical(values)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where} holds what no manifest may hold ({error}): {COPY_AGAIN}.") from error
    if values.get("digest") != digest:
        raise ArtifactError(
            f"{where} was changed after it was saved (its content has the SHA-256 {digest}, which is not "
            f"the 'digest' it states): {COPY_AGAIN}."
        )
    if data != canonical:
        pairs = enumerate(zip(data, canonical, strict=False))
        offset = next((at for at, (has, wants) in pairs if has != wants), min(len(data), len(canonical)))
        raise ArtifactError(f"{where} was changed at byte {offset} after it was saved: {COPY_AGAIN}.")


def _check_keys(values: dict[str, Any], where: Path) -> None:
    if odd := sorted(_TYPES.keys() ^ values.keys()):
        fault = "lacks the key" if odd[0] in _TYPES else "has the unknown key"
        raise ArtifactError(f"{where} {fault} {odd[0]!r:.80}: {COPY_AGAIN}.")
    for key, types in _TYPES.items():
        if type(values[key]) not in types:
            wanted = " or ".join(_SPOKEN[kind] for kind in types)
            raise ArtifactError(f"{where}: {key!r} must be {wanted}: {COPY_AGAIN}.")


def _check_values(values: dict[str, Any], where: Path) -> None:
    budget = values["budget"]
    if budget.keys() != {"asked", "spent"} or not isinstance(budget["spent"], dict):
        raise ArtifactError(f"{where}: 'budget' must hold 'asked' and an object 'spent': {COPY_AGAIN}.")
    if not isinstance(budget["asked"], str | None):
        raise ArtifactError(f"{where}: 'asked' of 'budget' must be a string or null: {COPY_AGAIN}.")
    for library, version in values["versions"].items():
        if not isinstance(version, str):
            raise ArtifactError(f"{where}: {library!r:.80} of 'versions' must be a string: {COPY_AGAIN}.")


def _parse_entry(name: str, entry: Any, where: Path) -> FileEntry:
    check_file_name(name, where)
    if not isinstance(entry, dict) or entry.keys() != {"sha256", "size"}:
        raise ArtifactError(f"{where}: {name!r} of 'files' must hold 'sha256' and 'size': {COPY_AGAIN}.")
    if not isinstance(entry["sha256"], str) or not _SHA256.fullmatch(entry["sha256"]):
        raise ArtifactError(f"{where}: 'sha256' of {name!r} must be 64 hexadecimal digits: {COPY_AGAIN}.")
    if type(entry["size"]) is not int or entry["size"] < 0:
        raise ArtifactError(f"{where}: 'size' of {name!r} must be a whole number from 0 up: {COPY_AGAIN}.")
    return FileEntry(entry["sha256"], entry["size"])
