"""SentinelNet: a denoising network that writes spans, each after the sentinel that stands for it in the source."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from firth.abilities import Filling
from firth.decoding.generate import BeamSearch
from firth.errors import AbilityError
from firth.nets.denoising import ClozeRow, DenoisingNet
from firth.nets.filling import Prediction
from firth.nets.scoring import Integers, LogProbs, TokenScores, logits_chunk, target_logprobs
from firth.nets.seq2seq import pad_sequences
from firth.progress import progress
from firth.tokens.tokenizer import EOS, MASK

_MIN_BEAMS = 4


class SentinelNet(DenoisingNet):
    """Restores spans (T5). A mask in a text is a sentinel, and stands for a span of any length.

    The score of a text is a pseudo-log-likelihood of its words: each is the span of a sentinel in its place, predicted
    from all other words. Spans may have any length, so that the probability of a word is that of its tokens and of the
    end of the span after them, be it the end of the target or another sentinel, which is added to the last token.
    """

    score_meaning: ClassVar[str] = "pseudo-log-likelihood (each word as the span of a sentinel, given all others)"

    @property
    def _words(self) -> int:
        """The number of tokens that are no sentinels; the last sentinel is the first of a text."""
        return len(self.words) - self.tokenizer.recipe.sentinels

    def source_ids(self, sources: Sequence[str]) -> list[Integers]:
        return [self._with_sentinels(ids) for ids in super().source_ids(sources)]

    def _with_sentinels(self, ids: Integers) -> Integers:
        masks = np.flatnonzero(ids == MASK)
        if masks.size > self.tokenizer.recipe.sentinels:
            raise AbilityError(
                f"the text has {masks.size} masks, and the model {self.tokenizer.recipe.sentinels} sentinels: give "
                "shorter parts of it."
            )
        ids[masks] = len(self.words) - 1 - np.arange(masks.size)
        return ids

    def target_text(self, source: Integers, target: Sequence[int]) -> str:
        """The source with the spans in place of its sentinels; without any, the generated text."""
        if not (source >= self._words).any():
            return super().target_text(source, target)
        return self.tokenizer.decode(self._filled(source, self.spans(target)))

    def spans(self, target: Sequence[int]) -> dict[int, list[int]]:
        """The generated tokens after each sentinel."""
        found: dict[int, list[int]] = {}
        current: list[int] = []
        for token in target:
            if token >= self._words:
                current = found.setdefault(token, [])
            else:
                current.append(token)
        return found

    def _filled(self, source: Integers, spans: dict[int, list[int]]) -> list[int]:
        return [one for token in source.tolist() for one in (spans.get(token, []) if token >= self._words else [token])]

    def fill_many(self, texts: Sequence[str], top: int = 5) -> list[list[list[Filling]]]:
        """For each mask the best spans by beam search, with the probability that the beams give them."""
        if top < 1:
            raise AbilityError(f"top={top} returns no span: set it to 1 or more.")
        found = []
        with torch.inference_mode(), progress("filling", len(texts), "texts") as advance:
            for source in self.source_ids(texts):
                if not (source >= self._words).any():
                    raise AbilityError("there is nothing to fill: write [MASK] where a span is to be found.")
                found.append(self._fill(source, top))
                advance(1)
        return found

    def _fill(self, source: Integers, top: int) -> list[list[Filling]]:
        masks = source[source >= self._words].tolist()
        beams, limit = max(top, _MIN_BEAMS), self.recipe.sequence.length - 1
        search = BeamSearch(1, beams, limit, length_penalty=0.0, early_stopping=False)
        (hypotheses,) = search.run(self.decoder_state([source]))
        by_mask: list[dict[str, Filling]] = [{} for _ in masks]
        for hypothesis in hypotheses:
            spans, probability = self.spans(hypothesis.text_tokens), math.exp(hypothesis.score)
            text = self.tokenizer.decode(self._filled(source, spans)) if len(masks) == 1 else None
            for mask, fillings in zip(masks, by_mask, strict=True):
                span = self.tokenizer.decode(spans.get(mask, []))
                before = fillings[span].probability if span in fillings else 0.0
                fillings[span] = Filling(span, before + probability, text)
        return [sorted(one.values(), key=lambda each: -each.probability)[:top] for one in by_mask]

    def cloze(self, ids: Sequence[int], position: int, end: int) -> ClozeRow:
        sentinel = len(self.words) - 1
        return self.cloze_row([*ids[:position], sentinel, *ids[end:]], [*self.pair_format.first, sentinel])

    @cached_property
    def _token_scores(self) -> TokenScores:
        """Words are spans, whether or not whole words are asked for."""
        return self._word_scores

    def _score_masked(
        self, ids: Integers, words: Integers, begins: Integers, size: int, positions: Integers
    ) -> LogProbs:
        keys = list(zip(begins.tolist(), words[positions].tolist(), strict=True))
        spans = {key: _span(words, key[0], size, key[1]) for key in dict.fromkeys(keys)}
        logs = dict(zip(spans, self._span_logprobs(ids, size, spans), strict=True))
        return np.array([logs[key][at - spans[key].start] for key, at in zip(keys, positions.tolist(), strict=True)])

    def _span_logprobs(self, ids: Integers, size: int, spans: Mapping[tuple[int, int], slice]) -> list[LogProbs]:
        """The log-probabilities of the tokens of each span, the last with that of the end after it."""
        rows = []
        for (begin, _), span in spans.items():
            row = self.cloze(ids[begin : begin + size].tolist(), span.start - begin, span.stop - begin)
            rows.append(row._replace(decoded=[*row.decoded, *ids[span].tolist()]))
        batch, is_token = pad_sequences([np.array(row.decoded) for row in rows])
        batch.source = self._source_batch([row.source for row in rows])
        sizes = np.array([span.stop - span.start for span in spans.values()])
        last = is_token.sum(1).numpy() - 1 + np.arange(len(rows)) * batch.shape[1]
        at = np.concatenate([np.arange(end - count, end + 1) for end, count in zip(last, sizes, strict=True)])
        states = self.network(batch, torch.from_numpy(at)).last_hidden_state
        is_last = torch.from_numpy(np.isin(at, last))
        targets = torch.from_numpy(np.concatenate([ids[span] for span in spans.values()]))
        logs = target_logprobs(self.network.output, states[~is_last], targets, len(self.words))
        found = np.split(logs, np.cumsum(sizes)[:-1])
        for one, end in zip(found, self._end_logprobs(states[is_last]), strict=True):
            one[-1] += end
        return found

    def _end_logprobs(self, states: Tensor) -> LogProbs:
        """The log-probabilities that spans end."""
        ends = [EOS, *range(self._words, len(self.words))]
        parts = torch.split(states, logits_chunk(len(self.words)))
        found = [self.network.output.log_probabilities(some)[:, ends].logsumexp(-1) for some in parts]
        return torch.cat(found).double().numpy()

    def top_predictions(
        self, texts: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], top: int
    ) -> list[list[list[Prediction]]]:
        raise AbilityError("a mask stands for a span, not for a token: use fill.")


def _span(words: Integers, begin: int, size: int, word: int) -> slice:
    """The positions of a word in a window of a text; `words` are ascending."""
    own = words[begin : begin + size]
    first, last = (int(np.searchsorted(own, word, side)) for side in ("left", "right"))
    return slice(begin + first, begin + last)
