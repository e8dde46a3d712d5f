"""Neural language models and pre-training, each as a change of its ancestor."""

from __future__ import annotations

from dataclasses import replace

from firth.errors import ArgumentError, near_miss
from firth.nets.recipe import (
    EmbeddingRecipe,
    EncoderRecipe,
    LearningRecipe,
    MemoryRecipe,
    NetRecipe,
    OutputRecipe,
    SamplingRecipe,
    SequenceRecipe,
)
from firth.objectives.bilm import BidirectionalLM
from firth.objectives.clm import Autoencoding, CausalLM
from firth.objectives.masking import Masking
from firth.objectives.mlm import MaskedLM
from firth.objectives.pairs import NextSentence, SentenceOrder
from firth.objectives.plm import PermutationLM
from firth.objectives.ranking import Ranking
from firth.objectives.rtd import ReplacedTokens
from firth.objectives.sbo import SpanBoundary
from firth.objectives.seq2seq import SequenceToSequence
from firth.objectives.tlm import TranslationLM
from firth.tokens.recipe import TokenizerRecipe

SIZES = ("tiny", "mini", "small", "base")
_TRANSFORMERS = {"tiny": (2, 128, 2), "mini": (4, 256, 4), "small": (4, 512, 8), "base": (12, 768, 12)}
"""Layers, width and heads (Turc et al. 2019); base is the recipe as published."""
_OTHERS = {"tiny": 64, "mini": 128, "small": 256}
_LENGTHS = {"tiny": 64, "mini": 128, "small": 128}


def with_size(recipe: object, name: str, size: str) -> NetRecipe:
    """The recipe called `name` in another size; raises `ArgumentError` if it has no such size."""
    if not isinstance(recipe, NetRecipe) or recipe.output.kind == "direct":
        raise ArgumentError(f"{name} comes in one size: leave --size out.")
    if size not in SIZES:
        raise ArgumentError(f"there is no size {size!r:.80}: {near_miss(size, SIZES)}")
    return resize(recipe, size)


def resize(recipe: NetRecipe, size: str) -> NetRecipe:
    """The recipe in another size; base is the published one.

    >>> mini = resize(bert(), "mini")
    >>> mini.encoder.layers, mini.encoder.width, mini.encoder.ffn_width, mini.encoder.heads
    (4, 256, 1024, 4)
    """
    if size == "base":
        return recipe
    encoder, embedding = recipe.encoder, recipe.embedding
    if encoder.kind != "transformer":
        width = min(_OTHERS[size], encoder.width)
        inner = encoder.ffn_width * width // encoder.width
        decoder = recipe.decoder
        if decoder is not None:
            decoder = replace(decoder, width=decoder.width * width // encoder.width, cross_width=0)
        return replace(
            recipe,
            decoder=decoder,
            embedding=replace(embedding, width=min(width, embedding.width)),
            encoder=replace(
                encoder, width=width, ffn_width=inner, inner_width=encoder.inner_width * width // encoder.width
            ),
        )
    layers, width, heads = _TRANSFORMERS[size]
    scaled = replace(
        encoder, layers=layers, width=width, heads=heads, ffn_width=width * encoder.ffn_width // encoder.width
    )
    tokens = width if embedding.width == encoder.width else min(embedding.width, width)
    length = min(_LENGTHS[size], recipe.sequence.length)
    decoder = recipe.decoder
    if decoder is not None:
        inner = width * decoder.ffn_width // decoder.width
        decoder = replace(decoder, layers=layers, width=width, heads=heads, ffn_width=inner, cross_width=0)
    return replace(
        recipe,
        embedding=replace(embedding, width=tokens),
        encoder=scaled,
        decoder=decoder,
        sequence=replace(recipe.sequence, length=length),
        entities=replace(recipe.entities, text_layers=layers * recipe.entities.text_layers // encoder.layers),
        memory=replace(recipe.memory, length=min(_LENGTHS[size], recipe.memory.length)),
    )


def _words() -> TokenizerRecipe:
    return TokenizerRecipe(model="words", vocab_size=10_000)


def xu_bigram() -> NetRecipe:
    """A table of logits for the next word, given the previous one."""
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="words", vocab_size=2_000),
        embedding=EmbeddingRecipe(width=2_000),
        encoder=EncoderRecipe(
            kind="none", layers=0, width=2_000, ffn_width=0, heads=1, norm="none", dropout=0.0, attention_dropout=0.0
        ),
        objectives=(CausalLM(),),
        output=OutputRecipe(kind="direct"),
        learning=LearningRecipe(optimiser="adam", weight_decay=0.0),
    )


def ffnn() -> NetRecipe:
    """Feed-forward network over the vectors of four words: the first neural language model."""
    return replace(
        xu_bigram(),
        tokenizer=_words(),
        embedding=EmbeddingRecipe(width=60),
        encoder=EncoderRecipe(
            kind="window",
            layers=1,
            width=100,
            ffn_width=0,
            heads=1,
            context=4,
            direct_connections=True,
            norm="none",
            activation="tanh",
            dropout=0.0,
            attention_dropout=0.0,
        ),
        output=OutputRecipe(kind="full"),
    )


def senna() -> NetRecipe:
    """Ranks windows of text above those with a wrong word in the middle."""
    base = ffnn()
    return replace(
        base,
        embedding=replace(base.embedding, width=50),
        encoder=replace(base.encoder, context=5, direct_connections=False),
        visibility="bidirectional",
        objectives=(Ranking(),),
    )


def lbl() -> NetRecipe:
    """Log-bilinear: the dot product of every word vector with a linear combination of previous ones."""
    base = ffnn()
    return replace(
        base,
        embedding=replace(base.embedding, width=100),
        encoder=replace(base.encoder, kind="bilinear", context=5, direct_connections=False),
        output=OutputRecipe(kind="tied"),
    )


def hlbl() -> NetRecipe:
    """Log-bilinear with a tree of words built during training."""
    return replace(lbl(), output=OutputRecipe(kind="tree"))


def rnn() -> NetRecipe:
    """A simple recurrent network."""
    base = ffnn()
    return replace(
        base,
        embedding=replace(base.embedding, width=200),
        encoder=replace(base.encoder, kind="rnn", width=200, context=0, direct_connections=False),
    )


def lstm() -> NetRecipe:
    """Long short-term memory: a recurrent network with gates."""
    base = rnn()
    return replace(
        base,
        embedding=replace(base.embedding, width=300, dropout=0.2),
        encoder=replace(base.encoder, kind="lstm", width=300, dropout=0.2),
    )


def cnn_lm() -> NetRecipe:
    """Gated convolutions: a hidden state depends on a window that grows from layer to layer."""
    base = ffnn()
    return replace(
        base,
        tokenizer=TokenizerRecipe(model="words", vocab_size=30_000),
        embedding=replace(base.embedding, width=280),
        encoder=replace(base.encoder, kind="cnn", layers=8, width=900, context=4, direct_connections=False),
        output=OutputRecipe(kind="adaptive"),
    )


def sa_lstm() -> NetRecipe:
    """An LSTM pre-trained as a sequence autoencoder."""
    base = lstm()
    return replace(base, objectives=(Autoencoding(),), sequence=replace(base.sequence, format="sentences"))


def elmo() -> NetRecipe:
    """Forward and backward LSTMs over characters, whose layers are contextual word vectors."""
    base = lstm()
    return replace(
        base,
        tokenizer=TokenizerRecipe(model="words", vocab_size=30_000),
        embedding=replace(base.embedding, width=512, characters=True, dropout=0.1),
        encoder=replace(base.encoder, layers=2, width=512, ffn_width=4096, residual=True, dropout=0.1),
        visibility="forward+backward",
        objectives=(BidirectionalLM(),),
        output=OutputRecipe(kind="adaptive"),
    )


def gpt() -> NetRecipe:
    """A causal Transformer, to be fine-tuned."""
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="bpe", vocab_size=30_000),
        embedding=EmbeddingRecipe(width=768, positions="learned", dropout=0.1),
        encoder=EncoderRecipe(activation="gelu-tanh"),
        objectives=(CausalLM(),),
        output=OutputRecipe(kind="tied", bias=False),
        sequence=SequenceRecipe(format="stream", length=512),
    )


def gpt2() -> NetRecipe:
    """GPT over bytes with pre-normalisation."""
    base = gpt()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="byte-bpe"),
        encoder=replace(base.encoder, norm="pre"),
        sequence=replace(base.sequence, length=1024),
    )


def transformer_xl() -> NetRecipe:
    """GPT with relative positions and a memory of the previous segment, over words."""
    base = gpt()
    return replace(
        base,
        tokenizer=TokenizerRecipe(model="words", vocab_size=30_000),
        embedding=replace(base.embedding, width=410, positions="none", scaled=True),
        encoder=replace(
            base.encoder,
            layers=16,
            width=410,
            ffn_width=2100,
            heads=10,
            positions="relative",
            eps=1e-5,
            activation="relu",
            attention_dropout=0.0,
        ),
        output=OutputRecipe(kind="adaptive-tied"),
        sequence=SequenceRecipe(format="contiguous", length=150),
        memory=MemoryRecipe(length=150),
        learning=replace(
            base.learning, optimiser="adam", batch=9_000, schedule="cosine", warmup=0.0, weight_decay=0.0, clip=0.25
        ),
    )


def bert() -> NetRecipe:
    """GPT made bidirectional: masked language modelling and next-sentence prediction."""
    base = gpt()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="wordpiece", lowercase=True),
        embedding=replace(base.embedding, segments=2, norm=True),
        encoder=replace(base.encoder, activation="gelu"),
        visibility="bidirectional",
        objectives=(MaskedLM(masking=Masking(mode="duplicated")), NextSentence()),
        output=OutputRecipe(kind="tied", transform=True),
        sequence=replace(base.sequence, format="segment-pair"),
    )


def bert_wwm() -> NetRecipe:
    """BERT with whole-word masking; Chinese words are those of a segmenter."""
    return replace(bert(), objectives=(MaskedLM(masking=Masking(mode="duplicated", policy="word")), NextSentence()))


def roberta() -> NetRecipe:
    """BERT over bytes with new masks in every epoch, without next-sentence prediction."""
    base = bert()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="byte-bpe", lowercase=False),
        embedding=replace(base.embedding, segments=0),
        objectives=(MaskedLM(),),
        sequence=replace(base.sequence, format="full-sentences"),
        learning=replace(base.learning, batch=8192),
    )


def xlnet() -> NetRecipe:
    """Transformer-XL, bidirectional in use: some tokens are predicted in a random order."""
    base = transformer_xl()
    return replace(
        base,
        tokenizer=TokenizerRecipe(model="pieces", vocab_size=32_000),
        embedding=replace(base.embedding, width=768, scaled=False, query=True),
        encoder=replace(
            base.encoder,
            layers=12,
            width=768,
            ffn_width=3072,
            heads=12,
            tie_position_biases=False,
            segments="relative",
            eps=1e-12,
            activation="gelu",
            attention_dropout=0.1,
        ),
        visibility="bidirectional",
        objectives=(PermutationLM(),),
        output=OutputRecipe(kind="tied"),
        sequence=SequenceRecipe(format="contiguous-pair", length=512, reversed=True),
        memory=MemoryRecipe(length=384),
        learning=LearningRecipe(batch=8192),
    )


def spanbert() -> NetRecipe:
    """BERT that masks spans of words and predicts them from their boundaries, too; single sequences."""
    base = bert()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, lowercase=False),
        objectives=(MaskedLM(masking=Masking(policy="span", max_length=10)), SpanBoundary()),
        sequence=replace(base.sequence, format="doc-sentences"),
    )


def electra() -> NetRecipe:
    """BERT that finds the tokens that a small masked language model has replaced."""
    return replace(bert(), objectives=(ReplacedTokens(),), output=OutputRecipe(kind="none"))


def albert() -> NetRecipe:
    """BERT with tied layers, narrow token vectors and sentence-order prediction."""
    base = bert()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="pieces"),
        embedding=replace(base.embedding, width=128, dropout=0.0),
        encoder=replace(base.encoder, activation="gelu-tanh", tie_layers="all", dropout=0.0, attention_dropout=0.0),
        objectives=(MaskedLM(masking=Masking(mode="duplicated", policy="ngram")), SentenceOrder()),
        learning=replace(base.learning, optimiser="lamb"),
    )


def transformer() -> NetRecipe:
    """An encoder and a decoder made of attention alone, trained on pairs of a text and its translation."""
    part = EncoderRecipe(
        layers=6, width=512, ffn_width=2048, heads=8, eps=1e-6, activation="relu", attention_dropout=0.0
    )
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="bpe", vocab_size=37_000),
        embedding=EmbeddingRecipe(width=512, positions="sinusoidal", dropout=0.1),
        encoder=part,
        decoder=part,
        visibility="bidirectional",
        objectives=(SequenceToSequence(),),
        output=OutputRecipe(kind="tied", bias=False),
        sequence=SequenceRecipe(format="parallel", length=256),
        learning=LearningRecipe(
            optimiser="adam", batch=25_000, schedule="inverse-sqrt", warmup=0.04, weight_decay=0.0, clip=0.0
        ),
    )


def xlm() -> NetRecipe:
    """BERT in several languages: masked tokens of texts, and of pairs of a text and its translation."""
    base = bert()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="bpe", vocab_size=95_000),
        embedding=replace(base.embedding, width=1024, segments=0, languages=15),
        encoder=replace(base.encoder, width=1024, ffn_width=4096, heads=8),
        objectives=(MaskedLM(), TranslationLM()),
        output=replace(base.output, transform=False),
        sequence=replace(base.sequence, format="stream", length=256),
        sampling=SamplingRecipe(batches=0.7, vocabulary=0.5),
    )
