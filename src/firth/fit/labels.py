"""Labelled texts as a corpus, for training a classifier together with its vectors."""

from __future__ import annotations

import json
from abc import abstractmethod
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
from firth.tasks.readers.columns import HOW, parse_columns
from firth.tasks.readers.reader import ExampleReader, read_items, read_task
from firth.text.corpus import Corpus, Input, save_stdin
from firth.text.files import CorpusFile, find_files
from firth.text.layout import RawDocument
from firth.text.readers import file_encoding
from firth.tokens.encoder import TextEncoder
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer

_BATCH = 20_000  # texts encoded at a time


class Labels(NamedTuple):
    """The label indices (texts, labels) of texts, padded with -1, and the label names."""

    numbers: npt.NDArray[np.int32]
    names: tuple[str, ...]
    """Sorted by descending frequency, then alphabetically."""

    @property
    def digest(self) -> str:
        """Equal digests mean equal labels."""
        return digest_bytes(json.dumps(self.names).encode() + self.numbers.tobytes())


class LabelledInput(Input):
    """A source of labelled texts as an input of a corpus: each text is a document of one sentence."""

    def examples(self) -> Iterator[TextExample]:
        """All texts that are not blank; one without a label raises `CorpusError`."""
        for example in self.read():
            assert isinstance(example, TextExample)
            if not example.labels:  # a list of labels may be empty
                raise CorpusError(f"{example.origin}: there is no label: {HOW['classify']}.")
            yield example

    def documents(self) -> Iterator[RawDocument]:
        """The texts without labels."""
        return (RawDocument(example.text, example.origin.source) for example in self.examples())

    @abstractmethod
    def read(self) -> ExampleReader:
        """All texts."""


@dataclass(frozen=True)
class LabelledFile(LabelledInput):
    """A file of labelled texts."""

    source: CorpusFile
    encoding: str | None
    field: str
    """The column of the text, or `text=NAME,label=NAME`."""

    def read(self) -> ExampleReader:
        columns = parse_columns(self.field.split(",")) if "=" in self.field else {"text": self.field}
        return read_task("classify", self.source, encoding=self.encoding, columns=columns)

    def digest(self) -> str:
        """A digest of the file and how it is read."""
        return f"labelled {digest_file(self.source.path)} {self.source.format} {self.encoding} {self.field}"

    def encodings(self) -> dict[str, str]:
        return {self.source.name: file_encoding(replace(self.source, format="text"), self.encoding)}

    def size(self) -> int:
        return self.source.path.stat().st_size * (3 if self.source.compression else 1)


@dataclass(frozen=True)
class LabelledItems(LabelledInput):
    """Labelled texts from Python."""

    items: Sequence[Any]

    def read(self) -> ExampleReader:
        return read_items("classify", self.items)

    def digest(self) -> str:
        return digest_bytes("\n".join(example.text for example in self.examples()).encode())

    def encodings(self) -> dict[str, str]:
        return {"python": "utf-8"}


def open_labelled(texts: Sequence[Any], field: str = "text", encoding: str | None = None) -> Corpus:
    """The corpus of labelled files or pairs from Python, each text one document of one sentence."""
    inputs: list[Input] = []
    for text in texts:
        if isinstance(text, Corpus) or str(text).startswith("builtin:"):
            raise CorpusError(f"a classifier is trained on labelled texts, not on a corpus: {HOW['classify']}.")
        if isinstance(text, str | Path):
            sources = [save_stdin()] if str(text) == "-" else find_files([text])
            inputs += [LabelledFile(source, encoding, field) for source in sources]
        else:
            inputs.append(LabelledItems(list(text)))
    corpus = Corpus(tuple(inputs), "lines")
    next(corpus.raw_documents(), None)  # an empty corpus raises here
    for name, found in corpus.encodings().items():
        if found != "utf-8":
            note(f"{name}: reading as {found}")
    return corpus


def read_labels(corpus: Corpus, store: TokenStore, tokenizer: Tokenizer) -> Labels:
    """The labels of the texts of a store that was made of `corpus`, in the order of its documents."""
    seen: dict[str, int] = {}
    flat, lengths = array("i"), array("i")
    for example in _examples(corpus):
        labels = dict.fromkeys(example.labels or ())
        for label in labels:
            flat.append(seen.setdefault(label, len(seen)))
        lengths.append(len(labels))
    counts = np.bincount(np.asarray(flat)).tolist()
    names = sorted(seen, key=lambda name: (-counts[seen[name]], name))
    numbers = _padded(np.asarray(flat), np.asarray(lengths), {seen[name]: index for index, name in enumerate(names)})
    if len(numbers) != store.info.documents:  # texts of control characters only have no tokens
        numbers = numbers[_lengths(corpus, tokenizer) > 0]
    return Labels(numbers, tuple(names))


def accuracy(model: Predicts, corpus: Corpus) -> float:
    """The fraction of texts whose most probable label is one of theirs."""
    right = texts = 0
    examples = _examples(corpus)
    while batch := list(islice(examples, _BATCH)):
        found = model.predict([example.text for example in batch])
        right += sum(best[0][0] in (example.labels or ()) for best, example in zip(found, batch, strict=True))
        texts += len(batch)
    return right / texts


def _padded(flat: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], indices: dict[int, int]) -> Any:
    """Label indices (texts, most labels of a text), padded with -1."""
    order = np.array([indices[number] for number in range(len(indices))], dtype=np.int32)
    numbers = np.full((lengths.size, int(lengths.max())), -1, dtype=np.int32)
    numbers[np.arange(numbers.shape[1]) < lengths[:, None]] = order[flat]
    return numbers


def _examples(corpus: Corpus) -> Iterator[TextExample]:
    for source in corpus.inputs:
        if not isinstance(source, LabelledInput):
            raise CorpusError(f"a classifier is trained on labelled texts: {HOW['classify']}.")
        yield from source.examples()


def _lengths(corpus: Corpus, tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """The number of tokens of each text."""
    encoder, found = TextEncoder(tokenizer), [np.zeros(0, dtype=np.int64)]
    texts = [example.text for example in _examples(corpus)]
    for begin in range(0, len(texts), _BATCH):
        found.append(encoder.encode(texts[begin : begin + _BATCH]).lengths)
    return np.concatenate(found)
