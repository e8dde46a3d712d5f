"""Fine-tuning configuration; unset fields are resolved by the model, the task and the examples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from firth.errors import CorpusError
from firth.fit.resolve import is_unset
from firth.fit.run import Budget
from firth.metrics.tags import scheme_of
from firth.nets.recipe import NetRecipe
from firth.progress import note
from firth.recipes.values import override
from firth.tasks.examples import Example, TagExample, TextExample, numeric_labels
from firth.tasks.label_text import number_labels
from firth.tasks.recipe import (
    GRADUAL,
    HeadRecipe,
    KnowledgeRecipe,
    Strategy,
    TaskName,
    TaskRecipe,
    default_learning,
)

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.tasks.knowledge import KnowledgeGraph
    from firth.tasks.task import Task

_MANY = 20  # distinct numbers above which labels are values rather than classes
_NEARLY_ALL = 0.9  # fraction of numbers among labels above which other labels are errors
_DROPOUT = 0.1  # of all published Transformers of this kind
_EPOCHS = ((500, 20), (2_000, 10), (10_000, 5), (math.inf, 3))
"""(examples up to which, epochs)."""
_MIN_STEPS = 100
_TRANSFORMER_LR = 1.064  # learning rate times width^1.5: 5e-5 for 768 (Devlin et al. 2019)
HEAD_LR = 1e-3
"""Where most of what is trained is the head."""
ULMFIT_DECAY = round(1 / 2.6, 4)
"""Factor of the learning rate from each layer to the one below (Howard and Ruder 2018)."""
_ULMFIT_HIDDEN = 50  # units of the layer before the scores (same)
_ULMFIT_LR = 1e-2  # of the classifier of a recurrent network (same)
_ULMFIT_BETAS = (0.7, 0.99)  # (same)
_SMALL = 1_000  # examples below which the batch size is 16


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """The options of a fine-tuning run."""

    task: TaskName
    train: list[Any]
    dev: list[Any]
    test: list[Any] | None = None
    out: Path
    strategy: Strategy | None = None
    settings: Sequence[str] = ()
    columns: Sequence[str] = ()
    budget: Budget | None = None
    """Of fine-tuning, instead of epochs."""
    seed: int = 0
    threads: int | None = None
    resume: bool = False
    random: bool = False
    """Start from random parameters instead of the model's, to measure what pre-training is worth."""
    start: str = ""
    """The digest of the model's weights, and of the decoder's if there is one."""
    decoder: NetModel | None = None
    """The network that generates, if it is not the model itself."""
    earlier: Sequence[Task] = ()
    """What the model was fine-tuned for before."""
    all_examples: int | None = None
    """The number of training examples of all tasks, if there are several."""
    graph: KnowledgeGraph | None = None
    """The facts that are inserted into texts."""
    auxiliary: Callable[[Any, Mapping[str, Any]], Any] | None = None
    """Makes a further `ObjectiveHead` of the network and its tasks, which serves training alone."""


def resolve_task(
    task: TaskName,
    network: NetRecipe,
    examples: Sequence[Example],
    strategy: Strategy | None,
    settings: Sequence[str],
    decoder: NetRecipe | None = None,
    all_examples: int | None = None,
    has_graph: bool = False,
) -> TaskRecipe:
    """The recipe of a task for a network, with all fields resolved.

    `all_examples`: those of all tasks of the run. `has_graph`: facts of a knowledge graph are inserted into texts.
    """
    labels, form = labels_of(task, examples)
    writes = decoder is not None and task != "generate"
    if writes and form == "number":
        labels = number_labels(numeric_labels(cast(Sequence[TextExample], examples)))
    transformer = network.encoder.kind == "transformer"
    whole = transformer or network.encoder.kind == "none" or task == "generate"
    chosen = strategy or ("full" if whole else "features")
    recipe = TaskRecipe(
        task=task,
        form=form,
        network=with_dropout(network),
        decoder=None if decoder is None else with_dropout(decoder),
        head=HeadRecipe(answer="text") if writes else with_crf(task, labels, _head(task, network, chosen)),
        labels=labels,
        strategy=chosen,
        symmetric=task == "pair" and network.visibility == "causal" and is_similarity(labels),
        lm_weight=0.5 if task in ("classify", "pair") and transformer and "next" in network.predicts else 0.0,
        spaced=all(one.spaced for one in examples if isinstance(one, TagExample)),
        allow_no_answer=task == "span" and any(getattr(one, "answers", None) == () for one in examples),
        knowledge=KnowledgeRecipe(predicate=task != "tag") if has_graph else None,
        learning=default_learning(),
    )
    if chosen == "ulmfit":
        beta1, beta2 = _ULMFIT_BETAS
        learning = replace(recipe.learning, beta1=beta1, beta2=beta2)
        recipe = replace(recipe, layer_decay=ULMFIT_DECAY, learning=learning)
    recipe = cast(TaskRecipe, override(recipe, settings))
    return _learning(recipe, all_examples or len(examples), settings)


def writes_labels(task: str, model: Any, settings: Sequence[str]) -> bool:
    """Whether a model is fine-tuned to write the labels of a task: as head.answer says, or as it was trained before."""
    if task not in ("classify", "pair"):
        return False
    if not is_unset(settings, "head.answer"):
        return any(setting.replace(" ", "") == "head.answer=text" for setting in settings)
    recipe = model.recipe
    if isinstance(recipe, TaskRecipe):
        return recipe.head.answer == "text"
    return isinstance(recipe, NetRecipe) and any(one.writes_labels for one in recipe.objectives)


def with_dropout(network: NetRecipe) -> NetRecipe:
    """The recipe with dropout if it is a Transformer pre-trained without: examples are read in many epochs."""
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
    """All labels of the examples, sorted alphabetically or numerically, and their kind."""
    if task in ("span", "choice", "generate"):
        return (), "single"
    found: Counter[str] = Counter()
    several = False
    for example in examples:
        labels = known_labels(example)
        found.update(labels)
        several |= isinstance(example, TextExample) and len(labels) != 1
    numbers = sum(map(_is_number, found))
    if task == "pair" and numbers > _MANY and numbers > _NEARLY_ALL * len(found):
        return (), "number"
    if len(found) < 2:
        only = next(iter(found), "none")
        where = examples[0].origin.source or "all items"
        raise CorpusError(f"{where}: the examples have one label only ({only}): give examples of at least two.")
    form: Literal["single", "multi"] = "multi" if task == "typing" or (several and task == "classify") else "single"
    ordered = sorted(found, key=lambda one: (not _is_number(one), float(one) if _is_number(one) else 0.0, one))
    return tuple(ordered), form


def is_similarity(labels: Sequence[str]) -> bool:
    """Whether the order of two texts seems not to matter: similarity or paraphrase, but not entailment.

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
    """The default head: BERT's for Transformers, a bidirectional LSTM for embeddings and frozen features."""
    if network.encoder.kind == "none":
        return HeadRecipe(encoder="lstm", width=256, pooling="max", pooler=False, dropout=0.3)
    if strategy == "features":
        layers: Any = "ends" if network.encoder.kind == "bilstm" else "mix"
        return HeadRecipe(layers=layers, encoder="lstm", width=256, pooling="max", pooler=False, dropout=0.3)
    if strategy == "ulmfit" and network.visibility == "causal":
        return HeadRecipe(pooling="concat", pooler=False, hidden=_ULMFIT_HIDDEN, dropout=0.1)
    if network.visibility == "bidirectional":
        return HeadRecipe(pooling="last" if network.ends_with_class else "first", pooler=True, dropout=0.1)
    pooling: Any = "last" if network.visibility == "causal" else "mean"
    return HeadRecipe(pooling=pooling, pooler=False, dropout=0.1)


def with_crf(task: TaskName, labels: Sequence[str], head: HeadRecipe) -> HeadRecipe:
    """The head with a CRF for tags of spans, such as entities: independent predictions are mostly worse."""
    return replace(head, crf=task == "tag" and scheme_of(labels) != "plain")


def _learning(recipe: TaskRecipe, examples: int, settings: Sequence[str]) -> TaskRecipe:
    """The recipe with learning rate, epochs and batch size by the size of the network and the number of examples."""
    learning = recipe.learning
    if is_unset(settings, "learning.batch") and examples < _SMALL:
        learning = replace(learning, batch=16)
    if is_unset(settings, "learning.epochs"):
        steps = math.ceil(examples / learning.batch)
        # Every layer is trained in the last epoch at the latest, if one more is trained in each.
        least = recipe.network.encoder.layers + 2 if recipe.strategy == "ulmfit" else 1
        learning = replace(learning, epochs=max(default_epochs(examples), math.ceil(_MIN_STEPS / steps), least))
    if learning.lr == "auto":
        learning = replace(learning, lr=finetune_lr(recipe.network, recipe.strategy))
    if recipe.strategy in GRADUAL and is_unset(settings, "learning.schedule"):
        learning = replace(learning, schedule="slanted")
    return replace(recipe, learning=learning)


def default_epochs(examples: int) -> int:
    """Epochs over a number of examples: more of them never means fewer steps in all.

    >>> [default_epochs(count) for count in (500, 501, 1_000, 2_000, 2_001, 10_000, 14_000, 50_000)]
    [20, 20, 10, 10, 10, 5, 4, 3]
    """
    wanted = next(epochs for most, epochs in _EPOCHS if examples <= most)
    steps_of_fewer = max((most * epochs for most, epochs in _EPOCHS if most < examples), default=0.0)
    return max(wanted, math.ceil(steps_of_fewer / examples))


def finetune_lr(network: NetRecipe, strategy: Strategy) -> float:
    """The default learning rate: small where a whole Transformer is trained, and smaller for wide ones."""
    whole = network.encoder.kind == "transformer" and strategy not in ("frozen", "features")
    if strategy == "ulmfit" and not whole:
        return _ULMFIT_LR
    return _TRANSFORMER_LR / network.encoder.width**1.5 if whole else HEAD_LR


def known_labels(example: Example) -> tuple[str, ...]:
    """The labels or tags of an example, if it has any."""
    if isinstance(example, TagExample):
        return example.tags or ()
    return (example.labels or ()) if isinstance(example, TextExample) else ()


def with_known_labels(examples: list[Example], labels: Sequence[str], skip_bad: bool) -> list[Example]:
    """The examples; those with labels unknown to the training examples raise `CorpusError`, or are skipped."""
    known = set(labels)
    kept = [one for one in examples if not labels or known.issuperset(known_labels(one))]
    if len(kept) < len(examples) and not skip_bad:
        first = next(one for one in examples if not known.issuperset(known_labels(one)))
        label = next(one for one in known_labels(first) if one not in known)
        raise CorpusError(
            f"{first.origin}: the label {label!r} is not among those of the training examples "
            f"({', '.join(labels[:10])}): correct it, or leave such examples out with --skip-bad."
        )
    if 0 < len(kept) < len(examples):
        note(f"{len(examples) - len(kept):,} examples were left out, whose labels the training examples do not have.")
    if not kept:
        raise CorpusError("no example to validate on has labels that the training examples have: give others.")
    return kept
