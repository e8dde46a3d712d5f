"""Batches of packed sequences for objectives that restore text, and what they have made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from firth.nets.batch import Batch
from firth.nets.network import Network, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.head import ObjectiveHead
from firth.recipes.nets import resize
from firth.recipes.table import RECIPES
from firth.tokens.tokenizer import BOS, EOS
from tests.objectives.small_stores import small_vocabulary

VOCABULARY = 2000
Ids = list[int]


def small(name: str, length: int = 600, **settings: Any) -> NetRecipe:
    """A tiny network with an objective of some settings."""
    tiny: Any = resize(RECIPES[name].make(), "tiny")  # type: ignore[arg-type]
    part = replace(tiny.encoder, layers=1, width=8, ffn_width=12, heads=2, dropout=0.0, attention_dropout=0.0)
    return replace(
        tiny,
        embedding=replace(tiny.embedding, width=8, dropout=0.0),
        encoder=part,
        decoder=part,
        objectives=tuple(replace(one, **settings) for one in tiny.objectives),
        sequence=replace(tiny.sequence, length=length),
    )


def built(recipe: NetRecipe) -> tuple[ObjectiveHead, Network]:
    network = build_network(recipe, small_vocabulary(VOCABULARY), 1)
    (head,) = make_heads(recipe, network).values()
    return head, network


def packed(texts: list[list[Ids]], word: int = 1, padding: int = 0, seeds: int = 0) -> Batch:
    """Texts of sentences in one row; a word begins at every `word`-th token of a sentence."""
    ids, sequences, positions, words, sentences = [], [], [], [], []
    for number, text in enumerate(texts):
        tokens = [BOS, *(token for sentence in text for token in sentence), EOS]
        starts = [index % word == 0 for sentence in text for index in range(len(sentence))]
        firsts = [index == 0 for sentence in text for index in range(len(sentence))]
        ids += tokens
        sequences += [number] * len(tokens)
        positions += range(len(tokens))
        words += [True, *starts, True]
        sentences += [False, *firsts, False]
    rows = [ids + [0] * padding, words + [True] * padding, sequences + [-1] * padding, positions + [0] * padding]
    tensors = [torch.tensor([row]) for row in rows]
    return Batch(
        *tensors, sentence_starts=torch.tensor([sentences + [False] * padding]), row_seeds=torch.tensor([seeds])
    )


def corrupted(recipe: NetRecipe, batch: Batch, seed: int = 0) -> list[tuple[Ids, Ids, Ids, Ids]]:
    """For each sequence its source without special tokens, the decoder's input, its positions, and the targets."""
    head, _ = built(recipe)
    return corrupt(head, batch, seed)


def corrupt(head: ObjectiveHead, batch: Batch, seed: int = 0) -> list[tuple[Ids, Ids, Ids, Ids]]:
    head.corrupt(batch, np.random.default_rng(seed))
    assert batch.source is not None
    parts = []
    for side in (batch.source, batch):
        given = torch.zeros_like(side.ids) if side.sequence_ids is None else side.sequence_ids
        assert side.position_ids is not None
        parts.append((side.ids, given, side.position_ids))
    (source, of_source, source_positions), (target, of_target, positions) = parts
    targets = torch.zeros_like(target)
    targets[of_target >= 0] = batch.labels[f"{head.name}.targets"]
    found = []
    for row in range(len(target)):
        for number in range(int(of_target[row].max()) + 1):
            own, mine = of_source[row] == number, of_target[row] == number
            ids = source[row, own].tolist()
            assert (ids[0], source_positions[row, own].tolist()) == (BOS, list(range(len(ids))))
            found.append((ids, *(each[row, mine].tolist() for each in (target, positions, targets))))
    return [(source, *rest) for source, *rest in found]  # type: ignore[misc]


def numbers(*sizes: int, first: int = 10) -> list[Ids]:
    """Sentences of distinct ids."""
    ends = first + np.cumsum(sizes)
    return [list(range(end - size, end)) for end, size in zip(ends.tolist(), sizes, strict=True)]
