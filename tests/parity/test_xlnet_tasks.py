"""Fine-tuned XLNet models compute the logits and gradients of the transformers library."""

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
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD
from tests.artifact.formats.small_tasks import EXAMPLES, LABELS, LONG, MIDDLE, SHORT, padded, task_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

TOLERANCE = 1e-5  # their sinusoids are in single precision, whatever the model is
CLASSES: dict[TaskName, str] = {
    "classify": "XLNetForSequenceClassification",
    "pair": "XLNetForSequenceClassification",
    "tag": "XLNetForTokenClassification",
    "span": "XLNetForQuestionAnsweringSimple",
    "choice": "XLNetForMultipleChoice",
}


def rows_of(model: TaskModel, task: TaskName) -> list[InputSequence]:
    return [row for rows in model.head.sequences(EXAMPLES[task], model.builder) for row in rows]


def their_logits(other: Any, task: TaskName, rows: list[InputSequence]) -> Tensor:
    """The logits of transformers for the sequences, padded on the left, in the shape of ours."""
    given = padded(rows, left=True)
    if task == "choice":  # one example with all sequences as its choices
        return other(**{name: one[None] for name, one in given.items()}).logits.view(-1, 1)
    found = other(**given)
    if task in ("classify", "pair"):
        return found.logits
    logits = torch.stack([found.start_logits, found.end_logits], -1) if task == "span" else found.logits
    begins = [given["input_ids"].shape[1] - row.ids.size for row in rows]
    return torch.cat([logits[number, begins[number] + row.labels[POSITIONS]] for number, row in enumerate(rows)])


@pytest.mark.parametrize("task", CLASSES)
def test_logits_and_gradients_are_the_same(task: TaskName) -> None:
    model = task_model("xlnet", task)
    config, tensors = task_to_huggingface(model.recipe, model_tensors(model))
    assert config["architectures"] == [CLASSES[task]]
    other = getattr(transformers, CLASSES[task])(transformers.AutoConfig.for_model(**config)).double().eval()
    other.load_state_dict({name: tensor.double() for name, tensor in tensors.items()}, strict=True)
    encode = other.transformer.relative_positional_encoding
    other.transformer.relative_positional_encoding = lambda *given, **more: encode(*given, **more).double()
    model.base.network.double()
    model.head.double()
    rows = rows_of(model, task)
    batch = pack(rows, FIRST_WORD)
    mine = model.head.scores(model.base.network(batch, model.head.positions(batch)), batch, None)
    found = their_logits(other, task, rows)
    assert torch.allclose(mine.flatten(), found.flatten(), rtol=0, atol=TOLERANCE)
    weights = torch.randn(mine.shape, generator=torch.Generator().manual_seed(3), dtype=mine.dtype)
    (mine * weights).sum().backward()
    (found.view_as(weights) * weights).sum().backward()
    network = {name: one.grad for name, one in model.base.network.named_parameters() if one.grad is not None}
    network["embedding.query"] = torch.zeros(model.recipe.network.width)
    gradients = backbone_tensors(model.recipe.network, network)
    head_class = head_class_of(model.recipe)
    gradients |= {their_head_name(head_class, name): one.grad for name, one in model.head.head.named_parameters()}
    expected = {name: one.grad for name, one in other.named_parameters()}
    assert gradients.keys() == expected.keys()
    assert expected.pop("transformer.mask_emb") is None
    for name, gradient in expected.items():
        assert torch.allclose(gradients[name], gradient, rtol=0, atol=10 * TOLERANCE), name


@pytest.mark.parametrize("task", CLASSES)
def test_what_was_exported_is_loaded(task: TaskName, tmp_path: Path) -> None:
    model = task_model("xlnet", task)
    report = export_model(model, "huggingface", tmp_path / "out")
    assert (report["type"], report["architecture"]) == ("xlnet", CLASSES[task])
    other, info = getattr(transformers, CLASSES[task]).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    rows = rows_of(model, task)
    batch = pack(rows, FIRST_WORD)
    with torch.no_grad():
        mine = model.head.scores(model.base.network(batch, model.head.positions(batch)), batch, None)
        found = their_logits(other.eval(), task, rows)
        assert torch.allclose(mine.flatten(), found.flatten(), rtol=0, atol=TOLERANCE)


def test_their_tokenizer_makes_our_sequences(tmp_path: Path) -> None:
    """a </s> <s> and a </s> b </s> <s>, whose last token has a segment of its own; filled up on the left."""
    model = task_model("xlnet", "pair")
    export_model(model, "huggingface", tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    builder = model.builder
    first, second = builder.encode([SHORT, LONG])
    for ours, theirs in (
        (builder.build(first), tokenizer(SHORT)),
        (builder.build(first, second), tokenizer(SHORT, LONG)),
    ):
        assert theirs["input_ids"] == ours.ids.tolist()
        assert ours.segment_ids is not None
        assert theirs["token_type_ids"] == ours.segment_ids.tolist()
        assert theirs["input_ids"][-2:] == [EOS, BOS]
        assert theirs["token_type_ids"][-1] == 2
    filled = tokenizer([SHORT, LONG], padding=True)
    assert filled["attention_mask"][0][0] == 0
    assert filled["input_ids"][0][-1] == BOS


def test_a_padded_batch_predicts_as_we_do(tmp_path: Path) -> None:
    model = task_model("xlnet", "classify")
    export_model(model, "huggingface", tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = transformers.pipeline("text-classification", str(tmp_path / "out"), top_k=None, batch_size=3)
    texts = [SHORT, LONG, MIDDLE]
    for mine, theirs in zip(model.predict(texts), pipeline(texts), strict=True):
        assert mine["probabilities"] == pytest.approx({one["label"]: one["score"] for one in theirs}, abs=TOLERANCE)


def test_heads_that_theirs_lack_are_refused_with_the_setting() -> None:
    for head, setting in (
        (HeadRecipe(pooling="first"), r"'head\.pooling': 'last'"),
        (HeadRecipe(pooling="last", pooler=False), r"'head\.pooler': True"),
        (HeadRecipe(pooling="last", layers="mix"), r"'head\.layers': 'last'"),
    ):
        with pytest.raises(AbilityError, match=setting):
            head_class_of(task_model("xlnet", "classify", head=head).recipe)


def their_classifier(folder: Path, **settings: Any) -> Any:
    """A random classifier of theirs with the tokenizer of ours, saved without our recipe."""
    model = task_model("xlnet", "classify")
    export_model(model, "huggingface", folder)
    sizes = {"vocab_size": len(model.tokenizer), "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 20}
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {name: at for at, name in enumerate(LABELS)}}
    torch.manual_seed(3)
    other = transformers.XLNetForSequenceClassification(transformers.XLNetConfig(**sizes, **labels, **settings)).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    other.save_pretrained(folder)
    return other


def test_a_classifier_of_theirs_is_imported(tmp_path: Path) -> None:
    other = their_classifier(tmp_path / "theirs", mem_len=None, dropout=0.3)
    assert import_model("huggingface", tmp_path / "theirs", tmp_path / "ours")["task"] == "classify"
    model = load(tmp_path / "ours")
    network = model.recipe.network
    assert model.labels == LABELS
    assert network.memory.length == 0
    assert network.encoder.dropout == network.encoder.attention_dropout == 0.3
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    for text in (SHORT, MIDDLE, LONG):
        with torch.no_grad():
            found = other(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)
        probabilities = list(model.predict([text])[0]["probabilities"].values())
        assert probabilities == pytest.approx(found.tolist(), abs=TOLERANCE)


@pytest.mark.parametrize(("key", "value"), [("summary_activation", "relu"), ("summary_type", "first")])
def test_other_summaries_are_refused(key: str, value: str, tmp_path: Path) -> None:
    their_classifier(tmp_path / "theirs", **{key: value})
    with pytest.raises(ArtifactError, match=f"{key}='{value}'"):
        read_model(tmp_path / "theirs")
