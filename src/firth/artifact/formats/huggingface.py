"""Transformers, fine-tuned or not, to Hugging Face folders and back, by the families of `huggingface_registry.py`.

Pickles are never opened.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from firth.artifact.card import huggingface_card
from firth.artifact.formats.huggingface_config import stored_recipe
from firth.artifact.formats.huggingface_family import Config, SecondModel, Tensors
from firth.artifact.formats.huggingface_files import (
    WEIGHTS,
    combined_digest,
    find_weights,
    read_config,
    read_json,
    read_small,
    read_tensors,
    read_tokenizer,
)
from firth.artifact.formats.huggingface_registry import (
    MODEL_TYPES,
    model_type_for,
    model_type_of,
    nearest_family,
    split_second,
)
from firth.artifact.formats.huggingface_tasks import (
    HfTaskHead,
    parts_left_out,
    split_head,
    task_recipe_of,
    task_to_huggingface,
)
from firth.artifact.formats.huggingface_tokenizer import export_tokenizer, import_tokenizer
from firth.artifact.formats.huggingface_weights import (
    ImportedWeights,
    drop_absent_tokens,
    from_huggingface,
    model_tensors,
    select_tokens,
    to_huggingface,
    truncate_positions,
)
from firth.artifact.formats.network_alone import network_alone
from firth.artifact.manifest import parse_json
from firth.artifact.models import save_imported
from firth.artifact.restore import restore
from firth.artifact.tensors import read_errors, write_tensors
from firth.errors import AbilityError, ArtifactError, RecipeError
from firth.files import new_folder
from firth.lm.language_model import UnknownWordModel
from firth.nets.model import NetModel
from firth.nets.recipe import NetRecipe
from firth.nets.special_tokens import task_special_tokens
from firth.progress import note
from firth.tasks.recipe import TaskRecipe
from firth.tasks.task import TaskModel
from firth.text.corpus import LAYOUTS
from firth.text.layout import Layout
from firth.tokens.tokenizer import MASK, Tokenizer

__all__ = ["export_huggingface", "from_huggingface", "import_huggingface", "read_model", "to_huggingface"]

Report = dict[str, Any]
_LAYOUT = "firth_layout"  # key of config.json, if sentences are not lines; other programs ignore it
_POOLINGS = {"mean": "whole", "pooling_mode_mean_tokens": "whole", "cls": "first", "pooling_mode_cls_token": "first"}
"""Poolings of sentence-transformers -> those of `firth embed`."""
_PIPELINES = {
    "ForMaskedLM": "fill-mask",
    "ForPreTraining": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
}
"""Endings of classes -> tasks in the words of Hugging Face; families may have others."""


class SentencePooling(NamedTuple):
    """Pooling settings of a sentence-transformers model."""

    pooling: str  # name in `firth embed`
    unit: bool  # whether vectors are normalised to unit length
    length: int | None  # maximum number of tokens of a text, special tokens included


def export_huggingface(model: Any, path: Path) -> Report:
    """Write a Transformer, fine-tuned or not, as a folder that `transformers` loads, completely or not at all."""
    if isinstance(model, TaskModel):
        left_out, plain = parts_left_out(model.recipe), model.without_linear()
        config, tensors = task_to_huggingface(plain.recipe, model_tensors(plain))
        tokenizer, kept = model.tokenizer, range(len(model.tokenizer))
        parts = (model.recipe.network, config, tensors, tokenizer, kept)
        if left_out:
            settings = " ".join(f"--set {setting}" for setting in left_out.values())
            note(
                f"Hugging Face has no place for {' and '.join(left_out)}: left out, so that the folder predicts worse; "
                f"for one that predicts the same, tune with {settings}"
            )
        report = _write_files(path, *parts, for_task=True, card=getattr(model, "card", ""))
        return report | ({"left_out": list(left_out)} if left_out else {})
    if not isinstance(model, NetModel):
        raise AbilityError("Hugging Face folders hold neural models: export one such as bert, roberta or gpt2.")
    model = network_alone(model, "Hugging Face")
    card = getattr(model, "card", "")
    return write_folder(path, model.recipe, model_tensors(model), model.tokenizer, card, model.layout)


def write_folder(
    path: Path,
    recipe: NetRecipe,
    arrays: Tensors,
    tokenizer: Tokenizer,
    card: str = "",
    layout: Layout = "lines",
) -> Report:
    """Write the folder of a model, given its parameters, those of its objectives, `heads.*`, and its card.

    A second network that is a model of its own is written to a folder in it. `layout` is how text is split into
    sentences.
    """
    recipe, second = split_second(recipe, arrays)
    model_type = model_type_for(recipe)
    recipe, state, kept = drop_absent_tokens(recipe, arrays)
    config, tensors = to_huggingface(recipe, state, state)
    config |= model_type.token_config(tokenizer, kept) | ({} if layout == "lines" else {_LAYOUT: layout})
    for remark in model_type.remarks(recipe):
        note(remark)
    left_out = _unplaced_heads(recipe, arrays)
    if left_out:
        note(f"a {model_type.name} model has no place for the layers of {' and '.join(left_out)}: they are left out")
    report = _write_files(path, recipe, config, tensors, tokenizer, kept, card=card, second=second)
    return report | ({"left_out": left_out} if left_out else {})


def _unplaced_heads(recipe: NetRecipe, arrays: Tensors) -> list[str]:
    """The objectives of a recipe that have layers for which their model has no place."""
    placed = nearest_family(recipe).head_objective(recipe)
    return [name for name in recipe.names if name != placed and any(one.startswith(f"heads.{name}.") for one in arrays)]


def _write_files(
    path: Path,
    recipe: NetRecipe,
    config: Config,
    tensors: Tensors,
    tokenizer: Tokenizer,
    kept: Sequence[int],
    *,
    for_task: bool = False,
    card: str = "",
    second: SecondModel | None = None,
) -> Report:
    model_type = model_type_for(recipe)
    with new_folder(path) as draft:
        files = model_type.further_files(recipe, config)
        _fill_folder(
            draft, config, tensors, export_tokenizer(tokenizer, model_type, recipe, kept, for_task) | files, card
        )
        if second is not None:
            (draft / second.folder).mkdir()
            files = export_tokenizer(tokenizer, model_type_for(second.recipe), second.recipe, kept)
            parts = to_huggingface(second.recipe, second.tensors, second.tensors)
            _fill_folder(draft / second.folder, *parts, files, card)
    return {
        "type": model_type.name,
        **({"architecture": config["architectures"][0]} if for_task else {}),
        **({second.folder: str(path / second.folder)} if second is not None else {}),
        "vocabulary": len(kept),
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "bytes": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
    }


def _fill_folder(folder: Path, config: Config, tensors: Tensors, files: Config, card: str) -> None:
    """Write the files of a model into an empty folder."""
    for name, content in {"config.json": config, **files}.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    architecture = config["architectures"][0]
    readme = huggingface_card(card, architecture, _pipeline(config))
    (folder / "README.md").write_text(readme, encoding="utf-8")
    arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    write_tensors(folder / WEIGHTS, arrays, metadata={"format": "pt"})


def _pipeline(config: Config) -> str:
    """The task of a class in the words of Hugging Face."""
    (architecture,) = config["architectures"]
    endings = (name for ending, name in _PIPELINES.items() if architecture.endswith(ending))
    return MODEL_TYPES[config["model_type"]].pipelines.get(architecture) or next(endings, "text-generation")


@dataclass
class ImportedModel:
    """The parts of an artifact that were read from a folder; the network is not built."""

    recipe: NetRecipe | TaskRecipe
    tokenizer: Tokenizer
    tensors: dict[str, Any]
    report: Report
    digest: str  # SHA-256 of the weights
    layout: Layout = "lines"

    def arrays(self) -> dict[str, Any]:
        return self.tensors


def import_huggingface(path: Path, out: Path, task: str | None = None) -> Report:
    """Make an artifact of a folder that `save_pretrained` wrote.

    `task` is the task of a fine-tuned model whose class serves several: classify or pair.
    """
    started = time.monotonic()
    found = read_huggingface(path, task)
    save_imported(out, found, path, started, found.report, found.digest, found.layout)
    return found.report


def read_model(path: Path, task: str | None = None) -> Any:
    """The model of a folder."""
    found = read_huggingface(path, task)
    return restore(found.recipe, found.arrays(), found.tokenizer, found.layout)


def read_huggingface(path: Path, task: str | None = None) -> ImportedModel:
    """The content of a folder that `save_pretrained` wrote, with our token ids and tensor names.

    A model is joined with a second one in a folder in its own, if its family has such.
    """
    found = _read_one(path, task)
    config = read_json(path / "config.json", required=True)
    family, first = model_type_of(config), found.recipe
    folder = path / family.second_folder
    if not isinstance(first, NetRecipe) or not family.can_join(first) or not folder.is_dir():
        return found
    other = _read_one(folder)
    if not isinstance(other.recipe, NetRecipe) or other.tokenizer.vocabulary != found.tokenizer.vocabulary:
        raise ArtifactError(f"{folder} has other tokens than {path}: import both folders separately.")
    recipe, arrays = family.join(first, found.arrays(), other.recipe, other.arrays(), stored_recipe(config))
    parameters = sum(array.size for name, array in arrays.items() if name not in ("counts", "spelling"))
    digest = hashlib.sha256(f"{found.digest}{other.digest}".encode()).hexdigest()
    report = found.report | {"parameters": parameters}
    return ImportedModel(recipe, found.tokenizer, arrays, report, digest, found.layout)


def _read_one(path: Path, task: str | None = None) -> ImportedModel:
    with read_errors(path):
        if not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise ArtifactError(f"{path} {what}: give the folder that save_pretrained wrote, with its config.json.")
    config, files = read_config(path), find_weights(path)
    settings = read_json(path / "special_tokens_map.json") | read_json(path / "tokenizer_config.json")
    tensors, tokenizer_data, sentences = read_tensors(files), read_tokenizer(path, settings), _read_sentences(path)
    head, tensors = split_head(config, tensors, task)
    weights = from_huggingface(config, tensors)
    if sentences is not None and sentences.length is not None:
        weights = truncate_positions(weights, sentences.length)
    model_type, stored = model_type_of(config), stored_recipe(config)
    tokenizer, order = import_tokenizer(
        tokenizer_data,
        settings,
        model_type,
        len(weights.state["embedding.tokens.weight"]),
        stored.tokenizer if stored else None,
        task_special_tokens(weights.recipe),
        config,
        is_task=head is not None,
    )
    network, state = select_tokens(_with_tokenizer(weights.recipe, tokenizer), weights.state, order)
    recipe = network if head is None else task_recipe_of(config, head, network)
    arrays: dict[str, Any] = {} if head is None else head.arrays()
    heads = weights.heads if head is None else {}
    arrays |= {name: tensor.numpy() for name, tensor in (state | heads).items()}
    parameters = sum(array.size for array in arrays.values())
    report = {"type": model_type.name, "vocabulary": len(tokenizer), "parameters": parameters}
    report |= _remarks(head, weights, sentences)
    arrays["counts"] = np.zeros(len(tokenizer), dtype=np.int64)  # unknown
    arrays["spelling"] = UnknownWordModel.train(tokenizer.vocabulary[MASK + 1 :]).counts
    layout: Layout = config[_LAYOUT] if config.get(_LAYOUT) in LAYOUTS else "lines"
    return ImportedModel(recipe, tokenizer, arrays, report, combined_digest(files), layout)


def _with_tokenizer(recipe: NetRecipe, tokenizer: Tokenizer) -> NetRecipe:
    try:
        return recipe.with_tokenizer(tokenizer.recipe)
    except RecipeError as error:
        raise ArtifactError(f"the tokenizer does not go with the model: {error}") from None


def _remarks(head: HfTaskHead | None, weights: ImportedWeights, sentences: SentencePooling | None) -> Report:
    """Further facts for the report, with a note for those that need attention."""
    report: Report = {}
    if head is not None:
        report["task"] = head.task
        if head.is_guess:
            note("the model is imported as a classifier of texts: if it classifies pairs, import it with --task pair.")
    if weights.left_out:
        report["left_out"] = weights.left_out
    if weights.new and head is None:
        report["new"] = weights.new
        note("the folder has no language-modelling head: a new one is randomly initialised; train it with firth adapt.")
    if sentences is not None:
        report["sentences"] = sentences._asdict()
        length = weights.recipe.sequence.length
        options = f"--pooling {sentences.pooling}" + (" --unit" if sentences.unit else "")
        note(f"the model is for sentence vectors of at most {length} tokens: firth embed {options}")
    return report


def _read_sentences(folder: Path) -> SentencePooling | None:
    """The settings of sentence-transformers; None if `firth embed` does not support them."""
    if not (folder / "modules.json").exists():
        return None
    modules = parse_json(read_small(folder / "modules.json"), folder / "modules.json")
    found = [one for one in modules if isinstance(one, dict)] if isinstance(modules, list) else []
    kinds = {str(one.get("type")).rpartition(".")[2]: str(one.get("path")) for one in found}
    path = kinds.get("Pooling", "")
    if not kinds.keys() <= {"Transformer", "Pooling", "Normalize"} or not re.fullmatch(r"\d{1,9}_Pooling", path):
        return None
    settings = read_json(folder / path / "config.json")
    modes = [name for name, value in settings.items() if value is True and name.startswith("pooling_mode_")]
    pooling = _POOLINGS.get(modes[0] if len(modes) == 1 else str(settings.get("pooling_mode")))
    length = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    return SentencePooling(pooling, "Normalize" in kinds, length if type(length) is int else None) if pooling else None
