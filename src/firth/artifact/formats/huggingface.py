"""Transformers to the folders of Hugging Face and back: BERT, RoBERTa, ALBERT, GPT and GPT-2."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from firth.artifact.formats.huggingface_config import find_kind, kind_of, stored_recipe
from firth.artifact.formats.huggingface_reading import Sentences, read_folder
from firth.artifact.formats.huggingface_tasks import Head, export_task, read_task, split_head
from firth.artifact.formats.huggingface_tokens import export_tokenizer, import_tokenizer
from firth.artifact.formats.huggingface_weights import (
    Tensors,
    Weights,
    choose_rows,
    from_huggingface,
    shortened,
    to_huggingface,
    without_absent,
)
from firth.artifact.formats.huggingface_writing import write_files
from firth.artifact.models import save
from firth.errors import AbilityError
from firth.files import digest_file
from firth.nets.model import NetModel
from firth.nets.recipe import NetRecipe
from firth.progress import note
from firth.tasks.frame import usual_marks
from firth.tasks.model import TaskModel
from firth.tasks.recipe import TaskRecipe
from firth.tokens.spelling import Spelling
from firth.tokens.tokenizer import EOS, MASK, PAD, Tokenizer

__all__ = ["export_huggingface", "from_huggingface", "import_huggingface", "read_model", "to_huggingface"]

Report = dict[str, Any]


def export_huggingface(model: Any, path: Path) -> Report:
    """Writes a Transformer, fine-tuned or not, as a folder that `transformers` loads, whole or not at all."""
    if isinstance(model, TaskModel):
        return export_task(model, path)
    if not isinstance(model, NetModel):
        raise AbilityError("Hugging Face folders hold neural models: export one such as bert, roberta or gpt2.")
    arrays = {name: torch.from_numpy(np.require(array, requirements="W")) for name, array in model.arrays().items()}
    return write_folder(path, model.recipe, arrays, model.tokenizer)


def write_folder(path: Path, recipe: NetRecipe, arrays: Tensors, tokenizer: Tokenizer) -> Report:
    """Writes the folder of a model, given by its parameters and those of its objectives, `heads.*`."""
    kind = kind_of(recipe)
    recipe, state, kept = without_absent(recipe, arrays)
    config, tensors = to_huggingface(recipe, state, state)
    if kind.causal:
        end = kept.index(EOS)
        config |= {"pad_token_id": PAD if PAD in kept else None, "bos_token_id": end, "eos_token_id": end}
    files = {
        "config.json": config,
        **export_tokenizer(tokenizer, kind, recipe, kept),
    }
    return {"type": kind.name, "vocabulary": len(kept)} | write_files(path, files, tensors)


@dataclass
class Imported:
    """A model as it was read, before it is built: what an artifact keeps of it."""

    recipe: NetRecipe | TaskRecipe
    tokenizer: Tokenizer
    tensors: dict[str, Any]
    report: Report
    digest: str
    """SHA-256 of the weights."""

    def arrays(self) -> dict[str, Any]:
        return self.tensors


def import_huggingface(path: Path, out: Path, task: str | None = None) -> Report:
    """Makes an artifact of a folder that `save_pretrained` wrote.

    `task` says what a model with a head was trained for where its class does several: classify or pair.
    """
    started = time.monotonic()
    found = read_parts(path, task)
    save(
        out,
        found,
        name="imported",
        recipe=found.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started}},
        corpus={"layout": "lines", "imported": path.name, "digest": found.digest},
        seed=0,
        metrics=found.report,
    )
    return found.report


def read_model(path: Path, task: str | None = None) -> Any:
    """The model of a folder, ready for use."""
    found = read_parts(path, task)
    return found.recipe.restore(found.arrays(), found.tokenizer, "lines")


def read_parts(path: Path, task: str | None = None) -> Imported:
    """What a folder that `save_pretrained` wrote holds, with our ids and under our names."""
    folder = read_folder(path)
    head, tensors = split_head(folder.config, folder.tensors, task)
    weights = from_huggingface(folder.config, tensors)
    if folder.sentences is not None and folder.sentences.length is not None:
        weights = shortened(weights, folder.sentences.length)
    kind, stored = find_kind(folder.config), stored_recipe(folder.config)
    tokenizer, order = import_tokenizer(
        folder.tokenizer,
        folder.settings,
        kind,
        len(weights.state["embedding.tokens.weight"]),
        stored.tokenizer if stored else None,
        None if kind.causal and head is None else usual_marks(weights.recipe),
    )
    network, state = choose_rows(weights.recipe.with_tokenizer(tokenizer.recipe), weights.state, order)
    recipe = network if head is None else read_task(folder.config, head, network)
    arrays: dict[str, Any] = {} if head is None else head.arrays()
    arrays |= {name: tensor.numpy() for name, tensor in (state | weights.heads).items()}
    report = {
        "type": kind.name,
        "vocabulary": len(tokenizer),
        "parameters": sum(array.size for array in arrays.values()),
    }
    arrays["counts"] = np.zeros(len(tokenizer), dtype=np.int64)  # how often tokens occurred is not told
    arrays["spelling"] = Spelling.train(tokenizer.vocabulary[MASK + 1 :]).counts
    report |= _remarks(head, weights, folder.sentences)
    return Imported(recipe, tokenizer, arrays, report, _digest(folder.weights))


def _remarks(head: Head | None, weights: Weights, sentences: Sentences | None) -> Report:
    """What else there is to tell of a folder."""
    told: Report = {}
    if head is not None:
        told["task"] = head.task
        if head.guessed:
            note("the model was taken for one that labels texts: if it labels pairs, import it with --task pair.")
    if weights.left_out:
        told["left_out"] = weights.left_out
    if weights.new and head is None:
        told["new"] = weights.new
        note("the folder has nothing that predicts tokens: that layer is new, and knows nothing until firth adapt.")
    if sentences is not None:
        told["sentences"] = sentences._asdict()
        most = weights.recipe.rows.length
        note(f"the model was made for vectors of sentences of at most {most} tokens: firth embed {sentences.options}")
    return told


def _digest(files: list[Path]) -> str:
    """The SHA-256 of a file, or of those of several."""
    digests = [digest_file(file) for file in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
