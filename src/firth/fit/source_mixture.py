"""Batches of several kinds of text: of each objective of sentence vectors, and of the running text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from firth.errors import CorpusError, RecipeError
from firth.fit.batches import Batches, Cursor
from firth.fit.labelled_pairs import read_pair_labels
from firth.fit.layouts import ObjectiveBatches
from firth.fit.mixed_corpus import NEEDED, MixedCorpus
from firth.fit.mixture import ROUND, EpochSource, MixtureSource
from firth.fit.sentence_batches import SentenceBatches
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.heads.sentences import SentenceHead
from firth.objectives.sentences import LabelledObjective, SentenceObjective
from firth.objectives.sequences import Integers
from firth.text.corpus import Corpus
from firth.tokens.build import open_store
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer

_TEXT = "text"  # the name of the objectives that are trained on sequences of running text, all in the same batches


class NamedSource(NamedTuple):
    """The batches of an objective, or of several that are trained on the same ones."""

    name: str
    batches: Batches
    share: float
    """Fraction of the steps; 0: an equal part of what others leave."""


class SourceMixture(MixtureSource):
    """A mixture of the batches of objectives, by their shares of the steps."""

    def __init__(self, sources: Sequence[NamedSource], seed: int) -> None:
        self.names = tuple(one.name for one in sources)
        batches: list[EpochSource] = [one.batches for one in sources]
        super().__init__(batches, step_shares([one.share for one in sources]), seed)

    def remarks(self) -> list[str]:
        """What the user should know about the texts."""
        return [remark for one in self.sources if isinstance(one, Batches) for remark in one.remarks()]

    def metrics(self, cursor: Cursor) -> dict[str, Any]:
        """The mixture up to a cursor, and what is not trained on, for the manifest."""
        counts = Counter[str]()
        for one in self.sources:
            counts.update(one.metrics() if isinstance(one, Batches) else {})
        return {"mixture": self.report(cursor), **counts}

    def report(self, cursor: Cursor) -> dict[str, Any]:
        """For each objective the share of the steps that is planned, the steps before a cursor, and its tokens."""
        found = {}
        for number, (name, source) in enumerate(zip(self.names, self.sources, strict=True)):
            within = int((self._order(cursor.epoch)[: cursor.row] == number).sum())
            steps = cursor.epoch * self.quotas[number] + within
            found[name] = {"share": self.quotas[number] / ROUND, "steps": steps, "tokens": source.tokens}
        return found


def step_shares(shares: Sequence[float]) -> list[float]:
    """The fraction of the steps of each source; those without one divide the rest equally.

    >>> [round(one, 4) for one in step_shares([0.1, 0, 0, 0])]
    [0.1, 0.3, 0.3, 0.3]
    >>> [round(one, 4) for one in step_shares([0.2, 0.6])]
    [0.25, 0.75]
    """
    free = shares.count(0)
    given = sum(shares)
    if free and given >= 1:
        raise RecipeError(
            f"the shares of objectives add up to {given:g} and leave no steps for others: lower one of them."
        )
    if not free:
        return [one / given for one in shares]
    return [one or (1 - given) / free for one in shares]


def source_mixture(
    recipe: NetRecipe,
    corpus: Corpus,
    tokenizer: Tokenizer,
    heads: Sequence[ObjectiveHead],
    seed: int,
    threads: int | None,
) -> SourceMixture:
    """The batches of every objective whose kind of text the corpus has."""
    kinds = corpus.sources if isinstance(corpus, MixedCorpus) else (("text", corpus),)
    texts = dict(kinds)
    stores = {kind: open_store(text, tokenizer, threads) for kind, text in kinds}
    sources: list[NamedSource] = []
    running = [one for one in heads if not one.objective.groups_sentences and one.objective.source == "text"]
    if running and "text" in stores:
        batches = ObjectiveBatches(recipe, stores["text"], running, seed, 1.0, 0)
        sources.append(NamedSource(_TEXT, batches, 0.0))
    for head in heads:
        kind = head.objective.source
        if not isinstance(head, SentenceHead) or kind not in stores:
            continue
        labels = document_labels(head.objective, texts[kind], stores[kind], tokenizer)
        groups = SentenceBatches(recipe, stores[kind], head, seed, labels)
        sources.append(NamedSource(head.name, groups, _share(head.objective)))
    if not sources:
        wanted = next(one.objective.source for one in heads)
        raise CorpusError(f"{recipe.names[0]} is measured on {NEEDED[wanted]}.")
    return SourceMixture(sources, seed)


def _share(objective: Objective) -> float:
    return objective.share if isinstance(objective, SentenceObjective) else 0.0


def document_labels(objective: Objective, corpus: Corpus, store: TokenStore, tokenizer: Tokenizer) -> Integers | None:
    """The labels of the documents of a text of labelled pairs; None for an objective of other texts."""
    if not isinstance(objective, LabelledObjective):
        return None
    names, complete = objective.known_labels, objective.needs_all_labelled
    return read_pair_labels(corpus, store, tokenizer, names, complete=complete)
