"""Encoders with decoders that are pre-trained to restore text, each as a change of its ancestor."""

from __future__ import annotations

from dataclasses import replace

from firth.nets.recipe import LearningRecipe, NetRecipe, SamplingRecipe, SequenceRecipe
from firth.objectives.denoising import Denoising
from firth.objectives.fragments import MaskedFragment
from firth.objectives.spans import SpanCorruption
from firth.recipes.nets import transformer, xlm


def bart() -> NetRecipe:
    """An encoder and a decoder that restore texts with masked spans and sentences in another order."""
    base = transformer()
    part = replace(
        base.encoder, width=768, ffn_width=3072, heads=12, eps=1e-5, activation="gelu", attention_dropout=0.1
    )
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="byte-bpe", vocab_size=50_000),
        embedding=replace(base.embedding, width=768, positions="learned", norm=True, own_decoder=True),
        encoder=part,
        decoder=part,
        objectives=(Denoising(),),
        sequence=SequenceRecipe(format="doc-sentences", length=512),
        learning=LearningRecipe(batch=8192),
    )


def t5() -> NetRecipe:
    """An encoder and a decoder that write the missing spans of a text; distances instead of positions."""
    base = transformer()
    part = replace(
        base.encoder,
        layers=12,
        width=768,
        ffn_width=3072,
        heads=12,
        positions="buckets",
        norm="pre",
        rms=True,
        biases=False,
        init="fan-in",
        attention_dropout=0.1,
    )
    return replace(
        base,
        tokenizer=replace(base.tokenizer, model="pieces", vocab_size=32_000, sentinels=100),
        embedding=replace(base.embedding, width=768, positions="none", init="unit"),
        encoder=part,
        decoder=part,
        objectives=(SpanCorruption(),),
        output=replace(base.output, scaled=True),
        sequence=SequenceRecipe(format="doc-sentences", length=570),
        learning=LearningRecipe(schedule="inverse-sqrt", batch=65_536),
    )


def t5_1_1() -> NetRecipe:
    """T5 with gated feed-forward layers, an output layer of its own, and no dropout in pre-training."""
    base = t5()
    part = replace(base.encoder, activation="gelu-tanh", gated=True, ffn_width=2048, dropout=0.0, attention_dropout=0.0)
    return replace(
        base,
        embedding=replace(base.embedding, dropout=0.0),
        encoder=part,
        decoder=part,
        output=replace(base.output, kind="full", scaled=False),
    )


def mass() -> NetRecipe:
    """An encoder and a decoder that predict a masked half of each sentence from the other one."""
    base = xlm()
    part = replace(base.encoder, layers=6)
    return replace(
        base,
        embedding=replace(base.embedding, languages=0, own_decoder=True),
        encoder=part,
        decoder=part,
        objectives=(MaskedFragment(),),
        sequence=replace(base.sequence, format="sentences"),
        sampling=SamplingRecipe(),
    )
