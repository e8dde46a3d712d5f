"""The Transformer: attention masks, tied layers, caches and gradients."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from firth.nets.dropout import DropoutRng
from firth.nets.encoders import attention
from firth.nets.encoders.attention import infer_attention, multi_head_attention
from firth.nets.encoders.transformer import Attention, Transformer
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, SequenceRecipe
from firth.nets.visibility import AttentionBias, AttentionMask, GatheredQueries

ROWS, LENGTH, WIDTH, HEADS = 3, 7, 8, 2


@pytest.fixture(params=(1, 2, 3), autouse=True)
def _rows_at_a_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention in chunks of one row, of two, and of all."""
    monkeypatch.setattr(attention, "_CHUNK", request.param * HEADS * LENGTH * LENGTH)


def recipe_of(layers: int = 2, **encoder: Any) -> NetRecipe:
    return NetRecipe(
        embedding=EmbeddingRecipe(width=WIDTH),
        encoder=EncoderRecipe(layers=layers, width=WIDTH, heads=HEADS, ffn_width=2 * WIDTH, **encoder),
        sequence=SequenceRecipe(length=LENGTH),
    )


def make(layers: int = 2, **encoder: Any) -> Transformer:
    torch.manual_seed(0)
    made = Transformer(recipe_of(layers, **encoder))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return made


def inputs(seed: int = 1) -> Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed))


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


def by_hand(q: Tensor, k: Tensor, v: Tensor, keys_values: Tensor | None) -> Tensor:
    """Single queries and heads."""
    found = torch.zeros(q.shape[0], q.shape[2], q.shape[1], q.shape[3])
    for row in range(q.shape[0]):
        for head in range(q.shape[1]):
            for position in range(q.shape[2]):
                keys = range(k.shape[2]) if keys_values is None else keys_values[row, position].nonzero()[:, 0].tolist()
                scores = [
                    math.exp(float(q[row, head, position] @ k[row, head, key]) / math.sqrt(q.shape[3])) for key in keys
                ]
                for key, score in zip(keys, scores, strict=True):
                    found[row, position, head] += score / sum(scores) * v[row, head, key]
    return found.flatten(2)


SEQUENCE_IDS = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, -1, -1], [0, 0, 0, 0, 0, 0, 0]])
MASKS = {
    "bidirectional": AttentionMask("bidirectional", (ROWS, LENGTH)),
    "causal": AttentionMask("causal", (ROWS, LENGTH)),
    "before": AttentionMask("before", (ROWS, LENGTH)),
    "parts": AttentionMask("bidirectional", (ROWS, LENGTH), SEQUENCE_IDS),
    "permuted parts": AttentionMask(
        "causal",
        (ROWS, LENGTH),
        SEQUENCE_IDS,
        torch.tensor([[2, 0, 1, 3, 5, 6, 4], [1, 0, 4, 3, 2, 5, 6], [6, 5, 4, 3, 2, 1, 0]]),
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_attention_equals_the_equation(name: str) -> None:
    projected = torch.randn(ROWS, LENGTH, 3 * WIDTH, requires_grad=True)
    q, k, v = projected.detach().view(ROWS, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    keys_values = MASKS[name].allowed
    expected = by_hand(q, k, v, None if keys_values is None else keys_values.expand(ROWS, -1, -1))
    bias = MASKS[name].bias()
    close(multi_head_attention(None, projected, HEADS, bias).detach(), expected)
    close(multi_head_attention(None, projected.detach(), HEADS, bias), expected)
    close(infer_attention(q, k, v, bias), expected)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("has_queries", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_gradients_of_attention_are_finite_differences(name: str, has_queries: bool, rate: float) -> None:
    torch.manual_seed(0)
    mask, dtype = MASKS[name], torch.float64
    if has_queries:
        queries = torch.randn(ROWS, LENGTH, WIDTH, dtype=dtype, requires_grad=True)
        keys_values = torch.randn(ROWS, LENGTH, 2 * WIDTH, dtype=dtype, requires_grad=True)

        def run(queries: Tensor, keys_values: Tensor) -> Tensor:
            return multi_head_attention(queries, keys_values, HEADS, mask.bias(dtype), rate, DropoutRng(0, 1))

        assert torch.autograd.gradcheck(run, (queries, keys_values), fast_mode=True)
    else:
        keys_values = torch.randn(ROWS, LENGTH, 3 * WIDTH, dtype=dtype, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda x: multi_head_attention(None, x, HEADS, mask.bias(dtype), rate, DropoutRng(0, 1)),
            (keys_values,),
            fast_mode=True,
        )


def test_the_chunk_size_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    projected = torch.randn(ROWS, LENGTH, 3 * WIDTH, requires_grad=True)
    found = []
    for weights in (1, 1 << 40):
        monkeypatch.setattr(attention, "_CHUNK", weights)
        found.append(multi_head_attention(None, projected, HEADS, AttentionBias(None), 0.3, DropoutRng(1, 2)))
    close(found[0], found[1])
    assert not torch.allclose(
        found[0], multi_head_attention(None, projected, HEADS, AttentionBias(None), 0.0, DropoutRng(1, 2))
    )


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_gradients_of_a_stack_are_finite_differences(norm: str) -> None:
    encoder = make(norm=norm, tie_layers="attention", dropout=0.2, attention_dropout=0.2).double()
    start = inputs().double().requires_grad_()
    positions = torch.tensor([0, 3, 8, 20])
    names = [name for name, _ in encoder.named_parameters()]

    def run(start: Tensor, *parameters: Tensor) -> Tensor:
        mask = AttentionMask("causal", (ROWS, LENGTH), SEQUENCE_IDS, rng=DropoutRng(0, 1))
        made = torch.func.functional_call(encoder, dict(zip(names, parameters, strict=True)), (start, mask, positions))
        return made[1].sin().sum()  # type: ignore[no-any-return]

    # `functional_call` puts parameters in place by name; a sum of sines has no symmetry that hides errors.
    assert torch.autograd.gradcheck(run, (start, *encoder.parameters()), fast_mode=True)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("name", ["bidirectional", "causal", "parts"])
@pytest.mark.parametrize(
    "positions", [[0], [1, 2, 9], [2, 7, 8, 9, 10, 11, 12, 13], list(range(20)), list(range(21)), []]
)
def test_states_of_some_positions_equal_those_of_all(norm: str, name: str, positions: list[int]) -> None:
    encoder, start = make(norm=norm), inputs().requires_grad_()
    mask = replace(MASKS[name])
    layers, everything = encoder(start, mask)
    some_layers, some = encoder(start, mask, torch.tensor(positions, dtype=torch.int64))
    close(some, everything[positions])
    assert len(some_layers) == len(layers) - 1
    with torch.no_grad():
        close(encoder(start, mask, torch.tensor(positions, dtype=torch.int64))[1], everything[positions])


def test_gradients_of_some_positions_equal_those_of_all() -> None:
    encoder, positions = make(norm="pre"), torch.tensor([1, 2, 9])
    gradients = []
    for wanted in (positions, None):
        encoder.zero_grad()
        _, last = encoder(inputs(), MASKS["parts"], wanted)
        (last if wanted is not None else last[positions]).cos().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in encoder.parameters() if parameter.grad is not None])
    for one, other in zip(*gradients, strict=True):
        close(one, other)


def is_affected(mask: AttentionMask, encoder: Transformer, changed: int) -> Tensor:
    """Which positions of the first row are affected by a change of one of them."""
    one, other = inputs(), inputs()
    other[0, changed] = other[0, changed].flip(0)
    return (encoder(one, mask)[0][-1] - encoder(other, mask)[0][-1])[0].abs().amax(-1) > 0


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_causal_states_do_not_depend_on_the_future(norm: str) -> None:
    encoder = make(norm=norm)
    positions = torch.arange(LENGTH)
    for changed in range(LENGTH):
        assert torch.equal(is_affected(AttentionMask("causal", (ROWS, LENGTH)), encoder, changed), positions >= changed)
        assert torch.equal(
            is_affected(AttentionMask("anticausal", (ROWS, LENGTH)), encoder, changed), positions <= changed
        )
        assert is_affected(AttentionMask("bidirectional", (ROWS, LENGTH)), encoder, changed).all()


def test_sequences_do_not_attend_to_each_other() -> None:
    encoder = make()
    for changed in range(LENGTH):
        assert torch.equal(is_affected(MASKS["parts"], encoder, changed), SEQUENCE_IDS[0] == SEQUENCE_IDS[0, changed])


def test_packed_sequences_equal_single_ones() -> None:
    encoder, start = make(), inputs()
    packed = encoder(start, MASKS["parts"])[0][-1]
    alone = encoder(start[:1, 3:], AttentionMask("bidirectional", (1, 4)))[0][-1]
    close(packed[0, 3:], alone[0])


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("tied", ["none", "all", "attention", "feed-forward"])
def test_decoding_equals_encoding(norm: str, tied: str) -> None:
    encoder, start = make(layers=3, norm=norm, tie_layers=tied), inputs()
    whole = encoder(start, AttentionMask("causal", (ROWS, LENGTH)))[0][-1]
    cache: list[Tensor] = []
    found = []
    for begin, end in ((0, 3), (3, 4), (4, 6), (6, 7)):
        states, cache = encoder.decode_step(start[:, begin:end], cache)
        found.append(states)
        assert [tuple(kept.shape[:3]) for kept in cache] == [(ROWS, HEADS, end)] * 6
    close(torch.cat(found, 1), whole)


def test_tied_parameters_exist_once() -> None:
    """The parameter count of ALBERT: one attention and feed-forward sublayer, or one per layer."""
    layers, inner = 5, 2 * WIDTH
    attention_size = 4 * WIDTH * WIDTH + 4 * WIDTH + 2 * WIDTH
    feedforward_size = 2 * WIDTH * inner + inner + WIDTH + 2 * WIDTH
    for tied, order in {"none": (5, 5), "all": (1, 1), "attention": (1, 5), "feed-forward": (5, 1)}.items():
        made = make(layers=layers, tie_layers=tied)
        count = sum(tensor.numel() for tensor in made.state_dict().values())
        assert count == order[0] * attention_size + order[1] * feedforward_size
        assert len(made(inputs(), AttentionMask("causal", (ROWS, LENGTH)))[0]) == layers + 1


def test_tying_is_using_the_same_layer_again() -> None:
    shared, own = make(layers=3, tie_layers="all"), make(layers=3)
    for layer in own.layers:
        layer.load_state_dict(shared.layers[0].state_dict())
    mask = AttentionMask("causal", (ROWS, LENGTH))
    close(shared(inputs(), mask)[1], own(inputs(), mask)[1])


def test_query_stream_attends_to_content_and_never_changes_it() -> None:
    """A query stream with a strict mask of the same order does not depend on the token at its own position."""
    encoder, start = make(norm="post"), inputs()
    order = torch.tensor([[3, 0, 5, 1, 6, 2, 4]]).expand(ROWS, -1)
    content, query = (
        AttentionMask("causal", (ROWS, LENGTH), attention_order=order),
        AttentionMask("before", (ROWS, LENGTH), attention_order=order),
    )
    positions = torch.arange(ROWS * LENGTH)
    queries = torch.randn(ROWS * LENGTH, WIDTH)
    layers, last = encoder(start, content, positions, queries, query)
    close(layers[1], encoder(start, content)[0][1])
    assert last.isfinite().all()
    for changed in range(LENGTH):
        other = start.clone()
        other[0, changed] = other[0, changed].flip(0)
        noticed = (encoder(other, content, positions, queries, query)[1] - last)[:LENGTH].abs().amax(-1) > 0
        assert torch.equal(noticed, order[0] > order[0, changed])


def test_a_query_stream_with_the_same_mask_is_the_last_layer() -> None:
    """One layer whose queries are the states themselves: as `positions` does."""
    encoder, start = make(layers=1), inputs()
    mask, positions = AttentionMask("causal", (ROWS, LENGTH)), torch.tensor([0, 4, 11])
    queries = start.flatten(0, 1)[positions]
    close(encoder(start, mask, positions, queries, mask)[1], encoder(start, mask)[1][positions])


def test_dropout_depends_on_the_step_alone() -> None:
    encoder, start = make(layers=1, dropout=0.5, attention_dropout=0.5), inputs()
    plain = encoder(start, AttentionMask("causal", (ROWS, LENGTH)))[1]
    noisy = [encoder(start, AttentionMask("causal", (ROWS, LENGTH), rng=DropoutRng(0, step)))[1] for step in (1, 1, 2)]
    assert torch.equal(noisy[0], noisy[1])
    assert not torch.allclose(noisy[0], noisy[2])
    assert not torch.allclose(noisy[0], plain)
    without = make(layers=1, dropout=0.0, attention_dropout=0.0)
    close(without(start, AttentionMask("causal", (ROWS, LENGTH), rng=DropoutRng(0, 1)))[1], plain)


def test_the_mean_of_attention_with_dropout_is_that_without() -> None:
    torch.manual_seed(0)
    projected = torch.randn(1, LENGTH, 3 * WIDTH, requires_grad=True)
    with torch.no_grad():
        many = torch.stack(
            [
                multi_head_attention(None, projected, HEADS, AttentionBias(None), 0.25, DropoutRng(0, step))
                for step in range(500)
            ]
        )
        plain = multi_head_attention(None, projected, HEADS, AttentionBias(None))
    assert ((many.mean(0) - plain).abs() < 5 * many.std(0) / math.sqrt(len(many)) + 1e-6).all()


def test_initial_weights_are_those_of_the_papers() -> None:
    torch.manual_seed(0)
    wide = EncoderRecipe(layers=8, width=256, heads=4, ffn_width=1024, norm="pre")
    made = Transformer(replace(recipe_of(), encoder=wide, embedding=EmbeddingRecipe(width=256)))
    spread = {name: float(tensor.detach().std()) for name, tensor in made.named_parameters() if tensor.ndim == 2}
    assert spread["layers.3.attention.qkv.weight"] == pytest.approx(0.02, rel=0.02)
    assert spread["layers.3.feedforward.outer.weight"] == pytest.approx(0.02 / 4, rel=0.02)
    assert spread["layers.0.attention.out.weight"] == pytest.approx(0.02 / 4, rel=0.02)


def test_no_layers_change_nothing() -> None:
    made = make(layers=0)
    states, last = made(inputs(), AttentionMask("causal", (ROWS, LENGTH)), torch.tensor([2]))
    assert len(states) == 1
    close(last, inputs()[0, 2:3])
    assert made.flops(LENGTH) == 0


def test_query_attention_of_all_positions_is_self_attention() -> None:
    layer = Attention(recipe_of().encoder)
    gathered, start = GatheredQueries(torch.arange(ROWS * LENGTH), (ROWS, LENGTH)), inputs()
    bias = MASKS["parts"].bias()
    found = layer.query_attention(start.flatten(0, 1), gathered, start, gathered.select_bias(bias), None)
    close(found, layer(start, bias, None).flatten(0, 1))
