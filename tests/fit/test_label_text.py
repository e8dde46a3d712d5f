"""Labels as text: T5 is fine-tuned to write them, and they are compared by their probabilities."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from firth.artifact.models import load
from firth.errors import RecipeError
from firth.fit import trainer as trainers
from firth.fit.finetune import finetune
from firth.fit.train import train
from firth.metrics.measure import measure
from firth.tasks.examples import TextExample
from firth.tasks.label_text import LabelTextTask, number_labels
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, UNK
from tests.command import assert_refused, firth
from tests.contracts.test_tasks import TEXT, make_examples
from tests.fit.test_restoring import DROPOUTS, SMALL

CALM = [f"{net}.{one}=0" for net in ("network", "decoder") for one in DROPOUTS]
QUICK = ["learning.epochs=40", "learning.batch=4", "learning.lr=0.004", *CALM]
STILL = ["learning.lr=1e-12", "learning.weight_decay=0", "learning.epochs=1"]
TEXTS = ["Ann has a red car .", "Bob has a car .", "a red"]
NESTED = ["red", "red car", "red car has", "car"]  # the first begins the second


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("labels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        for name in ("t5", "bart", "mass", "bert"):
            settings = SMALL if name != "bert" else [one for one in SMALL if not one.startswith("decoder")]
            if name == "bert":
                settings = [one for one in settings if "sentinels" not in one]
            train(name, TEXT, out=folder / name, settings=settings, budget="10ktok", threads=1, reload=False)
        yield folder


def tune(model: Path, examples: list[Any], out: Path, settings: list[str], task: str = "classify", **more: Any) -> Any:
    return finetune(model, task, train=examples, dev=examples, out=out, settings=settings, threads=1, **more)


def label_logprob(model: Any, text: str, label: str, masked: bool = True) -> float:
    """By the logits of the model as a whole, without the layers of a task or a cache.

    Special tokens have no probability in use; in training they do.
    """
    source, target = model.tokenizer.encode(text).ids, [*model.tokenizer.encode(label).ids, EOS]
    logits = model.logits(torch.tensor([[EOS, *target[:-1]]]), torch.tensor([[BOS, *source, EOS]]))[0].double()
    if masked:
        logits[:, [token for token in range(FIRST_WORD) if token not in (UNK, EOS)]] = -torch.inf
    return float(logits.log_softmax(-1).gather(1, torch.tensor(target)[:, None]).sum())


@pytest.mark.parametrize("chunk", [1 << 20, 1])
def test_scores_are_the_probabilities_of_labels_and_their_ends(
    chunk: int, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is learnt yet, so they are those of the pre-trained model; any number of labels is scored at once."""
    monkeypatch.setattr("firth.tasks.label_text.BATCH_TOKENS", chunk)
    given = [(label, text) for label, text in zip(NESTED, [*TEXTS, TEXTS[0]], strict=True)]
    tuned = tune(models / "t5", given, tmp_path / "m", STILL)
    assert isinstance(tuned.head, LabelTextTask)
    assert tuned.labels == tuple(sorted(NESTED))
    model = load(models / "t5")
    for text, found in zip(TEXTS, tuned.predict(TEXTS), strict=True):
        logs = np.array([label_logprob(model, text, label) for label in tuned.labels])
        expected = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
        assert np.allclose([found["probabilities"][label] for label in tuned.labels], expected, atol=1e-5)
        assert found["label"] == tuned.labels[int(expected.argmax())]
        assert found["probability"] == max(found["probabilities"].values())
    alone = [tuned.predict([text])[0]["probability"] for text in TEXTS]
    assert np.allclose(alone, [one["probability"] for one in tuned.predict(TEXTS)], atol=1e-6)


def test_labels_that_begin_with_each_other_are_learnt(models: Path, tmp_path: Path) -> None:
    given = list(zip(NESTED, ["Ann has a car .", "Bob has a red car .", "Ann has", "a red car"], strict=True))
    tuned = tune(models / "t5", given, tmp_path / "m", QUICK)
    found = tuned.predict([text for _, text in given])
    assert [one["label"] for one in found] == NESTED
    assert all(one["probability"] > 0.8 for one in found)
    assert load(tmp_path / "m").predict([text for _, text in given]) == found


def test_the_loss_is_that_of_the_label(models: Path, tmp_path: Path) -> None:
    tuned = tune(models / "t5", [("red car", TEXTS[0]), ("car", TEXTS[1])], tmp_path / "m", STILL)
    task, model = tuned.head, load(models / "t5")
    built = task.sequences([TextExample(TEXTS[0], labels=("red car",))], tuned.builder)
    ((_, batch, states),) = task.encode(tuned.base.network, built)
    loss = task.loss(tuned.base.network, states, batch, None)
    assert loss.count == 3
    assert float(loss.total.detach()) == pytest.approx(-label_logprob(model, TEXTS[0], "red car", False), abs=1e-5)


def test_pairs_and_numbers(models: Path, tmp_path: Path) -> None:
    """Numbers are written as the nearest of at most 26 at equal distances; the likeliest is predicted."""
    pairs = [(label.replace("same", "red").replace("other", "car"), *texts) for label, *texts in make_examples("pair")]
    tuned = tune(models / "t5", pairs, tmp_path / "p", [*QUICK, "learning.epochs=100"], task="pair")
    assert [one["label"] for one in tuned.predict([texts for _, *texts in pairs])] == [label for label, *_ in pairs]
    numbers = [str(value / 10) for value in range(0, 50, 2)]
    assert number_labels(map(float, numbers))[-1] == "4.8"
    assert number_labels([1.0, 5.0]) == tuple(f"{1 + number / 5:.1f}" for number in range(21))  # as in T5
    assert number_labels([-0.1, 0.9])[:2] == ("-0.10", "-0.05")


def test_similarities_are_numbers(models: Path, tmp_path: Path) -> None:
    """The words of this tokenizer are too few to tell numbers apart, so their texts are learnt first."""
    text = [" ".join(str(value / 10) for value in range(0, 50, 2))]
    train("t5", [*TEXT, *text * 20], out=tmp_path / "t5", settings=SMALL, budget="2ktok", threads=1, reload=False)
    given = [(str(value / 10), f"Ann has {value / 10}", "a car") for value in range(0, 50, 2)]
    tuned = tune(tmp_path / "t5", given, tmp_path / "m", ["learning.epochs=1", *CALM], task="pair")
    assert (tuned.recipe.form, len(tuned.labels)) == ("number", 25)
    answers = tuned.predict([texts for _, *texts in given])
    assert {f"{one['score']:.1f}" for one in answers} <= set(tuned.labels)
    found = measure(*tuned.metric_inputs([TextExample("a", "b", (label,)) for label, *_ in given], answers), samples=0)
    assert "spearman" in found


def test_an_interrupted_run_ends_the_same(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, few = make_examples("classify"), ["learning.epochs=8", "learning.batch=4"]
    whole = dict(tune(models / "t5", given, tmp_path / "whole", few).arrays())
    steps = trainers.NetTrainer.steps

    def stop(trainer: Any) -> Any:
        for number, step in enumerate(steps(trainer)):
            yield step
            if number == 3:
                trainer.save()
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainers.NetTrainer, "steps", stop)
        with pytest.raises(KeyboardInterrupt):
            tune(models / "t5", given, tmp_path / "parts", few)
    parts = dict(tune(models / "t5", given, tmp_path / "parts", few, resume=True).arrays())
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)


def test_the_setting_and_the_model_decide(models: Path, tmp_path: Path) -> None:
    """Of T5 labels are text, of BART a layer, unless the setting says otherwise; what was tuned before goes on."""
    given = make_examples("classify")
    few = ["learning.epochs=1"]
    assert tune(models / "bart", given, tmp_path / "a", few).recipe.decoder is None
    for name in ("bart", "mass"):
        written = tune(models / name, given, tmp_path / f"b-{name}", [*few, "head.answer=text"])
        assert isinstance(written.head, LabelTextTask)
    assert tune(models / "t5", given, tmp_path / "c", [*few, "head.answer=pooled"]).recipe.decoder is None
    tuned = tune(models / "t5", given, tmp_path / "d", few)
    again = tune(tmp_path / "d", given, tmp_path / "e", STILL)
    assert isinstance(again.head, LabelTextTask)
    texts = [text for _, text in given]
    for one, two in zip(tuned.predict(texts), again.predict(texts), strict=True):
        assert one["probabilities"] == pytest.approx(two["probabilities"], abs=1e-6)


def test_what_cannot_be_written_is_refused(models: Path, tmp_path: Path) -> None:
    given = make_examples("classify")
    for message, examples, settings in (
        ("one for each text", [{"labels": [label, "red"], "text": text} for label, text in given], []),
        ("'oh' and 'uh' are the same tokens", [("oh", "a car"), ("uh", "a red car")], []),
        ("not weighted", given, ["head.balanced=true"]),
        ("not weighted", given, ["head.label_smoothing=0.1"]),
    ):
        with pytest.raises(RecipeError, match=message):
            tune(models / "t5", examples, tmp_path / "m", settings)
    with pytest.raises(RecipeError, match="needs a decoder"):
        tune(models / "bert", given, tmp_path / "m", ["head.answer=text"])
    with pytest.raises(RecipeError, match="generates no text"):
        tune(models / "t5", given, tmp_path / "m", [], decoder=models / "t5")
    tags = make_examples("tag")
    with pytest.raises(RecipeError, match="not for tag"):
        tune(models / "t5", tags, tmp_path / "m", ["head.answer=text"], task="tag")


def test_the_commands(models: Path, tmp_path: Path) -> None:
    given = tmp_path / "train.tsv"
    given.write_text("label\ttext_a\n" + "".join(f"{label}\t{text}\n" for label, text in make_examples("classify")))
    out, settings = tmp_path / "out", [part for one in QUICK for part in ("--set", one)]
    shown = firth("finetune", models / "t5", "classify", "--train", given, "--dev", given, "-o", out, *settings)
    assert shown.code == 0, shown.err
    predicted = [json.loads(line) for line in firth("predict", out, given).out.splitlines()]
    assert [one["label"] for one in predicted] == [label for label, _ in make_examples("classify")]
    assert firth("evaluate", out, "task", given, "--json").json["accuracy"] == 1.0
    assert firth("embed", out, given, "-o", tmp_path / "vectors.npy").code == 0
    assert_refused(firth("export", out, "huggingface", tmp_path / "hf"), "token vectors of their own")
