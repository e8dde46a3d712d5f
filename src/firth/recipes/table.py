"""The tables of all recipes that can be trained and of members made by fine-tuning, and their lineage."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from firth.errors import ArgumentError, near_miss
from firth.recipes import counts, denoising, graphs, knowledge, nets, recurrent, sentences, tokenizers, unified, vectors
from firth.recipes.families import Recipe

_FAMILIES = {"graphs": "vectors"} | dict.fromkeys(
    ("denoising", "knowledge", "recurrent", "sentences", "unified"), "nets"
)
"""Of files that are not named after their family."""
_SHORT_NAME = re.compile(r"([a-z]+)([0-9]{1,3})")


@dataclass(frozen=True)
class RecipeEntry:
    """A recipe, its publication, and the recipes that it descends from."""

    make: Callable[[], Recipe]
    family: str
    year: int
    paper: str
    parents: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """A description of one line."""
        return (inspect.getdoc(self.make) or "").splitlines()[0]


@dataclass(frozen=True)
class FinetunedEntry:
    """A member of the lineage that is not trained on text, but made of a trained model by fine-tuning."""

    about: str
    year: int
    paper: str
    parents: tuple[str, ...]
    command: str
    """How it is made."""
    family: str = "tasks"


def _entry(make: Callable[[], Recipe], year: int, paper: str, *parents: str) -> RecipeEntry:
    module = make.__module__.rpartition(".")[2]
    return RecipeEntry(make, _FAMILIES.get(module, module), year, paper, parents)


_SHANNON = "Shannon, A Mathematical Theory of Communication"
_SHANNON_1951 = "Shannon, Prediction and Entropy of Printed English"
_RADFORD = "Radford et al., Language Models are Unsupervised Multitask Learners"
_CHEN_AND_GOODMAN = "Chen and Goodman, An Empirical Study of Smoothing Techniques for Language Modeling"
_KATZ = "Katz, Estimation of Probabilities from Sparse Data for the Language Model Component"
_KNESER_AND_NEY = "Kneser and Ney, Improved Backing-off for M-gram Language Modeling"
_BROWN = "Brown et al., Class-Based n-gram Models of Natural Language"
_MIKOLOV = "Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality"
_LE_AND_MIKOLOV = "Le and Mikolov, Distributed Representations of Sentences and Documents"
_CER = "Cer et al., Universal Sentence Encoder"

# fmt: off
RECIPES: dict[str, RecipeEntry] = {
    "words": _entry(tokenizers.words, 1948, _SHANNON),
    "chars": _entry(tokenizers.chars, 1951, _SHANNON_1951, "words"),
    "wordpiece": _entry(tokenizers.wordpiece, 2012, "Schuster and Nakajima, Japanese and Korean Voice Search", "chars"),
    "bpe": _entry(tokenizers.bpe, 2016,
        "Sennrich et al., Neural Machine Translation of Rare Words with Subword Units", "chars"),
    "pieces": _entry(tokenizers.pieces, 2018, "Kudo, Subword Regularization", "bpe"),
    "byte-bpe": _entry(tokenizers.byte_bpe, 2019, _RADFORD, "bpe"),
    "unigram": _entry(counts.unigram, 1948, _SHANNON),
    "mle": _entry(counts.mle, 1951, _SHANNON_1951, "unigram"),
    "ngram": _entry(counts.ngram, 1998, _CHEN_AND_GOODMAN, "mle"),
    "laplace": _entry(counts.laplace, 1951, "after Laplace, Théorie analytique des probabilités", "mle"),
    "additive": _entry(counts.additive, 1951, "after Lidstone and Jeffreys", "laplace"),
    "good-turing": _entry(counts.good_turing, 1953,
        "Good, The Population Frequencies of Species and the Estimation of Population Parameters", "mle"),
    "katz": _entry(counts.katz, 1987, _KATZ, "good-turing"),
    "katz3": _entry(counts.katz3, 1987, _KATZ, "katz"),
    "church-gale": _entry(counts.church_gale, 1991,
        "Church and Gale, A Comparison of the Enhanced Good-Turing and Deleted Estimation Methods", "good-turing"),
    "jelinek-mercer": _entry(counts.jelinek_mercer, 1980,
        "Jelinek and Mercer, Interpolated Estimation of Markov Source Parameters", "mle"),
    "witten-bell": _entry(counts.witten_bell, 1991, "Witten and Bell, The Zero-Frequency Problem", "jelinek-mercer"),
    "absolute": _entry(counts.absolute, 1994,
        "Ney et al., On Structuring Probabilistic Dependences in Stochastic Language Modelling", "jelinek-mercer"),
    "bayes": _entry(counts.bayes, 1995, "MacKay and Peto, A Hierarchical Dirichlet Language Model", "additive"),
    "kneser-ney": _entry(counts.kneser_ney, 1995, _KNESER_AND_NEY, "absolute"),
    "kn3": _entry(counts.kn3, 1995, _KNESER_AND_NEY, "kneser-ney"),
    "kn5": _entry(counts.kn5, 1995, _KNESER_AND_NEY, "kn3"),
    "modified-kneser-ney": _entry(counts.modified_kneser_ney, 1998, _CHEN_AND_GOODMAN, "kneser-ney"),
    "mkn3": _entry(counts.mkn3, 1998, _CHEN_AND_GOODMAN, "modified-kneser-ney"),
    "mkn5": _entry(counts.mkn5, 1998, _CHEN_AND_GOODMAN, "mkn3"),
    "pitman-yor": _entry(counts.pitman_yor, 2006,
        "Teh, A Hierarchical Bayesian Language Model Based on Pitman-Yor Processes", "kneser-ney"),
    "stupid-backoff": _entry(counts.stupid, 2007, "Brants et al., Large Language Models in Machine Translation", "mle"),
    "cache": _entry(counts.cache, 1990,
        "Kuhn and De Mori, A Cache-Based Natural Language Model for Speech Recognition", "mle"),
    "decaying-cache": _entry(counts.decaying_cache, 1997,
        "Clarkson and Robinson, Language Model Adaptation Using Mixtures and an Exponentially Decaying Cache", "cache"),
    "kn5-cache": _entry(counts.kn5_cache, 2001,
        "Goodman, A Bit of Progress in Language Modeling", "decaying-cache", "mkn5"),
    "mixture": _entry(counts.mixture, 1999,
        "Iyer and Ostendorf, Modeling Long Distance Dependence in Language: Topic Mixtures", "kn3"),
    "maxent": _entry(counts.maxent, 1996,
        "Rosenfeld, A Maximum Entropy Approach to Adaptive Statistical Language Modeling", "cache"),
    "class-ngram": _entry(counts.class_ngram, 1992, _BROWN, "mle"),
    "onehot": _entry(vectors.onehot, 1954, "Harris, Distributional Structure"),
    "tfidf": _entry(vectors.tfidf, 1975, "Salton et al., A Vector Space Model for Automatic Indexing", "onehot"),
    "lsa": _entry(vectors.lsa, 1990, "Deerwester et al., Indexing by Latent Semantic Analysis", "tfidf"),
    "brown": _entry(vectors.brown, 1992, _BROWN, "onehot"),
    "ppmi-svd": _entry(vectors.ppmi_svd, 2014,
        "Levy and Goldberg, Neural Word Embedding as Implicit Matrix Factorization", "lsa"),
    "multi-prototype": _entry(vectors.multi_prototype, 2012,
        "Huang et al., Improving Word Representations via Global Context and Multiple Word Prototypes", "onehot"),
    "cbow": _entry(vectors.cbow, 2013,
        "Mikolov et al., Efficient Estimation of Word Representations in Vector Space", "onehot"),
    "skipgram": _entry(vectors.skipgram, 2013, _MIKOLOV, "cbow"),
    "phrases": _entry(vectors.phrases, 2013, _MIKOLOV, "skipgram"),
    "glove": _entry(vectors.glove, 2014, "Pennington et al., GloVe: Global Vectors for Word Representation", "lsa"),
    "sif": _entry(
        vectors.sif, 2017, "Arora et al., A Simple but Tough-to-Beat Baseline for Sentence Embeddings", "skipgram"
    ),
    "transe": _entry(
        graphs.transe, 2013, "Bordes et al., Translating Embeddings for Modeling Multi-relational Data", "skipgram"
    ),
    "distmult": _entry(
        graphs.distmult, 2015, "Yang et al., Embedding Entities and Relations for Learning and Inference", "transe"
    ),
    "rotate": _entry(
        graphs.rotate, 2019, "Sun et al., RotatE: Knowledge Graph Embedding by Relational Rotation", "transe"
    ),
    "pv-dm": _entry(vectors.pv_dm, 2014, _LE_AND_MIKOLOV, "cbow"),
    "pv-dm-concat": _entry(vectors.pv_dm_concat, 2014, _LE_AND_MIKOLOV, "pv-dm"),
    "pv-dbow": _entry(vectors.pv_dbow, 2014, _LE_AND_MIKOLOV, "skipgram"),
    "fasttext": _entry(vectors.fasttext, 2017,
        "Bojanowski et al., Enriching Word Vectors with Subword Information", "skipgram"),
    "fasttext-classifier": _entry(vectors.fasttext_classifier, 2017,
        "Joulin et al., Bag of Tricks for Efficient Text Classification", "fasttext"),
    "xu-bigram": _entry(nets.xu_bigram, 2000,
        "Xu and Rudnicky, Can Artificial Neural Networks Learn Language Models?", "mle"),
    "ffnn": _entry(nets.ffnn, 2003, "Bengio et al., A Neural Probabilistic Language Model", "xu-bigram"),
    "lbl": _entry(nets.lbl, 2007,
        "Mnih and Hinton, Three New Graphical Models for Statistical Language Modelling", "ffnn"),
    "hlbl": _entry(nets.hlbl, 2008, "Mnih and Hinton, A Scalable Hierarchical Distributed Language Model", "lbl"),
    "senna": _entry(nets.senna, 2008,
        "Collobert and Weston, A Unified Architecture for Natural Language Processing", "ffnn"),
    "rnn": _entry(nets.rnn, 2010, "Mikolov et al., Recurrent Neural Network Based Language Model", "ffnn"),
    "lstm": _entry(nets.lstm, 2012, "Sundermeyer et al., LSTM Neural Networks for Language Modeling", "rnn"),
    "sa-lstm": _entry(nets.sa_lstm, 2015, "Dai and Le, Semi-supervised Sequence Learning", "lstm"),
    "ulmfit": _entry(recurrent.ulmfit, 2018,
        "Howard and Ruder, Universal Language Model Fine-tuning for Text Classification", "lstm"),
    "cnn-lm": _entry(nets.cnn_lm, 2017,
        "Dauphin et al., Language Modeling with Gated Convolutional Networks", "ffnn"),
    "context2vec": _entry(recurrent.context2vec, 2016,
        "Melamud et al., context2vec: Learning Generic Context Embedding with Bidirectional LSTM", "lstm", "cbow"),
    "transformer": _entry(nets.transformer, 2017, "Vaswani et al., Attention Is All You Need", "lstm"),
    "cove": _entry(recurrent.cove, 2017,
        "McCann et al., Learned in Translation: Contextualized Word Vectors", "lstm", "transformer"),
    "elmo": _entry(nets.elmo, 2018, "Peters et al., Deep Contextualized Word Representations", "lstm"),
    "gpt": _entry(nets.gpt, 2018,
        "Radford et al., Improving Language Understanding by Generative Pre-Training", "elmo"),
    "bert": _entry(nets.bert, 2018,
        "Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers", "gpt", "elmo"),
    "transformer-xl": _entry(nets.transformer_xl, 2019,
        "Dai et al., Transformer-XL: Attentive Language Models beyond a Fixed-Length Context", "gpt", "lstm"),
    "gpt2": _entry(nets.gpt2, 2019, _RADFORD, "gpt"),
    "bert-wwm": _entry(nets.bert_wwm, 2019,
        "Cui et al., Pre-Training with Whole Word Masking for Chinese BERT", "bert"),
    "ernie": _entry(knowledge.ernie, 2019,
        "Sun et al., ERNIE: Enhanced Representation through Knowledge Integration", "bert-wwm"),
    "ernie2": _entry(knowledge.ernie2, 2020,
        "Sun et al., ERNIE 2.0: A Continual Pre-training Framework for Language Understanding", "ernie"),
    "ernie-thu": _entry(knowledge.ernie_thu, 2019,
        "Zhang et al., ERNIE: Enhanced Language Representation with Informative Entities", "bert", "transe"),
    "roberta": _entry(nets.roberta, 2019,
        "Liu et al., RoBERTa: A Robustly Optimized BERT Pretraining Approach", "bert"),
    "spanbert": _entry(nets.spanbert, 2019,
        "Joshi et al., SpanBERT: Improving Pre-training by Representing and Predicting Spans", "bert"),
    "albert": _entry(nets.albert, 2019,
        "Lan et al., ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", "bert"),
    "xlm": _entry(nets.xlm, 2019, "Lample and Conneau, Cross-lingual Language Model Pretraining", "bert"),
    "xlnet": _entry(nets.xlnet, 2019,
        "Yang et al., XLNet: Generalized Autoregressive Pretraining for Language Understanding", "transformer-xl",
        "bert"),
    "unilm": _entry(unified.unilm, 2019,
        "Dong et al., Unified Language Model Pre-training for Natural Language Understanding and Generation", "bert",
        "gpt"),
    "gpt-bert": _entry(unified.gpt_bert, 2024,
        "Charpentier and Samuel, GPT or BERT: why not both?", "bert", "gpt"),
    "firth": _entry(unified.firth, 2026, "this package", "gpt-bert", "kn5-cache"),
    "bart": _entry(denoising.bart, 2020,
        "Lewis et al., BART: Denoising Sequence-to-Sequence Pre-training", "transformer", "bert"),
    "t5": _entry(denoising.t5, 2020,
        "Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        "transformer"),
    "t5-1.1": _entry(denoising.t5_1_1, 2020, "Shazeer, GLU Variants Improve Transformer", "t5"),
    "mass": _entry(denoising.mass, 2019,
        "Song et al., MASS: Masked Sequence to Sequence Pre-training for Language Generation", "transformer", "xlm"),
    "skip-thoughts": _entry(sentences.skip_thoughts, 2015, "Kiros et al., Skip-Thought Vectors", "lstm", "skipgram"),
    "quick-thoughts": _entry(sentences.quick_thoughts, 2018,
        "Logeswaran and Lee, An Efficient Framework for Learning Sentence Representations", "skip-thoughts"),
    "simcse": _entry(
        sentences.simcse, 2021, "Gao et al., SimCSE: Simple Contrastive Learning of Sentence Embeddings", "bert"
    ),
    "infersent": _entry(sentences.infersent, 2017,
        "Conneau et al., Supervised Learning of Universal Sentence Representations from Natural Language Inference",
        "lstm"),
    "use-transformer": _entry(sentences.use_transformer, 2018, _CER, "transformer", "infersent"),
    "gensen": _entry(sentences.gensen, 2018,
        "Subramanian et al., Learning General Purpose Distributed Sentence Representations via Multi-task Learning",
        "skip-thoughts", "infersent"),
    "use-dan": _entry(sentences.use_dan, 2018, _CER, "sif", "infersent"),
    "electra": _entry(nets.electra, 2020,
        "Clark et al., ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", "bert"),
}
FINETUNED: dict[str, FinetunedEntry] = {
    "mt-dnn": FinetunedEntry("BERT fine-tuned for several tasks at once, each with a head of its own.", 2019,
        "Liu et al., Multi-Task Deep Neural Networks for Natural Language Understanding", ("bert",),
        "firth finetune MODEL many --tasks FILE.toml"),
    "k-bert": FinetunedEntry("BERT fine-tuned on texts with facts of a knowledge graph inserted.", 2020,
        "Liu et al., K-BERT: Enabling Language Representation with Knowledge Graph", ("bert",),
        "firth finetune MODEL TASK --knowledge GRAPH.spo"),
}
# fmt: on


def find_entry(name: str) -> RecipeEntry:
    """The entry of that name; a wrong name raises `ArgumentError` with the nearest right one.

    >>> find_entry("mkn4").make().order
    4
    """
    short = _SHORT_NAME.fullmatch(name)
    if name not in RECIPES and short and short[1] in counts.SHORT:
        long = RECIPES[counts.SHORT[short[1]]]
        make: Callable[[], Any] = long.make

        @functools.wraps(make)  # with its description
        def make_order() -> Any:
            return replace(make(), order=int(short[2]))

        return replace(long, make=make_order)
    if name in FINETUNED:
        raise ArgumentError(f"{name} is made of a trained model, not of text: use {FINETUNED[name].command}.")
    if name not in RECIPES:
        raise ArgumentError(f"there is no recipe {name!r:.80}: {near_miss(name, RECIPES)}")
    return RECIPES[name]


def find_recipe(name: str) -> Recipe:
    """The recipe of that name.

    >>> find_recipe("wordpiece").vocab_size
    16000
    >>> find_recipe("wordpeice")
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: there is no recipe 'wordpeice': did you mean 'wordpiece'?
    """
    return find_entry(name).make()


def lineage() -> Iterator[tuple[int, str]]:
    """(depth, name) of all members of the lineage, each below its first parent, older ones first."""
    members = RECIPES | FINETUNED
    children: dict[str | None, list[str]] = {}
    for name, entry in members.items():
        children.setdefault(entry.parents[0] if entry.parents else None, []).append(name)

    def walk(parent: str | None, depth: int) -> Iterator[tuple[int, str]]:
        for name in sorted(children.get(parent, []), key=lambda name: (members[name].family, members[name].year)):
            yield depth, name
            yield from walk(name, depth + 1)

    return walk(None, 0)
