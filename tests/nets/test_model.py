"""Saving and restoring networks; wrong weights are refused in one sentence."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError
from firth.nets.model import own_tensors
from firth.nets.restore import make_model, restore_net
from firth.tokens.tokenizer import EOS
from tests.nets.small_nets import NETS, TEXTS, small_net, small_tokenizer
from tests.vectors.small_models import save_model

EVERY = pytest.mark.parametrize("name", NETS)


@EVERY
def test_saving_and_restoring(name: str, tmp_path: Path) -> None:
    model = small_net(name)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    again = load(save_model(model, tmp_path / "model"))
    assert torch.equal(torch.get_rng_state(), state), "loading draws random numbers"
    assert type(again) is type(model)
    assert again.recipe == model.recipe
    one, two = model.arrays(), again.arrays()
    assert one.keys() == two.keys()
    for key, array in one.items():
        np.testing.assert_array_equal(array, two[key], err_msg=key)
    if hasattr(model, "score"):
        assert again.score(TEXTS) == model.score(TEXTS)
    np.testing.assert_array_equal(again.embed(TEXTS), model.embed(TEXTS))


@EVERY
def test_every_parameter_is_saved_once(name: str) -> None:
    model = small_net(name)
    own = own_tensors(model.network)
    parameters = dict(model.network.named_parameters())
    assert parameters.keys() <= own.keys()
    assert len({id(tensor) for tensor in own.values()}) == len(own)
    every = {id(tensor) for tensor in model.network.state_dict(keep_vars=True).values()}
    assert {id(tensor) for tensor in own.values()} == every
    assert model.arrays().keys() == own.keys() | model.heads.keys() | {"counts", "spelling"}


def test_tied_and_shared_parameters_stay_so() -> None:
    for name in ("albert", "gpt"):
        model = small_net(name)
        again = restore_net(model.recipe, model.arrays(), model.tokenizer, "lines")
        assert len(list(again.network.parameters())) == len(list(model.network.parameters()))
        assert "output.weight" not in model.arrays()
    assert again.network.output.weight is again.network.embedding.tokens.weight


def test_layers_of_objectives_are_saved() -> None:
    model = small_net("bert")
    heads = {"heads.nsp.pooler.weight": torch.eye(16), "heads.nsp.pooler.bias": torch.zeros(16)}
    made = make_model(model.recipe, model.network, model.tokenizer, "lines", model.unknown_word_model, heads)
    again = restore_net(made.recipe, made.arrays(), made.tokenizer, "lines")
    assert again.heads.keys() == heads.keys()
    assert torch.equal(again.heads["heads.nsp.pooler.weight"], torch.eye(16))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: a.pop("embedding.tokens.weight"), "'embedding.tokens.weight' is missing"),
        (lambda a: a.pop("encoders.0.layers.1.norm2.bias"), "'encoders.0.layers.1.norm2.bias' is missing"),
        (lambda a: a.pop("counts"), "'counts' is missing"),
        (lambda a: a.pop("spelling"), "'spelling' is missing"),
        (lambda a: a.update({"output.bias": a["output.bias"][:-1]}), "'output.bias' has the shape"),
        (
            lambda a: a.update({"embedding.norm.bias": a["embedding.norm.bias"][None]}),
            "has the shape (1, 16), not (16,)",
        ),
        (lambda a: a.update({"output.bias": a["output.bias"].astype(np.float16)}), "of the type float16, not float32"),
        (lambda a: a.update({"output.extra": a["output.bias"]}), "no tensor 'output.extra'"),
        (lambda a: a.update({"counts": a["counts"][:-3]}), "tokens, but the weights are those of"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: object, said: str) -> None:
    model = small_net("bert")
    arrays = dict(model.arrays())
    change(arrays)  # type: ignore[operator]
    with pytest.raises(ArtifactError, match=re.escape(said)) as caught:
        restore_net(model.recipe, arrays, model.tokenizer, "lines")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_another_tokenizer_is_refused() -> None:
    model = small_net("bert")
    other = small_tokenizer("chars")
    with pytest.raises(ArtifactError, match=f"tokenizer.json has {len(other)} tokens, but the weights are those of"):
        restore_net(model.recipe, model.arrays(), other, "lines")


@pytest.mark.parametrize("name", ["bert", "lstm", "ffnn"])
def test_nothing_large_is_allocated_for_a_wrong_recipe(name: str) -> None:
    model = small_net(name)
    wide = replace(model.recipe.encoder, width=100_000, heads=1)
    recipe = replace(model.recipe, encoder=wide, embedding=replace(model.recipe.embedding, width=100_000))
    tracemalloc.start()
    with pytest.raises(ArtifactError, match="has the shape"):
        restore_net(recipe, model.arrays(), model.tokenizer, "lines")
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


def test_logits_of_a_batch_of_ids() -> None:
    model = small_net("bert", length=12)
    ids = torch.randint(5, 60, (3, 12), generator=torch.Generator().manual_seed(0))
    logits = model.logits(ids)
    assert logits.shape == (3, 12, len(model.words))
    torch.testing.assert_close(model.logits(ids[1:2, :7]), model.logits(ids[1:, :7])[:1])
    logits += 1  # it can be worked with


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (torch.zeros(1, 13, dtype=torch.int64), "has 12 positions, not 13"),
        (torch.full((1, 2), 10_000), "ids must be from 0 to"),
        (torch.full((1, 2), -1), "ids must be from 0 to"),
        (torch.zeros(3, dtype=torch.int64), "LongTensor \\(batch"),
        (torch.zeros(1, 0, dtype=torch.int64), "at least one"),
        (torch.zeros(1, 2), "LongTensor"),
    ],
)
def test_ids_that_cannot_be_read_are_refused(ids: torch.Tensor, said: str) -> None:
    with pytest.raises(AbilityError, match=said):
        small_net("bert", length=12).logits(ids)


def test_recurrent_networks_read_sequences_of_any_length() -> None:
    assert small_net("lstm", length=12).logits(torch.full((1, 50), EOS)).shape[1] == 50
