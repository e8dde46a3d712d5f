"""Pre-training with knowledge: ERNIE of Baidu, by phrases and entities, and of Tsinghua, by a graph."""

from __future__ import annotations

from dataclasses import replace

from firth.nets.entity_recipe import EntitiesRecipe
from firth.nets.recipe import NetRecipe
from firth.objectives.dea import EntityDenoising
from firth.objectives.dialogue import ROLES, DialogueLM
from firth.objectives.discourse import DiscourseRelation
from firth.objectives.distance import SentenceDistance
from firth.objectives.masking import Masking
from firth.objectives.mlm import MaskedLM
from firth.objectives.pairs import NextSentence
from firth.objectives.relevance import Relevance
from firth.objectives.reordering import SentenceReordering
from firth.objectives.token_labels import Capitalisation, TokenDocument
from firth.recipes.nets import bert


def ernie() -> NetRecipe:
    """BERT that masks words (in Chinese characters), then phrases, then entities; and reads dialogues."""
    base = bert()
    return replace(
        base,
        embedding=replace(base.embedding, segments=2 + ROLES),
        objectives=(
            MaskedLM(masking=Masking(stages=("basic", "phrase", "entity"))),
            NextSentence(),
            DialogueLM(),
        ),
    )


def ernie2() -> NetRecipe:
    """ERNIE that learns more and more tasks: of words, of the order of sentences, of their relations."""
    base = ernie()
    sentences = (
        SentenceReordering(begin=0.5),
        SentenceDistance(begin=0.5),
        DiscourseRelation(begin=0.75),
        Relevance(begin=0.75),
    )
    return replace(
        base,
        embedding=replace(base.embedding, segments=2, tasks=1 + len(sentences)),
        objectives=(base.objectives[0], Capitalisation(begin=0.25), TokenDocument(begin=0.25), *sentences),
        sequence=replace(base.sequence, format="doc-sentences"),
        sampling=replace(base.sampling, batches=0.5),
    )


def ernie_thu() -> NetRecipe:
    """BERT that fuses tokens with the entities of a knowledge graph, and restores corrupted ones."""
    base = bert()
    return replace(
        base,
        entities=EntitiesRecipe(width=100, text_layers=5),
        objectives=(*base.objectives, EntityDenoising()),
    )
