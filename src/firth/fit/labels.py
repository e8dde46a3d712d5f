"""Labelled texts: what is read from files, and the corpus and labels that a classifier learns from.

Three kinds of file are known by what is in them: TSV whose first line names the columns `label` and `text_a`, JSONL
with the fields `label` and `text`, and lines in fastText's form, `__label__one __label__two the text`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.abilities import Predicts
from firth.errors import CorpusError
from firth.files import digest_bytes, digest_file
from firth.progress import note
from firth.text.corpus import Corpus, Input, stdin_source
from firth.text.document import RawDocument
from firth.text.readers import check_text, read_lines, source_encoding
from firth.text.sources import Source, find_sources
from firth.tokens.encoder import Encoder
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer

_PREFIX = "__label__"
_LABEL = re.compile(rf"(?<!\S){_PREFIX}(\S+)\s*")
_TEXTS = ("text", "text_a", "source")  # columns and fields that hold the text, if none is named
_MOST = 1000  # labels of one text
_HOW = (
    "give TSV with the columns label and text_a named in its first line, JSONL with the fields label and text, "
    f"or lines that begin with {_PREFIX}NAME"
)
_BATCH = 20_000  # texts that are encoded at once


class Example(NamedTuple):
    """A text and its labels, of which there may be none or several."""

    labels: tuple[str, ...]
    text: str
    source: str
    number: int
    """The line or item that it is, from 1."""

    @property
    def where(self) -> str:
        """Where it stands, for people."""
        return _where(self.source, self.number)


class Labels(NamedTuple):
    """The labels of texts: a row for each text, filled up with -1, and the names of the numbers in it."""

    numbers: npt.NDArray[np.int32]
    names: tuple[str, ...]
    """The most frequent first, equally frequent ones in the order of the alphabet."""

    @property
    def digest(self) -> str:
        """Equal digests mean equal labels."""
        return digest_bytes(json.dumps(self.names).encode() + self.numbers.tobytes())


def read_examples(source: Source, *, encoding: str | None = None, field: str = "text") -> Iterator[Example]:
    """The texts of a file, each with its labels; a file of none of the three kinds is plain text, a text a line."""
    if source.format == "parquet":
        raise CorpusError(f"{source.name} is Parquet, which holds no labels that Firth reads: {_HOW}.")
    lines = read_lines(replace(source, format="text"), encoding=encoding)
    if source.format == "jsonl":
        return (_from_json(line, field, source.name, number + 1) for number, line in lines if line.strip())
    first = next(lines, None)
    if first is None:
        return iter(())
    columns = first[1].split("\t")
    if len(columns) > 1 and {"label", field, *_TEXTS} & set(columns):
        return _from_columns(source, columns, lines, field)
    return (_from_line(line, source.name, number + 1) for number, line in chain([first], lines))


def _where(source: str, number: int) -> str:
    return f"{source}, line {number}" if source else f"item {number}"


def _from_line(line: str, source: str, number: int) -> Example:
    """A text in fastText's form, or a plain one."""
    if _PREFIX not in line:
        return Example((), line.strip(), source, number)
    return Example(tuple(_LABEL.findall(line)), _LABEL.sub("", line).strip(), source, number)


def _from_columns(
    source: Source, columns: list[str], lines: Iterable[tuple[int, str]], field: str
) -> Iterator[Example]:
    text = next((name for name in (field, *_TEXTS) if name in columns), None)
    if text is None:
        raise CorpusError(
            f"{source.name} has the columns {', '.join(columns)}: name the one with the text text_a, or by --field."
        )
    place, label = columns.index(text), columns.index("label") if "label" in columns else None
    for number, line in lines:
        if not line or line.isspace():
            continue
        fields = line.split("\t")
        if len(fields) != len(columns):
            where = _where(source.name, number + 1)
            raise CorpusError(f"{where}: there are {len(fields)} fields where the first line names {len(columns)}.")
        name = fields[label].strip() if label is not None else ""
        yield Example((name,) if name else (), fields[place].strip(), source.name, number + 1)


def _from_json(line: str, field: str, source: str, number: int) -> Example:
    where = _where(source, number)
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where} is not JSON ({error}): write one JSON object a line.") from None
    if not isinstance(record, dict):
        raise CorpusError(f"{where} is not a JSON object: write one JSON object a line.")
    text = next((record[name] for name in (field, *_TEXTS) if name in record), None)
    if not isinstance(text, str):
        raise CorpusError(f"{where} has no text in {field!r}: give it there, or name the field by --field.")
    found = record.get("label", record.get("labels"))
    labels = found if isinstance(found, list) else [] if found is None else [found]
    if not all(isinstance(label, str | int | float) for label in labels):
        raise CorpusError(f"{where} has a label that is neither a name nor a number: write one, or a list of them.")
    names = tuple(str(label) for label in labels if label != "")
    return Example(names, one_line(check_text(text, where)), source, number)


def one_line(text: str) -> str:
    """A text without line ends, so that it is one sentence."""
    return " ".join(text.splitlines()).strip()


class LabelledInput(ABC):
    """What labelled texts come from, as an input of a corpus: each text is a document of one sentence."""

    def examples(self) -> Iterator[Example]:
        """All texts that are not blank; one without a label raises `CorpusError`."""
        for example in self.read():
            if not example.labels:
                raise CorpusError(f"{example.where}: there is no label: {_HOW}.")
            if len(example.labels) > _MOST:
                raise CorpusError(f"{example.where}: {len(example.labels)} labels are too many: {_MOST} may be.")
            if example.text:
                yield example

    def documents(self) -> Iterator[RawDocument]:
        """The texts alone."""
        return (RawDocument(example.text, example.source) for example in self.examples())

    @abstractmethod
    def read(self) -> Iterator[Example]:
        """All texts."""


@dataclass(frozen=True)
class LabelledFile(LabelledInput):
    """A file of labelled texts."""

    source: Source
    encoding: str | None
    field: str

    def read(self) -> Iterator[Example]:
        """All texts of the file."""
        return read_examples(self.source, encoding=self.encoding, field=self.field)

    def digest(self) -> str:
        """A digest of what is read."""
        return f"labelled {digest_file(self.source.path)} {self.source.format} {self.encoding} {self.field}"

    def encodings(self) -> dict[str, str]:
        """The file and its encoding."""
        return {self.source.name: source_encoding(replace(self.source, format="text"), self.encoding)}

    def size(self) -> int:
        """The bytes of the file."""
        return self.source.path.stat().st_size * (3 if self.source.compression else 1)


@dataclass(frozen=True)
class LabelledItems(LabelledInput):
    """Labelled texts from Python: pairs of a label, or a list of them, and a text."""

    items: Sequence[Any]

    def read(self) -> Iterator[Example]:
        """All pairs."""
        for number, item in enumerate(self.items, 1):
            where = _where("", number)
            if isinstance(item, str) or not isinstance(item, Sequence) or len(item) != 2 or type(item[1]) is not str:
                raise CorpusError(f"{where} is no pair of a label and a text: give such pairs.")
            labels = (item[0],) if isinstance(item[0], str | int) else tuple(item[0])
            yield Example(tuple(map(str, labels)), one_line(check_text(item[1], where)), "", number)

    def digest(self) -> str:
        """A digest of the texts."""
        return digest_bytes("\n".join(example.text for example in self.examples()).encode())

    def encodings(self) -> dict[str, str]:
        """As all text in Python is."""
        return {"python": "utf-8"}

    def size(self) -> int:
        """Not known."""
        return 0


def open_labelled(texts: Sequence[Any], field: str = "text", encoding: str | None = None) -> Corpus:
    """The corpus of labelled files or pairs from Python, each text one document of one sentence."""
    inputs: list[Input] = []
    for text in texts:
        if isinstance(text, Corpus) or str(text).startswith("builtin:"):
            raise CorpusError(f"a classifier learns from labelled texts, which a corpus has not: {_HOW}.")
        if isinstance(text, str | Path):
            sources = [stdin_source()] if str(text) == "-" else find_sources([text])
            inputs += [LabelledFile(source, encoding, field) for source in sources]
        else:
            inputs.append(LabelledItems(list(text)))
    corpus = Corpus(tuple(inputs), "lines")
    if next(corpus.raw_documents(), None) is None:
        raise CorpusError(f"there are no labelled texts in {', '.join(map(str, texts))}: {_HOW}.")
    for name, found in corpus.encodings().items():
        if found != "utf-8":
            note(f"{name}: reading as {found}")
    return corpus


def read_labels(corpus: Corpus, store: TokenStore, tokenizer: Tokenizer) -> Labels:
    """The labels of the texts of a store that was made of `corpus`, in the order of its documents."""
    seen: dict[str, int] = {}
    flat, lengths = array("i"), array("i")
    for example in _examples(corpus):
        labels = dict.fromkeys(example.labels)
        for label in labels:
            flat.append(seen.setdefault(label, len(seen)))
        lengths.append(len(labels))
    counts = np.bincount(np.asarray(flat)).tolist()
    names = sorted(seen, key=lambda name: (-counts[seen[name]], name))
    numbers = _rows(np.asarray(flat), np.asarray(lengths), {seen[name]: place for place, name in enumerate(names)})
    if len(numbers) != store.facts.documents:  # texts of control characters alone have no tokens
        numbers = numbers[_lengths(corpus, tokenizer) > 0]
    return Labels(numbers, tuple(names))


def accuracy(model: Predicts, corpus: Corpus) -> float:
    """The share of a corpus's texts whose likeliest label is one of theirs."""
    right = texts = 0
    examples = _examples(corpus)
    while batch := list(islice(examples, _BATCH)):
        found = model.predict([example.text for example in batch])
        right += sum(best[0][0] in example.labels for best, example in zip(found, batch, strict=True))
        texts += len(batch)
    return right / texts


def _rows(flat: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], places: dict[int, int]) -> npt.NDArray[np.int32]:
    """A row for each text, filled up with -1."""
    order = np.array([places[number] for number in range(len(places))], dtype=np.int32)
    numbers = np.full((lengths.size, int(lengths.max())), -1, dtype=np.int32)
    numbers[np.arange(numbers.shape[1]) < lengths[:, None]] = order[flat]
    return numbers


def _examples(corpus: Corpus) -> Iterator[Example]:
    for source in corpus.inputs:
        if not isinstance(source, LabelledInput):
            raise CorpusError(f"a classifier learns from labelled texts: {_HOW}.")
        yield from source.examples()


def _lengths(corpus: Corpus, tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """How many tokens each text has."""
    encoder, found = Encoder(tokenizer), [np.zeros(0, dtype=np.int64)]
    texts = [example.text for example in _examples(corpus)]
    for begin in range(0, len(texts), _BATCH):
        found.append(encoder.encode(texts[begin : begin + _BATCH]).lengths)
    return np.concatenate(found)
