"""Metrics of texts: of generated ones (BLEU, chrF, ROUGE-L) and of extracted answers (exact match, F1).

BLEU (Papineni et al. 2002; Post 2018): n-grams up to 4, exponential smoothing, mteval-v13a's words, or single
characters for Chinese. chrF (Popović 2015): F2 of character n-grams up to 6, without spaces. ROUGE-L (Lin 2004): F1 of
the longest common subsequence of words, or of characters for Chinese, its mean over the texts. One reference for each.

SQuAD (Rajpurkar et al. 2018): lower case, no punctuation, no articles, single spaces; F1 of the bags of words. CMRC
2018 (Cui et al. 2019): lower case, no punctuation; F1 of the longest common substring in Chinese characters and other
words. The best of the gold answers counts. Without an answer the empty string is the only correct one.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from firth.metrics.bootstrap import Floats, Sample, ratio, sums_sample
from firth.text.segment import HAN_RANGES

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
# What CMRC's evaluation removes; it keeps English full stops, brackets and quotes, and ellipses.
_CHINESE_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
# A Chinese character, another word, or one other sign. CMRC's evaluation leaves other words to NLTK.
_CHINESE_UNIT = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+|[^\w\s]")

Answers = Sequence[str]
BLEU_ORDER = 4
CHRF_ORDER = 6
_BETA_SQUARED = 4.0  # chrF2: recall counts twice as much as precision

_SEPARATED = (  # mteval-v13a: split from words
    (re.compile(r"([ -&(-+/:-@\[-`{-~])"), r" \1 "),
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
# The characters that sacrebleu separates in Chinese. Its first range is an accident (five-digit code points were
# meant), but published scores depend on it.
_CHINESE = re.compile(
    "([\u2001-\u2a6d\u2e80-\u2fdf\u2ff0-\u303f\u3100-\u312f\u31a0-\u31bf\u31c0-\u31ef\u3200-\u33ff\u3400-\u4db5"
    "\u4e00-\u9fbb\uf900-\ufa2d\ufa30-\ufa6a\ufa70-\ufad9\ufe10-\ufe1f\ufe30-\ufe4f\uff00-\uffef])"
)
_WORD = re.compile(rf"[{HAN_RANGES}]|[^\W{HAN_RANGES}]+")


def answers_sample(gold: Sequence[Answers], predicted: Sequence[str], chinese: bool) -> Sample:
    """exact_match and f1; `gold` has all correct answers, none for an unanswerable question."""
    rows = answer_scores(gold, predicted, chinese)
    return sums_sample(rows, lambda sums, count: {"exact_match": sums[:, 0] / count, "f1": sums[:, 1] / count})


def answer_scores(gold: Sequence[Answers], predicted: Sequence[str], chinese: bool) -> Floats:
    """(questions, 2): exact match and F1."""
    exact, f1 = (chinese_exact_match, chinese_f1) if chinese else (exact_match, word_f1)
    rows = []
    for answers, guessed in zip(gold, predicted, strict=True):
        right = [answer for answer in answers if has_answer([answer], chinese)] or [""]
        rows.append([max(score(true, guessed) for true in right) for score in (exact, f1)])
    return np.array(rows, dtype=np.float64)


def has_answer(answers: Answers, chinese: bool) -> bool:
    """Whether any answer is not empty after normalisation."""
    plain = chinese_plain if chinese else plain_answer
    return any(plain(answer) for answer in answers)


def plain_answer(text: str) -> str:
    """An answer normalised as by SQuAD's evaluation.

    >>> plain_answer("The  Duke of Normandy.")
    'duke of normandy'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(true: str, guessed: str) -> float:
    """1 if the answers are equal after `plain_answer`, else 0."""
    return float(plain_answer(true) == plain_answer(guessed))


def word_f1(true: str, guessed: str) -> float:
    """F1 of the words.

    >>> word_f1("the Duke of Normandy", "Normandy")
    0.5
    """
    true_words, guessed_words = plain_answer(true).split(), plain_answer(guessed).split()
    if not true_words or not guessed_words:
        return float(true_words == guessed_words)
    return 2 * (Counter(true_words) & Counter(guessed_words)).total() / (len(true_words) + len(guessed_words))


def chinese_plain(text: str) -> str:
    """An answer normalised as by CMRC's evaluation."""
    return text.lower().strip().translate(_CHINESE_PUNCTUATION)


def chinese_exact_match(true: str, guessed: str) -> float:
    """1 if the answers are equal after `chinese_plain`, else 0."""
    return float(chinese_plain(true) == chinese_plain(guessed))


def chinese_f1(true: str, guessed: str) -> float:
    """F1 of the longest common substring.

    >>> chinese_f1("光荣和ω-force", "由光荣和ω-force")
    0.8888888888888888
    """
    true_units, guessed_units = (_CHINESE_UNIT.findall(chinese_plain(text)) for text in (true, guessed))
    if not true_units or not guessed_units:
        return float(true_units == guessed_units)
    common = SequenceMatcher(None, true_units, guessed_units, autojunk=False).find_longest_match().size
    return 2 * common / (len(true_units) + len(guessed_units))


class Threshold(NamedTuple):
    """A no-answer threshold and the mean score with it."""

    value: float
    score: float


def best_threshold(margins: Sequence[float], scores: Sequence[float], answerable: Sequence[bool]) -> Threshold:
    """The no-answer threshold with the best mean score, as in SQuAD 2.0's evaluation.

    margins: for each question the score of no answer minus that of the best span.
    scores: exact match or F1 of that span (`answer_scores`).
    answerable: whether the question has an answer; if not, answering scores 0 and not answering 1.

    Thresholds are the margins of the questions, or a value below all if answering nothing is best.

    >>> best_threshold([-3.0, -1.0, 2.0, 4.0], [1.0, 0.5, 0.0, 1.0], [True, True, False, True])
    Threshold(value=-1.0, score=0.625)
    """
    if not len(margins):
        return Threshold(0.0, 0.0)
    order = np.argsort(np.asarray(margins, dtype=np.float64), kind="stable")
    ordered = np.asarray(margins, dtype=np.float64)[order]
    has = np.asarray(answerable, dtype=bool)[order]
    gains = np.where(has, np.asarray(scores, dtype=np.float64)[order], -1.0)
    totals = (~has).sum() + np.concatenate([[0.0], np.cumsum(gains)])  # after answering the first 0, 1, 2 ...
    possible = np.concatenate([[True], np.append(ordered[1:] > ordered[:-1], True)])
    best = int(np.argmax(np.where(possible, totals, -math.inf)))
    value = float(ordered[best - 1]) if best else math.nextafter(float(ordered[0]), -math.inf)
    return Threshold(value, float(totals[best]) / len(ordered))


def texts_sample(gold: Sequence[str], predicted: Sequence[str], chinese: bool) -> Sample:
    """bleu, chrf and rouge_l."""
    rows = [
        (*bleu_counts(true, guessed, chinese), *chrf_counts(true, guessed), rouge_l(true, guessed))
        for true, guessed in zip(gold, predicted, strict=True)
    ]
    bleu_columns = 2 + 2 * BLEU_ORDER

    def measures(sums: Floats, count: Floats) -> dict[str, Floats]:
        return {
            "bleu": bleu(sums[:, :bleu_columns]),
            "chrf": chrf(sums[:, bleu_columns:-1]),
            "rouge_l": sums[:, -1] / count,
        }

    return sums_sample(np.array(rows, dtype=np.float64), measures)


def bleu_words(text: str, chinese: bool) -> list[str]:
    """The tokens of BLEU.

    >>> bleu_words("It cost $1,000.50, she said.", chinese=False)
    ['It', 'cost', '$', '1,000.50', ',', 'she', 'said', '.']
    """
    if chinese:
        text = _CHINESE.sub(r" \1 ", text.strip())
    else:
        text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
        for entity, sign in _ENTITIES:
            text = text.replace(entity, sign)
        text = f" {text} "
    for pattern, replacement in _SEPARATED:
        text = pattern.sub(replacement, text)
    return text.split()


def bleu_counts(true: str, guessed: str, chinese: bool) -> list[int]:
    """Lengths of prediction and reference, then for each order the common n-grams, then those of the prediction."""
    true_words, guessed_words = bleu_words(true, chinese), bleu_words(guessed, chinese)
    orders = range(1, BLEU_ORDER + 1)
    shared = [(_ngrams(true_words, order) & _ngrams(guessed_words, order)).total() for order in orders]
    totals = [max(len(guessed_words) - order + 1, 0) for order in orders]
    return [len(guessed_words), len(true_words), *shared, *totals]


def bleu(sums: Floats) -> Floats:
    """BLEU for each row of summed counts: brevity penalty times geometric mean of the precisions."""
    guessed, true = sums[:, 0], sums[:, 1]
    shared, totals = sums[:, 2 : 2 + BLEU_ORDER], sums[:, 2 + BLEU_ORDER :]
    # Exponential smoothing: the first order without a match counts 1/2 match, the second 1/4, and so on.
    smoothed = np.where(shared == 0, 0.5 ** np.cumsum(shared == 0, axis=1), shared)
    possible = (shared.sum(axis=1) > 0) & (totals > 0).all(axis=1)
    precisions = np.where(possible[:, None], ratio(smoothed, totals), 1.0)
    brevity = np.exp(np.minimum(0.0, 1 - ratio(true, guessed)))
    score: Floats = np.where(possible, 100 * brevity * np.exp(np.log(precisions).mean(axis=1)), 0.0)
    return score


def chrf_counts(true: str, guessed: str) -> list[int]:
    """For each order the n-grams of the prediction, of the reference, and the common ones.

    As in sacrebleu, those of the prediction count only if the reference has any.
    """
    true, guessed = "".join(true.split()), "".join(guessed.split())
    counts = []
    for order in range(1, CHRF_ORDER + 1):
        true_number, guessed_number = max(len(true) - order + 1, 0), max(len(guessed) - order + 1, 0)
        shared = (_character_ngrams(true, order) & _character_ngrams(guessed, order)).total()
        counts += [guessed_number if true_number else 0, true_number, shared]
    return counts


def chrf(sums: Floats) -> Floats:
    """chrF2 for each row of summed counts: F2 of mean precision and mean recall over the orders."""
    guessed, true, shared = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    counted = (guessed > 0) & (true > 0)
    orders = counted.sum(axis=1).astype(np.float64)
    precision = ratio(np.where(counted, ratio(shared, guessed), 0.0).sum(axis=1), orders)
    recall = ratio(np.where(counted, ratio(shared, true), 0.0).sum(axis=1), orders)
    return 100 * ratio((1 + _BETA_SQUARED) * precision * recall, _BETA_SQUARED * precision + recall)


def rouge_l(true: str, guessed: str) -> float:
    """F1 of the longest common subsequence of lower-case words; a Chinese character is a word.

    >>> rouge_l("police killed the gunman", "police kill the gunman")
    0.75
    """
    true_words, guessed_words = _WORD.findall(true.lower()), _WORD.findall(guessed.lower())
    if not true_words or not guessed_words:
        return 0.0
    return 2 * common_length(true_words, guessed_words) / (len(true_words) + len(guessed_words))


def common_length(one: Sequence[str], two: Sequence[str]) -> int:
    """The length of the longest common subsequence by bit-parallel dynamic programming (Hyyrö 2004).

    >>> common_length("human", "chimpanzee")
    4
    """
    masks: dict[str, int] = {}
    for index, item in enumerate(one):
        masks[item] = masks.get(item, 0) | 1 << index
    whole = (1 << len(one)) - 1
    row = whole
    for item in two:
        grown = row & masks.get(item, 0)
        row = ((row + grown) | (row - grown)) & whole
    return len(one) - row.bit_count()


def _ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[first:] for first in range(order)), strict=False))


def _character_ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[first : first + order] for first in range(len(text) - order + 1))
