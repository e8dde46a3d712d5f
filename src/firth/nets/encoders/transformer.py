"""Transformer (Vaswani et al. 2017): attention and feed-forward layers, normalised before or after."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.dropout import DropoutRng, add_with_dropout
from firth.nets.encoders.attention import infer_attention, multi_head_attention, project_apart, split_heads
from firth.nets.encoders.buckets import BucketAttention, BucketInputs, BucketTable
from firth.nets.encoders.cross_attention import CrossAttention
from firth.nets.encoders.encoder import Encoder, EncoderOutput, StepOutput, select_positions
from firth.nets.encoders.relative import RelativeAttention, RelativeInputs, distance_sinusoids
from firth.nets.layer_sizes import ffn_width_of, heads_of, pruned_flops
from firth.nets.linear import make_linear
from firth.nets.norm import LayerNorm, RMSNorm
from firth.nets.recipe import EncoderRecipe, NetRecipe
from firth.nets.visibility import (
    AttentionBias,
    AttentionMask,
    EncoderStates,
    GatheredQueries,
    SourceKeys,
    within_reach,
)

GATHERED = 0.75
"""Fraction of positions up to which the last layer is computed for these alone."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": f.gelu,
    "gelu-tanh": lambda x: f.gelu(x, approximate="tanh"),
    "relu": f.relu,
    "silu": f.silu,  # also named swish
    "tanh": torch.tanh,
}


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, recipe: EncoderRecipe, heads: int | None = None) -> None:
        """`heads`: those that are left of the recipe's."""
        super().__init__()
        self.recipe, self.heads = recipe, heads or recipe.heads
        inner = self.heads * (recipe.width // recipe.heads)
        self.qkv = make_linear(recipe.width, 3 * inner, recipe.biases)
        self.out = make_linear(inner, recipe.width, recipe.biases)

    def forward(self, states: Tensor, bias: AttentionBias, rng: DropoutRng | None, relative: None = None) -> Tensor:
        """(batch, length, width): self-attention of all positions."""
        heads, rate = self.heads, self.recipe.attention_dropout
        return cast(Tensor, self.out(multi_head_attention(None, self.qkv(states), heads, bias, rate, rng)))

    def query_attention(
        self,
        queries: Tensor,
        gathered: GatheredQueries,
        states: Tensor,
        bias: AttentionBias,
        rng: DropoutRng | None,
        relative: None = None,
    ) -> Tensor:
        """(positions, width): the attention of some queries to all positions."""
        heads, rate = self.heads, self.recipe.attention_dropout
        queries, keys_values = project_apart(self.qkv, queries, states)
        attended = multi_head_attention(gathered.pad(queries), keys_values, heads, bias, rate, rng)
        return cast(Tensor, self.out(gathered.unpad(attended)))

    def decode_step(
        self, inputs: Tensor, cache: list[Tensor], bias: AttentionBias, drop_last: int = 0, relative: None = None
    ) -> StepOutput:
        """Attention of new tokens to cached ones and, by `bias`, to one another; and the keys and values to cache."""
        queries, *new = split_heads(self.qkv(inputs), self.heads, 3)
        keys, values = (torch.cat(each, 2) for each in zip(cache, new, strict=True)) if cache else new
        kept = keys.shape[2] - drop_last
        return self.out(infer_attention(queries, keys, values, bias)), [keys[:, :, :kept], values[:, :, :kept]]


class FeedForward(nn.Module):
    """Two linear layers with an activation between them; if gated, half of the first multiplies the activation."""

    def __init__(self, recipe: EncoderRecipe, width: int | None = None) -> None:
        """`width`: the units that are left of the recipe's."""
        super().__init__()
        self.is_gated = recipe.gated
        width = width or recipe.ffn_width
        self.inner = make_linear(recipe.width, width * (2 if recipe.gated else 1), recipe.biases)
        self.outer = make_linear(width, recipe.width, recipe.biases)
        self.activation = ACTIVATIONS[recipe.activation]

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner(x)
        if self.is_gated:
            gate, values = inner.chunk(2, -1)
            return cast(Tensor, self.outer(self.activation(gate) * values))
        return cast(Tensor, self.outer(self.activation(inner)))


class Layer(nn.Module):
    """Attention and feed-forward sublayers with residual connections; tied layers have only one of the two."""

    def __init__(
        self, recipe: EncoderRecipe, number: int = 0, *, attention: bool = True, feedforward: bool = True
    ) -> None:
        super().__init__()
        self.recipe = recipe
        if attention:
            kept = (heads_of(recipe, number),) if recipe.layer_sizes else ()
            self.attention, self.norm1 = ATTENTIONS[recipe.positions](recipe, *kept), make_norm(recipe)
        if attention and recipe.cross_width:
            self.cross_attention, self.norm3 = CrossAttention(recipe), make_norm(recipe)
        if feedforward:
            self.feedforward, self.norm2 = FeedForward(recipe, ffn_width_of(recipe, number)), make_norm(recipe)

    def self_attention(
        self, x: Tensor, bias: AttentionBias, mask: AttentionMask, relative: RelativeInputs | BucketInputs | None = None
    ) -> Tensor:
        """The attention sublayer, followed by cross-attention in a decoder."""
        rng, encoder_states, relative = mask.rng, mask.encoder_states, self._normalised(relative)
        x = self._residual(x, lambda y: self.attention(y, bias, rng, relative), self.norm1, rng)
        if encoder_states is None:
            return x
        return self._residual(x, lambda y: self.cross_attention(y, encoder_states, rng), self.norm3, rng)

    def query_attention(
        self,
        queries: Tensor,
        gathered: GatheredQueries,
        states: Tensor,
        bias: AttentionBias,
        rng: DropoutRng | None,
        relative: RelativeInputs | BucketInputs | None = None,
    ) -> Tensor:
        """The attention sublayer for queries (positions, width) over `states` (batch, length, width)."""
        keys = self.norm1(states) if self.recipe.norm == "pre" else states
        attend: Callable[..., Tensor] = self.attention.query_attention
        relative = self._normalised(relative)
        return self._residual(queries, lambda y: attend(y, gathered, keys, bias, rng, relative), self.norm1, rng)

    def share_keys(self, states: Tensor, relative: RelativeInputs) -> RelativeInputs:
        """The inputs of both streams over `states`, with common keys and values."""
        if self.recipe.norm == "pre":
            states = self.norm1(states)
            relative = cast(RelativeInputs, self._normalised(relative))
        shared: RelativeInputs = self.attention.share_keys(states, relative)
        return shared._replace(memory=None)  # it is among the keys

    def _normalised(self, relative: RelativeInputs | BucketInputs | None) -> RelativeInputs | BucketInputs | None:
        """The inputs with their memory as the attention sublayer reads states."""
        if relative is None or relative.memory is None or self.recipe.norm != "pre":
            return relative
        assert isinstance(relative, RelativeInputs)
        return relative._replace(memory=self.norm1(relative.memory))

    def decode_step(
        self,
        x: Tensor,
        cache: list[Tensor],
        bias: AttentionBias,
        mask: AttentionMask,
        number: int,
        relative: RelativeInputs | BucketInputs | None = None,
    ) -> StepOutput:
        """The attention sublayers of the layer of that number for new tokens, and the keys and values to cache."""
        kept: list[Tensor] = []

        def attend(y: Tensor) -> Tensor:
            attended, new = self.attention.decode_step(y, cache, bias, mask.drop_last, relative)
            kept.extend(new)
            return cast(Tensor, attended)

        x = self._residual(x, attend, self.norm1, None)
        source = mask.source_keys
        if source is not None:
            x = self._residual(x, lambda y: self.cross_attention.decode_step(y, source, number), self.norm3, None)
        return x, kept

    def feed_forward(self, x: Tensor, rng: DropoutRng | None) -> Tensor:
        """The feed-forward sublayer."""
        return self._residual(x, self.feedforward, self.norm2, rng)

    def _residual(
        self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.Module, rng: DropoutRng | None
    ) -> Tensor:
        """x + sublayer(norm(x)), or norm(x + sublayer(x))."""
        if self.recipe.norm == "pre":
            return add_with_dropout(x, sublayer(norm(x)), self.recipe.dropout, rng)
        return cast(Tensor, norm(add_with_dropout(x, sublayer(x), self.recipe.dropout, rng)))


class Transformer(Encoder):
    """A stack of layers, which may be tied."""

    def __init__(self, recipe: NetRecipe, part: EncoderRecipe | None = None) -> None:
        super().__init__(recipe, part)
        tied = self.recipe.tie_layers
        own = range(1, self.recipe.layers) if tied != "all" else ()
        self.layers = nn.ModuleList(Layer(self.recipe) for _ in range(min(1, self.recipe.layers)))
        self.layers.extend(
            Layer(self.recipe, number, attention=tied != "attention", feedforward=tied != "feed-forward")
            for number in own
        )
        if self.recipe.positions == "relative" and self.recipe.tie_position_biases:
            attentions = [first.attention for first, _ in self._layer_pairs()]
            for attention in attentions:
                attention.biases = attentions[0].biases
        if self.recipe.positions == "buckets":
            for first, _ in self._layer_pairs():
                first.attention.table = cast(Layer, self.layers[0]).attention.table
        self.memory, self.is_causal = recipe.memory.length, recipe.visibility == "causal"
        self.norm = make_norm(self.recipe) if self.recipe.norm == "pre" else None
        if self.recipe.init == "fan-in":
            self._init_by_inputs()
        elif self.recipe.norm == "pre":
            self._scale_residuals()

    def forward(
        self,
        inputs: Tensor,
        mask: AttentionMask,
        positions: Tensor | None = None,
        queries: Tensor | None = None,
        query_mask: AttentionMask | None = None,
    ) -> EncoderOutput:
        """As for all encoders; with `queries` (positions, width) these attend in every layer, and are returned.

        They attend to the other states by `query_mask` and change none of them: the two streams of XLNet.
        """
        shape, rng = (inputs.shape[0], inputs.shape[1]), mask.rng
        relative = self._relative_inputs(inputs, mask)
        states, bias = [inputs], mask.bias(inputs.dtype)
        gathered = None
        few = positions is not None and mask.encoder_states is None and len(positions) <= GATHERED * math.prod(shape)
        if positions is not None and (queries is not None or few):
            gathered = GatheredQueries(positions, shape)
            query_bias = gathered.select_bias((query_mask or mask).bias(inputs.dtype))
        for number, ((first, second), more) in enumerate(zip(self._layer_pairs(), relative, strict=True), 1):
            x, is_last = states[-1], number == self.recipe.layers
            if is_last and gathered is not None and queries is None:
                queries = select_positions(x, positions)
            if queries is not None and not is_last and isinstance(more, RelativeInputs):
                more = first.share_keys(x, more)
            if queries is not None and gathered is not None:
                queries = second.feed_forward(first.query_attention(queries, gathered, x, query_bias, rng, more), rng)
            if not is_last or positions is None:
                states.append(second.feed_forward(first.self_attention(x, bias, mask, more), rng))
            elif queries is None:
                attended = first.self_attention(x, bias, mask, more)
                queries = second.feed_forward(select_positions(attended, positions), rng)
        if queries is not None:
            return states, self._final_norm(queries)
        states[-1] = self._final_norm(states[-1])
        return states, select_positions(states[-1], positions)

    def decode_step(self, inputs: Tensor, cache: list[Tensor], mask: AttentionMask | None = None) -> StepOutput:
        """The cache has the keys and values of each layer, (batch, heads, length, size).

        Those of the encoder states of `mask` are set there as `source_keys`.
        """
        mask = mask or AttentionMask("causal", (inputs.shape[0], inputs.shape[1]))
        cached = cache[0].shape[2] if cache else 0
        bias = _cached_bias(mask, cached, inputs)
        relative: RelativeInputs | BucketInputs | None = None
        count = inputs.shape[1]
        if self.recipe.positions == "relative":
            relative = RelativeInputs(distance_sinusoids(cached + count, count, self.recipe, True, inputs))
        elif self.recipe.positions == "buckets" and self.recipe.layers:
            relative = BucketInputs(self._table(count, cached + count, is_causal=True))
        if mask.encoder_states is not None:
            mask.source_keys = self._source_keys(mask.encoder_states)
        states, kept = inputs, []
        for number, (first, second) in enumerate(self._layer_pairs()):
            own = cache[2 * number : 2 * (number + 1)]
            states, new = first.decode_step(states, own, bias, mask, number, relative)
            states = second.feed_forward(states, None)
            kept += new
        return self._final_norm(states), kept

    def _source_keys(self, encoder_states: EncoderStates) -> SourceKeys:
        layers = [first.cross_attention.keys_and_values(encoder_states) for first, _ in self._layer_pairs()]
        owners = torch.arange(len(encoder_states.states), device=encoder_states.states.device)
        return SourceKeys(layers, encoder_states.bias, owners)

    def flops(self, length: int, predicted: float = 1.0, source: int | None = None) -> float:
        """A decoder attends to `source` encoder states, by default to as many as there are tokens."""
        width, layers, states = self.recipe.width, self.recipe.layers, length if source is None else source
        if not layers:
            return 0.0
        if self.recipe.layer_sizes:
            return pruned_flops(self.recipe, length, predicted, GATHERED)
        keys, rest = 4.0 * width * width, 4.0 * width * width + 4.0 * length * width
        if self.recipe.positions == "relative":
            reach = length + self.memory
            keys *= reach / length
            rest += 4.0 * self.memory * width + 2.0 * (reach + (1 if self.is_causal else length)) * width
        if self.recipe.cross_width:
            keys += 4.0 * width * self.recipe.cross_width * states / length
            rest += 4.0 * width * width + 4.0 * states * width
        feed_forward = (6.0 if self.recipe.gated else 4.0) * width * self.recipe.ffn_width
        queries = predicted if predicted <= GATHERED and not self.recipe.cross_width else 1.0
        last = keys + queries * rest + predicted * feed_forward
        return (layers - 1) * (keys + rest + feed_forward) + last

    def _relative_inputs(self, inputs: Tensor, mask: AttentionMask) -> Sequence[RelativeInputs | BucketInputs | None]:
        """What each layer reads beside its states; None without relative positions."""
        layers = self.recipe.layers
        if self.recipe.positions == "buckets" and layers:
            length = inputs.shape[1]
            return [BucketInputs(self._table(length, length, mask.visibility == "causal"))] * layers
        if self.recipe.positions != "relative":
            return [None] * layers
        memory: list[Tensor] | list[None] = [None] * layers if mask.memory is None else mask.memory.layers
        length, before = inputs.shape[1], 0 if mask.memory is None else mask.memory.visible.shape[2]
        is_causal = mask.visibility == "causal" and mask.attention_order is None
        sinusoids = distance_sinusoids(before + length, length, self.recipe, is_causal, inputs, mask.rng)
        same = None
        if self.recipe.segments == "relative" and mask.segment_ids is not None:
            keys = f.pad(mask.segment_ids, (before, 0))  # the memory is of the first segment
            same = mask.segment_ids[:, :, None] == keys[:, None]
        return [RelativeInputs(sinusoids, one, same, mask.is_reversed) for one in memory]

    def _table(self, queries: int, keys: int, is_causal: bool) -> Tensor:
        """The terms of distances, which all layers share."""
        return cast(Tensor, cast(Layer, self.layers[0]).attention.table(queries, keys, is_causal))

    def _layer_pairs(self) -> Iterator[tuple[Layer, Layer]]:
        """For each layer the one that has its attention and the one that has its feed-forward sublayer."""
        tied = self.recipe.tie_layers
        for number in range(self.recipe.layers):
            first = 0 if tied in ("all", "attention") else number
            second = 0 if tied in ("all", "feed-forward") else number
            yield cast(Layer, self.layers[first]), cast(Layer, self.layers[second])

    def _final_norm(self, states: Tensor) -> Tensor:
        return states if self.norm is None else cast(Tensor, self.norm(states))

    @torch.no_grad()
    def _scale_residuals(self) -> None:
        """Scale initial residual weights by 1 / sqrt(2 layers) (Radford et al. 2019)."""
        for name, parameter in self.layers.named_parameters():
            if name.endswith((".attention.out.weight", ".feedforward.outer.weight")):
                parameter.div_(math.sqrt(2 * self.recipe.layers))

    @torch.no_grad()
    def _init_by_inputs(self) -> None:
        """Standard deviations of 1 / sqrt(inputs), and of 1 / sqrt(inputs D) for queries that are not scaled (T5)."""
        unscaled = math.sqrt(self.recipe.width // self.recipe.heads) if self.recipe.positions == "buckets" else 1.0
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
            elif isinstance(module, BucketTable):
                nn.init.normal_(module.weight, std=1 / math.sqrt(self.recipe.width))
        for module in self.modules():
            if isinstance(module, Attention | BucketAttention):
                module.qkv.weight[: self.recipe.width].div_(unscaled)
            elif isinstance(module, CrossAttention):
                module.query.weight.div_(unscaled)


ATTENTIONS: dict[str, Callable[..., Any]] = {
    "none": Attention,
    "relative": RelativeAttention,
    "buckets": BucketAttention,
}
"""The self-attention of each kind of positions in the encoder."""


def _cached_bias(mask: AttentionMask, cached: int, inputs: Tensor) -> AttentionBias:
    """The mask of new tokens, which attend to all cached ones within reach."""
    count = inputs.shape[1]
    bias = mask.bias(inputs.dtype).bias if count > 1 else None
    bias = bias if bias is None else f.pad(bias, (cached, 0))
    if mask.reach:
        bias = inputs.new_zeros(1, count, cached + count) if bias is None else bias
        bias = bias.masked_fill(~within_reach(bias, mask.reach), -torch.inf)
    if mask.ends_with_query and bias is not None:
        bias = bias.clone()
        bias[:, -1, -1] = -torch.inf
    return AttentionBias(bias)


def make_norm(recipe: EncoderRecipe) -> nn.Module:
    """Normalisation of states, or the identity without it."""
    if recipe.norm == "none":
        return nn.Identity()
    return (RMSNorm if recipe.rms else LayerNorm)(recipe.width, eps=recipe.eps)
