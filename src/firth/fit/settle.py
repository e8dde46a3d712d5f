"""What a recipe leaves open is settled by the text and the budget: size, vocabulary, rows, batch, rate and noise.

Only a recipe that was given by name is settled, and never a field that was set by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from firth.errors import RecipeError
from firth.fit.budget import Budget
from firth.fit.schedules import auto_rate
from firth.nets.products import can_see_neighbours
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import SIZES, resize
from firth.recipes.values import override
from firth.text.corpus import Corpus
from firth.tokens.store import TokenStore

SIZED = ("embedding.width", "encoder.layers", "encoder.width", "encoder.inner", "encoder.heads")
"""Fields that a size decides, beside the length of rows."""
PER_PARAMETER = 5
"""Tokens that a network must be able to learn from for each of its parameters, or a smaller one is better."""
DEFAULT_SECONDS = 600.0
"""How long a run without a budget takes at most on an ordinary machine."""
_VOCABULARIES = ((1e6, 4_000), (10e6, 8_000), (200e6, 16_000))
"""Bytes of text below which so many pieces are enough."""
_PIECES = ("bpe", "byte-bpe", "wordpiece", "pieces")
_FLOPS = 80e9  # a second that ordinary machines reach in training, and
_OVERHEAD = 2e-5  # seconds that a token takes beside
_PASSES = 40  # over the text at most that are of any use
_STEPS = 1000  # at least, by smaller batches if need be
_MANY = 1e9  # tokens from which a masked network finds by itself where to look
_HIDDEN = 0.3  # share of the tokens that is hidden from it below that
_VECTOR_SHARE = 10  # tokens that first vectors are learnt from for each that the network learns from, but only so many
_VECTOR_PASSES = 5  # over the text
_LEAST_TEXT = 100_000  # tokens below which they would say nothing
_DROPOUTS = ("embedding.dropout", "encoder.dropout", "encoder.attention_dropout", "encoder.weight_drop")
_LEAST_BATCH = 512
_LEAST_LENGTH = 16


class Chosen(NamedTuple):
    """A recipe with nothing left open, and why."""

    recipe: NetRecipe
    why: str


def is_free(settings: Sequence[str], *names: str) -> bool:
    """Whether none of these fields, nor a part of them or what they are part of, was set by hand.

    >>> is_free(["encoder.layers=2"], "encoder"), is_free(["encoder.layers=2"], "rows.length")
    (False, True)
    """
    given = [setting.partition("=")[0].strip() for setting in settings]
    return not any(one == name or one.startswith(f"{name}.") for one in given for name in names)


def left_open(recipe: NetRecipe, settings: Sequence[str], size: str | None) -> set[str]:
    """The fields that a run may fill in otherwise than the recipe has them."""
    names = {
        name
        for name in ("rows.length", "learning.batch", "learning.rate", "encoder.start", "embedding.start")
        if is_free(settings, name)
    }
    if (size is None and is_free(settings, "encoder", "embedding.width")) or recipe.output.kind == "direct":
        names |= set(SIZED)
    return names


def settle_vocabulary(recipe: NetRecipe, settings: Sequence[str], corpus: Corpus) -> Chosen:
    """The recipe with as many pieces of words as the text can teach."""
    tokens = recipe.tokenizer
    if tokens.model not in _PIECES or not is_free(settings, "tokenizer"):
        return Chosen(recipe, "")
    size = text_bytes(corpus)
    assert tokens.vocab_size is not None  # pieces have one
    most = next((most for limit, most in _VOCABULARIES if size < limit), tokens.vocab_size)
    if most >= tokens.vocab_size:
        return Chosen(recipe, "")
    read = f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"
    why = f"a vocabulary of {most:,} tokens for {read} of text"
    return Chosen(replace(recipe, tokenizer=replace(tokens, vocab_size=most)), why)


def text_bytes(corpus: Corpus) -> int:
    """About how many bytes of text there are; reads the text where that is not known beforehand."""
    return corpus.size() or sum(len(document.text.encode()) for document in corpus.raw_documents())


def settle_size(
    recipe: NetRecipe, settings: Sequence[str], store: TokenStore, vocabulary: int, budget: Budget | None
) -> Chosen:
    """The recipe in the largest size that the text and the budget can teach."""
    if not is_free(settings, "encoder", "embedding.width") or recipe.output.kind == "direct":
        return Chosen(recipe, "")
    tokens = store.facts.tokens
    for size in reversed(SIZES):
        sized = cast(NetRecipe, override(resize(recipe, size), settings))
        sized = sized.with_tokenizer(recipe.tokenizer)
        planned, parameters = tokens_within(sized, vocabulary, budget, tokens), count_parameters(sized, vocabulary)
        if planned >= PER_PARAMETER * parameters or size == SIZES[0]:
            break
    reached = planned >= PER_PARAMETER * parameters
    reason = f"the largest with {PER_PARAMETER} tokens for each parameter" if reached else "the smallest there is"
    time = budget.text if budget else "ten minutes"
    why = f"size {size} ({reason}: {parameters / 1e6:.1f} M parameters, {planned / 1e6:.1f} M tokens in {time})"
    return Chosen(sized, why)


def settle_rest(
    recipe: NetRecipe, settings: Sequence[str], store: TokenStore, vocabulary: int, budget: Budget | None
) -> Chosen:
    """The recipe with rows no longer than the text has use for, batches small enough for many steps, and ease."""
    told = []
    if is_free(settings, "rows.length"):
        length = min(recipe.rows.length, useful_length(recipe, store))
        if length < recipe.rows.length:
            told.append(f"rows of {length} tokens")
            recipe = replace(recipe, rows=replace(recipe.rows, length=length))
    planned = tokens_within(recipe, vocabulary, budget, store.facts.tokens)
    if is_free(settings, "learning.batch"):
        fitting = 2 ** math.floor(math.log2(max(planned / _STEPS, 1)))
        batch = min(recipe.learning.batch, max(fitting, _LEAST_BATCH, recipe.rows.length))
        if batch < recipe.learning.batch:
            told.append(f"batches of {batch} tokens")
            recipe = replace(recipe, learning=replace(recipe.learning, batch=batch))
    recipe, why = ease(recipe, settings, planned, store.facts.tokens)
    return Chosen(recipe, ", ".join([*told, *([why] if why else [])]))


def ease(recipe: NetRecipe, settings: Sequence[str], planned: float, text: int) -> Chosen:
    """The recipe made easier to learn where few tokens are to be learnt from.

    Published recipes are for runs of days. What is read once cannot be learnt by heart, so dropout only costs; masked
    models learn from hidden tokens alone, so more are hidden (Wettig et al. 2023), and start with their neighbours;
    and what tokens mean is found by CBOW at first.
    """
    told, changes = [], list[str]()
    if planned <= text:
        changes += [f"{name}=0" for name in _DROPOUTS if is_free(settings, name) and _value(recipe, name)]
        told += ["no dropout, for no text is read twice"] if changes else []
    if _LEAST_TEXT < planned < _MANY and text > _LEAST_TEXT and can_begin_with_vectors(recipe, settings):
        changes.append("embedding.start=vectors")
        told.append("first vectors by CBOW")
    if planned < _MANY and "mlm" in recipe.names:
        if is_free(settings, "masking.rate") and recipe.masking.rate < _HIDDEN:
            changes.append(f"masking.rate={_HIDDEN}")
            told.append(f"{_HIDDEN:.0%} of the tokens hidden")
        if is_free(settings, "encoder.start") and can_see_neighbours(recipe):
            changes.append("encoder.start=neighbours")
            told.append("heads that start with their neighbours")
    return Chosen(cast(NetRecipe, override(recipe, changes)), ", ".join(told))


def can_begin_with_vectors(recipe: NetRecipe, settings: Sequence[str]) -> bool:
    """Whether first vectors are to be chosen for a network."""
    return recipe.encoder.kind == "transformer" and is_free(settings, "embedding.start")


def vector_tokens(recipe: NetRecipe, vocabulary: int, budget: Budget | None, text: int) -> int:
    """Tokens that first vectors are learnt from, so that it takes little of the time, and none is read too often."""
    planned = tokens_within(recipe, vocabulary, budget, text)
    return round(min(_VECTOR_SHARE * planned, _VECTOR_PASSES * text))


def _value(recipe: NetRecipe, name: str) -> float:
    part, _, field = name.partition(".")
    return float(getattr(getattr(recipe, part), field))


def fill_in(recipe: NetRecipe, vocabulary: int) -> NetRecipe:
    """The recipe with widths that are the number of tokens where they must be, and with a learning rate."""
    if recipe.output.kind == "direct":
        recipe = replace(
            recipe,
            embedding=replace(recipe.embedding, width=vocabulary),
            encoder=replace(recipe.encoder, width=vocabulary),
        )
    if recipe.learning.rate == "auto":
        recipe = replace(recipe, learning=replace(recipe.learning, rate=auto_rate(recipe)))
    return recipe


def useful_length(recipe: NetRecipe, store: TokenStore) -> int:
    """The longest rows that a text has use for: an eighth of it, or its longest sentence where rows are sentences."""
    most = int(2 ** math.floor(math.log2(max(store.facts.tokens / 8, _LEAST_LENGTH))))
    if recipe.rows.format in ("sentences", "sentence-pair"):
        longest = int(np.diff(store.sentences.astype(np.int64)).max(initial=0))
        pair = 2 if recipe.rows.format == "sentence-pair" or "autoencoding" in recipe.names else 1
        most = min(most, -(-(pair * longest + pair + 1) // 8) * 8)
    return max(most, _LEAST_LENGTH)


def tokens_within(recipe: NetRecipe, vocabulary: int, budget: Budget | None, text: int) -> float:
    """About how many tokens a budget lets a network learn from, without reading a text so often that it is no use."""
    work = work_for_token(recipe, vocabulary)
    if budget is not None and budget.tokens is not None:
        most: float = budget.tokens
    elif budget is not None and budget.flops is not None:
        most = budget.flops / work
    else:
        seconds = budget.seconds if budget is not None and budget.seconds is not None else DEFAULT_SECONDS
        most = seconds / (work / _FLOPS + _OVERHEAD)
    return min(most, text * (recipe.learning.epochs if budget is None else _PASSES))


def work_for_token(recipe: NetRecipe, vocabulary: int) -> float:
    """About how many floating-point operations a token takes forwards and backwards."""
    predicted = recipe.masking.rate if "mlm" in recipe.names else 1.0
    scores = {
        "classes": 2 * math.sqrt(vocabulary),
        "huffman": math.log2(vocabulary),
        "tree": math.log2(vocabulary),
        "importance": float(recipe.output.samples),
        "nce": float(recipe.output.samples),
        "adaptive": vocabulary / 4,
    }.get(recipe.output.kind, float(vocabulary))
    return 6 * (encoder_parameters(recipe, used=True) + predicted * scores * recipe.width) + 6 * letters(recipe)


def count_parameters(recipe: NetRecipe, vocabulary: int) -> int:
    """About how many parameters a network has."""
    tables = vocabulary * recipe.embedding.width if not recipe.embedding.characters else letters(recipe)
    if recipe.output.kind not in ("tied", "direct"):
        tables += vocabulary * recipe.width
    if recipe.embedding.positions == "learned":
        tables += recipe.rows.length * recipe.embedding.width
    return round(tables + encoder_parameters(recipe))


def letters(recipe: NetRecipe) -> int:
    """About how many parameters make vectors from letters: highway layers of four times the width, and a product."""
    return 0 if not recipe.embedding.characters else 70 * recipe.embedding.width**2


def encoder_parameters(recipe: NetRecipe, used: bool = False) -> int:
    """About how many parameters the encoders have; with `used`, each counted as often as it is used."""
    one, entered = recipe.encoder, recipe.embedding.width
    if one.kind == "transformer":
        attention, inner = 4 * one.width**2, 2 * one.width * one.inner
        times = [1 if one.share in ("all", name) and not used else one.layers for name in ("attention", "feed-forward")]
        found = attention * times[0] + inner * times[1] + (entered * one.width if entered != one.width else 0)
    elif one.kind in ("lstm", "rnn"):
        cells = one.inner or one.width
        gates = 4 if one.kind == "lstm" else 1
        projected = cells * one.width if one.inner else 0
        found = sum(gates * cells * ((one.width if n else entered) + one.width) + projected for n in range(one.layers))
    else:
        sides = 2 if recipe.visibility == "bidirectional" else 1
        found = one.context * sides * entered * one.width * min(one.layers, 1)
    return found * recipe.directions


def require_memory(recipe: NetRecipe, vocabulary: int, free: int) -> None:
    """Raises `RecipeError` if the parameters, their gradients and the optimiser's state do not fit into memory."""
    needed = 4 * 4 * count_parameters(recipe, vocabulary)
    if needed > free:
        raise RecipeError(
            f"learning so many parameters takes {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free: "
            "choose a smaller --size, fewer tokens or a narrower encoder."
        )
