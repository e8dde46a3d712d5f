"""Tests over every task and head: onnxruntime gives the scores of a fine-tuned model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from firth.artifact.formats import export_model
from firth.errors import AbilityError
from firth.nets.embedding import LANGUAGES
from firth.nets.visibility import make_encoder_states
from firth.tasks.classify import SIDES
from firth.tasks.generate import with_cross_attention
from firth.tasks.readers.reader import read_items
from firth.tasks.recipe import HeadRecipe, TaskRecipe
from firth.tasks.registry import make_task
from firth.tasks.sequences import POSITIONS, InputSequence, pack
from firth.tasks.task import TaskModel
from firth.tokens.tokenizer import FIRST_WORD
from tests.nets.small_nets import small_net
from tests.onnx_sessions import Session

TEXTS = ["the cat sat", "a dog", "the dog ran on the grass", ""]
ITEMS: dict[str, list[Any]] = {
    "classify": TEXTS,
    "pair": [("the cat sat", "a dog ran"), ("a dog", "the grass"), ("the dog ran on the grass", "")],
    "tag": [["the", "cat", "sat"], ["dog"], ["the", "dog", "ran", "on"]],
    "span": [{"passage": "the cat sat on the grass", "question": "who sat"}, {"passage": "a dog", "question": "who"}],
    "choice": [{"context": "the cat", "question": "sat", "choices": ["on the grass", "a dog"]}],
}
HEADS: dict[str, dict[str, Any]] = {
    "first": {},
    "last": {"pooling": "last"},
    "mean": {"pooling": "mean"},
    "max": {"pooling": "max", "pooler": False},
    "concat": {"pooling": "concat", "hidden": 6, "pooler": False},
    "mix": {"layers": "mix", "pooling": "mean"},
    "ends": {"layers": "ends"},
    "lstm": {"encoder": "lstm", "width": 8, "pooling": "max"},
    "cnn": {"encoder": "cnn", "width": 8, "token_width": 4},
    "between": {"encoder": "lstm", "width": 8, "token_width": 4, "placement": "between"},
    "around": {"encoder": "lstm", "width": 8, "token_width": 4, "placement": "around", "layers": "mix"},
}
NETWORKS = ("bert", "gpt", "lstm", "elmo", "xlnet", "xlm", "cnn-lm", "cove", "bart")


def tuned(network: str, task: Any, **fields: Any) -> TaskModel:
    """A model with a new head whose parameters are large enough for scores to differ."""
    base = small_net(network, length=24)
    labels = () if task in ("span", "choice", "generate") else ("B-x", "I-x", "O")
    recipe = TaskRecipe(task=task, network=base.recipe, labels=labels, **fields)
    made = make_task(recipe, base.network.vocabulary)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return TaskModel(recipe, base, made)


def sequences_of(model: TaskModel) -> list[InputSequence]:
    examples = list(read_items(model.task, ITEMS[model.task], labelled=False))
    built = model.head.sequences(examples, model.builder)
    return [one for each in built for one in each]


def scores_of(model: TaskModel, sequences: list[InputSequence]) -> list[Any]:
    """The scores of each sequence by Firth."""
    with torch.inference_mode():
        batch = pack(sequences, FIRST_WORD)
        states = model.base.network(batch, model.head.positions(batch))
        return model.head.split(model.head.scores(states, batch, None), batch)


def padded(sequences: list[InputSequence], rows: list[Any]) -> Any:
    found = np.zeros((len(rows), max(one.ids.size for one in sequences)), dtype=np.int64)
    for row, values in zip(found, rows, strict=True):
        row[: len(values)] = values
    return found


def inputs_of(model: TaskModel, sequences: list[InputSequence]) -> dict[str, Any]:
    ids = padded(sequences, [one.ids for one in sequences])
    found = {
        "input_ids": ids,
        "attention_mask": padded(sequences, [np.ones(one.ids.size) for one in sequences]),
        "token_type_ids": padded(
            sequences, [np.zeros(one.ids.size) if one.segment_ids is None else one.segment_ids for one in sequences]
        ),
    }
    if model.base.recipe.embedding.languages:
        batch = pack(sequences[:1], FIRST_WORD)
        assert LANGUAGES not in batch.side_ids
        tokens = torch.from_numpy(found["attention_mask"]) - 1
        found["language_ids"] = model.base.network.language_votes.choose(torch.from_numpy(ids), tokens).numpy()
    return found


def check(model: TaskModel, folder: Path) -> None:
    export_model(model, "onnx", folder)
    session, sequences = Session(folder / "model.onnx"), sequences_of(model)
    inputs = {name: one for name, one in inputs_of(model, sequences).items() if name in session.inputs}
    if "second_text" in session.inputs:
        inputs["second_text"] = padded(sequences, [one.labels[SIDES] for one in sequences])
    found = session(**inputs)["logits"]
    for row, sequence, wanted in zip(found, sequences, scores_of(model, sequences), strict=True):
        own = row if model.head.pooled else row[sequence.labels[POSITIONS]]
        np.testing.assert_allclose(own, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("task", ITEMS)
def test_every_task_over_every_kind_of_network(network: str, task: str, tmp_path: Path) -> None:
    check(tuned(network, task, head=HeadRecipe(pooling="first" if network == "bert" else "last")), tmp_path / "m")


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("network", ["bert", "elmo"])
@pytest.mark.parametrize("task", ["classify", "tag"])
def test_every_head(head: str, network: str, task: str, tmp_path: Path) -> None:
    check(tuned(network, task, head=HeadRecipe(**HEADS[head])), tmp_path / "m")


def test_pairs_by_an_answer_network(tmp_path: Path) -> None:
    check(tuned("bert", "pair", head=HeadRecipe(answer="san", turns=3)), tmp_path / "m")


def test_a_description_has_what_a_program_needs(tmp_path: Path) -> None:
    model = tuned("bert", "tag", head=HeadRecipe(crf=True))
    export_model(model, "onnx", tmp_path / "m")
    facts = json.loads((tmp_path / "m" / "onnx.json").read_text())
    assert facts["task"] == "tag"
    assert facts["labels"] == ["B-x", "I-x", "O"]
    assert np.array(facts["crf"]["between"]).shape == (3, 3)
    assert facts["files"]["model.onnx"]["outputs"] == {"logits": ["batch", "length", 3]}


@pytest.mark.parametrize("network", ["gpt", "bert"])
def test_generators_that_continue_a_source(network: str, tmp_path: Path) -> None:
    model = tuned(network, "generate", max_length=8)
    export_model(model, "onnx", tmp_path / "m")
    items = [{"source": "the cat sat", "target": "a dog ran"}]
    sequence = model.head.sequences(list(read_items("generate", items, labelled=True)), model.builder)[0][0]
    batch = pack([sequence], FIRST_WORD)
    with torch.inference_mode():
        last = model.base.network(batch).last_hidden_state
        wanted = model.base.network.output.logits(last).view(*batch.shape, -1)
    session, columns = Session(tmp_path / "m" / "model.onnx"), torch.arange(batch.shape[1])[None]
    given = {
        "input_ids": batch.ids,
        "attention_mask": torch.ones_like(batch.ids),
        "position_ids": columns if batch.position_ids is None else batch.position_ids,
        "attention_order": batch.attention_order,
        "query_only": None if batch.query_only is None else batch.query_only.long(),
        "token_type_ids": torch.zeros_like(batch.ids) if batch.segment_ids is None else batch.segment_ids,
    }
    found = session(**{name: given[name] for name in session.inputs})["logits"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_generators_with_a_decoder_of_their_own(tmp_path: Path) -> None:
    base = small_net("gpt", length=24).recipe
    model = tuned("gpt", "generate", decoder=with_cross_attention(base, base.width))
    export_model(model, "onnx", tmp_path / "m")
    ids, ones = torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.int64)
    states = Session(tmp_path / "m" / "encoder.onnx")(input_ids=ids, attention_mask=ones)["last_hidden_state"]
    found = Session(tmp_path / "m" / "decoder.onnx")(
        input_ids=ids, encoder_hidden_states=states, encoder_attention_mask=ones
    )["logits"]
    decoder: Any = model.head.decoder_of(model.base.network)
    with torch.inference_mode():
        encoded = make_encoder_states(torch.from_numpy(states), ones > 0)
        hidden, _ = decoder.decode_step(ids, encoder_states=encoded)
        wanted = decoder.output.logits(hidden[0])
    np.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=1e-4)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(AbilityError, match="lstm"):
        export_model(tuned("lstm", "generate"), "onnx", tmp_path / "m")
    with pytest.raises(AbilityError, match="neural"):
        export_model(small_net("bert").tokenizer, "onnx", tmp_path / "m")
    assert not (tmp_path / "m").exists()
