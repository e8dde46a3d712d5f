"""GraphModel: vectors of the entities and relations of a knowledge graph, and the ranks of triples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.errors import AbilityError
from firth.progress import progress
from firth.text.layout import Layout
from firth.text.triples import SPACE, as_token
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.vectors import _graph_kernels as kernels
from firth.vectors.lookup import ScoredWords, saved_matrix, wrong_array
from firth.vectors.model import VectorModel, saved_vectors
from firth.vectors.recipe import GraphRecipe

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
_BLOCK = 64  # triples ranked at once by a thread


def scorer_kind(recipe: GraphRecipe) -> int:
    """The number of a score function in the kernels."""
    if recipe.scorer == "transe":
        return kernels.TRANSE_L1 if recipe.norm == "l1" else kernels.TRANSE_L2
    return kernels.DISTMULT if recipe.scorer == "distmult" else kernels.ROTATE


def unit_count(recipe: GraphRecipe) -> int:
    """Dimensions of an entity, or its complex numbers."""
    return recipe.dimension // 2 if recipe.scorer == "rotate" else recipe.dimension


class TripleSet:
    """A set of triples of entity, relation and entity numbers."""

    def __init__(self, entities: int, relations: int, size: int) -> None:
        """`size` is the largest number of triples."""
        self.entities, self.relations = entities, relations
        self.slots = np.zeros(1 << max(4, (2 * size).bit_length()), dtype=np.uint64)

    def add(self, triples: Ints) -> npt.NDArray[np.bool_]:
        """Add triples; which of them were not in it."""
        found: npt.NDArray[np.bool_] = kernels.add_triples(self.slots, triples, self.entities, self.relations)
        return found


class GraphModel(VectorModel):
    """Vectors of entities, compared as those of words, and of relations; `rank` tells what is true of them."""

    def __init__(
        self, *arguments: Any, relations: Floats, entity_rows: Ints, relation_rows: Ints, triples: Ints, **others: Any
    ) -> None:
        """`arguments` and `others` are those of `VectorModel`; `triples`: those of training, as numbers."""
        super().__init__(*arguments, **others)
        self.relations, self.entity_rows, self.relation_rows = relations, entity_rows, relation_rows
        self.triples = triples

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        own = {"relations": self.relations, "entity_rows": self.entity_rows, "relation_rows": self.relation_rows}
        return super().arrays() | own | {"triples": self.triples}

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each entity."""
        return {self.words[row].replace(SPACE, " "): row for row in self.entity_rows.tolist()}

    def find_row(self, word: str) -> int | None:
        """The row of an entity, whose name may have spaces."""
        return self.rows.get(" ".join(self.normalize(word).replace(SPACE, " ").split()))

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids of texts, each of which is a name."""
        return super().encode([as_token(text) for text in texts])

    def _named(self, found: Iterable[tuple[int, float]]) -> ScoredWords:
        return [(self.words[row].replace(SPACE, " "), score) for row, score in found if row in self._entity_numbers]

    @cached_property
    def _entity_numbers(self) -> dict[int, int]:
        return {row: number for number, row in enumerate(self.entity_rows.tolist())}

    @cached_property
    def _relation_numbers(self) -> dict[str, int]:
        return {self.words[row]: number for number, row in enumerate(self.relation_rows.tolist())}

    @cached_property
    def _entities(self) -> Floats:
        return np.ascontiguousarray(self.vectors[self.entity_rows])

    def number_triples(self, triples: Iterable[Sequence[str]]) -> tuple[Ints, int]:
        """(triples, 3): the numbers of those of known entities and relations, and how many others there are."""
        found, others = [], 0
        for head, relation, tail in triples:
            first, last = self.find_row(head), self.find_row(tail)
            number = self._relation_numbers.get(as_token(self.normalize(relation)))
            if first is None or last is None or number is None:
                others += 1
            else:
                found.append((self._entity_numbers[first], number, self._entity_numbers[last]))
        return np.array(found, dtype=np.int32).reshape(-1, 3), others

    def score_triples(self, triples: Iterable[Sequence[str]]) -> Floats:
        """The score of each triple of head, relation and tail, higher for more probable ones."""
        given = [(head, relation, tail) for head, relation, tail in triples]
        numbers, unknown = self.number_triples(given)
        if unknown:
            raise AbilityError(f"{unknown} triples have an entity or a relation that the graph lacks: name known ones.")
        scores = np.empty(len(numbers), dtype=np.float32)
        kernels.score_triples(*self._scorer, numbers, unit_count(self.recipe), scores)
        return scores

    @property
    def _scorer(self) -> tuple[int, Floats, Floats]:
        return scorer_kind(self.recipe), self._entities, self.relations

    def rank(self, triples: Ints, threads: int | None = None) -> npt.NDArray[np.float64]:
        """(triples, 2): the ranks of heads and tails among all entities, without those of other known triples.

        Known are the triples of training and the given ones (the filtered ranks of Bordes et al. 2013). Of equal
        scores, the rank is the mean of the best and the worst.
        """
        known = TripleSet(len(self._entities), len(self.relations), len(self.triples) + len(triples))
        known.add(self.triples)
        known.add(triples)
        ranks = np.empty((len(triples), 2))

        def work(begin: int) -> int:
            end = min(begin + _BLOCK, len(triples))
            kernels.rank_triples(*self._scorer, triples, known.slots, unit_count(self.recipe), begin, end, ranks)
            return end - begin

        with ThreadPoolExecutor(cores(threads)) as pool, progress("ranking", len(triples), "triples") as advance:
            for done in pool.map(work, range(0, len(triples), _BLOCK)):
                advance(done)
        return ranks

    def complete(self, head: str | None, relation: str, tail: str | None, count: int = 10) -> ScoredWords:
        """The most probable heads or tails, whichever is None, of a triple, without those known from training."""
        if (head is None) == (tail is None):
            raise AbilityError("one end of the triple is to be found: give the other one.")
        number = self._relation_numbers.get(as_token(self.normalize(relation)))
        if number is None:
            raise AbilityError(f"there is no relation {relation!r:.80} in the graph: name one that it has.")
        given = self._entity_numbers[self.row(head if head is not None else tail or "")]
        candidates = np.empty((len(self._entities), 3), dtype=np.int32)
        candidates[:, 1] = number
        candidates[:, 0 if head is not None else 2] = given
        candidates[:, 2 if head is not None else 0] = np.arange(len(candidates))
        scores = np.empty(len(candidates), dtype=np.float32)
        kernels.score_triples(*self._scorer, candidates, unit_count(self.recipe), scores)
        known = TripleSet(len(self._entities), len(self.relations), len(self.triples) + len(candidates))
        known.add(self.triples)
        scores[~known.add(candidates)] = -np.inf
        best = np.argsort(-scores, kind="stable")[:count].tolist()
        return self._named((int(self.entity_rows[one]), float(scores[one])) for one in best if np.isfinite(scores[one]))


def restore_graph(recipe: GraphRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> GraphModel:
    """The model of a saved artifact's arrays."""
    saved = saved_vectors(arrays, tokenizer)
    entity_rows, relation_rows = (_saved_rows(arrays, name, len(saved["words"])) for name in _ROWS)
    relations = saved_matrix(arrays, "relations", len(relation_rows))
    if saved["vectors"].shape[1] != recipe.dimension or relations.shape[1] != unit_count(recipe):
        raise wrong_array("relations")
    triples = arrays.get("triples")
    if triples is None or triples.dtype != np.int32 or triples.ndim != 2 or triples.shape[1] != 3:
        raise wrong_array("triples")
    limits = len(entity_rows), len(relation_rows), len(entity_rows)
    if triples.size and (triples.min() < 0 or (triples.max(axis=0) >= limits).any()):
        raise wrong_array("triples")
    rows = {"entity_rows": entity_rows, "relation_rows": relation_rows}
    return GraphModel(recipe, tokenizer, layout, **saved, relations=relations, triples=triples, **rows)


_ROWS = ("entity_rows", "relation_rows")


def _saved_rows(arrays: Mapping[str, Any], name: str, limit: int) -> Ints:
    """The saved rows of entities or relations: increasing, and those of words."""
    rows = arrays.get(name)
    if rows is None or rows.dtype != np.int32 or rows.ndim != 1 or not rows.size:
        raise wrong_array(name)
    if rows[0] < FIRST_WORD or rows[-1] >= limit or (rows[1:] <= rows[:-1]).any():
        raise wrong_array(name)
    return np.asarray(rows)
