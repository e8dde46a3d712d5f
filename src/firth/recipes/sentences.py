"""Recipes of sentence encoders."""

from __future__ import annotations

from dataclasses import replace

from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, LearningRecipe, NetRecipe, OutputRecipe, SequenceRecipe
from firth.nets.sentence_recipe import SentenceRecipe
from firth.objectives.contrastive import Contrastive
from firth.objectives.generation import NeighbourGeneration, ParseGeneration, TranslationGeneration
from firth.objectives.matching import Neighbours, ResponseMatching
from firth.objectives.nli import NaturalLanguageInference
from firth.objectives.quick_thought import QuickThought
from firth.objectives.skip_thought import SkipThought
from firth.recipes.nets import bert, lstm
from firth.tokens.recipe import TokenizerRecipe


def simcse() -> NetRecipe:
    """BERT trained so that a sentence is nearest to itself, read again with other dropout."""
    base = bert()
    return replace(
        base,
        objectives=(Contrastive(),),
        output=replace(base.output, kind="none"),
        sequence=replace(base.sequence, format="sentences"),
        sentence=SentenceRecipe(pooling="first"),
    )


def infersent() -> NetRecipe:
    """A bidirectional LSTM with max pooling, trained by natural language inference on labelled pairs."""
    base = lstm()
    return replace(
        base,
        tokenizer=TokenizerRecipe(model="words", vocab_size=50_000),
        embedding=EmbeddingRecipe(width=300, init="unit"),
        encoder=replace(base.encoder, kind="bilstm", width=4096, dropout=0.0),
        visibility="bidirectional",
        objectives=(NaturalLanguageInference(),),
        output=OutputRecipe(kind="none"),
        sequence=SequenceRecipe(format="sentences"),
        sentence=SentenceRecipe(pooling="max"),
        learning=replace(base.learning, clip=5.0, batch=2048),
    )


def use_transformer() -> NetRecipe:
    """A Transformer whose states are summed, trained by neighbours, responses and inference."""
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="words", vocab_size=50_000, lowercase=True),
        embedding=EmbeddingRecipe(width=512, positions="sinusoidal", dropout=0.1),
        encoder=EncoderRecipe(layers=6, width=512, ffn_width=2048, heads=8, activation="relu"),
        visibility="bidirectional",
        objectives=(NaturalLanguageInference(layers=1, activation="relu"), Neighbours(), ResponseMatching()),
        output=OutputRecipe(kind="none"),
        sequence=SequenceRecipe(format="sentences"),
        sentence=SentenceRecipe(pooling="sqrt", similarity="angular"),
        learning=LearningRecipe(optimiser="adam", weight_decay=0.0),
    )


def use_dan() -> NetRecipe:
    """A deep averaging network over words and bigrams, trained by the tasks of use-transformer."""
    base = use_transformer()
    return replace(
        base,
        embedding=EmbeddingRecipe(width=512),
        encoder=EncoderRecipe(
            kind="none",
            layers=0,
            width=512,
            ffn_width=0,
            heads=1,
            norm="none",
            activation="relu",
            dropout=0.0,
            attention_dropout=0.0,
        ),
        sentence=SentenceRecipe(pooling="mean", bigrams=200_000, layers=2, similarity="angular"),
        learning=replace(base.learning, lr=0.002),
    )


def gensen() -> NetRecipe:
    """A bidirectional GRU trained by neighbours, inference and, where given, translation and parsing."""
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="words", vocab_size=50_000, lowercase=True),
        embedding=EmbeddingRecipe(width=512),
        encoder=EncoderRecipe(
            kind="gru", layers=1, width=1024, ffn_width=0, heads=1, norm="none", dropout=0.3, attention_dropout=0.0
        ),
        visibility="forward+backward",
        objectives=(
            NaturalLanguageInference(layers=1, activation="relu", share=0.1),
            NeighbourGeneration(),
            TranslationGeneration(),
            ParseGeneration(),
        ),
        output=OutputRecipe(kind="none"),
        sequence=SequenceRecipe(format="sentences"),
        sentence=SentenceRecipe(pooling="ends"),
        learning=LearningRecipe(optimiser="adam", batch=2048, weight_decay=0.0),
    )


def skip_thoughts() -> NetRecipe:
    """A GRU reads a sentence, and two decoders write the sentences before and after it from its vector."""
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="words", vocab_size=20_000, lowercase=True),
        embedding=EmbeddingRecipe(width=620),
        encoder=EncoderRecipe(
            kind="gru", layers=1, width=2400, ffn_width=0, heads=1, norm="none", dropout=0.0, attention_dropout=0.0
        ),
        visibility="causal",
        objectives=(SkipThought(),),
        output=OutputRecipe(kind="full"),
        sequence=SequenceRecipe(format="consecutive", length=32),
        learning=LearningRecipe(optimiser="adam", batch=2048, clip=5.0, weight_decay=0.0),
    )


def quick_thoughts() -> NetRecipe:
    """Skip-thoughts without decoders: a sentence finds its neighbours among those of its batch."""
    base = skip_thoughts()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, vocab_size=50_000),
        encoder=replace(base.encoder, width=600),
        visibility="forward+backward",
        objectives=(QuickThought(),),
        output=OutputRecipe(kind="none"),
        learning=replace(base.learning, batch=8192),
    )
