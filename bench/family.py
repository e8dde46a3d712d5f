"""Pre-trainers of BERT's descendants against the same model of `transformers` in a plain loop; a process for each.

    python bench/family.py [--steps 20] [--rounds 1] [--threads 2] [--size mini] [--dropout 0.1] [--only bart,t5,...]

Both start from the same weights and train on the same sequences with the same noise and targets, by the same optimiser.
Firth packs sequences and computes predicted positions alone; the plain loop pads batches of 32 sequences to the longest
one, as the collators of the examples do: BART and T5 with labels of the decoder, XLNet with a query at every position
(`DataCollatorForPermutationLanguageModeling`; `xlnet-targets` has queries at predicted positions alone, as the authors'
program), UniLM as BERT with a mask of (batch, 1, query, key), ERNIE with masked units and pairs. Prints the median
speed of a step and the loss of the last ones, which without dropout are the same up to rounding. Use an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import make_parser, peak_kilobytes, run_child, timed

if TYPE_CHECKING:
    from torch import Tensor

    from firth.fit.loop import TrainingModule
    from firth.nets.batch import Batch
    from firth.nets.recipe import NetRecipe

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the weights of BART and T5 in tests.parity
VOCAB_SIZE, LENGTH, ROWS, LR, IGNORED = 16_000, 128, 32, 5e-4, -100
MASKED = ("mlm.positions", "mlm.targets")
Inputs = dict[str, "Tensor"]


def make_recipe(name: str, size: str, dropout: float) -> NetRecipe:
    """The recipe of a row, with the same sizes, length, optimiser and rate of dropout for all."""
    from firth.nets.recipe import LearningRecipe, MemoryRecipe
    from firth.recipes.nets import resize
    from firth.recipes.table import RECIPES

    recipe: Any = resize(RECIPES[name.partition("-")[0]].make(), size)  # type: ignore[arg-type]
    rates = {"dropout": dropout, "attention_dropout": dropout}
    format_ = recipe.sequence.format
    sequence = replace(recipe.sequence, length=LENGTH, reversed=False)
    objectives = tuple(one for one in recipe.objectives if not one.lays_out)  # the text has no dialogues
    return replace(  # type: ignore[no-any-return]
        recipe,
        objectives=objectives or recipe.objectives,
        tokenizer=replace(recipe.tokenizer, vocab_size=VOCAB_SIZE),
        embedding=replace(recipe.embedding, dropout=dropout),
        encoder=replace(recipe.encoder, **rates),
        decoder=None if recipe.decoder is None else replace(recipe.decoder, **rates),
        sequence=replace(sequence, format="full-sentences" if format_ == "doc-sentences" else format_),
        memory=MemoryRecipe(),
        learning=LearningRecipe(lr=LR, batch=ROWS * LENGTH),
    )


def open_run(recipe: NetRecipe, folder: Path, steps: int) -> tuple[TrainingModule, list[Batch]]:
    """A network with its objectives, and the batches of all steps: the same in every process."""
    import data
    from firth.fit.batches import Cursor, vocabulary_of
    from firth.fit.loop import make_training_module
    from firth.fit.parallel import make_batches
    from firth.fit.units import recipe_columns
    from firth.text.corpus import read_corpus
    from firth.tokens.build import open_tokens

    text = folder / "text.txt"
    if not text.exists():
        data.write(data.english, text, 4_000_000)
    tokenizer, store = open_tokens(recipe.tokenizer, read_corpus(text), columns=recipe_columns(recipe, None))
    module = make_training_module(recipe, vocabulary_of(tokenizer, store), 0)
    source, cursor, batches = make_batches(recipe, store, module.objectives, 0), Cursor(), []
    for _ in range(steps):
        (batch,), cursor = source.step(cursor)
        batches.append(batch)
    return module, batches


def firth_step(module: TrainingModule, name: str) -> Callable[[Batch, int], float]:
    """A training step of Firth."""
    from firth.fit.loop import optimizer_step
    from firth.fit.optimisers import make_optimiser
    from firth.memory import retain_freed_memory

    retain_freed_memory()
    module.train()
    optimiser = make_optimiser(module.network.recipe.learning, module, LR)

    def step(batch: Batch, number: int) -> float:
        losses, _ = optimizer_step(module, optimiser, [batch], 1.0, LR, 0, number)
        return sum(total / max(1, count) for total, count in losses.values())

    return step


def peer_step(module: TrainingModule, name: str) -> Callable[[Batch, int], float]:
    """A training step of a plain loop over padded batches of transformers."""
    import torch
    from torch.nn.utils import clip_grad_norm_

    make_model, make_inputs = PEERS[name]
    recipe = module.network.recipe
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_model(module)
    set_dropout(model, recipe.encoder.dropout, recipe.encoder.attention_dropout)
    model.train()
    parameters = list(model.parameters())
    groups = [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": recipe.learning.weight_decay},
        {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, LR, (0.9, recipe.learning.beta2), 1e-6, fused=True)

    def step(batch: Batch, number: int) -> float:
        total, given = 0.0, list(make_inputs(batch))
        counts = {key: sum(int(one[key].ne(IGNORED).sum()) for one in given) for key in given[0] if "label" in key}
        for one in given:
            loss = weighted_loss(model, one, counts)
            loss.backward()
            total += float(loss.detach())
        clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        return total

    return step


def weighted_loss(model: Any, given: Inputs, counts: dict[str, int]) -> Tensor:
    """The losses of a padded batch, as a part of the mean of the step."""
    import torch.nn.functional as f

    if "next_sentence_label" not in given:
        return model(**given).loss * (int(given["labels"].ne(IGNORED).sum()) / counts["labels"])  # type: ignore[no-any-return]
    made = model(**{name: one for name, one in given.items() if "label" not in name})
    masked = f.cross_entropy(made.prediction_logits.flatten(0, 1), given["labels"].flatten(), reduction="sum")
    pairs = f.cross_entropy(made.seq_relationship_logits, given["next_sentence_label"], reduction="sum")
    return masked / counts["labels"] + pairs / max(1, counts["next_sentence_label"])


def set_dropout(model: Any, rate: float, attention_rate: float) -> None:
    """Drop states and attention weights at these rates; our feed-forward layers drop nothing inside."""
    import torch

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0 if name.endswith(("DenseReluDense.dropout", "ff.dropout")) else rate
        elif isinstance(getattr(module, "dropout", None), float):
            is_attention = "ttention" in type(module).__name__
            module.dropout = attention_rate if is_attention else rate


# Models with our weights, and padded batches of our sequences


def bart_model(module: TrainingModule) -> Any:
    from tests.parity.bart_weights import bart

    made = bart(module.network.recipe, module.network.state_dict())
    made.set_attn_implementation("sdpa")
    return made


def t5_model(module: TrainingModule) -> Any:
    from tests.parity.bart_weights import t5

    return t5(module.network.recipe, module.network.state_dict())


def exported_model(module: TrainingModule) -> Any:
    """The class that `firth export` names."""
    import transformers

    from firth.artifact.formats.huggingface import to_huggingface

    heads = {name: one.detach() for name, one in module.head_tensors().items()}
    config, tensors = to_huggingface(module.network.recipe, module.network.state_dict(), heads)
    made = getattr(transformers, config["architectures"][0])(transformers.AutoConfig.for_model(**config))
    left = made.load_state_dict(tensors, strict=False)
    assert not left.unexpected_keys, left
    return made


def split(batch: Batch, values: Tensor) -> list[Tensor]:
    """The values (batch, length, ...) of each sequence of the rows."""
    import torch

    if batch.sequence_ids is None:
        return list(values)
    is_token = batch.sequence_ids >= 0
    keys = (batch.sequence_ids + values.shape[1] * torch.arange(len(values))[:, None])[is_token]
    return list(values[is_token].split(torch.unique_consecutive(keys, return_counts=True)[1].tolist()))


def padded(columns: dict[str, list[Tensor]]) -> Iterator[Inputs]:
    """Batches of 32 sequences, padded to the longest one."""
    from torch.nn.utils.rnn import pad_sequence

    for begin in range(0, len(next(iter(columns.values()))), ROWS):
        some = slice(begin, begin + ROWS)
        yield {
            name: pad_sequence(values[some], True, IGNORED if name == "labels" else 0)
            for name, values in columns.items()
        }


def restored(batch: Batch) -> Iterator[Inputs]:
    """Of an encoder and a decoder: sources, the decoder's inputs and the tokens that follow them."""
    import torch

    assert batch.source is not None
    (targets,) = (one for name, one in batch.labels.items() if name.endswith(".targets"))
    labels = torch.zeros_like(batch.ids)
    is_token = torch.ones_like(labels, dtype=torch.bool) if batch.sequence_ids is None else batch.sequence_ids >= 0
    labels[is_token] = targets
    columns = {"input_ids": split(batch.source, batch.source.ids), "decoder_input_ids": split(batch, batch.ids)}
    columns |= {
        "labels": split(batch, labels),
        "attention_mask": [torch.ones_like(one) for one in columns["input_ids"]],
    }
    yield from padded(columns)


def permuted(batch: Batch, only_targets: bool) -> Iterator[Inputs]:
    """Rows with the masks of their order, and queries at all positions or at those that are predicted."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    order, positions, (rows, length) = batch.attention_order, batch.labels["plm.positions"], batch.shape
    assert order is not None
    is_target = torch.zeros(rows * length, dtype=torch.bool).index_fill(0, positions, True).view(rows, length)
    later = torch.where(is_target[:, :, None], order[:, None] >= order[:, :, None], order[:, None] > order[:, :, None])
    labels = torch.where(is_target, batch.ids, IGNORED)
    mapping = torch.eye(length).expand(rows, -1, -1)
    if only_targets:
        mapping = pad_sequence([torch.eye(length)[one] for one in is_target], True)
        labels = pad_sequence([ids[one] for ids, one in zip(batch.ids, is_target, strict=True)], True, IGNORED)
    assert batch.segment_ids is not None
    masks = {"perm_mask": later.float(), "target_mapping": mapping.contiguous(), "labels": labels}
    yield {"input_ids": batch.ids, "token_type_ids": batch.segment_ids, **masks}


def unified(batch: Batch) -> Iterator[Inputs]:
    """Pairs with the mask of their way of reading, masked tokens and the labels of pairs."""
    import torch

    order, positions = batch.attention_order, batch.labels["unilm.positions"]
    assert order is not None
    assert batch.segment_ids is not None
    labels = torch.full((batch.ids.numel(),), IGNORED).index_copy(0, positions, batch.labels["unilm.targets"])
    columns = {"input_ids": split(batch, batch.ids), "token_type_ids": split(batch, batch.segment_ids)}
    columns |= {"labels": split(batch, labels.view_as(batch.ids)), "order": split(batch, order + 1)}
    pairs, begin = batch.labels["unilm.labels"], 0
    pairs = pairs.masked_fill(pairs < 0, IGNORED)
    for given in padded(columns):
        reads = given.pop("order")  # 0 for padding, which no token attends to
        mask = (reads[:, None] <= reads[:, :, None]) & (reads > 0)[:, None] | (reads == 0)[:, :, None]
        given["attention_mask"] = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)[:, None]
        given["next_sentence_label"] = pairs[begin : begin + len(reads)]
        begin += len(reads)
        yield given


def masked_pairs(batch: Batch) -> Iterator[Inputs]:
    """Pairs with masked tokens and the labels of pairs."""
    import torch

    assert batch.segment_ids is not None
    labels = torch.full((batch.ids.numel(),), IGNORED).index_copy(0, *(batch.labels[one] for one in MASKED))
    columns = {"input_ids": split(batch, batch.ids), "token_type_ids": split(batch, batch.segment_ids)}
    columns |= {"labels": split(batch, labels.view_as(batch.ids))}
    columns["attention_mask"] = [torch.ones_like(one) for one in columns["input_ids"]]
    pairs, begin = batch.labels["nsp.labels"], 0
    for given in padded(columns):
        given["next_sentence_label"] = pairs[begin : begin + len(given["input_ids"])]
        begin += len(given["input_ids"])
        yield given


PEERS: dict[str, tuple[Callable[[TrainingModule], Any], Callable[[Batch], Iterator[Inputs]]]] = {
    "bart": (bart_model, restored),
    "t5": (t5_model, restored),
    "xlnet": (exported_model, lambda batch: permuted(batch, only_targets=False)),
    "xlnet-targets": (exported_model, lambda batch: permuted(batch, only_targets=True)),
    "unilm": (exported_model, unified),
    "ernie": (exported_model, masked_pairs),
}
LIBRARIES = {"transformers": peer_step, "firth": firth_step}


def train(library: str, name: str, size: str, dropout: float, steps: int, threads: int, folder: str) -> dict[str, Any]:
    """The child process: train on all batches and return the measurements."""
    import torch

    torch.set_num_threads(threads)
    module, batches = open_run(make_recipe(name, size, dropout), Path(folder), steps)
    step, speeds, losses = LIBRARIES[library](module, name), [], []
    for number, batch in enumerate(batches):
        loss, seconds = timed(lambda: step(batch, number))  # noqa: B023
        losses.append(loss)
        speeds.append(batch.tokens / seconds)
    loss = statistics.mean(losses[-3:])
    return {"speed": statistics.median(speeds[1:] or speeds), "megabytes": peak_kilobytes() / 1024, "loss": loss}


def compare(name: str, folder: Path, options: argparse.Namespace) -> None:
    """Train with both libraries in turn and print the results."""
    results: dict[str, list[dict[str, Any]]] = {library: [] for library in LIBRARIES}
    for _ in range(options.rounds):
        for library, found in results.items():
            arguments = (library, name, options.size, options.dropout, options.steps, options.threads, folder)
            found.append(run_child(__file__, *arguments))
    best = {library: max(found, key=lambda one: float(one["speed"])) for library, found in results.items()}
    print(f"\n{name} {options.size}, {ROWS} x {LENGTH}, dropout {options.dropout}, {options.threads} threads")
    for library, one in best.items():
        print(f"  {library:<13}{one['speed']:8,.0f} tokens/s {one['megabytes']:7,.0f} MB  loss {one['loss']:.4f}")
    print(f"  {best['firth']['speed'] / best['transformers']['speed']:.2f} times as fast", flush=True)


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1, help="runs of each library, of which the fastest counts")
    parser.add_argument("--size", default="mini")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--only", default=",".join(PEERS))
    parser.add_argument("--child", nargs=7, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        library, name, size, dropout, steps, threads, folder = options.child
        found = train(library, name, size, float(dropout), int(steps), int(threads), folder)
        return print(json.dumps(found))
    with tempfile.TemporaryDirectory(prefix="firth-bench-") as made:
        os.environ["FIRTH_CACHE"] = str(Path(made, "cache"))
        for name in options.only.split(","):
            compare(name, Path(made), options)
    return None


if __name__ == "__main__":
    main()
