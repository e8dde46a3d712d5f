"""SQuAD files (articles with paragraphs, each with a context and questions), and the alignment of answers to passages.

An answer is taken at its `answer_start` if it is there. If not, the nearest occurrence is taken; an answer that occurs
nowhere, or equally near on both sides, is rejected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from firth.errors import CorpusError
from firth.tasks.examples import Answer
from firth.tasks.readers.columns import HOW, ReadLog, ReadOptions, Record, hint
from firth.text.encoding import codec_name, mixed_encodings
from firth.text.files import CorpusFile, open_bytes
from firth.text.readers import file_encoding, require_text


def read_json(source: CorpusFile, encoding: str | None) -> str | None:
    """The text of a file that is one JSON value, whose lines may be longer than those of a corpus; None if JSONL."""
    found = file_encoding(source, encoding)
    with open_bytes(source) as stream:
        data = stream.read()
    try:
        text = data.decode(codec_name(found, data, source.name)).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise mixed_encodings(source.name, f"{found} at first, not at byte {error.start}") from None
    first, _, rest = text.strip().partition("\n")
    return None if rest and first.rstrip().endswith("}") else text


def read_questions(options: ReadOptions, text: str, name: str) -> Iterator[Record]:
    """The questions of a SQuAD file, each with its passage."""
    if not text.strip():
        return
    if not text.lstrip().startswith(("{", "[")):
        columns = [column.strip() for column in text.partition("\n")[0].split("\t")]
        raise CorpusError(f"{name} is not JSON: {hint(options, columns) or HOW['span']}.")
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise CorpusError(
            f"{name}, line {error.lineno} is not JSON ({error.msg}, column {error.colno}): fetch or write it again."
        ) from None
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{name} cannot be read as JSON ({error}): {HOW['span']}.") from None
    if isinstance(whole, dict) and "data" not in whole:
        yield whole  # a single question
        return
    articles = whole.get("data") if isinstance(whole, dict) else whole
    for number, article in enumerate(_list(articles, f"{name} has no list in 'data'"), 1):
        where = f"article {number} of {name}"
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        for paragraph in _list(paragraphs, f"{where} has no list in 'paragraphs'"):
            yield from _questions(options, paragraph, where)


def _questions(options: ReadOptions, paragraph: Any, where: str) -> Iterator[Record]:
    if not isinstance(paragraph, dict):
        raise CorpusError(f"a paragraph in {where} is no object: give JSON as SQuAD has it.")
    clause = hint(options, paragraph)
    for question in _list(paragraph.get("qas"), f"a paragraph in {where} has no list in 'qas'", clause):
        if not isinstance(question, dict):
            raise CorpusError(f"a question in {where} is no object: give JSON as SQuAD has it.")
        yield {"context": paragraph.get("context"), **question}


def _list(value: Any, otherwise: str, clause: str = "") -> list[Any]:
    if not isinstance(value, list):
        raise CorpusError(f"{otherwise}: {clause or 'give JSON as SQuAD has it'}.")
    return value


def locate_answers(given: Any, passage: str, where: str, log: ReadLog) -> tuple[Answer, ...] | None:
    """The answers with their offsets; those that cannot be located are dropped.

    None if there are answers but none can be located, which is counted as skipped.
    """
    stated = list(_stated(given, where))
    located = [locate_answer(text, start, passage) for text, start in stated]
    answers = tuple(dict.fromkeys(answer for answer in located if answer is not None))
    if stated and not answers:
        text, start = stated[0]
        reason = "is not in the passage" if text not in passage else f"is not at {start} and is ambiguous"
        log.skip(CorpusError(f"{where}: the answer {_short(text)!r} {reason}: correct answer_start or the text."))
        return None
    for (text, start), answer in zip(stated, located, strict=True):
        if start is not None and (answer is None or answer.start != start):
            found = "is left out" if answer is None else f"is taken at {answer.start}"
            log.repair(f"{where}: {_short(text)!r} is not at {start} and {found}.")
            break
    return answers


def locate_answer(text: str, start: int | None, passage: str) -> Answer | None:
    """The occurrence of an answer nearest to `start`, or the only one without `start`; None if ambiguous.

    >>> locate_answer("cat", 4, "the cat saw a cat"), locate_answer("cat", 12, "the cat saw a cat")
    (Answer(text='cat', start=4), Answer(text='cat', start=14))
    >>> locate_answer("cat", None, "the cat saw a cat")
    """
    if start is not None and start >= 0 and passage.startswith(text, start):
        return Answer(text, start)
    for wanted in dict.fromkeys((text, text.strip())):
        offsets = [match.start() for match in re.finditer(f"(?={re.escape(wanted)})", passage)]
        if len(offsets) == 1:
            return Answer(wanted, offsets[0])
        if start is not None and offsets:
            first, second = sorted((abs(offset - start), offset) for offset in offsets)[:2]
            if first[0] < second[0]:
                return Answer(wanted, first[1])
    return None


def _stated(given: Any, where: str) -> Iterator[tuple[str, int | None]]:
    """The texts and stated offsets of answers, in any of the usual formats."""
    if isinstance(given, Mapping) and isinstance(given.get("text"), list):  # parallel lists
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
                yield require_text(text, where), start
            case _:
                raise _unclear(where)


def _unclear(where: str) -> CorpusError:
    return CorpusError(f"{where} has an answer that is not a text with its offset: give {{'text', 'answer_start'}}.")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
