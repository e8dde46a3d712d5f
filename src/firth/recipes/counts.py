"""Count models: probabilities from how often things occur."""

from __future__ import annotations

from dataclasses import replace

from firth.counts.cache import CacheRecipe
from firth.counts.classes import ClassRecipe
from firth.counts.maxent import MaxentRecipe
from firth.counts.mixture import MixtureRecipe
from firth.counts.recipe import NgramRecipe


def unigram() -> NgramRecipe:
    """Words by their frequency alone, one added to every count."""
    return NgramRecipe(order=1, smoothing="additive", delta=1.0)


def ngram() -> NgramRecipe:
    """The words before decide: any order from 1 to 8, any smoothing."""
    return NgramRecipe()


def mle() -> NgramRecipe:
    """Relative frequencies as they are: what was never seen is impossible."""
    return NgramRecipe(order=3, smoothing="mle")


def additive() -> NgramRecipe:
    """A little added to every count, as much as fits best."""
    return replace(mle(), smoothing="additive")


def laplace() -> NgramRecipe:
    """One added to every count."""
    return replace(additive(), delta=1.0)


def good_turing() -> NgramRecipe:
    """Counts as they would be in new text; what that frees goes to unseen words by the shorter history."""
    return replace(mle(), smoothing="good-turing")


def katz() -> NgramRecipe:
    """Good-Turing discounts for small counts, large ones trusted; unseen words by the shorter history."""
    return replace(good_turing(), smoothing="katz")


def katz3() -> NgramRecipe:
    """Katz with two words of history."""
    return katz()


def jelinek_mercer() -> NgramRecipe:
    """Long and short histories mixed, the more by the long one the more often it was seen."""
    return replace(mle(), smoothing="jelinek-mercer")


def witten_bell() -> NgramRecipe:
    """Mixed by how many different words have followed the history."""
    return replace(jelinek_mercer(), smoothing="witten-bell")


def absolute() -> NgramRecipe:
    """The same amount taken off every count, given to the shorter history."""
    return replace(jelinek_mercer(), smoothing="absolute")


def church_gale() -> NgramRecipe:
    """Good-Turing for pairs of words, in buckets of pairs expected to be about as frequent."""
    return replace(good_turing(), order=2, smoothing="church-gale")


def bayes() -> NgramRecipe:
    """The shorter history as a Dirichlet prior for the longer one."""
    return replace(additive(), smoothing="bayes")


def kneser_ney() -> NgramRecipe:
    """Absolute discounting; shorter histories count in how many contexts a word occurs."""
    return replace(absolute(), smoothing="kneser-ney")


def kn3() -> NgramRecipe:
    """Kneser-Ney with two words of history."""
    return kneser_ney()


def kn5() -> NgramRecipe:
    """Kneser-Ney with four words of history."""
    return replace(kn3(), order=5)


def modified_kneser_ney() -> NgramRecipe:
    """Kneser-Ney with three discounts, for counts of one, two and more."""
    return replace(kneser_ney(), smoothing="modified-kneser-ney")


def mkn3() -> NgramRecipe:
    """Modified Kneser-Ney with two words of history."""
    return modified_kneser_ney()


def mkn5() -> NgramRecipe:
    """Modified Kneser-Ney with four words of history: the best n-gram model for its cost."""
    return replace(mkn3(), order=5)


def pitman_yor() -> NgramRecipe:
    """Kneser-Ney's Bayesian reading: every history a restaurant, all parameters inferred."""
    return replace(kneser_ney(), smoothing="pitman-yor")


def stupid() -> NgramRecipe:
    """Relative frequencies, 0.4 times the shorter history's where unseen: scores, no probabilities."""
    return replace(mle(), order=5, smoothing="stupid")


def cache() -> CacheRecipe:
    """A five-gram model and the last 200 words: what was said is likelier to be said again."""
    return CacheRecipe(base=mkn5(), order=1, decay=None, size=200)


def decaying_cache() -> CacheRecipe:
    """A cache in which words count the less the longer ago they were said."""
    return replace(cache(), decay="auto", size=1000)


def kn5_cache() -> CacheRecipe:
    """A decaying cache that recalls pairs and triples of words as well."""
    return replace(decaying_cache(), order=3)


def mixture() -> MixtureRecipe:
    """Models of parts of the text, by source or by topic, mixed by what the text turns out to be about."""
    return MixtureRecipe(base=mkn3())


def class_ngram() -> ClassRecipe:
    """Which class of words comes next, and which of its words."""
    return ClassRecipe(base=mkn3())


def maxent() -> MaxentRecipe:
    """N-grams, distance-2 bigrams and trigger pairs in one distribution of highest entropy."""
    return MaxentRecipe()


SHORT = {
    "mle": "mle",
    "add": "additive",
    "gt": "good-turing",
    "katz": "katz",
    "jm": "jelinek-mercer",
    "wb": "witten-bell",
    "abs": "absolute",
    "kn": "kneser-ney",
    "mkn": "modified-kneser-ney",
    "cg": "church-gale",
    "bayes": "bayes",
    "py": "pitman-yor",
    "stupid": "stupid-backoff",
}
"""Short names; with an order behind them they are recipes too: mkn4, wb3."""
