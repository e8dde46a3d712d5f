"""Corpus: a restartable stream of documents, larger than memory if need be."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args

from firth.errors import CorpusError, near_miss
from firth.files import cache_folder, digest_file, writing
from firth.text.builtin import builtin_documents, entropy_of
from firth.text.document import Document, RawDocument
from firth.text.layout import Block, Layout, detect_layout, pack_documents, sentences_of
from firth.text.readers import check_text, cut_document, read_blocks, read_documents, source_encoding
from firth.text.segment import Segmenter, make_segmenter, words_of
from firth.text.sources import Source, find_sources

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Part = Literal["all", "train", "valid", "test"]
BLOCK = 1 << 20
"""Characters that are handed to a worker at once; documents are gathered up to this size."""

_SAMPLE = 1 << 18  # characters that layout detection looks at
_PACKED = 3  # how many times larger compressed text is once it is unpacked
_BUILTIN = "builtin:"


class Input(Protocol):
    """Something documents come from: a file, a built-in corpus, a Python iterable."""

    def documents(self) -> Iterator[RawDocument]: ...

    def digest(self) -> str:
        """A digest of what it holds: equal digests mean equal documents."""
        ...

    def encodings(self) -> dict[str, str]: ...

    def size(self) -> int:
        """About how many bytes of text there are; 0 where that is not known beforehand."""
        ...


@dataclass(frozen=True)
class FileInput:
    source: Source
    encoding: str | None
    field: str

    def documents(self) -> Iterator[RawDocument]:
        return read_documents(self.source, encoding=self.encoding, field=self.field)

    @property
    def is_text(self) -> bool:
        return self.source.format == "text"

    def blocks(self) -> Iterator[Block]:
        """The text in blocks of lines as they stand; for layouts in which no sentence goes on in the next line."""
        before = b"\n"  # no document goes on from another file
        for data in read_blocks(self.source, encoding=self.encoding, size=BLOCK):
            yield Block(before + data)
            before = b""

    def digest(self) -> str:
        return f"{digest_file(self.source.path)} {self.source.format} {self.encoding} {self.field}"

    def encodings(self) -> dict[str, str]:
        return {self.source.name: source_encoding(self.source, encoding=self.encoding)}

    def size(self) -> int:
        return self.source.path.stat().st_size * (_PACKED if self.source.compression else 1)


@dataclass(frozen=True)
class BuiltinInput:
    name: str

    def documents(self) -> Iterator[RawDocument]:
        return builtin_documents(self.name)

    def digest(self) -> str:
        return _digest_documents(self.documents())

    def encodings(self) -> dict[str, str]:
        return {_BUILTIN + self.name: "utf-8"}

    def size(self) -> int:
        return 0


@dataclass(frozen=True)
class IterableInput:
    """Documents from Python: each item a text, or a list of sentences."""

    items: Iterable[str | Sequence[str]]

    def documents(self) -> Iterator[RawDocument]:
        for number, item in enumerate(self.items):
            where = f"item {number}"
            lines = item.replace("\r\n", "\n").replace("\r", "\n").split("\n") if isinstance(item, str) else item
            kept = [line for line in lines if line.strip()]
            if kept:
                yield from cut_document(check_text("\n".join(kept), where), where)

    def digest(self) -> str:
        return _digest_documents(self.documents())

    def encodings(self) -> dict[str, str]:
        return {"python": "utf-8"}

    def size(self) -> int:
        return 0


@dataclass(frozen=True)
class Corpus:
    """A restartable stream of documents, each with its sentences.

    >>> corpus = read_corpus([["the cat sat .", "it slept ."], ["a dog ran ."]])
    >>> [document.sentences for document in corpus]
    [('the cat sat .', 'it slept .'), ('a dog ran .',)]
    """

    inputs: tuple[Input, ...]
    chosen_layout: Layout | Literal["auto"] = "auto"
    part: Part = "all"
    shares: tuple[float, float] = (0.0, 0.0)  # of valid and test
    segmenter: Segmenter = field(default_factory=make_segmenter)

    @cached_property
    def layout(self) -> Layout:
        """How lines and sentences relate: as asked for, or as the first documents show."""
        if self.chosen_layout != "auto":
            return self.chosen_layout
        return detect_layout(document.text for document in _first(self._all_documents(), _SAMPLE))

    def raw_documents(self) -> Iterator[RawDocument]:
        """The documents of this part as they were read; long ones in pieces."""
        if self.part == "all":
            yield from self._all_documents()
            return
        chosen = False
        for document in self._all_documents():
            if not document.continues:
                chosen = part_of(document.text, self.shares) == self.part
            if chosen:
                yield document

    def blocks(self) -> Iterator[Block]:
        """The documents of this part in blocks of about `BLOCK` characters: what one worker handles at a time."""
        for source in self.inputs:
            if self.part == "all" and self.layout != "wrapped" and isinstance(source, FileInput) and source.is_text:
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
        """All sentences, document after document."""
        return itertools.chain.from_iterable(document.sentences for document in self)

    def words(self, sentence: str) -> list[str]:
        """The words of a sentence, punctuation marks included."""
        return words_of(self.segmenter.mark(sentence))

    def parts(self, valid: float = 0.05, test: float = 0.05) -> tuple[Corpus, Corpus, Corpus]:
        """Train, valid and test: each document falls into one of them by its text alone.

        So the same document lands in the same part on every machine, in any order, and a repeated document
        never stands on both sides.
        """
        if self.part != "all":
            raise CorpusError(f"this is the {self.part} part of a corpus already: split the whole corpus.")
        if valid < 0 or test < 0 or valid + test >= 1:
            raise CorpusError(f"shares of {valid} and {test} leave no text to train on: keep their sum below 1.")
        train, valid_part, test_part = (
            replace(self, part=name, shares=(valid, test), chosen_layout=self.layout)
            for name in ("train", "valid", "test")
        )
        return train, valid_part, test_part

    def encodings(self) -> dict[str, str]:
        """File -> encoding it is read with."""
        return {name: code for source in self.inputs for name, code in source.encodings().items()}

    def size(self) -> int | None:
        """About how many bytes of text there are, for progress bars; None where that is not known beforehand."""
        return sum(source.size() for source in self.inputs) or None

    def entropy(self) -> dict[str, float] | None:
        """The exact entropy, where the corpus is a single built-in one that knows it."""
        match self.inputs:
            case (BuiltinInput(name),):
                return entropy_of(name)
        return None

    def key(self) -> str:
        """A digest of everything that decides the documents, without splitting them into sentences."""
        facts = [source.digest() for source in self.inputs], self.layout, self.part, self.shares
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """How this corpus is read: what a manifest records."""
        return {
            "encodings": self.encodings(),
            "layout": self.layout,
            "part": self.part,
            "shares": {"valid": self.shares[0], "test": self.shares[1]},
        }

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
    first, because a corpus can be read again and again.

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
        else:
            found.append(IterableInput(given if _restartable(given) else _spool_items(given)))
            layout = "lines" if layout == "auto" and _holds_sentences(found[-1]) else layout
    corpus = Corpus(tuple(found), cast(Layout, layout), segmenter=segmenter or make_segmenter())
    if next(corpus.raw_documents(), None) is None:
        names = ", ".join(str(given) if isinstance(given, str | Path) else "the iterable" for given in inputs)
        raise CorpusError(f"there is no text in {names}: only blank lines or nothing at all; name other files.")
    return corpus


def _pack(documents: Iterable[RawDocument]) -> Iterator[Block]:
    """Documents in blocks; one that goes on begins a new block, so that each piece is split into sentences alone."""
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


def part_of(text: str, shares: tuple[float, float]) -> Part:
    """The part a document belongs to, decided by a digest of its text."""
    number = hashlib.blake2b(text.encode(), digest_size=8, person=b"firth-part").digest()
    place = int.from_bytes(number, "big") / 2**64
    valid, test = shares
    return "valid" if place < valid else "test" if place < valid + test else "train"


def _named_inputs(name: str, encoding: str | None, field: str) -> list[Input]:
    if name.startswith(_BUILTIN):
        builtin = BuiltinInput(name.removeprefix(_BUILTIN))
        next(builtin.documents())  # a wrong name is told here, not at the first use
        return [builtin]
    if name == "-":
        return [FileInput(stdin_source(), encoding, field)]
    return [FileInput(source, encoding, field) for source in find_sources([name])]


def _first(documents: Iterable[RawDocument], characters: int) -> Iterator[RawDocument]:
    """The first documents, up to about that many characters."""
    for document in documents:
        yield document
        characters -= len(document.text)
        if characters <= 0:
            return


def _digest_documents(documents: Iterable[RawDocument]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        data = document.text.encode()
        digest.update(b"%d %d\n" % (document.continues, len(data)))
        digest.update(data)
    return digest.hexdigest()


def _holds_sentences(source: Input) -> bool:
    """Whether the items of an iterable are lists of sentences rather than texts."""
    return isinstance(source, IterableInput) and not isinstance(next(iter(source.items), ""), str)


def _restartable(items: Iterable[Any]) -> bool:
    return iter(items) is not items


@dataclass(frozen=True)
class _SpooledItems:
    """The items of a generator, read back from a temporary file."""

    path: Path

    def __iter__(self) -> Iterator[str | Sequence[str]]:
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def _spool_items(items: Iterable[str | Sequence[str]]) -> _SpooledItems:
    path = _temporary_file()
    with writing(path), open(path, "w", encoding="utf-8") as file:
        for item in items:
            file.write(json.dumps(item if isinstance(item, str) else list(item)) + "\n")
    return _SpooledItems(path)


def stdin_source() -> Source:
    """What comes in on standard input, kept in a temporary file."""
    path = _temporary_file()
    with writing(path), open(path, "wb") as file:
        while block := sys.stdin.buffer.read(1 << 20):
            file.write(block)
    return Source(path, "standard input")


def _temporary_file() -> Path:
    """A new file in the cache folder that is removed when the process ends."""
    import atexit

    folder = cache_folder() / "spool"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
    os.close(handle)
    atexit.register(Path(name).unlink, missing_ok=True)
    return Path(name)
