"""BLEU and chrF against sacrebleu, texts and resamples; ROUGE-L by hand and against the plain table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from firth.metrics.bootstrap import resamples, values
from firth.metrics.texts import bleu_counts, bleu_words, chrf_counts, common_length, rouge_l, texts_sample

ENGLISH = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    ",",
    "1,000.5",
    "$9-10",
    "don't",
    "&quot;hm&quot;",
    "U.S.",
    "(so)",
    "7.",
    ",b",
    "x-\ny",
]
CHINESE = ["今天", "天气", "好", "，", "我们", "去", "公园", "NBA", "2.5%", "。", "“说”", " ", "GPT-4", "…"]


def random_texts(
    words: Sequence[str], seed: int, number: int = 30, separator: str = " "
) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    gold, predicted = [], []
    for _ in range(number):
        picked = rng.choice(words, rng.integers(1, 12)).tolist()
        shown = [word for word in picked if rng.random() < 0.8] + rng.choice(words, rng.integers(0, 3)).tolist()
        gold.append(separator.join(picked))
        predicted.append(separator.join(shown))
    return gold, predicted


def sacrebleu_scores(gold: Sequence[str], predicted: Sequence[str], chinese: bool) -> dict[str, float]:
    bleu = BLEU(tokenize="zh" if chinese else "13a")
    return {
        "bleu": bleu.corpus_score(list(predicted), [list(gold)]).score,
        "chrf": CHRF().corpus_score(list(predicted), [list(gold)]).score,
    }


@pytest.mark.parametrize("chinese", [False, True])
@pytest.mark.parametrize("number", [1, 3, 30])
def test_bleu_and_chrf_equal_sacrebleu(chinese: bool, number: int) -> None:
    words, separator = (CHINESE, "") if chinese else (ENGLISH, " ")
    for seed in range(15):
        gold, predicted = random_texts(words, seed, number, separator)
        found = values(texts_sample(gold, predicted, chinese))
        del found["rouge_l"]
        assert found == pytest.approx(sacrebleu_scores(gold, predicted, chinese), abs=1e-9)


def test_resamples_equal_sacrebleu() -> None:
    gold, predicted = random_texts(ENGLISH, 3, number=8)
    pairs = list(zip(gold, predicted, strict=True))
    sample = texts_sample(gold, predicted, chinese=False)
    rows = [
        (*bleu_counts(true, found, False), *chrf_counts(true, found), rouge_l(true, found)) for true, found in pairs
    ]
    kinds = [pairs[first] for first in np.unique(rows, axis=0, return_index=True)[1]]
    (weights,) = resamples(sample.counts, seed=0, samples=20)
    found = sample.measures(weights)
    for row, weight in enumerate(weights.astype(int)):
        drawn = [pair for pair, times in zip(kinds, weight, strict=True) for _ in range(times)]
        expected = sacrebleu_scores(*zip(*drawn, strict=True), chinese=False)  # type: ignore[arg-type]
        assert found["bleu"][row] == pytest.approx(expected["bleu"])
        assert found["chrf"][row] == pytest.approx(expected["chrf"])


@pytest.mark.parametrize("chinese", [False, True])
def test_words_are_sacrebleus_for_every_character(chinese: bool) -> None:
    tokenizer = BLEU(tokenize="zh" if chinese else "13a").tokenizer
    codes = [code for code in range(0x11000) if not 0xD800 <= code < 0xE000]
    for first in range(0, len(codes), 64):
        text = " ".join(f"a{chr(code)}1{chr(code)}." for code in codes[first : first + 64])
        assert bleu_words(text, chinese) == tokenizer(text).split()


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [(["a b c d"], [""]), ([""], ["a b c d"]), ([""], [""]), (["a b c"], ["a b c"]), (["a b c d e"], ["v w x y z"])],
)
def test_empty_and_short_texts_are_as_sacrebleu_has_them(gold: list[str], predicted: list[str]) -> None:
    found = values(texts_sample(gold, predicted, chinese=False))
    expected = sacrebleu_scores(gold, predicted, chinese=False)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-9)


def test_bleu_by_hand() -> None:
    """6 words of 7; matches 6 of 6, 4 of 5, 3 of 4, 2 of 3; brevity exp(1 - 7/6)."""
    found = values(texts_sample(["the black cat sat on the mat"], ["the cat sat on the mat"], chinese=False))
    precisions = (6 / 6) * (4 / 5) * (3 / 4) * (2 / 3)
    assert found["bleu"] == pytest.approx(100 * np.exp(1 - 7 / 6) * precisions**0.25)
    assert found["rouge_l"] == pytest.approx(12 / 13)


@pytest.mark.parametrize(
    ("true", "found", "expected"),
    [
        ("police killed the gunman", "the gunman kill police", 0.5),  # Lin 2004: "the gunman"
        ("The CAT!", "the cat", 1.0),
        ("今天天气好", "今天气好", 8 / 9),
        ("看NBA比赛", "看 nba 比赛", 1.0),
        ("Straße über", "strasse über", 0.5),
        ("", "", 0.0),
        ("a", "", 0.0),
        ("...", "...", 0.0),
    ],
)
def test_rouge_l_by_hand(true: str, found: str, expected: float) -> None:
    assert rouge_l(true, found) == pytest.approx(expected)


def test_the_longest_common_subsequence_equals_the_plain_table() -> None:
    rng = np.random.default_rng(0)
    for size in [0, 1, 5, 30, 70, 130]:
        for _ in range(10):
            one, two = (rng.choice(list("abcde"), rng.integers(0, size + 1)).tolist() for _ in range(2))
            table = np.zeros((len(one) + 1, len(two) + 1), dtype=int)
            for i, j in itertools.product(range(len(one)), range(len(two))):
                longer = max(table[i, j + 1], table[i + 1, j])
                table[i + 1, j + 1] = table[i, j] + 1 if one[i] == two[j] else longer
            assert common_length(one, two) == table[-1, -1]


@pytest.mark.shared
@pytest.mark.parametrize(("name", "chinese"), [("multi30k_en_de.dev.tsv", False), ("tatoeba_en_zh.dev.tsv", True)])
def test_real_texts_equal_sacrebleu(shared_data: Path, name: str, chinese: bool) -> None:
    lines = (shared_data / "generate" / name).read_text(encoding="utf-8").splitlines()[1:301]
    gold = [line.split("\t")[1] for line in lines]
    predicted = [text[: len(text) * 2 // 3] + text[len(text) * 3 // 4 :] for text in gold]
    found = values(texts_sample(gold, predicted, chinese))
    del found["rouge_l"]
    assert found == pytest.approx(sacrebleu_scores(gold, predicted, chinese))
