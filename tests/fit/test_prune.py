"""Pruning: what is removed is really gone, nothing removed changes nothing, and the least important goes first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import AbilityError, RecipeError
from firth.fit.compress.prune import (
    Importance,
    Kept,
    PruneOptions,
    choose,
    importance,
    keep_most,
    prune_network,
)
from firth.fit.compress.run import compress
from firth.fit.compress.vocabulary import cut_tokenizer
from firth.fit.finetune import finetune
from firth.nets.batch import Batch
from firth.nets.model import own_tensors
from firth.nets.recipe import EncoderRecipe
from firth.tokens.tokenizer import FIRST_WORD
from tests.fit.quick_card import quick_card as quick_card
from tests.fit.small_nets import sentences, small_bert
from tests.nets.small_nets import TEXTS, small_net, small_tokenizer

EXAMPLES = [(str(int("w3" in line.split())), line) for line in sentences(80, seed=5)]
TUNING = ["learning.epochs=2", "learning.batch=8", "learning.lr=0.005"]


def whole(model: Any) -> Kept:
    encoder = model.recipe.encoder
    heads, units = list(range(encoder.heads)), list(range(encoder.ffn_width))
    return Kept(list(range(encoder.layers)), [heads] * encoder.layers, [units] * encoder.layers)


def batch_of(model: Any) -> Batch:
    rows = torch.tensor(np.array([one[:6] for one in model.encode(TEXTS[:3])]))
    return Batch(rows, torch.ones_like(rows, dtype=torch.bool), tokens=rows.numel())


def test_pruning_nothing_changes_nothing() -> None:
    model = small_net("bert")
    same = prune_network(model, whole(model))
    assert same.recipe == model.recipe
    given = own_tensors(model.network)
    assert all(torch.equal(tensor, given[name]) for name, tensor in own_tensors(same.network).items())


def test_pruned_parts_are_gone_and_others_stay() -> None:
    """Without a head and units, the network computes what the whole one does if their output weights are zero."""
    model = small_net("bert")
    encoder = model.recipe.encoder
    size = encoder.width // encoder.heads
    kept = whole(model)
    heads = [list(range(1, encoder.heads)), *kept.heads[1:]]
    units = [kept.units[0][:5], *kept.units[1:]]
    small = prune_network(model, Kept(kept.layers, heads, units))
    tensors = own_tensors(small.network)
    assert tensors["encoders.0.layers.0.attention.qkv.weight"].shape == (3 * size * (encoder.heads - 1), encoder.width)
    assert tensors["encoders.0.layers.0.attention.out.weight"].shape == (encoder.width, size * (encoder.heads - 1))
    assert tensors["encoders.0.layers.0.feedforward.inner.weight"].shape == (5, encoder.width)
    assert tensors["encoders.0.layers.1.attention.qkv.weight"].shape == (3 * encoder.width, encoder.width)
    assert small.recipe.encoder.layer_sizes[0] == f"{encoder.heads - 1}x5"
    layer = model.network.encoders[0].layers[0]
    with torch.no_grad():
        layer.attention.out.weight[:, :size] = 0
        layer.feedforward.outer.weight[:, 5:] = 0
    batch = batch_of(model)
    with torch.inference_mode():
        wanted, found = (one.network(batch).last_hidden_state for one in (model, small))
    assert torch.allclose(wanted, found, atol=1e-5)
    twice = prune_network(small, Kept([0, 1], [[0], [1]], [[0, 2], [3]]))
    assert twice.recipe.encoder.layer_sizes == ("1x2", "1x1")


def test_a_layer_is_removed() -> None:
    model = small_net("bert")
    kept = whole(model)
    small = prune_network(model, Kept([1], kept.heads[1:], kept.units[1:]))
    assert small.recipe.encoder.layers == 1
    given, own = own_tensors(model.network), own_tensors(small.network)
    name = "encoders.0.layers.{}.attention.qkv.weight"
    assert torch.equal(own[name.format(0)], given[name.format(1)])


def test_importance_by_finite_differences() -> None:
    """d loss / d m of a factor m of the output of a head, against the difference of losses."""
    model = small_net("bert", length=8)
    network, batch = model.network.double(), batch_of(model)
    encoder = model.recipe.encoder
    size = encoder.width // encoder.heads

    torch.manual_seed(0)
    target = torch.randn(6, encoder.width, dtype=torch.float64)

    def loss(one: Batch) -> torch.Tensor:
        return (network(one).last_hidden_state * target).sum()

    one_row = Batch(batch.ids[:1], batch.word_starts[:1], tokens=6)
    found = importance(network, iter([one_row]), loss)
    weight, differences = network.encoders[0].layers[0].attention.out.weight, []
    for head in range(encoder.heads):
        columns, values = slice(head * size, (head + 1) * size), []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                before = weight[:, columns].clone()
                weight[:, columns] *= 1 + step
                values.append(loss(one_row).item())
                weight[:, columns] = before
        differences.append(abs(values[0] - values[1]) / 2e-5)
    wanted = np.array(differences) / np.linalg.norm(differences)
    assert found.heads[0] == pytest.approx(wanted, rel=1e-3)


def test_a_head_without_output_weights_is_pruned_first() -> None:
    model = small_net("bert")
    encoder = model.recipe.encoder
    size = encoder.width // encoder.heads
    with torch.no_grad():
        model.network.encoders[0].layers[1].attention.out.weight[:, size : 2 * size] = 0

    def loss(batch: Batch) -> torch.Tensor:
        return model.network(batch).last_hidden_state[:, 0].square().sum()

    found = importance(model.network, iter([batch_of(model)]), loss)
    assert found.heads[1][1] == 0
    fraction = 1 / (encoder.heads * encoder.layers)
    kept = choose(model, found, PruneOptions(heads=fraction, units=0.0, rounds=1), 1)
    assert [len(one) for one in kept.heads] == [encoder.heads, encoder.heads - 1]
    assert 1 not in kept.heads[1]
    assert all(parameter.grad is None for parameter in model.network.parameters())


def test_whole_layers_by_importance() -> None:
    model = small_net("bert")
    found = Importance([np.array([1.0, 1])] * 2, [np.ones(24)] * 2)
    with pytest.raises(RecipeError, match="at most 0"):
        choose(model, found, PruneOptions(layers=1, rounds=1), 1)


def test_rounds_remove_equal_fractions() -> None:
    scores = [np.arange(100.0)]
    first = keep_most(scores, 1 - 0.25**0.5)
    assert len(first[0]) == 50
    assert min(first[0]) == 50


@pytest.mark.parametrize("sizes", [("3x4",), ("9x4", "1x4"), ("0x4", "1x4"), ("ax4", "1x4"), ("1x4", "1x4", "1x4")])
def test_impossible_layer_sizes(sizes: tuple[str, ...]) -> None:
    with pytest.raises(RecipeError, match="layer_sizes"):
        EncoderRecipe(layers=2, width=16, heads=2, layer_sizes=sizes)


def test_a_cut_vocabulary_tokenizes_kept_texts_as_before() -> None:
    for kind in ("words", "wordpiece", "pieces", "chars"):
        tokenizer = small_tokenizer(kind)
        ids = tokenizer.encode(TEXTS[0]).ids
        used = np.zeros(len(tokenizer), dtype=np.bool_)
        used[ids] = True
        small, kept = cut_tokenizer(tokenizer, used)
        assert len(small) == len(kept) < len(tokenizer)
        assert [kept[one] for one in small.encode(TEXTS[0]).ids] == ids, kind
        assert kept[:FIRST_WORD] == list(range(FIRST_WORD))
    with pytest.raises(AbilityError, match="leave vocabulary=true out"):
        cut_tokenizer(small_tokenizer("bpe"), np.zeros(400, dtype=np.bool_))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("prune")
    with small_bert(home, "5ktok") as folder:
        given: dict[str, Any] = {"train": EXAMPLES[:60], "dev": EXAMPLES[60:], "threads": 1, "settings": TUNING}
        finetune(folder, "classify", out=home / "tuned", **given)
        yield home / "tuned"


def test_a_fine_tuned_model_is_pruned_and_trained(tuned: Path, tmp_path: Path) -> None:
    options = {"heads": 0.5, "units": 0.5, "rounds": 2, "batches": 4}
    given: dict[str, Any] = {"train": EXAMPLES[:60], "dev": EXAMPLES[60:], "threads": 1, "allow_slower": True}
    compress(tuned, method="prune", out=tmp_path / "small", settings=options, **given)
    small = load(tmp_path / "small")
    sizes = [one.split("x") for one in small.base.recipe.encoder.layer_sizes]
    assert sum(int(heads) for heads, _ in sizes) == 2
    assert sum(int(units) for _, units in sizes) == 32
    assert not (tmp_path / "small.compress").exists()
    lineage = open_artifact(tmp_path / "small").manifest.metrics["compression"]["lineage"]
    assert [one["method"] for one in lineage] == ["prune"]


def test_text_and_vocabulary(tuned: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "heads": 0.5,
        "units": 0.0,
        "rounds": 1,
        "batches": 2,
        "train": False,
        "vocabulary": True,
    }
    corpus = [line for line in sentences(200) if "w7" not in line.split()]
    given: dict[str, Any] = {"corpus": [corpus], "threads": 1, "allow_slower": True}
    small = compress(tuned.parent / "bert", method="prune", out=tmp_path / "s", settings=options, **given)
    assert "w7" not in small.words
    assert "w8" in small.words
    assert len(small.fill("w1 <mask>")[0]) == 5
