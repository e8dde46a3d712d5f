"""Every file of the real data is read without an error, with as many examples as its README says."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firth.metrics.tags import entities
from firth.tasks.readers.reader import read_task

_TASK = {"classify": "classify", "pair": "pair", "tag": "tag", "qa": "span", "choice": "choice", "generate": "generate"}
_EMPTY = {"qa/cmrc2018.trial.json.gz": 2}  # questions without words
pytestmark = pytest.mark.shared


def counts_of(readme: str) -> dict[str, tuple[int, int]]:
    """The number of examples of each file, and the number of words of those that are counted so."""
    found = {}
    for line in readme.splitlines():
        cells = line.split(" | ")
        if len(cells) < 4:
            continue
        names = re.findall(r"`([a-z]+/[^`]+)`", cells[0])
        stated = dict(re.findall(r"`([^`]+)`: ([^<]+)", cells[2])) or dict.fromkeys(names, cells[2])
        for name in names:
            numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?= )", stated[name])]
            found[name] = (numbers[0], numbers[1] if len(numbers) > 1 else 0)
    return found


def test_every_file_has_the_examples_that_its_readme_states(shared_data: Path) -> None:
    stated = counts_of((shared_data / "README.md").read_text(encoding="utf-8"))
    files = [path for folder in _TASK for path in sorted((shared_data / folder).iterdir())]
    assert len(files) > 80
    for path in files:
        name = f"{path.parent.name}/{path.name}"
        reading = read_task(_TASK[path.parent.name], path)
        words = 0
        for example in reading:
            words += len(getattr(example, "words", ()))
        rows, tokens = stated[name]
        counts = reading.counts
        assert (counts.read, counts.empty) == (rows - _EMPTY.get(name, 0), _EMPTY.get(name, 0)), name
        assert counts.skipped == 0, name
        if path.parent.name == "tag" and "cws" not in name:
            assert words == tokens, name


def test_segmentation_gives_the_words_of_both_files(shared_data: Path) -> None:
    for name, fields, words in (
        ("pd199801_pos.txt.gz", {"tag": "segment"}, 1_121_447),
        ("sighan2005_pku_cws.test.txt.gz", {}, 104_372),
    ):
        found: Counter[str] = Counter()
        example: Any
        for example in read_task("tag", shared_data / "tag" / name, columns=fields):
            found.update(example.tags)
            assert not example.spaced
        assert found["B"] + found["S"] == words
        assert found["B"] == found["E"]


def test_answers_stand_where_they_are_said_to_stand(shared_data: Path) -> None:
    for path in sorted((shared_data / "qa").iterdir()):
        reading = read_task("span", path)
        example: Any
        for example in reading:
            for text, start in example.answers:
                assert example.passage.startswith(text, start)
        assert reading.counts.repaired == questions_with_a_wrong_start(path)


def questions_with_a_wrong_start(path: Path) -> int:
    wrong = 0
    for article in json.loads(gzip.decompress(path.read_bytes()))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                spans = [(answer["text"], answer["answer_start"]) for answer in question["answers"]]
                asked = question["question"].strip() and not question.get("is_impossible")
                wrong += bool(asked) and any(
                    paragraph["context"][max(start, 0) : start + len(text)] != text for text, start in spans
                )
    return wrong


def test_named_entities_are_counted_as_they_begin(shared_data: Path) -> None:
    spans = begins = 0
    reading = read_task("tag", shared_data / "tag" / "conll2003_ner.dev.txt.gz")
    example: Any
    for example in reading:
        spans += len(entities(example.tags))
        begins += sum(tag.startswith("B-") for tag in example.tags)
        assert example.spaced or not any(map(str.isalpha, "".join(example.words)))
    assert spans == begins == 1842 + 1837 + 1341 + 922
    assert reading.notes() == []
