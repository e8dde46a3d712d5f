"""Labelled pairs of sentences, such as those of natural language inference, as a corpus: a pair is a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from firth.errors import CorpusError, near_miss
from firth.files import digest_bytes, digest_file
from firth.progress import note
from firth.tasks.examples import TextExample
from firth.tasks.readers.columns import HOW
from firth.tasks.readers.reader import ExampleReader, read_items, read_task
from firth.text.corpus import Corpus, Input, file_size
from firth.text.files import CorpusFile, find_files
from firth.text.layout import RawDocument
from firth.text.parallel import table_columns
from firth.text.readers import file_encoding
from firth.tokens.encoder import TextEncoder
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer

Integers = np.ndarray[Any, np.dtype[np.int64]]
COLUMNS: tuple[dict[str, str], ...] = (
    {"label": "label", "text_a": "text_a", "text_b": "text_b"},
    {"label": "gold_label", "text_a": "sentence1", "text_b": "sentence2"},
)
"""The columns of files of labelled pairs: Firth's, and those of SNLI and MultiNLI."""
UNDECIDED = "-"
"""The label of pairs on which annotators did not agree, which are not used (Bowman et al. 2015)."""
OTHER = -1
"""The number of labels that are not used."""
_BATCH = 20_000  # texts encoded at a time


def pair_columns(path: str | Path) -> dict[str, str] | None:
    """The columns of a file of labelled pairs by role; None for any other file."""
    found = set(table_columns(path))
    return next((columns for columns in COLUMNS if found.issuperset(columns.values())), None)


class LabelledPairInput(Input):
    """A source of labelled pairs: each is a document of two sentences."""

    def read(self) -> ExampleReader:
        """All pairs."""
        raise NotImplementedError

    def examples(self) -> Iterator[TextExample]:
        """The pairs with a label and two texts; those without text are left out."""
        for example in self.read():
            assert isinstance(example, TextExample)
            if not example.labels or example.other is None:
                raise CorpusError(f"{example.origin}: there is no label, or no second text: {HOW['pair']}.")
            yield example

    def documents(self) -> Iterator[RawDocument]:
        """The pairs without labels."""
        for one in self.examples():
            yield RawDocument(f"{_one_line(one.text)}\n{_one_line(one.other or '')}", str(one.origin))


@dataclass(frozen=True)
class LabelledPairFile(LabelledPairInput):
    """A TSV or JSONL file of labelled pairs."""

    source: CorpusFile
    encoding: str | None

    def title(self) -> str:
        return self.source.name

    def read(self) -> ExampleReader:
        columns = pair_columns(self.source.path)
        return read_task("pair", self.source, encoding=self.encoding, columns=columns)

    def digest(self) -> str:
        return f"labelled pairs {digest_file(self.source.path)} {self.source.format} {self.encoding}"

    def encodings(self) -> dict[str, str]:
        return {self.source.name: file_encoding(replace(self.source, format="text"), self.encoding)}

    def size(self) -> int:
        return file_size(self.source)


@dataclass(frozen=True)
class LabelledPairItems(LabelledPairInput):
    """Labelled pairs from Python: dictionaries with the keys label, text_a and text_b."""

    items: Sequence[Any]

    def read(self) -> ExampleReader:
        return read_items("pair", self.items)

    def digest(self) -> str:
        rows = (f"{one.labels}\t{one.text}\t{one.other}" for one in self.examples())
        return digest_bytes("\n".join(rows).encode())

    def encodings(self) -> dict[str, str]:
        return {"python": "utf-8"}


def open_labelled_pairs(texts: Sequence[Any], encoding: str | None = None) -> Corpus:
    """The corpus of files or lists of labelled pairs; notes examples that were left out."""
    inputs: list[Input] = []
    for text in texts:
        if isinstance(text, str | Path):
            inputs += [LabelledPairFile(source, encoding) for source in find_files([text])]
        else:
            inputs.append(LabelledPairItems(list(text)))
    for one in inputs:
        assert isinstance(one, LabelledPairInput)
        reader = one.read()
        for _ in reader:  # so that errors come before anything is trained
            pass
        for remark in reader.notes():
            note(remark)
    return Corpus(tuple(inputs), "lines")


def count_labels(corpus: Corpus) -> Counter[str]:
    """The number of pairs with each label, in lower case."""
    return Counter(label for label, _ in _labels(corpus))


def require_labels(corpus: Corpus, names: Sequence[str]) -> None:
    """Raise `CorpusError` unless there are pairs with each of these labels."""
    found = count_labels(corpus)
    if missing := [name for name in names if not found[name.casefold()]]:
        titles = ", ".join(one.title() for one in corpus.inputs)
        raise CorpusError(
            f"no pair of {titles} has the label {missing[0]!r:.80}, only {', '.join(sorted(found)):.80}: add such "
            "pairs, or name the labels of the file, such as --set nli.labels=A,B."
        )


def read_pair_labels(
    corpus: Corpus, store: TokenStore, tokenizer: Tokenizer, names: Sequence[str], *, complete: bool
) -> Integers:
    """The number of each document's label among `names`, -1 for others, in the order of a store made of `corpus`.

    If `complete`, another label raises `CorpusError`.
    """
    numbers = {name.casefold(): number for number, name in enumerate(names)}
    found, seen = [], Counter[str]()
    for label, example in _labels(corpus):
        if complete and label not in numbers and label != UNDECIDED:
            raise CorpusError(
                f"{example.origin}: the label {label!r:.80} is none of {', '.join(names)}: {near_miss(label, names)}"
            )
        seen[label] += 1
        found.append(numbers.get(label, OTHER))
    if seen[UNDECIDED]:
        note(f"{seen[UNDECIDED]:,} pairs have the label {UNDECIDED}, on which annotators did not agree: not used")
    labels = np.array(found, dtype=np.int64)
    if len(labels) != store.info.documents:  # pairs of control characters only have no tokens
        labels = labels[_has_tokens(corpus, tokenizer)]
    return labels


def _labels(corpus: Corpus) -> Iterator[tuple[str, TextExample]]:
    for source in corpus.inputs:
        assert isinstance(source, LabelledPairInput)
        for example in source.examples():
            yield (example.labels or ("",))[0].casefold(), example


def _has_tokens(corpus: Corpus, tokenizer: Tokenizer) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each pair has a token in one of its texts."""
    encoder, sizes = TextEncoder(tokenizer), [np.zeros(0, dtype=np.int64)]
    texts = [_one_line(text) for _, one in _labels(corpus) for text in (one.text, one.other or "")]
    for begin in range(0, len(texts), _BATCH):
        sizes.append(encoder.encode(texts[begin : begin + _BATCH]).lengths)
    return np.asarray(np.concatenate(sizes).reshape(-1, 2).sum(1) > 0)


def _one_line(text: str) -> str:
    return " ".join(text.split())
