"""Encoders with decoders that are pre-trained to restore text, each as a change of its ancestor."""

from __future__ import annotations

from dataclasses import replace

from firth.nets.recipe import LearningRecipe, NetRecipe, SequenceRecipe
from firth.objectives.denoising import Denoising
from firth.recipes.nets import transformer


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
