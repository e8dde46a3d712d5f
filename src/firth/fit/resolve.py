"""Unset fields of a recipe, resolved by the text and the budget: size, vocabulary, sequence length, batch size, lr.

Only recipes given by name are resolved, and never fields that the user has set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from firth.errors import RecipeError
from firth.fit.run import Budget
from firth.fit.schedules import auto_lr
from firth.nets.combination import can_init_adjacent
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import SIZES, resize
from firth.recipes.values import known_fields, override
from firth.text.corpus import Corpus
from firth.tokens.store import TokenStore
from firth.tokens.word_classes import is_chinese

if TYPE_CHECKING:
    from firth.fit.cost import TrainingCosts

SIZED = (
    *("embedding.width", "encoder.layers", "encoder.width", "encoder.inner_width", "encoder.ffn_width"),
    "encoder.heads",
)
"""Fields that a size sets, beside the sequence length."""
_PARTS = ("encoder", "decoder", "embedding.width")
TOKENS_PER_PARAMETER = 5
"""Training tokens per parameter below which a smaller network is better."""
TRAINING_SAMPLES = 1000
"""Tokens that an output layer is trained on, beside the targets: 400 are no faster, 2,500 no better."""
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
_MIN_TEXT = 100_000  # tokens below which vectors of words are useless
_WORD_CLASSES = 1_000  # the finest of them
_DROPOUTS = (
    "embedding.dropout",
    "embedding.token_dropout",
    "encoder.dropout",
    "encoder.output_dropout",
    "encoder.attention_dropout",
    "encoder.weight_drop",
    "decoder.dropout",
    "decoder.attention_dropout",
)
_RESOLVED = (
    "sequence.length",
    "learning.batch",
    "learning.lr",
    "encoder.init",
    "embedding.init",
    "decoder.cross_init",
    "decoder.init",
    "learning.schedule",
    "word_classes",
)
_FROM_TEXT = ("languages", "embedding.languages")
_WITHOUT_DROPOUT = 3  # epochs up to which it costs more than it gives
_MIN_BATCH = 512
_MIN_COMPARED = 2048  # of sequences that are compared with one another: about a hundred
_MIN_LENGTH = 16
_GROUP = 3  # sentences of a row, at least, for objectives of groups of them


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
    # A text may have no examples of some objectives.
    optional = [one.name for one in recipe.objectives if one.lays_out or one.requires or one.is_optional]
    if any(one.lays_out or one.is_optional for one in recipe.objectives):
        defaults += ["objectives", "embedding.segments"]
        defaults += [name for name in known_fields(recipe) if name.partition(".")[0] in optional]
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
    recipe: NetRecipe, settings: Sequence[str], store: TokenStore, costs: TrainingCosts, budget: Budget | None
) -> Resolved:
    """The recipe in the largest size that the text and the budget can train."""
    if not is_unset(settings, *_PARTS) or recipe.output.kind == "direct":
        return Resolved(recipe, "")
    tokens = store.info.tokens
    for size in reversed(SIZES):
        sized = cast(NetRecipe, override(resize(recipe, size), settings))
        sized = sized.with_tokenizer(recipe.tokenizer)
        planned, parameters = tokens_within(sized, costs, budget, tokens), costs.of(sized).parameters
        if planned >= TOKENS_PER_PARAMETER * parameters or size == SIZES[0]:
            break
    enough = planned >= TOKENS_PER_PARAMETER * parameters
    rule = f"the largest with {TOKENS_PER_PARAMETER} tokens for each parameter" if enough else "the smallest there is"
    time = budget.text if budget else "ten minutes"
    reason = f"size {size} ({rule}: {parameters / 1e6:.1f} M parameters, {planned / 1e6:.1f} M tokens in {time})"
    return Resolved(sized, reason)


def resolve_output(
    recipe: NetRecipe, settings: Sequence[str], store: TokenStore, costs: TrainingCosts, budget: Budget | None
) -> Resolved:
    """The recipe with an output layer that is trained on samples, unless the whole one reads more than an epoch.

    The product with a large vocabulary takes most of the time of small networks: in the same time, samples read more.
    """
    is_softmax = recipe.output.kind in ("full", "tied") and recipe.sequence.format != "parallel"  # smoothed labels
    if not is_softmax or not is_unset(settings, "output") or len(costs.vocabulary) < 4 * TRAINING_SAMPLES:
        return Resolved(recipe, "")
    if tokens_within(resize(recipe, SIZES[0]), costs, budget, store.info.tokens) > store.info.tokens:
        return Resolved(recipe, "")
    sampled = replace(recipe, output=replace(recipe.output, training_samples=TRAINING_SAMPLES))
    return Resolved(sampled, f"an output layer trained on samples of {TRAINING_SAMPLES:,} tokens")


def resolve_rest(
    recipe: NetRecipe, settings: Sequence[str], store: TokenStore, costs: TrainingCosts, budget: Budget | None
) -> Resolved:
    """The recipe with a sequence length and batch size that suit the text, and defaults of small runs."""
    reasons = []
    if is_unset(settings, "sequence.length"):
        length = min(recipe.sequence.length, useful_length(recipe, store))
        if length < recipe.sequence.length:
            reasons.append(f"sequences of {length} tokens")
            recipe = replace(recipe, sequence=replace(recipe.sequence, length=length))
    planned = tokens_within(recipe, costs, budget, store.info.tokens)
    if is_unset(settings, "learning.batch"):
        fitting = 2 ** math.floor(math.log2(max(planned / _MIN_STEPS, 1)))
        least = _MIN_COMPARED if any(one.compares_sequences for one in recipe.objectives) else _MIN_BATCH
        batch = min(recipe.learning.batch, max(fitting, least, recipe.sequence.length))
        if batch < recipe.learning.batch:
            reasons.append(f"batches of {batch} tokens")
            recipe = replace(recipe, learning=replace(recipe.learning, batch=batch))
    has_words = not is_chinese(store, costs.vocabulary.tokens)
    recipe, reason = small_run_defaults(recipe, settings, planned, store.info.tokens, has_words=has_words)
    return Resolved(recipe, ", ".join([*reasons, *([reason] if reason else [])]))


def small_run_defaults(
    recipe: NetRecipe, settings: Sequence[str], planned: float, text: int, *, has_words: bool = True
) -> Resolved:
    """The recipe with defaults for few training tokens; `has_words`: the words of the text may have classes.

    Published recipes are for runs of days. In few epochs little overfits, so dropout only costs; masked models get
    a higher masking rate (Wettig et al. 2023) and heads initialised to attend to adjacent tokens; embeddings are
    initialised by CBOW.
    """
    reasons, changes = [], list[str]()
    if planned <= _WITHOUT_DROPOUT * text and not any(objective.needs_dropout for objective in recipe.objectives):
        changes += [f"{name}=0" for name in _DROPOUTS if is_unset(settings, name) and _value(recipe, name)]
        reasons += ["no dropout in so few epochs"] if changes else []
    if min(planned, text) > _MIN_TEXT and planned < _MANY_TOKENS and can_init_embeddings(recipe, settings):
        changes.append("embedding.init=vectors")
        reasons.append("embeddings initialised by CBOW")
    if planned < _MANY_TOKENS:
        for objective in recipe.objectives:
            for field, (value, reason) in objective.small_run_defaults().items():
                if is_unset(settings, f"{objective.name}.{field}", f"objectives.{objective.name}.{field}"):
                    changes.append(f"{objective.name}.{field}={value}")
                    reasons.append(reason)
        has_words = has_words and min(planned, text) > _MIN_TEXT
        if has_words and is_unset(settings, "word_classes") and _predicts_masked(recipe):
            changes.append(f"word_classes={_WORD_CLASSES}")
            reasons.append(f"{_WORD_CLASSES:,} classes of words for taggers")
        for change, reason in _initial_attention(recipe, changes).items():
            if is_unset(settings, change.partition("=")[0]):
                changes.append(change)
                reasons += [reason] if reason else []
    return Resolved(cast(NetRecipe, override(recipe, changes)), ", ".join(dict.fromkeys(reasons)))


def _initial_attention(recipe: NetRecipe, changes: Sequence[str]) -> dict[str, str]:
    """Changes of the initial weights by which attention is learned from few tokens, and the reasons."""
    reads_source = can_match_tokens(recipe)
    found = {}
    if recipe.encoder.init == "fan-in":  # as large as its token vectors, which hardly change in a short run
        if not reads_source or "embedding.init=vectors" not in changes:
            return {}
        found["decoder.init=random"] = ""
    if (_predicts_masked(recipe) or reads_source) and can_init_adjacent(recipe):
        found["encoder.init=adjacent"] = "attention heads initialised to adjacent tokens"
    if reads_source:
        found["decoder.cross_init=matching"] = "cross-attention that starts by matching tokens"
        if recipe.learning.schedule == "inverse-sqrt":
            found["learning.schedule=linear"] = "a learning rate that falls linearly"
    return found


def _predicts_masked(recipe: NetRecipe) -> bool:
    """Whether the network, or a second one of its objectives, predicts masked tokens."""
    return any("masked" in one.predicts for one in (recipe, *recipe.second_networks.values()))


def can_init_embeddings(recipe: NetRecipe, settings: Sequence[str]) -> bool:
    """Whether a network's embeddings may be initialised by CBOW.

    Without it the encoder of a small network that restores text collapses to one vector before its decoder reads it;
    translation needs none.
    """
    trains_sentences = any(one.groups_sentences for one in recipe.objectives)
    restores = recipe.decoder is None or recipe.sequence.format != "parallel"
    is_fitting = (recipe.encoder.kind == "transformer" or trains_sentences) and restores
    return is_fitting and is_unset(settings, "embedding.init")


def can_match_tokens(recipe: NetRecipe) -> bool:
    """Whether cross-attention may be initialised to match tokens: in Transformers whose source has the tokens."""
    return recipe.decoder is not None and recipe.decoder.kind == "transformer" and recipe.sequence.format != "parallel"


def vector_tokens(recipe: NetRecipe, costs: TrainingCosts, budget: Budget | None, text: int) -> int:
    """The number of tokens for CBOW, which takes little of the time and few epochs."""
    planned = tokens_within(recipe, costs, budget, text)
    return round(min(_VECTOR_RATIO * planned, _VECTOR_EPOCHS * text))


def require_dropout(recipe: NetRecipe) -> None:
    """Raise `RecipeError` if an objective is trained by dropout, and there is none."""
    for objective in recipe.objectives:
        if objective.needs_dropout and not recipe.encoder.dropout and not recipe.embedding.dropout:
            raise RecipeError(
                f"{objective.name} compares two readings that differ by dropout, but encoder.dropout is 0: set "
                "encoder.dropout=0.1."
            )


def without_dropout(recipe: NetRecipe) -> NetRecipe:
    """The recipe with all dropout rates zero: what is left decides the parameters and what they compute."""
    embedding = replace(recipe.embedding, dropout=0.0, token_dropout=0.0, variational_dropout=False)
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "weight_drop": 0.0, "output_dropout": None}
    encoder, decoder = (
        None if part is None else replace(part, variational_dropout=False, **cast(dict[str, Any], rates))
        for part in (recipe.encoder, recipe.decoder)
    )
    assert encoder is not None
    return replace(recipe, embedding=embedding, encoder=encoder, decoder=decoder)


def _value(recipe: NetRecipe, name: str) -> float:
    name, _, field = name.partition(".")
    part = getattr(recipe, name)
    return 0.0 if part is None else float(getattr(part, field) or 0.0)


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
    if recipe.sequence.format in ("sentences", "consecutive", "sentence-pair"):
        longest = int(np.diff(store.sentences.astype(np.int64)).max(initial=0))
        pair = 2 if recipe.sequence.format == "sentence-pair" or any(one.copies > 1 for one in recipe.objectives) else 1
        if any(one.groups_sentences for one in recipe.objectives):
            pair = _GROUP
        most = min(most, -(-(pair * longest + pair + 1) // 8) * 8)
    return max(most, _MIN_LENGTH)


def tokens_within(recipe: NetRecipe, costs: TrainingCosts, budget: Budget | None, text: int) -> float:
    """The approximate number of training tokens within a budget and a useful number of epochs."""
    flops = costs.of(recipe).flops
    if budget is not None and budget.tokens is not None:
        most: float = budget.tokens
    elif budget is not None and budget.flops is not None:
        most = budget.flops / flops
    else:
        seconds = budget.seconds if budget is not None and budget.seconds is not None else DEFAULT_SECONDS
        most = seconds / (flops / _FLOPS + _OVERHEAD)
    return min(most, text * (recipe.learning.epochs if budget is None else _MAX_EPOCHS))


def require_memory(recipe: NetRecipe, costs: TrainingCosts, free: int) -> None:
    """Raise `RecipeError` if the parameters, their gradients and the optimiser's state do not fit into memory."""
    needed = 4 * 4 * costs.of(recipe).parameters
    if needed > free:
        raise RecipeError(
            f"training these parameters takes {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free: "
            "choose a smaller --size, fewer tokens or a narrower encoder."
        )
