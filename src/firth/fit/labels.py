"""Labelled texts as a corpus: the text and the labels that a classifier learns from while it learns its vectors."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.abilities import Predicts
from firth.errors import CorpusError
from firth.files import digest_bytes, digest_file
from firth.progress import note
from firth.tasks.examples import TextExample
from firth.tasks.reading import Reading, read_items, read_task
from firth.tasks.reading_roles import HOW
from firth.text.corpus import Corpus, Input, stdin_source
from firth.text.document import RawDocument
from firth.text.readers import source_encoding
from firth.text.sources import Source, find_sources
from firth.tokens.encoder import Encoder
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer

_BATCH = 20_000  # texts that are encoded at once


class Labels(NamedTuple):
    """The labels of texts: a row for each text, filled up with -1, and the names of the numbers in it."""

    numbers: npt.NDArray[np.int32]
    names: tuple[str, ...]
    """The most frequent first, equally frequent ones in the order of the alphabet."""

    @property
    def digest(self) -> str:
        """Equal digests mean equal labels."""
        return digest_bytes(json.dumps(self.names).encode() + self.numbers.tobytes())


class Labelled(NamedTuple):
    """A text and its labels."""

    labels: tuple[str, ...]
    text: str
    source: str


class LabelledInput(ABC):
    """What labelled texts come from, as an input of a corpus: each text is a document of one sentence."""

    def examples(self) -> Iterator[Labelled]:
        """All texts that are not blank; one without a label raises `CorpusError`."""
        for example in self.read():
            assert isinstance(example, TextExample)
            if not example.labels:  # a list of labels may be empty
                raise CorpusError(f"{example.origin}: there is no label: {HOW['classify']}.")
            yield Labelled(example.labels, example.text, example.origin.source)

    def documents(self) -> Iterator[RawDocument]:
        """The texts alone."""
        return (RawDocument(example.text, example.source) for example in self.examples())

    @abstractmethod
    def read(self) -> Reading:
        """All texts."""


@dataclass(frozen=True)
class LabelledFile(LabelledInput):
    """A file of labelled texts."""

    source: Source
    encoding: str | None
    field: str

    def read(self) -> Reading:
        """All texts of the file."""
        return read_task("classify", self.source, encoding=self.encoding, fields={"text": self.field})

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
    """Labelled texts from Python."""

    items: Sequence[Any]

    def read(self) -> Reading:
        """All items."""
        return read_items("classify", self.items)

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
            raise CorpusError(f"a classifier learns from labelled texts, which a corpus has not: {HOW['classify']}.")
        if isinstance(text, str | Path):
            sources = [stdin_source()] if str(text) == "-" else find_sources([text])
            inputs += [LabelledFile(source, encoding, field) for source in sources]
        else:
            inputs.append(LabelledItems(list(text)))
    corpus = Corpus(tuple(inputs), "lines")
    next(corpus.raw_documents(), None)  # nothing to learn from is told at once
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


def _examples(corpus: Corpus) -> Iterator[Labelled]:
    for source in corpus.inputs:
        if not isinstance(source, LabelledInput):
            raise CorpusError(f"a classifier learns from labelled texts: {HOW['classify']}.")
        yield from source.examples()


def _lengths(corpus: Corpus, tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """How many tokens each text has."""
    encoder, found = Encoder(tokenizer), [np.zeros(0, dtype=np.int64)]
    texts = [example.text for example in _examples(corpus)]
    for begin in range(0, len(texts), _BATCH):
        found.append(encoder.encode(texts[begin : begin + _BATCH]).lengths)
    return np.concatenate(found)
