"""Knowledge graphs: triples of a head, a relation and a tail, as a corpus whose documents are three names.

A triple is a line of three columns separated by tabs, with a header or without (`.tsv`, `.spo`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from firth.errors import CorpusError
from firth.files import digest_file
from firth.text.corpus import Corpus, Input, file_size
from firth.text.files import CorpusFile, find_files
from firth.text.layout import RawDocument
from firth.text.readers import file_encoding, read_lines
from firth.text.segment import make_segmenter

SPACE = "▁"
"""What a space within a name is in the vocabulary."""
_HEADERS = {"head", "subject", "h", "s"}


class Triple(NamedTuple):
    """A fact: the head has the relation to the tail."""

    head: str
    relation: str
    tail: str


@dataclass(frozen=True)
class TripleInput(Input):
    """The triples of a file."""

    file: CorpusFile
    encoding: str | None = None

    def title(self) -> str:
        return self.file.name

    def triples(self) -> Iterator[tuple[Triple, str]]:
        """All triples and where each of them is; a line of other columns raises `CorpusError`."""
        for number, line in read_lines(self.file, encoding=self.encoding):
            if not line.strip():
                continue
            where, names = f"line {number + 1} of {self.file.name}", [name.strip() for name in line.split("\t")]
            if number == 0 and names[0].lower() in _HEADERS:
                continue
            if len(names) != 3 or not all(names):
                raise CorpusError(
                    f"{where} has {sum(map(bool, names))} of the three names of a triple: write head, relation and "
                    "tail with a tab between them."
                )
            yield Triple(*names), where

    def documents(self) -> Iterator[RawDocument]:
        for triple, where in self.triples():
            yield RawDocument("\n".join(map(as_token, triple)), where)

    def encodings(self) -> dict[str, str]:
        return {self.file.name: file_encoding(self.file, self.encoding)}

    def digest(self) -> str:
        return f"{digest_file(self.file.path)} triples {self.encoding}"

    def size(self) -> int:
        return file_size(self.file)


def as_token(name: str) -> str:
    """A name as one word of a text.

    >>> as_token("new  york")
    'new▁york'
    """
    return SPACE.join(name.split())


def read_triples(*paths: str | Path, encoding: str | None = None) -> Corpus:
    """The triples of files, each a document of three sentences: head, relation and tail.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "g.tsv").write_text("head\\trelation\\ttail\\nnew york\\tin\\tusa\\n")
    ...     [document.sentences for document in read_triples(Path(folder, "g.tsv"))]
    [('new▁york', 'in', 'usa')]
    """
    inputs = triple_inputs(*paths, encoding=encoding)
    corpus = Corpus(tuple(inputs), "lines", segmenter=make_segmenter())
    if next(corpus.raw_documents(), None) is None:
        raise CorpusError(f"there is no triple in {', '.join(one.title() for one in inputs)}: name other files.")
    return corpus


def triple_inputs(*paths: str | Path, encoding: str | None = None) -> Sequence[TripleInput]:
    """The files of `read_triples`, which are not read yet."""
    if not paths:
        raise CorpusError("no triples were given: name a file with head, relation and tail in each line.")
    return [TripleInput(file, encoding) for file in find_files([str(path) for path in paths])]
