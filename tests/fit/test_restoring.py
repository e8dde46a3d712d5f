"""Networks that restore text, trained, saved, fine-tuned to generate and to classify, and their noise measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.models import load
from firth.fit.finetune import finetune
from firth.fit.noise import noise, noise_rows
from firth.fit.train import train
from tests.command import assert_refused, firth
from tests.contracts.test_tasks import TEXT, make_examples

NAMES = ["bart", "t5", "mass"]
PART = ("width=32", "ffn_width=64", "layers=1", "heads=2")
SMALL = [
    *("tokenizer=words", "tokenizer.min_count=1", "tokenizer.sentinels=10", "embedding.width=32", "sequence.length=64"),
    *(f"{part}.{field}" for part in ("encoder", "decoder") for field in PART),
]
QUICK = ["learning.epochs=200", "learning.batch=4", "learning.lr=0.004", "beams=2", "max_length=4", "head.dropout=0"]
DROPOUTS = ("encoder.dropout", "encoder.attention_dropout", "embedding.dropout")
CALM = [f"{net}.{one}=0" for net in ("network", "decoder") for one in DROPOUTS]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("restoring")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        for name in NAMES:
            train(name, TEXT, out=folder / name, settings=SMALL, budget="20ktok", threads=1, reload=False)
        yield folder


def tune(models: Path, name: str, task: str, out: Path, settings: list[str]) -> Any:
    given = make_examples(task)
    return finetune(models / name, task, train=given, dev=given, out=out, settings=settings, threads=1)


@pytest.mark.parametrize("name", NAMES)
def test_they_learn_to_generate_with_their_own_decoder(name: str, models: Path, tmp_path: Path) -> None:
    tuned = tune(models, name, "generate", tmp_path / "m", [*QUICK, *CALM])
    asked = [source for source, _ in make_examples("generate")]
    predictions = tuned.predict(asked)
    assert [one["text"] for one in predictions] == [target for _, target in make_examples("generate")]
    assert load(tmp_path / "m").predict(asked) == predictions


@pytest.mark.parametrize("name", NAMES)
def test_fine_tuning_starts_from_both_halves(name: str, models: Path, tmp_path: Path) -> None:
    """Cross-attention, positions and norms of the decoder included."""
    still = ["learning.lr=1e-12", "learning.weight_decay=0", "learning.epochs=1"]
    found = dict(tune(models, name, "generate", tmp_path / "m", [*QUICK, *still]).arrays())
    given = load(models / name).arrays()
    assert any("cross_attention" in key for key in given)
    for key, array in given.items():
        if key.startswith("decoder."):
            theirs = f"heads.generate.decoder.encoders.0.{key.removeprefix('decoder.')}"
        elif key.startswith("decoder_embedding."):
            theirs = f"heads.generate.decoder.embedding.{key.removeprefix('decoder_embedding.')}"
        elif key.startswith(("embedding.", "encoders.")):
            theirs = key
        else:
            continue
        assert np.allclose(found[theirs], array, atol=1e-6), key
    table = found["heads.generate.decoder.embedding.tokens.weight"]
    assert np.allclose(table, given["embedding.tokens.weight"], atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_encoder_learns_a_task(name: str, models: Path, tmp_path: Path) -> None:
    tuned = tune(
        models, name, "classify", tmp_path / "m", ["learning.epochs=60", "learning.lr=0.004", "head.dropout=0"]
    )
    labels, texts = zip(*make_examples("classify"), strict=True)
    assert [one["label"] for one in tuned.predict(texts)] == list(labels)


@pytest.mark.parametrize("name", NAMES)
def test_models_are_used_from_the_command_line(name: str, models: Path, tmp_path: Path) -> None:
    model, text = models / name, tmp_path / "text.txt"
    text.write_text("Ann has a red car .\n", encoding="utf-8")
    assert firth("score", model, text, "--json").json["kind"] == "pseudo"
    assert len(firth("fill", model, "Ann has a [MASK] car .", "--json").json["masks"][0]) >= 1
    assert firth("generate", model, "--source", "Ann has a [MASK] car .", "--json").json["sources"] == 1
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\nAnn has\ta car\n", encoding="utf-8")
    assert firth("score", model, pairs, "--json").json["pairs"] == 1
    assert_refused(firth("generate", model, "--prompt", "Ann"), "give it with --source")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of sentences of made-up words."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("bdgklmnr"), 2)) + "".join(rng.choice(list("aeiou"), 3)) for _ in range(300)]
    documents = [
        "\n".join(" ".join(rng.choice(words, int(rng.integers(6, 20)))) for _ in range(int(rng.integers(10, 40))))
        for _ in range(120)
    ]
    path = tmp_path_factory.mktemp("noise") / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bart", []),
        ("bart", ["denoising.infill=0", "denoising.mask=0.15"]),
        ("bart", ["denoising.infill=0", "denoising.delete=0.2", "denoising.rotate=0.5"]),
        ("t5", []),
        ("t5", ["spans.style=bert"]),
        ("mass", []),
    ],
)
def test_measured_noise_is_that_stated(name: str, settings: list[str], corpus: Path) -> None:
    report = noise(
        name, str(corpus), settings=["tokenizer=words", "tokenizer.sentinels=100", *settings], layout="lines"
    )
    stated = 0
    for _, what, measured, expected in noise_rows(report["objectives"]):
        if expected is None:
            continue
        stated += 1
        assert measured is not None, what
        loose = {"mean span": 0.15, "rotated": 0.1, "chosen": 0.01}
        assert measured == pytest.approx(expected, abs=loose.get(what, 0.03)), what
    assert stated
