"""Reading batches back: what each part of each row holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

from firth.fit.batches import Batches, Cursor
from firth.nets.batch import Batch
from firth.nets.network import build_network
from firth.nets.recipe import Format, NetRecipe
from firth.objectives.heads.build import make_heads
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import EOS, MASK, PAD
from tests.objectives.small_stores import (
    random_documents,
    small_vocabulary,
    store_of,
)

SEQUENCES: tuple[Format, ...] = ("sentences", "full-sentences", "doc-sentences", "segment-pair", "sentence-pair")
FORMATS: tuple[Format, ...] = ("stream", "contiguous", *SEQUENCES)
VOCABULARY = 60_000


def some_text(folder: Path) -> TokenStore:
    """A text of some thousand tokens in documents and sentences of all sizes; words are of two tokens."""
    documents = random_documents(np.random.default_rng(0), 40, longest=40)
    return store_of(documents, folder, every=2, vocabulary=VOCABULARY)


def batches_of(recipe: NetRecipe, store: TokenStore, seed: int = 0, corrupt: bool = True) -> Batches:
    network = build_network(recipe, small_vocabulary(VOCABULARY if corrupt else 40), 0)
    objectives = make_heads(recipe, network)
    return Batches(recipe, store, list(objectives.values()) if corrupt else [], seed)


def one_epoch(batches: Batches, epoch: int = 0, length: int | None = None) -> list[list[Batch]]:
    """The batches of each step of an epoch."""
    steps, cursor = [], Cursor(epoch, 0)
    while cursor.epoch == epoch:
        step, cursor = batches.step(cursor, length)
        steps.append(step)
    assert cursor == Cursor(epoch + 1, 0)
    return steps


def parts_of(batch: Batch) -> Iterator[tuple[list[int], list[int]]]:
    """The ids and segments of each part of each row; checks what must hold for all parts."""
    rows, width = batch.shape
    ids, zeros = batch.ids.tolist(), [[0] * width] * rows
    parts = zeros if batch.sequence_ids is None else batch.sequence_ids.tolist()
    positions = [[*range(width)]] * rows if batch.position_ids is None else batch.position_ids.tolist()
    segments = zeros if batch.segment_ids is None else batch.segment_ids.tolist()
    for row in range(rows):
        begin = 0
        for part, group in enumerate(groupby(parts[row])):
            number, end = group[0], begin + len(list(group[1]))
            if number < 0:
                assert (ids[row][begin:], end) == ([PAD] * (width - begin), width)
                break
            assert number == part
            assert positions[row][begin:end] == list(range(end - begin))
            yield ids[row][begin:end], segments[row][begin:end]
            begin = end


def parts_in(steps: list[list[Batch]]) -> list[tuple[list[int], list[int]]]:
    return [part for step in steps for batch in step for part in parts_of(batch)]


def words(ids: list[int]) -> list[int]:
    return [token for token in ids if token > MASK]


def stream_of(store: TokenStore) -> list[list[int]]:
    """Each document as `EOS s1 EOS s2 EOS`."""
    documents = []
    for number in range(store.info.documents):
        documents.append([EOS])
        for sentence in store.document(number):
            documents[-1] += [*sentence.tolist(), EOS]
    return documents
