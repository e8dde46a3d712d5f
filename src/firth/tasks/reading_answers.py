"""Where the answers to a question stand in its passage.

An answer is taken where it is said to stand if it stands there. If not, it is looked for: the place nearest to the one
that was said is taken, and an answer that stands equally near on both sides, or nowhere, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from firth.errors import CorpusError
from firth.tasks.examples import Answer
from firth.tasks.reading_tally import Tally
from firth.text.readers import check_text


def place_answers(given: Any, passage: str, where: str, tally: Tally) -> tuple[Answer, ...] | None:
    """The answers with their places; None if there are some but none can be placed, which is counted as skipped.

    Of several answers those that cannot be placed are dropped.
    """
    stated = list(_stated(given, where))
    placed = [place_answer(text, start, passage) for text, start in stated]
    answers = tuple(dict.fromkeys(answer for answer in placed if answer is not None))
    if stated and not answers:
        text, start = stated[0]
        there = (
            "does not stand in the passage" if text not in passage else f"does not stand at {start} and is not clear"
        )
        tally.skip(CorpusError(f"{where}: the answer {_short(text)!r} {there}: mend answer_start or the text."))
        return None
    for (text, start), answer in zip(stated, placed, strict=True):
        if start is not None and (answer is None or answer.start != start):
            found = "is left out" if answer is None else f"is taken at {answer.start}"
            tally.repair(f"{where}: {_short(text)!r} does not stand at {start} and {found}.")
            break
    return answers


def place_answer(text: str, start: int | None, passage: str) -> Answer | None:
    """An answer where it stands nearest to `start`, or where it stands alone if no start is given; None if unclear.

    >>> place_answer("cat", 4, "the cat saw a cat"), place_answer("cat", 12, "the cat saw a cat")
    (Answer(text='cat', start=4), Answer(text='cat', start=14))
    >>> place_answer("cat", None, "the cat saw a cat")
    """
    if start is not None and start >= 0 and passage.startswith(text, start):
        return Answer(text, start)
    for wanted in dict.fromkeys((text, text.strip())):
        places = _places(wanted, passage)
        if len(places) == 1:
            return Answer(wanted, places[0])
        if start is not None and places:
            first, second = sorted((abs(place - start), place) for place in places)[:2]
            if first[0] < second[0]:
                return Answer(wanted, first[1])
    return None


def _places(text: str, passage: str) -> list[int]:
    """All places at which a text begins in a passage."""
    places = []
    place = passage.find(text)
    while place >= 0:
        places.append(place)
        place = passage.find(text, place + 1)
    return places


def _stated(given: Any, where: str) -> Iterator[tuple[str, int | None]]:
    """The texts of answers and where they are said to stand, in any of the forms that are in use."""
    if isinstance(given, Mapping) and isinstance(given.get("text"), list):  # two lists side by side
        starts = given.get("answer_start")
        if not isinstance(starts, list) or len(starts) != len(given["text"]):
            raise _unclear(where)
        given = list(zip(given["text"], starts, strict=True))
    if isinstance(given, str | Mapping | Answer):
        given = [given]
    if not isinstance(given, list | tuple):
        raise _unclear(where)
    for answer in given:
        if isinstance(answer, Mapping):
            answer = (answer.get("text"), answer.get("answer_start", answer.get("start")))
        elif isinstance(answer, str):
            answer = (answer, None)
        match answer:
            case (str(text), int() | None as start) if text.strip():
                yield check_text(text, where), start
            case _:
                raise _unclear(where)


def _unclear(where: str) -> CorpusError:
    return CorpusError(
        f"{where} has an answer that is no text with the place where it begins: give {{'text', 'answer_start'}}."
    )


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
