"""Link prediction: the ranks of the heads and tails of triples that a graph lacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import AbilityError, CorpusError
from firth.metrics.bootstrap import measured, sums_sample
from firth.progress import note
from firth.text.triples import triple_inputs
from firth.vectors.graph_model import GraphModel

_HITS = (1, 3, 10)


def evaluate_links(model: Any, files: Sequence[Path]) -> dict[str, Any]:
    """Mean rank, mean reciprocal rank and hits of the triples of files, filtered, with intervals."""
    if not isinstance(model, GraphModel):
        raise AbilityError(f"a {type(model).__name__} has no entities and relations: evaluate transe, say.")
    triples = [triple for one in triple_inputs(*files) for triple, _ in one.triples()]
    numbers, unknown = model.number_triples(triples)
    if not len(numbers):
        raise CorpusError("no triple has entities and a relation that the model knows: name a file of the same graph.")
    if unknown:
        note(f"{unknown:,} of {len(triples):,} triples have an entity or a relation that is unknown, and are left out")
    return {"triples": len(numbers), "unknown": unknown} | link_metrics(model.rank(numbers))


def link_metrics(ranks: npt.NDArray[np.float64]) -> dict[str, Any]:
    """The metrics of ranks (triples, 2) with their intervals over triples.

    >>> found = link_metrics(np.array([[1.0, 2.0], [4.0, 20.0]]))
    >>> found["mean_rank"], found["mrr"], found["hits_at_10"]
    (6.75, 0.45, 0.75)
    """
    hits = [(ranks <= most).mean(axis=1) for most in _HITS]
    columns = np.column_stack([ranks.mean(axis=1), (1 / ranks).mean(axis=1), *hits])
    names = ["mean_rank", "mrr", *(f"hits_at_{most}" for most in _HITS)]
    return measured(
        sums_sample(columns, lambda sums, n: {name: sums[:, index] / n for index, name in enumerate(names)})
    )
