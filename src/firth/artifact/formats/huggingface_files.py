"""The files of Hugging Face folders, read within limits. Pickles are never opened."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from firth.artifact.formats.huggingface_family import Config, Tensors
from firth.artifact.formats.huggingface_tokenizer import wordpiece_json
from firth.artifact.manifest import parse_json
from firth.artifact.tensors import read_errors, read_header
from firth.errors import ArtifactError
from firth.files import digest_file

WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_MAX_SIZE = {"tokenizer.json": 512 << 20, "vocab.txt": 64 << 20, _INDEX: 64 << 20}
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}\.safetensors")
_MAX_OTHER_SIZE = 16 << 20  # bytes of config.json and the like


def combined_digest(files: Iterable[Path]) -> str:
    """The SHA-256 of a file, or of the digests of several."""
    digests = [digest_file(file) for file in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def read_small(path: Path) -> bytes:
    """The bytes of a file that is no weights, within limits."""
    limit = _MAX_SIZE.get(path.name, _MAX_OTHER_SIZE)
    with read_errors(path):
        if not path.is_file():
            raise ArtifactError(f"{path} is missing: give the folder that save_pretrained wrote.")
        if path.stat().st_size > limit:
            raise ArtifactError(f"{path} is larger than {limit} bytes: give the folder that save_pretrained wrote.")
        return path.read_bytes()


def read_json(path: Path, required: bool = False) -> Config:
    """The object of a JSON file; empty if it is missing and not required."""
    if not required and not path.exists():
        return {}
    found = parse_json(read_small(path), path)
    if not isinstance(found, dict):
        raise ArtifactError(f"{path} holds no JSON object: give the folder that save_pretrained wrote.")
    return found


def read_config(folder: Path) -> Config:
    """config.json with the ids of special tokens that new versions of transformers put in another file."""
    generation = read_json(folder / "generation_config.json")
    ids = {key: value for key, value in generation.items() if key.endswith("_token_id")}
    return ids | read_json(folder / "config.json", required=True)


def find_weights(folder: Path) -> dict[Path, set[str] | None]:
    """The safetensors files of the weights; if there are several, with the names of the tensors in each."""
    if (folder / WEIGHTS).exists():
        return {folder / WEIGHTS: None}
    index = folder / _INDEX
    if index.exists():
        found = read_json(index, required=True).get("weight_map")
        if not isinstance(found, dict) or not found or not all(isinstance(name, str) for name in found.values()):
            raise ArtifactError(f"{index} has no weight_map of tensors and files: save the model again.")
        names = sorted(set(found.values()))
        if not all(_SHARD.fullmatch(name) for name in names):
            raise ArtifactError(f"{index} names files that are no shards beside it: save the model again.")
        return {folder / name: {tensor for tensor, file in found.items() if file == name} for name in names}
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise ArtifactError(
            f"{folder} has its weights in {pickles[0]}, a pickle, which could run any code and is not opened: "
            "load it with transformers if you trust it, and save_pretrained writes model.safetensors."
        )
    raise ArtifactError(f"{folder} has no {WEIGHTS}: give the folder that save_pretrained wrote.")


def read_tensors(files: Mapping[Path, set[str] | None]) -> Tensors:
    """The tensors of all files, memory-mapped."""
    tensors: Tensors = {}
    for path, wanted in files.items():
        names = {tensor.name for tensor in read_header(path)}
        if wanted is not None and names != wanted:
            raise ArtifactError(f"{path} does not hold the tensors that {_INDEX} lists: save the model again.")
        try:
            tensors |= load_file(path)
        except (SafetensorError, OSError) as error:
            raise ArtifactError(f"{path} cannot be read ({error}): copy it again.") from None
    return tensors


def read_tokenizer(folder: Path, settings: Config) -> bytes:
    """tokenizer.json, or the same made of a vocabulary of WordPiece."""
    path = folder / "vocab.txt"
    if (folder / "tokenizer.json").exists():
        return read_small(folder / "tokenizer.json")
    if not path.exists() and (pieces := sorted(folder.glob("*.spm"))):
        raise ArtifactError(
            f"{folder} has its tokenizer in {pieces[0].name}, which Firth cannot read: write it as tokenizer.json with "
            "the tokenizers library."
        )
    if not path.exists():
        raise ArtifactError(f"{folder} has no tokenizer.json: save it with AutoTokenizer and save_pretrained.")
    try:
        lines = read_small(path).decode().split("\n")
    except UnicodeDecodeError:
        raise ArtifactError(f"{path} is not UTF-8: copy it again.") from None
    return wordpiece_json([line.removesuffix("\r") for line in lines if line], settings)
