"""FusionTransformer: layers that fuse tokens and entities (Zhang et al. 2019).

    w~ = attention(w)    e~ = attention(e), masked to the positions of entities; in the first of these layers e~ = e
    h  = gelu(W_t w~ + W_e e~ + b)
    w' = norm(w~ + W h + b_w)    e' = norm(e~ + W' h + b_e)

A token without an entity has e~ = 0, so that its layer is BERT's. Nothing reads the entities of the last layer, so
they are not computed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from torch import Tensor

from firth.nets.dropout import DropoutRng, add_with_dropout
from firth.nets.encoders.encoder import EncoderOutput, select_positions
from firth.nets.encoders.transformer import Attention, Layer, Transformer, make_norm
from firth.nets.linear import make_linear
from firth.nets.recipe import EncoderRecipe, NetRecipe
from firth.nets.visibility import AttentionBias, AttentionMask, EntityInputs, GatheredQueries


class FusionLayer(Layer):
    """A layer over tokens and entities."""

    def __init__(self, recipe: EncoderRecipe, entities: EncoderRecipe, *, attends: bool, is_last: bool) -> None:
        """`attends`: whether entities attend to one another."""
        super().__init__(recipe)
        self.attends, self.is_last = attends, is_last
        if attends:
            self.entity_attention, self.entity_norm1 = Attention(entities), make_norm(entities)
        self.entity_inner = make_linear(entities.width, recipe.ffn_width, bias=False)  # b is that of the tokens
        if not is_last:
            self.entity_outer, self.entity_norm2 = make_linear(recipe.ffn_width, entities.width), make_norm(entities)

    def attend_entities(self, entities: Tensor, bias: AttentionBias, is_slot: Tensor, rng: DropoutRng | None) -> Tensor:
        """(batch, length, entity width): e~."""
        if self.attends:
            attended = self.entity_attention(entities, bias, rng)
            entities = self.entity_norm1(add_with_dropout(entities, attended, self.recipe.dropout, rng))
        return entities * is_slot[..., None]

    def fuse(self, x: Tensor, entities: Tensor, rng: DropoutRng | None) -> tuple[Tensor, Tensor]:
        """w' and e'; the last layer returns e~."""
        hidden = self.feedforward.activation(self.feedforward.inner(x) + self.entity_inner(entities))
        x = self.norm2(add_with_dropout(x, self.feedforward.outer(hidden), self.recipe.dropout, rng))
        if self.is_last:
            return x, entities
        changed = add_with_dropout(entities, self.entity_outer(hidden), self.recipe.dropout, rng)
        return x, self.entity_norm2(changed)


class FusionTransformer(Transformer):
    """Layers of a Transformer over tokens, then layers that fuse tokens and entities."""

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__(recipe)
        encoder, entities = self.recipe, recipe.entities
        of_entities = replace(encoder, width=entities.width, heads=entities.heads)
        for number in range(entities.text_layers, encoder.layers):
            attends, is_last = number > entities.text_layers, number == encoder.layers - 1
            self.layers[number] = FusionLayer(encoder, of_entities, attends=attends, is_last=is_last)
        self.entity_width = entities.width

    def forward(
        self,
        inputs: Tensor,
        mask: AttentionMask,
        positions: Tensor | None = None,
        queries: Tensor | None = None,
        query_mask: AttentionMask | None = None,
    ) -> EncoderOutput:
        """As for all encoders; a batch without entities is read by the layers of a Transformer alone."""
        if mask.entities is None:
            return super().forward(inputs, mask, positions, queries, query_mask)
        assert queries is None
        stream, states = mask.entities, [inputs]
        for layer in self.layers[:-1]:
            x = cast(Layer, layer).self_attention(states[-1], mask.bias(inputs.dtype), mask)
            x, stream = _fuse(cast(Layer, layer), x, stream, mask)
            states.append(x)
        last = cast(FusionLayer, self.layers[-1])
        if positions is None:
            x = last.self_attention(states[-1], mask.bias(inputs.dtype), mask)
            states.append(_fuse(last, x, stream, mask)[0])
            return states, select_positions(states[-1], None)
        gathered = GatheredQueries(positions, (inputs.shape[0], inputs.shape[1]))
        bias = gathered.select_bias(mask.bias(inputs.dtype))
        x = last.query_attention(select_positions(states[-1], positions), gathered, states[-1], bias, mask.rng)
        entities = _attend(last, stream, mask)
        return states, last.fuse(x, select_positions(entities, positions), mask.rng)[0]

    def flops(self, length: int, predicted: float = 1.0, source: int | None = None) -> float:
        """With those of entities at all positions, as they are computed if a batch has any."""
        layers = [layer for layer in self.layers if isinstance(layer, FusionLayer)]
        width, product = self.entity_width, 2.0 * self.entity_width * self.recipe.ffn_width
        attention = sum(layer.attends for layer in layers) * (8.0 * width * width + 4.0 * length * width)
        return super().flops(length, predicted, source) + attention + (2 * len(layers) - 2 + predicted) * product


def _fuse(layer: Layer, x: Tensor, stream: EntityInputs, mask: AttentionMask) -> tuple[Tensor, EntityInputs]:
    """The second half of a layer."""
    if not isinstance(layer, FusionLayer):
        return layer.feed_forward(x, mask.rng), stream
    x, entities = layer.fuse(x, _attend(layer, stream, mask), mask.rng)
    return x, stream._replace(vectors=entities)


def _attend(layer: FusionLayer, stream: EntityInputs, mask: AttentionMask) -> Tensor:
    return layer.attend_entities(stream.vectors, mask.entity_bias(stream.vectors.dtype), stream.is_slot, mask.rng)
