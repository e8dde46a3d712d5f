"""Entities for networks: the vectors of a trained graph, and the names by which they are linked in text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import AbilityError, ArgumentError, CorpusError
from firth.nets.entity_recipe import EntitiesRecipe
from firth.nets.recipe import NetRecipe
from firth.progress import note
from firth.recipes.table import find_recipe
from firth.tokens.annotations import AnnotatedText, read_annotations
from firth.tokens.gazetteer import Gazetteer, NameTable, name_lines, require_size
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.graph_model import GraphModel

ERNIE = "ernie-thu"
"""The recipe of networks that read entities."""
_COLUMNS = {"entity": ("entity",), "name": ("name", "label"), "prior": ("prior", "count")}
_MIN_NAME = 2  # characters: single letters and characters are words of their own too often
_BLOCK = 1 << 24  # values read at a time
_EXAMPLES = 5
_MAX_WORDS = 5_000_000  # of a text that are read to find ordinary words
_PUNCTUATION = ".,;:!?()[]{}\"'“”‘’"


@dataclass(frozen=True)
class Knowledge:
    """The entities of a graph with their names."""

    vectors: npt.NDArray[np.float32]
    """(entities, width)."""
    gazetteer: Gazetteer
    source: str
    """The digest of the graph's weights; empty if they are those of the network itself."""
    annotated: tuple[AnnotatedText, ...] = ()
    """Documents whose entities are given."""

    @cached_property
    def digest(self) -> str:
        """What determines the entities."""
        return f"{self.source} {self.gazetteer.digest}"

    def arrays(self, tokenizer: Tokenizer) -> KnowledgeArrays:
        """The entities as a network with these tokens has them."""
        return KnowledgeArrays(self.vectors, self.gazetteer, self.gazetteer.table(tokenizer))


class KnowledgeArrays(NamedTuple):
    """Entities as a network has them."""

    vectors: npt.NDArray[np.float32]
    gazetteer: Gazetteer
    table: NameTable
    """The names in the tokens of the network."""


def open_knowledge(path: str | Path, names: str | Path | None = None) -> Knowledge:
    """The entities of a trained graph; `names` is a file that names them, by default they have the graph's names.

    A file of JSONL has documents whose entities are given, instead; in others they have the graph's names.
    """
    artifact, graph = open_artifact(Path(path)), load(path)
    if not isinstance(graph, GraphModel):
        raise AbilityError(
            f"{path} ({artifact.manifest.name}) holds no graph: train one with firth train transe GRAPH.tsv -o DIR."
        )
    degrees = np.bincount(graph.triples[:, [0, 2]].ravel(), minlength=len(graph.entity_rows)).astype(np.float64)
    numbers = {row: number for number, row in enumerate(graph.entity_rows.tolist(), 1)}

    def find(entity: str) -> int | None:
        return numbers.get(graph.find_row(entity) or -1)

    is_annotated = names is not None and ".jsonl" in Path(names).suffixes
    annotated = read_annotations(names, find) if names is not None and is_annotated else ()
    if names is None or is_annotated:
        named = ((name, numbers[row], degrees[numbers[row] - 1]) for name, row in graph.rows.items())
        gazetteer = make_gazetteer(named, str(path))
    else:
        lines = NameFile(Path(names), find, degrees)
        gazetteer = make_gazetteer(lines.read(), str(names))
        lines.note()
    digest = artifact.manifest.files["model.safetensors"].sha256
    vectors = np.ascontiguousarray(graph.vectors[graph.entity_rows], dtype=np.float32)
    return Knowledge(vectors, gazetteer, digest, annotated)


def without_common_words(knowledge: Knowledge, sentences: Iterable[str]) -> Knowledge:
    """The entities without names that are ordinary words of a text, for a network that reads lower-cased tokens.

    A capitalised name of one word is left out if, within sentences, the text writes the word without a capital letter
    more often: the film It, say.
    """
    gazetteer = knowledge.gazetteer
    names = {name.lower(): name for name in gazetteer.entries if name[:1].isupper() and " " not in name}
    balance, read = Counter[str](), 0
    for sentence in sentences:
        words = sentence.split()[1:]
        for word in words:
            bare = word.strip(_PUNCTUATION)
            if (lower := bare.lower()) in names:
                balance[lower] += 1 if bare[:1].isupper() else -1
        read += len(words)
        if read > _MAX_WORDS:
            break
    common = {names[word] for word, count in balance.items() if count < 0}
    if not common:
        return knowledge
    examples = ", ".join(sorted(common, key=lambda name: balance[name.lower()])[:_EXAMPLES])
    note(f"{len(common):,} names are ordinary words of the text and not linked, such as {examples}")
    kept = [number for number, name in enumerate(gazetteer.entries) if name not in common]
    entries, numbers = tuple(gazetteer.entries[number] for number in kept), gazetteer.numbers[kept]
    return replace(knowledge, gazetteer=replace(gazetteer, entries=entries, numbers=numbers))


def make_gazetteer(names: Iterable[tuple[str, int, float]], file: str) -> Gazetteer:
    """The gazetteer of names, their entities and priors; a name of several entities means that of the highest prior.

    >>> make_gazetteer([("Paris", 1, 2.0), ("Paris", 2, 9.0), ("Rome", 3, 4.0), ("X", 4, 1.0)], "names").entries
    ('Paris', 'Rome')
    """
    best: dict[str, tuple[float, int]] = {}
    ambiguous, short = set[str](), 0
    for name, number, prior in names:
        name = " ".join(name.split())
        if len(name) < _MIN_NAME:
            short += 1
            continue
        rank = (-prior, number)
        if name in best and best[name][1] != number:
            ambiguous.add(name)
        if name not in best or rank < best[name]:
            best[name] = rank
    if not best:
        raise CorpusError(f"{file} has no entity with a name of {_MIN_NAME} characters or more: name others.")
    require_size(best, file)
    if ambiguous or short:
        note(
            f"{file}: {len(ambiguous):,} of {len(best):,} names have several entities and mean the most frequent one; "
            f"{short:,} names of one character are not linked"
        )
    entries = sorted(best, key=lambda name: best[name])  # of names that are encoded alike, the first one counts
    return Gazetteer(tuple(entries), file, np.array([best[name][1] for name in entries], dtype=np.int32))


class NameFile:
    """A file of names: TSV with a header (entity, name or label, and prior), name and entity, or names of entities."""

    def __init__(self, path: Path, find: Callable[[str], int | None], degrees: npt.NDArray[np.float64]) -> None:
        """`find` gives the number of an entity, `degrees` the number of triples of each."""
        self.path, self.find, self.degrees = path, find, degrees
        self.unknown = 0
        self.first_unknown = ""

    def read(self) -> Iterable[tuple[str, int, float]]:
        """Name, entity and prior of each line; those of entities that the graph lacks are counted."""
        columns: dict[str, int] | None = None
        for number, line in name_lines(self.path):
            parts = [part.strip() for part in line.split("\t")]
            if columns is None:
                columns = _header(parts)
                if columns is not None:
                    continue
                columns = {"name": 0, "entity": 1, "prior": 2} if len(parts) > 1 else {"name": 0, "entity": 0}
            where = f"line {number + 1} of {self.path}"
            if len(parts) <= max(columns["name"], columns["entity"]):
                raise CorpusError(f"{where} has {len(parts)} columns: give a name and its entity.")
            name, entity = parts[columns["name"]], parts[columns["entity"]]
            own = self.find(entity)
            if own is None:
                self.unknown += 1
                self.first_unknown = self.first_unknown or entity
            elif name:
                yield name, own, self._prior(parts, columns.get("prior"), where, self.degrees[own - 1])

    def _prior(self, parts: Sequence[str], column: int | None, where: str, degree: float) -> float:
        """The prior of a line, or else the number of triples of the entity."""
        if column is None or len(parts) <= column or not parts[column]:
            return degree
        try:
            prior = float(parts[column])
        except ValueError:
            prior = -1.0
        if not 0 <= prior < float("inf"):
            raise CorpusError(f"{where} has the prior {parts[column]!r:.80}: give a number of 0 or more.")
        return prior

    def note(self) -> None:
        """Note the names of unknown entities."""
        if self.unknown:
            note(f"{self.path}: {self.unknown:,} names are of no entity of the graph, as {self.first_unknown!r:.80}")


def _header(parts: Sequence[str]) -> dict[str, int] | None:
    """The columns of a file by the names in its first line; None if it has no header."""
    lower = [part.lower() for part in parts]
    found = {role: lower.index(name) for role, names in _COLUMNS.items() for name in reversed(names) if name in lower}
    return found if {"entity", "name"} <= found.keys() else None


def with_entities(recipe: NetRecipe, arrays: KnowledgeArrays) -> NetRecipe:
    """The recipe of a network with these entities; heads that do not divide the width of their vectors are fewer."""
    (count, width), wanted = arrays.vectors.shape, recipe.entities
    sizes = replace(
        wanted,
        width=width,
        heads=_divisor(width, wanted.heads),
        count=count,
        names=len(arrays.gazetteer.entries),
        name_bytes=len(arrays.gazetteer.joined),
        forms=arrays.table.keys.size,
    )
    return replace(recipe, entities=sizes)


def _divisor(width: int, most: int) -> int:
    return next(heads for heads in range(min(most, width), 0, -1) if width % heads == 0)


def reading_entities(recipe: NetRecipe, knowledge: Knowledge) -> NetRecipe:
    """The recipe of a BERT that reads the entities of a graph, and is trained to restore them; see `ernie-thu`."""
    published = find_recipe(ERNIE)
    assert isinstance(published, NetRecipe)
    width, base = knowledge.vectors.shape[1], published.entities
    layers = recipe.encoder.layers * base.text_layers // published.encoder.layers
    entities = EntitiesRecipe(width=width, heads=_divisor(width, base.heads), text_layers=layers)
    own = [one for one in published.objectives if one.name not in recipe.names and "links" in one.requires]
    return replace(recipe, entities=entities, objectives=(*recipe.objectives, *own))


def knowledge_of(model: Any, path: str | Path | None, names: str | Path | None) -> Knowledge | None:
    """The entities that a network is trained further with: its own, or those of a graph."""
    table = model.network.entities
    if table is None:
        return None if path is None else open_knowledge(path, names)
    if path is not None or names is not None:
        raise ArgumentError("the model has entities already: leave --knowledge and --entities out.")
    return Knowledge(table.vectors[1:].detach().numpy(), table.gazetteer, "")


def require_knowledge(recipe: object, knowledge: object) -> None:
    """Raise `ArgumentError` unless a recipe that reads entities has some, and any other has none."""
    reads = isinstance(recipe, NetRecipe) and recipe.entities.width > 0
    if reads and knowledge is None:
        raise ArgumentError(
            "the recipe reads the entities of a graph: train one with firth train transe GRAPH.tsv -o DIR, and name it "
            "with --knowledge DIR."
        )
    if knowledge is not None and not reads:
        raise ArgumentError("--knowledge is for recipes that read entities, such as ernie-thu: leave it out.")


def note_links(store: TokenStore, knowledge: Knowledge) -> dict[str, float]:
    """Note how many mentions of entities a training text has, and return the counts; none is an error."""
    counts = np.zeros(len(knowledge.vectors) + 1, dtype=np.int64)
    links = store.columns["links"]
    for begin in range(0, len(links), _BLOCK):
        counts += np.bincount(links[begin : begin + _BLOCK], minlength=counts.size)
    counts[0] = 0
    mentions, found = int(counts.sum()), int(np.count_nonzero(counts))
    gazetteer = knowledge.gazetteer
    if not mentions:
        raise CorpusError(
            f"none of the {len(gazetteer.entries):,} names of {gazetteer.file} occurs in the text: give names in its "
            "language with --entities, or another graph with --knowledge."
        )
    titles = dict(zip(gazetteer.numbers[::-1].tolist(), gazetteer.entries[::-1], strict=True))
    often = np.argsort(-counts, kind="stable")[:_EXAMPLES].tolist()
    examples = ", ".join(f"{titles[one]} ({counts[one]:,})" for one in often if counts[one])
    rate = 1000 * mentions / max(len(store), 1)
    note(
        f"linked: {mentions:,} mentions ({rate:.1f} of 1,000 tokens) of {found:,} entities, such as {examples}; "
        f"{len(knowledge.vectors) - found:,} entities of the graph do not occur"
    )
    return {"mentions": mentions, "mentions_per_1000_tokens": rate, "linked_entities": found}
