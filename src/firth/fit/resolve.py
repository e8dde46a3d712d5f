"""Unset fields of a recipe, resolved by the text and the budget: size, vocabulary, sequence length, batch size, lr.

Only recipes given by name are resolved, and never fields that the user has set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from firth.errors import RecipeError
from firth.fit.run import Budget
from firth.fit.schedules import auto_lr
from firth.nets.recipe import EncoderRecipe, NetRecipe, can_init_adjacent
from firth.recipes.nets import SIZES, resize
from firth.recipes.values import override
from firth.text.corpus import Corpus
from firth.tokens.store import TokenStore

SIZED = ("embedding.width", "encoder.layers", "encoder.width", "encoder.ffn_width", "encoder.heads")
"""Fields that a size sets, beside the sequence length."""
_PARTS = ("encoder", "decoder", "embedding.width")
TOKENS_PER_PARAMETER = 5
"""Training tokens per parameter below which a smaller network is better."""
DEFAULT_SECONDS = 600.0
"""The longest run without a budget, on an ordinary machine."""
_VOCABULARIES = ((1e6, 4_000), (10e6, 8_000), (200e6, 16_000))
"""(bytes of text below which, subword vocabulary size)."""
_SUBWORDS = ("bpe", "byte-bpe", "wordpiece", "pieces")
_FLOPS = 80e9  # per second on an ordinary machine, and
_OVERHEAD = 2e-5  # further seconds per token
_MAX_EPOCHS = 40  # more are of no use
_MIN_STEPS = 1000  # reached by smaller batches
_MANY_TOKENS = 1e9  # from which a masked network needs no help to learn attention
_VECTOR_RATIO = 10  # CBOW tokens per training token of the network
_VECTOR_EPOCHS = 5  # at most
_MIN_TEXT = 100_000  # tokens below which CBOW vectors are useless
_DROPOUTS = (
    "embedding.dropout",
    "encoder.dropout",
    "encoder.attention_dropout",
    "encoder.weight_drop",
    "decoder.dropout",
    "decoder.attention_dropout",
)
_RESOLVED = ("sequence.length", "learning.batch", "learning.lr", "encoder.init", "embedding.init")
_FROM_TEXT = ("languages", "embedding.languages")
_MIN_BATCH = 512
_MIN_LENGTH = 16


class Resolved(NamedTuple):
    """A recipe with some unset fields chosen, and the reasons."""

    recipe: NetRecipe
    reason: str


def is_unset(settings: Sequence[str], *names: str) -> bool:
    """Whether the user has set none of these fields, nor a part of them.

    >>> is_unset(["encoder.layers=2"], "encoder"), is_unset(["encoder.layers=2"], "sequence.length")
    (False, True)
    """
    given = [setting.partition("=")[0].strip() for setting in settings]
    return not any(one == name or one.startswith(f"{name}.") for one in given for name in names)


def unset_fields(recipe: NetRecipe, settings: Sequence[str], size: str | None) -> set[str]:
    """The fields that a run may change from the recipe's values."""
    defaults = [f"{one.name}.{field}" for one in recipe.objectives for field in one.small_run_defaults()]
    names = {name for name in (*_RESOLVED, *_FROM_TEXT, *_DROPOUTS, *defaults) if is_unset(settings, name)}
    if (size is None and is_unset(settings, *_PARTS)) or recipe.output.kind == "direct":
        names |= set(SIZED) | {name.replace("encoder", "decoder") for name in SIZED}
    return names


def resolve_vocabulary(recipe: NetRecipe, settings: Sequence[str], corpus: Corpus) -> Resolved:
    """The recipe with a subword vocabulary that suits the size of the text."""
    tokens = recipe.tokenizer
    if tokens.model not in _SUBWORDS or not is_unset(settings, "tokenizer"):
        return Resolved(recipe, "")
    size = text_bytes(corpus)
    assert tokens.vocab_size is not None  # subword models have one
    most = next((most for limit, most in _VOCABULARIES if size < limit), tokens.vocab_size)
    if most >= tokens.vocab_size:
        return Resolved(recipe, "")
    read = f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"
    reason = f"a vocabulary of {most:,} tokens for {read} of text"
    return Resolved(replace(recipe, tokenizer=replace(tokens, vocab_size=most)), reason)


def text_bytes(corpus: Corpus) -> int:
    """The approximate bytes of text; reads it where the size is unknown."""
    return corpus.size() or sum(len(document.text.encode()) for document in corpus.raw_documents())


def resolve_size(
    recipe: NetRecipe, settings: Sequence[str], store: TokenStore, vocabulary: int, budget: Budget | None
) -> Resolved:
    """The recipe in the largest size that the text and the budget can train."""
    if not is_unset(settings, *_PARTS) or recipe.output.kind == "direct":
        return Resolved(recipe, "")
    tokens = store.info.tokens
    for size in reversed(SIZES):
        sized = cast(NetRecipe, override(resize(recipe, size), settings))
        sized = sized.with_tokenizer(recipe.tokenizer)
        planned, parameters = tokens_within(sized, vocabulary, budget, tokens), count_parameters(sized, vocabulary)
        if planned >= TOKENS_PER_PARAMETER * parameters or size == SIZES[0]:
            break
    enough = planned >= TOKENS_PER_PARAMETER * parameters
    rule = f"the largest with {TOKENS_PER_PARAMETER} tokens for each parameter" if enough else "the smallest there is"
    time = budget.text if budget else "ten minutes"
    reason = f"size {size} ({rule}: {parameters / 1e6:.1f} M parameters, {planned / 1e6:.1f} M tokens in {time})"
    return Resolved(sized, reason)


def resolve_rest(
    recipe: NetRecipe, settings: Sequence[str], store: TokenStore, vocabulary: int, budget: Budget | None
) -> Resolved:
    """The recipe with a sequence length and batch size that suit the text, and defaults of small runs."""
    reasons = []
    if is_unset(settings, "sequence.length"):
        length = min(recipe.sequence.length, useful_length(recipe, store))
        if length < recipe.sequence.length:
            reasons.append(f"sequences of {length} tokens")
            recipe = replace(recipe, sequence=replace(recipe.sequence, length=length))
    planned = tokens_within(recipe, vocabulary, budget, store.info.tokens)
    if is_unset(settings, "learning.batch"):
        fitting = 2 ** math.floor(math.log2(max(planned / _MIN_STEPS, 1)))
        batch = min(recipe.learning.batch, max(fitting, _MIN_BATCH, recipe.sequence.length))
        if batch < recipe.learning.batch:
            reasons.append(f"batches of {batch} tokens")
            recipe = replace(recipe, learning=replace(recipe.learning, batch=batch))
    recipe, reason = small_run_defaults(recipe, settings, planned, store.info.tokens)
    return Resolved(recipe, ", ".join([*reasons, *([reason] if reason else [])]))


def small_run_defaults(recipe: NetRecipe, settings: Sequence[str], planned: float, text: int) -> Resolved:
    """The recipe with defaults for few training tokens.

    Published recipes are for runs of days. Within one epoch nothing overfits, so dropout only costs; masked models get
    a higher masking rate (Wettig et al. 2023) and heads initialised to attend to adjacent tokens; embeddings are
    initialised by CBOW.
    """
    reasons, changes = [], list[str]()
    if planned <= text:
        changes += [f"{name}=0" for name in _DROPOUTS if is_unset(settings, name) and _value(recipe, name)]
        reasons += ["no dropout, for there is less than one epoch"] if changes else []
    if _MIN_TEXT < planned < _MANY_TOKENS and text > _MIN_TEXT and can_init_embeddings(recipe, settings):
        changes.append("embedding.init=vectors")
        reasons.append("embeddings initialised by CBOW")
    if planned < _MANY_TOKENS:
        for objective in recipe.objectives:
            for field, (value, reason) in objective.small_run_defaults().items():
                if is_unset(settings, f"{objective.name}.{field}", f"objectives.{objective.name}.{field}"):
                    changes.append(f"{objective.name}.{field}={value}")
                    reasons.append(reason)
        masked = any("masked" in one.predicts for one in (recipe, *recipe.second_networks.values()))
        if masked and is_unset(settings, "encoder.init") and can_init_adjacent(recipe):
            changes.append("encoder.init=adjacent")
            reasons.append("attention heads initialised to adjacent tokens")
    return Resolved(cast(NetRecipe, override(recipe, changes)), ", ".join(dict.fromkeys(reasons)))


def can_init_embeddings(recipe: NetRecipe, settings: Sequence[str]) -> bool:
    """Whether a network's embeddings may be initialised by CBOW."""
    is_single = recipe.encoder.kind == "transformer" and recipe.decoder is None
    return is_single and is_unset(settings, "embedding.init")


def vector_tokens(recipe: NetRecipe, vocabulary: int, budget: Budget | None, text: int) -> int:
    """The number of tokens for CBOW, which takes little of the time and few epochs."""
    planned = tokens_within(recipe, vocabulary, budget, text)
    return round(min(_VECTOR_RATIO * planned, _VECTOR_EPOCHS * text))


def _value(recipe: NetRecipe, name: str) -> float:
    name, _, field = name.partition(".")
    part = getattr(recipe, name)
    return 0.0 if part is None else float(getattr(part, field))


def fill_in(recipe: NetRecipe, vocabulary: int) -> NetRecipe:
    """The recipe with widths equal to the vocabulary size where needed, and with a learning rate."""
    if recipe.output.kind == "direct":
        recipe = replace(
            recipe,
            embedding=replace(recipe.embedding, width=vocabulary),
            encoder=replace(recipe.encoder, width=vocabulary),
        )
    if recipe.learning.lr == "auto":
        recipe = replace(recipe, learning=replace(recipe.learning, lr=auto_lr(recipe)))
    return recipe


def useful_length(recipe: NetRecipe, store: TokenStore) -> int:
    """The maximum useful sequence length: an eighth of the text, or its longest sentence for formats of sentences."""
    most = int(2 ** math.floor(math.log2(max(store.info.tokens / 8, _MIN_LENGTH))))
    if recipe.sequence.format in ("sentences", "sentence-pair"):
        longest = int(np.diff(store.sentences.astype(np.int64)).max(initial=0))
        pair = 2 if recipe.sequence.format == "sentence-pair" or any(one.copies > 1 for one in recipe.objectives) else 1
        most = min(most, -(-(pair * longest + pair + 1) // 8) * 8)
    return max(most, _MIN_LENGTH)


def tokens_within(recipe: NetRecipe, vocabulary: int, budget: Budget | None, text: int) -> float:
    """The approximate number of training tokens within a budget and a useful number of epochs."""
    flops = flops_per_token(recipe, vocabulary)
    if budget is not None and budget.tokens is not None:
        most: float = budget.tokens
    elif budget is not None and budget.flops is not None:
        most = budget.flops / flops
    else:
        seconds = budget.seconds if budget is not None and budget.seconds is not None else DEFAULT_SECONDS
        most = seconds / (flops / _FLOPS + _OVERHEAD)
    return min(most, text * (recipe.learning.epochs if budget is None else _MAX_EPOCHS))


def flops_per_token(recipe: NetRecipe, vocabulary: int) -> float:
    """The approximate FLOPs per token of forward and backward."""
    predicted = recipe.predicted
    others = sum(flops_per_token(one, vocabulary) for one in recipe.second_networks.values())
    scores = {
        "none": 0.0,
        "classes": 2 * math.sqrt(vocabulary),
        "huffman": math.log2(vocabulary),
        "tree": math.log2(vocabulary),
        "importance": float(recipe.output.samples),
        "nce": float(recipe.output.samples),
        "adaptive": vocabulary / 4,
        "adaptive-tied": vocabulary / 3,
    }.get(recipe.output.kind, float(vocabulary))
    if recipe.decoder is not None:  # one half of the tokens is read by the encoder, the other by the decoder
        decoded = layer_parameters(recipe.decoder, used=True, crosses=True) + predicted * scores * recipe.decoder.width
        return 3 * (encoder_parameters(recipe, used=True) + decoded)
    own = encoder_parameters(recipe, used=True) + predicted * scores * recipe.width
    return 6 * own + 6 * character_parameters(recipe) + others


def count_parameters(recipe: NetRecipe, vocabulary: int) -> int:
    """The approximate number of parameters of a network."""
    tables = vocabulary * recipe.embedding.width if not recipe.embedding.characters else character_parameters(recipe)
    tables += sum(encoder_parameters(one) for one in recipe.second_networks.values())
    if recipe.output.kind not in ("tied", "adaptive-tied", "direct", "none"):
        tables += vocabulary * recipe.width
    if recipe.embedding.positions == "learned":
        tables += recipe.sequence.length * recipe.embedding.width
    if recipe.decoder is not None:
        tables += layer_parameters(recipe.decoder, crosses=True)
    return round(tables + encoder_parameters(recipe))


def character_parameters(recipe: NetRecipe) -> int:
    """The approximate parameters of a character CNN: highway layers of four times the width, and a projection."""
    return 0 if not recipe.embedding.characters else 70 * recipe.embedding.width**2


def encoder_parameters(recipe: NetRecipe, used: bool = False) -> int:
    """The approximate parameters of the encoders; with `used`, tied ones are counted for each layer."""
    encoder, width, inputs = recipe.encoder, recipe.encoder.width, recipe.embedding.width
    if encoder.kind == "transformer":
        found = (inputs * width if inputs != width else 0) + layer_parameters(encoder, used)
    elif encoder.kind in ("lstm", "rnn"):
        cells = encoder.ffn_width or width
        gates = 4 if encoder.kind == "lstm" else 1
        projected = cells * width if encoder.ffn_width else 0
        found = sum(gates * cells * ((width if n else inputs) + width) + projected for n in range(encoder.layers))
    else:
        sides = 2 if recipe.visibility == "bidirectional" else 1
        found = encoder.context * sides * inputs * width * min(encoder.layers, 1)
    return found * recipe.directions


def layer_parameters(part: EncoderRecipe, used: bool = False, crosses: bool = False) -> int:
    """The approximate parameters of the layers of a Transformer; `crosses`: with cross-attention."""
    matrices = (5 if part.positions == "relative" else 4) + (4 if crosses else 0)
    inner = (3 if part.gated else 2) * part.width * part.ffn_width
    found, counts = 0, {"attention": matrices * part.width**2, "feed-forward": inner}
    for name, count in counts.items():
        found += count * (1 if part.tie_layers in ("all", name) and not used else part.layers)
    return found


def require_memory(recipe: NetRecipe, vocabulary: int, free: int) -> None:
    """Raise `RecipeError` if the parameters, their gradients and the optimiser's state do not fit into memory."""
    needed = 4 * 4 * count_parameters(recipe, vocabulary)
    if needed > free:
        raise RecipeError(
            f"training these parameters takes {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free: "
            "choose a smaller --size, fewer tokens or a narrower encoder."
        )
