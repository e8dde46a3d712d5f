"""Neural language models and pre-training, each as what it changed in the one before."""

from __future__ import annotations

from dataclasses import replace

from firth.nets.recipe import (
    EmbeddingRecipe,
    EncoderRecipe,
    LearningRecipe,
    MaskingRecipe,
    NetRecipe,
    OutputRecipe,
    RowsRecipe,
)
from firth.tokens.recipe import TokenizerRecipe

SIZES = ("tiny", "mini", "small", "base")
_TRANSFORMERS = {"tiny": (2, 128, 2), "mini": (4, 256, 4), "small": (4, 512, 8), "base": (12, 768, 12)}
"""Layers, width and heads (Turc et al. 2019); base is the recipe as published."""
_OTHERS = {"tiny": 64, "mini": 128, "small": 256}
_LENGTHS = {"tiny": 64, "mini": 128, "small": 128}


def resize(recipe: NetRecipe, size: str) -> NetRecipe:
    """The recipe in another size: base is the one that was published.

    >>> mini = resize(bert(), "mini")
    >>> mini.encoder.layers, mini.encoder.width, mini.encoder.inner, mini.encoder.heads
    (4, 256, 1024, 4)
    """
    if size == "base":
        return recipe
    encoder, embedding = recipe.encoder, recipe.embedding
    if encoder.kind != "transformer":
        width = min(_OTHERS[size], encoder.width)
        inner = encoder.inner * width // encoder.width
        return replace(
            recipe,
            embedding=replace(embedding, width=min(width, embedding.width)),
            encoder=replace(encoder, width=width, inner=inner),
        )
    layers, width, heads = _TRANSFORMERS[size]
    scaled = replace(encoder, layers=layers, width=width, heads=heads, inner=width * encoder.inner // encoder.width)
    tokens = width if embedding.width == encoder.width else min(embedding.width, width)
    length = min(_LENGTHS[size], recipe.rows.length)
    return replace(
        recipe,
        embedding=replace(embedding, width=tokens),
        encoder=scaled,
        rows=replace(recipe.rows, length=length),
    )


def _words() -> TokenizerRecipe:
    return TokenizerRecipe(model="words", vocab_size=10_000)


def xu_bigram() -> NetRecipe:
    """The word before decides, by a table and nothing hidden."""
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="words", vocab_size=2_000),
        embedding=EmbeddingRecipe(width=2_000),
        encoder=EncoderRecipe(
            kind="none", layers=0, width=2_000, inner=0, heads=1, norm="none", dropout=0.0, attention_dropout=0.0
        ),
        output=OutputRecipe(kind="direct"),
        learning=LearningRecipe(optimiser="adam", decay=0.0),
    )


def ffnn() -> NetRecipe:
    """Vectors of four words, a hidden layer, and the next word: the first neural language model."""
    return replace(
        xu_bigram(),
        tokenizer=_words(),
        embedding=EmbeddingRecipe(width=60),
        encoder=EncoderRecipe(
            kind="window",
            layers=1,
            width=100,
            inner=0,
            heads=1,
            context=4,
            direct=True,
            norm="none",
            activation="tanh",
            dropout=0.0,
            attention_dropout=0.0,
        ),
        output=OutputRecipe(kind="full"),
    )


def senna() -> NetRecipe:
    """Windows of real text are ranked above those with a wrong word in the middle."""
    base = ffnn()
    return replace(
        base,
        embedding=replace(base.embedding, width=50),
        encoder=replace(base.encoder, context=5, direct=False),
        visibility="bidirectional",
        objectives="ranking",
    )


def lbl() -> NetRecipe:
    """Log-bilinear: the words before give a vector, which is compared with every word's own."""
    base = ffnn()
    return replace(
        base,
        embedding=replace(base.embedding, width=100),
        encoder=replace(base.encoder, kind="bilinear", context=5, direct=False),
        output=OutputRecipe(kind="tied"),
    )


def hlbl() -> NetRecipe:
    """Log-bilinear with a tree of words that was learnt from their vectors."""
    return replace(lbl(), output=OutputRecipe(kind="tree"))


def rnn() -> NetRecipe:
    """A simple recurrent network: all words before, in one state."""
    base = ffnn()
    return replace(
        base,
        embedding=replace(base.embedding, width=200),
        encoder=replace(base.encoder, kind="rnn", width=200, context=0, direct=False),
    )


def lstm() -> NetRecipe:
    """Long short-term memory: gates decide what the state keeps."""
    base = rnn()
    return replace(
        base,
        embedding=replace(base.embedding, width=300, dropout=0.2),
        encoder=replace(base.encoder, kind="lstm", width=300, dropout=0.2),
    )


def sa_lstm() -> NetRecipe:
    """An LSTM that reads a sequence and then writes it again: pre-training by autoencoding."""
    base = lstm()
    return replace(base, objectives="autoencoding", rows=replace(base.rows, format="sentences"))


def elmo() -> NetRecipe:
    """Two LSTMs over letters, one from each side; their layers are the vectors of words in context."""
    base = lstm()
    return replace(
        base,
        tokenizer=TokenizerRecipe(model="words", vocab_size=30_000),
        embedding=replace(base.embedding, width=512, characters=True, dropout=0.1),
        encoder=replace(base.encoder, layers=2, width=512, inner=4096, skip=True, dropout=0.1),
        visibility="forward+backward",
        objectives="bilm",
        output=OutputRecipe(kind="adaptive"),
    )


def gpt() -> NetRecipe:
    """A Transformer that predicts the next token, to be fine-tuned whole."""
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="bpe", vocab_size=30_000),
        embedding=EmbeddingRecipe(width=768, positions="learned", dropout=0.1),
        encoder=EncoderRecipe(activation="gelu-tanh"),
        output=OutputRecipe(kind="tied", bias=False),
        rows=RowsRecipe(format="stream", length=512),
    )


def gpt2() -> NetRecipe:
    """GPT over bytes, normalised before each layer."""
    base = gpt()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="byte-bpe"),
        encoder=replace(base.encoder, norm="pre"),
        rows=replace(base.rows, length=1024),
    )


def bert() -> NetRecipe:
    """GPT made bidirectional: hidden tokens from both sides, and whether two segments go together."""
    base = gpt()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="wordpiece", lowercase=True),
        embedding=replace(base.embedding, segments=2, norm=True),
        encoder=replace(base.encoder, activation="gelu"),
        visibility="bidirectional",
        objectives="mlm+nsp",
        masking=MaskingRecipe(masks="duplicated"),
        output=OutputRecipe(kind="tied", transform=True),
        rows=replace(base.rows, format="segment-pair"),
    )


def bert_wwm() -> NetRecipe:
    """BERT that hides whole words: in Chinese those that a segmenter finds."""
    base = bert()
    return replace(base, masking=replace(base.masking, policy="word"))


def roberta() -> NetRecipe:
    """BERT without the judgement of pairs, over bytes, with other masks in every pass."""
    base = bert()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="byte-bpe", lowercase=False),
        embedding=replace(base.embedding, segments=0),
        objectives="mlm",
        masking=replace(base.masking, masks="dynamic"),
        rows=replace(base.rows, format="full-sentences"),
        learning=replace(base.learning, batch=8192),
    )


def albert() -> NetRecipe:
    """BERT with one layer used twelve times, narrow token vectors, and the order of two segments."""
    base = bert()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="pieces"),
        embedding=replace(base.embedding, width=128, dropout=0.0),
        encoder=replace(base.encoder, activation="gelu-tanh", share="all", dropout=0.0, attention_dropout=0.0),
        objectives="mlm+sop",
        masking=replace(base.masking, policy="ngram"),
        learning=replace(base.learning, optimiser="lamb"),
    )
