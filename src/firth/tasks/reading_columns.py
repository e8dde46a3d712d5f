"""Sentences with tags: columns as the CoNLL tasks have them, CoNLL-U, lines of word/TAG, and segmented lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from firth.errors import CorpusError, near_miss
from firth.tasks.examples import Example, Origin, TagExample
from firth.tasks.reading_roles import HOW, Asked
from firth.tasks.reading_spacing import is_spaced
from firth.tasks.reading_tally import Tally
from firth.tasks.schemes import segment_tags
from firth.text.segment import HAN, make_segmenter, words_of

Form = Literal["conllu", "columns", "slashed", "lines"]
Block = list[str]
"""The lines of a sentence."""

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
SEGMENT = "segment"
"""What is named as the tag if the words themselves are to be found."""
_MUST_BE_GIVEN = ("upos", "xpos")  # in the others, _ says that there is nothing to say
_WORDS = ("characters", "words", "spaces")
_LONGEST = 100_000  # lines of a sentence
_TAG_LIKE = re.compile(r"[BIESMLU]-.+|[!-~]+")
_SURELY_TAG = re.compile(r"[BIESMLU]-.+|[!-`{-~]*[A-Z][!-`{-~]*")  # no small letters
_SLASHED = re.compile(r"\S+/[^\s/]+")
_SHORT = {True: 4, False: 30}  # characters of a word alone on its line, with Chinese characters and without


def form_of(asked: Asked, head: Sequence[str], name: str) -> Form:
    """How the sentences of a file are written, by its first lines."""
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
    return "columns" if _are_columns(asked, lines, head) else "lines"


def _is_conllu(line: str) -> bool:
    fields = line.split("\t")
    return len(fields) == len(CONLLU) and fields[0].replace("-", "").replace(".", "").isdigit()


def _are_columns(asked: Asked, lines: Sequence[str], head: Sequence[str]) -> bool:
    """Whether most lines have the same number of fields and end in what may be a tag, or are words without one."""
    fields = [_spaced(line) for line in lines]
    width, times = Counter(map(len, fields)).most_common(1)[0]
    if times < 0.8 * len(lines):
        return False
    if width > 1:
        pattern = _TAG_LIKE if asked.labelled else _SURELY_TAG
        return sum(bool(pattern.fullmatch(row[-1])) for row in fields) > 0.8 * len(lines)
    short = sum(len(line) <= _SHORT[bool(HAN.search(line))] for line in lines)
    return not asked.labelled and len(lines) > 1 and len(lines) < len(head) and short > 0.9 * len(lines)


def looks_like_tags(head: Sequence[str]) -> bool:
    """Whether the first lines of a file are words with their tags, sentences set apart by blank lines."""
    lines = [line for line in head if line.strip() and not line.startswith("#")]
    blank = any(not line.strip() for line in head)
    fields = [line.split("\t") if "\t" in line else _spaced(line) for line in lines]
    widths = {len(row) for row in fields}
    return blank and len(widths) == 1 and min(widths) > 1 and all(_TAG_LIKE.fullmatch(row[-1]) for row in fields)


def read_sentences(
    asked: Asked, lines: Iterable[tuple[int, str]], head: Sequence[str], name: str, tally: Tally
) -> Iterator[Example]:
    """The sentences of a file of any of the forms."""
    form = form_of(asked, head, name)
    _check_choice(asked, form)
    reader = _Sentences(asked, name, tally)
    tally.unit = "sentence"
    if form == "columns":
        reader.choose_columns(head)
    elif form == "conllu":
        reader.choose_names()
    if form == "lines" and asked.labelled and asked.fields.get("tag") != SEGMENT and is_spaced(head):
        raise CorpusError(f"there are no tags in {name}: {HOW['tag']}.")
    if form in ("conllu", "columns"):
        make = reader.from_conllu if form == "conllu" else reader.from_columns
        return tally.each(make, blocks_of(lines, name))
    of_line = reader.from_slashed if form == "slashed" else reader.from_line
    return tally.each(of_line, lines)


def _check_choice(asked: Asked, form: Form) -> None:
    """Raises `CorpusError` if a column is named that such a file cannot have."""
    named = {
        "conllu": {"tag": (*CONLLU, SEGMENT), "word": CONLLU},
        "slashed": {"tag": (SEGMENT,), "word": ()},
        "lines": {"tag": (SEGMENT,), "word": _WORDS},
    }
    for role, known in named.get(form, {}).items():
        given = asked.fields.get(role)
        if given is not None and given not in known:
            clause = near_miss(given, known) if known else "leave it out."
            raise CorpusError(f"--field {role}={given} says nothing about such a file: {clause}")


def blocks_of(lines: Iterable[tuple[int, str]], name: str) -> Iterator[tuple[int, Block]]:
    """The lines between blank ones, with the number of the first of them."""
    block: Block = []
    first = 0
    for number, line in lines:
        if line and not line.isspace():
            if not block:
                first = number
            elif len(block) >= _LONGEST:
                raise CorpusError(
                    f"{Origin(name, first + 1)} begins a sentence of more than {_LONGEST:,} words: "
                    "put a blank line between sentences."
                )
            block.append(line)
        elif block:
            yield first, block
            block = []
    if block:
        yield first, block


class _Sentences:
    """Makes examples of sentences, in each form."""

    def __init__(self, asked: Asked, name: str, tally: Tally) -> None:
        self.asked, self.name, self.tally = asked, name, tally
        self.segments = asked.fields.get("tag") == SEGMENT
        self.spaced = True  # as the sentence before
        self.width, self.word, self.tag = 2, 0, 1
        self.split: Callable[[str], list[str]] = _tabbed

    def choose_names(self) -> None:
        """Which columns of CoNLL-U hold word and tag."""
        self.word = CONLLU.index(self.asked.fields.get("word", "form"))
        self.tag = CONLLU.index("upos" if self.segments else self.asked.fields.get("tag", "upos"))

    def choose_columns(self, head: Sequence[str]) -> None:
        """Which columns hold word and tag: the first and the last unless they are named."""
        lines = [line for line in head if line.strip()]
        tabs = sum("\t" in line for line in lines)
        self.split = _tabbed if 2 * tabs >= len(lines) else _spaced
        self.width = Counter(len(self.split(line)) for line in lines).most_common(1)[0][0]
        self.word = self._column("word", 0)
        wanted = self.asked.labelled and not self.segments
        self.tag = self._column("tag", self.width - 1) if wanted else self.width - 1
        if wanted and self.width == 1:
            raise CorpusError(f"there are no tags in {self.name}, words alone: {HOW['tag']}.")

    def _column(self, role: str, usual: int) -> int:
        given = self.asked.fields.get(role)
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
        place, row = next((place, row) for place, row in enumerate(rows) if len(row) != self.width)
        origin = Origin(self.name, first + place + 1)
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
                    f"{Origin(self.name, number)} has {len(row)} columns where CoNLL-U has {len(CONLLU)}: mend it."
                )
            if row[0].isdecimal():  # neither the range of a word of several nor an empty node
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
        if self.asked.labelled and not self.segments and row[self.tag] == "_" and CONLLU[self.tag] in _MUST_BE_GIVEN:
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
        """A segmented line where tags are wanted, any text otherwise."""
        if not line.strip():
            return None
        origin = Origin(self.name, number + 1)
        if self.asked.labelled or self.segments:
            return self._segmented(line.split(), origin)
        words, self.spaced = words_of_line(line, self.asked.fields.get("word"), self.spaced)
        return TagExample(tuple(words), None, self.spaced, origin)

    def _example(
        self, words: tuple[str, ...], tags: tuple[str, ...], first: int, unspaced: bool | None = None
    ) -> TagExample:
        origin = Origin(self.name, first + 1)
        if "" in words or (self.asked.labelled and "" in tags):
            raise CorpusError(f"{origin} begins a sentence in which a word or a tag is empty: give each word one tag.")
        if self.segments:
            return self._segmented(words, origin)
        self.spaced = not unspaced if unspaced is not None else is_spaced(words, self.spaced)
        if not self.asked.labelled:
            return TagExample(words, None, self.spaced, origin)
        self.tally.see_tags(tags, origin)
        return TagExample(words, tags, self.spaced, origin)

    def _segmented(self, words: Sequence[str], origin: Origin) -> TagExample:
        """The characters of words, each with a tag that says where words begin and end."""
        characters = tuple("".join(words))
        if not self.asked.labelled:
            return TagExample(characters, None, False, origin)
        tags = tuple(segment_tags(words))
        self.tally.see_tags(tags, origin)
        return TagExample(characters, tags, False, origin)


def words_of_line(line: str, choice: str | None = None, otherwise: bool = True) -> tuple[list[str], bool]:
    """The words of a text, and whether spaces stand between them; characters where they do not, unless chosen.

    >>> words_of_line("It's here, now."), words_of_line("我 喜欢")
    ((["It's", 'here', ',', 'now', '.'], True), (['我', '喜', '欢'], False))
    """
    spaced = is_spaced([line], otherwise)
    if choice == "spaces":
        return line.split(), spaced
    if choice == "characters" or (choice is None and not spaced):
        return list("".join(line.split())), False
    return words_of(make_segmenter().mark(line)), spaced


def _tabbed(line: str) -> list[str]:
    return line.split("\t")


def _spaced(line: str) -> list[str]:
    return [field for field in line.split(" ") if field]
