"""The literal table of everything that can be trained, and its lineage."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from firth.counts.recipe import NgramRecipe
from firth.errors import RecipeError, near_miss
from firth.recipes import counts, nets, tokenizers, vectors
from firth.recipes.families import Recipe

_SHORT_NAME = re.compile(r"([a-z]+)([0-9]+)")


@dataclass(frozen=True)
class Entry:
    """A recipe, when it was published, where, and what it descends from."""

    make: Callable[[], Recipe]
    family: str
    year: int
    paper: str
    parents: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """What it is, in a line."""
        return (inspect.getdoc(self.make) or "").splitlines()[0]


RECIPES: dict[str, Entry] = {
    "words": Entry(tokenizers.words, "tokenizers", 1948, "Shannon, A Mathematical Theory of Communication"),
    "chars": Entry(
        tokenizers.chars, "tokenizers", 1951, "Shannon, Prediction and Entropy of Printed English", ("words",)
    ),
    "wordpiece": Entry(
        tokenizers.wordpiece, "tokenizers", 2012, "Schuster and Nakajima, Japanese and Korean Voice Search", ("chars",)
    ),
    "bpe": Entry(
        tokenizers.bpe,
        "tokenizers",
        2016,
        "Sennrich et al., Neural Machine Translation of Rare Words with Subword Units",
        ("chars",),
    ),
    "pieces": Entry(tokenizers.pieces, "tokenizers", 2018, "Kudo, Subword Regularization", ("bpe",)),
    "byte-bpe": Entry(
        tokenizers.byte_bpe,
        "tokenizers",
        2019,
        "Radford et al., Language Models are Unsupervised Multitask Learners",
        ("bpe",),
    ),
    "unigram": Entry(counts.unigram, "counts", 1948, "Shannon, A Mathematical Theory of Communication"),
    "mle": Entry(counts.mle, "counts", 1951, "Shannon, Prediction and Entropy of Printed English", ("unigram",)),
    "ngram": Entry(
        counts.ngram,
        "counts",
        1998,
        "Chen and Goodman, An Empirical Study of Smoothing Techniques for Language Modeling",
        ("mle",),
    ),
    "laplace": Entry(counts.laplace, "counts", 1951, "after Laplace, Théorie analytique des probabilités", ("mle",)),
    "additive": Entry(counts.additive, "counts", 1951, "after Lidstone and Jeffreys", ("laplace",)),
    "good-turing": Entry(
        counts.good_turing,
        "counts",
        1953,
        "Good, The Population Frequencies of Species and the Estimation of Population Parameters",
        ("mle",),
    ),
    "katz": Entry(
        counts.katz,
        "counts",
        1987,
        "Katz, Estimation of Probabilities from Sparse Data for the Language Model Component",
        ("good-turing",),
    ),
    "katz3": Entry(
        counts.katz3,
        "counts",
        1987,
        "Katz, Estimation of Probabilities from Sparse Data for the Language Model Component",
        ("katz",),
    ),
    "church-gale": Entry(
        counts.church_gale,
        "counts",
        1991,
        "Church and Gale, A Comparison of the Enhanced Good-Turing and Deleted Estimation Methods",
        ("good-turing",),
    ),
    "jelinek-mercer": Entry(
        counts.jelinek_mercer,
        "counts",
        1980,
        "Jelinek and Mercer, Interpolated Estimation of Markov Source Parameters",
        ("mle",),
    ),
    "witten-bell": Entry(
        counts.witten_bell, "counts", 1991, "Witten and Bell, The Zero-Frequency Problem", ("jelinek-mercer",)
    ),
    "absolute": Entry(
        counts.absolute,
        "counts",
        1994,
        "Ney et al., On Structuring Probabilistic Dependences in Stochastic Language Modelling",
        ("jelinek-mercer",),
    ),
    "bayes": Entry(
        counts.bayes, "counts", 1995, "MacKay and Peto, A Hierarchical Dirichlet Language Model", ("additive",)
    ),
    "kneser-ney": Entry(
        counts.kneser_ney,
        "counts",
        1995,
        "Kneser and Ney, Improved Backing-off for M-gram Language Modeling",
        ("absolute",),
    ),
    "kn3": Entry(
        counts.kn3, "counts", 1995, "Kneser and Ney, Improved Backing-off for M-gram Language Modeling", ("kneser-ney",)
    ),
    "kn5": Entry(
        counts.kn5, "counts", 1995, "Kneser and Ney, Improved Backing-off for M-gram Language Modeling", ("kn3",)
    ),
    "modified-kneser-ney": Entry(
        counts.modified_kneser_ney,
        "counts",
        1998,
        "Chen and Goodman, An Empirical Study of Smoothing Techniques for Language Modeling",
        ("kneser-ney",),
    ),
    "mkn3": Entry(
        counts.mkn3,
        "counts",
        1998,
        "Chen and Goodman, An Empirical Study of Smoothing Techniques for Language Modeling",
        ("modified-kneser-ney",),
    ),
    "mkn5": Entry(
        counts.mkn5,
        "counts",
        1998,
        "Chen and Goodman, An Empirical Study of Smoothing Techniques for Language Modeling",
        ("mkn3",),
    ),
    "pitman-yor": Entry(
        counts.pitman_yor,
        "counts",
        2006,
        "Teh, A Hierarchical Bayesian Language Model Based on Pitman-Yor Processes",
        ("kneser-ney",),
    ),
    "stupid-backoff": Entry(
        counts.stupid, "counts", 2007, "Brants et al., Large Language Models in Machine Translation", ("mle",)
    ),
    "cache": Entry(
        counts.cache,
        "counts",
        1990,
        "Kuhn and De Mori, A Cache-Based Natural Language Model for Speech Recognition",
        ("mle",),
    ),
    "decaying-cache": Entry(
        counts.decaying_cache,
        "counts",
        1997,
        "Clarkson and Robinson, Language Model Adaptation Using Mixtures and an Exponentially Decaying Cache",
        ("cache",),
    ),
    "kn5-cache": Entry(
        counts.kn5_cache,
        "counts",
        2001,
        "Goodman, A Bit of Progress in Language Modeling",
        ("decaying-cache", "mkn5"),
    ),
    "mixture": Entry(
        counts.mixture,
        "counts",
        1999,
        "Iyer and Ostendorf, Modeling Long Distance Dependence in Language: Topic Mixtures",
        ("kn3",),
    ),
    "maxent": Entry(
        counts.maxent,
        "counts",
        1996,
        "Rosenfeld, A Maximum Entropy Approach to Adaptive Statistical Language Modeling",
        ("cache",),
    ),
    "class-ngram": Entry(
        counts.class_ngram, "counts", 1992, "Brown et al., Class-Based n-gram Models of Natural Language", ("mle",)
    ),
    "onehot": Entry(vectors.onehot, "vectors", 1954, "Harris, Distributional Structure"),
    "tfidf": Entry(
        vectors.tfidf, "vectors", 1975, "Salton et al., A Vector Space Model for Automatic Indexing", ("onehot",)
    ),
    "lsa": Entry(vectors.lsa, "vectors", 1990, "Deerwester et al., Indexing by Latent Semantic Analysis", ("tfidf",)),
    "brown": Entry(
        vectors.brown, "vectors", 1992, "Brown et al., Class-Based n-gram Models of Natural Language", ("onehot",)
    ),
    "ppmi-svd": Entry(
        vectors.ppmi_svd,
        "vectors",
        2014,
        "Levy and Goldberg, Neural Word Embedding as Implicit Matrix Factorization",
        ("lsa",),
    ),
    "multi-prototype": Entry(
        vectors.multi_prototype,
        "vectors",
        2012,
        "Huang et al., Improving Word Representations via Global Context and Multiple Word Prototypes",
        ("onehot",),
    ),
    "cbow": Entry(
        vectors.cbow,
        "vectors",
        2013,
        "Mikolov et al., Efficient Estimation of Word Representations in Vector Space",
        ("onehot",),
    ),
    "skipgram": Entry(
        vectors.skipgram,
        "vectors",
        2013,
        "Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality",
        ("cbow",),
    ),
    "phrases": Entry(
        vectors.phrases,
        "vectors",
        2013,
        "Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality",
        ("skipgram",),
    ),
    "glove": Entry(
        vectors.glove, "vectors", 2014, "Pennington et al., GloVe: Global Vectors for Word Representation", ("lsa",)
    ),
    "pv-dm": Entry(
        vectors.pv_dm,
        "vectors",
        2014,
        "Le and Mikolov, Distributed Representations of Sentences and Documents",
        ("cbow",),
    ),
    "pv-dm-concat": Entry(
        vectors.pv_dm_concat,
        "vectors",
        2014,
        "Le and Mikolov, Distributed Representations of Sentences and Documents",
        ("pv-dm",),
    ),
    "pv-dbow": Entry(
        vectors.pv_dbow,
        "vectors",
        2014,
        "Le and Mikolov, Distributed Representations of Sentences and Documents",
        ("skipgram",),
    ),
    "fasttext": Entry(
        vectors.fasttext,
        "vectors",
        2017,
        "Bojanowski et al., Enriching Word Vectors with Subword Information",
        ("skipgram",),
    ),
    "fasttext-classifier": Entry(
        vectors.fasttext_classifier,
        "vectors",
        2017,
        "Joulin et al., Bag of Tricks for Efficient Text Classification",
        ("fasttext",),
    ),
    "xu-bigram": Entry(
        nets.xu_bigram, "nets", 2000, "Xu and Rudnicky, Can Artificial Neural Networks Learn Language Models?", ("mle",)
    ),
    "ffnn": Entry(nets.ffnn, "nets", 2003, "Bengio et al., A Neural Probabilistic Language Model", ("xu-bigram",)),
    "lbl": Entry(
        nets.lbl,
        "nets",
        2007,
        "Mnih and Hinton, Three New Graphical Models for Statistical Language Modelling",
        ("ffnn",),
    ),
    "hlbl": Entry(
        nets.hlbl, "nets", 2008, "Mnih and Hinton, A Scalable Hierarchical Distributed Language Model", ("lbl",)
    ),
    "senna": Entry(
        nets.senna,
        "nets",
        2008,
        "Collobert and Weston, A Unified Architecture for Natural Language Processing",
        ("ffnn",),
    ),
    "rnn": Entry(nets.rnn, "nets", 2010, "Mikolov et al., Recurrent Neural Network Based Language Model", ("ffnn",)),
    "lstm": Entry(nets.lstm, "nets", 2012, "Sundermeyer et al., LSTM Neural Networks for Language Modeling", ("rnn",)),
    "sa-lstm": Entry(nets.sa_lstm, "nets", 2015, "Dai and Le, Semi-supervised Sequence Learning", ("lstm",)),
    "elmo": Entry(nets.elmo, "nets", 2018, "Peters et al., Deep Contextualized Word Representations", ("lstm",)),
    "gpt": Entry(
        nets.gpt, "nets", 2018, "Radford et al., Improving Language Understanding by Generative Pre-Training", ("elmo",)
    ),
    "bert": Entry(
        nets.bert, "nets", 2018, "Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers", ("gpt", "elmo")
    ),
    "gpt2": Entry(
        nets.gpt2, "nets", 2019, "Radford et al., Language Models are Unsupervised Multitask Learners", ("gpt",)
    ),
    "bert-wwm": Entry(
        nets.bert_wwm, "nets", 2019, "Cui et al., Pre-Training with Whole Word Masking for Chinese BERT", ("bert",)
    ),
    "roberta": Entry(
        nets.roberta, "nets", 2019, "Liu et al., RoBERTa: A Robustly Optimized BERT Pretraining Approach", ("bert",)
    ),
    "albert": Entry(
        nets.albert,
        "nets",
        2019,
        "Lan et al., ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
        ("bert",),
    ),
}


def find_entry(name: str) -> Entry:
    """The entry of that name; a wrong one raises `RecipeError` with the nearest right one.

    >>> find_entry("mkn4").make().order
    4
    """
    short = _SHORT_NAME.fullmatch(name)
    if name not in RECIPES and short and short[1] in counts.SHORT:
        long = RECIPES[counts.SHORT[short[1]]]
        return replace(long, make=lambda: override_order(long.make(), int(short[2])))
    if name not in RECIPES:
        raise RecipeError(f"there is no recipe {name!r}: {near_miss(name, RECIPES)}")
    return RECIPES[name]


def override_order(recipe: Recipe, order: int) -> Recipe:
    """The same n-gram recipe with another order."""
    assert isinstance(recipe, NgramRecipe)
    return replace(recipe, order=order)


def find_recipe(name: str) -> Recipe:
    """The recipe of that name.

    >>> find_recipe("wordpiece").vocab_size
    16000
    >>> find_recipe("wordpeice")
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: there is no recipe 'wordpeice': did you mean 'wordpiece'?
    """
    return find_entry(name).make()


def lineage() -> Iterator[tuple[int, str]]:
    """(depth, name) of all recipes, each below its first parent, older ones first."""
    children: dict[str | None, list[str]] = {}
    for name, entry in RECIPES.items():
        children.setdefault(entry.parents[0] if entry.parents else None, []).append(name)

    def walk(parent: str | None, depth: int) -> Iterator[tuple[int, str]]:
        for name in sorted(children.get(parent, []), key=lambda name: (RECIPES[name].family, RECIPES[name].year)):
            yield depth, name
            yield from walk(name, depth + 1)

    return walk(None, 0)
