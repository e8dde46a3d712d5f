"""The folder of a Hugging Face model: which files it must have, and what is never opened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file

from firth.artifact.formats.huggingface_config import Config
from firth.artifact.formats.huggingface_tokens import wordpiece_json
from firth.artifact.formats.huggingface_weights import Tensors
from firth.artifact.manifest import parse_json
from firth.artifact.tensors import read_header, reading
from firth.errors import ArtifactError

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_LARGEST = {"tokenizer.json": 512 << 20, "vocab.txt": 64 << 20, _INDEX: 64 << 20}
_LARGEST_OTHER = 16 << 20  # bytes of config.json and the like
_POOLINGS = {
    "mean": "whole",
    "pooling_mode_mean_tokens": "whole",
    "cls": "first",
    "pooling_mode_cls_token": "first",
}
"""What sentence-transformers calls what our `embed` does."""


class Sentences(NamedTuple):
    """How a model of sentence-transformers makes one vector of a text."""

    pooling: str
    """As our `embed` calls it."""
    unit: bool
    """Whether vectors are divided by their length."""
    length: int | None
    """Tokens at which it cuts texts, special ones included."""

    @property
    def options(self) -> str:
        """What to say to firth embed."""
        return f"--pooling {self.pooling}" + (" --unit" if self.unit else "")


class Folder(NamedTuple):
    """What was read of a folder."""

    config: Config
    tensors: Tensors
    """They stay on disk until they are touched."""
    tokenizer: bytes
    """tokenizer.json."""
    settings: dict[str, Any]
    """tokenizer_config.json and special_tokens_map.json together."""
    weights: list[Path]
    sentences: Sentences | None
    """None unless sentence-transformers wrote the folder."""


def read_folder(folder: Path) -> Folder:
    """The files of a model; whatever is missing or damaged raises an `ArtifactError`."""
    with reading(folder):
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise ArtifactError(f"{folder} {what}: give the folder that save_pretrained wrote, with its config.json.")
    config = _read_json(folder / "config.json", required=True)
    weights = _find_weights(folder)
    settings = _read_json(folder / "special_tokens_map.json") | _read_json(folder / "tokenizer_config.json")
    tensors, tokenizer = _read_tensors(folder, weights), _read_tokenizer(folder, settings)
    return Folder(config, tensors, tokenizer, settings, weights, _read_sentences(folder))


def _read(path: Path) -> bytes:
    largest = _LARGEST.get(path.name, _LARGEST_OTHER)
    with reading(path):
        if not path.is_file():
            raise ArtifactError(f"{path} is missing: give the folder that save_pretrained wrote.")
        if path.stat().st_size > largest:
            raise ArtifactError(f"{path} is larger than {largest} bytes: give the folder that save_pretrained wrote.")
        return path.read_bytes()


def _read_json(path: Path, required: bool = False) -> Config:
    if not required and not path.exists():
        return {}
    found = parse_json(_read(path), path)
    if not isinstance(found, dict):
        raise ArtifactError(f"{path} holds no JSON object: give the folder that save_pretrained wrote.")
    return found


def _read_sentences(folder: Path) -> Sentences | None:
    """What the files of sentence-transformers say; nothing if they ask for what `embed` cannot do."""
    if not (folder / "modules.json").exists():
        return None
    modules = parse_json(_read(folder / "modules.json"), folder / "modules.json")
    found = [one for one in modules if isinstance(one, dict)] if isinstance(modules, list) else []
    kinds = {str(one.get("type")).rpartition(".")[2]: str(one.get("path")) for one in found}
    path = kinds.get("Pooling", "")
    if not kinds.keys() <= {"Transformer", "Pooling", "Normalize"} or not re.fullmatch(r"\d{1,9}_Pooling", path):
        return None
    told = _read_json(folder / path / "config.json")
    modes = [name for name, value in told.items() if value is True and name.startswith("pooling_mode_")]
    ours = _POOLINGS.get(modes[0] if len(modes) == 1 else str(told.get("pooling_mode")))
    length = _read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    return Sentences(ours, "Normalize" in kinds, length if type(length) is int else None) if ours else None


def _find_weights(folder: Path) -> list[Path]:
    """The files of weights, one or several shards."""
    if (folder / _WEIGHTS).exists():
        return [folder / _WEIGHTS]
    if (folder / _INDEX).exists():
        names = set(_weight_map(folder).values())
        if any(Path(name).name != name or not name.endswith(".safetensors") for name in names):
            raise ArtifactError(f"{folder / _INDEX} names files that are no shards beside it: save the model again.")
        return [folder / name for name in sorted(names)]
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise ArtifactError(
            f"{folder} has its weights in {pickles[0]}, a pickle, which could run any program and is not opened: "
            "load it with transformers where you trust it, and save_pretrained writes model.safetensors."
        )
    raise ArtifactError(f"{folder} has no {_WEIGHTS}: give the folder that save_pretrained wrote.")


def _weight_map(folder: Path) -> dict[str, str]:
    """Tensor -> the shard that it is in."""
    found = _read_json(folder / _INDEX, required=True).get("weight_map")
    if not isinstance(found, dict) or not found or not all(isinstance(name, str) for name in found.values()):
        raise ArtifactError(f"{folder / _INDEX} has no weight_map of tensors and files: save the model again.")
    return found


def _read_tensors(folder: Path, weights: list[Path]) -> Tensors:
    tensors: Tensors = {}
    sharded = weights[0].name != _WEIGHTS
    places = _weight_map(folder) if sharded else {}
    for path in weights:
        names = [tensor.name for tensor in read_header(path)]
        if sharded and set(names) != {name for name, file in places.items() if file == path.name}:
            raise ArtifactError(f"{path} does not hold the tensors that {_INDEX} promises: save the model again.")
        try:
            tensors |= load_file(path)
        except (SafetensorError, OSError) as error:
            raise ArtifactError(f"{path} cannot be read ({error}): copy it again from where it came.") from None
    return tensors


def _read_tokenizer(folder: Path, settings: dict[str, Any]) -> bytes:
    if not (folder / "tokenizer.json").exists() and (folder / "vocab.txt").exists():
        path = folder / "vocab.txt"
        try:
            lines = _read(path).decode().split("\n")
        except UnicodeDecodeError:
            raise ArtifactError(f"{path} is not UTF-8: copy it again from where it came.") from None
        return wordpiece_json([line.removesuffix("\r") for line in lines if line], settings)
    if not (folder / "tokenizer.json").exists():
        raise ArtifactError(
            f"{folder} has no tokenizer.json: AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes it."
        )
    return _read(folder / "tokenizer.json")
