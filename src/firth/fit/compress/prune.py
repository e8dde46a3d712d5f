"""prune: attention heads, feed-forward units, layers and tokens that matter least are removed, and the rest retrained.

The importance of a head or unit is the mean of |d loss / d m| over data, where m is a factor of its output that is 1
(Michel et al. 2019, equation 2), divided by the norm of its layer. Tensors really become smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from firth.artifact.folder import artifact_info
from firth.artifact.models import load, save
from firth.errors import RecipeError
from firth.fit.adapt import adapt
from firth.fit.batches import Cursor
from firth.fit.compress.method import Compressed, CompressionJob, Method
from firth.fit.compress.vocabulary import cut_vocabulary
from firth.fit.examples import read_all
from firth.fit.finetune import finetune
from firth.fit.loop import make_training_module
from firth.fit.parallel import make_batches
from firth.fit.task_training import TaskBatches
from firth.nets.batch import Batch
from firth.nets.encoders.transformer import Attention, Layer
from firth.nets.layer_sizes import ffn_width_of, heads_of
from firth.nets.model import NetModel, own_tensors
from firth.nets.network import Network, build_network
from firth.nets.restore import load_tensors, make_model
from firth.progress import note, progress
from firth.tasks.task import Task, TaskModel
from firth.tokens.build import open_store

Floats = npt.NDArray[np.float64]
_LAYERS = "encoders.0.layers."


@dataclass(frozen=True, kw_only=True)
class PruneOptions:
    """The options of prune."""

    heads: float = 0.25
    """Fraction of all attention heads that are removed."""
    units: float = 0.25
    """Fraction of all feed-forward units that are removed."""
    layers: int = 0
    """Layers that are removed: those between the first and the last with the least important heads and units."""
    vocabulary: bool = False
    """Remove tokens that do not occur in the corpus."""
    min_count: int = 1
    """vocabulary: occurrences that a token must have to be kept."""
    rounds: int = 2
    """Rounds of pruning and training, each removing as large a fraction of what is left."""
    batches: int = 50
    """Steps of data that importance is measured on."""
    train: bool = True
    """Train after each round."""

    def __post_init__(self) -> None:
        for name in ("heads", "units"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"{name}={getattr(self, name)} must be from 0 to 1, such as 0.25.")
        for name, low in (("layers", 0), ("rounds", 1), ("batches", 1), ("min_count", 1)):
            if getattr(self, name) < low:
                raise RecipeError(f"{name}={getattr(self, name)} must be {low} or more.")


class Prune(Method):
    """Fewer heads, units, layers or tokens."""

    name = "prune"
    options: ClassVar[type] = PruneOptions

    def refusal(self, job: CompressionJob) -> str:
        model = job.model
        if not isinstance(model, NetModel | TaskModel):
            return (
                f"a {type(model).__name__} has no heads or layers to prune: choose --method quantise, which also "
                "prunes n-grams."
            )
        recipe = (model.base if isinstance(model, TaskModel) else model).recipe
        if recipe.encoder.kind != "transformer" or recipe.decoder is not None or recipe.encoder.positions != "none":
            return "prune is for Transformers with absolute positions, as bert and gpt have: choose --method distil."
        if recipe.encoder.tie_layers != "none" or recipe.encoder.cross_width:
            return "the layers of this network share parameters, so none can be pruned: choose --method distil."
        if isinstance(model, TaskModel) and (job.train is None or job.dev is None):
            return "the importance of heads is measured on examples: give --train and --dev."
        if isinstance(model, NetModel) and job.corpus is None:
            return "the importance of heads is measured on text: give --corpus."
        return ""

    def run(self, job: CompressionJob, options: PruneOptions) -> Compressed:
        model, notes = job.model, []
        if options.vocabulary:
            model, note_of_cut = _cut(job, model, options)
            notes.append(note_of_cut)
        spent = {"tokens": 0.0, "flops": 0.0}
        for number in range(1, options.rounds + 1):
            pruned = _load(job.work / f"{number}-pruned")
            if pruned is None:
                importance = measure_importance(model, job, options.batches)
                pruned = prune_model(model, choose(model, importance, options, number))
                _save(job, job.work / f"{number}-pruned", pruned)
            model = pruned
            if options.train:
                model, used = _train(job, number)
                spent = {name: spent[name] + used.get(name, 0.0) for name in spent}
        sizes = network_of(model).recipe.encoder
        notes.append(f"heads x feed-forward units of the layers: {', '.join(sizes.layer_sizes) or 'as before'}")
        return Compressed(model=model, notes=notes, spent=spent)


def network_of(model: Any) -> NetModel:
    """The network of a fine-tuned model, or the model itself."""
    return cast(NetModel, model.base if isinstance(model, TaskModel) else model)


class Importance(NamedTuple):
    """The importance of each head and each unit of each layer."""

    heads: list[Floats]
    units: list[Floats]


class Kept(NamedTuple):
    """The layers that are kept and, for each, its heads and units."""

    layers: list[int]
    heads: list[list[int]]
    units: list[list[int]]


def measure_importance(model: Any, job: CompressionJob, steps: int) -> Importance:
    """The importance of heads and units on examples of the task, or on text."""
    network = network_of(model).network.eval()
    batches, loss = _task_losses(model, job) if isinstance(model, TaskModel) else _text_losses(model, job)
    with progress("measuring importance", steps, "steps") as advance:
        found = importance(network, islice(_flat(batches, advance), steps), loss)
    return found


def importance(network: Network, batches: Iterator[Batch], loss: Callable[[Batch], Tensor]) -> Importance:
    """The mean over rows of |sum over positions and dimensions of output x gradient|, for each head and unit."""
    layers = _layers(network)
    inputs: dict[tuple[str, int], Tensor] = {}

    def record(kind: str, number: int) -> Any:
        def hook(module: nn.Module, given: tuple[Tensor, ...]) -> None:
            given[0].retain_grad()
            inputs[kind, number] = given[0]

        return hook

    hooks = [one.attention.out.register_forward_pre_hook(record("heads", number)) for number, one in enumerate(layers)]
    hooks += [
        one.feedforward.outer.register_forward_pre_hook(record("units", number)) for number, one in enumerate(layers)
    ]
    found = Importance(
        [np.zeros(cast(Attention, one.attention).heads) for one in layers],
        [np.zeros(one.feedforward.outer.in_features) for one in layers],
    )
    was_trained = {parameter: parameter.requires_grad for parameter in network.parameters()}
    try:
        network.requires_grad_(True)  # also that of a network that was frozen
        with torch.enable_grad():
            for batch in batches:
                inputs.clear()
                loss(batch).backward()  # type: ignore[no-untyped-call]
                for (kind, number), states in inputs.items():
                    _add(getattr(found, kind)[number], states)
    finally:
        for hook in hooks:
            hook.remove()
        network.zero_grad(set_to_none=True)
        for parameter, trained in was_trained.items():
            parameter.requires_grad_(trained)
    return Importance(*([_normalised(one) for one in kind] for kind in found))


def _add(total: Floats, states: Tensor) -> None:
    """Add what a batch says to the importance of the parts of a layer."""
    assert states.grad is not None
    products = (states.detach() * states.grad).double()
    rows = products if products.dim() == 3 else products[None]  # (rows, positions, width)
    parts = rows.view(*rows.shape[:2], len(total), -1).sum((1, 3))
    total += parts.abs().sum(0).numpy()


def _normalised(importance: Floats) -> Floats:
    norm = float(np.linalg.norm(importance))
    return importance / norm if norm > 0 else importance


def choose(model: Any, found: Importance, options: PruneOptions, number: int) -> Kept:
    """What a round keeps: the most important heads and units of the whole network, at least one of each in a layer.

    After round n of N a fraction of (1 - f)^(n / N) of the original is left.
    """
    recipe = network_of(model).recipe.encoder
    layers = list(range(recipe.layers))
    if options.layers and number == 1:
        if options.layers > recipe.layers - 2:
            raise RecipeError(
                f"{recipe.layers} layers leave at most {recipe.layers - 2} to remove: set layers to fewer."
            )
        scores = [float(found.heads[one].mean() + found.units[one].mean()) for one in layers[1:-1]]
        worst = sorted(range(len(scores)), key=lambda one: scores[one])[: options.layers]
        layers = [one for one in layers if one - 1 not in worst]
    heads = keep_most([found.heads[one] for one in layers], _round_share(options.heads, options.rounds))
    units = keep_most([found.units[one] for one in layers], _round_share(options.units, options.rounds))
    return Kept(layers, heads, units)


def _round_share(fraction: float, rounds: int) -> float:
    """The fraction that a round removes of what is left."""
    return float(1 - (1 - fraction) ** (1 / rounds))


def keep_most(scores: Sequence[Floats], fraction: float) -> list[list[int]]:
    """The indices that stay in each group after the least of all groups, that fraction of them, are removed.

    >>> keep_most([np.array([0.5, 0.1]), np.array([0.2, 0.3])], 0.5)
    [[0], [1]]
    >>> keep_most([np.array([0.1, 0.2]), np.array([0.8, 0.9])], 0.5)  # one stays in each
    [[1], [1]]
    """
    remaining = [set(range(len(one))) for one in scores]
    order = sorted((float(value), group, index) for group, one in enumerate(scores) for index, value in enumerate(one))
    left = round(fraction * len(order))
    for _, group, index in order:
        if left and len(remaining[group]) > 1:
            remaining[group].remove(index)
            left -= 1
    return [sorted(one) for one in remaining]


def prune_model(model: Any, kept: Kept) -> Any:
    """The model with the tensors of what is kept; a fine-tuned model keeps its head."""
    if isinstance(model, TaskModel):
        base = prune_network(model.base, kept)
        return TaskModel(replace(model.recipe, network=_with_sizes(model.recipe.network, base)), base, model.head)
    return prune_network(cast(NetModel, model), kept)


def _with_sizes(recipe: Any, base: NetModel) -> Any:
    encoder = base.recipe.encoder
    sizes = replace(recipe.encoder, layers=encoder.layers, layer_sizes=encoder.layer_sizes, ffn_width=encoder.ffn_width)
    return replace(recipe, encoder=sizes)


def prune_network(model: NetModel, kept: Kept) -> NetModel:
    """The network with some layers, heads and units."""
    encoder = model.recipe.encoder
    size = encoder.width // encoder.heads
    before = [(heads_of(encoder, number), ffn_width_of(encoder, number)) for number in range(encoder.layers)]
    after = [(len(heads), len(units)) for heads, units in zip(kept.heads, kept.units, strict=True)]
    is_whole = after == [before[0]] * len(after) and before[0] == (encoder.heads, encoder.ffn_width)
    sizes = () if is_whole else tuple(f"{heads}x{units}" for heads, units in after)
    recipe = replace(model.recipe, encoder=replace(encoder, layers=len(kept.layers), layer_sizes=sizes))
    network = build_network(recipe, model.network.vocabulary, 0, skip_init=True)
    given = {name: tensor.detach().numpy() for name, tensor in own_tensors(model.network).items()}
    arrays = {}
    for name, tensor in own_tensors(network).items():
        if not name.startswith(_LAYERS):
            arrays[name] = given[name]
            continue
        number, _, rest = name.removeprefix(_LAYERS).partition(".")
        own = int(number)
        source = given[f"{_LAYERS}{kept.layers[own]}.{rest}"]
        heads, _ = before[kept.layers[own]]
        rows = _rows(rest, kept.heads[own], kept.units[own], heads, size, before[kept.layers[own]][1], encoder.gated)
        axis = 1 if rest in ("attention.out.weight", "feedforward.outer.weight") else 0
        arrays[name] = source if rows is None else np.ascontiguousarray(np.take(source, rows, axis=axis))
        assert arrays[name].shape == tuple(tensor.shape), name
    load_tensors(network, arrays)
    return make_model(recipe, network, model.tokenizer, model.layout, model.unknown_word_model, model.heads)


def _rows(
    name: str, heads: Sequence[int], units: Sequence[int], all_heads: int, size: int, all_units: int, gated: bool
) -> npt.NDArray[np.int64] | None:
    """The rows or columns of a tensor of a layer that are kept; None: all."""
    of_heads = np.concatenate([np.arange(one * size, (one + 1) * size) for one in heads])
    if name in ("attention.qkv.weight", "attention.qkv.bias"):
        return np.concatenate([part * all_heads * size + of_heads for part in range(3)])
    if name == "attention.out.weight":
        return of_heads
    if name in ("feedforward.inner.weight", "feedforward.inner.bias"):
        own = np.array(units, dtype=np.int64)
        return np.concatenate([own, all_units + own]) if gated else own
    return np.array(units, dtype=np.int64) if name == "feedforward.outer.weight" else None


def _layers(network: Network) -> list[Layer]:
    return [one for one in cast(Any, network.encoders[0]).layers if isinstance(one, Layer)]


Losses = tuple[Iterator[Sequence[Batch]], Callable[[Batch], Tensor]]


def _task_losses(model: TaskModel, job: CompressionJob) -> Losses:
    """Batches of examples, and their loss."""
    examples = read_all(cast(Any, model.task), cast(Any, job.train), columns=job.columns)
    task: Task = model.head
    batches = TaskBatches(task.sequences(examples, model.builder), model.recipe, job.seed)

    def loss(batch: Batch) -> Tensor:
        states = model.base.network(batch, task.positions(batch))
        return task.loss(model.base.network, states, batch, None).total

    return _steps(batches), loss


def _text_losses(model: NetModel, job: CompressionJob) -> Losses:
    """Batches of text with noise, and the loss of the network's objectives."""
    assert job.corpus is not None
    store = open_store(job.corpus, model.tokenizer, job.threads)
    module = make_training_module(model.recipe, model.network.vocabulary, job.seed)
    names = {name: name if name.startswith("heads.") else f"network.{name}" for name in model.arrays()}
    module.restore(module.arrays() | {names[name]: array for name, array in model.arrays().items() if name in names})
    module.network = model.network  # whose layers are measured
    batches = make_batches(model.recipe, store, module.objectives, job.seed)

    def loss(batch: Batch) -> Tensor:
        return torch.stack([one.total for one in module.losses(batch, None).values()]).sum()

    return _steps(batches), loss


def _steps(batches: Any) -> Iterator[Sequence[Batch]]:
    cursor = Cursor(0, 0)
    while True:
        parts, cursor = batches.step(cursor)
        yield parts


def _flat(steps: Iterator[Sequence[Batch]], advance: Any) -> Iterator[Batch]:
    for parts in steps:
        yield from parts
        advance(1)


def _train(job: CompressionJob, number: int) -> tuple[Any, dict[str, float]]:
    """The model of a round after training, by the verbs that train any model."""
    source, out = job.work / f"{number}-pruned", job.work / f"{number}-trained"
    budget = None if job.budget is None else job.budget.text
    if not (out / "manifest.json").exists():
        note(f"training after round {number}")
        running: dict[str, Any] = {"threads": job.threads, "resume": job.resume and out.exists()}
        if isinstance(job.model, TaskModel):
            examples: dict[str, Any] = {"train": job.train, "dev": job.dev, "columns": job.columns}
            finetune(source, job.model.task, out=out, budget=budget, seed=job.seed, **examples, **running)
        else:
            assert job.corpus is not None
            adapt(source, job.corpus, out=out, budget=budget, **running)
    return load(out, verify=False), dict(artifact_info(out)["budget"]["spent"])


def _load(folder: Path) -> Any:
    return load(folder, verify=False) if (folder / "manifest.json").exists() else None


def _save(job: CompressionJob, folder: Path, model: Any) -> None:
    manifest = job.artifact.manifest
    empty = {"asked": None, "spent": {"seconds": 0.0}}
    options: dict[str, Any] = {"budget": empty, "corpus": manifest.corpus, "seed": job.seed, "metrics": {}}
    save(folder, model, name=manifest.name, recipe=model.recipe, **options)


def _cut(job: CompressionJob, model: Any, options: PruneOptions) -> tuple[Any, str]:
    """The model with the tokens of the corpus alone."""
    if job.corpus is None:
        raise RecipeError("the vocabulary is cut to the tokens of a text: give one with --corpus.")
    base = network_of(model)
    small = cut_vocabulary(base, job.corpus, options.min_count, job.threads)
    said = f"{len(small.tokenizer):,} of {len(base.tokenizer):,} tokens occur in the text and are kept"
    if isinstance(model, TaskModel):
        if model.head.linear is not None:
            said += "; the linear part, whose n-grams are of the whole vocabulary, is left out"
            model = model.without_linear()
        network = replace(model.recipe.network, tokenizer=small.recipe.tokenizer)
        return TaskModel(replace(model.recipe, network=network), small, model.head), said
    return small, said
