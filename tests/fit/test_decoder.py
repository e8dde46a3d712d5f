"""Fine-tuning two networks: one reads, the other writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.models import load
from firth.errors import AbilityError, RecipeError
from firth.fit import trainer as trainers
from firth.fit.finetune import finetune
from firth.fit.train import train
from tests.command import firth
from tests.contracts.test_tasks import MODELS, TEXT, main_metric, make_examples

QUICK = ["learning.epochs=120", "learning.batch=4", "learning.lr=0.004", "beams=2", "max_length=4", "head.dropout=0"]
CALM = [f"{net}.{part}.dropout=0" for net in ("network", "decoder") for part in ("encoder", "embedding")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        for name, settings in MODELS.items():
            if name in ("bert", "gpt", "elmo", "lstm"):
                given: dict[str, Any] = {"settings": settings, "budget": "10ktok", "threads": 1, "reload": False}
                if name != "bert":  # the tokens of the first
                    given |= {"tokenizer": folder / "bert", "settings": settings[2:]}
                train(name, TEXT, out=folder / name, **given)
        train("gpt", TEXT[:1], out=folder / "other", settings=MODELS["gpt"], budget="1ktok", threads=1, reload=False)
        yield {path.name: path for path in folder.iterdir() if path.name != "cache"}


def tune(models: dict[str, Path], out: Path, *, reader: str = "bert", decoder: str = "gpt", **more: Any) -> Any:
    given = make_examples("generate")
    settings = [*QUICK, *CALM, *more.pop("settings", [])]
    paths: dict[str, Any] = {"decoder": models[decoder], "train": given, "dev": given, "out": out}
    return finetune(models[reader], "generate", **paths, settings=settings, threads=1, **more)


@pytest.mark.parametrize(("reader", "decoder"), [("bert", "gpt"), ("bert", "bert"), ("elmo", "gpt"), ("lstm", "gpt")])
def test_a_few_targets_are_memorised(reader: str, decoder: str, models: dict[str, Path], tmp_path: Path) -> None:
    tuned = tune(models, tmp_path / "m", reader=reader, decoder=decoder)
    asked = [source for source, _ in make_examples("generate")]
    predictions = tuned.predict(asked)
    assert [one["text"] for one in predictions] == [target for _, target in make_examples("generate")]
    again = load(tmp_path / "m")
    assert again.predict(asked) == predictions
    alone = [again.predict([source])[0] for source in asked]
    assert [one["text"] for one in alone] == [one["text"] for one in predictions]
    assert np.allclose([one["logprob"] for one in alone], [one["logprob"] for one in predictions], atol=1e-5)


def test_encoder_and_decoder_start_from_pretrained_weights(models: dict[str, Path], tmp_path: Path) -> None:
    still = ["learning.lr=1e-12", "learning.weight_decay=0", "learning.epochs=1"]
    found = dict(tune(models, tmp_path / "m", settings=still).arrays())
    writes, reads = load(models["gpt"]).arrays(), load(models["bert"]).arrays()
    for name, array in writes.items():
        if name not in ("counts", "spelling"):
            assert np.allclose(found[f"heads.generate.decoder.{name}"], array, atol=1e-6), name
    assert all(np.allclose(found[name], array, atol=1e-6) for name, array in reads.items() if "heads" not in name)
    other = dict(tune(models, tmp_path / "r", settings=still, random=True).arrays())
    name = "heads.generate.decoder.encoders.0.layers.0.attention.qkv.weight"
    assert not np.allclose(other[name], found[name], atol=1e-3)
    look = "heads.generate.decoder.encoders.0.layers.0.cross_attention.query.weight"
    seeded = dict(tune(models, tmp_path / "s", settings=still, seed=1).arrays())
    assert not np.allclose(seeded[look], found[look], atol=1e-3), "what is new should depend on the seed"


def test_a_frozen_reader_stays_as_it_was(models: dict[str, Path], tmp_path: Path) -> None:
    found = dict(tune(models, tmp_path / "m", strategy="frozen", settings=["learning.epochs=3"]).arrays())
    for name, array in load(models["bert"]).arrays().items():
        if not name.startswith("heads"):
            assert np.array_equal(found[name], array), name
    assert not np.array_equal(
        found["heads.generate.decoder.embedding.tokens.weight"], load(models["gpt"]).arrays()["embedding.tokens.weight"]
    )


def test_a_run_that_was_interrupted_ends_the_same(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ["learning.epochs=8"]
    whole = dict(tune(models, tmp_path / "whole", settings=few).arrays())
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
            tune(models, tmp_path / "parts", settings=few)
    parts = dict(tune(models, tmp_path / "parts", settings=few, resume=True).arrays())
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)


def test_incompatible_models_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="other tokens than the encoder: train it with tokenizer"):
        tune(models, tmp_path / "a", decoder="other")
    with pytest.raises(AbilityError, match="only a Transformer can attend to another network"):
        tune(models, tmp_path / "b", decoder="lstm")
    given = make_examples("classify")
    with pytest.raises(RecipeError, match="classify generates no text: leave decoder out"):
        finetune(models["bert"], "classify", train=given, dev=given, out=tmp_path / "c", decoder=models["gpt"])
    with pytest.raises(RecipeError, match="a text alone has no encoder states"):
        train("gpt", TEXT, out=tmp_path / "d", settings=[*MODELS["gpt"], "encoder.cross_width=8"], budget="1ktok")


def test_the_verbs(models: dict[str, Path], tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    lines = [f"{one}\t{two}\n" for one, two in make_examples("generate")]
    pairs.write_text("long\tshort\n" + "".join(lines), encoding="utf-8")
    settings = [word for one in [*QUICK, *CALM, "learning.epochs=2"] for word in ("--set", one)]
    made = firth(
        *("finetune", models["bert"], "generate", "--decoder", models["gpt"], "--train", pairs, "--dev", pairs),
        *(*settings, "-o", tmp_path / "m", "--threads", 1, "--json"),
    )
    assert made.code == 0, made.err
    assert made.json["recipe"]["decoder"]["encoder"]["cross_width"] == 32
    assert firth("predict", tmp_path / "m", pairs, "-o", tmp_path / "out.jsonl").code == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 4
    predictions = firth("evaluate", tmp_path / "m", "task", pairs, "--json").json
    assert main_metric(predictions) == pytest.approx(main_metric(made.json["metrics"]["dev"]))
    refused = firth("export", tmp_path / "m", "huggingface", tmp_path / "hf")
    assert refused.code == 1
    assert "firth predict" in refused.err
    assert firth("verify", tmp_path / "m").code == 0
