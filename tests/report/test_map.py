"""The word map: deterministic, well-formed, and similar words lie together."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from firth.errors import AbilityError
from firth.report.map import WordMap, place_labels, word_map
from firth.vectors.model import VectorModel
from tests.vectors.small_models import small_model

SVG = "{http://www.w3.org/2000/svg}"


def two_groups() -> VectorModel:
    random = np.random.default_rng(0)
    centres = [[5, 0, 0], [0, 5, 0]]
    words = [
        *(f"cat{character}" for character in "abcdefghij"),
        *(f"足{sign}" for sign in "一二三四五六七八九十"),
        "<b>",
        "3",
    ]
    rows = [centres[number // 10 % 2] + 0.3 * random.standard_normal(3) for number in range(len(words))]
    return small_model(words, rows)


def test_similar_words_lie_together() -> None:
    drawn = word_map(two_groups(), count=20)
    assert len(drawn.words) == 20
    assert drawn.positions.min() == 0
    assert drawn.positions.max() == 1
    one, two = drawn.positions[:10], drawn.positions[10:]
    apart = np.linalg.norm(one.mean(axis=0) - two.mean(axis=0))
    assert apart > 2 * max(np.linalg.norm(part - part.mean(axis=0), axis=1).mean() for part in (one, two))
    assert drawn.clusters == [0] * 10 + [1] * 10


def test_maps_are_deterministic() -> None:
    assert word_map(two_groups()).svg() == word_map(two_groups()).svg()


def test_the_drawing_is_well_formed_and_escaped() -> None:
    drawn = word_map(two_groups(), ["cata", "足一", "<b>", "catb", "cata"])
    assert drawn.words == ["cata", "足一", "<b>", "catb"]
    root = ElementTree.fromstring(drawn.svg())
    assert len(root.findall(f".//{SVG}circle")) == 4
    assert {text.text for text in root.findall(f".//{SVG}text")} <= set(drawn.words)
    assert 'lang="zh"' in drawn.svg()
    assert "var(--c0, " in drawn.svg()
    assert drawn.figure().count("<svg") == 2
    assert WordMap.from_json(drawn.to_json()).words == drawn.words


def test_frequent_words_have_an_alphabetic_character() -> None:
    assert word_map(two_groups()).words == two_groups().words[5:26]


def test_labels_do_not_overlap() -> None:
    points = np.random.default_rng(0).uniform(50, 350, (300, 2))
    words = ["word", "语言文字", "a"] * 100
    boxes = np.array([label.box for label in place_labels(points, words, 400, 400)])
    assert 20 < len(boxes) < 300
    for number, (left, top, right, bottom) in enumerate(boxes):
        others = np.delete(boxes, number, axis=0)
        crossing = (others[:, 0] < right) & (others[:, 2] > left) & (others[:, 1] < bottom) & (others[:, 3] > top)
        assert not crossing.any()
        dots = (points > [left, top]) & (points < [right, bottom])
        assert not dots.all(axis=1).any()


@pytest.mark.parametrize("words", [["cata"], ["cata", "catb"], ["cata"] * 9])
def test_too_few_words_are_refused(words: list[str]) -> None:
    with pytest.raises(AbilityError, match="3 to 2,000"):
        word_map(two_groups(), words)


def test_three_words_can_be_drawn() -> None:
    assert len(word_map(two_groups(), ["cata", "catb", "足一"]).words) == 3
    flat = word_map(small_model(["a", "b", "c", "d"], [[1], [-1], [1], [-1]]))
    assert np.isfinite(flat.positions).all()


def test_equal_words_have_no_map() -> None:
    with pytest.raises(AbilityError, match="same vector"):
        word_map(small_model(["a", "b", "c", "d"], np.ones((4, 2))))


def test_unknown_words_and_models_without_vectors_are_refused() -> None:
    with pytest.raises(AbilityError, match="no vector for 'zebra'"):
        word_map(two_groups(), ["cata", "catb", "zebra"])
    with pytest.raises(AbilityError, match="no word vectors"):
        word_map(object())
