"""Settings of a trained network that may be others in use than in training."""

from __future__ import annotations

from typing import Any, cast

from firth.errors import AbilityError
from firth.nets.recipe import NetRecipe
from firth.recipes.values import Settings, differing_fields, override, recipe_to_json, setting_list

USE_FIELDS = ("memory.length", "memory.same_length", "encoder.clamp_length", "sequence.length")
"""The fields of a network with a memory that its parameters do not depend on."""


def with_settings(model: Any, settings: Settings) -> Any:
    """The model with other lengths of its memory and its segments; any other setting raises `AbilityError`.

    Transformer-XL is evaluated with a longer memory than it is trained with.
    """
    given = setting_list(settings)
    if not given:
        return model
    recipe = getattr(model, "recipe", None)
    if not isinstance(recipe, NetRecipe) or not recipe.memory.length:
        raise AbilityError("only a network with a memory, such as transformer-xl, can be changed: leave --set out.")
    changed = cast(NetRecipe, override(recipe, given))
    names = differing_fields(recipe_to_json(recipe), recipe_to_json(changed))
    if others := [name for name in names if name not in USE_FIELDS]:
        raise AbilityError(f"{others[0]} is fixed by training: set {', '.join(USE_FIELDS)} only.")
    if not changed.memory.length:
        raise AbilityError("memory.length=0 leaves the network without its memory: set it to 1 or more.")

    from firth.nets.restore import restore_net

    return restore_net(changed, model.arrays(), model.tokenizer, model.layout)
