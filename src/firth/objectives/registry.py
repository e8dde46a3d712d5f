"""The objectives by name."""

from __future__ import annotations

from firth.errors import RecipeError, near_miss
from firth.nets.objective import Objective
from firth.objectives.bilm import BidirectionalLM
from firth.objectives.clm import Autoencoding, CausalLM
from firth.objectives.context import ContextWord
from firth.objectives.contrastive import Contrastive, ContrastiveNLI
from firth.objectives.dea import EntityDenoising
from firth.objectives.denoising import Denoising
from firth.objectives.dialogue import DialogueLM
from firth.objectives.discourse import DiscourseRelation
from firth.objectives.distance import SentenceDistance
from firth.objectives.fragments import MaskedFragment
from firth.objectives.generation import NeighbourGeneration, ParseGeneration, TranslationGeneration
from firth.objectives.matching import Neighbours, ResponseMatching
from firth.objectives.mlm import MaskedLM
from firth.objectives.mntp import MaskedNextToken
from firth.objectives.nli import NaturalLanguageInference
from firth.objectives.pairs import NextSentence, SentenceOrder
from firth.objectives.plm import PermutationLM
from firth.objectives.quick_thought import QuickThought
from firth.objectives.ranking import Ranking
from firth.objectives.relevance import Relevance
from firth.objectives.reordering import SentenceReordering
from firth.objectives.rtd import ReplacedTokens
from firth.objectives.sbo import SpanBoundary
from firth.objectives.seq2seq import SequenceToSequence
from firth.objectives.skip_thought import SkipThought
from firth.objectives.spans import SpanCorruption
from firth.objectives.tlm import TranslationLM
from firth.objectives.token_labels import Capitalisation, TokenDocument
from firth.objectives.unilm import UnifiedLM

OBJECTIVES: dict[str, type[Objective]] = {
    one.name: one
    for one in (
        CausalLM,
        BidirectionalLM,
        MaskedLM,
        NextSentence,
        SentenceOrder,
        Autoencoding,
        Ranking,
        SpanBoundary,
        ReplacedTokens,
        SequenceToSequence,
        TranslationLM,
        PermutationLM,
        UnifiedLM,
        MaskedNextToken,
        Denoising,
        SpanCorruption,
        MaskedFragment,
        DialogueLM,
        Capitalisation,
        TokenDocument,
        SentenceReordering,
        SentenceDistance,
        DiscourseRelation,
        Relevance,
        ContextWord,
        Contrastive,
        ContrastiveNLI,
        NaturalLanguageInference,
        Neighbours,
        ResponseMatching,
        NeighbourGeneration,
        TranslationGeneration,
        ParseGeneration,
        QuickThought,
        SkipThought,
        EntityDenoising,
    )
}


def find_objective(name: str) -> type[Objective]:
    """The objective of that name; a wrong name raises `RecipeError` with the nearest right one."""
    if name not in OBJECTIVES:
        raise RecipeError(f"there is no objective {name!r:.80}: {near_miss(name, OBJECTIVES)}")
    return OBJECTIVES[name]


def parse_objectives(text: str, given: tuple[Objective, ...] = ()) -> tuple[Objective, ...]:
    """The objectives of names joined by +; those that are given keep their settings.

    >>> [one.name for one in parse_objectives("mlm+nsp")]
    ['mlm', 'nsp']
    """
    known = {one.name: one for one in given}
    names = [name.strip() for name in text.split("+")]
    if len(set(names)) < len(names):
        raise RecipeError(f"objectives={text:.80} names one twice: leave it out.")
    return tuple(known[name] if name in known else find_objective(name)() for name in names)
