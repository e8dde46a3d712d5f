"""The conditional random field against the enumeration of all rows of labels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.tasks.crf import Crf, legal_steps

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BIOES = ["O", "B-X", "I-X", "E-X", "S-X"]
LENGTHS = torch.tensor([4, 1, 3, 2])


def make_crf(labels: list[str], constrained: bool, seed: int = 0) -> Crf:
    generator = torch.Generator().manual_seed(seed)
    crf = Crf(labels, constrained).double()
    for parameter in crf.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.double)
    return crf


def make_emissions(labels: int, seed: int = 1, places: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(len(LENGTHS), places, labels, generator=generator, dtype=torch.double)


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
    for place, label in enumerate(path):
        score = score + emissions[place, label]
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
        assert tuple(found.labels.tolist()) == expected
        shares = torch.zeros(length, len(labels), dtype=torch.double)
        for path, share in zip(paths, scores.softmax(0), strict=True):
            for place, label in enumerate(path):
                shares[place, label] += share.detach()
        assert found.chances.tolist() == pytest.approx([shares[at, label].item() for at, label in enumerate(expected)])


def test_loss_is_the_sum_of_negative_log_probabilities() -> None:
    crf, emissions = make_crf(BIO, constrained=False), make_emissions(len(BIO))
    labels = torch.randint(0, len(BIO), (4, 4), generator=torch.Generator().manual_seed(3))
    expected = torch.zeros((), dtype=torch.double)
    for row, length in enumerate(LENGTHS.tolist()):
        path = tuple(labels[row, :length].tolist())
        scores = torch.stack(list(all_paths(crf, emissions[row, :length], BIO, False).values()))
        expected = expected + scores.logsumexp(0) - plain_score(crf, emissions[row], path)
    assert torch.allclose(crf.loss(emissions, labels, LENGTHS), expected)


def test_padding_says_nothing() -> None:
    crf, emissions = make_crf(BIO, constrained=True), make_emissions(len(BIO))
    labels = torch.tensor([[1, 2, 0, 3], [0, -100, -100, -100], [3, 4, 4, -100], [0, 0, -100, -100]])
    padding = torch.arange(4) >= LENGTHS[:, None]
    wild = emissions.masked_fill(padding[:, :, None], torch.nan)
    assert torch.equal(crf.loss(wild, labels, LENGTHS), crf.loss(emissions, labels, LENGTHS))
    for row, length in enumerate(LENGTHS.tolist()):  # and rows do not know of each other
        alone = crf.log_partition(emissions[row : row + 1, :length], torch.tensor([length]))
        assert torch.allclose(alone[0], crf.log_partition(wild, LENGTHS)[row])


def test_a_row_without_places_scores_nothing() -> None:
    crf, emissions = make_crf(BIO, constrained=False), make_emissions(len(BIO))
    lengths, labels = torch.tensor([0, 4, 0, 1]), torch.zeros(4, 4, dtype=torch.long)
    assert crf.log_partition(emissions, lengths)[[0, 2]].tolist() == [0.0, 0.0]
    assert crf.score(emissions, labels, lengths)[[0, 2]].tolist() == [0.0, 0.0]


def test_gradients() -> None:
    crf, emissions = make_crf(["O", "B", "I"], constrained=True), make_emissions(3, places=3)
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
    assert crf.decode(np.zeros((5, 3))).labels.tolist() == [0] * 5
    assert crf.decode(np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]])).labels.tolist() == [0, 1]


def test_probabilities_are_told_even_where_every_row_of_labels_breaks_the_rules() -> None:
    found = Crf(["B", "E"], constrained=True).decode(np.array([[0.0, 0.0]]))  # a word of one character has no label
    assert found.labels.size == 1
    assert found.chances.tolist() == pytest.approx([0.5])


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
def test_legal_steps_are_those_of_a_reading_word_by_word(labels: list[str]) -> None:
    start, between, end = legal_steps(labels)
    spelled = [label.replace("M", "I") for label in labels]
    for path in itertools.product(range(len(labels)), repeat=4):
        allowed = bool(start[path[0]]) and bool(end[path[-1]])
        allowed = allowed and all(bool(between[one, two]) for one, two in itertools.pairwise(path))
        assert allowed == is_legal(path, spelled), [labels[code] for code in path]


@pytest.mark.parametrize("labels", [["NOUN", "VERB", "I-X"], ["M", "NN"], ["O", "O-X"], []])
def test_labels_of_other_forms_can_take_every_step(labels: list[str]) -> None:
    assert all(bool(steps.all()) for steps in legal_steps(labels))


def test_rules_are_not_saved_as_parameters() -> None:
    assert sorted(Crf(BIO, constrained=True).state_dict()) == ["between", "end", "start"]
