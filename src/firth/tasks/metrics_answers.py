"""Metrics of answers found in a passage: exact match and F1 of SQuAD's evaluation, and of CMRC 2018's for Chinese.

SQuAD (Rajpurkar et al. 2018): small letters, no punctuation, no articles, single spaces; F1 of the words that two
answers share, in any order. CMRC 2018 (Cui et al. 2019): small letters, no punctuation; F1 of the longest piece that
two answers share, counted in Chinese characters and other words. The best of the gold answers counts. Where there is no
answer, the empty text is the only right one.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from firth.tasks.bootstrap import Floats, Sample, sums_sample

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
# What CMRC's evaluation leaves out; it keeps the points, brackets and quotes of English, and dots of omission.
_CHINESE_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
# A Chinese character, another word, or one other sign. CMRC's evaluation leaves other words to NLTK.
_CHINESE_UNIT = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+|[^\w\s]")

Answers = Sequence[str]


def answers_sample(gold: Sequence[Answers], predicted: Sequence[str], chinese: bool) -> Sample:
    """exact_match and f1; `gold` holds all answers that are right, none where the passage has no answer."""
    rows = answer_scores(gold, predicted, chinese)
    return sums_sample(rows, lambda sums, count: {"exact_match": sums[:, 0] / count, "f1": sums[:, 1] / count})


def answer_scores(gold: Sequence[Answers], predicted: Sequence[str], chinese: bool) -> Floats:
    """For each question, exact match and F1."""
    exact, f1 = (chinese_exact_match, chinese_f1) if chinese else (exact_match, word_f1)
    rows = []
    for answers, told in zip(gold, predicted, strict=True):
        right = [answer for answer in answers if has_answer([answer], chinese)] or [""]
        rows.append((_best(exact, right, told), _best(f1, right, told)))
    return np.array(rows, dtype=np.float64)


def has_answer(answers: Answers, chinese: bool) -> bool:
    """Whether anything is left of any of the answers."""
    plain = chinese_plain if chinese else plain_answer
    return any(plain(answer) for answer in answers)


def plain_answer(text: str) -> str:
    """An answer as SQuAD's evaluation compares it.

    >>> plain_answer("The  Duke of Normandy.")
    'duke of normandy'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(true: str, told: str) -> float:
    """1 if the answers are the same but for articles, punctuation, capitals and spaces, else 0."""
    return float(plain_answer(true) == plain_answer(told))


def word_f1(true: str, told: str) -> float:
    """The harmonic mean of precision and recall of the words.

    >>> word_f1("the Duke of Normandy", "Normandy")
    0.5
    """
    true_words, told_words = plain_answer(true).split(), plain_answer(told).split()
    if not true_words or not told_words:
        return float(true_words == told_words)
    return 2 * (Counter(true_words) & Counter(told_words)).total() / (len(true_words) + len(told_words))


def chinese_plain(text: str) -> str:
    """An answer as CMRC's evaluation compares it."""
    return text.lower().strip().translate(_CHINESE_PUNCTUATION)


def chinese_exact_match(true: str, told: str) -> float:
    """1 if the answers are the same but for punctuation and capitals, else 0."""
    return float(chinese_plain(true) == chinese_plain(told))


def chinese_f1(true: str, told: str) -> float:
    """The harmonic mean of precision and recall of the longest common piece.

    >>> chinese_f1("光荣和ω-force", "由光荣和ω-force")
    0.8888888888888888
    """
    true_units, told_units = (_CHINESE_UNIT.findall(chinese_plain(text)) for text in (true, told))
    if not true_units or not told_units:
        return float(true_units == told_units)
    common = SequenceMatcher(None, true_units, told_units, autojunk=False).find_longest_match().size
    return 2 * common / (len(true_units) + len(told_units))


class Threshold(NamedTuple):
    """From when on a question is said to have no answer."""

    value: float
    """No answer is given where the score of none, less that of the best span, is above this."""
    score: float
    """The mean of exact match or F1 with it."""


def best_threshold(odds: Sequence[float], scores: Sequence[float], answerable: Sequence[bool]) -> Threshold:
    """The threshold that gives the best mean score, by the rule of SQuAD 2.0's evaluation.

    odds: for each question the score of no answer less that of the best span.
    scores: exact match or F1 of that span, whatever the odds (`answer_scores`).
    answerable: whether the passage has the answer; if not, giving one scores 0 and giving none 1.

    The rule tries the odds of each question, from the lowest. Here questions of equal odds are taken together, as no
    threshold can part them, and if it is best to answer nothing the threshold says so: it is below all odds.

    >>> best_threshold([-3.0, -1.0, 2.0, 4.0], [1.0, 0.5, 0.0, 1.0], [True, True, False, True])
    Threshold(value=-1.0, score=0.625)
    """
    if not len(odds):
        return Threshold(0.0, 0.0)
    order = np.argsort(np.asarray(odds, dtype=np.float64), kind="stable")
    ordered = np.asarray(odds, dtype=np.float64)[order]
    has = np.asarray(answerable, dtype=bool)[order]
    gains = np.where(has, np.asarray(scores, dtype=np.float64)[order], -1.0)
    totals = (~has).sum() + np.concatenate([[0.0], np.cumsum(gains)])  # after answering the first 0, 1, 2 ...
    possible = np.concatenate([[True], np.append(ordered[1:] > ordered[:-1], True)])
    best = int(np.argmax(np.where(possible, totals, -math.inf)))
    value = float(ordered[best - 1]) if best else math.nextafter(float(ordered[0]), -math.inf)
    return Threshold(value, float(totals[best]) / len(ordered))


def _best(score: Callable[[str, str], float], right: Answers, told: str) -> float:
    return max(score(true, told) for true in right)
