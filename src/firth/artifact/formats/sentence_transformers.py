"""Folders of sentence-transformers: a Transformer with its pooling, or static word vectors.

Static vectors are a `StaticEmbedding`: the mean over all tokens, unknown ones included. Their row is zero, so that the
mean has the direction of that over known words, and a module that normalises follows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.artifact.formats.huggingface import export_huggingface, import_huggingface
from firth.artifact.formats.huggingface_files import combined_digest, find_weights, read_json, read_small, read_tensors
from firth.artifact.formats.huggingface_registry import FIRST
from firth.artifact.formats.huggingface_tokenizer import import_tokenizer
from firth.artifact.manifest import parse_json
from firth.artifact.models import save_imported
from firth.artifact.tensors import write_tensors
from firth.errors import AbilityError, ArtifactError, FirthError
from firth.files import new_folder
from firth.nets.model import NetModel
from firth.nets.scoring import max_length
from firth.progress import note
from firth.recipes.values import recipe_from_json, recipe_to_json
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import BOS, FIRST_WORD
from firth.vectors.model import VectorModel
from firth.vectors.recipe import ImportedRecipe

Report = dict[str, Any]
_MODES = {"whole": "mean_tokens", "mean": "mean_tokens", "first": "cls_token", "max": "max_tokens"}
"""Poolings of `firth embed` -> those of the library, in which all have the special tokens."""
_ALL_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
_TYPES = "sentence_transformers.models."
_STATIC, _WEIGHTS, _RECIPE = "0_StaticEmbedding", "model.safetensors", "firth_tokenizer"


def export_sentence_transformers(model: Any, path: Path, pooling: str | None = None, unit: bool = False) -> Report:
    """Write a folder that `SentenceTransformer` loads, completely or not at all.

    `pooling` is whole (default), first or max, and `unit` normalises vectors, as in `firth embed`.
    """
    if isinstance(model, NetModel):
        return _export_network(model, path, pooling or "whole", unit)
    if not isinstance(model, VectorModel):
        raise AbilityError("sentence-transformers hold encoders of texts: export one such as bert or skipgram.")
    table = model.text_table()
    if table is None:
        raise AbilityError(
            "the vector of a text is no mean of vectors of its words in this model: export one such as skipgram or sif."
        )
    if pooling is not None:
        raise AbilityError("word vectors are pooled by their mean: leave --pooling out.")
    return _export_static(model, table, path)


def _export_network(model: NetModel, path: Path, pooling: str, unit: bool) -> Report:
    if model.start_token != BOS or model.recipe.decoder is not None or model.recipe.encoder.kind != "transformer":
        raise AbilityError(
            "a Transformer of sentence-transformers reads [CLS] a [SEP] in both directions: export one such as bert."
        )
    if pooling not in _MODES:
        raise AbilityError(f"the library has no pooling {pooling!r:.80}: choose whole, first or max.")
    if pooling == "mean":
        note("the mean of sentence-transformers has the special tokens, as --pooling whole")
    with new_folder(path) as draft:
        report = export_huggingface(model, draft / "network")
        for file in (draft / "network").iterdir():
            file.rename(draft / file.name)
        (draft / "network").rmdir()
        modes = {f"pooling_mode_{name}": name == _MODES[pooling] for name in _ALL_MODES}
        (draft / "1_Pooling").mkdir()
        _write(draft / "1_Pooling" / "config.json", {"word_embedding_dimension": model.recipe.width} | modes)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] if unit else [])]
        _write_modules(draft, modules)
        length = max_length(model.recipe) or model.recipe.sequence.length
        _write(draft / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    facts = {"pooling": "first" if pooling == "first" else "max" if pooling == "max" else "whole", "unit": unit}
    return report | {"sentences": facts | {"length": length}}


def _export_static(model: VectorModel, table: npt.NDArray[np.float32], path: Path) -> Report:
    note("vectors are normalised, for the mean of the library counts unknown words: compare with firth embed --unit")
    with new_folder(path) as draft:
        folder = draft / _STATIC
        folder.mkdir()
        write_tensors(folder / _WEIGHTS, {"embedding.weight": table}, metadata={"format": "pt"})
        content = json.loads(model.tokenizer.backend.to_str()) | {"post_processor": None}
        _write(folder / "tokenizer.json", content)
        _write(folder / "config.json", {_RECIPE: recipe_to_json(model.tokenizer.recipe)})
        _write_modules(draft, [(_STATIC, "StaticEmbedding"), ("1_Normalize", "Normalize")])
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return {"vocabulary": len(table), "dimension": table.shape[1], "bytes": size}


def _write_modules(folder: Path, modules: Sequence[tuple[str, str]]) -> None:
    """Write modules.json; `modules` are the folders and the classes of all modules."""
    entries = [
        {"idx": number, "name": str(number), "path": path, "type": _TYPES + kind}
        for number, (path, kind) in enumerate(modules)
    ]
    for path, kind in modules:
        if kind == "Normalize":  # which has no files, but a folder
            (folder / path).mkdir()
    _write(folder / "modules.json", entries)
    _write(folder / "config_sentence_transformers.json", {"prompts": {}, "default_prompt_name": None})


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def import_sentence_transformers(path: Path, out: Path) -> Report:
    """Make an artifact of a folder with a modules.json."""
    modules = parse_json(read_small(path / "modules.json"), path / "modules.json")
    found = [one for one in modules if isinstance(one, Mapping)] if isinstance(modules, list) else []
    kinds = [str(one.get("type")).rpartition(".")[2] for one in found]
    first = str(found[0].get("path", "")) if found else ""
    if kinds[:1] == ["Transformer"] and not first:
        return import_huggingface(path, out)
    if kinds[:1] == ["StaticEmbedding"] and set(kinds[1:]) <= {"Normalize"} and Path(first).name == first:
        return _import_static(path, path / first, out)
    raise ArtifactError(
        f"{path} has the modules {', '.join(kinds)[:200] or 'none'}: a Transformer in the folder itself, or a "
        "StaticEmbedding, can be imported."
    )


def _import_static(path: Path, folder: Path, out: Path) -> Report:
    started = time.monotonic()
    files = find_weights(folder)
    tensors = read_tensors(files)
    table = tensors.get("embedding.weight", tensors.get("embeddings"))
    if table is None or table.dim() != 2:
        raise ArtifactError(f"{folder} has no table embedding.weight: save the model again.")
    tokenizer, order = import_tokenizer(
        read_small(folder / "tokenizer.json"), {}, FIRST, len(table), _stored_recipe(folder)
    )
    rows = np.asarray(table.float().numpy(), dtype=np.float32)
    vectors = np.where(np.array(order)[:, None] >= 0, rows[order], 0.0).astype(np.float32)
    vectors[:FIRST_WORD] = 0.0
    recipe = ImportedRecipe(tokenizer=tokenizer.recipe, source="sentence-transformers")
    report = {"vocabulary": len(tokenizer) - FIRST_WORD, "dimension": vectors.shape[1]}
    model = VectorModel(recipe, tokenizer, "lines", vectors)
    save_imported(out, model, path, started, report, combined_digest(files))
    return report


def _stored_recipe(folder: Path) -> TokenizerRecipe | None:
    """The recipe of a tokenizer that Firth has written."""
    try:
        found = recipe_from_json(read_json(folder / "config.json")[_RECIPE])
    except (FirthError, KeyError, TypeError, ValueError):
        return None
    return found if isinstance(found, TokenizerRecipe) else None
