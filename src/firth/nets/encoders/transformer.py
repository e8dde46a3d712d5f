"""Transformer (Vaswani et al. 2017): attention and feed-forward layers, normalised before or after."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import cast

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.encoders.attention import attend, look, split
from firth.nets.encoders.encoder import Encoder, pick
from firth.nets.linear import Linear, linear
from firth.nets.noise import Noise, add_dropped
from firth.nets.recipe import EncoderRecipe, NetRecipe
from firth.nets.visibility import Asked, Sight, Source, View

_SPREAD = 0.02
_FEW = 0.75  # share of the places up to which the last layer is made for these alone
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": f.gelu,
    "gelu-tanh": lambda x: f.gelu(x, approximate="tanh"),
    "relu": f.relu,
    "tanh": torch.tanh,
}


class Attention(nn.Module):
    """Every place asks all that it sees, with several heads."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.qkv = make_linear(recipe.width, 3 * recipe.width)
        self.out = make_linear(recipe.width, recipe.width)

    def forward(self, seen: Tensor, sight: Sight, noise: Noise | None) -> Tensor:
        """(rows, places, width): all places ask."""
        heads, rate = self.recipe.heads, self.recipe.attention_dropout
        return cast(Tensor, self.out(attend(None, self.qkv(seen), heads, sight, rate, noise)))

    def ask(self, asking: Tensor, asked: Asked, seen: Tensor, sight: Sight, noise: Noise | None) -> Tensor:
        """(places, width): some places ask; `sight` is theirs."""
        heads, rate, width = self.recipe.heads, self.recipe.attention_dropout, self.recipe.width
        queries = linear(asking, self.qkv.weight[:width], self.qkv.bias[:width])
        keys = linear(seen, self.qkv.weight[width:], self.qkv.bias[width:])
        found = attend(asked.spread(queries), keys, heads, sight, rate, noise)
        return cast(Tensor, self.out(asked.collect(found)))

    def extend(
        self, entered: Tensor, memory: list[Tensor], sight: Sight, passing: int = 0
    ) -> tuple[Tensor, list[Tensor]]:
        """What new places find in those before them and, by `sight`, in one another; all keys and values so far.

        Those of the last `passing` places are not among them.
        """
        queries, *new = split(self.qkv(entered), self.recipe.heads, 3)
        keys, values = (torch.cat(each, 2) for each in zip(memory, new, strict=True)) if memory else new
        old = keys.shape[2] - queries.shape[2]
        hidden = None if sight.hidden is None else f.pad(sight.hidden, (old, 0))
        kept = keys.shape[2] - passing
        return self.out(look(queries, keys, values, Sight(hidden))), [keys[:, :, :kept], values[:, :, :kept]]


class SourceAttention(nn.Module):
    """Every place of a decoder asks all places of its source."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.query = make_linear(recipe.width, recipe.width)
        self.keys = make_linear(recipe.source, 2 * recipe.width)
        self.out = make_linear(recipe.width, recipe.width)

    def forward(self, asking: Tensor, source: Source, noise: Noise | None) -> Tensor:
        """(rows, places, width)."""
        heads, rate, keys = self.recipe.heads, self.recipe.attention_dropout, self.keys(source.states)
        return cast(Tensor, self.out(attend(self.query(asking), keys, heads, source.sight, rate, noise)))

    def remember(self, source: Source) -> list[Tensor]:
        """Keys and values of sources of the same length, so that they are made once."""
        assert source.sight.hidden is None, "sources that are kept should be equally long"
        return list(split(self.keys(source.states), self.recipe.heads, 2))

    def extend(self, asking: Tensor, memory: list[Tensor]) -> Tensor:
        """What new places find in the source."""
        (queries,), (keys, values) = split(self.query(asking), self.recipe.heads, 1), memory
        return cast(Tensor, self.out(look(queries, keys, values, Sight(None))))


class FeedForward(nn.Module):
    """Two products with an activation between."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        self.inner = make_linear(recipe.width, recipe.inner)
        self.outer = make_linear(recipe.inner, recipe.width)
        self.activation = ACTIVATIONS[recipe.activation]

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.outer(self.activation(self.inner(x))))


class Layer(nn.Module):
    """Attention, then feed-forward, each added to what went in; a layer may have one of the two, and use another's."""

    def __init__(self, recipe: EncoderRecipe, *, attention: bool = True, feedforward: bool = True) -> None:
        super().__init__()
        self.recipe = recipe
        if attention:
            self.attention, self.norm1 = Attention(recipe), make_norm(recipe)
        if attention and recipe.source:
            self.source, self.norm3 = SourceAttention(recipe), make_norm(recipe)
        if feedforward:
            self.feedforward, self.norm2 = FeedForward(recipe), make_norm(recipe)

    def attend(self, x: Tensor, sight: Sight, view: View) -> Tensor:
        """The first half for all places, and what they find in the source if there is one."""
        noise, source = view.noise, view.source
        x = self._add(x, lambda y: self.attention(y, sight, noise), self.norm1, noise)
        return x if source is None else self._add(x, lambda y: self.source(y, source, noise), self.norm3, noise)

    def ask(self, asking: Tensor, asked: Asked, seen: Tensor, sight: Sight, noise: Noise | None) -> Tensor:
        """The first half for other states than those that are seen."""
        before = self.norm1(seen) if self.recipe.norm == "pre" else seen
        return self._add(asking, lambda y: self.attention.ask(y, asked, before, sight, noise), self.norm1, noise)

    def extend(self, x: Tensor, memory: list[Tensor], sight: Sight, view: View) -> tuple[Tensor, list[Tensor]]:
        """The first half for new places, and what to keep of all so far and of the source."""
        kept: list[Tensor] = []

        def change(y: Tensor) -> Tensor:
            found, new = self.attention.extend(y, memory[:2], sight, view.passing)
            kept.extend(new)
            return found

        x = self._add(x, change, self.norm1, None)
        if not self.recipe.source:
            return x, kept
        if view.source is not None:
            memory = [*kept, *self.source.remember(view.source)]
        return self._add(x, lambda y: self.source.extend(y, memory[2:]), self.norm3, None), [*kept, *memory[2:]]

    def feed(self, x: Tensor, noise: Noise | None) -> Tensor:
        """The second half."""
        return self._add(x, self.feedforward, self.norm2, noise)

    def _add(self, x: Tensor, change: Callable[[Tensor], Tensor], norm: nn.Module, noise: Noise | None) -> Tensor:
        """x + change(norm(x)), or norm(x + change(x))."""
        if self.recipe.norm == "pre":
            return add_dropped(x, change(norm(x)), self.recipe.dropout, noise)
        return cast(Tensor, norm(add_dropped(x, change(x), self.recipe.dropout, noise)))


class Transformer(Encoder):
    """A stack of layers; those that share all parameters are one layer used again and again."""

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__()
        self.recipe = recipe.encoder
        own = range(1, self.recipe.layers) if self.recipe.share != "all" else ()
        attention, feedforward = self.recipe.share != "attention", self.recipe.share != "feed-forward"
        self.layers = nn.ModuleList(Layer(self.recipe) for _ in range(min(1, self.recipe.layers)))
        self.layers.extend(Layer(self.recipe, attention=attention, feedforward=feedforward) for _ in own)
        self.norm = make_norm(self.recipe) if self.recipe.norm == "pre" else None
        if self.recipe.norm == "pre":
            self._shrink()

    def forward(
        self,
        entered: Tensor,
        view: View,
        places: Tensor | None = None,
        queries: Tensor | None = None,
        query_view: View | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """As for all encoders; with `queries` (places, width) it is these that ask in every layer, and are returned.

        They see the other states as `query_view` says, and change none of them: the two streams of XLNet.
        """
        shape, noise = (entered.shape[0], entered.shape[1]), view.noise
        states, sight = [entered], view.sight(entered.dtype)
        asked = None
        few = places is not None and view.source is None and len(places) <= _FEW * math.prod(shape)
        if places is not None and (queries is not None or few):
            asked = Asked(places, shape)
            asked_sight = asked.limit((query_view or view).sight(entered.dtype))
        for number, (first, second) in enumerate(self._halves(), 1):
            seen, last = states[-1], number == self.recipe.layers
            if last and asked is not None and queries is None:
                queries = pick(seen, places)
            if queries is not None and asked is not None:
                queries = second.feed(first.ask(queries, asked, seen, asked_sight, noise), noise)
            if not last or places is None:
                states.append(second.feed(first.attend(seen, sight, view), noise))
            elif queries is None:
                queries = second.feed(pick(first.attend(seen, sight, view), places), noise)
        if queries is not None:
            return states, self._finish(queries)
        states[-1] = self._finish(states[-1])
        return states, pick(states[-1], places)

    def extend(self, entered: Tensor, memory: list[Tensor], view: View | None = None) -> tuple[Tensor, list[Tensor]]:
        """The memory has the keys and the values of each layer, (rows, heads, places, size) each, then the source's."""
        view = view or View("causal", (entered.shape[0], entered.shape[1]))
        sight = view.sight(entered.dtype) if entered.shape[1] > 1 else Sight(None)
        states, kept, own = entered, [], 4 if self.recipe.source else 2
        for number, (first, second) in enumerate(self._halves()):
            states, new = first.extend(states, memory[own * number : own * (number + 1)], sight, view)
            states = second.feed(states, None)
            kept += new
        return self._finish(states), kept

    def work(self, length: int, predicted: float = 1.0) -> float:
        width, inner, layers = self.recipe.width, self.recipe.inner, self.recipe.layers
        if not layers:
            return 0.0
        keys, rest = 4.0 * width * width, 4.0 * width * width + 4.0 * length * width
        asking = predicted if predicted <= _FEW else 1.0
        last = keys + asking * rest + predicted * 4.0 * width * inner
        return (layers - 1) * (keys + rest + 4.0 * width * inner) + last

    def _halves(self) -> Iterator[tuple[Layer, Layer]]:
        """For each layer in turn, the one whose attention it uses and the one whose feed-forward layer."""
        share = self.recipe.share
        for number in range(self.recipe.layers):
            first = 0 if share in ("all", "attention") else number
            second = 0 if share in ("all", "feed-forward") else number
            yield cast(Layer, self.layers[first]), cast(Layer, self.layers[second])

    def _finish(self, states: Tensor) -> Tensor:
        return states if self.norm is None else cast(Tensor, self.norm(states))

    @torch.no_grad()
    def _shrink(self) -> None:
        """What layers add starts smaller in a deep stack, so that the sum does not grow (Radford et al. 2019)."""
        for name, parameter in self.layers.named_parameters():
            if name.endswith(("attention.out.weight", "feedforward.outer.weight")):
                parameter.div_(math.sqrt(2 * self.recipe.layers))


def make_linear(inputs: int, outputs: int) -> Linear:
    """A product with a bias; first parameters as in BERT."""
    made = Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=_SPREAD)
    nn.init.zeros_(made.bias)
    return made


def make_norm(recipe: EncoderRecipe) -> nn.Module:
    """What normalises states, if they are."""
    return nn.Identity() if recipe.norm == "none" else nn.LayerNorm(recipe.width, eps=recipe.eps)
