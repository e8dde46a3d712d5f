"""The Transformer: what it sees, what it shares, what it saves, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from firth.nets.encoders import attention
from firth.nets.encoders.attention import attend, look
from firth.nets.encoders.transformer import Attention, Transformer
from firth.nets.noise import Noise
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, RowsRecipe
from firth.nets.visibility import Asked, Sight, View

ROWS, LENGTH, WIDTH, HEADS = 3, 7, 8, 2


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small networks gain nothing by a second thread, and wait for it where the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=(1, 2, 3), autouse=True)
def _rows_at_a_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention for one row after another, for two and then the last, and for all at once."""
    monkeypatch.setattr(attention, "_WEIGHTS", request.param * HEADS * LENGTH * LENGTH)


def recipe_of(layers: int = 2, **encoder: Any) -> NetRecipe:
    return NetRecipe(
        embedding=EmbeddingRecipe(width=WIDTH),
        encoder=EncoderRecipe(layers=layers, width=WIDTH, heads=HEADS, inner=2 * WIDTH, **encoder),
        rows=RowsRecipe(length=LENGTH),
    )


def make(layers: int = 2, **encoder: Any) -> Transformer:
    torch.manual_seed(0)
    made = Transformer(recipe_of(layers, **encoder))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return made


def entered(seed: int = 1) -> Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed))


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


def by_hand(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    """One query after another, one head after another."""
    found = torch.zeros(q.shape[0], q.shape[2], q.shape[1], q.shape[3])
    for row in range(q.shape[0]):
        for head in range(q.shape[1]):
            for place in range(q.shape[2]):
                keys = range(k.shape[2]) if seen is None else seen[row, place].nonzero()[:, 0].tolist()
                scores = [
                    math.exp(float(q[row, head, place] @ k[row, head, key]) / math.sqrt(q.shape[3])) for key in keys
                ]
                for key, score in zip(keys, scores, strict=True):
                    found[row, place, head] += score / sum(scores) * v[row, head, key]
    return found.flatten(2)


PARTS = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, -1, -1], [0, 0, 0, 0, 0, 0, 0]])
VIEWS = {
    "bidirectional": View("bidirectional", (ROWS, LENGTH)),
    "causal": View("causal", (ROWS, LENGTH)),
    "before": View("before", (ROWS, LENGTH)),
    "parts": View("bidirectional", (ROWS, LENGTH), PARTS),
    "permuted parts": View(
        "causal",
        (ROWS, LENGTH),
        PARTS,
        torch.tensor([[2, 0, 1, 3, 5, 6, 4], [1, 0, 4, 3, 2, 5, 6], [6, 5, 4, 3, 2, 1, 0]]),
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_attention_is_what_the_equation_says(name: str) -> None:
    projected = torch.randn(ROWS, LENGTH, 3 * WIDTH, requires_grad=True)
    q, k, v = projected.detach().view(ROWS, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    seen = VIEWS[name].mask()
    expected = by_hand(q, k, v, None if seen is None else seen.expand(ROWS, -1, -1))
    sight = VIEWS[name].sight()
    close(attend(None, projected, HEADS, sight).detach(), expected)
    close(attend(None, projected.detach(), HEADS, sight), expected)
    close(look(q, k, v, sight), expected)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_gradients_of_attention_are_finite_differences(name: str, asks: bool, rate: float) -> None:
    torch.manual_seed(0)
    view, dtype = VIEWS[name], torch.float64
    if asks:
        asking = torch.randn(ROWS, LENGTH, WIDTH, dtype=dtype, requires_grad=True)
        seen = torch.randn(ROWS, LENGTH, 2 * WIDTH, dtype=dtype, requires_grad=True)

        def run(asking: Tensor, seen: Tensor) -> Tensor:
            return attend(asking, seen, HEADS, view.sight(dtype), rate, Noise(0, 1))

        assert torch.autograd.gradcheck(run, (asking, seen), fast_mode=True)
    else:
        seen = torch.randn(ROWS, LENGTH, 3 * WIDTH, dtype=dtype, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda x: attend(None, x, HEADS, view.sight(dtype), rate, Noise(0, 1)), (seen,), fast_mode=True
        )


def test_how_many_rows_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    projected = torch.randn(ROWS, LENGTH, 3 * WIDTH, requires_grad=True)
    found = []
    for weights in (1, 1 << 40):
        monkeypatch.setattr(attention, "_WEIGHTS", weights)
        found.append(attend(None, projected, HEADS, Sight(None), 0.3, Noise(1, 2)))
    close(found[0], found[1])
    assert not torch.allclose(found[0], attend(None, projected, HEADS, Sight(None), 0.0, Noise(1, 2)))


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_gradients_of_a_stack_are_finite_differences(norm: str) -> None:
    encoder = make(norm=norm, share="attention", dropout=0.2, attention_dropout=0.2).double()
    start = entered().double().requires_grad_()
    places = torch.tensor([0, 3, 8, 20])
    names = [name for name, _ in encoder.named_parameters()]

    def run(start: Tensor, *parameters: Tensor) -> Tensor:
        view = View("causal", (ROWS, LENGTH), PARTS, noise=Noise(0, 1))
        made = torch.func.functional_call(encoder, dict(zip(names, parameters, strict=True)), (start, view, places))
        return made[1].sin().sum()  # type: ignore[no-any-return]

    # `functional_call` puts parameters in place by name; a sum of sines has no symmetry to hide behind.
    assert torch.autograd.gradcheck(run, (start, *encoder.parameters()), fast_mode=True)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("name", ["bidirectional", "causal", "parts"])
@pytest.mark.parametrize("places", [[0], [1, 2, 9], [2, 7, 8, 9, 10, 11, 12, 13], list(range(20)), list(range(21)), []])
def test_states_of_some_places_are_those_of_the_whole(norm: str, name: str, places: list[int]) -> None:
    encoder, start = make(norm=norm), entered().requires_grad_()
    view = replace(VIEWS[name])
    layers, everything = encoder(start, view)
    some_layers, some = encoder(start, view, torch.tensor(places, dtype=torch.int64))
    close(some, everything[places])
    assert len(some_layers) == len(layers) - 1
    with torch.no_grad():
        close(encoder(start, view, torch.tensor(places, dtype=torch.int64))[1], everything[places])


def test_gradients_of_some_places_are_those_of_the_whole() -> None:
    encoder, places = make(norm="pre"), torch.tensor([1, 2, 9])
    gradients = []
    for asked in (places, None):
        encoder.zero_grad()
        _, last = encoder(entered(), VIEWS["parts"], asked)
        (last if asked is not None else last[places]).cos().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in encoder.parameters() if parameter.grad is not None])
    for one, other in zip(*gradients, strict=True):
        close(one, other)


def sees(view: View, encoder: Transformer, changed: int) -> Tensor:
    """Which places of the first row notice a change of one of them."""
    one, other = entered(), entered()
    other[0, changed] = other[0, changed].flip(0)
    return (encoder(one, view)[0][-1] - encoder(other, view)[0][-1])[0].abs().amax(-1) > 0


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_future_does_not_matter(norm: str) -> None:
    encoder = make(norm=norm)
    places = torch.arange(LENGTH)
    for changed in range(LENGTH):
        assert torch.equal(sees(View("causal", (ROWS, LENGTH)), encoder, changed), places >= changed)
        assert torch.equal(sees(View("anticausal", (ROWS, LENGTH)), encoder, changed), places <= changed)
        assert sees(View("bidirectional", (ROWS, LENGTH)), encoder, changed).all()


def test_parts_never_see_each_other() -> None:
    encoder = make()
    for changed in range(LENGTH):
        assert torch.equal(sees(VIEWS["parts"], encoder, changed), PARTS[0] == PARTS[0, changed])


def test_packed_parts_are_as_if_alone() -> None:
    encoder, start = make(), entered()
    packed = encoder(start, VIEWS["parts"])[0][-1]
    alone = encoder(start[:1, 3:], View("bidirectional", (1, 4)))[0][-1]
    close(packed[0, 3:], alone[0])


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("share", ["none", "all", "attention", "feed-forward"])
def test_new_places_are_as_in_the_whole(norm: str, share: str) -> None:
    encoder, start = make(layers=3, norm=norm, share=share), entered()
    whole = encoder(start, View("causal", (ROWS, LENGTH)))[0][-1]
    memory: list[Tensor] = []
    found = []
    for begin, end in ((0, 3), (3, 4), (4, 6), (6, 7)):
        states, memory = encoder.extend(start[:, begin:end], memory)
        found.append(states)
        assert [tuple(kept.shape[:3]) for kept in memory] == [(ROWS, HEADS, end)] * 6
    close(torch.cat(found, 1), whole)


def test_shared_parameters_exist_once() -> None:
    """The arithmetic of ALBERT: attention and feed-forward layers of one width, one or as many as layers."""
    layers, inner = 5, 2 * WIDTH
    attention_size = 4 * WIDTH * WIDTH + 4 * WIDTH + 2 * WIDTH
    feedforward_size = 2 * WIDTH * inner + inner + WIDTH + 2 * WIDTH
    for share, times in {"none": (5, 5), "all": (1, 1), "attention": (1, 5), "feed-forward": (5, 1)}.items():
        made = make(layers=layers, share=share)
        count = sum(tensor.numel() for tensor in made.state_dict().values())
        assert count == times[0] * attention_size + times[1] * feedforward_size
        assert len(made(entered(), View("causal", (ROWS, LENGTH)))[0]) == layers + 1


def test_sharing_is_using_the_same_again() -> None:
    shared, own = make(layers=3, share="all"), make(layers=3)
    for layer in own.layers:
        layer.load_state_dict(shared.layers[0].state_dict())
    view = View("causal", (ROWS, LENGTH))
    close(shared(entered(), view)[1], own(entered(), view)[1])


def test_two_streams_see_content_and_never_change_it() -> None:
    """A query stream with the strict view of the same order: what stands at a place is unknown to its query."""
    encoder, start = make(norm="post"), entered()
    times = torch.tensor([[3, 0, 5, 1, 6, 2, 4]]).expand(ROWS, -1)
    content, query = View("causal", (ROWS, LENGTH), times=times), View("before", (ROWS, LENGTH), times=times)
    places = torch.arange(ROWS * LENGTH)
    asking = torch.randn(ROWS * LENGTH, WIDTH)
    layers, last = encoder(start, content, places, asking, query)
    close(layers[1], encoder(start, content)[0][1])
    assert last.isfinite().all()
    for changed in range(LENGTH):
        other = start.clone()
        other[0, changed] = other[0, changed].flip(0)
        noticed = (encoder(other, content, places, asking, query)[1] - last)[:LENGTH].abs().amax(-1) > 0
        assert torch.equal(noticed, times[0] > times[0, changed])


def test_a_query_stream_by_the_same_view_is_the_last_layer() -> None:
    """One layer whose queries are the states themselves: what `places` does."""
    encoder, start = make(layers=1), entered()
    view, places = View("causal", (ROWS, LENGTH)), torch.tensor([0, 4, 11])
    asking = start.flatten(0, 1)[places]
    close(encoder(start, view, places, asking, view)[1], encoder(start, view)[1][places])


def test_dropout_draws_anew_and_keeps_the_mean() -> None:
    encoder, start = make(layers=1, dropout=0.5, attention_dropout=0.5), entered()
    plain = encoder(start, View("causal", (ROWS, LENGTH)))[1]
    noisy = [encoder(start, View("causal", (ROWS, LENGTH), noise=Noise(0, step)))[1] for step in (1, 1, 2)]
    assert torch.equal(noisy[0], noisy[1])
    assert not torch.allclose(noisy[0], noisy[2])
    assert not torch.allclose(noisy[0], plain)
    without = make(layers=1, dropout=0.0, attention_dropout=0.0)
    close(without(start, View("causal", (ROWS, LENGTH), noise=Noise(0, 1)))[1], plain)


def test_the_mean_of_attention_with_dropout_is_that_without() -> None:
    torch.manual_seed(0)
    projected = torch.randn(1, LENGTH, 3 * WIDTH, requires_grad=True)
    with torch.no_grad():
        many = torch.stack([attend(None, projected, HEADS, Sight(None), 0.25, Noise(0, step)) for step in range(500)])
        plain = attend(None, projected, HEADS, Sight(None))
    assert ((many.mean(0) - plain).abs() < 5 * many.std(0) / math.sqrt(len(many)) + 1e-6).all()


def test_first_parameters_are_those_of_the_papers() -> None:
    torch.manual_seed(0)
    wide = EncoderRecipe(layers=8, width=256, heads=4, inner=1024, norm="pre")
    made = Transformer(replace(recipe_of(), encoder=wide, embedding=EmbeddingRecipe(width=256)))
    spread = {name: float(tensor.detach().std()) for name, tensor in made.named_parameters() if tensor.ndim == 2}
    assert spread["layers.3.attention.qkv.weight"] == pytest.approx(0.02, rel=0.02)
    assert spread["layers.3.feedforward.outer.weight"] == pytest.approx(0.02 / 4, rel=0.02)
    assert spread["layers.0.attention.out.weight"] == pytest.approx(0.02 / 4, rel=0.02)


def test_no_layers_change_nothing() -> None:
    made = make(layers=0)
    states, last = made(entered(), View("causal", (ROWS, LENGTH)), torch.tensor([2]))
    assert len(states) == 1
    close(last, entered()[0, 2:3])
    assert made.work(LENGTH) == 0


def test_asking_for_all_places_by_number_is_asking_for_all() -> None:
    layer = Attention(recipe_of().encoder)
    asked, start = Asked(torch.arange(ROWS * LENGTH), (ROWS, LENGTH)), entered()
    sight = VIEWS["parts"].sight()
    found = layer.ask(start.flatten(0, 1), asked, start, asked.limit(sight), None)
    close(found, layer(start, sight, None).flatten(0, 1))
