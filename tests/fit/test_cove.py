"""CoVe: trained on pairs, it translates, scores and gives features for tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import firth
from firth.abilities import total
from firth.artifact.models import load
from firth.errors import AbilityError
from firth.fit.finetune import finetune
from firth.nets.seq2seq import Seq2SeqNet
from tests.command import firth as command
from tests.fit.small_nets import sentences

SETTINGS = {
    "tokenizer.min_count": 1,
    "embedding.width": 24,
    "encoder.width": 32,
    "decoder.width": 32,
    "embedding.dropout": 0,
    "encoder.dropout": 0,
    "decoder.dropout": 0,
    "sequence.length": 10,
    "learning.batch": 64,
    "learning.lr": 0.01,
}


def make_pairs(count: int) -> list[tuple[str, str]]:
    """Three words each, and the same words in the other language and in reversed order."""
    words = np.random.default_rng(0).integers(0, 8, (count, 3)).tolist()
    return [(" ".join(f"w{one}" for one in row), " ".join(f"v{one}" for one in row[::-1])) for row in words]


PAIRS = make_pairs(1000)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained to write three words in another language and in reversed order."""
    folder = tmp_path_factory.mktemp("cove")
    path = folder / "pairs.tsv"
    path.write_text("\n".join(["xx\tyy", *("\t".join(pair) for pair in PAIRS[:980])]) + "\n")
    firth.train("cove", path, out=folder / "m", settings=SETTINGS, budget="90ktok", threads=1)
    return folder / "m"


def test_it_translates_by_beam_search(model: Path) -> None:
    made = load(model)
    assert isinstance(made, Seq2SeqNet)
    found = made.translate([source for source, _ in PAIRS[980:]], beams=3)
    right = [one.text == target for one, (_, target) in zip(found, PAIRS[980:], strict=True)]
    assert np.mean(right) > 0.8, [one.text for one in found[:3]]
    greedy = made.translate([PAIRS[0][0]], beams=1)[0]
    (score,) = made.score_pairs([(PAIRS[0][0], greedy.text)])
    assert greedy.logprob == pytest.approx(score.logprob, abs=1e-4)
    line = command("generate", model, "--source", PAIRS[980][0])
    assert line.code == 0
    assert line.out.strip() == made.translate([PAIRS[980][0]])[0].text


def test_right_targets_score_higher(model: Path) -> None:
    made = load(model)
    assert isinstance(made, Seq2SeqNet)
    right = total(list(made.score_pairs(PAIRS[980:])))
    sources, targets = zip(*PAIRS[980:], strict=True)
    shifted = targets[1:] + targets[:1]
    wrong = total(list(made.score_pairs(list(zip(sources, shifted, strict=True)))))
    assert right.bits_per_byte < wrong.bits_per_byte / 2


def test_features_are_the_vectors_and_the_states_of_words(model: Path, tmp_path: Path) -> None:
    examples = [(str(int("w3" in line.split())), line) for line in sentences(80, seed=5)]
    settings = ["learning.epochs=30", "learning.lr=0.01", "head.width=16"]
    done = finetune(
        model, "classify", train=examples[:60], dev=examples[60:], out=tmp_path / "t", settings=settings, threads=1
    )
    recipe = load(tmp_path / "t").recipe
    assert recipe.strategy == "features"
    assert recipe.head.layers == "ends"
    assert recipe.network.decoder is None
    arrays = dict(load(tmp_path / "t").arrays())
    weights = [name for name in arrays if name.startswith("heads.classify.head.encoder") and "input.weight" in name]
    assert {arrays[name].shape[1] for name in weights} == {24 + 32}
    before = dict(load(model).arrays())
    assert all(np.array_equal(before[name], arrays[name]) for name in before if name.startswith("encoders"))
    right = [
        one["label"] == label for one, (label, _) in zip(done.predict([t for _, t in examples]), examples, strict=True)
    ]
    assert np.mean(right) > 0.8


def test_without_an_encoder_of_the_head_both_ends_are_classified(model: Path, tmp_path: Path) -> None:
    examples = [(str(int("w3" in line.split())), line) for line in sentences(60, seed=5)]
    settings = ["head.encoder=none", "head.pooling=mean", "learning.epochs=1"]
    finetune(
        model, "classify", train=examples[:40], dev=examples[40:], out=tmp_path / "t", settings=settings, threads=1
    )
    assert dict(load(tmp_path / "t").arrays())["heads.classify.head.classifier.weight"].shape == (2, 24 + 32)


def test_it_embeds_by_its_encoder(model: Path) -> None:
    made = load(model)
    texts = ["w1 w4 w13", "w2"]
    assert made.embed(texts).shape == (2, 32)
    assert made.embed(texts, layer=0).shape == (2, 24)
    assert made.embed(texts, layer="all").shape == (2, 24 + 32 + 32)
    together, alone = made.embed(["w1 w4 w13", "w2"]), made.embed(["w1 w4 w13"])
    assert np.allclose(together[0], alone[0], atol=1e-6)


def test_it_is_fine_tuned_to_generate_with_its_own_decoder(model: Path, tmp_path: Path) -> None:
    settings = ["learning.epochs=1", "beams=2"]
    done = finetune(
        model, "generate", train=PAIRS[:40], dev=PAIRS[980:], out=tmp_path / "g", settings=settings, threads=1
    )
    assert len(done.predict([PAIRS[980][0]])) == 1


def test_ulmfit_refuses_parallel_text(model: Path, tmp_path: Path) -> None:
    examples = [("a", "w1"), ("b", "w2")]
    with pytest.raises(AbilityError, match="parallel text"):
        finetune(model, "classify", train=examples, dev=examples, out=tmp_path / "t", strategy="ulmfit")


def test_it_is_no_model_of_hugging_face(model: Path, tmp_path: Path) -> None:
    found = command("export", model, "huggingface", tmp_path / "hf")
    assert found.code == 1
    assert "Hugging Face has no such model" in found.err
