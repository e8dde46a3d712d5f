"""Output layers against slow references: sums, paths, gradients, trees, classes and initial probabilities."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as f
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from firth.errors import ArtifactError
from firth.nets.dropout import DropoutRng
from firth.nets.embedding import Embedding
from firth.nets.network import make_output
from firth.nets.outputs.clusters import AdaptiveSoftmax, ClassSoftmax, Segment, frequency_bins, segment_losses
from firth.nets.outputs.output import NEVER_PREDICTED, ExactLayer, OutputLayer, frequencies, predictable
from firth.nets.outputs.trees import HuffmanTree, LearnedTree, TreeSoftmax, find_paths, huffman_tree, split_tree
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, OutputRecipe
from firth.objectives.registry import parse_objectives

KINDS = ("classes", "huffman", "tree", "importance", "nce", "adaptive", "adaptive-tied")
EVERY = pytest.mark.parametrize("kind", KINDS)
WIDTH = 8


def recipe_of(kind: str, width: int = WIDTH, **output: object) -> NetRecipe:
    return NetRecipe(
        embedding=EmbeddingRecipe(width=width),
        encoder=EncoderRecipe(kind="lstm", layers=1, width=width, ffn_width=0, heads=1, norm="none"),
        output=OutputRecipe(kind=kind, **output),  # type: ignore[arg-type]
    )


def zipf(size: int) -> np.ndarray:
    """Zipfian counts, shuffled."""
    return np.random.default_rng(size).permutation(1000 // np.arange(1, size + 1))


def layer_of(
    kind: str, size: int = 40, counts: np.ndarray | None = None, seed: int = 0, width: int = WIDTH, **output: object
) -> OutputLayer:
    """A layer with parameters far from their initial values, in double precision."""
    recipe = recipe_of(kind, width, **output)
    counts = zipf(size) if counts is None else counts
    torch.manual_seed(seed)
    layer = make_output(recipe, counts, Embedding(recipe, [str(number) for number in range(counts.size)])).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.7 * torch.randn_like(parameter))
    return layer


def places_of(size: int, count: int = 12, width: int = WIDTH) -> tuple[Tensor, Tensor]:
    """States, and targets that can be predicted: each at least once if there is room."""
    rng = np.random.default_rng(1)
    kept = predictable(size)
    targets = np.resize(rng.permutation(kept), count)
    return torch.from_numpy(rng.normal(size=(count, width))), torch.from_numpy(targets)


@EVERY
@pytest.mark.parametrize("size", [5, 6, 7, 40, 300])
def test_probabilities_sum_to_one(kind: str, size: int) -> None:
    layer, (states, targets) = layer_of(kind, size), places_of(size)
    logs = layer.log_probabilities(states)
    assert logs.shape == (len(states), size)
    torch.testing.assert_close(logs.exp().sum(1), torch.ones(len(states), dtype=torch.float64))
    assert bool((logs[:, list(NEVER_PREDICTED)] == -torch.inf).all())
    assert bool(logs[:, predictable(size)].isfinite().all())
    torch.testing.assert_close(layer.logits(states).softmax(1), logs.exp())
    torch.testing.assert_close(layer.log_probability(states, targets), logs.gather(1, targets[:, None])[:, 0])
    torch.testing.assert_close(layer.loss(states, targets), -logs.gather(1, targets[:, None]).sum())


@EVERY
def test_tokens_that_are_never_predicted_have_no_gradient(kind: str) -> None:
    layer, (states, targets) = layer_of(kind), places_of(40)
    mixed = targets.clone()
    mixed[[0, 3, 7]] = torch.tensor(NEVER_PREDICTED)
    kept = torch.isin(mixed, torch.tensor(NEVER_PREDICTED), invert=True)
    logs = layer.log_probability(states, mixed)
    torch.testing.assert_close(logs[kept], layer.log_probability(states, targets)[kept])
    assert bool((logs[~kept] == -torch.inf).all())
    torch.testing.assert_close(layer.loss(states, mixed), layer.loss(states[kept], mixed[kept]))
    with_noise = layer.loss(states, mixed, targets.roll(1), DropoutRng(0, 0))
    torch.testing.assert_close(
        with_noise, layer.loss(states[kept], mixed[kept], targets.roll(1)[kept], DropoutRng(0, 0))
    )


@EVERY
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_are_those_of_the_loss(kind: str, bias: bool) -> None:
    size, width = 20, 4
    layer = layer_of(kind, size, width=width, bias=bias, samples=7)
    states, targets = places_of(size, 6, width)
    assert any("bias" in name for name, _ in layer.named_parameters()) == bias
    states.requires_grad_()
    inputs = [states, *layer.parameters()]
    scale = torch.linspace(0.5, 1.5, len(targets), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda *_: layer.loss(states, targets, targets.roll(1), DropoutRng(0, 3)), inputs)
    assert torch.autograd.gradcheck(lambda *_: layer.log_probability(states, targets) @ scale, inputs)
    assert torch.autograd.gradcheck(lambda *_: layer.log_probabilities(states)[:, predictable(size)], inputs[:1])


@EVERY
def test_no_positions_have_no_loss(kind: str) -> None:
    layer = layer_of(kind)
    states = torch.zeros(0, WIDTH, dtype=torch.float64, requires_grad=True)
    nothing = torch.zeros(0, dtype=torch.int64)
    for rng in (None, DropoutRng(0, 0)):
        loss = layer.loss(states, nothing, nothing, rng)
        assert loss.item() == 0
        loss.backward()
    assert layer.log_probability(states, nothing).shape == (0,)
    assert layer.log_probabilities(states).shape == (0, 40)


@EVERY
@pytest.mark.parametrize("counts", [np.zeros(12, dtype=np.int64), zipf(500)], ids=["zeros", "zipf"])
def test_initial_probabilities_are_frequencies(kind: str, counts: np.ndarray) -> None:
    """Probabilities given the zero state are frequencies."""
    recipe = recipe_of(kind)
    layer = make_output(recipe, counts, Embedding(recipe, [str(number) for number in range(counts.size)]))
    probabilities = layer.log_probabilities(torch.zeros(1, WIDTH))[0].exp()
    np.testing.assert_allclose(probabilities.detach().numpy(), frequencies(counts), rtol=2e-5, atol=1e-9)


@EVERY
def test_single_precision_is_near_double(kind: str) -> None:
    layer, (states, targets) = layer_of(kind, 300), places_of(300, 50)
    exact = layer.loss(states, targets, targets, DropoutRng(0, 0)).item()
    probabilities = layer.log_probabilities(states)
    single = layer.float()
    assert single.loss(states.float(), targets, targets, DropoutRng(0, 0)).item() == pytest.approx(exact, rel=1e-5)
    torch.testing.assert_close(single.log_probabilities(states.float()), probabilities.float(), rtol=1e-4, atol=1e-4)


@EVERY
def test_saving_and_loading_a_layer(kind: str) -> None:
    """Loaded into a layer of another seed, which was used before: no cache may remain."""
    one, other, (states, targets) = layer_of(kind, seed=1), layer_of(kind, seed=2), places_of(40)
    other.log_probability(states, targets)
    assert not torch.equal(one.log_probabilities(states), other.log_probabilities(states))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.log_probabilities(states), other.log_probabilities(states))
    third = layer_of(kind, seed=3)
    third.log_probability(states, targets)
    for name, tensor in third.state_dict().items():  # behind the back of the layer
        tensor.numpy()[...] = one.state_dict()[name].numpy()
    assert torch.equal(one.log_probability(states, targets), third.log_probability(states, targets))
    assert torch.equal(one.log_probabilities(states), third.log_probabilities(states))


@EVERY
def test_the_same_rng_gives_the_same_loss(kind: str) -> None:
    layer, (states, targets) = layer_of(kind, 300, samples=20), places_of(300, 30)
    losses = [layer.loss(states, targets, targets, DropoutRng(0, step)).item() for step in (1, 1, 2)]
    assert losses[0] == losses[1]
    assert (losses[0] != losses[2]) == (kind in ("importance", "nce"))


@EVERY
def test_each_direction_predicts_by_itself(kind: str) -> None:
    recipe = replace(recipe_of(kind), visibility="forward+backward", objectives=parse_objectives("bilm"))
    assert recipe.width == 2 * WIDTH
    layer = make_output(recipe, zipf(40), Embedding(recipe, [str(number) for number in range(40)]))
    assert layer.log_probabilities(torch.zeros(3, WIDTH)).shape == (3, 40)


@EVERY
def test_a_transform_before_the_output(kind: str) -> None:
    layer, plain, (states, targets) = (
        layer_of(kind, transform=True, samples=9),
        layer_of(kind, samples=9),
        places_of(40),
    )
    assert layer.flops() == plain.flops() + 2 * WIDTH**2
    inside = {name: tensor for name, tensor in layer.state_dict().items() if not name.startswith("transform.")}
    assert len(layer.state_dict()) == len(inside) + 4  # dense and norm, as in BERT
    plain.load_state_dict(inside)
    assert isinstance(layer, ExactLayer)
    entered = layer.transformed(states)
    assert not torch.equal(entered, states)
    assert torch.equal(layer.log_probabilities(states), plain.log_probabilities(entered))
    assert torch.equal(layer.log_probability(states, targets), plain.log_probability(entered, targets))
    for noise in (None, 5):
        losses = [
            one.loss(some, targets, targets, noise and DropoutRng(0, noise))
            for one, some in ((layer, states), (plain, entered))
        ]
        assert torch.equal(*losses)


@EVERY
def test_nothing_depends_on_the_order_of_sums(kind: str) -> None:
    """Training asks torch to refuse whatever is not the same in every run."""
    layer, (states, targets) = layer_of(kind), places_of(40)
    torch.use_deterministic_algorithms(True)
    try:
        layer.update_structure(0.15)
        layer.loss(states.requires_grad_(), targets, targets, DropoutRng(0, 0)).backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert states.grad is not None


# Segments


def test_segments_are_softmax_losses_of_slices() -> None:
    rng = torch.Generator().manual_seed(0)
    states, weight, bias = (torch.randn(*s, generator=rng, dtype=torch.float64) for s in ((7, 3), (9, 3), (9,)))
    segments = [Segment(0, 2, 4, 9), Segment(2, 6, 0, 4)]
    answers = torch.tensor([4, 8, 0, 1, 3, 3, 2])
    expected = [
        f.cross_entropy(f.linear(states[a:b], weight[c:d], bias[c:d]), answers[a:b] - c, reduction="none")
        for a, b, c, d in segments
    ]
    losses = segment_losses(states, weight, bias, answers, segments)
    torch.testing.assert_close(losses, torch.cat([*expected, torch.zeros(1, dtype=torch.float64)]))
    inputs = [tensor.requires_grad_() for tensor in (states, weight, bias)]
    assert torch.autograd.gradcheck(lambda s, w, b: segment_losses(s, w, b, answers, segments), inputs)


# Classes


def test_classes_are_a_product_of_two_softmaxes() -> None:
    layer, (states, _) = layer_of("classes", 60), places_of(60)
    assert isinstance(layer, ClassSoftmax)
    assert layer.bias is not None
    assert layer.class_bias is not None
    bounds, order = layer.bounds.tolist(), layer.order.tolist()
    expected = torch.zeros(len(states), 60, dtype=torch.float64)
    of_class = (states @ layer.class_weight.T + layer.class_bias).softmax(1)
    for number, (low, high) in enumerate(pairwise(bounds)):
        of_word = (states @ layer.weight[low:high].T + layer.bias[low:high]).softmax(1)
        expected[:, order[low:high]] = of_class[:, [number]] * of_word
    torch.testing.assert_close(layer.log_probabilities(states).exp(), expected)


@given(st.lists(st.integers(0, 10_000), min_size=5, max_size=400))
def test_every_token_has_one_class(counts: list[int]) -> None:
    frequency = frequencies(np.array(counts))
    order, bounds = frequency_bins(frequency)
    assert sorted(order.tolist()) == predictable(len(counts)).tolist()
    assert bounds[0] == 0
    assert bounds[-1] == order.size
    assert (np.diff(bounds) > 0).all()
    assert (np.diff(frequency[order]) <= 0).all()
    assert 1 <= bounds.size - 1 <= math.ceil(math.sqrt(order.size))


def test_classes_cost_less_than_equal_ones() -> None:
    """Expected size of the target's class: sums of roots against classes of equal size and of equal mass."""
    frequency = frequencies(1_000_000 // np.arange(1, 10_004))
    order, bounds = frequency_bins(frequency)
    ranked = frequency[order]
    assert 95 <= bounds.size - 1 <= 100

    def expected(edges: np.ndarray) -> float:
        return float(np.add.reduceat(ranked, edges[:-1]) @ np.diff(edges))

    sizes = np.linspace(0, order.size, bounds.size).astype(int)
    masses = np.append(np.searchsorted(ranked.cumsum(), np.linspace(0, 1, bounds.size)[:-1]), order.size)
    assert expected(bounds) < 0.7 * min(expected(sizes), expected(np.unique(masses)))


def test_the_flops_of_classes_and_tails_are_those_of_torch() -> None:
    counts = zipf(300)
    frequency = frequencies(counts)
    targets = torch.from_numpy(np.repeat(np.arange(300), np.round(frequency * 20_000).astype(int)))
    for kind in ("classes", "adaptive", "adaptive-tied"):
        layer = layer_of(kind, counts=counts)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            layer.loss(torch.zeros(len(targets), WIDTH, dtype=torch.float64), targets)
        assert counter.get_total_flops() / len(targets) == pytest.approx(layer.flops(), rel=0.05)


# Trees


def slow_way(layer: TreeSoftmax, state: Tensor, token: int) -> float:
    size = len(layer.parent) - len(layer.weight)
    assert layer.bias is not None
    weight, bias = layer.weight.detach(), layer.bias.detach()
    node, total = token, 0.0
    while int(layer.parent[node]) >= 0:
        above = int(layer.parent[node])
        score = float(state @ weight[above] + bias[above])
        total += math.log(1 / (1 + math.exp(-score if layer.left[node] else score)))
        node = size + above
    return total


@pytest.mark.parametrize("kind", ["huffman", "tree"])
def test_a_probability_is_the_product_along_its_path(kind: str) -> None:
    layer, (states, _) = layer_of(kind, 50), places_of(50, 300)  # more than are done at once
    assert isinstance(layer, TreeSoftmax)
    logs = layer.log_probabilities(states).detach()
    for position in (0, 7, 299):
        for token in predictable(50).tolist():
            assert float(logs[position, token]) == pytest.approx(slow_way(layer, states[position], token), rel=1e-9)


def shortest(frequency: np.ndarray) -> float:
    """The expected depth of Huffman's tree: the sum of the weights of all nodes that a heap merges."""
    heap = [float(one) for one in frequency if one > 0]
    heapq.heapify(heap)
    total = 0.0
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        total += joined
        heapq.heappush(heap, joined)
    return total


@given(st.lists(st.integers(0, 100_000), min_size=5, max_size=300))
def test_no_tree_is_shorter_than_huffmans(counts: list[int]) -> None:
    frequency = frequencies(np.array(counts))
    parent, left = huffman_tree(frequency)
    depths = find_paths(torch.from_numpy(parent), torch.from_numpy(left), len(counts)).depths.numpy()
    assert depths @ frequency == pytest.approx(shortest(frequency))
    assert (2.0 ** -depths[predictable(len(counts))]).sum() == pytest.approx(1)  # Kraft: a whole tree
    assert (depths[list(NEVER_PREDICTED)] == 0).all()


def test_the_flops_of_a_tree_are_its_expected_depth() -> None:
    layer = layer_of("huffman", 300)
    assert isinstance(layer, HuffmanTree)
    assert layer.flops() == pytest.approx(2 * WIDTH * shortest(frequencies(zipf(300))))


def test_near_vectors_get_near_leaves() -> None:
    """Four groups of points around (±10 ±1): the first decision separates the sides, the second the groups."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 4, 200)
    centres = np.array([[-10, -1], [-10, 1], [10, -1], [10, 1]])
    vectors = (centres[group] + 0.05 * rng.normal(size=(200, 2))).astype(np.float32)
    parent, _ = split_tree(vectors, np.arange(predictable(200).size), seed=0)

    def path_to(token: int) -> list[int]:
        path = [token]
        while parent[path[-1]] >= 0:
            path.append(200 + int(parent[path[-1]]))
        return path[::-1]

    paths = {token: path_to(token) for token in predictable(200).tolist()}
    for depth, alike in ((1, group // 2), (2, group)):
        at = {token: path[depth] for token, path in paths.items()}
        pairs = {(int(alike[token]), node) for token, node in at.items()}
        assert len(pairs) == len({node for _, node in pairs}) == 2**depth


def test_a_learned_tree_depends_on_the_seed_alone() -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    order = np.arange(predictable(300).size)
    one, same, other = (split_tree(vectors, order, seed)[0] for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()


@pytest.mark.parametrize("spread", [0.0, 1.0, 1.1], ids=["same", "even", "ever farther"])
def test_no_path_is_too_long(spread: float) -> None:
    """All vectors the same, evenly far, or each farther than all before: nearest means would cut off one at a time."""
    size = 600
    vectors = (spread ** np.arange(size))[:, None].astype(np.float32) if spread else np.ones((size, 3), np.float32)
    parent, left = split_tree(vectors, np.arange(predictable(size).size), seed=0)
    depths = find_paths(torch.from_numpy(parent), torch.from_numpy(left), size).depths.numpy()
    least = math.ceil(math.log2(predictable(size).size))
    assert depths.max() <= (math.log(size) / math.log(8 / 7) if spread > 1 else 2 * least if spread else least)


def learnt_layer(seed: int = 0) -> LearnedTree:
    layer = layer_of("tree", 60, seed=seed)
    assert isinstance(layer, LearnedTree)
    return layer


def teach(layer: LearnedTree, begin: int, end: int) -> list[bool]:
    """Steps of a training of 20; states tell the remainder of their target by 4. Whether each renewed the layer."""
    renewed = []
    for step in range(begin, end):
        renewed.append(layer.update_structure(step / 20))
        rng = np.random.default_rng(step)
        targets = torch.from_numpy(predictable(60)[rng.integers(0, 57, 400)])
        states = 0.1 * torch.from_numpy(rng.normal(size=(400, WIDTH)))
        states[:, 0] += 10 * (targets % 4 // 2)
        states[:, 1] += 2 * (targets % 2)
        states.requires_grad_()
        layer.zero_grad()
        layer.loss(states, targets, None, DropoutRng(0, step)).backward()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter -= 1e-3 * parameter.grad
    return renewed


def test_a_tree_is_rebuilt_from_the_states_of_its_tokens() -> None:
    layer = learnt_layer()
    before = layer.parent.clone()
    renewed = teach(layer, 0, 20)
    assert [step for step, one in enumerate(renewed) if one] == [4]  # at a fifth of training, once
    assert not torch.equal(layer.parent, before)
    grand = {}
    for token in predictable(60).tolist():
        node = token
        path = []
        while int(layer.parent[node]) >= 0:
            node = 60 + int(layer.parent[node])
            path.append(node)
        grand[token] = path[-3] if len(path) > 2 else token
    by_node = {(node, token % 4) for token, node in grand.items()}
    assert len(by_node) == len({node for node, _ in by_node}) == 4  # two decisions determine the remainder
    states, _ = places_of(60)
    torch.testing.assert_close(layer.log_probabilities(states).exp().sum(1), torch.ones(12, dtype=torch.float64))
    assert not layer.sums.any()


@pytest.mark.parametrize("stop", [1, 3, 4, 5])
def test_rebuilding_a_tree_can_be_resumed_anywhere(stop: int) -> None:
    whole, first, second = learnt_layer(), learnt_layer(), learnt_layer(seed=9)
    teach(whole, 0, 8)
    teach(first, 0, stop)
    for name, tensor in second.state_dict().items():
        tensor.numpy()[...] = first.state_dict()[name].numpy()
    teach(second, stop, 8)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def test_a_tree_is_not_rebuilt_without_states() -> None:
    layer = learnt_layer()
    assert not layer.update_structure(0.9)  # no states were summed up before, so summing starts now
    teach(layer, 19, 20)
    assert layer.update_structure(0.97)
    assert not layer.update_structure(1.0)


def test_inference_does_not_change_the_tree() -> None:
    layer, (states, targets) = learnt_layer(), places_of(60)
    layer.update_structure(0.15)
    layer.loss(states, targets)
    layer.log_probability(states, targets)
    assert not layer.seen.any()
    layer.loss(states, targets, None, DropoutRng(0, 0))
    assert int(layer.seen.sum()) == len(targets)


@pytest.mark.parametrize("wrong", [-7, 10**9, 30])
def test_a_damaged_tree_is_refused(wrong: int) -> None:
    layer, (states, targets) = learnt_layer(), places_of(60)
    layer.parent[60 + 20] = wrong  # inner node 20 under a wrong node, or under one below it
    with pytest.raises(ArtifactError, match="tree of the output layer is damaged"):
        layer.log_probability(states, targets)


# Adaptive softmax


def test_adaptive_is_torchs_with_tokens_by_frequency() -> None:
    size = 400
    layer, (states, targets) = layer_of("adaptive", size, width=16, bias=False), places_of(size, 200, 16)
    assert isinstance(layer, AdaptiveSoftmax)
    bounds = layer.bounds.tolist()
    assert len(bounds) == 4
    twin = torch.nn.AdaptiveLogSoftmaxWithLoss(16, bounds[-1], bounds[1:-1], div_value=4.0).double()
    ours = [
        layer.head.weight,
        *(part for tail in layer._tails() for part in (tail.project.weight, tail.softmax.weight)),
    ]
    twins = [twin.head.weight, *(part.weight for tail in twin.tail for part in tail)]
    with torch.no_grad():
        for mine, its in zip(ours, twins, strict=True):
            assert mine.shape == its.shape
            its.copy_(mine)
    expected = twin(states, layer.row[targets])
    torch.testing.assert_close(layer.log_probability(states, targets), expected.output)
    layer.loss(states, targets).backward()
    (-expected.output.sum()).backward()
    for mine, its in zip(ours, twins, strict=True):
        torch.testing.assert_close(mine.grad, its.grad)
    order = torch.empty(bounds[-1], dtype=torch.int64)
    order[layer.row[predictable(size)]] = torch.from_numpy(predictable(size))
    torch.testing.assert_close(layer.log_probabilities(states)[:, order], twin.log_prob(states))


def test_a_tail_without_targets_has_a_gradient_of_zero() -> None:
    layer = layer_of("adaptive", 400)
    assert isinstance(layer, AdaptiveSoftmax)
    frequent = (layer.row == 0).nonzero()[0]
    layer.loss(torch.zeros(1, WIDTH, dtype=torch.float64), frequent).backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
    assert not layer._tails()[1].softmax.weight.grad.any()
