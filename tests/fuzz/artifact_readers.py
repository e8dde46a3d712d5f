"""Fuzz targets: artifacts with valid digests, checkpoints, and model files of other programs."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from firth.artifact.folder import artifact_info
from firth.artifact.formats import FOLDERS, export_model, import_model
from firth.artifact.models import load
from firth.artifact.tensors import map_tensors, write_tensors
from firth.errors import reading
from firth.fit.checkpoints import CheckpointFolder
from firth.text.corpus import read_corpus
from firth.tokens.loading import load_backend
from firth.tokens.train import train_tokenizer
from tests.fuzz.fuzzing import FuzzReader
from tests.fuzz.mutators import mutate_bytes, mutate_path
from tests.fuzz.small_artifacts import KINDS, QUERIES, TEXT, net, use
from tests.samples import KINDS as TOKENIZERS
from tests.samples import small_recipe

WEIGHTS = "model.safetensors"
IDENTITY = {"recipe": {"type": "word2vec"}, "seed": 1}
JSON_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, 1e308, -1e308, "", "x", "x" * 500, "\0", "\x1b[31m"),
    *([], {}, [[]], [None], {"type": []}, {"a": {"a": {}}}, ["a"] * 50, "true", "auto", "none"),
)


def artifact_samples(kinds: Sequence[str], folder: Path) -> list[Path]:
    for kind in kinds:
        KINDS[kind](folder / kind)
    return [folder / kind for kind in kinds]


def reseal(folder: Path, values: dict[str, Any] | None = None) -> None:
    """Make all sizes and digests of an artifact right again."""
    if values is None:
        values = json.loads((folder / "manifest.json").read_bytes())
    values.pop("digest", None)
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "manifest.json"}
    values["files"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in files.items()
    }
    values["tokenizer"] = values["files"]["tokenizer.json"]["sha256"]
    digest = hashlib.sha256(canonical(values)).hexdigest()
    (folder / "manifest.json").write_bytes(canonical({**values, "digest": digest}))


def canonical(values: Any) -> bytes:
    return json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def mutate_values(folder: Path, rng: random.Random) -> None:
    """Change some numbers of one tensor."""
    arrays = {name: np.array(array) for name, array in map_tensors(folder / WEIGHTS).items()}
    name = rng.choice(sorted(name for name, array in arrays.items() if array.size))
    change_numbers(arrays[name].reshape(-1), rng)
    write_tensors(folder / WEIGHTS, arrays)
    reseal(folder)


def change_numbers(flat: np.ndarray[Any, Any], rng: random.Random) -> None:
    """Replace one number or many by others, or exchange parts."""
    way = rng.random()
    if way < 0.1:
        begin, other = rng.randrange(flat.size), rng.randrange(flat.size)
        width = rng.randint(1, max(1, flat.size - max(begin, other)))
        flat[begin : begin + width] = flat[other : other + width].copy()
        return
    count = 1 if way < 0.7 else rng.randint(1, min(flat.size, 50))
    for position in rng.sample(range(flat.size), count):
        flat[position : position + 1].view(np.uint8)[:] = list(new_number(flat, position, rng).tobytes())


def new_number(flat: np.ndarray[Any, Any], position: int, rng: random.Random) -> np.ndarray[Any, Any]:
    """Another value for an item of an array."""
    kind = flat.dtype
    if rng.random() < 0.2 or kind.kind == "b":
        return np.frombuffer(rng.randbytes(kind.itemsize), dtype=kind)
    if kind.kind == "f":
        old = float(flat[position])
        found = rng.choice([np.nan, np.inf, -np.inf, 0.0, 1e30, -1e30, 1e-30, -old, old * 1000, old + 1, 700.0, -700.0])
        return np.array([found]).astype(kind)
    limits, old = np.iinfo(kind), int(flat[position])
    near = [
        old + 1,
        old - 1,
        2 * old,
        -old,
        flat.size,
        flat.size - 1,
        flat.size + 1,
        int(flat[rng.randrange(flat.size)]),
    ]
    wanted = rng.choice([0, 1, -1, limits.min, limits.max, limits.max - 1, limits.max // 2, 1000, *near])
    return np.array([max(limits.min, min(limits.max, wanted))], dtype=kind)


def mutate_json(value: Any, rng: random.Random) -> Any:
    """A JSON value with one part of it replaced, removed or repeated."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        if rng.random() < 0.05:
            return {name: other for name, other in value.items() if name != key}
        if rng.random() < 0.05:
            return {**value, f"{key}x": value[key]}
        return {**value, key: mutate_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        index = rng.randrange(len(value))
        changed = [mutate_json(value[index], rng)] * (1 if rng.random() < 0.9 else 3)
        return [*value[:index], *changed, *value[index + 1 :]]
    if type(value) is int and rng.random() < 0.5:
        return value + rng.choice([-1, 1, 10, -value, 2**31, 2**40])
    return rng.choice(JSON_VALUES)


def mutate_json_file(path: Path, rng: random.Random) -> None:
    """Change the values of a JSON file, or its bytes."""
    if rng.random() < 0.3:
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))
    else:
        path.write_bytes(canonical(mutate_json(json.loads(path.read_bytes()), rng)))


def mutate_artifact(folder: Path, rng: random.Random) -> None:
    """Change the manifest, the tokenizer or the bytes of the tensors; the digests are right again."""
    way = rng.random()
    if way < 0.5:
        values = json.loads((folder / "manifest.json").read_bytes())
        key = rng.choice(["recipe", "recipe", "recipe", "corpus", *sorted(values.keys() - {"files", "digest"})])
        reseal(folder, {**values, key: mutate_json(values[key], rng)})
    elif way < 0.75:
        mutate_json_file(folder / "tokenizer.json", rng)
        reseal(folder)
    else:
        mutate_path(folder / WEIGHTS, rng)
        reseal(folder)


def mutate_folder(folder: Path, rng: random.Random) -> None:
    """Change one file of a folder of another program."""
    path = rng.choice(sorted(file for file in folder.rglob("*") if file.is_file()))
    (mutate_json_file if path.suffix == ".json" else mutate_path)(path, rng)


def read_artifact(path: Path) -> None:
    artifact_info(path)
    use(load(path))


def checkpoint_samples(folder: Path) -> list[Path]:
    arrays = {"table0": np.arange(6, dtype=np.float32), "table1": np.zeros((2, 3), dtype=np.float32)}
    CheckpointFolder(folder / "run", IDENTITY, False).save(arrays, {"done": 3, "losses": [1.5], "facts": None})
    return [folder / "run"]


def mutate_checkpoint(folder: Path, rng: random.Random) -> None:
    manifest = folder / "checkpoint" / "manifest.json"
    if rng.random() < 0.4:
        mutate_path(folder / "checkpoint", rng)
        return
    values = json.loads(manifest.read_bytes())
    del values["digest"]
    values = mutate_json(values, rng)
    if isinstance(values, dict):
        text = (json.dumps(values, indent=1, sort_keys=True) + "\n").encode("utf-8", "replace")
        values["digest"] = hashlib.sha256(text).hexdigest()
    manifest.write_bytes(json.dumps(values).encode("utf-8", "replace"))


def read_checkpoint(path: Path) -> None:
    found = CheckpointFolder(path, IDENTITY, True).load()
    assert found is None or sum(array.size for array in found[0].values()) >= 0


EXPORTS: dict[str, tuple[str, ...]] = {
    "arpa": ("mkn3 a.arpa", "katz3 b.arpa.gz"),
    "brown": ("brown paths",),
    "fasttext": ("fasttext a.bin", "fasttext a.vec", "classifier-softmax c.bin", "classifier-hierarchical d.bin.gz"),
    "glove": ("skipgram a.txt", "glove b.txt.gz"),
    "word2vec": ("skipgram a.txt", "skipgram a.bin", "lsa b.bin.gz"),
}


def exported_samples(format: str, folder: Path) -> list[Path]:
    paths = []
    for kind, name in (one.split() for one in EXPORTS[format]):
        paths.append(folder / name)
        with TemporaryDirectory() as parent:
            KINDS[kind](Path(parent, kind))
            export_model(load(Path(parent, kind)), format, paths[-1])
    return paths


def huggingface_samples(folder: Path) -> list[Path]:
    decoder = [f"decoder.{one}" for one in ("width=8", "heads=2", "layers=1", "ffn_width=8")]
    samples = {"bert": [], "gpt2": [], "transformer": decoder, "bart": decoder, "mass": decoder, "t5-1.1": decoder}
    for name, settings in samples.items():
        export_model(net(name, settings), "huggingface", folder / name)
    return [folder / name for name in samples]


def sentence_samples(folder: Path) -> list[Path]:
    export_model(net("bert", []), "sentence-transformers", folder / "bert", unit=True)
    with TemporaryDirectory() as parent:
        KINDS["skipgram"](Path(parent, "skipgram"))
        export_model(load(Path(parent, "skipgram")), "sentence-transformers", folder / "static")
    return [folder / "bert", folder / "static"]


def read_foreign(format: str, path: Path) -> None:
    """Import a file and use the model."""
    with TemporaryDirectory() as parent:
        import_model(format, path, Path(parent, "out"))
        use(load(Path(parent, "out")))


def tokenizer_samples(folder: Path) -> list[Path]:
    paths = []
    for kind in TOKENIZERS:
        paths.append(folder / f"{kind}.json")
        paths[-1].write_bytes(train_tokenizer(small_recipe(kind), read_corpus(TEXT)).data)
    return paths


def read_tokenizer(path: Path) -> None:
    with reading(path):
        backend = load_backend(path.read_bytes())
        for one in backend.encode_batch(QUERIES):
            backend.decode(one.ids)


FEW = ("mkn3", "fasttext", "pv-dm", "bert", "task-tag")
FORMATS: dict[str, Callable[[Path], Sequence[Path]]] = {
    **{format: partial(exported_samples, format) for format in EXPORTS},
    "huggingface": huggingface_samples,
    "sentence-transformers": sentence_samples,
}
READERS: Sequence[FuzzReader] = (
    *(
        FuzzReader(f"values-{kind}", partial(artifact_samples, [kind]), read_artifact, mutate_values, short=0)
        for kind in KINDS  # short runs of these are in test_values.py
    ),
    FuzzReader("artifact", partial(artifact_samples, FEW), read_artifact, mutate_artifact, short=60),
    FuzzReader("checkpoint", checkpoint_samples, read_checkpoint, mutate_checkpoint),
    FuzzReader("tokenizer-json", tokenizer_samples, read_tokenizer, mutate_json_file),
    *(
        FuzzReader(
            f"import-{format}",
            samples,
            partial(read_foreign, format),
            mutate_folder if format in FOLDERS else mutate_path,
            short=30 if format in FOLDERS else 60,
        )
        for format, samples in FORMATS.items()
    ),
)
