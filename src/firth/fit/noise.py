"""What the objectives of a recipe do to a text, beside what their papers state. Nothing is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from firth.errors import ArgumentError, RecipeError
from firth.fit import resolve
from firth.fit.batches import Batches, Cursor, vocabulary_of
from firth.fit.knowledge import note_links, open_knowledge, require_knowledge, with_entities, without_common_words
from firth.fit.layouts import LaidOutBatches, ObjectiveMixture, staged_batches, with_material
from firth.fit.run import Text, open_corpus
from firth.fit.units import note_units, recipe_columns
from firth.nets.batch import Batch
from firth.nets.network import Network
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.head import Corruption, ObjectiveHead
from firth.objectives.sequences import Integers
from firth.recipes.table import find_recipe
from firth.recipes.values import Settings, override, setting_list
from firth.tokens.build import open_tokens
from firth.tokens.gazetteer import read_gazetteer
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import MASK

TOKENS = 200_000
"""Tokens of text that are measured by default."""


def noise(
    recipe: str | NetRecipe,
    *corpora: Text,
    tokens: int = TOKENS,
    settings: Settings = (),
    seed: int = 0,
    threads: int | None = None,
    field: str = "text",
    encoding: str | None = None,
    layout: str = "auto",
    entities: str | Path | None = None,
    knowledge: str | Path | None = None,
) -> dict[str, Any]:
    """For each objective of a recipe what it does to a text and what its paper states; nothing is trained.

    Returns the keys `recipe`, `tokens` (of the text that was measured: `tokens` or more, if there are as many),
    `length` (of a sequence, at most) and `objectives`, each of which has `measured` and `stated` numbers by name.
    Shares are of the tokens of text (`chosen`, `predicted`), of the chosen tokens (`masked`, `random`, `kept`), of the
    sequences (`first` and `last`: whose first or last token is chosen), of the spans (`spans of N` words), of the words
    with a chosen token (`whole words`: all of whose tokens are), and of the pairs (`negative`). An objective whose
    noise changes in stages of the training has an entry for each, such as `mlm.phrase`. `entities` is a file of them,
    `knowledge` the folder of a trained graph whose entities a network reads.
    """
    found = _with_objectives(recipe, settings)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise ArgumentError(f"--tokens must be a number of 1 or more, not {tokens!r:.80}: set it to {TOKENS}, say.")
    corpus = open_corpus(corpora, field, encoding, layout)
    sized = resolve.resolve_vocabulary(found, setting_list(settings), corpus).recipe
    require_knowledge(found, knowledge)
    graph = None if knowledge is None else open_knowledge(knowledge, entities)
    if graph is not None and found.tokenizer.lowercase:
        graph = without_common_words(graph, corpus.sentences())
    gazetteer = graph.gazetteer if graph is not None else None if entities is None else read_gazetteer(entities)
    tokenizer, store = open_tokens(sized.tokenizer, corpus, threads, recipe_columns(sized, gazetteer, graph))
    sized = with_material(sized, store, setting_list(settings))
    note_units(sized.columns, store, gazetteer)
    if graph is not None:
        sized = with_entities(sized, graph.arrays(tokenizer))
        note_links(store, graph)
    length = min(sized.sequence.length, resolve.useful_length(sized, store))
    sized = replace(sized.with_tokenizer(tokenizer.recipe), sequence=replace(sized.sequence, length=length))
    with torch.device("meta"):  # noise needs no weights
        made = make_heads(sized, Network(sized, vocabulary_of(tokenizer, store)))
    heads = {name: head for name, head in made.items() if _changes_text(head.objective)}
    entries, total = dict[str, Any](), 0
    for begin in sized.stages:
        measured, read = _measure(sized, store, heads, seed, begin, -(-tokens // len(sized.stages)))
        total += read
        for one in sized.objectives:
            if one.name in measured and one.weight_at(begin):
                entries[_stage_name(one, begin)] = {
                    "measured": measured[one.name].shares(),
                    "stated": one.at(begin).published_noise(),
                }
    return {
        "recipe": recipe if isinstance(recipe, str) else "",
        "tokens": total,
        "length": length,
        "objectives": entries,
    }


def _measure(
    recipe: NetRecipe, store: TokenStore, heads: Mapping[str, ObjectiveHead], seed: int, begin: float, tokens: int
) -> tuple[dict[str, NoiseCounts], int]:
    """What each objective does in the stage at a fraction of the training, and the tokens that were measured.

    One that makes sequences of its own is measured in those, the others in the sequences of the text.
    """
    source = staged_batches(recipe, store, list(heads.values()), seed).at(begin)
    sources = source.sources if isinstance(source, ObjectiveMixture) else (source,)
    measured, total = dict[str, NoiseCounts](), 0
    for batches in sources:
        assert isinstance(batches, Batches)
        own = batches.objectives[:1] if isinstance(batches, LaidOutBatches) else batches.objectives
        counts = {head.name: NoiseCounts() for head in own}
        cursor, read = Cursor(), 0
        while read < tokens and cursor.epoch == 0:
            parts, cursor = batches.step(cursor)
            for batch in parts:
                read += batch.tokens
                for head in own:
                    counts[head.name].add(head, batch)
        measured, total = measured | counts, total + read
    return measured, total


def _stage_name(objective: Objective, begin: float) -> str:
    """The name of an objective, with that of its stage if it has several."""
    stage = objective.at(begin).stage_name if objective.stages else ""
    return f"{objective.name}.{stage}" if stage else objective.name


def _with_objectives(recipe: str | NetRecipe, settings: Settings) -> NetRecipe:
    """The recipe of a network with its settings; raises unless it has an objective."""
    if not isinstance(recipe, str | NetRecipe):
        raise ArgumentError(f"recipe must be the name of one, such as bert, not a {type(recipe).__name__}.")
    found = override(find_recipe(recipe) if isinstance(recipe, str) else recipe, setting_list(settings))
    if not isinstance(found, NetRecipe) or not any(map(_changes_text, found.objectives)):
        name = recipe if isinstance(recipe, str) else "the recipe"
        raise RecipeError(f"{name} has no training objective that could change a text: name one such as bert.")
    return found


def _changes_text(objective: Objective) -> bool:
    """Whether it may have noise in running text: not in translations and labelled pairs, nor in whole sentences."""
    return objective.source == "text" and not objective.groups_sentences


class NoiseCounts:
    """Counts of what an objective has done to batches."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.spans: Counter[int] = Counter()
        self.further: dict[str, tuple[float, float]] = {}

    def add(self, head: ObjectiveHead, batch: Batch) -> None:
        """Count a batch that the objective has corrupted."""
        ids = batch.ids.flatten()
        corruption, labels = head.corruption(batch), head.pair_labels(batch)
        is_text = head.changeable(batch).flatten().numpy()
        self.counts["text"] += int(is_text.sum())
        self.counts["predicted"] += head.count(batch)
        for name, (count, of) in head.shares(batch).items():
            before = self.further.get(name, (0.0, 0.0))
            self.further[name] = (before[0] + count, before[1] + of)
        if labels is not None:
            self.counts["pairs"] += int((labels >= 0).sum())
            self.counts["negative"] += int((labels == 1).sum())
        if corruption is not None:
            self.counts["changeable"] += int(is_text.sum())
            self._add_tokens(corruption, ids[corruption.positions].numpy())
            self._add_places(corruption, batch, is_text, head.counts_words)

    def _add_tokens(self, corruption: Corruption, now: Integers) -> None:
        before = corruption.targets.numpy()
        self.counts["chosen"] += before.size
        self.counts["masked"] += int((now == MASK).sum())
        self.counts["kept"] += int((now == before).sum())
        self.counts["random"] += int(((now != MASK) & (now != before)).sum())

    def _add_places(self, corruption: Corruption, batch: Batch, is_text: Any, counts_words: bool) -> None:
        positions, groups = corruption.positions.numpy(), corruption.groups.numpy()
        is_chosen = np.zeros(is_text.size, dtype=bool)
        is_chosen[positions] = True
        # Words end at special tokens, whether the next token begins one or not.
        starts = batch.word_starts.flatten().numpy() | ~np.concatenate([[False], is_text[:-1]])
        begins_group = np.ones(positions.size, dtype=bool)
        begins_group[1:] = groups[1:] != groups[:-1]
        is_unit = starts[positions] | begins_group if counts_words else np.ones(positions.size)
        words = np.bincount(groups, weights=is_unit) if groups.size else np.zeros(0)
        self.spans.update(words.astype(int)[words > 0].tolist())
        word = np.cumsum(starts) - 1
        chosen, whole = (np.bincount(word, weights=one & is_text) for one in (is_chosen, is_text))
        self.counts["words"] += int((chosen > 0).sum())
        self.counts["whole words"] += int(((chosen > 0) & (chosen == whole)).sum())
        length = batch.shape[1]
        sequence = np.zeros(is_text.size) if batch.sequence_ids is None else batch.sequence_ids.flatten().numpy()
        key = (np.arange(is_text.size) // length * length + sequence)[is_text]
        for name, order in (("first", slice(None)), ("last", slice(None, None, -1))):
            ends = np.unique(key[order], return_index=True)[1]
            self.counts[name] += int(is_chosen[is_text.nonzero()[0][order][ends]].sum())
        self.counts["sequences"] += np.unique(key).size

    def shares(self) -> dict[str, float]:
        """The shares that the counts are about, in the order of `noise`."""
        of = {"chosen": "changeable", "masked": "chosen", "random": "chosen", "kept": "chosen", "first": "sequences"}
        of |= {"last": "sequences", "whole words": "words", "negative": "pairs", "predicted": "text"}
        found = {name: self.counts[name] / self.counts[all_of] for name, all_of in of.items() if self.counts[all_of]}
        found |= {name: count / of for name, (count, of) in self.further.items() if of}
        if spans := self.spans.total():
            found["mean span"] = sum(length * count for length, count in self.spans.items()) / spans
            found |= {span_name(length): self.spans[length] / spans for length in sorted(self.spans)}
        return found


def span_name(length: int) -> str:
    """The name of the share of spans of some words."""
    return f"spans of {length}"


def noise_rows(objectives: dict[str, Any]) -> Iterable[Sequence[Any]]:
    """Objective, name, measured and stated number of all that `noise` has found; None where there is none."""
    for name, found in objectives.items():
        for what in dict.fromkeys([*found["measured"], *found["stated"]]):
            yield name, what, found["measured"].get(what), found["stated"].get(what)
