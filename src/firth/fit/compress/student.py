"""Students: smaller networks with the tokens of a teacher, made of some of its layers where that is possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from firth.errors import RecipeError
from firth.fit.resolve import fill_in
from firth.nets.model import NetModel, own_tensors
from firth.nets.network import build_network
from firth.nets.recipe import NetRecipe
from firth.nets.restore import load_tensors, make_model

_LAYERS = "encoders.0.layers."


def kept_layers(teacher: int, student: int) -> list[int]:
    """The layers of a teacher that a student begins with: the first, the last and others evenly between them.

    >>> kept_layers(12, 6), kept_layers(12, 2), kept_layers(4, 1)
    ([0, 2, 4, 7, 9, 11], [0, 11], [0])
    """
    if student < 2:
        return [0][:student]
    return [round(number * (teacher - 1) / (student - 1)) for number in range(student)]


def layer_map(teacher: int, student: int) -> list[int]:
    """For each layer of states of a student, the embedding first, the teacher's layer that it is trained to match.

    >>> layer_map(12, 4)
    [0, 3, 6, 9, 12]
    """
    return [round(number * teacher / max(student, 1)) for number in range(student + 1)]


def make_student(teacher: NetModel, recipe: NetRecipe, seed: int) -> tuple[NetModel, list[int]]:
    """A new network of the recipe with the teacher's tokens, and the layers of the teacher that it was copied from.

    Parameters with the same shape as the teacher's are copied; all others are initialised anew.
    """
    recipe = fill_in(recipe.with_tokenizer(teacher.recipe.tokenizer), len(teacher.tokenizer))
    network = build_network(recipe, teacher.network.vocabulary, seed)
    own = {name: tensor.detach().numpy() for name, tensor in own_tensors(network).items()}
    given = {name: tensor.detach().numpy() for name, tensor in own_tensors(teacher.network).items()}
    is_alike = _without_depth(recipe) == _without_depth(teacher.recipe) and recipe.encoder.tie_layers == "none"
    chosen = kept_layers(teacher.recipe.encoder.layers, recipe.encoder.layers) if is_alike else []
    for name, array in own.items():
        source = _source_name(name, chosen) if is_alike else name
        if source in given and given[source].shape == array.shape and (is_alike or not name.startswith("encoders.")):
            own[name] = np.array(given[source])
    load_tensors(network, own)
    heads = teacher.heads if recipe.width == teacher.recipe.width else {}
    parts = (teacher.tokenizer, teacher.layout, teacher.unknown_word_model)
    return make_model(recipe, network, *parts, heads), chosen


def _without_depth(recipe: NetRecipe) -> tuple[object, ...]:
    """What two networks must have in common for a layer of one to be a layer of the other."""
    encoder = replace(recipe.encoder, layers=1, layer_sizes=(), dropout=0.0, attention_dropout=0.0)
    embedding = replace(recipe.embedding, dropout=0.0)
    return encoder, embedding, recipe.visibility, recipe.decoder


def _source_name(name: str, chosen: list[int]) -> str:
    """The name in the teacher of a parameter of the student."""
    if not name.startswith(_LAYERS):
        return name
    number, _, rest = name.removeprefix(_LAYERS).partition(".")
    return f"{_LAYERS}{chosen[int(number)]}.{rest}"


def smaller_recipe(recipe: NetRecipe, layers: int, width: int) -> NetRecipe:
    """The recipe with fewer layers or a narrower encoder; 0 keeps what it has."""
    encoder, embedding = recipe.encoder, recipe.embedding
    if layers > encoder.layers or width > encoder.width:
        raise RecipeError(
            f"the teacher has {encoder.layers} layers of width {encoder.width}: give a student fewer with "
            "--set layers=N or --set width=N."
        )
    if layers and encoder.layer_sizes:
        raise RecipeError("a pruned network has layers of different sizes: distil it before it is pruned.")
    if layers:
        encoder = replace(encoder, layers=layers)
    if width and width != encoder.width:
        size = encoder.width // encoder.heads
        if width % size:
            raise RecipeError(f"width={width} must be a multiple of the size of a head, {size}.")
        is_own = embedding.width == encoder.width
        embedding = replace(embedding, width=width) if is_own else embedding
        ffn_width = max(1, round(encoder.ffn_width * width / encoder.width)) if encoder.ffn_width else 0
        encoder = replace(encoder, width=width, heads=width // size, ffn_width=ffn_width)
    return replace(recipe, encoder=encoder, embedding=embedding)
