"""Knowledge graph embeddings: scores and derivatives by torch, ranks by hand, reproducibility, and triples of files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import firth
from firth.errors import AbilityError, CorpusError, RecipeError
from firth.recipes.graphs import distmult, rotate, transe
from firth.report.links import link_metrics
from firth.vectors import _graph_kernels as kernels
from firth.vectors.graph_model import TripleSet, scorer_kind, unit_count
from firth.vectors.recipe import GraphRecipe
from tests.command import firth as command

ENTITIES, RELATIONS, BATCH, NEGATIVES = 9, 3, 5, 4
RECIPES = {
    "l1": replace(transe(), loss="margin", margin=1.0),
    "l2": replace(transe(), norm="l2", loss="margin", margin=1.0),
    "distmult": distmult(),
    "rotate": rotate(),
    "logistic": replace(transe(), margin=2.0),
    "rotate-margin": replace(rotate(), loss="margin", margin=4.0),
}
TRIPLES = [(f"city {number}", "in", f"land {number % 4}") for number in range(24)]
TRIPLES += [(f"land {number}", "has", f"city {number + 4 * k}") for number in range(4) for k in range(6)]


def score(recipe: GraphRecipe, head: torch.Tensor, relation: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
    """By the equations."""
    if recipe.scorer == "transe":
        return -(head + relation - tail).norm(p=1 if recipe.norm == "l1" else 2, dim=-1)
    if recipe.scorer == "distmult":
        return (head * relation * tail).sum(-1)
    half = head.shape[-1] // 2
    one, two = (torch.complex(row[..., :half], row[..., half:]) for row in (head, tail))
    return -(one * torch.polar(torch.ones_like(relation), relation) - two).abs().sum(-1)


def loss_of(recipe: GraphRecipe, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    if recipe.loss == "margin":
        return (recipe.margin - positive[:, None] + negative).clamp(min=0).mean(1)
    weights = (recipe.temperature * negative.detach()).softmax(1)
    logistic = torch.nn.functional.logsigmoid
    return -logistic(recipe.margin + positive) - (weights * logistic(-recipe.margin - negative)).sum(1)


@pytest.mark.parametrize("name", RECIPES)
def test_losses_and_derivatives_are_those_of_torch(name: str) -> None:
    """AdaGrad's first step is lr x the sign of the gradient, its sum of squares the gradient squared."""
    recipe = replace(RECIPES[name], dimension=6)
    rng = np.random.default_rng(1)
    units = unit_count(recipe)
    entities, relations = (rng.normal(size=size).astype(np.float32) for size in ((ENTITIES, 6), (RELATIONS, units)))
    # No entity is twice in a batch, so that the gradient of a row is that of one triple.
    triples = np.array([[0, 1, 2]], dtype=np.int32)
    drawn = np.array([[3, 4, 5, 6]], dtype=np.int32)
    is_tail = np.array([[True, False, True, False]])
    scores, slopes = np.empty((2, 1, NEGATIVES + 1), np.float32)
    losses = np.empty(1, np.float32)
    loss = kernels.MARGIN if recipe.loss == "margin" else kernels.ADVERSARIAL
    kernels.weigh_triples(
        scorer_kind(recipe), loss, recipe.margin, recipe.temperature, entities, relations, triples, drawn, is_tail,
        0, 1, units, scores, slopes, losses,
    )  # fmt: skip
    e, r = (torch.from_numpy(table.copy()).requires_grad_() for table in (entities, relations))
    heads = torch.where(torch.from_numpy(is_tail), 0, torch.from_numpy(drawn).long())
    tails = torch.where(torch.from_numpy(is_tail), torch.from_numpy(drawn).long(), 2)
    positive, negative = score(recipe, e[[0]], r[[1]], e[[2]]), score(recipe, e[heads], r[1], e[tails])
    np.testing.assert_allclose(scores[0, :-1], negative.detach()[0], rtol=1e-5)
    expected = loss_of(recipe, positive, negative)
    np.testing.assert_allclose(losses, expected.detach(), rtol=1e-5)
    assert float(losses[0]) > 0
    expected.sum().backward()
    squares = [np.zeros_like(table) for table in (entities, relations)]
    before = entities.copy()
    for first, last in ((0, units // 2), (units // 2, units)):  # two threads
        kernels.update_units(
            scorer_kind(recipe), entities, relations, squares[0], squares[1], triples, drawn, is_tail, first, last,
            units, scores, slopes, np.float32(0.01), np.float32(0),
        )  # fmt: skip
    assert e.grad is not None
    assert r.grad is not None
    np.testing.assert_allclose(np.sqrt(squares[0]), e.grad.abs(), atol=2e-5)
    np.testing.assert_allclose(np.sqrt(squares[1]), r.grad.abs(), atol=2e-5)
    moved = e.grad.abs().numpy() > 1e-3
    assert moved.sum() > 20
    np.testing.assert_array_equal(np.sign(before - entities)[moved], np.sign(e.grad.numpy())[moved])


def test_negatives_are_not_known_and_replace_heads_as_often_as_asked() -> None:
    rng = np.random.default_rng(0)
    triples = np.unique(rng.integers(0, [50, 2, 50], (400, 3)), axis=0).astype(np.int32)
    known = TripleSet(50, 2, len(triples))
    assert known.add(triples).all()
    assert not known.add(triples).any()
    drawn, is_tail = np.empty((len(triples), 64), np.int32), np.empty((len(triples), 64), np.bool_)
    shares = np.array([0.2, 0.7], dtype=np.float32)
    kernels.draw_negatives(triples, 0, len(triples), known.slots, 50, 2, shares, 1, 0, 0, drawn, is_tail)
    found = np.repeat(triples[:, None], 64, axis=1)
    found[..., 2] = np.where(is_tail, drawn, found[..., 2])
    found[..., 0] = np.where(is_tail, found[..., 0], drawn)
    true = {tuple(one) for one in triples.tolist()}
    assert not any(tuple(one) in true for one in found.reshape(-1, 3).tolist())
    for relation, share in enumerate(shares):
        assert 1 - is_tail[triples[:, 1] == relation].mean() == pytest.approx(share, abs=0.02)
    assert np.bincount(drawn.ravel(), minlength=50).min() > 0


def trained(folder: Path, name: str = "transe", **options: Any) -> Any:
    settings = {"dimension": 16, "epochs": 60, "negatives": 8, "batch": 16} | options.pop("settings", {})
    return firth.train(name, TRIPLES, out=folder, settings=settings, **options)


@pytest.mark.parametrize("name", ["transe", "distmult", "rotate"])
def test_held_out_links_are_found(name: str, tmp_path: Path) -> None:
    left_out = [("city 5", "in", "land 1"), ("city 10", "in", "land 2"), ("city 19", "in", "land 3")]
    given = [triple for triple in TRIPLES if triple not in left_out]
    settings = {"dimension": 16, "epochs": 300, "negatives": 8, "batch": 16}
    model = firth.train(name, given, out=tmp_path / "m", settings=settings)
    numbers, unknown = model.number_triples(left_out)
    assert unknown == 0
    ranks = model.rank(numbers)
    assert ranks[:, 1].mean() <= 3  # of 28 entities
    assert model.complete("city 5", "in", None, 3)[0][0] == "land 1" or ranks[0, 1] > 1


def test_ranks_are_those_of_a_loop_without_other_known_triples(tmp_path: Path) -> None:
    model = trained(tmp_path / "m")
    tests = [("city 1", "in", "land 3"), ("land 2", "has", "city 7"), ("city 2", "in", "land 2")]
    numbers, _ = model.number_triples(tests)
    known = {*TRIPLES, *tests}
    names = list(model)
    assert len(names) == 28
    for row, (head, relation, tail) in zip(model.rank(numbers), tests, strict=True):
        (own,) = model.score_triples([(head, relation, tail)])
        for side, found in enumerate(row):
            others = [(head, relation, one) if side else (one, relation, tail) for one in names]
            others = [one for one in others if one not in known]
            scores = model.score_triples(others)
            assert found == 1 + (scores > own).sum() + 0.5 * (scores == own).sum()


def test_equal_scores_get_the_mean_rank(tmp_path: Path) -> None:
    model = trained(tmp_path / "m")
    model.vectors = np.ones_like(model.vectors)  # all entities are the same
    numbers, _ = model.number_triples([("city 1", "in", "land 3")])
    (ranks,) = model.rank(numbers)
    assert ranks[1] == 1 + (28 - 1 - 1) / 2  # land 1 is known, land 3 its own


def test_metrics_by_hand() -> None:
    found = link_metrics(np.array([[1.0, 3.0], [10.0, 11.0]]))
    assert found["mean_rank"] == 6.25
    assert found["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 10 + 1 / 11) / 4)
    assert (found["hits_at_1"], found["hits_at_3"], found["hits_at_10"]) == (0.25, 0.5, 0.75)


def test_the_result_does_not_depend_on_threads(tmp_path: Path) -> None:
    one, two, other = (
        trained(tmp_path / name, threads=threads, seed=seed)
        for name, threads, seed in (("a", 1, 0), ("b", 2, 0), ("c", 1, 1))
    )
    np.testing.assert_array_equal(one.vectors, two.vectors)
    np.testing.assert_array_equal(one.relations, two.relations)
    assert not np.array_equal(one.vectors, other.vectors)


def test_entities_are_found_by_their_names(tmp_path: Path) -> None:
    model = trained(tmp_path / "m", settings={"epochs": 300})
    assert "city 3" in model
    assert "in" not in model
    assert len(model) == 28
    near = dict(model.similar("city 3", 5))
    assert set(near) <= {f"city {number}" for number in range(3, 24, 4)} | {"land 3"}  # those of the same land
    with pytest.raises(AbilityError, match="city"):
        model.similar("citty 3")
    loaded = firth.load(tmp_path / "m")
    assert loaded.similar("city 3", 5) == model.similar("city 3", 5)
    with pytest.raises(AbilityError, match="no relation"):
        model.complete("city 3", "near", None)


def test_files_through_the_command_line(tmp_path: Path) -> None:
    rows = ["head\trelation\ttail", *("\t".join(triple) for triple in TRIPLES)]
    (tmp_path / "g.tsv").write_text("\n".join([*rows, rows[1], "city 1\tin\tcity 1"]) + "\n")
    (tmp_path / "test.tsv").write_text("city 1\tin\tland 3\nmoon\tin\tland 1\n")
    settings = [option for one in ("dimension=8", "epochs=5") for option in ("--set", one)]
    done = command("train", "transe", tmp_path / "g.tsv", "-o", tmp_path / "m", *settings, "--json")
    assert done.json["metrics"]["triples"] == len(TRIPLES) + 1
    assert "1 triples are repeated" in done.err
    assert "1 triples have the same head and tail" in done.err
    found = command("evaluate", tmp_path / "m", "links", tmp_path / "test.tsv", "--json")
    assert {"mrr", "hits_at_1", "hits_at_3", "hits_at_10", "mean_rank"} <= set(found.json)
    assert found.json["unknown"] == 1
    assert json.loads(json.dumps(found.json))["triples"] == 1
    similar = command("similar", tmp_path / "m", "city 2", "--json").json["neighbours"]
    assert similar[0]["word"].startswith(("city", "land"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\n", "2 of the three names"),
        ("a\tb\tc\td\n", "4 of the three names"),
        ("a\t\tc\n", "2 of the three names"),
        ("\n\n", "no triple"),
        ("head\trelation\ttail\n", "no triple"),
        ("a\tr\ta\n", "one entity"),
    ],
)
def test_wrong_triples_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text(text)
    with pytest.raises(CorpusError, match=message):
        firth.train("transe", tmp_path / "g.tsv", out=tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    model = firth.train("unigram", [["a b"]], out=tmp_path / "u")
    (tmp_path / "t.tsv").write_text("a\tr\tb\n")
    with pytest.raises(AbilityError, match="no entities"):
        firth.evaluate(model, "links", tmp_path / "t.tsv")
    with pytest.raises(CorpusError, match="same graph"):
        firth.evaluate(trained(tmp_path / "m"), "links", tmp_path / "t.tsv")
    with pytest.raises(RecipeError, match="odd"):
        replace(rotate(), dimension=7)
