"""Pre-training with knowledge of phrases and entities: ERNIE of Baidu."""

from __future__ import annotations

from dataclasses import replace

from firth.nets.recipe import NetRecipe
from firth.objectives.masking import Masking
from firth.objectives.mlm import MaskedLM
from firth.objectives.pairs import NextSentence
from firth.recipes.nets import bert


def ernie() -> NetRecipe:
    """BERT that masks words (in Chinese characters), then phrases, then entities."""
    masking = Masking(stages=("basic", "phrase", "entity"))
    return replace(bert(), objectives=(MaskedLM(masking=masking), NextSentence()))
