"""ContextNet: words and the contexts around them in one vector space (context2vec)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.abilities import POOLINGS
from firth.errors import ArgumentError, near_miss
from firth.lm.language_model import TokenStream
from firth.nets.batch import Batch
from firth.nets.contextual_vectors import Floats
from firth.nets.masked import MaskedNet
from firth.nets.network import HiddenStates
from firth.nets.outputs.negative import NegativeSampling
from firth.nets.scoring import LogProbs, length_groups, make_batch, target_logprobs
from firth.progress import progress
from firth.tokens.tokenizer import EOS, MASK, UNK


def states_around(states: HiddenStates, positions: Tensor) -> Tensor:
    """(positions, width): the forward states before some positions and the backward states after them."""
    half = states.last_hidden_state.shape[-1] // 2
    return torch.cat([states.at(positions - 1)[:, :half], states.at(positions + 1)[:, half:]], 1)


class ContextNet(MaskedNet):
    """Scores, fills and embeds by the context on both sides of a word, which never includes the word itself."""

    @property
    def layer(self) -> NegativeSampling:
        """The output layer, which has the vectors of words and makes those of contexts."""
        assert isinstance(self.network.output, NegativeSampling)
        return self.network.output

    def mask_states(self, batch: Batch, positions: Tensor) -> Tensor:
        """(positions, width): the states around positions; other masks are unknown words, which training has."""
        read = replace(batch, ids=batch.ids.masked_fill(batch.ids == MASK, UNK))
        needed = torch.unique(torch.cat([positions - 1, positions + 1]))
        return states_around(self.network(read, needed), positions)

    def logits(self, ids: Tensor) -> Tensor:
        """(batch, length, vocabulary): the logits of the word at each position of `ids`, given those around it.

        Before the first and after the last there is an end of sentence.
        """
        self.check_ids(ids)
        ends = torch.full((len(ids), 1), EOS)
        rows = torch.cat([ends, ids, ends], 1)
        inside = torch.arange(rows.numel()).view_as(rows)[:, 1:-1].flatten()
        with torch.no_grad():
            return self.layer.logits(self.mask_states(make_batch(rows), inside)).view(*ids.shape, -1)

    @cached_property
    def vectors(self) -> Floats:
        """(vocabulary, width): the vectors of words as targets, of which `similar` compares the directions."""
        return np.array(self.layer.targets.detach().numpy())

    def embed(self, texts: Sequence[str], *, layer: str | int = "last", pooling: str | None = None) -> Floats:
        """(texts, width): the vector of the context around the `[MASK]` of each text, comparable with those of words.

        A text without a mask has that of the contexts of its words, and one with several that of these masks: pooled
        by mean, max, first or last. Layers other than the last are hidden states as of all networks.
        """
        if layer != "last":
            return super().embed(texts, layer=layer, pooling=pooling)
        pooling = "mean" if pooling is None else pooling
        if pooling not in POOLINGS:
            raise ArgumentError(f"there is no pooling {pooling!r:.80}: {near_miss(str(pooling), POOLINGS)}")
        every = self.masked_ids(texts)
        found = np.zeros((len(texts), self.layer.targets.shape[1]), dtype=np.float32)
        groups = length_groups(np.array([len(ids) for ids in every], dtype=np.int64), equal=True)
        with torch.inference_mode(), progress("reading", len(texts), "texts") as advance:
            for group in groups:
                if every[group[0]]:
                    found[group] = self._pooled([every[one] for one in group.tolist()], pooling)
                advance(group.size)
        return found

    def _pooled(self, texts: Sequence[Sequence[int]], pooling: str) -> Floats:
        """(texts, width): the pooled context vectors of texts of equal length."""
        rows = torch.tensor([[EOS, *ids, EOS] for ids in texts])
        inside = torch.arange(rows.numel()).view_as(rows)[:, 1:-1]
        contexts = self.layer.contexts(self.mask_states(make_batch(rows), inside.flatten()))
        is_mask = rows[:, 1:-1] == MASK
        pooled = []
        for one, mask in zip(contexts.view(*inside.shape, -1), is_mask, strict=True):
            chosen = one[mask] if mask.any() else one
            ends = {"first": chosen[0], "last": chosen[-1], "max": chosen.amax(0)}
            pooled.append(ends.get(pooling, chosen.mean(0)))
        return torch.stack(pooled).numpy()

    def _pseudo_logprobs(self, stream: TokenStream, wanted: npt.NDArray[np.bool_] | None = None) -> LogProbs:
        """As for other masked networks, in one pass: no word is in its own context."""
        if type(stream) is not TokenStream:  # which masks the rest of words, too
            return super()._pseudo_logprobs(stream, wanted)
        ids = stream.ids.astype(np.int64)
        begins, lengths = stream.bounds[:-1].astype(np.int64), np.diff(stream.bounds) - 1
        logprobs = np.zeros(ids.size)
        with torch.inference_mode(), progress("scoring", int(lengths.sum()), "tokens") as advance:
            for group in length_groups(lengths, equal=True):
                size = int(lengths[group[0]])
                if not size:
                    continue
                columns = begins[group][:, None] + np.arange(size)
                rows = np.pad(ids[columns], ((0, 0), (1, 1)), constant_values=EOS)
                flat = np.arange(rows.size).reshape(rows.shape)[:, 1:-1].ravel()
                states = self.mask_states(make_batch(torch.from_numpy(rows)), torch.from_numpy(flat))
                targets = torch.from_numpy(ids[columns].ravel())
                logprobs[columns.ravel()] = target_logprobs(self.layer, states, targets, len(self.words))
                advance(flat.size)
        return logprobs
