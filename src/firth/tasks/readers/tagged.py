"""Tagged sentences: CoNLL columns, CoNLL-U, lines of word/TAG, and word-segmented lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from firth.errors import CorpusError, near_miss
from firth.metrics.tags import segment_tags
from firth.tasks.examples import Example, Origin, TagExample
from firth.tasks.readers.columns import HOW, ReadLog, ReadOptions
from firth.text.segment import HAN, HAN_RANGES, make_segmenter, split_words

TagFormat = Literal["conllu", "columns", "slashed", "lines"]
Block = list[str]  # lines of a sentence

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
SEGMENT = "segment"  # value of --field tag for word segmentation
_REQUIRED = ("upos", "xpos")  # in other columns _ means empty
_WORDS = ("characters", "words", "spaces")
_MAX_LINES = 100_000  # of a sentence
_TAG_LIKE = re.compile(r"[BIESMLU]-.+|[!-~]+")
_SURELY_TAG = re.compile(r"[BIESMLU]-.+|[!-`{-~]*[A-Z][!-`{-~]*")  # no lower case
_SLASHED = re.compile(r"\S+/[^\s/]+")
# Scripts without spaces: Chinese characters, kana and Thai.
_UNSPACED_RANGES = f"{HAN_RANGES}\u3041-\u30ff\u31f0-\u31ff\u0e00-\u0e7f"
_UNSPACED = re.compile(f"[{_UNSPACED_RANGES}]")
_SPACED_WORD = re.compile(rf"[^\W\d_{_UNSPACED_RANGES}]+")
_SHORT = {True: 4, False: 30}  # characters of a word alone on its line, with Chinese characters and without


def detect_format(options: ReadOptions, head: Sequence[str], name: str) -> TagFormat:
    """The format of a file, by its first lines."""
    lines = [line for line in head if line.strip() and not line.startswith("#")]
    if not lines:
        return "lines"
    if ".conllu" in Path(name).name.lower() or all(_is_conllu(line) for line in lines[:20]):
        return "conllu"
    if any("\t" in line for line in lines[:20]):
        return "columns"
    tokens = [token for line in lines for token in _spaced(line)]
    if sum(bool(_SLASHED.fullmatch(token)) for token in tokens) > 0.9 * len(tokens):
        return "slashed"
    return "columns" if _are_columns(options, lines, head) else "lines"


def _is_conllu(line: str) -> bool:
    fields = line.split("\t")
    return len(fields) == len(CONLLU) and fields[0].replace("-", "").replace(".", "").isdigit()


def _are_columns(options: ReadOptions, lines: Sequence[str], head: Sequence[str]) -> bool:
    """Whether most lines have the same number of fields and end in a possible tag, or are single words."""
    fields = [_spaced(line) for line in lines]
    width, count = Counter(map(len, fields)).most_common(1)[0]
    if count < 0.8 * len(lines):
        return False
    if width > 1:
        pattern = _TAG_LIKE if options.labelled else _SURELY_TAG
        return sum(bool(pattern.fullmatch(row[-1])) for row in fields) > 0.8 * len(lines)
    short = sum(len(line) <= _SHORT[bool(HAN.search(line))] for line in lines)
    return not options.labelled and len(lines) > 1 and len(lines) < len(head) and short > 0.9 * len(lines)


def looks_like_tags(head: Sequence[str]) -> bool:
    """Whether the first lines of a file are words with tags, with blank lines between sentences."""
    lines = [line for line in head if line.strip() and not line.startswith("#")]
    blank = any(not line.strip() for line in head)
    fields = [line.split("\t") if "\t" in line else _spaced(line) for line in lines]
    widths = {len(row) for row in fields}
    return blank and len(widths) == 1 and min(widths) > 1 and all(_TAG_LIKE.fullmatch(row[-1]) for row in fields)


def read_sentences(
    options: ReadOptions, lines: Iterable[tuple[int, str]], head: Sequence[str], name: str, log: ReadLog
) -> Iterator[Example]:
    """The sentences of a file in any of the formats."""
    form = detect_format(options, head, name)
    _check_choice(options, form)
    reader = _Sentences(options, name, log)
    log.unit = "sentence"
    if form == "columns":
        reader.choose_columns(head)
    elif form == "conllu":
        reader.choose_names()
    if form == "lines" and options.labelled and options.columns.get("tag") != SEGMENT and is_spaced(head):
        raise CorpusError(f"there are no tags in {name}: {HOW['tag']}.")
    if form in ("conllu", "columns"):
        make = reader.from_conllu if form == "conllu" else reader.from_columns
        return log.each(make, sentence_blocks(lines, name))
    of_line = reader.from_slashed if form == "slashed" else reader.from_line
    return log.each(of_line, lines)


def _check_choice(options: ReadOptions, form: TagFormat) -> None:
    """Raise `CorpusError` if a named column does not exist in this format."""
    named = {
        "conllu": {"tag": (*CONLLU, SEGMENT), "word": CONLLU},
        "slashed": {"tag": (SEGMENT,), "word": ()},
        "lines": {"tag": (SEGMENT,), "word": _WORDS},
    }
    for role, known in named.get(form, {}).items():
        given = options.columns.get(role)
        if given is not None and given not in known:
            clause = near_miss(given, known) if known else "leave it out."
            raise CorpusError(f"--field {role}={given} says nothing about such a file: {clause}")


def sentence_blocks(lines: Iterable[tuple[int, str]], name: str) -> Iterator[tuple[int, Block]]:
    """Runs of lines between blank ones, with the number of the first."""
    block: Block = []
    first = 0
    for number, line in lines:
        if line and not line.isspace():
            if not block:
                first = number
            elif len(block) >= _MAX_LINES:
                raise CorpusError(
                    f"{Origin(name, first + 1)} begins a sentence of more than {_MAX_LINES:,} words: "
                    "put a blank line between sentences."
                )
            block.append(line)
        elif block:
            yield first, block
            block = []
    if block:
        yield first, block


class _Sentences:
    """Builds examples from sentences in each format."""

    def __init__(self, options: ReadOptions, name: str, log: ReadLog) -> None:
        self.options, self.name, self.log = options, name, log
        self.segments = options.columns.get("tag") == SEGMENT
        self.spaced = True  # of the previous sentence
        self.width, self.word, self.tag = 2, 0, 1
        self.split: Callable[[str], list[str]] = _tabbed

    def choose_names(self) -> None:
        """Choose the columns of word and tag in CoNLL-U."""
        self.word = CONLLU.index(self.options.columns.get("word", "form"))
        self.tag = CONLLU.index("upos" if self.segments else self.options.columns.get("tag", "upos"))

    def choose_columns(self, head: Sequence[str]) -> None:
        """Choose the columns of word and tag: the first and the last unless they are named."""
        lines = [line for line in head if line.strip()]
        tabs = sum("\t" in line for line in lines)
        self.split = _tabbed if 2 * tabs >= len(lines) else _spaced
        self.width = Counter(len(self.split(line)) for line in lines).most_common(1)[0][0]
        self.word = self._column("word", 0)
        wanted = self.options.labelled and not self.segments
        self.tag = self._column("tag", self.width - 1) if wanted else self.width - 1
        if wanted and self.width == 1:
            raise CorpusError(f"there are no tags in {self.name}, words alone: {HOW['tag']}.")

    def _column(self, role: str, usual: int) -> int:
        given = self.options.columns.get(role)
        if given is None:
            return usual
        if not given.isdecimal() or not 1 <= int(given) <= self.width:
            also = ", or segment" if role == "tag" else ""
            raise CorpusError(f"{self.name} has no column {given!r}: give its number, 1 to {self.width}{also}.")
        return int(given) - 1

    def from_columns(self, first: int, block: Block) -> TagExample | None:
        if block[0].startswith("-DOCSTART-"):
            first, block = first + 1, block[1:]
            if not block:
                return None
        rows = list(map(self.split, block))
        if set(map(len, rows)) != {self.width}:
            self._refuse_width(first, rows)
        words = tuple([row[self.word] for row in rows])
        tags = tuple([row[self.tag] for row in rows])
        return self._example(words, tags, first)

    def _refuse_width(self, first: int, rows: list[list[str]]) -> None:
        index, row = next((index, row) for index, row in enumerate(rows) if len(row) != self.width)
        origin = Origin(self.name, first + index + 1)
        count = "1 field" if len(row) == 1 else f"{len(row)} fields"
        raise CorpusError(f"{origin}: there must be {self.width} fields, not {count}: give each word one tag.")

    def from_conllu(self, first: int, block: Block) -> TagExample | None:
        rows = []
        for number, line in enumerate(block, first + 1):
            if line.startswith("#"):
                continue
            row = line.split("\t")
            if len(row) != len(CONLLU):
                raise CorpusError(
                    f"{Origin(self.name, number)} has {len(row)} columns where CoNLL-U has {len(CONLLU)}: correct it."
                )
            if row[0].isdecimal():  # neither a multiword token nor an empty node
                rows.append(row)
                self._require_tag(row, number)
        if not rows:
            return None
        joined = sum("SpaceAfter=No" in row[-1] for row in rows)
        unspaced = True if 2 * joined > len(rows) else None
        return self._example(
            tuple(row[self.word] for row in rows), tuple(row[self.tag] for row in rows), first, unspaced
        )

    def _require_tag(self, row: list[str], number: int) -> None:
        if self.options.labelled and not self.segments and row[self.tag] == "_" and CONLLU[self.tag] in _REQUIRED:
            raise CorpusError(
                f"{Origin(self.name, number)} has no tag in the column {CONLLU[self.tag]}: "
                "choose another by --field tag=NAME."
            )

    def from_slashed(self, number: int, line: str) -> TagExample | None:
        parts = [token.rpartition("/") for token in _spaced(line)]
        if not parts:
            return None
        for word, _, tag in parts:
            if not (word and tag):
                origin = Origin(self.name, number + 1)
                raise CorpusError(f"{origin}: {word or tag!r} has no tag: write each word as word/TAG.")
        return self._example(tuple(part[0] for part in parts), tuple(part[2] for part in parts), number)

    def from_line(self, number: int, line: str) -> TagExample | None:
        """A word-segmented line for training, any text otherwise."""
        if not line.strip():
            return None
        origin = Origin(self.name, number + 1)
        if self.options.labelled or self.segments:
            return self._segmented(line.split(), origin)
        words, self.spaced = words_of_line(line, self.options.columns.get("word"), self.spaced)
        return TagExample(tuple(words), None, self.spaced, origin)

    def _example(
        self, words: tuple[str, ...], tags: tuple[str, ...], first: int, unspaced: bool | None = None
    ) -> TagExample:
        origin = Origin(self.name, first + 1)
        if "" in words or (self.options.labelled and "" in tags):
            raise CorpusError(f"{origin} begins a sentence in which a word or a tag is empty: give each word one tag.")
        if self.segments:
            return self._segmented(words, origin)
        self.spaced = not unspaced if unspaced is not None else is_spaced(words, self.spaced)
        if not self.options.labelled:
            return TagExample(words, None, self.spaced, origin)
        self.log.add_tags(tags, origin)
        return TagExample(words, tags, self.spaced, origin)

    def _segmented(self, words: Sequence[str], origin: Origin) -> TagExample:
        """The characters of words with BIES tags."""
        characters = tuple("".join(words))
        if not self.options.labelled:
            return TagExample(characters, None, False, origin)
        tags = tuple(segment_tags(words))
        self.log.add_tags(tags, origin)
        return TagExample(characters, tags, False, origin)


def is_spaced(words: Sequence[str], otherwise: bool = True) -> bool:
    """Whether words are of a script with spaces, by most of their characters; `otherwise` if there is no evidence.

    >>> is_spaced(["the", "cat"]), is_spaced(["我", "穿", "T", "恤"]), is_spaced(["1", "9"], otherwise=False)
    (True, False, False)
    >>> is_spaced(["W", "B", "C"], otherwise=False), is_spaced(["W", "B", "C", "高"])
    (False, False)
    """
    text = " ".join(words)
    unspaced = 0 if text.isascii() else len(_UNSPACED.findall(text))
    single = len(words) > 2 and len(text) == 2 * len(words) - 1  # words of one character are no evidence
    spaced = 0 if single else len(_SPACED_WORD.findall(text))
    return otherwise if not (unspaced or spaced) else spaced >= unspaced


def words_of_line(line: str, choice: str | None = None, otherwise: bool = True) -> tuple[list[str], bool]:
    """The words of a text, and whether they are separated by spaces; by default characters if not.

    >>> words_of_line("It's here, now."), words_of_line("我 喜欢")
    ((["It's", 'here', ',', 'now', '.'], True), (['我', '喜', '欢'], False))
    """
    spaced = is_spaced([line], otherwise)
    if choice == "spaces":
        return line.split(), spaced
    if choice == "characters" or (choice is None and not spaced):
        return list("".join(line.split())), False
    return split_words(make_segmenter().mark(line)), spaced


def _tabbed(line: str) -> list[str]:
    return line.split("\t")


def _spaced(line: str) -> list[str]:
    return [field for field in line.split(" ") if field]
