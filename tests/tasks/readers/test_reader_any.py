"""Files and items put together at random: they are read, or one sentence says why not; there is no other error."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from firth.errors import CorpusError
from firth.tasks.readers.columns import ROLES, TASKS
from firth.tasks.readers.reader import ExampleReader, read_items, read_task


def read_all(reading: ExampleReader) -> tuple[list[Any], str]:
    """The examples, or what is wrong."""
    try:
        return list(reading), ""
    except CorpusError as error:
        return [], str(error)


PIECES = st.sampled_from(
    [
        *(
            "label",
            "text_a",
            "text_b",
            "score",
            "source",
            "target",
            "__label__x",
            "O",
            "B-X",
            "I-X",
            "a/X",
            "/",
            "#",
            "1",
        ),
        *(
            "\t",
            "\t",
            "\n",
            "\n",
            "\n\n",
            " ",
            ",",
            '"',
            "{",
            "}",
            "[",
            "]",
            "{}",
            "-DOCSTART-",
            "我",
            "好",
            "word",
            "3.1",
        ),
        *(
            '{"data": [',
            '{"paragraphs": [',
            '{"context": "a b", "qas": [',
            '{"question": "q", "answers": [',
            "]}",
            "}]}",
        ),
        *(
            '{"label": 1, "text": "a"}',
            '{"choices": ["a", "b"], "label": 1, "question": "q"}',
            '{"text": "b", "start": 1}',
        ),
        *('{"words": ["a"], "tags": ["B-X"]}', '{"source": "a", "target": null}', "1\ta\ta\tX\tY\t_\t0\tx\t_\t_\n"),
    ]
)


@given(pieces=st.lists(PIECES, max_size=30), task=st.sampled_from(TASKS), labelled=st.booleans(), bad=st.booleans())
def test_whatever_stands_in_a_file_there_are_examples_or_one_sentence(
    pieces: list[str], task: str, labelled: bool, bad: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.txt"
        path.write_bytes("".join(pieces).encode())
        reading = read_task(task, path, labelled=labelled, skip_bad=bad)
        examples, fault = read_all(reading)
        assert "\n" not in fault
        assert fault or len(examples) == reading.counts.read > 0
        assert all("\n" not in note for note in reading.notes())


KEYS = st.sampled_from(sorted({name for roles in ROLES.values() for names in roles.values() for name in names}))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab \ud800", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(items=st.lists(JSON, max_size=4), task=st.sampled_from(TASKS), labelled=st.booleans(), bad=st.booleans())
def test_whatever_the_items_there_are_examples_or_one_sentence(
    items: list[Any], task: str, labelled: bool, bad: bool
) -> None:
    reading = read_items(task, items, labelled=labelled, skip_bad=bad)
    examples, fault = read_all(reading)
    assert "\n" not in fault
    assert fault or len(examples) == reading.counts.read <= len(items)
