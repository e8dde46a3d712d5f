"""Which parts of a recipe go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firth.errors import RecipeError
from firth.nets.field_checks import check_ranges
from firth.nets.objective import PAIRS

if TYPE_CHECKING:
    from firth.nets.recipe import EncoderRecipe, NetRecipe

CONTIGUOUS = ("contiguous", "contiguous-pair")
"""Formats of rows that go on from step to step."""


RECURRENT = ("rnn", "gru", "lstm")
"""Kinds of recurrent encoders of one direction."""


def can_init_adjacent(recipe: NetRecipe) -> bool:
    """Whether attention heads can be initialised to attend to adjacent tokens."""
    is_two_sided = recipe.encoder.kind == "transformer" and recipe.visibility == "bidirectional"
    if is_two_sided and recipe.encoder.positions == "buckets":
        return True
    # A wave in position vectors, and in a head, has a sine and a cosine.
    has_waves = min(recipe.encoder.width // recipe.encoder.heads, recipe.embedding.width) >= 2
    return is_two_sided and has_waves and recipe.embedding.positions == "learned"


def check_recurrent(encoder: EncoderRecipe) -> None:
    """Raise `RecipeError` if the fields of recurrent encoders do not go with the kind or with each other."""
    if encoder.kind not in RECURRENT and (encoder.inner_width or encoder.output_dropout is not None):
        raise RecipeError(
            f"encoder.inner_width and encoder.output_dropout are of recurrent encoders, not of a {encoder.kind}: set "
            "them to 0 and none."
        )
    if encoder.kind == "bilstm" and encoder.width % 2:
        raise RecipeError(f"encoder.width={encoder.width} must be even: half of it is of each direction.")
    if encoder.residual and encoder.inner_width not in (0, encoder.width):
        raise RecipeError("encoder.residual adds layers of one width: set encoder.inner_width=0.")


def check_combination(recipe: NetRecipe) -> None:
    """Raise `RecipeError` if the parts of a recipe do not fit together."""
    encoder, is_pair = recipe.encoder, recipe.sequence.format in PAIRS
    for objective in recipe.objectives:
        objective.check(recipe)
    if len(set(recipe.names)) < len(recipe.names):
        raise RecipeError(f"the recipe has an objective twice ({'+'.join(recipe.names)}): leave it out.")
    _check_memory(recipe)
    if recipe.output.kind in ("tied", "adaptive-tied") and recipe.embedding.characters:
        raise RecipeError("character-based embeddings cannot be tied to the output: set output.kind=full.")
    if encoder.kind in RECURRENT and recipe.visibility == "bidirectional":
        raise RecipeError("a recurrent encoder reads in one direction: set visibility=forward+backward for both.")
    if encoder.kind == "bilstm" and recipe.visibility != "bidirectional":
        raise RecipeError("a bilstm reads in both directions: set visibility=bidirectional, or encoder.kind=lstm.")
    if encoder.kind == "bilinear" and recipe.visibility != "causal":
        raise RecipeError("a bilinear encoder predicts from previous tokens: set visibility=causal.")
    if encoder.init == "adjacent" and not can_init_adjacent(recipe):
        raise RecipeError(
            "only a bidirectional Transformer with learned positions and heads of 2 dimensions or more, or with "
            "encoder.positions=buckets, can start with heads that attend to adjacent tokens: set encoder.init=random."
        )
    if recipe.decoder is not None:
        _check_decoder(recipe, recipe.decoder)
    if recipe.sequence.format == "consecutive" and (
        recipe.embedding.languages or any(one.copies > 1 for one in recipe.objectives)
    ):
        raise RecipeError(
            "sequence.format=consecutive has single sentences of one language: set sequence.format=sentences."
        )
    if recipe.embedding.segments == 1 and is_pair:
        raise RecipeError("pairs need embedding.segments=2, or 0 to mark segments by the separator alone.")
    if recipe.embedding.per_direction and (
        encoder.kind not in RECURRENT or recipe.directions == 1 or recipe.embedding.width % 2
    ):
        raise RecipeError(
            "embedding.per_direction divides an even embedding.width between two recurrent encoders: set "
            "encoder.kind=lstm and visibility=forward+backward, or leave it out."
        )
    _check_languages(recipe)
    _check_sentence(recipe)
    recipe.entities.check(recipe)
    recipe.ngrams.check(recipe)
    check_ranges(recipe, word_classes=(0, 30_000))


def _check_sentence(recipe: NetRecipe) -> None:
    part = recipe.sentence
    if part.bigrams and part.pooling not in ("mean", "sqrt"):
        raise RecipeError(
            f"sentence.bigrams are added to token vectors, which sentence.pooling={part.pooling} does not do: set "
            "sentence.pooling=mean, or sentence.bigrams=0."
        )
    if part.width and not part.layers:
        raise RecipeError(f"sentence.width={part.width} is that of layers, and sentence.layers is 0: set one of them.")
    if recipe.encoder.kind == "none" and recipe.embedding.width != recipe.encoder.width:
        raise RecipeError(
            f"without an encoder the states are token vectors, so embedding.width={recipe.embedding.width} and "
            f"encoder.width={recipe.encoder.width} must be equal: set both."
        )


def _check_languages(recipe: NetRecipe) -> None:
    names = recipe.languages
    if len(set(names)) < len(names):
        raise RecipeError(f"languages={','.join(names):.80} names one twice: leave it out.")
    if names and len(names) != recipe.embedding.languages:
        raise RecipeError(
            f"languages={','.join(names):.80} are {len(names)}, not embedding.languages={recipe.embedding.languages}: "
            f"set embedding.languages={len(names)}."
        )
    if recipe.language and recipe.language not in names:
        known = ", ".join(names) or "none"
        raise RecipeError(f"language={recipe.language!r:.80} is none of the model's languages ({known}): name another.")


def _check_memory(recipe: NetRecipe) -> None:
    """Raise `RecipeError` if the memory does not go with positions and sequences."""
    form = recipe.sequence.format
    is_causal = recipe.visibility == "causal" or any(one.orders_attention for one in recipe.objectives)
    if recipe.memory.length and (recipe.encoder.positions != "relative" or not is_causal):
        raise RecipeError("memory.length needs encoder.positions=relative and visibility=causal: set these, too.")
    if recipe.memory.length and not recipe.encoder.layers:
        raise RecipeError("a memory is of the layers, and encoder.layers=0: set memory.length=0, or have layers.")
    if recipe.memory.length and recipe.objectives and form not in CONTIGUOUS:
        raise RecipeError(f"memory.length needs rows that go on, not sequence.format={form}: set it to contiguous.")
    if form in CONTIGUOUS and recipe.learning.short_phase:
        raise RecipeError("contiguous rows have one length: set learning.short_phase=0 or sequence.format=stream.")


def _check_decoder(recipe: NetRecipe, decoder: EncoderRecipe) -> None:
    if decoder.cross_width not in (0, recipe.width):
        raise RecipeError(f"decoder.cross_width={decoder.cross_width} must be the encoder's width: leave it out.")
    if decoder.cross_init == "matching" and decoder.kind != "transformer":
        raise RecipeError("only heads of a Transformer can start by matching tokens: set decoder.cross_init=random.")
    if (decoder.kind, recipe.encoder.kind) == ("lstm", "bilstm"):
        if decoder.inner_width or decoder.ffn_width or decoder.residual or decoder.output_dropout is not None:
            raise RecipeError(
                "an LSTM decoder has layers of one width: leave decoder.inner_width, ffn_width, residual and "
                "output_dropout out."
            )
        return
    if decoder.kind != "transformer" or recipe.encoder.kind != "transformer":
        raise RecipeError(
            "a decoder and its encoder are Transformers, or an lstm and a bilstm: set encoder.kind and "
            "decoder.kind=transformer."
        )
    if decoder.width != recipe.encoder.width:
        raise RecipeError(
            f"encoder.width={recipe.encoder.width} and decoder.width={decoder.width} must be equal, for both read the "
            "same token vectors."
        )
