"""Static vectors: a word is known by the company it keeps."""

from __future__ import annotations

from dataclasses import replace

from firth.vectors.recipe import (
    BagRecipe,
    BrownRecipe,
    ClassifierRecipe,
    GloveRecipe,
    ParagraphRecipe,
    SenseRecipe,
    SvdRecipe,
    Word2vecRecipe,
)


def onehot() -> BagRecipe:
    """Each word a direction of its own, a text the bag of its words."""
    return BagRecipe(weighting="onehot")


def tfidf() -> BagRecipe:
    """The vector space model: words count the more the fewer documents have them."""
    return replace(onehot(), weighting="tfidf")


def lsa() -> SvdRecipe:
    """Latent semantic analysis: the largest singular vectors of words by documents."""
    return SvdRecipe()


def ppmi_svd() -> SvdRecipe:
    """Singular vectors of how much more often than by chance words stand near each other."""
    return replace(lsa(), matrix="windows", weighting="ppmi")


def brown() -> BrownRecipe:
    """A binary tree of word classes that tell most about the next word."""
    return BrownRecipe()


def cbow() -> Word2vecRecipe:
    """The words around predict the word in the middle."""
    return Word2vecRecipe(architecture="cbow")


def skipgram() -> Word2vecRecipe:
    """A word predicts each of the words around it."""
    return replace(cbow(), architecture="skipgram")


def phrases() -> Word2vecRecipe:
    """Skip-gram over words and phrases, such as new_york_times."""
    return replace(skipgram(), phrases=2)


def fasttext() -> Word2vecRecipe:
    """Skip-gram with words made of their character n-grams, so that unknown words have vectors too."""
    return replace(skipgram(), min_n=3, max_n=6)


def fasttext_classifier() -> ClassifierRecipe:
    """The bag of tricks: a linear classifier over the mean of word and word n-gram vectors."""
    return ClassifierRecipe()


def glove() -> GloveRecipe:
    """Dot products fitted to the logarithm of how often words stand near each other."""
    return GloveRecipe()


def multi_prototype() -> SenseRecipe:
    """A vector for each sense of a word, told apart by clustering its contexts."""
    return SenseRecipe(base=skipgram())


def pv_dm() -> ParagraphRecipe:
    """A document's vector and the words around predict each word."""
    return ParagraphRecipe()


def pv_dm_concat() -> ParagraphRecipe:
    """The same with the vectors side by side, so that the order of words counts."""
    return replace(pv_dm(), combine="concat")


def pv_dbow() -> ParagraphRecipe:
    """A document's vector alone predicts its words."""
    return replace(pv_dm(), architecture="dbow")
