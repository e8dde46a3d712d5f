"""Corpus: a restartable stream of documents, possibly larger than memory."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast, get_args

from firth.errors import ArgumentError, CorpusError, near_miss
from firth.files import cache_folder, digest_file, is_abandoned, temporary_prefix, writing
from firth.progress import note
from firth.summaries import Summarised
from firth.text.files import CorpusFile, find_files
from firth.text.layout import Document, Layout, RawDocument, TextBlock, detect_layout, pack_documents, sentences_of
from firth.text.oracle import PREFIX, builtin_documents, entropy_of
from firth.text.readers import file_encoding, read_blocks, read_documents, require_text, split_document
from firth.text.segment import Segmenter, make_segmenter, split_words

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Part = Literal["all", "train", "valid", "test"]
Unit = Literal["documents", "lines"]
BLOCK = 1 << 20  # characters, the unit of work of a worker
_SAMPLE = 1 << 18  # characters used for layout detection
_COMPRESSION_RATIO = 3  # estimated, of text


class Input(ABC):
    """A source of documents: a file, a built-in corpus or a Python iterable."""

    @abstractmethod
    def documents(self) -> Iterator[RawDocument]: ...

    @abstractmethod
    def encodings(self) -> dict[str, str]: ...

    def title(self) -> str:
        """What the source is called in a summary."""
        return type(self).__name__

    def digest(self) -> str:
        digest = hashlib.sha256()
        for document in self.documents():
            data = document.text.encode()
            digest.update(b"%d %d\n" % (document.continues, len(data)))
            digest.update(data)
        return digest.hexdigest()

    def size(self) -> int:
        return 0  # unknown


def file_size(file: CorpusFile) -> int:
    """The approximate bytes of text in a file."""
    return file.path.stat().st_size * (_COMPRESSION_RATIO if file.compression else 1)


@dataclass(frozen=True)
class FileInput(Input):
    source: CorpusFile
    encoding: str | None
    field: str

    def title(self) -> str:
        return self.source.name

    def documents(self) -> Iterator[RawDocument]:
        return read_documents(self.source, encoding=self.encoding, field=self.field)

    def blocks(self) -> Iterator[TextBlock]:
        """The text in blocks of whole lines; for layouts in which no sentence spans lines."""
        before = b"\n"  # a document never spans files
        for data in read_blocks(self.source, encoding=self.encoding, size=BLOCK):
            yield TextBlock(before + data)
            before = b""

    def digest(self) -> str:
        return f"{digest_file(self.source.path)} {self.source.format} {self.encoding} {self.field}"

    def encodings(self) -> dict[str, str]:
        return {self.source.name: file_encoding(self.source, encoding=self.encoding)}

    def size(self) -> int:
        return file_size(self.source)


@dataclass(frozen=True)
class BuiltinInput(Input):
    name: str

    def title(self) -> str:
        return PREFIX + self.name

    def documents(self) -> Iterator[RawDocument]:
        return builtin_documents(self.name)

    def encodings(self) -> dict[str, str]:
        return {PREFIX + self.name: "utf-8"}


@dataclass(frozen=True)
class IterableInput(Input):
    """Documents from Python: each item a text, or a list of sentences."""

    items: Iterable[str | Sequence[str]]

    def title(self) -> str:
        return f"a {type(self.items).__name__.strip('_')}"

    def documents(self) -> Iterator[RawDocument]:
        for number, item in enumerate(self.items):
            where = f"item {number}"
            lines = item.replace("\r\n", "\n").replace("\r", "\n").split("\n") if isinstance(item, str) else item
            kept = [line for line in lines if line.strip()]
            if kept:
                yield from split_document(require_text("\n".join(kept), where), where)

    def encodings(self) -> dict[str, str]:
        return {"python": "utf-8"}


@dataclass(frozen=True, repr=False)
class Corpus(Summarised):
    """A restartable stream of documents, each with its sentences.

    >>> corpus = read_corpus([["the cat sat .", "it slept ."], ["a dog ran ."]])
    >>> [document.sentences for document in corpus]
    [('the cat sat .', 'it slept .'), ('a dog ran .',)]
    """

    inputs: tuple[Input, ...]
    chosen_layout: Layout | Literal["auto"] = "auto"
    part: Part = "all"
    fractions: tuple[float, float] = (0.0, 0.0)  # of valid and test
    unit: Unit = "documents"  # that are assigned to parts
    segmenter: Segmenter = field(default_factory=make_segmenter)

    @cached_property
    def layout(self) -> Layout:
        """The layout given, or detected from the first documents."""
        if self.chosen_layout != "auto":
            return self.chosen_layout
        texts, left = [], _SAMPLE
        for document in self._all_documents():
            texts.append(document.text)
            left -= len(document.text)
            if left <= 0:
                break
        return detect_layout(texts)

    def raw_documents(self) -> Iterator[RawDocument]:
        """The unsplit documents of this part; long ones in pieces."""
        if self.part == "all" or self.unit == "lines":
            yield from self._all_documents() if self.part == "all" else self._chosen_lines()
            return
        chosen = False
        for document in self._all_documents():
            if not document.continues:
                chosen = part_of(document.text, self.fractions) == self.part
            if chosen:
                yield document

    def _chosen_lines(self) -> Iterator[RawDocument]:
        """The documents with only those lines that are in this part."""
        has_begun = False
        for document in self._all_documents():
            has_begun = has_begun and document.continues
            lines = [line for line in self._units(document) if part_of(line, self.fractions) == self.part]
            if lines:
                yield replace(document, text="\n".join(lines), continues=has_begun)
                has_begun = True

    def _units(self, document: RawDocument) -> list[str]:
        """What is assigned to parts: documents, or their lines, or the sentences of wrapped lines."""
        if self.unit == "documents":
            return [] if document.continues else [document.text]
        if self.layout == "wrapped":
            return sentences_of(document.text, "wrapped")
        return [line for line in document.text.split("\n") if line.strip()]

    def blocks(self) -> Iterator[TextBlock]:
        """The documents of this part in blocks of about `BLOCK` characters."""
        by_line = self.part == "all" and self.layout != "wrapped"
        for source in self.inputs:
            if by_line and isinstance(source, FileInput) and source.source.format == "text":
                yield from source.blocks()
            else:
                yield from _pack(replace(self, inputs=(source,)).raw_documents())

    def __iter__(self) -> Iterator[Document]:
        layout = self.layout
        for document in self.raw_documents():
            sentences = sentences_of(document.text, layout)
            if sentences:
                yield Document(tuple(sentences), document.source, document.continues)

    def sentences(self) -> Iterator[str]:
        return itertools.chain.from_iterable(document.sentences for document in self)

    def words(self, sentence: str) -> list[str]:
        return split_words(self.segmenter.mark(sentence))

    def parts(self, valid: float = 0.05, test: float = 0.05) -> tuple[Corpus, Corpus, Corpus]:
        """The train, valid and test parts, by a hash of each document's text: duplicates are never in two parts.

        If there are too few documents for all parts, as in a file of one document, the lines are split instead.
        """
        if self.part != "all":
            raise CorpusError(f"this is the {self.part} part of a corpus already: split the whole corpus.")
        if valid < 0 or test < 0 or valid + test >= 1:
            raise CorpusError(f"fractions of {valid} and {test} leave no text to train on: keep their sum below 1.")
        whole = replace(self, fractions=(valid, test), chosen_layout=self.layout)
        if empty := whole._empty_parts():
            by_lines = replace(whole, unit="lines")
            if len(left := by_lines._empty_parts()) < len(empty):
                note(f"there are too few documents for a {empty[0]} part: the lines are split, not the documents.")
                whole, empty = by_lines, left
            if empty:
                note(f"the {empty[0]} part is empty: give more text, or a larger fraction.")
        return replace(whole, part="train"), replace(whole, part="valid"), replace(whole, part="test")

    def _empty_parts(self) -> list[Part]:
        """The parts without text, of those that have a fraction."""
        shares: dict[Part, float] = {"train": 1, "valid": self.fractions[0], "test": self.fractions[1]}
        missing = [part for part, share in shares.items() if share > 0]
        for document in self._all_documents():
            for text in self._units(document):
                part = part_of(text, self.fractions)
                if part in missing:
                    missing.remove(part)
            if not missing:
                break
        return missing

    def encodings(self) -> dict[str, str]:
        return {name: code for source in self.inputs for name, code in source.encodings().items()}

    def size(self) -> int | None:
        """Approximate size in bytes, for progress bars; None if unknown."""
        return sum(source.size() for source in self.inputs) or None

    def vocabulary_sample(self) -> Corpus:
        """The text that a tokenizer is trained on."""
        return self

    def entropy(self) -> dict[str, float] | None:
        """The exact entropy, if the corpus is a single built-in one with a known entropy."""
        first, *others = self.inputs
        return entropy_of(first.name) if isinstance(first, BuiltinInput) and not others else None

    def key(self) -> str:
        """A digest of everything that determines the documents, computed without sentence splitting."""
        facts: list[Any] = [[source.digest() for source in self.inputs], self.layout, self.part, self.fractions]
        facts += ["lines"] if self.unit == "lines" else []
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        shares = dict(zip(("valid", "test"), self.fractions, strict=True))
        return {"encodings": self.encodings(), "layout": self.layout, "part": self.part, "shares": shares}

    def summary(self) -> dict[str, Any]:
        """The sources, and the part and the layout if they are known without reading the text."""
        titles = ", ".join(source.title() for source in self.inputs)
        many = {"files": len(self.inputs)} if len(self.inputs) > 3 else {"source": titles}
        part = {} if self.part == "all" else {"part": self.part}
        return many | part | {"layout": self.__dict__.get("layout", self.chosen_layout)}

    def _all_documents(self) -> Iterator[RawDocument]:
        return itertools.chain.from_iterable(source.documents() for source in self.inputs)


def read_corpus(
    *inputs: str | Path | Iterable[str | Sequence[str]],
    field: str = "text",
    encoding: str | None = None,
    layout: str = "auto",
    segmenter: Segmenter | None = None,
) -> Corpus:
    """A corpus of files, folders, globs, `-` (standard input), `builtin:NAME`, or Python iterables.

    An item of an iterable is a document: a text, or a list of sentences. A generator is written to a temporary file
    first, because a corpus is read several times.

    >>> len(list(read_corpus("builtin:oracle").parts()[2])) > 0
    True
    """
    if layout != "auto" and layout not in LAYOUTS:
        raise CorpusError(f"there is no layout {layout!r}: {near_miss(layout, (*LAYOUTS, 'auto'))}")
    if not inputs:
        raise CorpusError("no corpus was given: name a file, a folder, a glob, - or builtin:pydoc.")
    found: list[Input] = []
    for given in inputs:
        if isinstance(given, str | Path):
            found.extend(_named_inputs(str(given), encoding, field))
        elif not isinstance(given, Iterable):
            raise ArgumentError(f"a corpus is a file name or a list of texts, not {given!r}: name a file.")
        else:
            items = _SavedItems(given) if iter(given) is given else given  # a generator can be iterated only once
            found.append(IterableInput(items))
            if layout == "auto" and not isinstance(next(iter(items), ""), str):  # lists of sentences
                layout = "lines"
    corpus = Corpus(tuple(found), cast(Layout, layout), segmenter=segmenter or make_segmenter())
    if next(corpus.raw_documents(), None) is None:
        names = ", ".join(str(given) if isinstance(given, str | Path) else "the iterable" for given in inputs)
        raise CorpusError(f"there is no text in {names}: only blank lines or nothing at all; name other files.")
    return corpus


def _pack(documents: Iterable[RawDocument]) -> Iterator[TextBlock]:
    """Documents in blocks; a continued document starts a new block, so that its pieces are split separately."""
    block: list[RawDocument] = []
    size = 0
    for document in documents:
        if block and (size >= BLOCK or document.continues):
            yield pack_documents(block)
            block, size = [], 0
        block.append(document)
        size += len(document.text)
    if block:
        yield pack_documents(block)


def part_of(text: str, fractions: tuple[float, float]) -> Part:
    number = hashlib.blake2b(text.encode(), digest_size=8, person=b"firth-part").digest()
    uniform = int.from_bytes(number, "big") / 2**64
    valid, test = fractions
    return "valid" if uniform < valid else "test" if uniform < valid + test else "train"


def _named_inputs(name: str, encoding: str | None, field: str) -> list[Input]:
    if name.startswith(PREFIX):
        builtin = BuiltinInput(name.removeprefix(PREFIX))
        next(builtin.documents())  # raises for a wrong name
        return [builtin]
    if name == "-":
        return [FileInput(save_stdin(), encoding, field)]
    return [FileInput(source, encoding, field) for source in find_files([name])]


class _SavedItems:
    """The items of a generator, saved in a temporary file."""

    def __init__(self, items: Iterable[str | Sequence[str]]) -> None:
        self._path = _temporary_file()
        with writing(self._path), open(self._path, "w", encoding="utf-8") as file:
            for item in items:
                file.write(json.dumps(item if isinstance(item, str) else list(item)) + "\n")

    def __iter__(self) -> Iterator[str | Sequence[str]]:
        with open(self._path, encoding="utf-8") as file:
            yield from map(json.loads, file)


def save_stdin() -> CorpusFile:
    path = _temporary_file()
    with writing(path), open(path, "wb") as file:
        while block := sys.stdin.buffer.read(1 << 20):
            file.write(block)
    return CorpusFile(path, "standard input")


def _temporary_file() -> Path:
    import atexit

    folder = cache_folder() / "spool"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for old in filter(is_abandoned, folder.iterdir()):
            old.unlink(missing_ok=True)
        handle, name = tempfile.mkstemp(prefix=temporary_prefix(), dir=folder)
    os.close(handle)
    atexit.register(Path(name).unlink, missing_ok=True)
    return Path(name)
