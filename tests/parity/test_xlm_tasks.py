"""Fine-tuned XLM models compute the logits and gradients of the transformers library."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from firth.artifact.formats import export_model, import_model
from firth.artifact.formats.huggingface import read_model
from firth.artifact.formats.huggingface_tasks import head_class_of, task_to_huggingface, their_head_name
from firth.artifact.formats.huggingface_weights import backbone_tensors, model_tensors
from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError
from firth.tasks.recipe import HeadRecipe, TaskName
from firth.tasks.sequences import POSITIONS, InputSequence, pack
from firth.tasks.task import TaskModel
from firth.tokens.tokenizer import FIRST_WORD
from tests.artifact.formats.small_tasks import EXAMPLES, LABELS, padded, task_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

TOLERANCE = 1e-5  # their softmax of attention is in single precision, whatever the model is
GERMAN = 1
CLASSES: dict[TaskName, str] = {
    "classify": "XLMForSequenceClassification",
    "pair": "XLMForSequenceClassification",
    "tag": "XLMForTokenClassification",
    "span": "XLMForQuestionAnsweringSimple",
}


def rows_of(model: TaskModel, task: TaskName) -> list[InputSequence]:
    return [row for rows in model.head.sequences(EXAMPLES[task], model.builder) for row in rows]


def their_logits(other: Any, task: TaskName, rows: list[InputSequence]) -> Tensor:
    """The logits of transformers for the padded sequences, in the shape of ours."""
    given = padded(rows)
    found = other(**given, langs=torch.full_like(given["input_ids"], GERMAN))
    if task in ("classify", "pair"):
        return found.logits
    logits = torch.stack([found.start_logits, found.end_logits], -1) if task == "span" else found.logits
    return torch.cat([logits[number, torch.from_numpy(row.labels[POSITIONS])] for number, row in enumerate(rows)])


@pytest.mark.parametrize("task", CLASSES)
def test_logits_and_gradients_are_the_same(task: TaskName) -> None:
    model = task_model("xlm", task)
    config, tensors = task_to_huggingface(model.recipe, model_tensors(model))
    assert config["architectures"] == [CLASSES[task]]
    other = getattr(transformers, CLASSES[task])(transformers.AutoConfig.for_model(**config)).double().eval()
    other.load_state_dict({name: tensor.double() for name, tensor in tensors.items()}, strict=True)
    model.base.network.double()
    model.head.double()
    rows = rows_of(model, task)
    batch = pack(rows, FIRST_WORD)
    mine = model.head.scores(model.base.network(batch, model.head.positions(batch)), batch, None)
    found = their_logits(other, task, rows)
    assert torch.allclose(mine, found, rtol=0, atol=TOLERANCE)
    weights = torch.randn(mine.shape, generator=torch.Generator().manual_seed(3), dtype=mine.dtype)
    (mine * weights).sum().backward()
    (found * weights).sum().backward()
    network = {name: one.grad for name, one in model.base.network.named_parameters() if one.grad is not None}
    gradients = backbone_tensors(model.recipe.network, network)
    head_class = head_class_of(model.recipe)
    gradients |= {their_head_name(head_class, name): one.grad for name, one in model.head.head.named_parameters()}
    expected = {name: one.grad for name, one in other.named_parameters()}
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected[name], rtol=0, atol=10 * TOLERANCE), name


@pytest.mark.parametrize("task", CLASSES)
def test_what_was_exported_is_loaded(task: TaskName, tmp_path: Path) -> None:
    model = task_model("xlm", task)
    report = export_model(model, "huggingface", tmp_path / "out")
    assert (report["type"], report["architecture"]) == ("xlm", CLASSES[task])
    other, info = getattr(transformers, CLASSES[task]).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    rows = rows_of(model, task)
    batch = pack(rows, FIRST_WORD)
    with torch.no_grad():
        mine = model.head.scores(model.base.network(batch, model.head.positions(batch)), batch, None)
        assert torch.allclose(mine, their_logits(other.eval(), task, rows), rtol=0, atol=TOLERANCE)


def test_a_pooler_is_refused_with_the_setting() -> None:
    """Their classifier of texts has one layer."""
    model = task_model("xlm", "classify", head=HeadRecipe(pooling="first", pooler=True))
    with pytest.raises(AbilityError, match=r"settings={'head\.pooler': False}"):
        head_class_of(model.recipe)
    with pytest.raises(AbilityError, match="no xlm class for choice"):
        head_class_of(task_model("xlm", "choice").recipe)


def their_classifier(folder: Path, **settings: Any) -> Any:
    """A random classifier of theirs with the tokenizer of ours, saved without our recipe."""
    model = task_model("xlm", "classify")
    export_model(model, "huggingface", folder)
    tokens = len(model.tokenizer)
    sizes = {"vocab_size": tokens, "emb_dim": 16, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 48}
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {name: at for at, name in enumerate(LABELS)}}
    languages = {"n_langs": 2, "lang2id": {"en": 0, "de": 1}, "id2lang": {"0": "en", "1": "de"}}
    torch.manual_seed(3)
    config = transformers.XLMConfig(**sizes, **labels, **languages, **settings)
    other = transformers.XLMForSequenceClassification(config).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    other.save_pretrained(folder)
    return other


def test_a_classifier_of_theirs_is_imported(tmp_path: Path) -> None:
    other = their_classifier(tmp_path / "theirs")
    assert import_model("huggingface", tmp_path / "theirs", tmp_path / "ours")["task"] == "classify"
    model = load(tmp_path / "ours")
    assert model.labels == LABELS
    text = "The lazy fox jumps"
    given = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")(text, return_tensors="pt")
    for language, name in enumerate(("en", "de")):
        with torch.no_grad():
            langs = torch.full_like(given["input_ids"], language)
            found = other(**given, langs=langs).logits[0].softmax(-1)
        model.base.network.recipe = model.base.in_language(name).recipe
        model.base.network.__dict__.pop("language_votes", None)
        probabilities = list(model.predict([text])[0]["probabilities"].values())
        assert probabilities == pytest.approx(found.tolist(), abs=TOLERANCE)


def test_other_summaries_are_refused(tmp_path: Path) -> None:
    their_classifier(tmp_path / "theirs", summary_activation="tanh")
    with pytest.raises(ArtifactError, match="summary_activation='tanh'"):
        read_model(tmp_path / "theirs")
