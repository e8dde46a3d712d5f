"""Recipes of sentence encoders."""

from __future__ import annotations

from dataclasses import replace

from firth.nets.recipe import (
    EmbeddingRecipe,
    EncoderRecipe,
    LearningRecipe,
    NetRecipe,
    OutputRecipe,
    SequenceRecipe,
)
from firth.objectives.contrastive import Contrastive
from firth.objectives.quick_thought import QuickThought
from firth.objectives.skip_thought import SkipThought
from firth.recipes.nets import bert
from firth.tokens.recipe import TokenizerRecipe


def simcse() -> NetRecipe:
    """BERT trained so that a sentence is nearest to itself, read again with other dropout."""
    base = bert()
    return replace(
        base,
        objectives=(Contrastive(),),
        output=replace(base.output, kind="none"),
        sequence=replace(base.sequence, format="sentences"),
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
