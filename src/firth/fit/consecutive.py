"""Batches of consecutive sentences, for objectives that predict the neighbours of a sentence.

A batch is a run of sentences, `learning.batch` tokens of them, packed into rows. Runs are in random order; where they
begin differs from epoch to epoch. Every sentence is a sequence `EOS a EOS` or `[CLS] a [SEP]`; a sentence longer than a
row is truncated. Stores have no sentences without tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from firth.errors import CorpusError
from firth.fit._cutting_kernels import count_longer
from firth.fit.batches import Batches
from firth.fit.rows import BatchRows, PackedRows, bounds_of, text_capacity
from firth.nets.batch import Batch
from firth.nets.sentence_vectors import sequence_ends
from firth.nets.special_tokens import start_token
from firth.objectives.sequences import DOCUMENTS, SENTENCES, Integers, Sequences
from firth.tokens.store import TokenStore

_SPECIAL = 2  # special tokens of a sequence
_NO_EDGES = np.zeros(0, dtype=np.int64)


class ConsecutiveBatches(Batches):
    """The batches of the sentences of a store. A micro-batch is one run."""

    @property
    def tokens(self) -> int:
        """Tokens of text in an epoch, without those that are truncated."""
        return int((self._sentences.ends - self._sentences.starts).sum())

    @property
    def split(self) -> int:
        """0: long sentences are truncated."""
        return 0

    @property
    def rows(self) -> int:
        """Runs of a step."""
        return self.recipe.learning.grad_accumulation

    def remarks(self) -> list[str]:
        counts, length = self.metrics(), self.recipe.sequence.length
        remarks = {
            "truncated_sentences": f"sentences were longer than {length} tokens and were truncated",
            "single_sentences": "sentences are alone in their documents and have no neighbours",
        }
        return [f"{counts[name]:,} {what}" for name, what in remarks.items() if name in counts]

    def metrics(self) -> dict[str, int]:
        sentences, documents = bounds_of(self.store)
        counts = {
            "truncated_sentences": int(count_longer(sentences, self._sentences.max_tokens)),
            "single_sentences": int(np.count_nonzero(np.diff(documents) == 1)),
        }
        return {name: count for name, count in counts.items() if count}

    @cached_property
    def _sentences(self) -> Sequences:
        """All sentences; one document at least must have two."""
        sentences, documents = bounds_of(self.store)
        if not (np.diff(documents) > 1).any():
            raise CorpusError(
                "no sentence of the text has a neighbour: give documents of two sentences or more, separated by blank "
                "lines."
            )
        limit = text_capacity("sentences", self.recipe.sequence.length)
        starts, ends = sentences[:-1], np.minimum(sentences[1:], sentences[:-1] + limit)
        owners = np.repeat(np.arange(len(documents) - 1), np.diff(documents))
        labels = {SENTENCES: np.arange(starts.size), DOCUMENTS: owners}
        return Sequences(starts[:, None], ends[:, None], limit, _NO_EDGES, labels)

    def _build_rows(self, seed: int, variant: int, length: int) -> BatchRows:
        # A shorter length, as in a first phase of training, would truncate sentences.
        size = max(1, self.recipe.learning.batch // self.recipe.learning.grad_accumulation)
        key = int(self.layout_rng(seed, variant).integers(2**62))
        rows = RunRows(self.store, self._sentences, self.recipe.sequence.length, size, key, start_token(self.recipe))
        rows.columns = self.recipe.columns
        return rows


class RunRows:
    """Runs of consecutive sentences, each of about `size` tokens, as the rows of an epoch."""

    def __init__(self, store: TokenStore, sentences: Sequences, length: int, size: int, key: int, opening: int) -> None:
        self.store, self.sentences, self._length, self._opening = store, sentences, length, opening
        self.columns: Sequence[str] = ()
        """The columns of the store that batches have."""
        lengths = (sentences.ends - sentences.starts)[:, 0] + _SPECIAL
        begins = np.cumsum(lengths) - lengths
        runs = (begins + key % size) // size  # the run in which a sentence begins
        firsts = np.flatnonzero(np.diff(runs, prepend=-1))
        self._bounds = np.append(firsts, lengths.size)

    @property
    def count(self) -> int:
        return self._bounds.size - 1

    @property
    def fill(self) -> float:
        packed = [self._packed(np.arange(self._bounds[one], self._bounds[one + 1])) for one in range(self.count)]
        return float(np.average([one.fill for one in packed], weights=[one.count for one in packed]))

    def batch(self, rows: Integers) -> Batch:
        members = np.concatenate([np.arange(self._bounds[row], self._bounds[row + 1]) for row in rows])
        packed = self._packed(members)
        batch = packed.batch(np.arange(packed.count))
        numbers = batch.labels[SENTENCES].numpy()
        rows_of = sequence_ends(batch).firsts.numpy() // batch.shape[1]
        batch.row_seeds = torch.from_numpy(numbers[np.searchsorted(rows_of, np.arange(batch.shape[0]))])
        return batch

    def _packed(self, members: Integers) -> PackedRows:
        """Some sentences, packed into rows."""
        starts, ends, limit, edges, labels = self.sentences
        chosen = {name: values[members] for name, values in labels.items()}
        sequences = Sequences(starts[members], ends[members], limit, edges, chosen)
        packed = PackedRows(self.store, sequences, self._length, self._opening, False, False)
        packed.columns = self.columns
        return packed
