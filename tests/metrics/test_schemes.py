"""Tag schemes: detection and invalid transitions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.metrics.tags import Scheme, is_fault, scheme_of, segment_tags, tag_pairs
from firth.metrics.tags import words as words_of


def faults(tags: Sequence[str], scheme: Scheme | None = None) -> list[tuple[int, str, str]]:
    chosen = scheme or scheme_of(tags)
    return [(index, *pair) for index, pair in enumerate(tag_pairs(tags)) if is_fault(*pair, chosen)]


SCHEMES = {
    "O B-X I-X": "BIO",
    "O B-X B-Y": "BIO",
    "I-X B-X O B-X": "BIO",  # a B- that IOB1 has no need of
    "I-X I-X O I-Y": "IOB1",
    "O I-X B-X": "IOB1",
    "O O": "BIO",
    "B I O": "BIO",
    "B-X E-X": "BIOES",
    "S-X O": "BIOES",
    "S O": "BIOES",
    "B E S": "BIES",
    "S": "BIES",
    "B M E": "BIES",
    "NOUN O": "plain",
    "n v": "plain",
    "B- I-X": "plain",
}


@pytest.mark.parametrize("tags", SCHEMES)
def test_the_scheme_is_known(tags: str) -> None:
    assert scheme_of(tags.split()) == SCHEMES[tags]


def test_the_scheme_of_many_sentences() -> None:
    assert scheme_of([["B-X"], ["I-X"]]) == "BIO"
    assert scheme_of([["O", "I-X"], ["I-X", "B-X"]]) == "IOB1"
    assert scheme_of([["O"], ["S-X"]]) == "BIOES"
    assert scheme_of([["S"], ["B", "E"]]) == "BIES"
    assert scheme_of([]) == "plain"


@given(words=st.lists(st.text(alphabet="甲乙丙a1", min_size=1, max_size=5), max_size=8))
def test_segmentation_tags_give_the_words_again(words: list[str]) -> None:
    tags, text = segment_tags(words), "".join(words)
    assert [text[first : last + 1] for _, first, last in sorted(words_of(tags))] == words
    assert faults(tags, "BIES") == []


def test_errors_by_hand() -> None:
    assert faults(["O", "I-X", "B-X", "I-Y", "I-Y"], "BIO") == [(1, "O", "I-X"), (3, "B-X", "I-Y")]
    assert faults(["I-X", "O"], "BIO") == [(0, "", "I-X")]
    assert faults(["B-X", "O", "I-X", "E-X"], "BIOES") == [(1, "B-X", "O"), (2, "O", "I-X")]
    assert faults(["S-X", "B-X"]) == [(2, "B-X", "")]
    assert faults(["B", "B", "E"]) == [(1, "B", "B")]
    assert faults(["B-X", "I-X"], "IOB1") == [(0, "", "B-X")]
    assert faults(["NOUN", "VERB"]) == []
    assert not is_fault("x", "y", "plain")
