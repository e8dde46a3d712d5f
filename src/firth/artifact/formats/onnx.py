"""Networks, fine-tuned or not, as ONNX graphs with their tokenizer, for onnxruntime and other programs.

A folder has the graphs, `weights.bin`, `tokenizer.json` and `onnx.json`, which describes inputs and outputs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from firth.artifact.formats.huggingface_tokenizer import template
from firth.artifact.formats.network_alone import network_alone
from firth.artifact.formats.onnx_graph import OPSET, WEIGHTS, OnnxGraph, Weights, require_onnx
from firth.artifact.formats.onnx_models import Files, GraphFile, model_files
from firth.artifact.formats.onnx_tasks import task_facts, task_files
from firth.errors import AbilityError
from firth.files import new_folder
from firth.nets.model import NetModel
from firth.nets.recipe import NetRecipe
from firth.nets.scoring import max_length
from firth.nets.seq2seq import Seq2SeqNet
from firth.nets.special_tokens import start_token
from firth.progress import note
from firth.tasks.task import TaskModel
from firth.tokens.special_tokens import PairFormat, SpecialTokens
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, MASK, PAD, UNK, Tokenizer

Facts = dict[str, Any]
DESCRIPTION = "onnx.json"
_VERSION = 1  # of the description


def export_onnx(model: Any, path: Path) -> Facts:
    """Write the folder of a network or of a fine-tuned model, completely or not at all."""
    require_onnx()
    if not isinstance(model, NetModel | TaskModel):
        raise AbilityError("the onnx format holds neural networks: export one such as bert, gpt or lstm.")
    model = network_alone(model, "a graph")
    if isinstance(model, TaskModel) and model.head.linear is not None:
        note(
            "a graph has no place for the linear part: left out; for one that predicts the same, tune with --set "
            "linear_weight=0"
        )
    with new_folder(path) as draft:
        with (draft / WEIGHTS).open("wb") as file:
            files, facts = _graphs(model, Weights(file))
        for name, one in files.items():
            (draft / name).write_bytes(one.graph.model(Path(name).stem).SerializeToString(deterministic=True))
        tokenizer, special_tokens = model.tokenizer, _special_tokens(model)
        (draft / "tokenizer.json").write_bytes(_tokenizer_json(tokenizer, special_tokens))
        facts = _description(model, files, special_tokens) | facts
        (draft / DESCRIPTION).write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return {
        "opset": OPSET,
        "files": sorted(files),
        "bytes": sum(file.stat().st_size for file in path.iterdir()),
    }


def import_onnx(path: Path, out: Path) -> Facts:
    """Refuse: a graph does not say which network it is of."""
    raise AbilityError("onnx folders are only written: keep the artifact that they were made of, which firth loads.")


def _graphs(model: NetModel | TaskModel, weights: Weights) -> tuple[Files, Facts]:
    def new(purpose: str) -> GraphFile:
        return GraphFile(OnnxGraph(weights), purpose)

    if isinstance(model, TaskModel):
        return task_files(model, new), task_facts(model)
    return model_files(model, new), {}


def _network(model: NetModel | TaskModel) -> NetModel:
    return model if isinstance(model, NetModel) else model.pretrained


def _special_tokens(model: NetModel | TaskModel) -> SpecialTokens:
    """Those of the texts that the first graph reads."""
    if isinstance(model, TaskModel):
        return model.builder.special_tokens
    if isinstance(model, Seq2SeqNet):
        before, end, *_ = model.pair_format
        return SpecialTokens(before, end, end, 0)
    return SpecialTokens((start_token(model.recipe),), (EOS,), (EOS,), 0)


def _tokenizer_json(tokenizer: Tokenizer, special_tokens: SpecialTokens) -> bytes:
    """The tokenizer, which adds the special tokens of a text or of two."""
    content = json.loads(tokenizer.data) | {"post_processor": template(tokenizer.vocabulary, special_tokens)}
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def _description(model: Any, files: Files, special_tokens: SpecialTokens) -> Facts:
    network = _network(model)
    recipe: NetRecipe = network.recipe
    facts: Facts = {
        "format": "firth-onnx",
        "version": _VERSION,
        "opset": OPSET,
        "files": {
            name: {"purpose": one.purpose, "inputs": one.inputs, "outputs": one.outputs} for name, one in files.items()
        },
        "ids": {"pad": PAD, "unknown": UNK, "begin": BOS, "end": EOS, "mask": MASK, "first_word": FIRST_WORD},
        "special_tokens": special_tokens._asdict(),
        "max_length": max_length(recipe),
        "layout": network.layout,
        "segmenter": network.tokenizer.recipe.segmenter if network.tokenizer.recipe.model == "words" else None,
    }
    if recipe.languages:
        facts["languages"] = list(recipe.languages)
    if isinstance(network, Seq2SeqNet):
        facts["decoder"] = PairFormat.of(network.tokenizer)._asdict()
    return facts
