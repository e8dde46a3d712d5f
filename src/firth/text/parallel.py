"""Parallel text: pairs of a text and its translation, as a corpus whose documents are two sentences.

A pair is a row of a TSV or JSONL file with two text columns, whose names are the languages, or a line of two files.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from firth.errors import ArgumentError, CorpusError, near_miss
from firth.files import digest_file
from firth.text.corpus import Corpus, Input, file_size
from firth.text.files import CorpusFile, find_files
from firth.text.layout import RawDocument
from firth.text.parquet import missing_field
from firth.text.readers import file_encoding, read_json_objects, read_lines, require_text
from firth.text.segment import Segmenter, make_segmenter

_SPACES = re.compile(r"\s+")
_LABELS = {"label", "labels", "score", "text", "text_a", "text_b"}  # columns of tables that are not parallel text
_NAMES = re.compile(r"[^\s,/\\.]+")


class TextPair(NamedTuple):
    """A text and its translation, or any other text that depends on it."""

    source: str
    target: str
    where: str
    """The file and line, for messages."""


@dataclass(frozen=True)
class ParallelInput(Input):
    """Pairs of texts from one file with two columns, or from two files line by line."""

    files: tuple[CorpusFile, ...]
    """One or two."""
    languages: tuple[str, str]
    """The columns of one file; of two files, their suffixes."""
    encoding: str | None = None

    def title(self) -> str:
        return ", ".join(file.name for file in self.files)

    def pairs(self) -> Iterator[TextPair]:
        """All pairs; a pair with an empty side, or files of different lengths, raise `CorpusError`."""
        for pair in self.rows():
            for text, language in zip(pair, self.languages, strict=False):
                if not text:
                    raise CorpusError(f"{pair.where} has no text in {language}: remove the pair.")
            yield pair

    def rows(self) -> Iterator[TextPair]:
        """All pairs, also those with an empty side."""
        rows = self._file_rows() if len(self.files) == 1 else self._line_rows()
        for source, target, where in rows:
            yield TextPair(_one_line(source, where), _one_line(target, where), where)

    def documents(self) -> Iterator[RawDocument]:
        for pair in self.pairs():
            yield RawDocument(f"{pair.source}\n{pair.target}", pair.where)

    def encodings(self) -> dict[str, str]:
        return {file.name: file_encoding(file, self.encoding) for file in self.files}

    def digest(self) -> str:
        digests = " ".join(digest_file(file.path) for file in self.files)
        return f"{digests} parallel {' '.join(self.languages)} {self.encoding}"

    def size(self) -> int:
        return sum(file_size(file) for file in self.files)

    def _file_rows(self) -> Iterator[tuple[str, str, str]]:
        (file,) = self.files
        rows = _json_rows(file, self.encoding) if file.format == "jsonl" else _table_rows(file, self.encoding)
        for row, where in rows:
            yield *(_column(row, name, where) for name in self.languages), where  # type: ignore[misc]

    def _line_rows(self) -> Iterator[tuple[str, str, str]]:
        first, second = self.files
        lines = itertools.zip_longest(*(read_lines(file, encoding=self.encoding) for file in self.files))
        for number, (one, two) in enumerate(lines, 1):
            if one is None or two is None:
                longer, shorter = (first, second) if two is None else (second, first)
                raise CorpusError(
                    f"{longer.name} has more lines than {shorter.name}, which has {number - 1:,}: parallel files have "
                    "a pair in each line."
                )
            yield one[1], two[1], f"line {number} of {first.name} and {second.name}"


@dataclass(frozen=True, repr=False)
class ParallelCorpus(Corpus):
    """A corpus of pairs: each document has two sentences, the source and the target."""

    languages: tuple[str, str] = ("", "")

    def pairs(self) -> Iterator[TextPair]:
        """The pairs of this part."""
        for document in self.raw_documents():
            source, _, target = document.text.partition("\n")
            yield TextPair(source, target, document.source)

    def key(self) -> str:
        return f"{super().key()} {' '.join(self.languages)}"


def read_parallel(
    *paths: str | Path, pair: str | None = None, encoding: str | None = None, segmenter: Segmenter | None = None
) -> ParallelCorpus:
    """The pairs of TSV or JSONL files with two text columns, or of two files line by line.

    `pair` names two columns and so the direction, `en,de`, or two files, `a.en,a.de`. By default the first two columns
    are used in their order.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.tsv").write_text("en\\tde\\nA dog.\\tEin Hund.\\n")
    ...     corpus = read_parallel(Path(folder, "a.tsv"), pair="de,en")
    ...     [(one.source, one.target) for one in corpus.pairs()], corpus.languages
    ([('Ein Hund.', 'A dog.')], ('de', 'en'))
    """
    return _corpus(parallel_inputs(*paths, pair=pair, encoding=encoding), segmenter)


def parallel_inputs(
    *paths: str | Path, pair: str | None = None, encoding: str | None = None
) -> Sequence[ParallelInput]:
    """The files of `read_parallel`, of which only the header is read."""
    names = _parse_pair(pair) if pair else None
    if names and not paths:
        return [_line_input(names, encoding)]
    if not paths:
        raise CorpusError("no pairs were given: name a TSV or JSONL file with two columns, or two files with --pair.")
    inputs = [_file_input(file, names, encoding) for file in find_files([str(path) for path in paths])]
    for one in inputs[1:]:
        if one.languages != inputs[0].languages:
            raise CorpusError(
                f"{one.title()} has the columns {', '.join(one.languages)}, {inputs[0].title()} has "
                f"{', '.join(inputs[0].languages)}: choose those that all have with --pair."
            )
    return inputs


def is_parallel(path: str | Path) -> bool:
    """Whether a file is a table with two text columns, by its name and its first row."""
    try:
        (file,) = find_files([str(path)])
        columns = table_columns(path) if _suffix(file) in (".tsv", ".csv") else ()
    except (CorpusError, ValueError):
        return False
    return len(columns) == 2 and not _LABELS & set(columns)


def table_columns(path: str | Path) -> tuple[str, ...]:
    """The columns of a TSV file, or the text fields of the first object of JSONL; none of any other file."""
    try:
        files = find_files([str(path)])
        is_table = all(file.format == "jsonl" or _suffix(file) in (".tsv", ".csv") for file in files)
        return tuple(_columns(files[0], None)) if files and is_table else ()
    except (CorpusError, ValueError):
        return ()


def _corpus(inputs: Sequence[ParallelInput], segmenter: Segmenter | None) -> ParallelCorpus:
    corpus = ParallelCorpus(
        tuple(inputs), "lines", segmenter=segmenter or make_segmenter(), languages=inputs[0].languages
    )
    if next(corpus.raw_documents(), None) is None:
        raise CorpusError(f"there is no pair in {', '.join(one.title() for one in inputs)}: name other files.")
    return corpus


def _parse_pair(pair: str) -> tuple[str, str]:
    names = [name.strip() for name in pair.split(",")]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise ArgumentError(f"--pair takes two columns, such as en,de, or two files, such as a.en,a.de, not {pair!r}.")
    return names[0], names[1]


def _line_input(names: tuple[str, str], encoding: str | None) -> ParallelInput:
    files = tuple(file for name in names for file in find_files([name]))
    if len(files) != 2:
        raise CorpusError(f"{', '.join(names)} are {len(files)} files: name two different ones with --pair.")
    suffixes = [_suffix(file).lstrip(".") for file in files]
    found = tuple(suffixes) if len(set(suffixes)) == 2 and all(suffixes) else ("source", "target")
    return ParallelInput(files, (found[0], found[1]), encoding)


def _file_input(file: CorpusFile, names: tuple[str, str] | None, encoding: str | None) -> ParallelInput:
    columns = _columns(file, encoding)
    if names is None:
        if len(columns) < 2:
            raise CorpusError(
                f"{file.name} has {len(columns)} column: parallel text has two, with a header that names the languages."
            )
        names = columns[0], columns[1]
    for name in names:
        if name not in columns:
            raise CorpusError(f"{file.name} has no column {name!r:.80}: {near_miss(name, columns)}")
    return ParallelInput((file,), names, encoding)


def _columns(file: CorpusFile, encoding: str | None) -> list[str]:
    """The names in the header of a table, or of the texts in the first object of a JSONL file."""
    if file.format == "jsonl":
        record, _ = next(_json_rows(file, encoding), ({}, ""))
        return [name for name, value in record.items() if isinstance(value, str)]
    _, header = next(read_lines(file, encoding=encoding), (0, ""))
    columns = [name.strip() for name in header.split("\t")]
    if len(columns) > 1 and not all(_NAMES.fullmatch(name) for name in columns):
        raise CorpusError(
            f"the first line of {file.name} is no header: write the names of the columns there, such as en and de."
        )
    return columns


def _table_rows(file: CorpusFile, encoding: str | None) -> Iterator[tuple[dict[str, str], str]]:
    lines = read_lines(file, encoding=encoding)
    columns = [name.strip() for name in next(lines, (0, ""))[1].split("\t")]
    for number, line in lines:
        if not line.strip():
            continue
        where, fields = f"line {number + 1} of {file.name}", line.split("\t")
        if len(fields) != len(columns):
            raise CorpusError(
                f"{where} has {len(fields)} columns, the header {len(columns)}: put a tab between columns and none "
                "inside them."
            )
        yield dict(zip(columns, fields, strict=True)), where


def _json_rows(file: CorpusFile, encoding: str | None) -> Iterator[tuple[dict[str, str], str]]:
    return read_json_objects(file, encoding=encoding)


def _column(row: dict[str, str], name: str, where: str) -> str:
    if name not in row:
        raise missing_field(name, list(row), where)
    if not isinstance(row[name], str):
        raise CorpusError(f"{where} has no text in {name!r:.80}: mend it, or choose another with --pair.")
    return row[name]


def _one_line(text: str, where: str) -> str:
    return _SPACES.sub(" ", require_text(text, where)).strip()


def _suffix(file: CorpusFile) -> str:
    """The last suffix of a file's name without that of a compression."""
    name = Path(file.path.name)
    return Path(name.stem).suffix if file.compression else name.suffix
