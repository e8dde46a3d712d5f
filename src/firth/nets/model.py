"""NetModel: a trained network and its tokens. What it can do beside vectors depends on what it was taught."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from firth.errors import AbilityError, ArtifactError
from firth.nets.embedding import Embedding
from firth.nets.encoders.encoder import make_encoder
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.nets.scoring import Numbers, batch_of, longest, one_line
from firth.text.layout import Layout
from firth.tokens.encoder import Encoder
from firth.tokens.language import FIRST_WORD
from firth.tokens.spelling import END, Spelling
from firth.tokens.tokenizer import BOS, EOS, Tokenizer

Floats = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[Any]]
HEADS = "heads."
_TOKENS = 4096  # whose vectors are made at once


class Parts(NamedTuple):
    """What a model is made of."""

    recipe: NetRecipe
    network: Network
    tokenizer: Tokenizer
    layout: Layout
    spelling: Spelling
    counts: npt.NDArray[np.int64]
    """How often each token occurs in the text."""
    heads: Mapping[str, Tensor]
    """The objectives' own layers, `heads.NAME.parameter`."""


class NetModel:
    """A network that makes vectors of tokens, words and texts."""

    shows_progress = True
    """Whoever shows how far its work has come need not."""

    def __init__(self, parts: Parts) -> None:
        self.recipe = parts.recipe
        self.network = parts.network.cpu().eval()
        self.tokenizer = parts.tokenizer
        self.layout = parts.layout
        self.spelling = parts.spelling
        self.counts = parts.counts
        self.heads = dict(parts.heads)
        self.words = parts.tokenizer.vocabulary
        self._encoder = Encoder(parts.tokenizer)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps: parameters by name, shared ones once."""
        tensors = own_tensors(self.network) | self.heads
        arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
        return arrays | {"spelling": self.spelling.counts, "counts": self.counts}

    @property
    def frame(self) -> tuple[int, bool]:
        """What stands before a text, and whether its sentences have ends: `</s> a </s> b </s>` or `[CLS] a b [SEP]`."""
        plain = self.recipe.rows.format == "stream" or self.recipe.visibility != "bidirectional"
        return (EOS, True) if plain else (BOS, False)

    def logits(self, ids: Tensor) -> Tensor:
        """(rows, places, tokens): what the network says of each place of rows of ids, before it is normalised."""
        self.check_ids(ids)
        with torch.no_grad():
            states = self.network(batch_of(ids)).last
            return self.network.output.logits(states).view(*ids.shape, -1)

    def check_ids(self, ids: Tensor) -> None:
        """Raises `AbilityError` unless these are rows of ids that the network can read."""
        if ids.dtype != torch.int64 or ids.dim() != 2 or not ids.numel():
            raise AbilityError("ids must be a LongTensor of rows and places, with at least one of each.")
        if int(ids.min()) < 0 or int(ids.max()) >= len(self.words):
            raise AbilityError(f"ids must be from 0 to {len(self.words) - 1}: use the ids of this model's tokenizer.")
        most = longest(self.recipe)
        if most is not None and ids.shape[1] > most:
            raise AbilityError(f"the network has {most} positions, not {ids.shape[1]}: give shorter rows.")

    def embed(self, texts: Sequence[str], *, layer: str | int = "last", pooling: str = "mean") -> Floats:
        """A row for each text, made of its tokens' states; zeros for a text without tokens.

        `layer` is a number (0 are the vectors that enter the first layer), last, mix (the mean of all, as ELMo's with
        equal weights) or all (side by side). `pooling` is mean, whole (the mean with what stands around
        the text counted, too, as sentence-transformers has it), max, last (token) or first: [CLS] where there is one.
        """
        from firth.nets.contexts import embed_texts

        return embed_texts(self, texts, layer, pooling)

    def layers(self, texts: Sequence[str]) -> list[list[Floats]]:
        """For each text the states of its tokens (tokens, width), layer by layer, those that enter the first one first.

        Networks that read both ways have 2L + 1: what enters, and then each layer forwards and backwards (ELMo).
        """
        from firth.nets.contexts import all_layers

        return all_layers(self, texts)

    def encode(self, sentences: Sequence[str]) -> list[Numbers]:
        """The ids of each sentence, none of which may hold a line end."""
        encoded = self._encoder.encode(sentences)
        ids, ends = encoded.ids.astype(np.int64), np.cumsum(encoded.lengths).tolist()
        return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each token that is not special."""
        return {word: row for row, word in enumerate(self.words) if row >= FIRST_WORD}

    @cached_property
    def vectors(self) -> Floats:
        """(tokens, width): what each token is before it meets others."""
        with torch.inference_mode():
            ids = torch.arange(len(self.words))
            parts = [ids[begin : begin + _TOKENS] for begin in range(0, len(ids), _TOKENS)]
            return np.asarray(torch.cat([self.network.embedding.tokens(part) for part in parts]).numpy())

    @cached_property
    def _units(self) -> Floats:
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        return np.asarray(self.vectors / np.maximum(lengths, 1e-12))

    def row(self, word: str) -> int:
        """The row of a word that is one token; any other raises `AbilityError`."""
        ids = self._pieces(word)
        if len(ids) != 1:
            raise AbilityError(f"{word!r} is {len(ids)} tokens, so it has no row of its own: ask for its vector.")
        return ids[0]

    def vector(self, word: str) -> Floats:
        """The vector of a word, whatever the context: the mean of its tokens' vectors."""
        return np.asarray(self.vectors[self._pieces(word)].mean(axis=0))

    def similarity(self, one: str, two: str) -> float:
        """The cosine of the angle between two words' vectors."""
        first, second = (_unit(self.vector(word)) for word in (one, two))
        return float(np.clip(first @ second, -1, 1))

    def similar(
        self, word: str, count: int = 10, *, context: str | None = None, text: Sequence[str] = ()
    ) -> list[tuple[str, float]]:
        """The tokens nearest to a word by their vectors, and their cosines.

        With a context, the words nearest to the word as it is meant there: those of the sentences of `text`, or of the
        context itself.
        """
        if context is not None:
            from firth.nets.contexts import nearest_occurrences

            return [(near.word, near.score) for near in nearest_occurrences(self, word, context, text, count)]
        ids = self._pieces(word)
        scores = self._units @ _unit(self.vector(word))
        scores[:FIRST_WORD] = -np.inf
        if len(ids) == 1:
            scores[ids] = -np.inf
        order = np.argsort(-scores, kind="stable")[: max(count, 0)]
        found = [(row, float(scores[row])) for row in order.tolist() if scores[row] > -np.inf]
        return [(self.written(row).strip() or self.words[row], score) for row, score in found]

    def written(self, token: int) -> str:
        """A token as people write it, a space before it if that is a part of it."""
        return str(self.tokenizer.backend.decode([token], skip_special_tokens=False)) or self.words[token]

    def _pieces(self, word: str) -> list[int]:
        """The ids of a word's tokens."""
        if word in self.rows:
            return [self.rows[word]]
        ids = [one for one in self.tokenizer.encode(one_line(word)).ids if one >= FIRST_WORD]
        if not ids:
            raise AbilityError(f"there is no vector for {word!r}: ask for a word that occurs often enough in the text.")
        return ids


def _unit(vector: Floats) -> Floats:
    length = np.linalg.norm(vector)
    return np.asarray(vector / length if length > 0 else vector)


def make_model(
    recipe: NetRecipe,
    network: Network,
    tokenizer: Tokenizer,
    layout: Layout,
    spelling: Spelling,
    extra: Mapping[str, Tensor] | None = None,
) -> NetModel:
    """What a trained network can be used for; `extra` has the objectives' own layers, `heads.NAME.parameter`."""
    counts = np.asarray(network.vocabulary.counts, dtype=np.int64)
    return _kind(recipe)(Parts(recipe, network, tokenizer, layout, spelling, counts, extra or {}))


def _kind(recipe: NetRecipe) -> type[NetModel]:
    """What a model is depends on what it was taught."""
    if "bilm" in recipe.names:
        from firth.nets.twoway import TwoWayNet, TwoWayStreamNet

        return TwoWayStreamNet if recipe.rows.format == "stream" else TwoWayNet
    if {"clm", "autoencoding"} & set(recipe.names):
        from firth.nets.causal import CausalNet, StreamNet

        return StreamNet if recipe.rows.format == "stream" else CausalNet
    if "mlm" in recipe.names:
        from firth.nets.masked import MaskedNet

        return MaskedNet
    return NetModel


def restore(recipe: NetRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> NetModel:
    """The model of a saved artifact's arrays, after a look at their names, types and shapes."""
    counts = _array(arrays, "counts", np.int64, (len(tokenizer),))
    spelling = _array(arrays, "spelling", np.int64, (END + 1, END + 1))
    vocabulary = Vocabulary(tokenizer.vocabulary, np.array(counts))
    _check_sizes(recipe, arrays, vocabulary)
    with _WithoutChance():
        network = build_network(recipe, vocabulary, 0, empty=True)
    load_tensors(network, arrays)
    heads = {name: _copy(array) for name, array in arrays.items() if name.startswith(HEADS)}
    return _kind(recipe)(
        Parts(recipe, network, tokenizer, layout, Spelling(np.array(spelling)), vocabulary.counts, heads)
    )


def own_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; what has several names, by the first."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())


def load_tensors(network: nn.Module, arrays: Arrays) -> None:
    """Gives a network the parameters and buffers that were saved; raises `ArtifactError` unless they are just those."""
    own = own_tensors(network)
    for name, tensor in own.items():
        _array(arrays, name, tensor.numpy(force=True).dtype, tuple(tensor.shape))
    unknown = sorted(name for name in arrays.keys() - own.keys() if not name.startswith(HEADS))
    if others := [name for name in unknown if name not in ("counts", "spelling")]:
        raise ArtifactError(f"the recipe has no tensor {others[0]!r}: the weights were made by another one.")
    for name, tensor in own.items():
        tensor.data = _copy(arrays[name])  # whatever shares the tensor goes on sharing it


def _check_sizes(recipe: NetRecipe, arrays: Arrays, vocabulary: Vocabulary) -> None:
    """Raises `ArtifactError` if the weights do not fit the recipe, before anything of its size is made."""
    with torch.device("meta"), _WithoutChance():
        embedding, encoder = Embedding(recipe, vocabulary.tokens), make_encoder(recipe)
    for name, tensor in own_tensors(embedding).items():
        _array(arrays, f"embedding.{name}", None, tuple(tensor.shape))
    for name, tensor in own_tensors(encoder).items():
        _array(arrays, f"encoders.0.{name}", None, tuple(tensor.shape))


def _array(arrays: Arrays, name: str, dtype: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A saved array of that type (None for any) and shape."""
    again = "copy the folder again, or train the model again."
    if name not in arrays:
        raise ArtifactError(f"the tensor {name!r} is missing from the weights: {again}")
    found = arrays[name]
    if found.shape != shape:
        if name in ("counts", "embedding.tokens.weight") and found.shape[:1] != shape[:1]:
            raise ArtifactError(
                f"tokenizer.json has {shape[0]} tokens, but the weights are those of {len(found)}: {again}"
            )
        raise ArtifactError(f"the tensor {name!r} has the shape {found.shape}, not {shape}: {again}")
    if dtype is not None and found.dtype != dtype:
        raise ArtifactError(f"the tensor {name!r} is of the type {found.dtype}, not {np.dtype(dtype)}: {again}")
    return found


def _copy(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(array))


class _WithoutChance(TorchFunctionMode):
    """Leaves out the making of first parameters that are to be replaced."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        drawn = function in (torch.Tensor.normal_, torch.Tensor.uniform_)
        if drawn or getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return function(*args, **(kwargs or {}))
