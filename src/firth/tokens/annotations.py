"""Annotations: the entities of given documents, as spans of characters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError
from firth.progress import note
from firth.tokens import _unit_kernels as kernels
from firth.tokens.columns import ColumnText
from firth.tokens.gazetteer import Numbers, name_lines
from firth.tokens.offsets import token_offsets


class EntitySpan(NamedTuple):
    """An entity in a text."""

    start: int
    end: int
    entity: int
    """Its number."""


class AnnotatedText(NamedTuple):
    """A document with its entities."""

    text: str
    spans: tuple[EntitySpan, ...]


def read_annotations(path: str | Path, find: Callable[[str], int | None]) -> tuple[AnnotatedText, ...]:
    """The documents of JSONL with the fields text and spans: [{"start", "end", "entity"}], in characters from 0.

    `find` gives the number of an entity; spans of others are counted and left out.
    """
    found, unknown, first = [], 0, ""
    for number, line in name_lines(path):
        where = f"line {number + 1} of {path}"
        text, spans = _parse(line, where)
        own = []
        for span in spans:
            start, end, entity = _span(span, len(text), where)
            if (which := find(entity)) is None:
                unknown, first = unknown + 1, first or entity
            else:
                own.append(EntitySpan(start, end, which))
        found.append(AnnotatedText(text, tuple(own)))
    if unknown:
        note(f"{path}: {unknown:,} spans are of no entity of the graph, as {first!r:.80}")
    if not any(one.spans for one in found):
        raise CorpusError(f"{path} annotates no entity of the graph: give spans with its entities.")
    return tuple(found)


def _parse(line: str, where: str) -> tuple[str, list[Any]]:
    try:
        record = json.loads(line)
        text, spans = record["text"], record["spans"]
    except (ValueError, KeyError, TypeError, RecursionError):
        text = spans = None
    if not isinstance(text, str) or not isinstance(spans, list):
        raise CorpusError(f'{where} is no object with a text and a list of spans: write {{"text": ..., "spans": []}}.')
    return text, spans


def _span(span: Any, size: int, where: str) -> tuple[int, int, str]:
    """The start, the end and the entity of a span of a text of `size` characters."""
    parts = [span.get(name) for name in ("start", "end", "entity")] if isinstance(span, dict) else [None] * 3
    start, end, entity = parts
    if type(start) is not int or type(end) is not int or not isinstance(entity, str):
        raise CorpusError(f"{where} has a span {span!r:.80}: give start, end and entity.")
    if not 0 <= start < end <= size:
        raise CorpusError(
            f"{where} has a span from {start} to {end} in a text of {size} characters: count characters from 0."
        )
    return start, end, entity


def link_annotated(annotated: Sequence[AnnotatedText], text: ColumnText, links: Numbers) -> None:
    """Set the links of the documents of a text that are annotated to what the annotations say, and nothing else.

    A document is known by its tokens. Notes how many were found; none is an error.
    """
    bounds = text.sentences[text.documents]
    by_key: dict[int, list[int]] = {}
    for document, (begin, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        by_key.setdefault(int(kernels.word_key(text.ids, begin, end)), []).append(document)
    found = missed = 0
    for one, (ids, offsets) in zip(annotated, _encode(annotated, text), strict=True):
        documents = by_key.get(int(kernels.word_key(ids, 0, ids.size)), []) if ids.size else []
        found += bool(documents)
        tokens, entities = _first_tokens(one.spans, offsets)
        missed += len(one.spans) - len(tokens)
        for document in documents:
            begin, end = int(bounds[document]), int(bounds[document + 1])
            links[begin:end] = 0
            links[begin + tokens] = entities
    if not found:
        raise CorpusError(
            "no annotated document occurs in the text: annotate documents of the corpus, with the same text and layout."
        )
    note(f"{found:,} of {len(annotated):,} annotated documents are in the text; {missed:,} spans have no token")


def _encode(
    annotated: Sequence[AnnotatedText], text: ColumnText
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """The tokens of documents, line by line, and their offsets."""
    for one in annotated:
        lines = one.text.splitlines(keepends=True)
        starts = np.cumsum([0, *map(len, lines)])[: len(lines)].tolist()
        encoded = token_offsets(text.tokenizer, [line.rstrip("\r\n") for line in lines])
        ids = [part for part, _ in encoded]
        offsets = [part + start for (_, part), start in zip(encoded, starts, strict=True)]
        empty = np.zeros(0, dtype=np.int64)
        yield np.concatenate([empty, *ids]), np.concatenate([empty.reshape(0, 2), *offsets])


def _first_tokens(spans: Sequence[EntitySpan], offsets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Numbers]:
    """The first token of each span that has one, and its entity."""
    tokens, entities = [], []
    for span in spans:
        own = np.flatnonzero((offsets[:, 0] < span.end) & (offsets[:, 1] > span.start))
        if own.size:
            tokens.append(int(own[0]))
            entities.append(span.entity)
    return np.array(tokens, dtype=np.int64), np.array(entities, dtype=np.int32)
