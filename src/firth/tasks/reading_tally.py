"""What one pass over labelled data finds: how much, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from firth.errors import CorpusError
from firth.tasks.examples import Example, Origin
from firth.tasks.schemes import is_fault, scheme_of_pairs, tag_pairs

Given = TypeVar("Given")


@dataclass
class Counts:
    """How many examples were read, and what became of the others."""

    read: int = 0
    """Given to the caller."""
    skipped: int = 0
    """Bad, and left out."""
    repaired: int = 0
    """Given to the caller with an answer that was found elsewhere than it was said to be."""
    empty: int = 0
    """Without text: left out where there are labels, given otherwise."""


class Tally:
    """What has been found so far in one pass."""

    def __init__(self, skip_bad: bool, labelled: bool) -> None:
        self.counts = Counts()
        self.skip_bad = skip_bad
        self.labelled = labelled
        self.unit = "line"
        """What is skipped if it is bad."""
        self.encodings: dict[str, str] = {}
        """Files that are not UTF-8, and what they are."""
        self.first_bad: CorpusError | None = None
        self._first_repaired = ""
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._first_seen: dict[tuple[str, str], str] = {}

    def each(
        self, make: Callable[[int, Given], Example | None], given: Iterable[tuple[int, Given]]
    ) -> Iterator[Example]:
        """The examples that `make` makes of numbered things; None stands for nothing to give."""
        counts = self.counts
        for number, thing in given:
            try:
                example = make(number, thing)
            except CorpusError as error:
                if not self.skip_bad:
                    raise
                self.skip(error)
                continue
            if example is not None:
                counts.read += 1
                yield example

    def skip(self, error: CorpusError) -> None:
        """Counts an example that cannot be used."""
        self.counts.skipped += 1
        self.first_bad = self.first_bad or error

    def leave_out_empty(self) -> bool:
        """Counts an example without text and tells whether to leave it out."""
        self.counts.empty += 1
        return self.labelled

    def repair(self, what: str) -> None:
        """Counts an example that was mended."""
        self.counts.repaired += 1
        self._first_repaired = self._first_repaired or what

    def see_tags(self, tags: Sequence[str], origin: Origin) -> None:
        """Remembers which tags follow which, from which their scheme and its errors are known in the end."""
        pairs = list(tag_pairs(tags))
        self._pairs.update(pairs)
        for pair in set(pairs) - self._first_seen.keys():
            self._first_seen[pair] = str(origin)

    def notes(self) -> list[str]:
        """What a person should know, in sentences."""
        counts, notes = self.counts, [f"{name} was read as {code}." for name, code in self.encodings.items()]
        if counts.skipped:
            first = str(self.first_bad)
            notes.append(f"{_many(counts.skipped, self.unit)} skipped: {_first_of(counts.skipped, first)}")
        if counts.repaired:
            notes.append(
                f"{_many(counts.repaired, 'question')} mended, whose answer does not stand at answer_start: "
                f"{_first_of(counts.repaired, self._first_repaired)}"
            )
        if counts.empty:
            end = " and left out." if self.labelled else "."
            notes.append(f"{_many(counts.empty, 'example')} without text{end}")
        return notes + self._scheme_notes()

    def _scheme_notes(self) -> list[str]:
        scheme = scheme_of_pairs(self._pairs)
        faults = [pair for pair in self._first_seen if is_fault(*pair, scheme)]
        if not faults:
            return []
        number = sum(self._pairs[pair] for pair in faults)
        before, tag = faults[0]
        what = f"{before} at the end" if not tag else f"{tag} after {before}" if before else f"{tag} at the beginning"
        return [
            f"{_many(number, 'tag')} against the rules of {scheme} and read as the beginning or end of an entity: "
            f"{_first_of(number, f'{what} in the sentence of {self._first_seen[faults[0]]}.')}"
        ]


def no_examples(tally: Tally, what: str, how: str) -> NoReturn:
    """Raises the error for data of which nothing can be used."""
    if tally.first_bad:
        raise CorpusError(f"nothing in {what} can be used; the first fault: {tally.first_bad}")
    kind = "labelled texts" if tally.labelled else "texts"
    raise CorpusError(f"there are no {kind} in {what}: {how}.")


def _many(number: int, unit: str) -> str:
    return f"1 {unit} was" if number == 1 else f"{number:,} {unit}s were"


def _first_of(number: int, sentence: str) -> str:
    return sentence if number == 1 else f"the first is {sentence}"
