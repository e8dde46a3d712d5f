"""Network: the embedding, encoders and output layer that a recipe describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from firth.nets.adjacent_heads import init_adjacent_heads
from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.embedding import LANGUAGES, Embedding
from firth.nets.encoders.attentive import AttentiveLstm
from firth.nets.encoders.bidirectional import BidirectionalLstm
from firth.nets.encoders.convolution import Convolution
from firth.nets.encoders.encoder import Encoder
from firth.nets.encoders.feedforward import Bilinear, IdentityEncoder, WindowEncoder
from firth.nets.encoders.fusion import FusionTransformer
from firth.nets.encoders.recurrent import Gru, Lstm, Recurrent
from firth.nets.encoders.transformer import Transformer
from firth.nets.entities import ENTITIES, EntityTable
from firth.nets.languages import LanguageVotes
from firth.nets.matching_heads import init_matching_heads
from firth.nets.norm import RMSNorm
from firth.nets.outputs.clusters import AdaptiveSoftmax, ClassSoftmax
from firth.nets.outputs.negative import NegativeSampling
from firth.nets.outputs.output import NoOutput, OutputLayer
from firth.nets.outputs.sampled import ImportanceSampling, NoiseContrast
from firth.nets.outputs.softmax import Direct, Softmax
from firth.nets.outputs.tied_clusters import TiedAdaptiveSoftmax
from firth.nets.outputs.trees import HuffmanTree, LearnedTree
from firth.nets.recipe import NetRecipe
from firth.nets.sentence_pooling import SentencePooler
from firth.nets.visibility import (
    AttentionBias,
    AttentionMask,
    EncoderStates,
    EntityInputs,
    SegmentMemory,
    SourceKeys,
    cross_attention_bias,
)

_ENCODERS: dict[str, type[Encoder]] = {
    "none": IdentityEncoder,
    "window": WindowEncoder,
    "bilinear": Bilinear,
    "cnn": Convolution,
    "rnn": Recurrent,
    "gru": Gru,
    "lstm": Lstm,
    "bilstm": BidirectionalLstm,
    "transformer": Transformer,
}
_OUTPUTS: dict[str, type[OutputLayer]] = {
    "full": Softmax,
    "tied": Softmax,
    "direct": Direct,
    "classes": ClassSoftmax,
    "huffman": HuffmanTree,
    "tree": LearnedTree,
    "importance": ImportanceSampling,
    "nce": NoiseContrast,
    "negative": NegativeSampling,
    "adaptive": AdaptiveSoftmax,
    "adaptive-tied": TiedAdaptiveSoftmax,
    "none": NoOutput,
}


class Vocabulary(NamedTuple):
    """The tokens of a network and their counts."""

    tokens: Sequence[str]
    counts: npt.NDArray[np.int64]
    """Occurrences in the training text, with an end of sentence for each sentence."""

    def __len__(self) -> int:
        return len(self.tokens)


class HiddenStates(NamedTuple):
    """The output of the encoders for a batch."""

    layers: list[Tensor]
    """(batch, length, width) of each layer, the embedding first, both directions concatenated; without the last layer
    if only some positions were computed."""
    last_hidden_state: Tensor
    """(positions, width): the last layer at the requested positions, or at all of the flattened batch."""
    positions: Tensor | None
    """The requested positions, sorted; None for all."""

    def at(self, positions: Tensor) -> Tensor:
        """(positions, width): the last hidden states at some of the requested positions."""
        if self.positions is None:
            return self.last_hidden_state[positions]
        if torch.equal(positions, self.positions):
            return self.last_hidden_state
        return self.last_hidden_state[torch.searchsorted(self.positions, positions)]


@dataclass
class KVCache:
    """The state of a causal network after some tokens: keys and values of a Transformer, states of an RNN."""

    length: int
    tensors: list[Tensor]
    """Each with the batch dimension first."""
    source: SourceKeys | None = None
    """Of a decoder."""
    side_ids: dict[str, Tensor] = field(default_factory=dict)
    """(batch, 1) each: the ids of further input tables of each row."""

    def select_rows(self, rows: Tensor) -> KVCache:
        """The cache of some rows, which may repeat: for beam search."""
        if self.tensors and torch.equal(rows, torch.arange(len(self.tensors[0]), device=rows.device)):
            return self
        source = None if self.source is None else self.source.select_rows(rows)
        side_ids = {name: ids.index_select(0, rows) for name, ids in self.side_ids.items()}
        return KVCache(self.length, [tensor.index_select(0, rows) for tensor in self.tensors], source, side_ids)


class Network(nn.Module):
    """The network that a recipe describes."""

    def __init__(self, recipe: NetRecipe, vocabulary: Vocabulary, shared: Embedding | None = None) -> None:
        """The tables of its embedding are those of `shared`, if given."""
        super().__init__()
        self.recipe = recipe
        self.vocabulary = vocabulary
        self.embedding = Embedding(recipe, vocabulary.tokens, shared)
        self.encoders = nn.ModuleList(make_encoder(recipe) for _ in range(recipe.directions))
        self.decoder = make_decoder(recipe)
        self.decoder_embedding = make_decoder_embedding(recipe, self.embedding)
        self.output: OutputLayer = make_output(recipe, vocabulary.counts, self.embedding)
        self.sentence = SentencePooler(recipe)
        self.entities = make_entities(recipe, vocabulary.tokens)

    @property
    def visibilities(self) -> tuple[str, ...]:
        """The visibility of each encoder."""
        both = self.recipe.visibility == "forward+backward"
        return ("causal", "anticausal") if both else (self.recipe.visibility,)

    def forward(
        self,
        batch: Batch,
        positions: Tensor | None = None,
        rng: DropoutRng | None = None,
        encoder_states: EncoderStates | None = None,
        memory: SegmentMemory | None = None,
    ) -> HiddenStates:
        """The hidden states of a batch.

        With `positions` (sorted indices into the flattened batch) the last layer is computed for these alone, which
        saves most of its time. If the batch has a source, the network's encoder reads it, and the states are those of
        its decoder. A network that decodes the states of another one needs `encoder_states`. Tokens attend to a
        `memory`, too. If the batch asks for queries, the last states are theirs.
        """
        if self.decoder is not None and batch.source is not None:
            return self._decode(self.decoder, batch, self.encode_source(batch, rng), positions, rng)
        side_ids: Mapping[str, Tensor] = batch.side_ids
        if self.embedding.languages is not None and LANGUAGES not in side_ids:
            side_ids = {**side_ids, LANGUAGES: self.language_votes.choose(batch.ids, batch.sequence_ids)}
        vectors = batch.token_vectors
        embedded = self.embedding(batch.ids, batch.position_ids, batch.segment_ids, rng, side_ids, vectors)
        masks = [
            AttentionMask(
                name, batch.shape, batch.sequence_ids, batch.attention_order, rng, encoder_states, batch.query_only
            )
            for name in self.visibilities
        ]
        for mask in masks:
            mask.memory, mask.reach, mask.visible = memory, self._reach, batch.visible
            mask.segment_ids, mask.is_reversed = batch.segment_ids, batch.is_reversed
            mask.entities = self._entity_inputs(batch)
        if batch.is_query:
            return self._query_states(batch, embedded, masks[0], positions)
        made = [
            encoder(inputs, mask, positions)
            for inputs, mask, encoder in zip(self.inputs(embedded), masks, self._encoders(), strict=True)
        ]
        layers = [_concatenate(each) for each in zip(*(states for states, _ in made), strict=True)]
        return HiddenStates(layers, _concatenate([last for _, last in made]), positions)

    def _entity_inputs(self, batch: Batch) -> EntityInputs | None:
        """The entities of a batch: those that it says, or those whose names are in its tokens."""
        if self.entities is None:
            return None
        links = batch.side_ids.get(ENTITIES)
        return self.entities.inputs(self.entities.link(batch.ids) if links is None else links, batch.sequence_ids)

    def inputs(self, embedded: Tensor) -> Sequence[Tensor]:
        """The token vectors that each encoder reads: all of them, or its part."""
        count = self.recipe.directions
        return embedded.chunk(count, -1) if self.recipe.embedding.per_direction else [embedded] * count

    def _query_states(
        self, batch: Batch, embedded: Tensor, mask: AttentionMask, positions: Tensor | None
    ) -> HiddenStates:
        """The states of queries without a token at some positions, and the layers of the tokens but the last."""
        assert batch.attention_order is not None, "without an order the tokens would tell the answer"
        positions = torch.arange(batch.ids.numel()) if positions is None else positions
        queries = self.embedding.queries(len(positions), mask.rng)
        encoder = cast(Transformer, self.encoders[0])
        layers, last = encoder(embedded, mask, positions, queries, mask.of_queries())
        return HiddenStates(layers, last, positions)

    def encode_source(self, batch: Batch, rng: DropoutRng | None = None) -> EncoderStates:
        """The encoder states of a batch's source, with what each token of the batch attends to."""
        source = batch.source
        assert source is not None
        states = self(source, None, rng).last_hidden_state.view(*source.shape, -1)
        shapes = [batch.shape, source.shape]
        bias = cross_attention_bias(batch.sequence_ids, source.sequence_ids, source.is_hidden, shapes)
        return EncoderStates(states, AttentionBias(*(each if each is None else each.to(states) for each in bias)))

    def _decode(
        self,
        decoder: Encoder,
        batch: Batch,
        encoder_states: EncoderStates,
        positions: Tensor | None,
        rng: DropoutRng | None,
    ) -> HiddenStates:
        embed = self.decoder_embedding or self.embedding
        embedded = embed(batch.ids, batch.position_ids, batch.segment_ids, rng=rng)
        order, query_only = batch.attention_order, batch.query_only
        mask = AttentionMask("causal", batch.shape, batch.sequence_ids, order, rng, encoder_states, query_only)
        layers, last = decoder(embedded, mask, positions)
        return HiddenStates(layers, last, positions)

    def decode_step(
        self,
        ids: Tensor,
        cache: KVCache | None = None,
        segment_ids: Tensor | None = None,
        attention_order: Tensor | None = None,
        encoder_states: EncoderStates | None = None,
        drop_last: int = 0,
        add_query: bool = False,
    ) -> tuple[Tensor, KVCache]:
        """(batch, new tokens, width): the last hidden states of new tokens after the cached ones, and the new cache.

        New tokens of equal `attention_order` attend to one another, too. A decoder needs `encoder_states` in the first
        step only. The last `drop_last` tokens are not cached (Transformers only). With `add_query` the states have one
        more, that of the query without a token after the new ones, which is not cached.

        With a memory the tokens are read in segments of `sequence.length`, however they are divided into steps: the
        cache has the memory before the current segment.
        """
        cache = cache or KVCache(0, [])
        if self.recipe.memory.length and not drop_last and attention_order is None and not add_query:
            return self._decode_segments(ids, cache, segment_ids)
        position_ids = torch.arange(cache.length, cache.length + ids.shape[1], device=ids.device)[None].expand_as(ids)
        side_ids = cache.side_ids
        if self.embedding.languages is not None and LANGUAGES not in side_ids:  # that of the first tokens is kept
            side_ids = {LANGUAGES: self.language_votes.choose(ids)[:, :1]}
        own_ids = {name: one.expand_as(ids) for name, one in side_ids.items()}
        embed = self.decoder_embedding or self.embedding
        embedded = embed(ids, position_ids, segment_ids, side_ids=own_ids)
        if add_query:
            embedded = torch.cat([embedded, self.embedding.queries(len(ids))[:, None]], 1)
        shape = (embedded.shape[0], embedded.shape[1])
        mask = AttentionMask("causal", shape, None, attention_order, None, encoder_states)
        mask.drop_last, mask.reach, mask.source_keys = drop_last + add_query, self._reach, cache.source
        mask.ends_with_query = add_query
        inputs = embedded if self.decoder is not None else self.inputs(embedded)[0]
        states, tensors = (self.decoder or self._encoders()[0]).decode_step(inputs, cache.tensors, mask)
        return states, KVCache(cache.length + ids.shape[1] - drop_last, tensors, mask.source_keys, side_ids)

    def _decode_segments(self, ids: Tensor, cache: KVCache, segment_ids: Tensor | None) -> tuple[Tensor, KVCache]:
        """`decode_step` for segment after segment; at the begin of each the cache is cut to the memory."""
        length, memory, made = self.recipe.sequence.length, self.recipe.memory.length, []
        (encoder,), begin = self._encoders(), 0
        while begin < ids.shape[1]:
            tensors = cache.tensors
            if cache.length % length == 0:
                tensors = [tensor[:, :, -memory:] for tensor in tensors]
            some = slice(begin, begin + length - cache.length % length)
            embedded = self.embedding(ids[:, some], None, None if segment_ids is None else segment_ids[:, some])
            mask = AttentionMask("causal", (embedded.shape[0], embedded.shape[1]), reach=self._reach)
            states, tensors = encoder.decode_step(embedded, tensors, mask)
            cache = KVCache(cache.length + embedded.shape[1], tensors)
            made.append(states)
            begin = some.stop
        return torch.cat(made, 1), cache

    @property
    def _reach(self) -> int:
        """See `AttentionMask.reach`."""
        return self.recipe.memory.length if self.recipe.memory.same_length else 0

    @cached_property
    def language_votes(self) -> LanguageVotes:
        """The languages of texts of which none is said."""
        return LanguageVotes(self.recipe.languages, self.vocabulary.tokens, self.recipe.language)

    def _encoders(self) -> list[Encoder]:
        return [encoder for encoder in self.encoders if isinstance(encoder, Encoder)]

    def flops(self, length: int, predicted: float = 1.0, source: int = 0, outputs: float | None = None) -> float:
        """Floating-point operations of a forward pass per token in sequences of that length.

        `predicted` is the fraction of tokens whose last hidden states are needed, `outputs` the number of predictions
        of the output layer per token, by default the same. `source` is the length of the source's rows, whose
        operations are counted with those of the decoder.
        """
        output = (predicted if outputs is None else outputs) * self.output.flops()
        if self.decoder is not None and source:
            read = source / length * (self.embedding.flops() + sum(one.flops(source) for one in self._encoders()))
            return read + self.embedding.flops() + self.decoder.flops(length, predicted, source) + output
        encoders = sum(encoder.flops(length, predicted) for encoder in self._encoders())
        return self.embedding.flops() + encoders + output


def _concatenate(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(tensors), -1) if len(tensors) > 1 else tensors[0]


def make_encoder(recipe: NetRecipe) -> Encoder:
    """A new encoder of the recipe's kind."""
    if recipe.encoder.kind == "lstm" and recipe.encoder.cross_width:
        return AttentiveLstm(recipe)
    if recipe.entities.width:
        return FusionTransformer(recipe)
    return _ENCODERS[recipe.encoder.kind](recipe)


def make_decoder(recipe: NetRecipe) -> Transformer | AttentiveLstm | None:
    """A new decoder that attends to the encoder's states, if the recipe has one."""
    if recipe.decoder is None:
        return None
    part = replace(recipe.decoder, cross_width=recipe.width)
    return AttentiveLstm(recipe, part) if part.kind == "lstm" else Transformer(recipe, part)


def make_decoder_embedding(recipe: NetRecipe, embedding: Embedding) -> Embedding | None:
    """The embedding of a decoder with tables of its own but the token vectors; None: it has none."""
    is_own = recipe.decoder is not None and recipe.embedding.own_decoder
    return Embedding(recipe, (), embedding, only_tokens=True) if is_own else None


def make_entities(recipe: NetRecipe, tokens: Sequence[str]) -> EntityTable | None:
    """A new table of entities, if the network reads them."""
    return EntityTable(recipe.entities, tokens) if recipe.entities.width else None


def make_output(recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> OutputLayer:
    """A new output layer of the recipe's kind; `counts` are the occurrences of each token."""
    return _OUTPUTS[recipe.output.kind](recipe, counts, embedding)


def build_network(
    recipe: NetRecipe,
    vocabulary: Vocabulary,
    seed: int,
    *,
    skip_init: bool = False,
    embedding_init: npt.NDArray[np.float32] | None = None,
) -> Network:
    """A new network whose initial weights depend on the seed alone. With `skip_init` they are to be replaced.

    `embedding_init` (vocabulary, width) has unit vectors for tokens, or zeros for those that are initialised randomly.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network(recipe, vocabulary)
        if embedding_init is not None:
            network.embedding.set_token_vectors(torch.from_numpy(embedding_init))
        if recipe.encoder.init == "adjacent" and not skip_init:
            early = any(one.predicts_early for one in recipe.objectives)
            init_adjacent_heads(network.embedding, cast(Transformer, network.encoders[0]), early=early)
        if recipe.decoder is not None and recipe.decoder.cross_init == "matching" and not skip_init:
            init_matching_heads(cast(Transformer, network.decoder))
        if recipe.output.scaled and recipe.output.kind == "tied" and recipe.embedding.init != "unit" and not skip_init:
            _unscale(network.decoder or network.encoders[0])
        return network


def _unscale(last: nn.Module) -> None:
    """Start with states as large as the output layer divides them: its token vectors are small."""
    if isinstance(last, Transformer) and last.norm is not None:
        torch.nn.init.constant_(cast(RMSNorm, last.norm).weight, last.recipe.width**0.5)


def build_second_network(recipe: NetRecipe, first: Network, *, shared: bool = True) -> Network:
    """A new network that shares the embedding of the first one, if `shared`; weights are from the global generator."""
    network = Network(recipe, first.vocabulary, first.embedding if shared else None)
    if recipe.encoder.init == "adjacent":
        init_adjacent_heads(network.embedding, cast(Transformer, network.encoders[0]), first.recipe.encoder)
    return network
