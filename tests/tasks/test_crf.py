"""The conditional random field against the enumeration of all label sequences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.metrics.tags import fault_table
from firth.tasks.crf import Crf, constraint_scheme

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BIOES = ["O", "B-X", "I-X", "E-X", "S-X"]
LENGTHS = torch.tensor([4, 1, 3, 2])


def make_crf(labels: list[str], constrained: bool, seed: int = 0) -> Crf:
    generator = torch.Generator().manual_seed(seed)
    crf = Crf(labels, constrained).double()
    for parameter in crf.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.double)
    return crf


def make_emissions(labels: int, seed: int = 1, length: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(len(LENGTHS), length, labels, generator=generator, dtype=torch.double)


def is_legal(path: tuple[int, ...], labels: list[str]) -> bool:
    """BIO and BIOES read word by word."""
    closing = any(label[0] in "ES" for label in labels)
    kind = None  # of the chunk that is open
    for label in (labels[code] for code in path):
        prefix, _, own = label.partition("-")
        if prefix in "IE" and kind != own:
            return False
        if closing and kind is not None and prefix not in "IE":
            return False
        kind = own if prefix in "BI" else None
    return not (closing and kind is not None)


def plain_score(crf: Crf, emissions: Tensor, path: tuple[int, ...]) -> Tensor:
    score = crf.start[path[0]] + crf.end[path[-1]]
    for position, label in enumerate(path):
        score = score + emissions[position, label]
    for one, two in itertools.pairwise(path):
        score = score + crf.between[one, two]
    return score


def all_paths(crf: Crf, emissions: Tensor, labels: list[str], constrained: bool) -> dict[tuple[int, ...], Tensor]:
    paths = itertools.product(range(len(labels)), repeat=len(emissions))
    return {path: plain_score(crf, emissions, path) for path in paths if not constrained or is_legal(path, labels)}


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("labels", [BIO, BIOES, ["NOUN", "VERB", "M"]], ids=["bio", "bioes", "pos"])
def test_partition_best_path_and_marginals_equal_enumeration(labels: list[str], constrained: bool) -> None:
    crf, emissions = make_crf(labels, constrained), make_emissions(len(labels))
    rules = constrained and labels[0] == "O"
    partition = crf.log_partition(emissions, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        paths = all_paths(crf, emissions[row, :length], labels, rules)
        scores = torch.stack(list(paths.values()))
        assert torch.allclose(partition[row], scores.logsumexp(0))
        expected = max(paths, key=lambda path: paths[path].item())
        found = crf.decode(emissions[row, :length].numpy())
        assert tuple(found[0].tolist()) == expected
        marginal = torch.zeros(length, len(labels), dtype=torch.double)
        for path, probability in zip(paths, scores.softmax(0), strict=True):
            for position, label in enumerate(path):
                marginal[position, label] += probability.detach()
        assert found[1].tolist() == pytest.approx([marginal[at, label].item() for at, label in enumerate(expected)])


def test_loss_is_the_sum_of_negative_log_probabilities() -> None:
    crf, emissions = make_crf(BIO, constrained=False), make_emissions(len(BIO))
    labels = torch.randint(0, len(BIO), (4, 4), generator=torch.Generator().manual_seed(3))
    expected = torch.zeros((), dtype=torch.double)
    for row, length in enumerate(LENGTHS.tolist()):
        path = tuple(labels[row, :length].tolist())
        scores = torch.stack(list(all_paths(crf, emissions[row, :length], BIO, False).values()))
        expected = expected + scores.logsumexp(0) - plain_score(crf, emissions[row], path)
    assert torch.allclose(crf.loss(emissions, labels, LENGTHS), expected)


def test_padding_is_ignored() -> None:
    crf, emissions = make_crf(BIO, constrained=True), make_emissions(len(BIO))
    labels = torch.tensor([[1, 2, 0, 3], [0, -100, -100, -100], [3, 4, 4, -100], [0, 0, -100, -100]])
    padding = torch.arange(4) >= LENGTHS[:, None]
    wild = emissions.masked_fill(padding[:, :, None], torch.nan)
    assert torch.equal(crf.loss(wild, labels, LENGTHS), crf.loss(emissions, labels, LENGTHS))
    for row, length in enumerate(LENGTHS.tolist()):  # and rows do not know of each other
        alone = crf.log_partition(emissions[row : row + 1, :length], torch.tensor([length]))
        assert torch.allclose(alone[0], crf.log_partition(wild, LENGTHS)[row])


def test_an_empty_sequence_scores_nothing() -> None:
    crf, emissions = make_crf(BIO, constrained=False), make_emissions(len(BIO))
    lengths, labels = torch.tensor([0, 4, 0, 1]), torch.zeros(4, 4, dtype=torch.long)
    assert crf.log_partition(emissions, lengths)[[0, 2]].tolist() == [0.0, 0.0]
    assert crf.score(emissions, labels, lengths)[[0, 2]].tolist() == [0.0, 0.0]


def test_gradients() -> None:
    crf, emissions = make_crf(["O", "B", "I"], constrained=True), make_emissions(3, length=3)
    lengths, labels = torch.tensor([3, 1, 2, 3]), torch.tensor([[1, 2, 0], [0, 0, 0], [1, 1, 0], [0, 1, 2]])

    def loss(emissions: Tensor, start: Tensor, between: Tensor, end: Tensor) -> Tensor:
        given = {"start": start, "between": between, "end": end}
        return torch.func.functional_call(
            _Loss(crf), {f"crf.{name}": value for name, value in given.items()}, (emissions, labels, lengths)
        )

    inputs = [tensor.detach().clone().requires_grad_() for tensor in (emissions, crf.start, crf.between, crf.end)]
    assert torch.autograd.gradcheck(loss, inputs)


class _Loss(torch.nn.Module):
    def __init__(self, crf: Crf) -> None:
        super().__init__()
        self.crf = crf

    def forward(self, emissions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        return self.crf.loss(emissions, labels, lengths)


def test_of_equal_paths_the_lowest_labels_win() -> None:
    crf = Crf(["a", "b", "c"])
    assert crf.decode(np.zeros((5, 3)))[0].tolist() == [0] * 5
    assert crf.decode(np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]]))[0].tolist() == [0, 1]


def test_probabilities_are_finite_if_every_path_is_forbidden() -> None:
    found = Crf(["B", "E"], constrained=True).decode(np.array([[0.0, 0.0]]))  # a word of one character has no label
    assert found[0].size == 1
    assert found[1].tolist() == pytest.approx([0.5])


def test_gold_labels_against_the_rules_cost_much_but_not_without_bound() -> None:
    crf = Crf(BIO, constrained=True)
    emissions = torch.zeros(1, 3, len(BIO), requires_grad=True)
    loss = crf.loss(emissions, torch.tensor([[2, 4, 0]]), torch.tensor([3]))
    loss.backward()
    assert 10_000 < float(loss.detach()) < 30_000
    assert emissions.grad is not None
    assert torch.isfinite(emissions.grad).all()
    assert torch.isfinite(crf.between.grad).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("labels", [BIO, BIOES, ["B", "M", "E", "S"], ["B", "I"], ["O", "B-a-b", "I-a-b", "I-a"]])
def test_allowed_transitions_are_those_of_a_reading_word_by_word(labels: list[str]) -> None:
    legal = ~fault_table(labels, constraint_scheme(labels))
    spelled = [label.replace("M", "I") for label in labels]
    for path in itertools.product(range(len(labels)), repeat=4):
        allowed = all(legal[one, two] for one, two in itertools.pairwise((-1, *path, -1)))
        assert allowed == is_legal(path, spelled), [labels[code] for code in path]


@pytest.mark.parametrize("labels", [["NOUN", "VERB", "I-X"], ["M", "NN"], ["O", "O-X"], []])
def test_labels_of_other_forms_have_all_transitions(labels: list[str]) -> None:
    assert not fault_table(labels, constraint_scheme(labels)).any()


def test_rules_are_not_saved_as_parameters() -> None:
    assert sorted(Crf(BIO, constrained=True).state_dict()) == ["between", "end", "start"]
