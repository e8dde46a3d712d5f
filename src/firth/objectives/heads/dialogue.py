"""Dialogue language modelling (Sun et al. 2019)."""

from __future__ import annotations

import numpy as np
import torch

from firth.nets.batch import Batch
from firth.objectives.heads.clm import first_positions
from firth.objectives.heads.layouts import LaidOutHead, truncate
from firth.objectives.sequences import Integers, Sequences, StoredText

_TURNS = 3
_FIRST_ROLE = 2  # after the two segments


class DialogueHead(LaidOutHead):
    """Class 0: three turns of a dialogue; 1: one of them is replaced.

    Roles are query (the speaker of the first turn) and response: QRQ, QRR or QQR.
    """

    segments = _TURNS

    @property
    def role_key(self) -> str:
        """The key of the roles of the second and third turn."""
        return f"{self.name}.roles"

    def find(self, text: StoredText) -> Integers:
        """(turns, 4): begin after `speaker:`, end, speaker and dialogue; a turn ends where the next one begins."""
        values, sentences = text.columns["turns"], text.sentences
        opening = np.flatnonzero(values[sentences[:-1]])
        begins = sentences[opening].copy()
        open_ = np.ones(opening.size, dtype=bool)
        while open_.any():
            open_ &= values[begins] > 0
            begins += open_
        documents = np.searchsorted(text.documents, opening, side="right") - 1
        following = np.append(opening[1:], text.sentences.size - 1)
        ends = sentences[np.minimum(following, text.documents[documents + 1])]
        return np.stack([begins, ends, values[sentences[opening]].astype(np.int64), documents], axis=1)

    def lay_out(self, examples: Integers, text: StoredText, limit: int, rng: np.random.Generator) -> Sequences:
        """Triples of turns, from a random one of the first three on; half have one replaced by that of another."""
        documents = examples[:, 3]
        firsts = np.searchsorted(documents, documents)
        turns = np.searchsorted(documents, documents, side="right") - firsts
        # A dialogue of three turns has a single triple.
        shift = np.floor(rng.random(len(text.documents))[documents] * np.clip(turns - 2, 1, _TURNS)).astype(np.int64)
        begins = (np.arange(len(examples)) - firsts - shift) % _TURNS == 0
        begins &= np.arange(len(examples)) - firsts >= shift
        first = np.flatnonzero(begins[: len(examples) - 2])
        first = first[documents[first] == documents[first + 2]]
        triples = first[:, None] + np.arange(_TURNS)
        is_response = examples[triples, 2] != examples[first, 2][:, None]
        triples, is_response = triples[is_response.any(1)], is_response[is_response.any(1)]
        labels = np.zeros(len(triples), dtype=np.int64)
        chosen = np.flatnonzero(rng.random(len(triples)) < 0.5)
        column = rng.integers(0, _TURNS, chosen.size)
        order = rng.permutation(chosen.size)
        partner = np.empty_like(order)
        partner[order] = np.roll(order, 1)
        differs = documents[triples[chosen, 0]] != documents[triples[chosen[partner], 0]]
        new = triples[chosen[partner], column]
        triples[chosen[differs], column[differs]] = new[differs]
        labels[chosen[differs]] = 1
        starts = examples[triples, 0]
        ends = truncate(starts, examples[triples, 1], limit)
        made = Sequences(starts, ends, limit, text.documents[:0], {}).with_labels(self.label_key, labels)
        return made.with_labels(self.role_key, 2 * is_response[:, 1] + is_response[:, 2])

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Replace the number of each turn by its role."""
        if self.role_key not in batch.labels or batch.segment_ids is None:
            return
        roles = batch.labels[self.role_key]
        is_first = torch.zeros(batch.ids.numel(), dtype=torch.bool)
        is_first[first_positions(batch)] = True
        sequence = (is_first.cumsum(0) - 1).clamp(min=0)
        table = torch.stack([torch.zeros_like(roles), roles // 2, roles % 2], 1)
        turn = batch.segment_ids.flatten().clamp(max=_TURNS - 1)
        batch.segment_ids = (_FIRST_ROLE + table[sequence, turn]).view(batch.shape)
