"""Exported task models predict the same in pipelines of transformers, and can be imported again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from firth.artifact.formats import export_model, import_model
from firth.artifact.formats.huggingface import read_model
from firth.artifact.formats.huggingface_tasks import HEAD_CLASSES
from firth.artifact.models import load, save
from firth.errors import AbilityError, ArtifactError, FirthError
from firth.recipes.nets import elmo
from firth.tasks.recipe import HeadRecipe, TaskName, TaskRecipe
from firth.tasks.task import TaskModel
from tests.artifact.formats.small_tasks import EXAMPLES, LABELS, LONG, MIDDLE, SHORT, TAGS, padded, task_model
from tests.artifact.formats.small_transformers import THEIR_TOKENIZERS, foreign, transformers
from tests.command import firth

TEXTS = [SHORT, MIDDLE, LONG, "我们喜欢语言。"]
PAIRS = [(SHORT, MIDDLE), ("the dog", "dog"), (MIDDLE, "我们")]
FIVE = pytest.mark.parametrize("name", ["bert", "roberta", "albert", "gpt2", "openai-gpt"])
MASKED = pytest.mark.parametrize("name", ["bert", "roberta", "albert"])


def put(model: TaskModel, folder: Path) -> Path:
    export_model(model, "huggingface", folder)
    return folder


def pipeline(kind: str, folder: Path, **options: Any) -> Any:
    return transformers.pipeline(kind, str(folder), tokenizer=str(folder), **options)


def make_config(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


@FIVE
def test_the_pipeline_classifies_as_we_do(name: str, tmp_path: Path) -> None:
    model = task_model(name, "classify")
    folder = put(model, tmp_path / "out")
    config = make_config(folder)
    assert config["id2label"] == {"0": "bad", "1": "fair", "2": "good"}
    assert config["label2id"] == {"bad": 0, "fair": 1, "good": 2}
    assert config["problem_type"] == "single_label_classification"
    ask = pipeline("text-classification", folder)
    assert config["bos_token_id"] == ask.tokenizer.bos_token_id
    for batch_size in (1, 4):
        for mine, best in zip(model.predict(TEXTS), ask(TEXTS, batch_size=batch_size), strict=True):
            assert (mine["label"], mine["probability"]) == (best["label"], pytest.approx(best["score"], abs=1e-5))
    for mine, all_of_them in zip(model.predict(TEXTS), ask(TEXTS, top_k=None), strict=True):
        report = {one["label"]: one["score"] for one in all_of_them}
        assert mine["probabilities"] == pytest.approx(report, abs=1e-5)


@FIVE
def test_the_pipeline_classifies_pairs_as_we_do(name: str, tmp_path: Path) -> None:
    model = task_model(name, "pair")
    ask = pipeline("text-classification", put(model, tmp_path / "out"), top_k=None)
    found = ask([{"text": one, "text_pair": two} for one, two in PAIRS])
    for mine, all_of_them in zip(model.predict(PAIRS), found, strict=True):
        report = {one["label"]: one["score"] for one in all_of_them}
        assert mine["probabilities"] == pytest.approx(report, abs=1e-5)
        assert mine["label"] == all_of_them[0]["label"]


def test_several_labels_and_numbers(tmp_path: Path) -> None:
    several = task_model("bert", "classify", form="multi")
    folder = put(several, tmp_path / "several")
    assert make_config(folder)["problem_type"] == "multi_label_classification"
    found = pipeline("text-classification", folder)(TEXTS, top_k=None)
    for mine, report in zip(several.predict(TEXTS), found, strict=True):
        assert mine["probabilities"] == pytest.approx({one["label"]: one["score"] for one in report}, abs=1e-5)
    number = task_model("bert", "pair", form="number", labels=())
    folder = put(number, tmp_path / "number")
    assert make_config(folder)["problem_type"] == "regression"
    ask = pipeline("text-classification", folder)
    expected = [one["score"] for one in ask([{"text": one, "text_pair": two} for one, two in PAIRS])]
    assert [one["score"] for one in number.predict(PAIRS)] == pytest.approx(expected, abs=1e-5)
    assert [one["score"] for one in read_model(folder).predict(PAIRS)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "gpt2"])
def test_the_pipeline_tags_as_we_do(name: str, tmp_path: Path) -> None:
    model = task_model(name, "tag")
    folder = put(model, tmp_path / "out")
    assert tuple(make_config(folder)["id2label"].values()) == TAGS
    ask = pipeline("token-classification", folder, ignore_labels=[])
    for words in (["The", "jumped", "dog"], ["Unbelievable", "foxes", "over", "quick", "e-mails"]):
        begins = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]
        (mine,) = model.predict([words])
        found = [one for one in ask(" ".join(words)) if one["end"] > one["start"]]
        firsts = [next(one for one in found if one["end"] > begin) for begin in begins]
        assert mine["tags"] == [one["entity"] for one in firsts]
        assert mine["probabilities"] == pytest.approx([float(one["score"]) for one in firsts], abs=1e-5)


@MASKED
def test_their_spans_are_ours(name: str, tmp_path: Path) -> None:
    model = task_model(name, "span", allow_no_answer=False, max_length=4)
    folder = put(model, tmp_path / "out")
    other = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for passage, question in ((LONG, "fox?"), (MIDDLE, "the quick dog?")):
        given = tokenizer(question, passage, return_tensors="pt", return_offsets_mapping=True)
        positions = [position for position, text in enumerate(given.sequence_ids(0)) if text == 1]
        offsets = given.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            found = other(**given)
        scores = {
            (i, j): float(found.start_logits[0, i] + found.end_logits[0, j])
            for i in positions
            for j in positions
            if i <= j < i + 4
        }
        (i, j), best = max(scores.items(), key=lambda one: one[1])
        (mine,) = model.predict([{"passage": passage, "question": question}])
        assert mine["answer"] == passage[offsets[i][0] : offsets[j][1]].strip()
        assert mine["score"] == pytest.approx(best, abs=1e-5)


@MASKED
def test_their_choices_are_ours(name: str, tmp_path: Path) -> None:
    model = task_model(name, "choice")
    other = transformers.AutoModelForMultipleChoice.from_pretrained(put(model, tmp_path / "out")).eval()
    for example in EXAMPLES["choice"]:
        rows = model.head.sequences([example], model.builder)[0]
        with torch.no_grad():
            found = other(**{key: tensor[None] for key, tensor in padded(rows).items()}).logits[0].softmax(-1)
        (mine,) = model.predict([example])
        assert mine["probabilities"] == pytest.approx(found.tolist(), abs=1e-5)


@pytest.mark.parametrize(("name", "task"), [(name, task) for name, forms in HEAD_CLASSES.items() for task in forms])
def test_a_round_trip_of_task_models(name: str, task: TaskName, tmp_path: Path) -> None:
    model = task_model(name, task)
    folder = put(model, tmp_path / "out")
    report = import_model("huggingface", folder, tmp_path / "back")
    assert report["task"] == task
    back = load(tmp_path / "back")
    assert back.recipe.head == model.recipe.head
    assert back.labels == model.labels
    for mine, other in zip(model.predict(EXAMPLES[task]), back.predict(EXAMPLES[task]), strict=True):
        assert flat(other) == pytest.approx(flat(mine), abs=1e-5)


def flat(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without nested values."""
    found: dict[str, Any] = {}
    for name, value in answer.items():
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
        found |= {name: value} if inner is None else {f"{name}.{key}": one for key, one in inner}
    return found


def test_the_commands(tmp_path: Path) -> None:
    model = task_model("bert", "classify")
    save(
        tmp_path / "tuned",
        model,
        name="bert-classify",
        recipe=model.recipe,
        budget={"asked": None, "spent": {}},
        corpus={"layout": "lines"},
        seed=0,
        metrics={},
    )
    done = firth("export", tmp_path / "tuned", "huggingface", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    assert done.json["architecture"] == "BertForSequenceClassification"
    done = firth("import", "huggingface", tmp_path / "out", "-o", tmp_path / "back", "--json")
    assert done.code == 0, done.err
    assert "new" not in done.json
    for mine, other in zip(model.predict(TEXTS), load(tmp_path / "back").predict(TEXTS), strict=True):
        assert flat(mine) == pytest.approx(flat(other), abs=1e-6)


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("classify", {"head": HeadRecipe(layers="mix")}, "settings={'head.layers': 'last'}"),
        (
            "classify",
            {"head": HeadRecipe(encoder="lstm", token_width=4)},
            "settings={'head.encoder': None, 'head.token_width': 0}",
        ),
        ("classify", {"head": HeadRecipe(pooling="mean")}, "settings={'head.pooling': 'first'}"),
        ("choice", {"head": HeadRecipe(pooler=False)}, "settings={'head.pooler': True}"),
        ("tag", {"words_per_token": 2}, "settings={'words_per_token': 1}"),
        ("pair", {"symmetric": True}, "settings={'symmetric': False}"),
    ],
    ids=str,
)
def test_heads_that_transformers_lacks_are_refused(task: TaskName, changes: Any, message: str, tmp_path: Path) -> None:
    model = task_model("bert", task, **changes)
    with pytest.raises(AbilityError, match=message):
        put(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tasks_that_transformers_lacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AbilityError, match="no gpt2 class for choice: fine-tune one of bert, roberta, albert"):
        put(task_model("gpt2", "choice"), tmp_path / "out")
    with pytest.raises(AbilityError, match=r"no openai-gpt class for tag: fine-tune one of .*gpt2"):
        put(task_model("openai-gpt", "tag"), tmp_path / "out")
    with pytest.raises(AbilityError, match="continues it"):
        put(task_model("gpt2", "generate"), tmp_path / "out")
    model = task_model("bert", "classify")
    model.recipe = replace(model.recipe, network=elmo())
    with pytest.raises(AbilityError, match=r"encoder\.kind=lstm"):
        put(model, tmp_path / "out")


def test_more_labels_than_the_hidden_size(tmp_path: Path) -> None:
    """Where their logits have no bias, it is added to the hidden states, if they are wide enough."""
    model = task_model("gpt2", "classify", labels=tuple(map(str, range(20))))
    with pytest.raises(AbilityError, match="a wider network"):
        put(model, tmp_path / "out")


def test_nan_is_not_exported(tmp_path: Path) -> None:
    model = task_model("bert", "classify")
    with torch.no_grad():
        model.head.head.classifier.weight[1, 1] = torch.nan
    with pytest.raises(AbilityError, match=r"classifier\.weight holds NaN"):
        put(model, tmp_path / "out")


def their_classifier(folder: Path, architecture: str, kind: str = "bert", **settings: Any) -> tuple[Any, Any]:
    """A random task model of transformers and its tokenizer, saved without our recipe."""
    tokenizer = THEIR_TOKENIZERS[kind]()
    foreign(kind, folder, len(tokenizer), **settings)
    torch.manual_seed(5)
    model = getattr(transformers, architecture)(transformers.AutoConfig.from_pretrained(folder)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@pytest.mark.parametrize("kind", ["bert", "roberta", "albert"])
def test_classifiers_of_transformers_are_imported(kind: str, tmp_path: Path) -> None:
    names = {"bert": "Bert", "roberta": "Roberta", "albert": "Albert"}
    labels = {"id2label": {0: "no", 1: "yes", 2: "so"}, "label2id": {"no": 0, "yes": 1, "so": 2}}
    architecture = f"{names[kind]}ForSequenceClassification"
    other, tokenizer = their_classifier(tmp_path / "theirs", architecture, kind, **labels)
    import_model("huggingface", tmp_path / "theirs", tmp_path / "ours")
    model = load(tmp_path / "ours")
    assert model.recipe.task == "classify"
    assert model.labels == ("no", "yes", "so")
    for text in TEXTS:
        with torch.no_grad():
            found = other(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)
        assert list(model.predict([text])[0]["probabilities"].values()) == pytest.approx(found.tolist(), abs=1e-5)


def test_other_task_models_of_transformers_are_imported(tmp_path: Path) -> None:
    their_classifier(tmp_path / "tag", "BertForTokenClassification", id2label={0: "O", 1: "B-X"})
    assert (read_model(tmp_path / "tag").recipe.task, read_model(tmp_path / "tag").labels) == ("tag", ("O", "B-X"))
    their_classifier(tmp_path / "span", "BertForQuestionAnswering")
    assert read_model(tmp_path / "span").predict([{"passage": LONG, "question": SHORT}])[0]["answer"] in LONG
    other, tokenizer = their_classifier(tmp_path / "number", "BertForSequenceClassification", num_labels=1)
    model = read_model(tmp_path / "number")
    assert (model.recipe.task, model.recipe.form) == ("pair", "number")
    with torch.no_grad():
        found = float(other(**tokenizer(*PAIRS[0], return_tensors="pt")).logits)
    assert model.predict(PAIRS[:1])[0]["score"] == pytest.approx(found, abs=1e-5)


def test_invalid_folders_are_refused(tmp_path: Path) -> None:
    folder = put(task_model("bert", "classify"), tmp_path / "out")
    config, weights = make_config(folder), load_file(folder / "model.safetensors")

    def refused(message: str, tensors: dict[str, Any] | None = None, **changes: Any) -> None:
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        changed = weights | (tensors or {})
        save_file({name: one for name, one in changed.items() if one is not None}, folder / "model.safetensors")
        with pytest.raises(ArtifactError, match=message):
            read_model(folder)

    refused(r"lack classifier\.bias", {"classifier.bias": None})
    refused(r"lack bert\.pooler\.dense\.weight", {"bert.pooler.dense.weight": None})
    refused(r"classifier\.weight holds NaN", {"classifier.weight": torch.full((3, 16), torch.nan)})
    refused("cannot be a layer of a head", {"classifier.weight": torch.zeros(3)})
    refused(r"classifier\.weight has the shape \(3, 17\)", {"classifier.weight": torch.zeros(3, 17)})
    refused(r"classifier\.weight has the shape \(2, 16\)", {"classifier.weight": torch.zeros(2, 16)})
    refused("different names", firth_task=None, id2label={"0": "a", "1": "a", "2": "b"})
    refused("different names", firth_task=None, id2label={"0": "a"})
    refused("different names", firth_task=None, id2label=7)
    refused("which Firth does not know", architectures=["BertForMaskedLM"])


def test_damaged_configs_are_refused_with_one_sentence(tmp_path: Path) -> None:
    folder = put(task_model("bert", "classify"), tmp_path / "out")
    config = make_config(folder)
    odd: list[Any] = [None, 5, "x", [], ["x"], {}, {"0": 1}, {"0": "a", "1": "b", "2": []}, True, 1e300]
    changed = [{**config, key: value} for key in (*config, "firth_task") for value in odd]
    rng = np.random.default_rng(1)
    data = json.dumps(config).encode()
    texts = [json.dumps(one).encode() for one in changed]
    for _ in range(100):
        flipped = bytearray(data)
        flipped[rng.integers(len(data))] ^= 1 << rng.integers(8)
        texts.append(bytes(flipped))
    refused = 0
    for text in texts:
        (folder / "config.json").write_bytes(text)
        try:
            read_model(folder)
        except FirthError:  # and nothing else
            refused += 1
    assert 100 < refused < len(texts)


@pytest.mark.parametrize("stored", [None, 5, [], {"task": "tag"}, {"task": []}, {"type": "task", "task": "classify"}])
def test_a_stored_recipe_is_checked(stored: Any, tmp_path: Path) -> None:
    model = task_model("bert", "classify")
    folder = put(model, tmp_path / "out")
    (folder / "config.json").write_text(json.dumps(make_config(folder) | {"firth_task": stored}))
    back = read_model(folder)
    assert back.labels == LABELS
    assert flat(back.predict([LONG])[0]) == pytest.approx(flat(model.predict([LONG])[0]), abs=1e-6)


def test_a_model_without_a_language_modelling_head_is_imported(tmp_path: Path) -> None:
    tokenizer = THEIR_TOKENIZERS["bert"]()
    foreign("bert", tmp_path / "theirs", len(tokenizer))
    body = transformers.AutoModel.from_pretrained(tmp_path / "theirs").eval()
    (tmp_path / "theirs" / "model.safetensors").unlink()
    body.save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    done = firth("import", "huggingface", tmp_path / "theirs", "-o", tmp_path / "ours", "--json")
    assert done.code == 0, done.err
    assert "train it with firth adapt" in done.err
    assert done.json["new"]
    assert all(name.startswith("cls.predictions.") for name in done.json["new"])
    model, again = load(tmp_path / "ours"), read_model(tmp_path / "theirs")
    ids = tokenizer(MIDDLE, return_tensors="pt")
    with torch.no_grad():
        expected = body(**ids).last_hidden_state[0, 1:-1].mean(0)
    assert model.embed([MIDDLE])[0] == pytest.approx(expected.numpy(), abs=1e-5)
    for name, array in model.arrays().items():
        assert np.array_equal(array, again.arrays()[name]), name


@pytest.mark.parametrize(
    ("pooling", "module", "message"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "Normalize", "--pooling whole --unit"),
        ({"pooling_mode_cls_token": True}, "Normalize", "--pooling first --unit"),
        ({"pooling_mode": "mean"}, "Pooling", "--pooling whole"),
        ({"pooling_mode_max_tokens": True}, "Normalize", None),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "Normalize", None),
        ({"pooling_mode_mean_tokens": True}, "Dense", None),
        ({}, "Normalize", None),
    ],
    ids=str,
)
def test_sentence_models_report_their_embed_options(
    pooling: dict[str, Any], module: str, message: str | None, tmp_path: Path
) -> None:
    tokenizer = THEIR_TOKENIZERS["bert"]()
    foreign("bert", tmp_path / "theirs", len(tokenizer))
    tokenizer.save_pretrained(tmp_path / "theirs")
    types = ["Transformer", module, "Pooling"]
    modules = [{"path": "1_Pooling", "type": f"sentence_transformers.models.{one}"} for one in types]
    (tmp_path / "theirs/modules.json").write_text(json.dumps(modules))
    (tmp_path / "theirs/1_Pooling").mkdir()
    (tmp_path / "theirs/1_Pooling/config.json").write_text(json.dumps(pooling))
    done = firth("import", "huggingface", tmp_path / "theirs", "-o", tmp_path / "ours", "--json")
    assert done.code == 0, done.err
    if message is None:
        assert "sentences" not in done.json
    else:
        assert done.err.strip().endswith(f"firth embed {message}")


def test_stored_recipes_are_complete(tmp_path: Path) -> None:
    """All task settings are restored, not only those with a key in config.json."""
    model = task_model("roberta", "span", max_length=7, stride=5, no_answer_threshold=0.25, allow_no_answer=True)
    back = read_model(put(model, tmp_path / "out"))
    assert isinstance(back.recipe, TaskRecipe)
    assert replace(back.recipe, network=model.recipe.network) == model.recipe
