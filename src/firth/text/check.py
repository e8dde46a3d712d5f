"""What is in a corpus and what to do about it: the analysis behind `firth check`.

One pass over the documents. Memory is bounded: sentences, documents and words are held as 64-bit keys up to
a cap each, documents also as MinHash signatures (some 0.6 GB if every cap is reached). What lies beyond a cap
is still compared with what is held; the figures that may then be too low are named under `capped`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np

from firth.errors import CorpusError
from firth.text import duplicates, scripts
from firth.text.document import Document
from firth.text.duplicates import DocumentMarks, DocumentSigner, HashSet64, Keys, NearDuplicates, SoughtKeys

_WORDS_HELD = 5_000_000
_BATCH = 1 << 17  # characters looked at together
_OVERLONG = 100  # words: fewer than 1 % of real sentences have more, but many paragraphs do
_TINY = 10_000  # words

_MESSAGES = {
    "tiny-corpus": "There are only {count} words, too few for more than a model of single words: add text.",
    "no-document-bounds": "All is one document, so no part can be held out and no sentences of different "
    "documents be paired: put a blank line between documents.",
    "overlong-sentences": f"{{amount}} sentences have more than {_OVERLONG} words, so lines are probably "
    "paragraphs: use --layout prose.",
    "one-word-sentences": "{amount} sentences have one word only: put a whole sentence on each line.",
    "exact-duplicates": "{amount} documents repeat an earlier one and will be learned by heart: keep one copy of each.",
    "near-duplicates": "{amount} documents nearly repeat an earlier one, so held-out text will be too much "
    "like training text: keep one of each group.",
    "repeated-sentences": "{amount} sentences repeat an earlier one: remove boilerplate such as menus.",
    "control-characters": "Control characters were found ({count}): remove them, or they become tokens.",
    "replacement-characters": "Replacement characters (U+FFFD) were found ({count}), left when text was "
    "decoded wrongly: go back to the original and name its encoding with --encoding.",
    "mojibake": "{amount} sentences hold what a wrong encoding leaves, such as Ã©, â€™ or 锟斤拷: go back to "
    "the original and name its encoding with --encoding.",
    "markup": "{amount} sentences hold HTML tags or entities such as &amp;: extract the plain text first.",
    "mixed-encodings": "The files are in {count} different encodings: see whether each was detected rightly, "
    "and name it with --encoding where not.",
    "mixed-chinese": "Simplified and traditional Chinese are mixed, and {amount} characters that tell them "
    "apart are of the rarer kind: convert them, or each word is learned as two.",
    "mixed-scripts": "{amount} letters are not of the main script: train on each language apart, unless the "
    "mixture is meant.",
    "leaked-documents": "{amount} documents of the test text are in the corpus, exactly or nearly: take them "
    "out, or scores will be too good.",
    "leaked-sentences": "{amount} sentences of the test text are in the corpus: take them out, or scores "
    "will be too good.",
    "leaked-ngrams": "{amount} runs of 8 words (or 16 Chinese characters) of the test text are in the "
    "corpus: find the passages in common and take them out, or scores will be too good.",
}


class CheckedCorpus(Protocol):
    """What a check asks of a corpus."""

    def __iter__(self) -> Iterator[Document]: ...

    def encodings(self) -> dict[str, str]:
        """File -> encoding."""
        ...

    def words(self, sentence: str) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about a corpus that a user should act on, and how."""

    what: str
    message: str
    count: int


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What is in a corpus. Shares lie between 0 and 1."""

    documents: int
    sentences: int
    words: int
    characters: int
    bytes: int
    """UTF-8 bytes of the sentences, whatever the encoding of the files."""
    encodings: dict[str, str]
    scripts: dict[str, float]
    """Script -> share of characters."""
    languages: dict[str, float]
    """Language, or script where that is all that is known -> share of letters."""
    lengths: dict[str, dict[str, float]]
    distinct_words: int
    duplicates: float
    """Share of documents that repeat an earlier one exactly; of sentences, where there is one document."""
    near_duplicates: float
    """Share of documents that nearly repeat an earlier one, without those that do so exactly."""
    duplicate_sentences: float
    control_characters: int
    replacement_characters: int
    longest_line: dict[str, Any]
    overlap: dict[str, float] | None
    """Share of the sentences, documents and n-grams of a test text that are in the corpus."""
    capped: tuple[str, ...]
    """Figures that may be too low because the corpus is larger than the check can hold."""
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**asdict(self), "capped": list(self.capped), "problems": [asdict(p) for p in self.problems]}


def check_corpus(
    corpus: CheckedCorpus,
    against: Iterable[Document] | None = None,
    advance: Callable[[float], None] = lambda size: None,
) -> CheckReport:
    """A report on `corpus`; with `against`, also on how much of that test text it contains.

    `advance` is told how many more bytes have been looked at.
    """
    leakage = None if against is None else _Leakage(against)
    tally = _Tally(corpus.words)
    for batch in _read(corpus):
        before = tally.bytes
        tally.add(batch)
        advance(tally.bytes - before)
        if leakage:
            leakage.look_in(batch)
    leaked = leakage.count(tally.near) if leakage else {}
    report = tally.report(corpus.encodings(), leaked)
    return replace(report, problems=tuple(_find_problems(report, tally, leaked)))


class _Batch(NamedTuple):
    """Some documents, the keys of their sentences, and the marks of the documents that end with them."""

    documents: list[Document]
    sentences: list[str]
    keys: Keys
    ended: list[DocumentMarks]


def _read(documents: Iterable[Document]) -> Iterator[_Batch]:
    """The documents in batches; a document may come in pieces that lie in several of them."""
    reading: DocumentSigner | None = None
    for group in _group(documents):
        sentences = [sentence for document in group for sentence in document.sentences]
        keys = duplicates.fingerprints(sentences)
        ended = []
        start = 0
        for document in group:
            if reading is None or not document.continues:
                if reading is not None:
                    ended.append(reading.marks())
                reading = DocumentSigner()
            stop = start + len(document.sentences)
            reading.update(document.sentences, keys[start:stop])
            start = stop
        yield _Batch(group, sentences, keys, ended)
    if reading is None:
        raise CorpusError("there is no text to check: only blank lines or nothing at all; name other files.")
    yield _Batch([], [], np.empty(0, np.uint64), [reading.marks()])


def _group(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """The documents that have sentences, some of them at a time."""
    group: list[Document] = []
    size = 0
    for document in filter(lambda document: document.sentences, documents):
        group.append(document)
        size += sum(map(len, document.sentences))
        if size >= _BATCH:
            yield group
            group, size = [], 0
    if group:
        yield group


class _Tally:
    """Everything that is counted in the pass over the corpus."""

    def __init__(self, words: Callable[[str], list[str]]) -> None:
        self._words = words
        self.characters: Counter[str] = Counter()
        self.signs: Counter[str] = Counter()
        self.words_per_sentence: Counter[int] = Counter()
        self.sentences_per_document: Counter[int] = Counter()
        self.distinct = HashSet64(_WORDS_HELD)
        self.seen_sentences = HashSet64()
        self.seen_documents = HashSet64()
        self.near = NearDuplicates()
        self.found: Counter[str] = Counter()
        self.longest = ("", 0)
        self.bytes = 0

    def add(self, batch: _Batch) -> None:
        self._add_sentences(batch.sentences)
        self.found["repeated sentences"] += int((~self.seen_sentences.add_many(batch.keys)).sum())
        for document in batch.documents:
            length = max(map(len, document.sentences), default=0)
            if length > self.longest[1]:
                self.longest = (document.source, length)
        for marks in batch.ended:
            self.sentences_per_document[marks.sentences] += 1
            if not self.seen_documents.add_many(marks.key)[0]:
                self.found["duplicates"] += 1
            elif self.near.add_signature(marks.signature) is not None:
                self.found["near duplicates"] += 1

    def _add_sentences(self, sentences: list[str]) -> None:
        words = [self._words(sentence) for sentence in sentences]
        self.words_per_sentence.update(map(len, words))
        text = "".join(sentences)
        self.bytes += len(text.encode())
        self.characters.update(scripts.character_counts(text))
        self.distinct.add_many(duplicates.word_hashes("\n".join(map(" ".join, words))))
        self.signs.update(scripts.language_signs(chain.from_iterable(words)))
        self.found["markup"] += sum(map(scripts.has_markup, sentences))
        self.found["garbled"] += sum(map(scripts.is_garbled, sentences))

    def report(self, encodings: dict[str, str], leaked: _Leaked) -> CheckReport:
        documents = self.sentences_per_document.total()
        sentences = self.words_per_sentence.total()
        characters = self.characters.total()
        repeated = _share(self.found["repeated sentences"], sentences)
        held = {
            "distinct_words": self.distinct.full,
            "duplicates": self.seen_documents.full,
            "near_duplicates": self.near.full,
            "duplicate_sentences": self.seen_sentences.full,
            "overlap": self.near.full and bool(leaked),
        }
        return CheckReport(
            documents=documents,
            sentences=sentences,
            words=sum(length * count for length, count in self.words_per_sentence.items()),
            characters=characters,
            bytes=self.bytes,
            encodings=encodings,
            scripts={s: n / characters for s, n in scripts.fold_scripts(self.characters).items()},
            languages=scripts.language_mix(self.characters, self.signs),
            lengths={
                "words_per_sentence": _summarise(self.words_per_sentence),
                "sentences_per_document": _summarise(self.sentences_per_document),
            },
            distinct_words=len(self.distinct),
            duplicates=_share(self.found["duplicates"], documents) if documents > 1 else repeated,
            near_duplicates=_share(self.found["near duplicates"], documents),
            duplicate_sentences=repeated,
            control_characters=self.characters["control"],
            replacement_characters=self.characters["replacement"],
            longest_line={"source": self.longest[0], "characters": self.longest[1]},
            overlap={what: _share(*counts) for what, counts in leaked.items()} or None,
            capped=tuple(name for name, full in held.items() if full),
        )


_Leaked = dict[str, tuple[int, int]]  # what -> how many were found, of how many


class _Leakage:
    """How much of a test text occurs in the corpus; memory grows with the test text only."""

    def __init__(self, test: Iterable[Document]) -> None:
        keys, ngrams, marks = [], [], []
        for batch in _read(test):
            keys.append(batch.keys)
            ngrams.append(duplicates.ngram_hashes("\n".join(batch.sentences)))
            marks.extend(batch.ended)
        self._sentences = SoughtKeys(np.concatenate(keys))
        self._ngrams = SoughtKeys(np.concatenate(ngrams))
        self._documents = SoughtKeys(np.concatenate([mark.key for mark in marks]))
        self._signatures = [mark.signature for mark in marks]

    def look_in(self, batch: _Batch) -> None:
        self._sentences.look_in(batch.keys)
        self._ngrams.look_in(duplicates.ngram_hashes("\n".join(batch.sentences)))
        for marks in batch.ended:
            self._documents.look_in(marks.key)

    def count(self, near: NearDuplicates) -> _Leaked:
        """What was found, once the whole corpus has been looked at and its documents are in `near`."""
        nearly = np.array([near.find(signature) is not None for signature in self._signatures])
        found = {
            "sentences": self._sentences.found(),
            "documents": self._documents.found() | nearly,
            "ngrams": self._ngrams.found(),
        }
        return {what: (int(flags.sum()), len(flags)) for what, flags in found.items()}


def _find_problems(report: CheckReport, tally: _Tally, leaked: _Leaked) -> Iterator[Problem]:
    for what, count, total, least in _evidence(report, tally, leaked):
        if count and count / total >= least:
            amount = f"{count:,} of {total:,} ({count / total:.1%})"
            yield Problem(what, _MESSAGES[what].format(count=f"{count:,}", amount=amount), count)


def _evidence(report: CheckReport, tally: _Tally, leaked: _Leaked) -> Iterator[tuple[str, int, int, float]]:
    """What may be a problem: how many, of how many, and from which share on it is one."""
    found, lengths = tally.found, tally.words_per_sentence
    overlong = sum(count for length, count in lengths.items() if length > _OVERLONG)
    encodings = set(report.encodings.values())
    letters = Counter(scripts.letter_counts(tally.characters))
    # Japanese uses old and new forms; a few Chinese names in foreign text are no mixture.
    is_chinese = letters["han"] > max(5 * letters["kana"], 0.05 * letters.total())
    chinese = [tally.characters[kind] * is_chinese for kind in ("zh-hans", "zh-hant")]
    letters["han"] += letters.pop("kana", 0)  # Japanese uses both

    yield "tiny-corpus", report.words if report.words < _TINY else 0, 1, 0
    yield "no-document-bounds", int(report.documents == 1), 1, 0
    yield "overlong-sentences", overlong, report.sentences, 0.02
    yield "one-word-sentences", lengths[0] + lengths[1], report.sentences, 0.5
    yield "exact-duplicates", found["duplicates"], report.documents, 0.01
    yield "near-duplicates", found["near duplicates"], report.documents, 0.01
    # The headings of an encyclopedia alone come to 0.1.
    yield "repeated-sentences", found["repeated sentences"], report.sentences, 0.2
    # One in a large corpus may well be there as an example.
    yield "control-characters", report.control_characters, report.characters, 1e-6
    yield "replacement-characters", report.replacement_characters, report.characters, 1e-6
    yield "mojibake", found["garbled"], report.sentences, 1e-5
    yield "markup", found["markup"], report.sentences, 0.001
    yield "mixed-encodings", len(encodings) if len(encodings) > 1 else 0, 1, 0
    yield "mixed-chinese", min(chinese), sum(chinese), 0.05
    yield "mixed-scripts", letters.total() - max(letters.values()), letters.total(), 0.2
    # Documents of one origin that have nothing to do with each other share 0.1 of sentences, 0.02 of n-grams.
    for what, least in (("documents", 0), ("sentences", 0.2), ("ngrams", 0.05)):
        yield f"leaked-{what}", *leaked.get(what, (0, 0)), least


def _share(count: int, total: int) -> float:
    return count / total if total else 0.0


def _summarise(lengths: Mapping[int, int]) -> dict[str, float]:
    """Mean, 5th, 50th and 95th percentile (by nearest rank) and maximum of a histogram."""
    values = np.array(sorted(lengths))
    counts = np.array([lengths[int(value)] for value in values])
    ranks = np.cumsum(counts)
    summary = {"mean": float(values @ counts / ranks[-1])}
    for percent in (5, 50, 95):
        summary[f"p{percent}"] = int(values[np.searchsorted(ranks * 100, ranks[-1] * percent)])
    return {**summary, "max": int(values[-1])}
