"""KnowledgeGraph: the facts that are inserted into texts, and where their names occur (K-BERT, Liu et al. 2020).

Names are found by the longest match from left to right. In scripts with spaces a match begins and ends at the boundary
of a word; in Chinese, Japanese and Thai it may begin and end anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, CorpusError
from firth.files import digest_bytes
from firth.text.segment import HAN_RANGES
from firth.text.triples import Triple, triple_inputs

_SHUFFLE = 0x6B62  # seed of the order of objects, distinct from those of other random numbers
_MAX_TRIPLES = 20_000_000
_UNSPACED = re.compile(f"[{HAN_RANGES}\u0e00-\u0e7f\u3041-\u30ff]")


@dataclass(frozen=True)
class KnowledgeGraph:
    """Distinct triples in the order of their file, which is that of the facts about a name."""

    triples: tuple[Triple, ...] = ()
    duplicates: int = 0
    """Triples of the file that were there before."""

    @cached_property
    def facts(self) -> dict[str, list[Triple]]:
        """The triples about each name."""
        found: dict[str, list[Triple]] = {}
        for triple in self.triples:
            found.setdefault(triple.head, []).append(triple)
        return found

    @cached_property
    def _lengths(self) -> dict[str, list[int]]:
        """The lengths of the names that begin with one or two characters, longest first."""
        found: dict[str, set[int]] = {}
        for name in self.facts:
            found.setdefault(name[:2], set()).add(len(name))
        return {key: sorted(lengths, reverse=True) for key, lengths in found.items()}

    @property
    def digest(self) -> str:
        """SHA-256 of the triples."""
        return digest_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The triples as a file of theirs."""
        return "".join("\t".join(triple) + "\n" for triple in self.triples).encode()

    def first(self, count: int) -> KnowledgeGraph:
        """The first facts about each name, at most so many.

        >>> KnowledgeGraph((Triple("a", "is", "b"), Triple("c", "is", "d"), Triple("a", "is", "e"))).first(1).triples[1]
        Triple(head='c', relation='is', tail='d')
        """
        return replace(self, triples=tuple(one for facts in self.facts.values() for one in facts[:count]))

    def shuffled(self, seed: int) -> KnowledgeGraph:
        """The same names and relations with the objects of all triples permuted."""
        order = np.random.Generator(np.random.SFC64([seed, _SHUFFLE])).permutation(len(self.triples))
        tails = [self.triples[index].tail for index in order.tolist()]
        return replace(
            self, triples=tuple(one._replace(tail=tail) for one, tail in zip(self.triples, tails, strict=True))
        )

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """The begin and end of each name in a text.

        >>> graph = KnowledgeGraph(tuple(Triple(name, "is", "known") for name in ("Cook", "Tim Cook", "胃炎")))
        >>> [text[begin:end] for text in ("Tim Cook, Cooks", "慢性胃炎") for begin, end in graph.find(text)]
        ['Tim Cook', '胃炎']
        """
        position = 0
        while position < len(text):
            end = self._longest(text, position)
            if end:
                yield position, end
            position = end or position + 1

    def _longest(self, text: str, begin: int) -> int:
        """The end of the longest name that begins there, or 0."""
        for key in (text[begin : begin + 2], text[begin]):
            for length in self._lengths.get(key, ()):
                end = begin + length
                if text[begin:end] in self.facts and not (_is_in_word(text, begin) or _is_in_word(text, end)):
                    return end
        return 0


def _is_in_word(text: str, offset: int) -> bool:
    """Whether an offset is between two characters of one word."""
    return 0 < offset < len(text) and _is_spaced(text[offset - 1]) and _is_spaced(text[offset])


def _is_spaced(character: str) -> bool:
    """Whether a character is part of words that are separated by spaces."""
    return character.isalnum() and not _UNSPACED.match(character)


def branch_text(triple: Triple, predicate: bool) -> str:
    """What is inserted for a fact: predicate and object, or the object alone; words with spaces begin with one.

    >>> branch_text(Triple("Cook", "CEO", "Apple"), True), branch_text(Triple("胃炎", "类别", "疾病"), True)
    (' CEO Apple', '类别疾病')
    """
    text = ""
    for part in (triple.relation, triple.tail) if predicate else (triple.tail,):
        text += f" {part}" if _is_spaced(part[0]) and (not text or _is_spaced(text[-1])) else part
    return text


def read_graph(path: str | Path) -> KnowledgeGraph:
    """The triples of a file: subject, predicate and object, with tabs between them."""
    found: dict[Triple, None] = {}
    duplicates = 0
    for source in triple_inputs(path):
        for triple, _ in source.triples():
            triple = Triple(*(" ".join(name.split()) for name in triple))
            duplicates += triple in found
            found[triple] = None
            if len(found) > _MAX_TRIPLES:
                raise CorpusError(f"{path} has more than {_MAX_TRIPLES:,} triples: leave out those of no use.")
    return KnowledgeGraph(tuple(found), duplicates)


def graph_array(graph: KnowledgeGraph) -> npt.NDArray[np.uint8]:
    """The triples as an array, to be saved with a model."""
    return np.frombuffer(graph.to_bytes(), dtype=np.uint8)


def graph_from_array(array: npt.NDArray[np.uint8], digest: str) -> KnowledgeGraph:
    """The graph that `graph_array` saved.

    >>> graph = KnowledgeGraph((Triple("Cook", "CEO", "Apple"),))
    >>> graph_from_array(graph_array(graph), graph.digest) == graph
    True
    """
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ArtifactError("the knowledge graph of the model is not a text: copy the folder again.")
    data = array.tobytes()
    if digest_bytes(data) != digest:
        raise ArtifactError("the knowledge graph of the model is not that of its recipe: copy the folder again.")
    try:
        lines = data.decode().split("\n")[:-1]
        triples = tuple(Triple(*line.split("\t")) for line in lines)
    except (UnicodeDecodeError, TypeError):
        triples = (Triple("", "", ""),)
    if not all(all(triple) for triple in triples):
        raise ArtifactError("the knowledge graph of the model is damaged: copy the folder again, or train it again.")
    return KnowledgeGraph(triples)
