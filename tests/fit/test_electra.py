"""ELECTRA from training to use: shared tensors, adapting, fine-tuning, damaged weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import firth
from firth.artifact.tensors import map_tensors
from firth.errors import AbilityError, ArtifactError
from firth.fit.batches import Cursor
from firth.fit.loop import optimizer_step
from firth.nets.batch import Batch
from firth.nets.electra import ElectraNet
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe, OutputRecipe
from firth.nets.restore import make_model, restore_net
from firth.objectives.heads.build import make_heads
from firth.objectives.registry import parse_objectives
from firth.recipes.nets import electra, resize
from tests.fit.small_nets import make_run, masked, open_small, sentences, text

SETTINGS = [
    *("tokenizer=words", "tokenizer.min_count=1", "embedding.width=32", "encoder.width=32", "encoder.ffn_width=64"),
    *("encoder.layers=1", "encoder.heads=2", "sequence.length=24", "learning.lr=0.01", "learning.batch=256"),
    "rtd.generator.width=0.75",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("electra")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(home / "cache"))
        firth.train("electra", text(), out=home / "e", settings=SETTINGS, budget="5ktok", threads=1)
        yield home / "e"


def test_shared_tensors_are_saved_once(folder: Path) -> None:
    names = set(map_tensors(folder / "model.safetensors"))
    assert "embedding.tokens.weight" in names
    assert {name for name in names if name.startswith("heads.rtd.generator.embedding.")} == {
        "heads.rtd.generator.embedding.project.weight",
        "heads.rtd.generator.embedding.project.bias",
    }
    assert "heads.rtd.generator.output.weight" not in names
    assert not [name for name in names if name.startswith("output.")]
    model = firth.load(folder)
    assert isinstance(model, ElectraNet)
    assert model.generator.embedding.tokens is model.network.embedding.tokens
    assert model.generator.output.weight is model.network.embedding.table
    assert firth.verify(folder)["ok"]


def test_both_networks_learn_a_batch() -> None:
    """One batch is learnt by heart, so gradients reach both networks; losses begin at chance."""
    recipe = replace(masked(lr=0.01), objectives=parse_objectives("rtd"), output=OutputRecipe(kind="none"))
    trainer = open_small(recipe, make_run(budget="1ktok"))
    (batch,), _ = trainer.batches.step(Cursor())
    first: dict[str, float] = {}
    for step in range(200):
        sums, _ = optimizer_step(trainer.module, trainer.optimiser, [batch], 1.0, 0.01, 0, step)
        losses = {name: total / count for name, (total, count) in sums.items()}
        first = first or losses
    assert first["mlm"] == pytest.approx(np.log(20), abs=0.3)
    assert first["rtd"] == pytest.approx(np.log(2), abs=0.02)
    assert losses["mlm"] < 1.5
    assert losses["rtd"] < 0.2


def test_it_fills_scores_and_embeds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = firth.load(folder)
    line = sentences(1, seed=9)[0]
    filled = model.fill(line.replace(line.split()[1], "[MASK]", 1), 3)
    assert [one.token.startswith("w") for one in filled[0]] == [True] * 3
    with torch.no_grad():
        ids = torch.tensor([[2, *model.tokenizer.encode(line).ids, 3]])
        assert model.logits(ids).shape == (*ids.shape, len(model.words))
    masked = ids.clone()
    expected = 0.0
    for position in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, position] = 4
        logs = model.logits(masked)[0, position].clone()
        logs[[0, 2, 4]] = -torch.inf
        expected += float(logs.log_softmax(-1)[ids[0, position]])
    assert model.score([line])[0].logprob == pytest.approx(expected, abs=1e-4)
    assert "of the generator" in capsys.readouterr().err
    assert model.summary()["scores and fills"] == "generator"
    assert model.embed([line]).shape == (1, 32)
    assert len(model.layers([line])[0]) == 2
    assert model.similar("w3", 2)


def test_it_is_adapted_with_its_heads(folder: Path, tmp_path: Path) -> None:
    """Nothing changes with a learning rate of nearly 0."""
    old = firth.load(folder)
    still = ["learning.lr=1e-9"]
    same = firth.adapt(folder, text(90, seed=3), out=tmp_path / "a", budget="1tok", threads=1, settings=still)
    assert same.arrays().keys() == old.arrays().keys()
    for name, array in old.arrays().items():
        if name != "spelling":
            np.testing.assert_allclose(same.arrays()[name], array, atol=1e-6, err_msg=name)


def test_the_discriminator_is_fine_tuned(folder: Path, tmp_path: Path) -> None:
    lines = sentences(4, seed=5)
    given = [("yes" if number % 2 else "no", line) for number, line in enumerate(lines)]
    settings = ["learning.epochs=60", "learning.batch=64", "learning.lr=0.01"]
    tuned = firth.finetune(folder, "classify", train=given, dev=given, out=tmp_path / "m", settings=settings, threads=1)
    right = sum(one["label"] == label for one, (label, _) in zip(tuned.predict(lines), given, strict=True))
    assert right == 4
    assert firth.load(tmp_path / "m").predict(lines) == tuned.predict(lines)
    model = firth.load(folder)
    bare = make_model(model.recipe, model.network, model.tokenizer, "lines", model.unknown_word_model)
    with pytest.raises(AbilityError, match="no generator"):
        bare.fill("w1 [MASK]")  # type: ignore[attr-defined]
    with pytest.raises(AbilityError, match="without an output layer"):
        firth.finetune(folder, "generate", train=[("w1 w2", "w3")] * 4, dev=[("w1", "w2")], out=tmp_path / "g")


def test_damaged_generators_are_refused(folder: Path) -> None:
    model = firth.load(folder)
    arrays = {name: np.array(array) for name, array in model.arrays().items()}
    name = "heads.rtd.generator.output.bias"
    for changed, message in (
        ({key: array for key, array in arrays.items() if key != name}, "is missing"),
        (arrays | {name: arrays[name][1:]}, "shape"),
        (arrays | {name: arrays[name].astype(np.float64)}, "type"),
        (arrays | {"heads.rtd.generator.other": arrays[name]}, "has no tensor"),
    ):
        with pytest.raises(ArtifactError, match=message):
            restore_net(model.recipe, changed, model.tokenizer, "lines")


def test_a_bert_becomes_a_discriminator(tmp_path: Path) -> None:
    """Another objective in further training: the generator is new."""
    settings = [one for one in SETTINGS if not one.startswith(("learning", "rtd"))]
    firth.train("bert", text(), out=tmp_path / "b", settings=settings, budget="1ktok", threads=1)
    model = firth.adapt(
        tmp_path / "b", text(), out=tmp_path / "e", settings=["objectives=rtd"], budget="1ktok", threads=1
    )
    assert isinstance(model, ElectraNet)
    assert model.fill("w1 [MASK] w2", 1)


def test_heads_initialised_to_adjacent_tokens_share_the_positions() -> None:
    """Both networks attend to adjacent tokens at first, though their heads differ in size."""
    recipe = resize(electra(), "mini")
    recipe = replace(recipe, encoder=replace(recipe.encoder, init="adjacent", dropout=0.0, attention_dropout=0.0))
    assert isinstance(recipe, NetRecipe)
    network = build_network(recipe, Vocabulary([f"w{n}" for n in range(50)], np.ones(50, dtype=np.int64)), 1)
    before = network.embedding.positions.weight.clone()  # type: ignore[union-attr]
    torch.manual_seed(2)
    generator = make_heads(recipe, network)["rtd"].generator
    assert isinstance(generator, Network)
    assert torch.equal(network.embedding.positions.weight, before)  # type: ignore[union-attr]
    ids = torch.randint(5, 50, (1, 40), generator=torch.Generator().manual_seed(0))
    for one, least in ((network, 0.9), (generator, 0.5)):  # the generator's inputs are projected to a third
        with torch.no_grad():
            states = one.embedding(Batch(ids, ids > 0).ids)
            layer = one.encoders[0].layers[0].attention  # type: ignore[index, union-attr]
            size = one.recipe.encoder.width // one.recipe.encoder.heads
            queries, keys, _ = layer.qkv(states)[0].chunk(3, -1)  # type: ignore[operator, union-attr]
            scores = (queries[:, :size] @ keys[:, :size].T) / size**0.5  # the first head attends to the left
        hits = (scores[5:35].argmax(-1) == torch.arange(4, 34)).float().mean()
        assert hits > least
