"""Every objective: its loss by hand and its gradient by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.errors import RecipeError
from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.network import Network, build_network
from firth.nets.recipe import Format, NetRecipe
from firth.objectives.heads.bilm import BidirectionalLMHead
from firth.objectives.heads.build import make_heads, union_positions
from firth.objectives.heads.clm import first_positions
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.heads.pairs import PairClassificationHead
from firth.objectives.neighbours import NeighbourObjective
from firth.objectives.registry import OBJECTIVES
from firth.objectives.restoring import RestoringObjective
from firth.objectives.sequences import Sequences
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK
from tests.objectives.finite_differences import assert_finite_differences, loss_of, number
from tests.objectives.small_stores import small_recipe, small_vocabulary

PAIRED = ("nsp", "sop")
WITH = {"sbo": "mlm+sbo"}
"""Objectives that use the noise of others."""
EVERY = [
    name
    for name, one in OBJECTIVES.items()
    if not (one().requires or one.lays_out or one.groups_sentences or issubclass(one, NeighbourObjective))
]
"""Those of columns and of sequences of their own are in `test_layouts.py` and `test_layout_gradients.py`, of sentences
in their own file."""
RESTORING = [name for name, one in OBJECTIVES.items() if issubclass(one, RestoringObjective)]
FORMATS: dict[str, Format] = {
    "nsp": "sentence-pair",
    "sop": "sentence-pair",
    "autoencoding": "sentences",
    "seq2seq": "parallel",
    "unilm": "sentence-pair",
    "mntp": "doc-sentences",
    **dict.fromkeys(RESTORING, "doc-sentences"),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks are fastest with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def packed_rows(rows: int = 4, seed: int = 0) -> Batch:
    """Rows of 16 tokens with sequences of 7 and 6 tokens, then padding; the last row is one full sequence."""
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(5, 40, (rows, 16)))
    sequence_ids = torch.tensor([0] * 7 + [1] * 6 + [-1] * 3).repeat(rows, 1)
    sequence_ids[-1] = 0
    ids[sequence_ids < 0] = PAD
    positions = torch.tensor([*range(7), *range(6), 0, 0, 0]).repeat(rows, 1)
    positions[-1] = torch.arange(16)
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), sequence_ids, positions, row_seeds=torch.arange(rows))
    batch.source = Batch((ids + 3) % 40, batch.word_starts, sequence_ids, positions)  # which decoders alone read
    firsts = first_positions(batch)
    ids.view(-1)[firsts] = BOS
    for name in PAIRED:
        batch.labels[f"{name}.labels"] = torch.from_numpy(rng.integers(-1, 2, len(firsts)))
    batch.labels["unilm.ways"] = torch.arange(len(firsts)) % 4
    batch.labels["unilm.labels"] = torch.full((len(firsts),), -1)
    return batch


def made(name: str, **changes: object) -> tuple[NetRecipe, Network, ObjectiveHead, Batch]:
    """A recipe, its network in double precision, its objective and a corrupted batch."""
    recipe = small_recipe(WITH.get(name, name), form=FORMATS.get(name, "stream"))
    segments = 6 if name == "unilm" else 0
    recipe = replace(recipe, embedding=replace(recipe.embedding, segments=segments), **changes)  # type: ignore[arg-type]
    vocabulary = small_vocabulary()
    network = build_network(recipe, vocabulary, 1).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        objective = make_heads(recipe, network)[name].double()
    for parameter in [*network.parameters(), *objective.parameters()]:
        parameter.data.mul_(8)  # so that states differ
    return recipe, network, objective, corrupted(network, objective, packed_rows())


def corrupted(network: Network, objective: ObjectiveHead, batch: Batch, seed: int = 3) -> Batch:
    """The batch after the noise of an objective and of those before it in its recipe."""
    for name, head in make_heads(objective.recipe, network).items():
        (objective if name == objective.name else head).corrupt(batch, np.random.default_rng(seed))
    return batch


def log_probabilities(network: Network, states: Tensor) -> Tensor:
    assert isinstance(network.output.weight, Tensor)
    assert isinstance(network.output.bias, Tensor)
    return f.log_softmax(states @ network.output.weight.T + network.output.bias, -1).detach()


@pytest.mark.parametrize("name", EVERY)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    _, network, objective, batch = made(name)
    assert_finite_differences(network, objective, batch)


@pytest.mark.parametrize("name", EVERY)
def test_positions_are_sorted_and_counts_agree(name: str) -> None:
    _, network, objective, batch = made(name)
    positions = objective.positions(batch)
    assert positions is not None
    assert len(positions) > 0
    assert torch.all(positions[1:] > positions[:-1])
    assert batch.sequence_ids is not None
    assert torch.all(batch.sequence_ids.flatten()[positions] >= 0)
    loss = loss_of(network, objective, batch)
    assert loss.count == objective.count(batch) > 0
    assert loss.total.ndim == 0
    rewritten = objective.rewrite(batch, network, None)
    again = objective.loss(network, network(rewritten), rewritten, None)
    assert number(again) == pytest.approx(number(loss))


@pytest.mark.parametrize("name", [name for name in EVERY if not OBJECTIVES[name].compares_sequences])
def test_losses_of_batches_add_up(name: str) -> None:
    """The loss of a batch is the sum of those of its rows, each with the same noise."""
    _, network, objective, batch = made(name)
    whole = loss_of(network, objective, batch)
    total, count, sequence = 0.0, 0, 0
    for row in range(batch.shape[0]):
        one = packed_rows()
        here = int((first_positions(one) // 16 == row).sum())
        labels = {key: value[sequence : sequence + here] for key, value in one.labels.items()}
        sequence += here
        pick = slice(row, row + 1)
        assert one.sequence_ids is not None
        assert one.position_ids is not None
        assert one.row_seeds is not None
        alone = Batch(
            one.ids[pick], one.word_starts[pick], one.sequence_ids[pick], one.position_ids[pick], labels=labels
        )
        alone.row_seeds = one.row_seeds[pick]
        assert one.source is not None
        alone.source = Batch(
            one.source.ids[pick], one.word_starts[pick], one.sequence_ids[pick], one.position_ids[pick]
        )
        corrupted(network, objective, alone)
        if objective.count(alone) == 0:
            continue
        loss = loss_of(network, objective, alone)
        total, count = total + number(loss), count + loss.count
    assert count == whole.count
    assert total == pytest.approx(number(whole))


def test_clm_predicts_the_next_token_of_the_sequence() -> None:
    _, network, objective, batch = made("clm")
    loss = loss_of(network, objective, batch)
    logprobs = log_probabilities(network, network(batch).last_hidden_state).view(4, 16, -1)
    expected = 0.0
    for row in range(3):
        for first, size in ((0, 7), (7, 6)):
            expected -= sum(float(logprobs[row, t, batch.ids[row, t + 1]]) for t in range(first, first + size - 1))
    expected -= sum(float(logprobs[3, t, batch.ids[3, t + 1]]) for t in range(15))
    assert loss.count == 3 * (6 + 5) + 15
    assert number(loss) == pytest.approx(expected)


def test_bilm_predicts_next_and_previous_by_its_halves() -> None:
    _, network, objective, batch = made("bilm")
    assert isinstance(objective, BidirectionalLMHead)
    states = network(batch, objective.positions(batch))
    forward, backward = objective.direction_losses(network, states, batch, None)
    whole = network(batch).last_hidden_state.view(4, 16, 16)
    sums = [0.0, 0.0]
    for row in range(4):
        for t in range(16):
            same = (
                batch.sequence_ids is not None
                and t < 15
                and batch.sequence_ids[row, t] == batch.sequence_ids[row, t + 1] >= 0
            )
            if same:
                here, after = batch.ids[row, t], batch.ids[row, t + 1]
                sums[0] -= float(log_probabilities(network, whole[row, t, :8])[after])
                sums[1] -= float(log_probabilities(network, whole[row, t + 1, 8:])[here])
    assert number(forward) == pytest.approx(sums[0])
    assert number(backward) == pytest.approx(sums[1])
    both = objective.loss(network, states, batch, None)
    assert number(both) == pytest.approx(sum(sums))
    assert both.count == 2 * (3 * 11 + 15)


def test_mlm_predicts_masked_tokens_alone() -> None:
    _, network, objective, batch = made("mlm")
    before = packed_rows().ids.flatten()
    positions, targets = batch.labels["mlm.positions"], batch.labels["mlm.targets"]
    assert torch.equal(targets, before[positions])
    changed = (batch.ids.flatten() != before).nonzero()[:, 0]
    assert set(changed.tolist()) <= set(positions.tolist())
    assert (batch.ids == MASK).any()
    logprobs = log_probabilities(network, network(batch).last_hidden_state)
    expected = -sum(float(logprobs[position, target]) for position, target in zip(positions, targets, strict=True))
    assert number(loss_of(network, objective, batch)) == pytest.approx(expected)


@pytest.mark.parametrize("name", PAIRED)
def test_pairs_are_classified_by_the_first_state_of_a_sequence(name: str) -> None:
    _, network, objective, batch = made(name)
    assert isinstance(objective, PairClassificationHead)
    assert {key for key, _ in objective.named_parameters()} == {
        f"{layer}.{kind}" for layer in ("pooler", "classifier") for kind in ("weight", "bias")
    }
    states = network(batch).last_hidden_state.view(4, 16, 8)
    firsts = [(0, 0), (0, 7), (1, 0), (1, 7), (2, 0), (2, 7), (3, 0)]
    labels = batch.labels[f"{name}.labels"].tolist()
    expected, count = 0.0, 0
    for (row, position), label in zip(firsts, labels, strict=True):
        if label < 0:
            continue
        pooled = torch.tanh(objective.pooler.weight @ states[row, position] + objective.pooler.bias)
        scores = objective.classifier.weight @ pooled + objective.classifier.bias
        expected, count = expected - float(scores.detach().log_softmax(-1)[label]), count + 1
    loss = loss_of(network, objective, batch)
    assert 0 < count < 7
    assert loss.count == count
    assert number(loss) == pytest.approx(expected)


def test_autoencoding_predicts_the_second_half() -> None:
    _, network, objective, _ = made("autoencoding")
    row = [EOS, 7, 8, 9, EOS, 7, 8, 9, EOS, EOS, 11, EOS, 11, EOS, PAD, PAD]
    sequence_ids = [0] * 9 + [1] * 5 + [-1] * 2
    ids = torch.tensor([row])
    batch = Batch(
        ids,
        ids > 0,
        sequence_ids=torch.tensor([sequence_ids]),
        position_ids=torch.tensor([[*range(9), *range(5), 0, 0]]),
    )
    positions = objective.positions(batch)
    assert positions is not None
    assert positions.tolist() == [4, 5, 6, 7, 11, 12]
    logprobs = log_probabilities(network, network(batch).last_hidden_state)
    expected = -sum(float(logprobs[position, row[position + 1]]) for position in positions.tolist())
    loss = loss_of(network, objective, batch)
    assert (number(loss), loss.count) == (pytest.approx(expected), 6)


def test_ranking_equals_that_of_single_windows() -> None:
    """All middles are replaced at once; replacing them singly gives the same."""
    _, network, objective, batch = made("ranking")
    positions, words = batch.labels["ranking.positions"], batch.labels["ranking.negatives"]
    columns = positions % 16
    same_row = (positions[1:] // 16) == (positions[:-1] // 16)
    assert torch.all((columns[1:] - columns[:-1])[same_row] % 5 == 0)
    assert same_row.any()
    assert torch.all(words >= 5)
    assert torch.all(words != batch.ids.flatten()[positions])
    assert torch.all((batch.ids.flatten()[positions] >= 5) | (batch.ids.flatten()[positions] == UNK))
    score: Callable[[Tensor], Tensor] = objective.get_submodule("score")
    true, total = score(network(batch).last_hidden_state).flatten(), 0.0
    for position, word in zip(positions, words, strict=True):
        ids = batch.ids.clone()
        ids.view(-1)[position] = word
        wrong = score(network(replace(batch, ids=ids)).last_hidden_state).flatten()[position]
        total += max(0.0, float((1 - true[position] + wrong).detach()))
    loss = loss_of(network, objective, batch)
    assert (number(loss), loss.count) == (pytest.approx(total), len(positions))
    assert total > 0


def test_ranking_chooses_every_position_and_every_negative() -> None:
    _, _, objective, _ = made("ranking")
    seen = torch.zeros(4 * 16, dtype=torch.int64)
    drawn = torch.zeros(40, dtype=torch.int64)
    for seed in range(200):
        batch = packed_rows()
        objective.corrupt(batch, np.random.default_rng(seed))
        seen[batch.labels["ranking.positions"]] += 1
        drawn += torch.bincount(batch.labels["ranking.negatives"], minlength=40)
    text = packed_rows().ids.flatten() >= 5
    assert torch.all((seen > 0) == text)
    assert torch.all((drawn > 0) == (torch.arange(40) >= 5))


@pytest.mark.parametrize("name", EVERY)
def test_dropout_depends_on_the_step_alone(name: str) -> None:
    recipe, _, _, _ = made(name)
    encoder = replace(recipe.encoder, dropout=0.5)
    _, network, objective, batch = made(name, encoder=encoder)
    totals = []
    for step in (0, 0, 1):
        rng = DropoutRng(0, step)
        rewritten = objective.rewrite(batch, network, rng)
        states = network(rewritten, objective.positions(rewritten), rng)
        totals.append(number(objective.loss(network, states, rewritten, rng)))
    assert totals[0] == totals[1] != totals[2]


def pairs_of(texts: Sequence[tuple[int, int, int]], documents: Sequence[int], max_tokens: int = 20) -> Sequences:
    cuts = np.array(texts, dtype=np.int64)
    return Sequences(cuts[:, :2], cuts[:, 1:], max_tokens, np.array(documents, dtype=np.int64), {})


def test_sequences_without_a_next_segment_are_ignored() -> None:
    """A second segment that is empty or does not follow has no label."""
    _, _, nsp, _ = made("nsp")
    _, _, sop, _ = made("sop")
    cuts = [
        (40 * n + a, 40 * n + b, 40 * n + c) for n in range(30) for a, b, c in ((0, 4, 9), (9, 10, 10), (20, 25, 30))
    ]
    sequences = pairs_of(cuts, range(0, 1201, 20))
    first = nsp.pair(sequences, np.random.default_rng(0))
    assert set(first.labels["nsp.labels"][1::3].tolist()) == {-1}
    both = sop.pair(first, np.random.default_rng(1))
    labelled = first.labels["nsp.labels"] == 0
    assert np.array_equal(both.labels["sop.labels"] >= 0, labelled)
    assert labelled.any()
    assert (first.labels["nsp.labels"] == 1).any()
    turned = both.labels["sop.labels"] == 1
    assert np.array_equal(both.starts[turned], first.starts[turned][:, ::-1])
    assert np.array_equal(both.starts[~turned], first.starts[~turned])


def test_one_document_and_no_partner_that_fits() -> None:
    """A text of one document: second segments are from elsewhere in it, truncated if they do not fit."""
    _, _, nsp, _ = made("nsp")
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 20, 200)
    cuts = [(20 * position, 20 * position + int(size), 20 * position + 20) for position, size in enumerate(sizes)]
    paired = nsp.pair(pairs_of(cuts, [0, 4000]), rng)
    labels = paired.labels["nsp.labels"]
    lengths = (paired.ends - paired.starts).sum(axis=1)
    assert 60 < labels.sum() < 140
    assert lengths.max() <= 20
    assert (paired.ends > paired.starts).all()
    moved = paired.starts[:, 1] != paired.ends[:, 0]
    assert np.array_equal(moved, labels == 1)
    alone = nsp.pair(pairs_of([(0, 3, 6)], [0, 6]), rng)
    assert alone.labels["nsp.labels"].tolist() == [0]


def test_autoencoding_of_pairs_is_refused() -> None:
    _, _, objective, _ = made("autoencoding")
    with pytest.raises(RecipeError, match=r"sequence\.format=sentences"):
        objective.pair(pairs_of([(0, 3, 6)], [0, 6]), np.random.default_rng(0))


def test_the_union_of_positions() -> None:
    one, other = torch.tensor([1, 4, 6]), torch.tensor([0, 4])
    found = union_positions([one, other])
    assert found is not None
    assert found.tolist() == [0, 1, 4, 6]
    assert union_positions([one, None]) is None


def test_objectives_own_their_layers() -> None:
    recipe = small_recipe("mlm+nsp+sop", form="segment-pair")
    heads = nn.ModuleDict(make_heads(recipe, build_network(recipe, small_vocabulary(), 0)))
    assert {name.split(".")[0] for name, _ in heads.named_parameters()} == {"nsp", "sop"}
