"""Softmax over all tokens against torch's, in chunks, with gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as f
from torch import Tensor

from firth.errors import RecipeError
from firth.nets.embedding import Embedding
from firth.nets.network import make_output
from firth.nets.outputs import softmax
from firth.nets.outputs.output import NEVER_PREDICTED, OutputLayer
from firth.nets.outputs.softmax import cross_entropy
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, OutputRecipe

WORDS, WIDTH, PLACES = 23, 8, 50


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seven states at a time, so that the last piece is smaller."""
    monkeypatch.setattr(softmax, "_SCORES", 7 * WORDS)
    monkeypatch.setattr(softmax, "_MIN_STATES", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def recipe_of(kind: str = "full", width: int = WIDTH, embedding: int = WIDTH, **output: Any) -> NetRecipe:
    return NetRecipe(
        embedding=EmbeddingRecipe(width=embedding),
        encoder=EncoderRecipe(layers=1, width=width, heads=1, ffn_width=4),
        output=OutputRecipe(kind=kind, **output),  # type: ignore[arg-type]
    )


def make(recipe: NetRecipe, words: int = WORDS) -> tuple[OutputLayer, Embedding]:
    torch.manual_seed(0)
    embedding = Embedding(recipe, [""] * words)
    made = make_output(recipe, np.ones(words, dtype=np.int64), embedding)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter))
    return made, embedding


def sample(width: int = WIDTH) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    return torch.randn(PLACES, width, generator=random), torch.randint(5, WORDS, (PLACES,), generator=random)


KINDS = {
    "full": recipe_of(),
    "no bias": recipe_of(bias=False),
    "tied": recipe_of("tied"),
    "transform": recipe_of(transform=True),
    "bert": recipe_of("tied", transform=True),
    "albert": recipe_of("tied", transform=True, embedding=5),
    "direct": recipe_of("direct", width=WORDS, embedding=WORDS),
    "direct, with room": recipe_of("direct", width=WORDS + 2, embedding=WORDS + 2, bias=False),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_loss_and_its_gradients_are_those_of_cross_entropy(name: str) -> None:
    made, _ = make(KINDS[name])
    start, targets = sample(KINDS[name].encoder.width)
    found = []
    for ours in (True, False):
        states = start.clone().requires_grad_()
        made.zero_grad()
        whole = made.loss(states, targets) if ours else f.cross_entropy(made.logits(states), targets, reduction="sum")
        (whole / 3).backward()
        found.append([whole.detach(), states.grad, *(parameter.grad for parameter in made.parameters())])
    for one, other in zip(*found, strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("biased", [True, False])
def test_gradients_are_finite_differences(biased: bool) -> None:
    random = torch.Generator().manual_seed(4)
    sizes = [(11, 3), (9, 3), (9,)]
    states, weight, bias = (torch.randn(size, dtype=torch.float64, generator=random).requires_grad_() for size in sizes)
    targets = torch.randint(9, (11,), generator=random)
    if biased:
        assert torch.autograd.gradcheck(lambda s, w, b: cross_entropy(s, w, b, targets), (states, weight, bias))
    else:
        assert torch.autograd.gradcheck(lambda s, w: cross_entropy(s, w, None, targets), (states, weight))


def test_chunks_change_only_the_order_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = make(KINDS["full"])
    states, targets = sample()
    pieces = made.loss(states, targets)
    monkeypatch.setattr(softmax, "_SCORES", 1 << 22)
    torch.testing.assert_close(made.loss(states, targets), pieces)


def test_all_scores_are_never_held() -> None:
    made, _ = make(KINDS["full"])
    states, targets = sample()
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            found = func(*args, **(kwargs or {}))
            for one in found if isinstance(found, tuple | list) else [found]:
                if isinstance(one, Tensor) and one.ndim == 2 and one.shape[1] == WORDS:
                    largest = max(largest, len(one))
            return found

    with Watch():
        made.loss(states.requires_grad_(), targets).backward()
    assert 7 <= largest < PLACES


def test_no_gradients_are_computed_if_none_are_required() -> None:
    made, _ = make(KINDS["full"])
    states, targets = sample()
    with torch.no_grad():
        loss = made.loss(states, targets)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, f.cross_entropy(made.logits(states), targets, reduction="sum").detach())


def test_large_scores_do_not_overflow() -> None:
    states, targets = torch.tensor([[1000.0], [-1000.0]]), torch.tensor([0, 1])
    weight = torch.tensor([[1.0], [0.0]])
    assert float(cross_entropy(states, weight, None, targets)) == 0
    assert float(cross_entropy(states, weight, None, 1 - targets)) == 2000


def test_tied_weights_get_both_gradients() -> None:
    """The embedding's own gradient and that of the output add up."""
    made, embedding = make(KINDS["tied"])
    assert [name for name, _ in made.named_parameters()] == ["weight", "bias"]
    assert made.get_parameter("weight") is embedding.table
    ids, targets = torch.arange(5, 15)[None], torch.arange(6, 16)
    made.loss(embedding(ids)[0], targets).backward()
    whole = embedding.table.grad
    assert whole is not None
    table = embedding.table.detach().clone().requires_grad_()
    scores = f.linear(f.embedding(ids, table)[0], table, made.get_parameter("bias"))
    f.cross_entropy(scores, targets, reduction="sum").backward()
    assert table.grad is not None
    torch.testing.assert_close(whole, table.grad)


@pytest.mark.parametrize("name", KINDS)
def test_probabilities_are_normalised_over_predictable_tokens(name: str) -> None:
    made, _ = make(KINDS[name])
    states, targets = sample(KINDS[name].encoder.width)
    logs = made.log_probabilities(states.requires_grad_())
    torch.testing.assert_close(logs.exp().sum(1), torch.ones(PLACES))
    assert (logs[:, list(NEVER_PREDICTED)] == -torch.inf).all()
    torch.testing.assert_close(made.log_probability(states, targets), logs[torch.arange(PLACES), targets])
    assert (made.log_probability(states, torch.full_like(targets, NEVER_PREDICTED[0])) == -torch.inf).all()
    logs[torch.arange(PLACES), targets].sum().backward()
    assert states.grad is not None
    assert states.grad.isfinite().all()


def test_no_positions_have_no_loss() -> None:
    made, _ = make(KINDS["full"])
    nothing = torch.zeros(0, WIDTH, requires_grad=True)
    loss = made.loss(nothing, torch.zeros(0, dtype=torch.int64))
    loss.backward()
    assert float(loss.detach()) == 0
    assert made.log_probability(nothing, torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_flops_are_two_for_each_weight() -> None:
    assert make(KINDS["full"])[0].flops() == 2 * WORDS * WIDTH
    assert make(KINDS["albert"])[0].flops() == 2 * WORDS * 5 + 2 * WIDTH * 5
    assert make(KINDS["direct"])[0].flops() == 0


def test_widths_that_do_not_fit_are_refused_with_the_remedy() -> None:
    with pytest.raises(RecipeError, match=r"output\.transform=true"):
        make(recipe_of("tied", embedding=5))
    with pytest.raises(RecipeError, match=r"set embedding\.width and encoder\.width to 23"):
        make(recipe_of("direct"))
    characters = replace(recipe_of(), embedding=EmbeddingRecipe(width=WIDTH, characters=True))
    assert make(characters)[0].flops() == 2 * WORDS * WIDTH
