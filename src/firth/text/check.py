"""Statistics and problems of a corpus: the analysis of `firth check`.

One pass over the documents with bounded memory: sentences, documents and words are stored as 64-bit keys up to a limit
each, documents also as MinHash signatures (about 0.6 GB if all limits are reached). Texts beyond a limit are still
compared with the stored ones; figures that may then be too low are listed in `capped`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from firth.errors import CorpusError
from firth.text import duplicates, scripts
from firth.text.corpus import Corpus
from firth.text.dialogue import is_dialogue
from firth.text.duplicates import DocumentHasher, HashSet64, KeyMatcher, Keys, NearDuplicateIndex
from firth.text.layout import Document

_MAX_DISTINCT_WORDS = 5_000_000
_BATCH = 1 << 17  # characters
_MAX_SENTENCE_WORDS = 100  # fewer than 1 % of real sentences have more, but many paragraphs do
_MIN_WORDS = 10_000  # words

_MESSAGES = {
    "tiny-corpus": "There are only {count} words, too few for more than a model of single words: add text.",
    "no-document-bounds": "All is one document, so no part can be held out and no sentences of different "
    "documents be paired: put a blank line between documents.",
    "overlong-sentences": f"{{amount}} sentences have more than {_MAX_SENTENCE_WORDS} words, so lines are probably "
    "paragraphs: use --layout prose.",
    "one-word-sentences": "{amount} sentences have one word only: put a whole sentence on each line.",
    "exact-duplicates": "{amount} documents repeat an earlier one and will be memorised: keep one copy of each.",
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


@dataclass(frozen=True, slots=True)
class Problem:
    what: str
    message: str
    count: int


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """Statistics of a corpus. Fractions are between 0 and 1."""

    documents: int
    sentences: int
    words: int
    characters: int
    bytes: int  # of the sentences in UTF-8, independent of the encoding of the files
    encodings: dict[str, str]
    scripts: dict[str, float]  # of characters
    languages: dict[str, float]  # of letters; by script if the language is unknown
    lengths: dict[str, dict[str, float]]
    distinct_words: int
    duplicates: float  # documents equal to an earlier one; sentences, if there is one document
    near_duplicates: float  # documents that nearly equal an earlier one, without exact duplicates
    duplicate_sentences: float
    dialogues: float  # documents that are dialogues
    control_characters: int
    replacement_characters: int
    longest_line: dict[str, Any]
    overlap: dict[str, float] | None  # sentences, documents and n-grams of a test text that occur in the corpus
    capped: tuple[str, ...]  # figures that may be too low because a memory limit was reached
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "capped": list(self.capped), "problems": [asdict(p) for p in self.problems]}


def check_corpus(
    corpus: Corpus, against: Iterable[Document] | None = None, advance: Callable[[float], None] = lambda size: None
) -> CheckReport:
    """A report on `corpus` and on its overlap with a test text; `advance` is called with the bytes of each batch."""
    search = None if against is None else _OverlapSearch(against)
    stats = _CorpusStats(corpus.words)
    for batch in _read(corpus):
        before = stats.bytes
        stats.add(batch)
        advance(stats.bytes - before)
        if search:
            search.search(batch)
    overlap = search.count(stats.near) if search else {}
    report = stats.report(corpus.encodings(), overlap)
    return replace(report, problems=tuple(_find_problems(_problem_counts(report, stats, overlap))))


class _Batch(NamedTuple):
    """Some documents, their sentences with keys, and the hashes of the documents that end here."""

    documents: list[Document]
    sentences: list[str]
    keys: Keys
    ended: list[DocumentHasher]


def _read(documents: Iterable[Document]) -> Iterator[_Batch]:
    """The documents in batches; the pieces of a document may be in several of them."""
    hasher: DocumentHasher | None = None
    for group in _group(documents):
        sentences = [sentence for document in group for sentence in document.sentences]
        keys = duplicates.fingerprints(sentences)
        ended = []
        start = 0
        for document in group:
            if hasher is not None and not document.continues:
                ended.append(hasher)
            if hasher is None or not document.continues:
                hasher = DocumentHasher()
            stop = start + len(document.sentences)
            hasher.update(document.sentences, keys[start:stop])
            start = stop
        yield _Batch(group, sentences, keys, ended)
    if hasher is None:
        raise CorpusError("there is no text to check: only blank lines or nothing at all; name other files.")
    yield _Batch([], [], np.empty(0, np.uint64), [hasher])


def _group(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """The non-empty documents in groups of about `_BATCH` characters."""
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


class _CorpusStats:
    def __init__(self, words: Callable[[str], list[str]]) -> None:
        self._words = words
        self.characters: Counter[str] = Counter()
        self.stop_words: Counter[str] = Counter()
        self.words_per_sentence: Counter[int] = Counter()
        self.sentences_per_document: Counter[int] = Counter()
        self.distinct = HashSet64(_MAX_DISTINCT_WORDS)
        self.seen_sentences = HashSet64()
        self.seen_documents = HashSet64()
        self.near = NearDuplicateIndex()
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
            self.found["dialogues"] += not document.continues and is_dialogue(document.sentences)
        for ended in batch.ended:
            self.sentences_per_document[ended.sentences] += 1
            if not self.seen_documents.add_many(ended.key())[0]:
                self.found["duplicates"] += 1
            elif self.near.add_signature(ended.signature()) is not None:
                self.found["near duplicates"] += 1

    def _add_sentences(self, sentences: list[str]) -> None:
        words = [self._words(sentence) for sentence in sentences]
        self.words_per_sentence.update(map(len, words))
        text = "".join(sentences)
        self.bytes += len(text.encode())
        self.characters.update(scripts.character_counts(text))
        self.distinct.add_many(duplicates.word_hashes("\n".join(map(" ".join, words))))
        self.stop_words.update(scripts.stop_word_counts(chain.from_iterable(words)))
        self.found["markup"] += sum(map(scripts.has_markup, sentences))
        self.found["mojibake"] += sum(map(scripts.is_mojibake, sentences))

    def report(self, encodings: dict[str, str], overlap: _Overlap) -> CheckReport:
        documents = self.sentences_per_document.total()
        sentences = self.words_per_sentence.total()
        characters = self.characters.total()
        repeated = _fraction(self.found["repeated sentences"], sentences)
        is_capped = {
            "distinct_words": self.distinct.full,
            "duplicates": self.seen_documents.full,
            "near_duplicates": self.near.full,
            "duplicate_sentences": self.seen_sentences.full,
            "overlap": self.near.full and bool(overlap),
        }
        return CheckReport(
            documents=documents,
            sentences=sentences,
            words=sum(length * count for length, count in self.words_per_sentence.items()),
            characters=characters,
            bytes=self.bytes,
            encodings=encodings,
            scripts={s: n / characters for s, n in scripts.fold_scripts(self.characters).items()},
            languages=scripts.language_fractions(self.characters, self.stop_words),
            lengths={
                "words_per_sentence": summarise_lengths(self.words_per_sentence),
                "sentences_per_document": summarise_lengths(self.sentences_per_document),
            },
            distinct_words=len(self.distinct),
            duplicates=_fraction(self.found["duplicates"], documents) if documents > 1 else repeated,
            near_duplicates=_fraction(self.found["near duplicates"], documents),
            duplicate_sentences=repeated,
            dialogues=_fraction(self.found["dialogues"], documents),
            control_characters=self.characters["control"],
            replacement_characters=self.characters["replacement"],
            longest_line={"source": self.longest[0], "characters": self.longest[1]},
            overlap={what: _fraction(*counts) for what, counts in overlap.items()} or None,
            capped=tuple(name for name, full in is_capped.items() if full),
        )


_Overlap = dict[str, tuple[int, int]]  # unit -> number found, total
_PossibleProblems = Iterator[tuple[str, int, int, float]]


class _OverlapSearch:
    """Searches a corpus for the contents of a test text; memory grows with the test text only."""

    def __init__(self, test: Iterable[Document]) -> None:
        keys, self._signatures = [], []
        for batch in _read(test):
            keys.append(self._keys(batch))
            self._signatures += [document.signature() for document in batch.ended]
        self._matchers = {what: KeyMatcher(np.concatenate([part[what] for part in keys])) for what in keys[0]}

    @staticmethod
    def _keys(batch: _Batch) -> dict[str, Keys]:
        return {
            "sentences": batch.keys,
            "documents": np.concatenate([np.empty(0, np.uint64), *(document.key() for document in batch.ended)]),
            "ngrams": duplicates.ngram_hashes("\n".join(batch.sentences)),
        }

    def search(self, batch: _Batch) -> None:
        for what, keys in self._keys(batch).items():
            self._matchers[what].search(keys)

    def count(self, near: NearDuplicateIndex) -> _Overlap:
        """The overlap, after the whole corpus was searched and its documents are in `near`."""
        found = {what: matcher.found() for what, matcher in self._matchers.items()}
        found["documents"] |= [near.find(signature) is not None for signature in self._signatures]
        return {what: (int(flags.sum()), len(flags)) for what, flags in found.items()}


def _find_problems(candidates: _PossibleProblems) -> Iterator[Problem]:
    for what, count, total, threshold in candidates:
        if count and count / total >= threshold:
            amount = f"{count:,} of {total:,} ({count / total:.1%})"
            yield Problem(what, _MESSAGES[what].format(count=f"{count:,}", amount=amount), count)


def _problem_counts(report: CheckReport, stats: _CorpusStats, overlap: _Overlap) -> _PossibleProblems:
    """Possible problems: name, count, total, and the fraction from which on it is a problem."""
    found, lengths = stats.found, stats.words_per_sentence
    overlong = sum(count for length, count in lengths.items() if length > _MAX_SENTENCE_WORDS)
    encodings = set(report.encodings.values())
    letters = Counter(scripts.letter_counts(stats.characters))
    # Japanese uses both forms; a few Chinese names in other text are no mixture.
    is_chinese = letters["han"] > max(5 * letters["kana"], 0.05 * letters.total())
    chinese = [stats.characters[kind] * is_chinese for kind in ("zh-hans", "zh-hant")]
    letters["han"] += letters.pop("kana", 0)  # Japanese uses both

    yield "tiny-corpus", report.words if report.words < _MIN_WORDS else 0, 1, 0
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
    yield "mojibake", found["mojibake"], report.sentences, 1e-5
    yield "markup", found["markup"], report.sentences, 0.001
    yield "mixed-encodings", len(encodings) if len(encodings) > 1 else 0, 1, 0
    yield "mixed-chinese", min(chinese), sum(chinese), 0.05
    yield "mixed-scripts", letters.total() - max(letters.values()), letters.total(), 0.2
    # Unrelated documents of one origin have 0.1 of their sentences and 0.02 of their n-grams in common.
    for what, threshold in (("documents", 0), ("sentences", 0.2), ("ngrams", 0.05)):
        yield f"leaked-{what}", *overlap.get(what, (0, 0)), threshold


def _fraction(count: int, total: int) -> float:
    return count / total if total else 0.0


def summarise_lengths(lengths: Mapping[int, int]) -> dict[str, float]:
    """Mean, 5th, 50th and 95th percentile (by nearest rank) and maximum of a histogram."""
    values = np.array(sorted(lengths))
    counts = np.array([lengths[int(value)] for value in values])
    ranks = np.cumsum(counts)
    summary = {"mean": float(values @ counts / ranks[-1])}
    for percent in (5, 50, 95):
        summary[f"p{percent}"] = int(values[np.searchsorted(ranks * 100, ranks[-1] * percent)])
    return {**summary, "max": int(values[-1])}
