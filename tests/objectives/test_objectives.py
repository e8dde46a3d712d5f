"""Every objective: its loss by hand, its gradient by finite differences, and what it may and may not look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.errors import RecipeError
from firth.nets.batch import Batch, Loss
from firth.nets.network import Network, build_network
from firth.nets.noise import Noise
from firth.nets.products import OBJECTIVES
from firth.nets.recipe import NetRecipe
from firth.objectives.bilm import TwoWayModelling
from firth.objectives.judging import PairJudgement, first_places
from firth.objectives.objective import Objective, make_objectives, union
from firth.objectives.sequences import Sequences
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK
from tests.objectives.small_stores import small_recipe, small_vocabulary

PAIRED = ("nsp", "sop")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """More only wait for each other with numbers so few."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def parted_rows(rows: int = 4, seed: int = 0) -> Batch:
    """Rows of 16 places with parts of 7 and 6 places, then padding; the last row is one part and full."""
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(5, 40, (rows, 16)))
    parts = torch.tensor([0] * 7 + [1] * 6 + [-1] * 3).repeat(rows, 1)
    parts[-1] = 0
    ids[parts < 0] = PAD
    positions = torch.tensor([*range(7), *range(6), 0, 0, 0]).repeat(rows, 1)
    positions[-1] = torch.arange(16)
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), parts, positions, keys=torch.arange(rows))
    firsts = first_places(batch)
    ids.view(-1)[firsts] = BOS
    for name in PAIRED:
        batch.marks[f"{name}.labels"] = torch.from_numpy(rng.integers(-1, 2, len(firsts)))
    return batch


def made(name: str, **changes: object) -> tuple[NetRecipe, Network, Objective, Batch]:
    """A recipe, its network in double precision, its objective and a corrupted batch."""
    recipe = small_recipe(name, form="sentence-pair" if name in PAIRED else "stream")
    recipe = replace(recipe, embedding=replace(recipe.embedding, segments=0), **changes)  # type: ignore[arg-type]
    vocabulary = small_vocabulary()
    network = build_network(recipe, vocabulary, 1).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        objective = make_objectives(recipe, vocabulary)[name].double()
    for parameter in [*network.parameters(), *objective.parameters()]:
        parameter.data.mul_(8)  # so that states differ
    batch = parted_rows()
    objective.corrupt(batch, np.random.default_rng(3))
    return recipe, network, objective, batch


def loss_of(network: Network, objective: Objective, batch: Batch) -> Loss:
    batch = objective.rewrite(batch, network, None)
    return objective.loss(network, network(batch, objective.places(batch)), batch, None)


def number(loss: Loss) -> float:
    return float(loss.total.detach())


def log_probabilities(network: Network, states: Tensor) -> Tensor:
    assert isinstance(network.output.weight, Tensor)
    assert isinstance(network.output.bias, Tensor)
    return f.log_softmax(states @ network.output.weight.T + network.output.bias, -1).detach()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    _, network, objective, batch = made(name)
    loss = loss_of(network, objective, batch)
    loss.total.backward()  # type: ignore[no-untyped-call]
    learnt = [
        (key, one) for part in (network, objective) for key, one in part.named_parameters() if one.grad is not None
    ]
    assert any(one.grad.abs().max() > 0 for _, one in learnt)
    generator = torch.Generator().manual_seed(4)
    for key, parameter in learnt:
        gradient = parameter.grad
        assert gradient is not None
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        sides = []
        for step in (1e-6, -1e-6):
            parameter.data.add_(direction, alpha=step)
            with torch.no_grad():
                sides.append(number(loss_of(network, objective, batch)))
            parameter.data.sub_(direction, alpha=step)
        slope = float((gradient * direction).sum())
        assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(slope, rel=1e-5, abs=1e-5), key


@pytest.mark.parametrize("name", OBJECTIVES)
def test_places_are_in_order_and_counts_agree(name: str) -> None:
    _, network, objective, batch = made(name)
    places = objective.places(batch)
    assert places is not None
    assert len(places) > 0
    assert torch.all(places[1:] > places[:-1])
    assert batch.parts is not None
    assert torch.all(batch.parts.flatten()[places] >= 0)
    loss = loss_of(network, objective, batch)
    assert loss.count == objective.count(batch) > 0
    assert loss.total.ndim == 0
    all_states = network(batch)
    again = objective.loss(network, all_states, batch, None)
    assert number(again) == pytest.approx(number(loss))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_losses_of_batches_add_up(name: str) -> None:
    """The loss of a batch is the sum of those of its rows, each with the noise that it has among the others."""
    _, network, objective, batch = made(name)
    whole = loss_of(network, objective, batch)
    total, count, part = 0.0, 0, 0
    for row in range(batch.shape[0]):
        one = parted_rows()
        here = int((first_places(one) // 16 == row).sum())
        marks = {key: value[part : part + here] for key, value in one.marks.items()}
        part += here
        pick = slice(row, row + 1)
        assert one.parts is not None
        assert one.positions is not None
        assert one.keys is not None
        alone = Batch(one.ids[pick], one.starts[pick], one.parts[pick], one.positions[pick], marks=marks)
        alone.keys = one.keys[pick]
        objective.corrupt(alone, np.random.default_rng(3))
        if objective.count(alone) == 0:
            continue
        loss = loss_of(network, objective, alone)
        total, count = total + number(loss), count + loss.count
    assert count == whole.count
    assert total == pytest.approx(number(whole))


def test_clm_predicts_the_next_token_of_the_part() -> None:
    _, network, objective, batch = made("clm")
    loss = loss_of(network, objective, batch)
    shares = log_probabilities(network, network(batch).last).view(4, 16, -1)
    expected = 0.0
    for row in range(3):
        for first, size in ((0, 7), (7, 6)):
            expected -= sum(float(shares[row, t, batch.ids[row, t + 1]]) for t in range(first, first + size - 1))
    expected -= sum(float(shares[3, t, batch.ids[3, t + 1]]) for t in range(15))
    assert loss.count == 3 * (6 + 5) + 15
    assert number(loss) == pytest.approx(expected)


def test_bilm_predicts_next_and_previous_by_its_halves() -> None:
    _, network, objective, batch = made("bilm")
    assert isinstance(objective, TwoWayModelling)
    states = network(batch, objective.places(batch))
    forward, backward = objective.direction_losses(network, states, batch, None)
    whole = network(batch).last.view(4, 16, 16)
    sums = [0.0, 0.0]
    for row in range(4):
        for t in range(16):
            same = batch.parts is not None and t < 15 and batch.parts[row, t] == batch.parts[row, t + 1] >= 0
            if same:
                here, after = batch.ids[row, t], batch.ids[row, t + 1]
                sums[0] -= float(log_probabilities(network, whole[row, t, :8])[after])
                sums[1] -= float(log_probabilities(network, whole[row, t + 1, 8:])[here])
    assert number(forward) == pytest.approx(sums[0])
    assert number(backward) == pytest.approx(sums[1])
    both = objective.loss(network, states, batch, None)
    assert number(both) == pytest.approx(sum(sums))
    assert both.count == 2 * (3 * 11 + 15)


def test_mlm_predicts_what_was_hidden_and_nothing_else() -> None:
    _, network, objective, batch = made("mlm")
    before = parted_rows().ids.flatten()
    places, targets = batch.marks["mlm.places"], batch.marks["mlm.targets"]
    assert torch.equal(targets, before[places])
    changed = (batch.ids.flatten() != before).nonzero()[:, 0]
    assert set(changed.tolist()) <= set(places.tolist())
    assert (batch.ids == MASK).any()
    shares = log_probabilities(network, network(batch).last)
    expected = -sum(float(shares[place, target]) for place, target in zip(places, targets, strict=True))
    assert number(loss_of(network, objective, batch)) == pytest.approx(expected)


@pytest.mark.parametrize("name", PAIRED)
def test_pairs_are_judged_by_the_first_state_of_a_part(name: str) -> None:
    _, network, objective, batch = made(name)
    assert isinstance(objective, PairJudgement)
    assert {key for key, _ in objective.named_parameters()} == {
        f"{layer}.{kind}" for layer in ("pooler", "classifier") for kind in ("weight", "bias")
    }
    states = network(batch).last.view(4, 16, 8)
    firsts = [(0, 0), (0, 7), (1, 0), (1, 7), (2, 0), (2, 7), (3, 0)]
    labels = batch.marks[f"{name}.labels"].tolist()
    expected, count = 0.0, 0
    for (row, place), label in zip(firsts, labels, strict=True):
        if label < 0:
            continue
        pooled = torch.tanh(objective.pooler.weight @ states[row, place] + objective.pooler.bias)
        scores = objective.classifier.weight @ pooled + objective.classifier.bias
        expected, count = expected - float(scores.detach().log_softmax(-1)[label]), count + 1
    loss = loss_of(network, objective, batch)
    assert 0 < count < 7
    assert loss.count == count
    assert number(loss) == pytest.approx(expected)


def test_autoencoding_predicts_the_second_half() -> None:
    _, network, objective, _ = made("autoencoding")
    row = [EOS, 7, 8, 9, EOS, 7, 8, 9, EOS, EOS, 11, EOS, 11, EOS, PAD, PAD]
    parts = [0] * 9 + [1] * 5 + [-1] * 2
    ids = torch.tensor([row])
    batch = Batch(ids, ids > 0, parts=torch.tensor([parts]), positions=torch.tensor([[*range(9), *range(5), 0, 0]]))
    places = objective.places(batch)
    assert places is not None
    assert places.tolist() == [4, 5, 6, 7, 11, 12]
    shares = log_probabilities(network, network(batch).last)
    expected = -sum(float(shares[place, row[place + 1]]) for place in places.tolist())
    loss = loss_of(network, objective, batch)
    assert (number(loss), loss.count) == (pytest.approx(expected), 6)


def test_ranking_is_that_of_windows_one_by_one() -> None:
    """All middles are replaced at once; replacing one at a time must give the same."""
    _, network, objective, batch = made("ranking")
    places, words = batch.marks["ranking.places"], batch.marks["ranking.words"]
    columns = places % 16
    same_row = (places[1:] // 16) == (places[:-1] // 16)
    assert torch.all((columns[1:] - columns[:-1])[same_row] % 5 == 0)
    assert same_row.any()
    assert torch.all(words >= 5)
    assert torch.all(words != batch.ids.flatten()[places])
    assert torch.all((batch.ids.flatten()[places] >= 5) | (batch.ids.flatten()[places] == UNK))
    score: Callable[[Tensor], Tensor] = objective.get_submodule("score")
    true, total = score(network(batch).last).flatten(), 0.0
    for place, word in zip(places, words, strict=True):
        ids = batch.ids.clone()
        ids.view(-1)[place] = word
        wrong = score(network(replace(batch, ids=ids)).last).flatten()[place]
        total += max(0.0, float((1 - true[place] + wrong).detach()))
    loss = loss_of(network, objective, batch)
    assert (number(loss), loss.count) == (pytest.approx(total), len(places))
    assert total > 0


def test_ranking_takes_every_place_as_a_middle_and_every_word_as_wrong() -> None:
    _, _, objective, _ = made("ranking")
    seen = torch.zeros(4 * 16, dtype=torch.int64)
    drawn = torch.zeros(40, dtype=torch.int64)
    for seed in range(200):
        batch = parted_rows()
        objective.corrupt(batch, np.random.default_rng(seed))
        seen[batch.marks["ranking.places"]] += 1
        drawn += torch.bincount(batch.marks["ranking.words"], minlength=40)
    text = parted_rows().ids.flatten() >= 5
    assert torch.all((seen > 0) == text)
    assert torch.all((drawn > 0) == (torch.arange(40) >= 5))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_noise_comes_from_the_step_alone(name: str) -> None:
    recipe, _, _, _ = made(name)
    encoder = replace(recipe.encoder, dropout=0.5)
    _, network, objective, batch = made(name, encoder=encoder)
    totals = []
    for step in (0, 0, 1):
        noise = Noise(0, step)
        states = network(batch, objective.places(batch), noise)
        totals.append(number(objective.loss(network, states, batch, noise)))
    assert totals[0] == totals[1] != totals[2]


def pairs_of(texts: Sequence[tuple[int, int, int]], documents: Sequence[int], room: int = 20) -> Sequences:
    cuts = np.array(texts, dtype=np.int64)
    return Sequences(cuts[:, :2], cuts[:, 1:], room, np.array(documents, dtype=np.int64), {})


def test_what_cannot_be_asked_is_not_asked() -> None:
    """A second segment that is empty or does not follow: of it neither is asked."""
    _, _, nsp, _ = made("nsp")
    _, _, sop, _ = made("sop")
    cuts = [
        (40 * n + a, 40 * n + b, 40 * n + c) for n in range(30) for a, b, c in ((0, 4, 9), (9, 10, 10), (20, 25, 30))
    ]
    sequences = pairs_of(cuts, range(0, 1201, 20))
    first = nsp.pair(sequences, np.random.default_rng(0))
    assert set(first.labels["nsp.labels"][1::3].tolist()) == {-1}
    both = sop.pair(first, np.random.default_rng(1))
    asked = first.labels["nsp.labels"] == 0
    assert np.array_equal(both.labels["sop.labels"] >= 0, asked)
    assert asked.any()
    assert (first.labels["nsp.labels"] == 1).any()
    turned = both.labels["sop.labels"] == 1
    assert np.array_equal(both.begins[turned], first.begins[turned][:, ::-1])
    assert np.array_equal(both.begins[~turned], first.begins[~turned])


def test_one_document_and_no_partner_that_fits() -> None:
    """A text of one document: second segments come from elsewhere in it, and are cut where they do not fit."""
    _, _, nsp, _ = made("nsp")
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 20, 200)
    cuts = [(20 * place, 20 * place + int(size), 20 * place + 20) for place, size in enumerate(sizes)]
    paired = nsp.pair(pairs_of(cuts, [0, 4000]), rng)
    labels = paired.labels["nsp.labels"]
    lengths = (paired.ends - paired.begins).sum(axis=1)
    assert 60 < labels.sum() < 140
    assert lengths.max() <= 20
    assert (paired.ends > paired.begins).all()
    moved = paired.begins[:, 1] != paired.ends[:, 0]
    assert np.array_equal(moved, labels == 1)
    alone = nsp.pair(pairs_of([(0, 3, 6)], [0, 6]), rng)
    assert alone.labels["nsp.labels"].tolist() == [0]


def test_autoencoding_of_pairs_is_refused() -> None:
    _, _, objective, _ = made("autoencoding")
    with pytest.raises(RecipeError, match=r"rows\.format=sentences"):
        objective.pair(pairs_of([(0, 3, 6)], [0, 6]), np.random.default_rng(0))


def test_the_union_of_places() -> None:
    one, other = torch.tensor([1, 4, 6]), torch.tensor([0, 4])
    found = union([one, other])
    assert found is not None
    assert found.tolist() == [0, 1, 4, 6]
    assert union([one, None]) is None


def test_objectives_own_their_layers() -> None:
    recipe = small_recipe("mlm+nsp+sop", form="segment-pair")
    heads = nn.ModuleDict(make_objectives(recipe, small_vocabulary()))
    assert {name.split(".")[0] for name, _ in heads.named_parameters()} == {"nsp", "sop"}
