"""Recipes of static word, sense and document vectors."""

from __future__ import annotations

from dataclasses import replace

from firth.vectors.recipe import (
    BagRecipe,
    BrownRecipe,
    ClassifierRecipe,
    GloveRecipe,
    ParagraphRecipe,
    SenseRecipe,
    SifRecipe,
    SvdRecipe,
    Word2vecRecipe,
)


def onehot() -> BagRecipe:
    """One-hot words and bags of words."""
    return BagRecipe(weighting="onehot")


def tfidf() -> BagRecipe:
    """The vector space model: bags of words weighted by inverse document frequency."""
    return replace(onehot(), weighting="tfidf")


def lsa() -> SvdRecipe:
    """Latent semantic analysis: truncated SVD of the word-document matrix."""
    return SvdRecipe()


def ppmi_svd() -> SvdRecipe:
    """Truncated SVD of positive pointwise mutual information in windows."""
    return replace(lsa(), matrix="windows", weighting="ppmi")


def brown() -> BrownRecipe:
    """Brown clusters: a binary tree of word classes that maximise mutual information."""
    return BrownRecipe()


def cbow() -> Word2vecRecipe:
    """Continuous bag of words: the context words predict the centre word."""
    return Word2vecRecipe(architecture="cbow")


def skipgram() -> Word2vecRecipe:
    """Skip-gram: a word predicts each of its context words."""
    return replace(cbow(), architecture="skipgram")


def phrases() -> Word2vecRecipe:
    """Skip-gram over words and phrases, such as new_york_times."""
    return replace(skipgram(), phrases=2)


def fasttext() -> Word2vecRecipe:
    """Skip-gram with words composed of character n-grams, so that unknown words have vectors too."""
    return replace(skipgram(), min_n=3, max_n=6)


def fasttext_classifier() -> ClassifierRecipe:
    """fastText classifier: a linear model over the mean of word and word n-gram vectors."""
    return ClassifierRecipe()


def glove() -> GloveRecipe:
    """GloVe: dot products fitted to the logarithms of co-occurrence counts."""
    return GloveRecipe()


def multi_prototype() -> SenseRecipe:
    """A vector for each sense of a word, induced by clustering its contexts."""
    return SenseRecipe(base=skipgram())


def pv_dm() -> ParagraphRecipe:
    """Paragraph vectors: the document and the context words predict each word."""
    return ParagraphRecipe()


def pv_dm_concat() -> ParagraphRecipe:
    """The same with the vectors concatenated, so that word order matters."""
    return replace(pv_dm(), combine="concat")


def pv_dbow() -> ParagraphRecipe:
    """Paragraph vectors: the document alone predicts its words."""
    return replace(pv_dm(), architecture="dbow")


def sif() -> SifRecipe:
    """Sentences as means of word vectors weighted by inverse frequency, less their common component."""
    return SifRecipe()
