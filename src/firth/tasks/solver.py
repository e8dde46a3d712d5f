"""Solver: what every model that does a task has in common, from items to answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from firth.progress import progress
from firth.tasks.examples import Example
from firth.tasks.reading import read_items

Answer = dict[str, Any]
"""What is told of an example, as JSON."""
_CHUNK = 4096  # examples that are looked at together, so that those of the same length can be read together


class Solver(ABC):
    """Answers examples, any number of them."""

    shows_progress = True
    task: str

    def predict(self, items: Iterable[Any]) -> list[Answer]:
        """What the model says of each item: see the task's page for what an item is.

        classify and generate: a text; pair: two texts; tag: words or a text; span: a dictionary with passage and
        question; choice: one with context, question and choices. Each answer is a dictionary.
        """
        return self.solve(list(read_items(self.task, items, labelled=False)))

    def solve(self, examples: Sequence[Example]) -> list[Answer]:
        """The answers to examples."""
        with progress("predicting", len(examples), "examples") as advance:
            return list(self.stream(examples, advance))

    def stream(self, examples: Iterable[Example], advance: Any = None) -> Iterator[Answer]:
        """The answers one after the other, for files of any length."""
        waiting = iter(examples)
        while chunk := list(islice(waiting, _CHUNK)):
            yield from self.answer_all(chunk)
            if advance is not None:
                advance(len(chunk))

    @abstractmethod
    def answer_all(self, examples: Sequence[Example]) -> list[Answer]:
        """The answers to some examples."""
