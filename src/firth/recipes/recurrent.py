"""Recurrent networks that are pre-trained to be fine-tuned or to give features."""

from __future__ import annotations

from dataclasses import replace

from firth.nets.recipe import EmbeddingRecipe, NetRecipe, OutputRecipe, SequenceRecipe
from firth.objectives.clm import CausalLM
from firth.objectives.context import ContextWord
from firth.objectives.seq2seq import SequenceToSequence
from firth.recipes.nets import lstm
from firth.tokens.recipe import TokenizerRecipe


def ulmfit() -> NetRecipe:
    """AWD-LSTM: three layers with much dropout, to be fine-tuned on the text of a task and then for it."""
    base = lstm()
    return replace(
        base,
        tokenizer=TokenizerRecipe(model="words", vocab_size=30_000),
        embedding=replace(base.embedding, width=400, dropout=0.4, variational_dropout=True, token_dropout=0.05),
        encoder=replace(
            base.encoder,
            layers=3,
            width=400,
            inner_width=1150,
            dropout=0.3,
            variational_dropout=True,
            output_dropout=0.4,
            weight_drop=0.5,
        ),
        objectives=(CausalLM(activation_penalty=2.0, temporal_penalty=1.0),),
        output=OutputRecipe(kind="tied"),
        learning=replace(base.learning, beta1=0.7, beta2=0.99),
    )


def context2vec() -> NetRecipe:
    """Forward and backward LSTMs over the words around a gap; contexts and words share a vector space."""
    base = lstm()
    return replace(
        base,
        tokenizer=TokenizerRecipe(model="words", vocab_size=30_000),
        embedding=replace(base.embedding, width=600, per_direction=True, dropout=0.0),
        encoder=replace(base.encoder, width=600, dropout=0.0),
        visibility="forward+backward",
        objectives=(ContextWord(),),
        output=OutputRecipe(kind="negative", samples=10),
        sequence=replace(base.sequence, format="sentences"),
    )


def cove() -> NetRecipe:
    """The bidirectional LSTM of a translation model with attention, whose states are features for tasks."""
    part = replace(lstm().encoder, layers=2, width=600, dropout=0.2)
    return replace(
        lstm(),
        tokenizer=TokenizerRecipe(model="words", vocab_size=50_000),
        embedding=EmbeddingRecipe(width=300, dropout=0.2, init="unit"),
        encoder=replace(part, kind="bilstm"),
        decoder=part,
        visibility="bidirectional",
        objectives=(SequenceToSequence(label_smoothing=0.0),),
        sequence=SequenceRecipe(format="parallel", length=64),
    )
