"""What a fine-tuning leaves open is settled by the model, the task and the examples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from firth.errors import CorpusError
from firth.fit.settle import is_free
from firth.nets.recipe import NetRecipe
from firth.recipes.values import override
from firth.tasks.examples import Example, TagExample, TextExample
from firth.tasks.recipe import HeadRecipe, Strategy, TaskName, TaskRecipe, default_learning

_MANY = 20  # different numbers from which on labels are values and not classes
_NEARLY = 0.9  # share of numbers among labels from which on the others are faults
_DROPOUT = 0.1  # as in all published Transformers of the kind
_EPOCHS = ((500, 20), (2_000, 10), (10_000, 5), (math.inf, 3))
"""Examples up to which so many passes are good."""
_LEAST = 100  # steps, however few the examples
_STATES = (
    1.064  # the rate of a whole Transformer times its width to the power of 1.5: 5e-5 for 768 (Devlin et al. 2019)
)
HEAD_RATE = 1e-3
"""Where the head learns most of it."""
_SMALL = 1_000  # examples below which steps are of 16


def settle_task(
    task: TaskName,
    network: NetRecipe,
    examples: Sequence[Example],
    strategy: Strategy | None,
    settings: Sequence[str],
    decoder: NetRecipe | None = None,
) -> TaskRecipe:
    """The recipe of a task for a network, with nothing left open."""
    labels, form = labels_of(task, examples)
    transformer = network.encoder.kind == "transformer"
    whole = transformer or network.encoder.kind == "none" or task == "generate"
    chosen = strategy or ("full" if whole else "features")
    recipe = TaskRecipe(
        task=task,
        form=form,
        network=with_dropout(network),
        decoder=None if decoder is None else with_dropout(decoder),
        head=_head(task, network, chosen),
        labels=labels,
        strategy=chosen,
        symmetric=task == "pair" and network.visibility == "causal" and is_similarity(labels),
        auxiliary=0.5 if task in ("classify", "pair") and transformer and "clm" in network.names else 0.0,
        spaced=all(one.spaced for one in examples if isinstance(one, TagExample)),
        empty=task == "span" and any(getattr(one, "answers", None) == () for one in examples),
        learning=default_learning(),
    )
    recipe = cast(TaskRecipe, override(recipe, settings))
    return _learning(recipe, len(examples), settings)


def with_dropout(network: NetRecipe) -> NetRecipe:
    """A Transformer that had no use for dropout while it read each text once: examples are read many times."""
    encoder = network.encoder
    if encoder.kind != "transformer" or encoder.dropout or encoder.attention_dropout or network.embedding.dropout:
        return network
    return replace(
        network,
        embedding=replace(network.embedding, dropout=_DROPOUT),
        encoder=replace(encoder, dropout=_DROPOUT, attention_dropout=_DROPOUT),
    )


def labels_of(
    task: TaskName, examples: Sequence[Example]
) -> tuple[tuple[str, ...], Literal["single", "multi", "number"]]:
    """All labels of the examples, in the order of the alphabet or of their numbers, and of what kind they are."""
    if task in ("span", "choice", "generate"):
        return (), "single"
    found: Counter[str] = Counter()
    several = False
    for example in examples:
        own = example.tags if isinstance(example, TagExample) else cast(TextExample, example).labels
        found.update(own or ())
        several |= isinstance(example, TextExample) and len(own or ()) != 1
    numbers = sum(map(_is_number, found))
    if task == "pair" and numbers > _MANY and numbers > _NEARLY * len(found):
        return (), "number"
    if len(found) < 2:
        only = next(iter(found), "none")
        where = examples[0].origin.source or "all items"
        raise CorpusError(f"{where}: the examples have one label only ({only}): give examples of at least two.")
    form: Literal["single", "multi"] = "multi" if several and task == "classify" else "single"
    return tuple(
        sorted(found, key=lambda one: (not _is_number(one), float(one) if _is_number(one) else 0.0, one))
    ), form


def is_similarity(labels: Sequence[str]) -> bool:
    """Whether it seems not to matter which of two texts comes first: a number, or yes and no, but not what follows.

    >>> is_similarity(()), is_similarity(("0", "1")), is_similarity(("entailment", "not_entailment"))
    (True, True, False)
    """
    return len(labels) <= 2 and not any("entail" in label.lower() for label in labels)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _head(task: TaskName, network: NetRecipe, strategy: Strategy) -> HeadRecipe:
    """What suits a network: BERT's for Transformers, an LSTM over both directions for states that know too little."""
    if network.encoder.kind == "none":
        return HeadRecipe(encoder="lstm", width=256, pooling="max", pooler=False, dropout=0.3)
    if strategy == "features":
        return HeadRecipe(layers="mix", encoder="lstm", width=256, pooling="max", pooler=False, dropout=0.3)
    if network.visibility == "bidirectional":
        return HeadRecipe(pooling="first", pooler=True, dropout=0.1)
    pooling: Any = "last" if network.visibility == "causal" else "mean"
    return HeadRecipe(pooling=pooling, pooler=False, dropout=0.1)


def _learning(recipe: TaskRecipe, examples: int, settings: Sequence[str]) -> TaskRecipe:
    """Rate, passes and steps by the size of the network and the number of examples."""
    learning = recipe.learning
    if is_free(settings, "learning.batch") and examples < _SMALL:
        learning = replace(learning, batch=16)
    if is_free(settings, "learning.epochs"):
        steps = math.ceil(examples / learning.batch)
        learning = replace(learning, epochs=max(good_passes(examples), math.ceil(_LEAST / steps)))
    if learning.rate == "auto":
        learning = replace(learning, rate=tuning_rate(recipe.network, recipe.strategy))
    if recipe.strategy == "gradual" and is_free(settings, "learning.schedule"):
        learning = replace(learning, schedule="slanted")
    return replace(recipe, learning=learning)


def good_passes(examples: int) -> int:
    """Passes over so many examples: the fewer, the more, but never so few that more examples mean fewer readings.

    >>> [good_passes(count) for count in (500, 501, 1_000, 2_000, 2_001, 10_000, 14_000, 50_000)]
    [20, 20, 10, 10, 10, 5, 4, 3]
    """
    good = next(passes for most, passes in _EPOCHS if examples <= most)
    fewer = max((most * passes for most, passes in _EPOCHS if most < examples), default=0.0)
    return max(good, math.ceil(fewer / examples))


def tuning_rate(network: NetRecipe, strategy: Strategy) -> float:
    """The rate that suits a network: small steps where a whole Transformer moves, and a wide one most of all."""
    whole = network.encoder.kind == "transformer" and strategy not in ("frozen", "features")
    return _STATES / network.encoder.width**1.5 if whole else HEAD_RATE


def known_labels(example: Example) -> tuple[str, ...]:
    """The labels of an example, if it has any."""
    if isinstance(example, TagExample):
        return example.tags or ()
    return (example.labels or ()) if isinstance(example, TextExample) else ()
