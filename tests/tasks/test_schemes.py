"""Tag schemes: spans, conversions and errors, by hand, by enumeration and, where it is installed, against seqeval."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.tasks.schemes import (
    Scheme,
    Span,
    check_scheme,
    convert,
    is_fault,
    scheme_of,
    segment_tags,
    spans_of,
    to_bio,
    to_bioes,
)

LENIENT = {
    "": [],
    "O O": [],
    "B-X I-X O": [("X", 0, 2)],
    "I-X I-X": [("X", 0, 2)],
    "O I-X": [("X", 1, 2)],
    "B-X I-Y": [("X", 0, 1), ("Y", 1, 2)],
    "B-X B-X": [("X", 0, 1), ("X", 1, 2)],
    "I-X B-X I-X": [("X", 0, 1), ("X", 1, 3)],
    "B-X I-X E-X S-Y": [("X", 0, 3), ("Y", 3, 4)],
    "E-X E-X": [("X", 0, 1), ("X", 1, 2)],
    "S-X I-X": [("X", 0, 1), ("X", 1, 2)],
    "B-X O E-X": [("X", 0, 1), ("X", 2, 3)],
    "B M E S": [("", 0, 3), ("", 3, 4)],
    "B-X L-X U-Y": [("X", 0, 2), ("Y", 2, 3)],
    "B-a-b I-a-b": [("a-b", 0, 2)],
    "NOUN VERB": [("NOUN", 0, 1), ("VERB", 1, 2)],
}


@pytest.mark.parametrize("tags", LENIENT)
def test_spans_by_hand(tags: str) -> None:
    assert spans_of(tags.split()) == LENIENT[tags]


def test_spans_equal_seqeval() -> None:
    labelling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    known = ["O", *(f"{letter}-{kind}" for letter, kind in product("BIES", "XY"))]
    for length in (1, 2, 3, 4):
        for tags in product(known, repeat=length):
            wanted = [(kind, first, last + 1) for kind, first, last in labelling.get_entities(list(tags))]
            assert spans_of(tags) == wanted, tags


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


def test_conversions_by_hand() -> None:
    bio = ["B-X", "I-X", "B-X", "O", "B-Y", "B-X"]
    assert convert(bio, "IOB1") == ["I-X", "I-X", "B-X", "O", "I-Y", "I-X"]
    assert to_bioes(bio) == ["B-X", "E-X", "S-X", "O", "S-Y", "S-X"]
    assert to_bio(convert(bio, "IOB1")) == bio
    assert convert(["B", "E", "S"], "BIO") == ["B", "I", "B"]
    assert convert(["B-X", "M-X", "E-X", "O"], "BIES") == ["B", "I", "E", "S"]
    assert to_bio(["DET", "NOUN"]) == ["DET", "NOUN"]
    assert to_bio([]) == []


TAGS = st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y", "S-Y"])


@given(tags=st.lists(TAGS, max_size=12), scheme=st.sampled_from(["BIO", "IOB1", "BIOES"]))
def test_conversion_keeps_the_entities_and_mends_the_tags(tags: list[str], scheme: Scheme) -> None:
    written = convert(tags, scheme)
    assert spans_of(written) == spans_of(tags)
    assert check_scheme(written, scheme) == []
    assert convert(written, scheme) == written


@given(words=st.lists(st.text(alphabet="甲乙丙a1", min_size=1, max_size=5), max_size=8))
def test_segmentation_tags_give_the_words_again(words: list[str]) -> None:
    tags, text = segment_tags(words), "".join(words)
    assert [text[begin:end] for _, begin, end in spans_of(tags)] == words
    assert check_scheme(tags, "BIES") == []


def test_errors_by_hand() -> None:
    assert check_scheme(["O", "I-X", "B-X", "I-Y", "I-Y"], "BIO") == [(1, "O", "I-X"), (3, "B-X", "I-Y")]
    assert check_scheme(["I-X", "O"], "BIO") == [(0, "", "I-X")]
    assert check_scheme(["B-X", "O", "I-X", "E-X"], "BIOES") == [(1, "B-X", "O"), (2, "O", "I-X")]
    assert check_scheme(["S-X", "B-X"]) == [(2, "B-X", "")]
    assert check_scheme(["B", "B", "E"]) == [(1, "B", "B")]
    assert check_scheme(["B-X", "I-X"], "IOB1") == [(0, "", "B-X")]
    assert check_scheme(["NOUN", "VERB"]) == []


def test_errors_equal_the_rule_of_each_scheme() -> None:
    """A sentence is without fault if and only if writing its entities again gives it back."""
    tags = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    for length in (1, 2, 3, 4):
        for sentence in product(tags, repeat=length):
            assert (check_scheme(sentence, "BIO") == []) == (convert(sentence, "BIO") == list(sentence))
    tags = ["O", "B-X", "I-X", "E-X", "S-X", "E-Y"]
    for length in (1, 2, 3, 4):
        for sentence in product(tags, repeat=length):
            sound = check_scheme(sentence, "BIOES") == []
            assert sound == (convert(sentence, "BIOES") == list(sentence)), sentence


def test_a_span_has_names() -> None:
    assert Span("X", 0, 1).end == 1
    assert not is_fault("x", "y", "plain")
