"""generate: sequence-to-sequence generation by one network with a prefix attention mask (Dong et al. 2019), or by two.

Source tokens attend to each other and target tokens to all before them. A causal network predicts the next token from
the last hidden state. A masked one predicts the token at a mask, so a mask that no other position attends to is
appended at the position of the next token (Bao et al. 2020). With a decoder, one network encodes the source and another
decodes the target; both start from pre-trained weights, only the cross-attention is new (Rothe et al. 2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.decoding.generate import BeamSearch, DecoderState, Hypothesis
from firth.errors import ArtifactError
from firth.metrics.bootstrap import Floats as Floats64
from firth.metrics.bootstrap import measured, sums_sample
from firth.metrics.measure import measure
from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.groups import pad_groups
from firth.nets.model import own_tensors
from firth.nets.network import HiddenStates, KVCache, Network, Vocabulary
from firth.nets.recipe import NetRecipe
from firth.nets.scoring import max_length as network_max_length
from firth.nets.visibility import EncoderStates, make_encoder_states
from firth.tasks.examples import Example, GenerateExample
from firth.tasks.predictor import MetricInputs, Prediction, with_truncation
from firth.tasks.recipe import TaskRecipe
from firth.tasks.sequences import GROUPS, POSITIONS, InputSequence, Ints, SequenceBuilder, pack
from firth.tasks.task import LABELS, Floats, Task
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, MASK, UNK

_MAX_SOURCES = 32  # decoded in parallel
_MAX_CACHE = 1 << 25  # numbers in the cached states of all hypotheses decoded in parallel
_LENGTH_PENALTY = 0.6  # exponent of the length that scores are divided by (Wu et al. 2016)
_LENGTHS = "lengths"  # key of the number of tokens of each target, its end included


class NetDecoderState:
    """Hypotheses of a network with its cached states; see `firth.decoding.generate`."""

    def __init__(
        self, network: Network, ids: Tensor, *, segment: int | None = None, source: int = 0, **given: Any
    ) -> None:
        """`ids` are the prefix of each hypothesis, `segment` that of its tokens and `source` that of the prefix.

        `given` are arguments of `decode_step`.
        """
        self.network, self.segment, self.masks = network, segment, int(is_masked_lm(network.recipe))
        self.cache: KVCache | None = None
        self._extend(ids, None if segment is None else torch.full_like(ids, source), **given)

    def append(self, rows: Tensor, tokens: Tensor) -> None:
        assert self.cache is not None
        self.cache = self.cache.select_rows(rows)
        ids = tokens[:, None]
        self._extend(ids, None if self.segment is None else torch.full_like(ids, self.segment))

    def _extend(self, ids: Tensor, segment_ids: Tensor | None, order: Tensor | None = None, **given: Any) -> None:
        """Encode new tokens and predict the next one; a mask appended for this is dropped from the cache again."""
        if self.masks:
            ids = f.pad(ids, (0, 1), value=MASK)
            segment_ids = None if segment_ids is None else f.pad(segment_ids, (0, 1), value=self.segment or 0)
            order = None if order is None else f.pad(order, (0, 1), value=1)
        states, self.cache = self.network.decode_step(
            ids, self.cache, segment_ids, order, drop_last=self.masks, **given
        )
        self.log_probabilities = only_text(self.network.output.log_probabilities(states[:, -1]))


class GenerateTask(Task):
    """-log p(target | source), by the network's own output layer."""

    kind: ClassVar[str] = "generate"
    uses_output_layer: ClassVar[bool] = True

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        nn.Module.__init__(self)
        self.recipe, self.name = recipe, self.kind

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a target."""
        return int(self.recipe.max_length)

    def sequences(self, examples: Sequence[Example], builder: SequenceBuilder) -> list[list[InputSequence]]:
        pairs = cast(Sequence[GenerateExample], examples)
        sources = builder.encode([one.source for one in pairs])
        targets = builder.encode([one.target or "" for one in pairs])
        return [[self.build(source, target, builder)] for source, target in zip(sources, targets, strict=True)]

    def capacity(self, builder: SequenceBuilder) -> int:
        """Maximum number of tokens of a source."""
        return max(1, builder.capacity(2) - self.max_length)

    def build(self, source: Ints, target: Ints, builder: SequenceBuilder) -> InputSequence:
        """A source and its target, both truncated to their maximum lengths."""
        max_length, capacity = self.max_length, self.capacity(builder)
        ids, segment_ids, (_, begin), _, _ = builder.build(source[:capacity], target[:max_length])
        truncated = source.size > capacity or target.size > max_length
        if segment_ids is not None and builder.special_tokens.second:
            segment_ids = np.array(generation_segments(self.recipe.network))[segment_ids]
        if is_masked_lm(self.recipe.network):
            return replace(masked_sequence(ids, segment_ids, begin), truncated=truncated)
        attention_order = np.maximum(np.arange(ids.size) - begin + 2, 0)  # the whole source first, then the delimiter
        labels = {POSITIONS: np.arange(begin - 1, ids.size - 1), LABELS: ids[begin:]}
        return InputSequence(ids, segment_ids, attention_order, labels, truncated=truncated)

    def init_from_pretraining(self, heads: Mapping[str, Tensor]) -> None:
        """Do nothing: there is no layer of its own."""

    def flops(self, network: Network, batch: Batch) -> float:
        """0: there is nothing beside the network."""
        return 0.0

    def positions(self, batch: Batch) -> Tensor | None:
        return batch.labels[POSITIONS].sort().values

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        queries, previous, _ = self.decoder_queries(network, states, batch, rng)
        total = self.decoder_of(network).output.loss(queries, batch.labels[LABELS], previous, rng)
        return Loss(total, self.count(batch))

    def decoder_queries(
        self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """For all tokens of the targets: the hidden states that predict them, the tokens before, the target's index."""
        positions = batch.labels[POSITIONS]
        return states.at(positions), batch.ids.flatten()[positions], batch.labels[GROUPS]

    def nll_metrics(
        self, network: Network, examples: Sequence[Example], builder: SequenceBuilder, **bootstrap: int
    ) -> dict[str, Any]:
        """Bits per byte of the reference targets, their ends included."""
        nats, sizes = self.nats(network, cast(Sequence[GenerateExample], examples), builder)
        if not nats.size:
            return {}
        bits = np.column_stack([nats / math.log(2), sizes])
        sample = sums_sample(bits, lambda sums, _: {"bits_per_byte": sums[:, 0] / sums[:, 1]})
        return measured(sample, **bootstrap)

    @torch.inference_mode()
    def nats(
        self, network: Network, pairs: Sequence[GenerateExample], builder: SequenceBuilder
    ) -> tuple[Floats64, Floats64]:
        """-log p(target | source) of the examples whose targets are within the maximum length, and their bytes."""
        lengths = [ids.size for ids in builder.encode([one.target or "" for one in pairs])]
        fit = [one for one, length in zip(pairs, lengths, strict=True) if one.target and length <= self.max_length]
        built, found = self.sequences(fit, builder), np.zeros(len(fit))
        for group, batch, states in self.encode(network, built):
            queries, _, owners = self.decoder_queries(network, states, batch)
            logs = self.decoder_of(network).output.log_probability(queries, batch.labels[LABELS])
            found[group] = -np.bincount(owners.numpy(), logs.double().numpy(), minlength=len(group))
        return found, np.array([float(len((one.target or "").encode())) for one in fit])

    def decoder_of(self, network: Network) -> Network:
        """The network that predicts the tokens of the target."""
        return network

    def start(self, network: Network, sources: Sequence[Ints], builder: SequenceBuilder) -> DecoderState:
        """An empty hypothesis for each of some sources of the same length."""
        nothing = np.empty(0, dtype=np.int64)
        built = [builder.build(source, nothing) for source in sources]
        begin = built[0].begins[1]  # the target follows the delimiter
        ids = torch.from_numpy(np.stack([one.ids[:begin] for one in built]))
        attention_order = torch.zeros(1, begin, dtype=torch.int64)
        # Without masks, the delimiter predicts the first token and attends to the whole source.
        attention_order[0, -1] = not is_masked_lm(network.recipe)
        source, target = generation_segments(network.recipe) if builder.special_tokens.second else (0, 0)
        segment = target if builder.segments else None
        return NetDecoderState(network, ids, order=attention_order, segment=segment, source=source)

    def predict(self, network: Network, examples: Sequence[Example], builder: SequenceBuilder) -> list[Prediction]:
        pairs = cast(Sequence[GenerateExample], examples)
        sources, capacity = builder.encode([one.source for one in pairs]), self.capacity(builder)
        is_long = [source.size > capacity for source in sources]
        sources = [source[:capacity] for source in sources]
        predictions: list[Prediction] = [{} for _ in pairs]
        for group in self._groups([source.size for source in sources], self.decoder_of(network)):
            found = self.generate(network, [sources[index] for index in group], builder)
            for index, best in zip(group, found, strict=True):
                text = builder.tokenizer.decode([token for token in best.tokens if token not in (EOS, UNK)])
                predictions[index] = with_truncation({"text": text, "logprob": best.score}, is_long[index])
        return predictions

    def _groups(self, sizes: Sequence[int], decoder: Network) -> Iterator[list[int]]:
        """Indices of sources of the same length, as many as the cache is meant for."""
        encoder = decoder.recipe.encoder
        for size, same in groupby(np.argsort(sizes, kind="stable").tolist(), key=lambda index: sizes[index]):
            cached = 2 * encoder.width * max(1, encoder.layers) * self.recipe.beams * (size + self.max_length)
            indices, most = list(same), min(_MAX_SOURCES, max(1, _MAX_CACHE // cached))
            yield from (indices[begin : begin + most] for begin in range(0, len(indices), most))

    @torch.inference_mode()
    def generate(self, network: Network, sources: Sequence[Ints], builder: SequenceBuilder) -> list[Hypothesis]:
        """The best target of each source by beam search; sources have the same length."""
        search = BeamSearch(
            len(sources),
            self.recipe.beams,
            self.max_length,
            length_penalty=_LENGTH_PENALTY,
            early_stopping=True,
            no_repeat_ngram=self.recipe.no_repeat_ngram,
        )
        targets = search.run(self.start(network, sources, builder))
        if not all(targets):  # no score is higher than another one
            raise ArtifactError("the network gives no probabilities but NaN: its weights are damaged; train it again.")
        return [found[0] for found in targets]

    def answer(self, example: Example, sequences: Sequence[InputSequence], scores: Sequence[Floats]) -> Prediction:
        raise AssertionError("predictions come from beam search")

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        gold = [one.target or "" for one in cast(Sequence[GenerateExample], examples)]
        return "generate", gold, [one["text"] for one in answers]

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Prediction], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        sources = [one.source for one in cast(Sequence[GenerateExample], examples)]
        return measure(*self.metric_inputs(examples, answers), sources=sources, seed=seed, samples=samples)


def is_masked_lm(recipe: NetRecipe) -> bool:
    """Whether a network predicts the token at a mask and not the next one."""
    return recipe.encoder.kind == "transformer" and "masked" in recipe.predicts


def generation_segments(recipe: NetRecipe) -> tuple[int, int]:
    """The segments of a source and its target."""
    return recipe.objectives[0].generation_segments if recipe.objectives else (0, 1)


def masked_sequence(ids: Ints, segment_ids: Ints | None, begin: int) -> InputSequence:
    """A sequence with a target from `begin` on, followed by a mask at the position of each target token.

    A mask attends to itself and to what precedes its position; nothing attends to it. The end is only predicted.

    >>> built = masked_sequence(np.array([2, 7, 3, 8, 9, 3]), None, 3)
    >>> built.ids.tolist(), built.query_only
    ([2, 7, 3, 8, 9, 4, 4, 4], 3)
    >>> built.position_ids.tolist(), built.attention_order.tolist()
    ([0, 1, 2, 3, 4, 3, 4, 5], [0, 0, 0, 2, 4, 1, 3, 5])
    >>> built.labels["positions"].tolist(), built.labels["labels"].tolist()
    ([5, 6, 7], [8, 9, 3])
    """
    targets, labels = np.arange(begin, ids.size), ids[begin:]
    position_ids = np.concatenate([np.arange(ids.size - 1), targets])
    attention_order = np.concatenate(
        [np.maximum(2 * (np.arange(ids.size - 1) - begin + 1), 0), 2 * (targets - begin) + 1]
    )
    return InputSequence(
        ids=np.concatenate([ids[:-1], np.full_like(labels, MASK)]),
        segment_ids=None if segment_ids is None else segment_ids[position_ids],
        attention_order=attention_order,
        labels={POSITIONS: ids.size - 1 + np.arange(labels.size), LABELS: labels},
        position_ids=position_ids,
        query_only=labels.size,
    )


def only_text(log_probabilities: Tensor) -> Tensor:
    """The same tensor, changed in place: -inf for special tokens except EOS."""
    log_probabilities[:, [token for token in range(FIRST_WORD) if token != EOS]] = -torch.inf
    return log_probabilities


class EncoderDecoderTask(GenerateTask):
    """-log p(target | hidden states of the source), by a decoder network."""

    uses_output_layer: ClassVar[bool] = False

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        nn.Module.__init__(self)
        assert recipe.decoder is not None
        self.recipe, self.name = recipe, self.kind
        self.decoder = Network(recipe.decoder, vocabulary)

    def init_decoder(self, network: Network) -> None:
        """Copy the weights of a pre-trained network; cross-attention stays newly initialised."""
        own = own_tensors(self.decoder)
        with torch.no_grad():
            for name, tensor in own_tensors(network).items():
                own[name].copy_(tensor)

    def build(self, source: Ints, target: Ints, builder: SequenceBuilder) -> InputSequence:
        """The source as input of the encoder, with the target among its labels."""
        encoded = self._source(source, builder)
        return replace(
            encoded,
            labels={**encoded.labels, **self.target_labels(target[: self.max_length])},
            truncated=encoded.truncated or target.size > self.max_length,
        )

    def target_labels(self, target: Ints) -> dict[str, Ints]:
        """The labels of a sequence whose target has these tokens and its end."""
        return {LABELS: np.append(target, EOS), _LENGTHS: np.array([target.size + 1])}

    def _source(self, source: Ints, builder: SequenceBuilder) -> InputSequence:
        built = builder.build(source)
        labels = {POSITIONS: np.arange(built.ids.size)}
        return InputSequence(built.ids, built.segment_ids, labels=labels, truncated=built.truncated)

    @property
    def max_length(self) -> int:
        """The recipe's, limited by the positions of the decoder, of which the first is for the start token."""
        limit = network_max_length(self.decoder.recipe)
        return super().max_length if limit is None else min(super().max_length, limit - 1)

    def decoder_queries(
        self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        labels, lengths = batch.labels[LABELS], batch.labels[_LENGTHS]
        owners = torch.arange(len(lengths)).repeat_interleave(lengths)
        targets, mask = pad_groups(labels, owners, len(lengths))
        inputs = torch.full_like(targets, self.start_token)
        inputs[:, 1:] = targets[:, :-1]
        queries = f.pad(mask, (mask.shape[1], 0)) if is_masked_lm(self.decoder.recipe) else mask
        found = self.decoder(self._batch(inputs), _indices(queries), rng, source_states(states, batch))
        return found.last_hidden_state, inputs.flatten()[_indices(mask)], owners

    @property
    def start_token(self) -> int:
        """The token before each target."""
        return BOS if is_masked_lm(self.decoder.recipe) else EOS

    def _batch(self, inputs: Tensor) -> Batch:
        """The decoder's inputs; for a masked network followed by a mask at the position of each target token."""
        if not is_masked_lm(self.decoder.recipe):
            return Batch(ids=inputs, word_starts=inputs >= FIRST_WORD)
        rows, length = inputs.shape
        ids = f.pad(inputs, (0, length), value=MASK)
        order = torch.arange(length)
        return Batch(
            ids=ids,
            word_starts=ids >= FIRST_WORD,
            position_ids=torch.cat([order, order + 1]).expand(rows, -1),
            attention_order=torch.cat([2 * order, 2 * order + 1])[None],
            query_only=torch.arange(2 * length)[None] >= length,
        )

    def capacity(self, builder: SequenceBuilder) -> int:
        return builder.capacity(1)

    def decoder_of(self, network: Network) -> Network:
        return self.decoder

    def start(self, network: Network, sources: Sequence[Ints], builder: SequenceBuilder) -> DecoderState:
        batch = pack([self._source(one, builder) for one in sources], FIRST_WORD)
        encoded = source_states(network(batch, self.positions(batch)), batch)
        return NetDecoderState(self.decoder, torch.full((len(sources), 1), self.start_token), encoder_states=encoded)

    def flops(self, network: Network, batch: Batch) -> float:
        """Floating-point operations of the decoder, as if sources were as long as targets."""
        lengths = batch.labels[_LENGTHS]
        queries = 1 + is_masked_lm(self.decoder.recipe)
        return float(lengths.sum()) * queries * self.decoder.flops(int(lengths.max()))


def with_cross_attention(recipe: NetRecipe, width: int) -> NetRecipe:
    """A copy of the recipe with cross-attention to states of that width."""
    return replace(recipe, encoder=replace(recipe.encoder, cross_width=width))


def source_states(states: HiddenStates, batch: Batch) -> EncoderStates:
    """The hidden states of each source, padded."""
    groups = batch.labels[GROUPS]
    return make_encoder_states(*pad_groups(states.at(batch.labels[POSITIONS]), groups, int(groups.max()) + 1))


def _indices(mask: Tensor) -> Tensor:
    """Indices of the true values of the flattened mask."""
    return mask.flatten().nonzero()[:, 0]
