"""Networks that read in several ways, each as a change of its ancestor."""

from __future__ import annotations

from dataclasses import replace

from firth.nets.ngrams_recipe import NgramsRecipe
from firth.nets.recipe import NetRecipe
from firth.objectives.mntp import MaskedNextToken
from firth.objectives.unilm import UnifiedLM
from firth.recipes.nets import bert


def unilm() -> NetRecipe:
    """BERT that also reads from left to right, from right to left, and a source before a target."""
    base = bert()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, lowercase=False),
        embedding=replace(base.embedding, segments=6),
        objectives=(UnifiedLM(),),
    )


def gpt_bert() -> NetRecipe:
    """BERT that predicts one position early, in some rows from the left alone, so that it also generates."""
    base = bert()
    return replace(
        base,
        tokenizer=replace(base.tokenizer, lowercase=False),
        embedding=replace(base.embedding, segments=0),
        objectives=(MaskedNextToken(),),
        sequence=replace(base.sequence, format="doc-sentences"),
    )


def firth() -> NetRecipe:
    """GPT-BERT beside a 5-gram model with a cache: what is most useful after minutes of training."""
    base = gpt_bert()
    return replace(base, objectives=(MaskedNextToken(causal=0.25),), ngrams=NgramsRecipe(order=5))
