"""Permutation language modelling: spans, orders, the loss by hand, and gradients exactly where the masks allow them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.errors import RecipeError
from firth.fit.loop import TrainingModule
from firth.nets.batch import Batch, StreamOffsets
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.plm import PermutationLMHead
from firth.objectives.plm import PermutationLM
from firth.recipes.nets import resize, xlnet
from firth.recipes.values import override
from firth.tokens.tokenizer import BOS, EOS

TOKENS = 30
VOCABULARY = Vocabulary([f"w{number}" for number in range(TOKENS)], np.arange(TOKENS, 0, -1))


def small(length: int = 12, memory: int = 0, **settings: object) -> NetRecipe:
    recipe = resize(xlnet(), "tiny")
    still = {"dropout": 0.0, "attention_dropout": 0.0}
    return replace(
        recipe,
        embedding=replace(recipe.embedding, width=8, dropout=0.0),
        encoder=replace(recipe.encoder, width=8, ffn_width=12, heads=2, **still),
        objectives=(PermutationLM(**settings),),  # type: ignore[arg-type]
        sequence=replace(recipe.sequence, length=length),
        memory=replace(recipe.memory, length=memory),
    )


def made(recipe: NetRecipe) -> tuple[Network, PermutationLMHead]:
    network = build_network(recipe, VOCABULARY, seed=2).double().eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    head = make_heads(recipe, network)["plm"]
    assert isinstance(head, PermutationLMHead)
    return network, head


def text_batch(rows: int, length: int, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(5, TOKENS, (rows, length)))
    batch = Batch(ids, torch.from_numpy(rng.random((rows, length)) < 0.6))
    batch.row_seeds = torch.arange(rows)
    return batch


def two_parts(batch: Batch, reused: int) -> Batch:
    """The batch with two segments after the first `reused` tokens, as the rows of a corpus."""
    rows = batch.shape[0]
    batch.ids[:, [-4, -2]], batch.ids[:, -1] = EOS, BOS
    batch.is_function = torch.zeros_like(batch.ids, dtype=torch.bool)
    batch.is_function[:, [-4, -2, -1]] = True
    batch.segment_ids = torch.zeros_like(batch.ids)
    batch.segment_ids[:, -3:] = torch.tensor([1, 1, 2])
    numbers = torch.arange(rows), torch.zeros(rows, dtype=torch.int64), torch.full((rows,), reused)
    batch.offsets = StreamOffsets(*numbers, torch.zeros_like(batch.ids))
    return batch


@pytest.mark.parametrize("lengths", ["harmonic", "uniform"])
@pytest.mark.parametrize("unit", ["token", "word"])
def test_span_lengths_and_rate(lengths: str, unit: str) -> None:
    """A sixth of the tokens, in spans of the stated lengths; only those around the row's end are cut."""
    _, head = made(small(lengths=lengths, unit=unit))
    batch = text_batch(80, 4096)
    head.corrupt(batch, np.random.default_rng(1))
    objective = head.objective
    assert isinstance(objective, PermutationLM)
    corruption = head.corruption(batch)
    assert len(corruption.positions) / batch.ids.numel() == pytest.approx(1 / 6, abs=0.002)
    positions, groups = corruption.positions, corruption.groups
    starts = batch.word_starts.flatten()[positions] if unit == "word" else torch.ones_like(positions, dtype=torch.bool)
    starts |= torch.cat([torch.tensor([True]), groups[1:] != groups[:-1]])
    sizes = torch.bincount(groups, weights=starts.double()).long()
    shares = torch.bincount(sizes, minlength=6)[1:6] / len(sizes)
    for share, expected in zip(shares.tolist(), objective.span_lengths(), strict=True):
        assert share == pytest.approx(expected, abs=0.02)
    stated = objective.published_noise()["mean span"]
    assert stated == pytest.approx(2.19 if lengths == "harmonic" else 3.0, abs=0.005)
    assert float(sizes.double().mean()) == pytest.approx(stated, abs=0.06)
    ends = (positions % 4096 < 4) | (positions % 4096 >= 4092)
    assert float(ends.sum()) / (80 * 8) == pytest.approx(1 / 6, abs=0.05), "the ends of rows are avoided"


def test_spans_of_the_program_begin_with_a_word() -> None:
    _, head = made(small(unit="word-start"))
    batch = text_batch(200, 64)
    head.corrupt(batch, np.random.default_rng(1))
    positions, groups = batch.labels["plm.positions"], batch.labels["plm.groups"]
    begins = torch.cat([torch.tensor([True]), groups[1:] != groups[:-1]])
    inside_row = positions % 64 > 0  # a span may go on at the other end of the circle
    is_word = batch.word_starts.flatten()[positions]
    assert float(is_word[begins & inside_row].double().mean()) > 0.97
    assert not is_word[~begins].all()


def test_orders() -> None:
    """Context first, the rest permuted, and the second part after the first; function tokens are in the order."""
    _, head = made(small())
    batch = two_parts(text_batch(50, 12), 6)
    head.corrupt(batch, np.random.default_rng(1))
    order = batch.attention_order
    assert order is not None
    assert batch.is_function is not None
    is_late = batch.is_function.clone()
    is_late.view(-1)[batch.labels["plm.positions"]] = True
    assert not (is_late[:, :6] & batch.is_function[:, :6]).any()
    for row in range(50):
        for part, base in ((slice(0, 6), 0), (slice(6, 12), 13)):
            late = order[row, part][is_late[row, part]]
            assert sorted(late.tolist()) == list(range(base + 1, base + 1 + len(late)))
            assert (order[row, part][~is_late[row, part]] == base).all()
    permuted = [tuple(order[row, -4:].tolist()) for row in range(50)]
    assert len(set(permuted)) > 10
    assert not batch.is_function.flatten()[batch.labels["plm.positions"]].any()
    same = two_parts(text_batch(50, 12), 6)
    head.corrupt(same, np.random.default_rng(1))
    assert same.attention_order is not None
    assert torch.equal(same.attention_order, order)
    fewer = two_parts(text_batch(50, 12), 6)
    fewer = Batch(fewer.ids[7:9], fewer.word_starts[7:9], is_function=batch.is_function[7:9])
    fewer.row_seeds, fewer.offsets = torch.tensor([7, 8]), same.offsets
    head.corrupt(fewer, np.random.default_rng(1))
    assert fewer.attention_order is not None
    assert torch.equal(fewer.attention_order, order[7:9]), "the noise of a row depends on the others"


def test_ends_of_sentences_are_predicted_in_streams_but_not_separators() -> None:
    _, head = made(small())
    batch = text_batch(400, 12)
    batch.ids[:, 3] = EOS
    batch = two_parts(batch, 6)
    head.corrupt(batch, np.random.default_rng(1))
    chosen = torch.bincount(batch.labels["plm.positions"] % 12, minlength=12)
    assert chosen[3] > 30
    assert chosen[[8, 10, 11]].tolist() == [0, 0, 0]


def test_loss_by_hand() -> None:
    """Six tokens, of which the second and the fourth are predicted, first the fourth: both streams by loops."""
    network, head = made(small(6))
    batch = Batch(torch.tensor([[7, 9, 11, 13, 8, 6]]), torch.ones(1, 6, dtype=torch.bool))
    batch.segment_ids = torch.tensor([[0, 0, 0, 1, 1, 2]])
    batch.attention_order, batch.is_query = torch.tensor([[0, 2, 0, 1, 0, 0]]), True
    positions = torch.tensor([1, 3])
    batch.labels = {"plm.positions": positions, "plm.targets": torch.tensor([9, 13]), "plm.groups": torch.arange(2)}
    loss = TrainingModule(network, {"plm": head}).losses(batch, None)["plm"]
    assert loss.count == 2
    expected = by_hand(network, batch, {1: {0, 2, 3, 4, 5}, 3: {0, 2, 4, 5}})
    assert float(loss.total.detach()) == pytest.approx(expected, abs=1e-9)


def by_hand(network: Network, batch: Batch, sees: dict[int, set[int]]) -> float:
    """-log p of the predicted tokens: attention score by score (Yang et al. 2019, appendix A.2)."""
    context = {0, 2, 4, 5}
    visible = {token: sees.get(token, context) | {token} for token in range(6)}  # of the content stream
    segments = batch.segment_ids[0].tolist() if batch.segment_ids is not None else []
    content = list(network.embedding.table[batch.ids[0]].detach())
    query = {token: network.embedding.query.detach() for token in sees}  # type: ignore[union-attr]
    for layer in network.encoders[0].layers:  # type: ignore[union-attr]
        query = {at: attend(layer, at, state, sees[at], content, segments) for at, state in query.items()}
        content = [attend(layer, at, state, visible[at], content, segments) for at, state in enumerate(content)]
    total = 0.0
    for at, state in query.items():
        logits = network.embedding.table @ state + network.output.bias  # type: ignore[operator]
        total -= float(logits.log_softmax(0)[batch.ids[0, at]].detach())
    return total


@torch.no_grad()
def attend(layer: Any, at: int, state: Tensor, keys: set[int], inputs: list[Tensor], segments: list[int]) -> Tensor:
    """The output of a layer for one state, which attends to the inputs of some keys."""
    attention, parts = layer.attention, []
    width, heads = 8, 2
    size = width // heads
    wq, wk, wv = attention.qkv.weight.split(width)
    rates = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        q = (wq @ state)[own]
        scores = []
        for key in sorted(keys):
            angles = (at - key) * rates
            distance = (attention.distances.weight @ torch.cat([angles.sin(), angles.cos()]))[own]
            kind = int(segments[at] != segments[key])
            score = (q + attention.biases.content[own]) @ (wk @ inputs[key])[own]
            score = score + (q + attention.biases.position[own]) @ distance
            score = score + (q + attention.segments.bias[own]) @ attention.segments.vectors[kind][own]
            scores.append(score / size**0.5)
        values = torch.stack([(wv @ inputs[key])[own] for key in sorted(keys)])
        parts.append(torch.stack(scores).softmax(0) @ values)
    x = layer.norm1(state + attention.out(torch.cat(parts)))
    return layer.norm2(x + layer.feedforward(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("memory", [0, 6])
def test_gradients_of_both_streams(memory: int) -> None:
    """State i depends on input j exactly where the order says so; the whole memory is visible to all."""
    recipe = small(12, memory)
    recipe = replace(recipe, encoder=replace(recipe.encoder, layers=1))  # deeper, what is visible is transitive
    network, head = made(recipe)
    module = TrainingModule(network, {"plm": head})
    for step in range(2):
        batch = two_parts(text_batch(2, 12, step), 6)
        assert batch.offsets is not None
        batch.offsets = batch.offsets._replace(begins=torch.full((2,), 6 * step))
        head.corrupt(batch, np.random.default_rng(step))
        if not step:
            module.losses(batch, None)
    before = module.memory.recall(batch.offsets) if memory else None  # type: ignore[arg-type]
    read: list[torch.Tensor] = []
    network.embedding.register_forward_hook(lambda module, given, made: read.append(made.requires_grad_()) or None)
    order = batch.attention_order
    assert order is not None
    weights = torch.arange(8, dtype=torch.float64)
    for is_query in (True, False):
        batch.is_query = is_query
        if before is not None:
            before.layers[0].requires_grad_()
        states = network(batch, torch.arange(24), memory=before).last_hidden_state.view(2, 12, -1)
        (embedded,) = read
        read.clear()
        for at in range(12):
            (gradient,) = torch.autograd.grad(states[0, at] @ weights, embedded, retain_graph=True)
            depends = gradient.abs().sum(-1)
            allowed = order[0] < order[0, at] if is_query else order[0] <= order[0, at]
            assert torch.equal(depends[0] > 0, allowed), (is_query, at)
            assert not depends[1].any()
        if before is not None:
            (gradient,) = torch.autograd.grad(states[0, 3] @ weights, before.layers[0], retain_graph=True)
            assert gradient[0].abs().sum(-1).all()


def test_a_prediction_never_depends_on_its_own_token() -> None:
    """In two layers, what is visible directly and through others: all targets that are later in the order, never."""
    network, head = made(small(12))
    batch = two_parts(text_batch(2, 12, 4), 6)
    head.corrupt(batch, np.random.default_rng(2))
    positions = batch.labels["plm.positions"]
    order = batch.attention_order
    assert order is not None
    with torch.no_grad():
        known = network(batch, positions).last_hidden_state
        for number, position in enumerate(positions.tolist()):
            changed = replace(batch, ids=batch.ids.clone())
            changed.ids.view(-1)[position] = 5 + (int(changed.ids.view(-1)[position]) - 4) % 20
            moved = (network(changed, positions).last_hidden_state - known).abs().amax(-1) > 1e-12
            later = (positions // 12 == position // 12) & (order.flatten()[positions] > order.flatten()[position])
            assert torch.equal(moved, later), number


def test_reversed_rows_have_negative_distances() -> None:
    """A row of reversed text has the states of the same row with all distances negated: those of the flipped row."""
    network, _ = made(small(12))
    batch = text_batch(2, 12)
    flipped = Batch(batch.ids.flip(1), batch.word_starts)
    with torch.no_grad():
        forwards = network(batch).last_hidden_state.view(2, 12, -1)
        one_flipped = replace(flipped, ids=torch.stack([batch.ids[0], flipped.ids[1]]))
        one_flipped.is_reversed = torch.tensor([False, True])
        both = network(one_flipped).last_hidden_state.view(2, 12, -1)
        some = network(one_flipped, torch.tensor([0, 13, 20])).last_hidden_state
    torch.testing.assert_close(both[0], forwards[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(both[1].flip(0), forwards[1], rtol=0, atol=1e-10)
    torch.testing.assert_close(some, both.flatten(0, 1)[[0, 13, 20]], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["objectives=plm+mlm"], ["plm", "mlm"]),
        (["embedding.query=false"], ["embedding.query"]),
        (["objectives=mlm", "memory.length=0"], ["contiguous-pair", "mlm"]),
        (["encoder.segments=none", "encoder.positions=none", "memory.length=0"], ["encoder.positions"]),
        (["plm.context=0"], ["plm.context"]),
        (["sequence.reused=1"], ["sequence.reused"]),
        (["sequence.format=stream", "memory.length=0"], ["sequence.reversed"]),
        (["visibility=causal"], ["plm", "visibility"]),
    ],
)
def test_contradictions_are_refused(settings: list[str], words: list[str]) -> None:
    with pytest.raises(RecipeError) as error:
        override(xlnet(), settings)
    for word in words:
        assert word in str(error.value)
