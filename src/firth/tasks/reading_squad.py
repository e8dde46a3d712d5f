"""The questions of a JSON file as SQuAD has it: articles, each with paragraphs, each with a context and questions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from firth.errors import CorpusError
from firth.tasks.reading_records import Record
from firth.tasks.reading_roles import HOW, Asked, hint
from firth.text.encoding import codec_name, mixed_encodings
from firth.text.readers import source_encoding
from firth.text.sources import Source, open_bytes


def read_json(source: Source, encoding: str | None) -> str | None:
    """The text of a file that is one JSON value; None if each of its lines is one."""
    text = _read_text(source, encoding)
    first, _, rest = text.strip().partition("\n")
    return None if rest and first.rstrip().endswith("}") else text


def _read_text(source: Source, encoding: str | None) -> str:
    """The whole text, whose line may be longer than those of a corpus."""
    found = source_encoding(source, encoding)
    with open_bytes(source) as stream:
        data = stream.read()
    try:
        return data.decode(codec_name(found, data, source.name)).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise mixed_encodings(source.name, f"{found} at first, not at byte {error.start}") from None


def read_questions(asked: Asked, text: str, name: str) -> Iterator[Record]:
    """The questions in a JSON value, each with its passage."""
    if not text.strip():
        return
    if not text.lstrip().startswith(("{", "[")):
        columns = [column.strip() for column in text.partition("\n")[0].split("\t")]
        raise CorpusError(f"{name} is not JSON: {hint(asked, columns) or HOW['span']}.")
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise CorpusError(
            f"{name}, line {error.lineno} is not JSON ({error.msg}, column {error.colno}): fetch or write it again."
        ) from None
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{name} cannot be read as JSON ({error}): {HOW['span']}.") from None
    if isinstance(whole, dict) and "data" not in whole:
        yield whole  # one question alone, which is checked as any other
        return
    articles = whole.get("data") if isinstance(whole, dict) else whole
    for number, article in enumerate(_list(articles, f"{name} has no list in 'data'"), 1):
        where = f"article {number} of {name}"
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        for paragraph in _list(paragraphs, f"{where} has no list in 'paragraphs'"):
            yield from _questions(asked, paragraph, where)


def _questions(asked: Asked, paragraph: Any, where: str) -> Iterator[Record]:
    if not isinstance(paragraph, dict):
        raise CorpusError(f"a paragraph in {where} is no object: give JSON as SQuAD has it.")
    clause = hint(asked, paragraph)
    for question in _list(paragraph.get("qas"), f"a paragraph in {where} has no list in 'qas'", clause):
        if not isinstance(question, dict):
            raise CorpusError(f"a question in {where} is no object: give JSON as SQuAD has it.")
        yield {"context": paragraph.get("context"), **question}


def _list(value: Any, otherwise: str, clause: str = "") -> list[Any]:
    if not isinstance(value, list):
        raise CorpusError(f"{otherwise}: {clause or 'give JSON as SQuAD has it'}.")
    return value
