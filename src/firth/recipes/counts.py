"""Recipes of the count models."""

from __future__ import annotations

from dataclasses import replace

from firth.counts.recipe import CacheRecipe, ClassRecipe, MaxentRecipe, MixtureRecipe, NgramRecipe
from firth.nets.ngrams_recipe import NgramsRecipe
from firth.tokens.recipe import TokenizerRecipe


def unigram() -> NgramRecipe:
    """Unigrams with add-one smoothing."""
    return NgramRecipe(order=1, smoothing="additive", delta=1.0)


def ngram() -> NgramRecipe:
    """An n-gram model of any order from 1 to 8, with any smoothing."""
    return NgramRecipe()


def mle() -> NgramRecipe:
    """Unsmoothed relative frequencies: unseen n-grams have probability 0."""
    return NgramRecipe(order=3, smoothing="mle")


def additive() -> NgramRecipe:
    """A constant added to every count, estimated from the text."""
    return replace(mle(), smoothing="additive")


def laplace() -> NgramRecipe:
    """One added to every count."""
    return replace(additive(), delta=1.0)


def good_turing() -> NgramRecipe:
    """Good-Turing discounts; unseen words back off to the lower order."""
    return replace(mle(), smoothing="good-turing")


def katz() -> NgramRecipe:
    """Good-Turing discounts for small counts only; unseen words back off to the lower order."""
    return replace(good_turing(), smoothing="katz")


def katz3() -> NgramRecipe:
    """Katz smoothing of trigrams."""
    return katz()


def jelinek_mercer() -> NgramRecipe:
    """Linear interpolation with the lower order; the weight depends on the count of the history."""
    return replace(mle(), smoothing="jelinek-mercer")


def witten_bell() -> NgramRecipe:
    """Interpolation weighted by the number of distinct words after the history."""
    return replace(jelinek_mercer(), smoothing="witten-bell")


def absolute() -> NgramRecipe:
    """A constant discount for every count; the mass goes to the lower order."""
    return replace(jelinek_mercer(), smoothing="absolute")


def church_gale() -> NgramRecipe:
    """Good-Turing estimates of bigrams, in buckets of similar expected frequency."""
    return replace(good_turing(), order=2, smoothing="church-gale")


def bayes() -> NgramRecipe:
    """A Dirichlet prior around the lower-order distribution."""
    return replace(additive(), smoothing="bayes")


def kneser_ney() -> NgramRecipe:
    """Absolute discounting with continuation counts in the lower orders."""
    return replace(absolute(), smoothing="kneser-ney")


def kn3() -> NgramRecipe:
    """Kneser-Ney smoothing of trigrams."""
    return kneser_ney()


def kn5() -> NgramRecipe:
    """Kneser-Ney smoothing of 5-grams."""
    return replace(kn3(), order=5)


def modified_kneser_ney() -> NgramRecipe:
    """Kneser-Ney with separate discounts for counts of 1, 2, and 3 or more."""
    return replace(kneser_ney(), smoothing="modified-kneser-ney")


def mkn3() -> NgramRecipe:
    """Modified Kneser-Ney smoothing of trigrams."""
    return modified_kneser_ney()


def mkn5() -> NgramRecipe:
    """Modified Kneser-Ney smoothing of 5-grams: the best n-gram model for its cost."""
    return replace(mkn3(), order=5)


def pitman_yor() -> NgramRecipe:
    """Hierarchical Pitman-Yor process: the Bayesian form of Kneser-Ney, by Gibbs sampling."""
    return replace(kneser_ney(), smoothing="pitman-yor")


def stupid() -> NgramRecipe:
    """Stupid back-off: relative frequencies, 0.4 times the lower order for unseen words; not normalised."""
    return replace(mle(), order=5, smoothing="stupid")


def cache() -> CacheRecipe:
    """A 5-gram model interpolated with a cache of the last 200 words."""
    return CacheRecipe(base=mkn5(), order=1, decay=None, size=200)


def decaying_cache() -> CacheRecipe:
    """A cache with exponentially decaying weights."""
    return replace(cache(), decay="auto", size=1000)


def kn5_cache() -> CacheRecipe:
    """A decaying cache of words, bigrams and trigrams."""
    return replace(decaying_cache(), order=3)


def ngram_recipe(part: NgramsRecipe, tokenizer: TokenizerRecipe) -> NgramRecipe | CacheRecipe:
    """The n-gram model beside a network."""
    base = replace(mkn5(), order=part.order, prune=part.prune, tokenizer=tokenizer)
    if not part.cache:
        return base
    found = replace(decaying_cache(), base=base, order=part.cache)
    return found if part.decay is None else replace(found, decay=part.decay)


def mixture() -> MixtureRecipe:
    """A mixture of models of input files or topics, with weights that adapt to the text."""
    return MixtureRecipe(base=mkn3())


def class_ngram() -> ClassRecipe:
    """An n-gram model over word classes, and the words within each class."""
    return ClassRecipe(base=mkn3())


def maxent() -> MaxentRecipe:
    """A maximum-entropy model of n-grams, distance-2 bigrams and trigger pairs."""
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
"""Short names; with an order appended they are recipes too: mkn4, wb3."""
