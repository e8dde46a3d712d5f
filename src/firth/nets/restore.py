"""Models of trained networks and of saved arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from firth.errors import ArtifactError
from firth.lm.language_model import LanguageModel, UnknownWordModel, restore_spelling
from firth.nets.causal import CausalNet
from firth.nets.characters import CharacterTable
from firth.nets.embedding import Embedding
from firth.nets.int8 import unpack_arrays
from firth.nets.model import NetModel, own_tensors
from firth.nets.network import Network, Vocabulary, build_network, make_decoder, make_encoder, make_entities
from firth.nets.ngrams_recipe import NgramsRecipe
from firth.nets.recipe import NetRecipe
from firth.nets.with_ngrams import CLASSES
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer

Arrays = Mapping[str, npt.NDArray[Any]]
HEADS = "heads."
_MAX_TOTAL = 2.0**62  # occurrences of all tokens


class Ngrams(NamedTuple):
    """The n-gram model beside a network."""

    model: LanguageModel
    weights: npt.NDArray[np.float64]
    """Of the network and of the n-gram model."""

    @property
    def shares(self) -> dict[str, float]:
        """The weights by name."""
        return dict(zip(("network", "ngrams"), self.weights.tolist(), strict=True))


def make_model(
    recipe: NetRecipe,
    network: Network,
    tokenizer: Tokenizer,
    layout: Layout,
    unknown_word_model: UnknownWordModel,
    heads: Mapping[str, Tensor] | None = None,
    ngrams: Ngrams | None = None,
) -> NetModel:
    """The model of a trained network; `heads` are the parameters of the objectives, `heads.NAME.parameter`.

    Its recipe has an n-gram model only if there is one.
    """
    kinds = (objective.model_type(recipe) for objective in recipe.objectives)
    kind = next((kind for kind in kinds if kind is not None), NetModel)
    if ngrams is None:
        recipe = replace(recipe, ngrams=NgramsRecipe())
        return kind(recipe, network, tokenizer, layout, unknown_word_model, heads or {})
    parts = (recipe, network, tokenizer, layout, unknown_word_model, heads or {})
    return CLASSES[cast(type[CausalNet], kind)](*parts, ngrams=ngrams.model, weights=ngrams.weights)


def restore_net(
    recipe: NetRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout, ngrams: Ngrams | None = None
) -> NetModel:
    """The model of the arrays of a saved artifact, whose names, types and shapes are checked."""
    arrays, matrices = unpack_arrays(arrays)
    counts = _array(arrays, "counts", np.int64, (len(tokenizer),))
    if counts.min(initial=0) < 0 or float(counts.sum(dtype=np.float64)) >= _MAX_TOTAL:
        raise ArtifactError("the tensor 'counts' holds no counts: copy the folder again, or train the model again.")
    unknown_word_model = restore_spelling(arrays)
    vocabulary = Vocabulary(tokenizer.vocabulary, np.array(counts))
    _check_sizes(recipe, arrays, vocabulary)
    with _SkipInit():
        network = build_network(recipe, vocabulary, 0, skip_init=True)
    codes = _byte_codes(network)
    load_tensors(network, arrays)
    for name, tensor in own_tensors(network).items():
        if name in matrices:
            matrices[name].attach(tensor)
    if not network.output.is_sound() or not np.array_equal(codes, _byte_codes(network)):
        raise ArtifactError("the tables of the network do not fit its vocabulary: copy the folder again, or train it.")
    heads = {name: _copy(array) for name, array in arrays.items() if name.startswith(HEADS)}
    model = make_model(recipe, network, tokenizer, layout, unknown_word_model, heads, ngrams)
    _ = model.word_classes  # which are checked
    return model


def load_tensors(network: nn.Module, arrays: Arrays) -> None:
    """Load saved parameters and buffers into a network; raise `ArtifactError` unless the names and shapes match."""
    own = own_tensors(network)
    for name, tensor in own.items():
        _array(arrays, name, tensor.numpy(force=True).dtype, tuple(tensor.shape))
    unknown = sorted(name for name in arrays.keys() - own.keys() if not name.startswith(HEADS))
    if others := [name for name in unknown if name not in ("counts", "spelling")]:
        raise ArtifactError(f"the recipe has no tensor {others[0]!r}: the weights were made by another one.")
    for name, tensor in own.items():
        tensor.data = _copy(arrays[name])  # tied tensors stay tied


def restore_second_network(
    recipe: NetRecipe, first: Network, tensors: Mapping[str, Tensor], *, shared: bool = True
) -> Network:
    """A network that shares the embedding of the first one, if `shared`; saved tensors for the rest are checked."""
    with torch.device("meta"), _SkipInit():  # nothing of the recipe's size is allocated before the check
        network = Network(recipe, first.vocabulary, first.embedding if shared else None)
    of_first = {id(tensor) for tensor in own_tensors(first).values()}
    own = {name: tensor for name, tensor in own_tensors(network).items() if id(tensor) not in of_first}
    arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    for name, tensor in own.items():
        _array(arrays, name, np.float32, tuple(tensor.shape))
    if unknown := sorted(arrays.keys() - own.keys()):
        raise ArtifactError(f"the recipe has no tensor {unknown[0]!r}: the weights were made by another one.")
    network.load_state_dict({name: nn.Parameter(tensor) for name, tensor in tensors.items()}, False, assign=True)
    return network.eval()


def _byte_codes(network: Network) -> npt.NDArray[Any]:
    """The byte codes of tokens in a network that reads characters; empty in others."""
    tokens = network.embedding.tokens
    return tokens.codes.numpy().copy() if isinstance(tokens, CharacterTable) else np.zeros(0)


def _check_sizes(recipe: NetRecipe, arrays: Arrays, vocabulary: Vocabulary) -> None:
    """Raise `ArtifactError` if the weights do not fit the recipe, before anything of its size is allocated."""
    with torch.device("meta"), _SkipInit():
        modules: dict[str, nn.Module | None] = {
            "embedding": Embedding(recipe, vocabulary.tokens),
            "encoders.0": make_encoder(recipe),
            "decoder": make_decoder(recipe),
            "entities": make_entities(recipe, vocabulary.tokens),
        }
    for prefix, module in modules.items():
        for name, tensor in own_tensors(module).items() if module is not None else ():
            _array(arrays, f"{prefix}.{name}", None, tuple(tensor.shape))


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


class _SkipInit(TorchFunctionMode):
    """Skips random initialisation of weights that are to be loaded."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_random = function in (torch.Tensor.normal_, torch.Tensor.uniform_)
        if is_random or getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return function(*args, **(kwargs or {}))
