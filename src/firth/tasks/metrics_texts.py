"""Metrics of generated texts: BLEU and chrF by sacrebleu's definitions (0 to 100), ROUGE-L (0 to 1).

BLEU (Papineni et al. 2002; Post 2018): n-grams up to 4, exponential smoothing, mteval-v13a's words, or single
characters for Chinese. chrF (Popović 2015): F2 of character n-grams up to 6, without spaces. ROUGE-L (Lin 2004): F1 of
the longest common subsequence of words, or of characters for Chinese, its mean over the texts. One reference for each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from firth.tasks.bootstrap import Floats, Sample, ratio, sums_sample
from firth.text.segment import HAN_RANGES

BLEU_ORDER = 4
CHRF_ORDER = 6
_BETA_SQUARED = 4.0  # chrF2: recall counts twice as much as precision

_SETTING_APART = (  # mteval-v13a: what is set apart from words
    (re.compile(r"([ -&(-+/:-@\[-`{-~])"), r" \1 "),
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
# The characters that sacrebleu sets apart in Chinese. The first range, quotes and arrows among them, stands there by
# accident (for rare characters of five digits), but it is the definition that published numbers follow.
_CHINESE = re.compile(
    "([\u2001-\u2a6d\u2e80-\u2fdf\u2ff0-\u303f\u3100-\u312f\u31a0-\u31bf\u31c0-\u31ef\u3200-\u33ff\u3400-\u4db5"
    "\u4e00-\u9fbb\uf900-\ufa2d\ufa30-\ufa6a\ufa70-\ufad9\ufe10-\ufe1f\ufe30-\ufe4f\uff00-\uffef])"
)
_WORD = re.compile(rf"[{HAN_RANGES}]|[^\W{HAN_RANGES}]+")


def texts_sample(gold: Sequence[str], predicted: Sequence[str], chinese: bool) -> Sample:
    """bleu, chrf and rouge_l."""
    rows = [
        (*bleu_counts(true, told, chinese), *chrf_counts(true, told), rouge_l(true, told))
        for true, told in zip(gold, predicted, strict=True)
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
    """The words that BLEU counts.

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
    for pattern, replacement in _SETTING_APART:
        text = pattern.sub(replacement, text)
    return text.split()


def bleu_counts(true: str, told: str, chinese: bool) -> list[int]:
    """Length of the text and of its reference; for each order the n-grams they share; and the text's n-grams."""
    true_words, told_words = bleu_words(true, chinese), bleu_words(told, chinese)
    shared = [(_ngrams(true_words, order) & _ngrams(told_words, order)).total() for order in range(1, BLEU_ORDER + 1)]
    totals = [max(len(told_words) - order + 1, 0) for order in range(1, BLEU_ORDER + 1)]
    return [len(told_words), len(true_words), *shared, *totals]


def bleu(sums: Floats) -> Floats:
    """BLEU of each row of summed counts: the brevity penalty times the geometric mean of the precisions."""
    told, true = sums[:, 0], sums[:, 1]
    shared, totals = sums[:, 2 : 2 + BLEU_ORDER], sums[:, 2 + BLEU_ORDER :]
    # Exponential smoothing: the first order without a match counts 1/2 match, the second 1/4, and so on.
    smoothed = np.where(shared == 0, 0.5 ** np.cumsum(shared == 0, axis=1), shared)
    possible = (shared.sum(axis=1) > 0) & (totals > 0).all(axis=1)
    precisions = np.where(possible[:, None], ratio(smoothed, totals), 1.0)
    brevity = np.exp(np.minimum(0.0, 1 - ratio(true, told)))
    score: Floats = np.where(possible, 100 * brevity * np.exp(np.log(precisions).mean(axis=1)), 0.0)
    return score


def chrf_counts(true: str, told: str) -> list[int]:
    """For each order: n-grams of the text, of its reference, and those they share.

    Where the reference is too short to have any, those of the text do not count: so sacrebleu has it.
    """
    true, told = "".join(true.split()), "".join(told.split())
    counts = []
    for order in range(1, CHRF_ORDER + 1):
        true_number, told_number = max(len(true) - order + 1, 0), max(len(told) - order + 1, 0)
        shared = (_pieces(true, order) & _pieces(told, order)).total()
        counts += [told_number if true_number else 0, true_number, shared]
    return counts


def chrf(sums: Floats) -> Floats:
    """chrF2 of each row of summed counts: F2 of the mean precision and the mean recall of all orders."""
    told, true, shared = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    counted = (told > 0) & (true > 0)
    orders = counted.sum(axis=1).astype(np.float64)
    precision = ratio(np.where(counted, ratio(shared, told), 0.0).sum(axis=1), orders)
    recall = ratio(np.where(counted, ratio(shared, true), 0.0).sum(axis=1), orders)
    return 100 * ratio((1 + _BETA_SQUARED) * precision * recall, _BETA_SQUARED * precision + recall)


def rouge_l(true: str, told: str) -> float:
    """F1 of the longest common subsequence of the words in small letters; a Chinese character is a word.

    >>> rouge_l("police killed the gunman", "police kill the gunman")
    0.75
    """
    true_words, told_words = _WORD.findall(true.lower()), _WORD.findall(told.lower())
    if not true_words or not told_words:
        return 0.0
    return 2 * common_length(true_words, told_words) / (len(true_words) + len(told_words))


def common_length(one: Sequence[str], two: Sequence[str]) -> int:
    """The length of the longest common subsequence, a whole row of the table at a time in the bits of a number.

    Bit i of the row is 0 where the length grows at item i of `one` (Hyyrö 2004).

    >>> common_length("human", "chimpanzee")
    4
    """
    places: dict[str, int] = {}
    for place, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << place
    whole = (1 << len(one)) - 1
    row = whole
    for item in two:
        grown = row & places.get(item, 0)
        row = ((row + grown) | (row - grown)) & whole
    return len(one) - row.bit_count()


def _ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[first:] for first in range(order)), strict=False))


def _pieces(text: str, order: int) -> Counter[str]:
    return Counter(text[first : first + order] for first in range(len(text) - order + 1))
