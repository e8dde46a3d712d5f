"""ELECTRA against the two models of `transformers` trained in a plain loop: the same rows, sizes, optimiser, threads.

    python bench/electra.py [--steps 20] [--threads 2] [--size mini]

Both choose 15 % of the tokens, sample replacements from the generator and train both networks with the embedding
shared. Prints the median speed of a step and the losses of the last one. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as f

import data
from firth.fit.batches import Batches, Cursor, vocabulary_of
from firth.fit.loop import TrainingModule, make_training_module, optimizer_step
from firth.fit.optimisers import make_optimiser
from firth.nets.batch import Batch
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import electra, resize
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.tokenizer import FIRST_WORD, MASK, PAD

LENGTH, ROWS, LR = 128, 32, 5e-4


def make_batches(size: str, steps: int, folder: Path) -> tuple[NetRecipe, Any, list[Batch]]:
    """The recipe, its vocabulary and the batches of all steps."""
    text = folder / "text.txt"
    data.write(data.english, text, 4_000_000)
    recipe = resize(electra(), size)
    recipe = replace(
        recipe,
        tokenizer=replace(recipe.tokenizer, vocab_size=16_000),
        sequence=replace(recipe.sequence, length=LENGTH, format="full-sentences"),
        learning=replace(recipe.learning, lr=LR, batch=LENGTH * ROWS),
    )
    tokenizer, store = open_tokens(recipe.tokenizer, read_corpus(text))
    vocabulary = vocabulary_of(tokenizer, store)
    source, cursor, batches = Batches(recipe, store, firth_module(recipe, vocabulary).objectives, 0), Cursor(), []
    for _ in range(steps):
        (batch,), cursor = source.step(cursor)
        batches.append(batch)
    return recipe, vocabulary, batches


def firth_module(recipe: NetRecipe, vocabulary: Any) -> TrainingModule:
    return make_training_module(recipe, vocabulary, 0)


def firth_step(recipe: NetRecipe, vocabulary: Any) -> Callable[[Batch, int], dict[str, float]]:
    """A training step of Firth."""
    module = firth_module(recipe, vocabulary)
    optimiser = make_optimiser(recipe.learning, module, LR)

    def step(batch: Batch, number: int) -> dict[str, float]:
        losses, _ = optimizer_step(module, optimiser, [batch], 1.0, LR, 0, number)
        return {name: total / count for name, (total, count) in losses.items()}

    return step


def peer_step(recipe: NetRecipe, vocabulary: Any) -> Callable[[Batch, int], dict[str, float]]:
    """A training step of a plain loop over two models of transformers with one embedding."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

    def config(one: NetRecipe) -> Any:
        encoder = one.encoder
        return transformers.ElectraConfig(
            vocab_size=len(vocabulary),
            embedding_size=one.embedding.width,
            hidden_size=encoder.width,
            num_hidden_layers=encoder.layers,
            num_attention_heads=encoder.heads,
            intermediate_size=encoder.ffn_width,
            max_position_embeddings=LENGTH,
        )

    torch.manual_seed(0)
    discriminator = transformers.ElectraForPreTraining(config(recipe)).train()
    generator = transformers.ElectraForMaskedLM(config(recipe.second_networks["rtd"])).train()
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    parameters = list({id(p): p for m in (discriminator, generator) for p in m.parameters()}.values())
    optimiser = torch.optim.AdamW(parameters, LR, (0.9, 0.98), 1e-6, 0.01, fused=True)

    def step(batch: Batch, number: int) -> dict[str, float]:
        original = batch.ids.flatten().index_copy(0, batch.labels["rtd.positions"], batch.labels["rtd.targets"])
        original = original.view_as(batch.ids)
        mask = (original != PAD).long()
        chosen = (torch.rand(original.shape) < 0.15) & (original >= FIRST_WORD)
        masked = torch.where(chosen & (torch.rand(original.shape) < 0.85), MASK, original)
        made = generator(input_ids=masked, attention_mask=mask, labels=torch.where(chosen, original, -100))
        with torch.no_grad():
            sampled = torch.multinomial(made.logits[chosen].softmax(-1), 1)[:, 0]
        replaced = original.masked_scatter(chosen, sampled)
        logits = discriminator(input_ids=replaced, attention_mask=mask).logits
        fake = (replaced != original).float()
        judged = f.binary_cross_entropy_with_logits(logits[mask.bool()], fake[mask.bool()])
        optimiser.zero_grad(set_to_none=True)
        (made.loss + 50 * judged).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        return {"mlm": made.loss.item(), "rtd": judged.item()}

    return step


def measure(name: str, step: Callable[[Batch, int], dict[str, float]], batches: Sequence[Batch]) -> float:
    """The median tokens per second of a step, the first one left out; prints them."""
    speeds, losses = [], {}
    for number, batch in enumerate(batches):
        began = time.perf_counter()
        losses = step(batch, number)
        speeds.append(batch.tokens / (time.perf_counter() - began))
    speed = statistics.median(speeds[1:] or speeds)
    shown = "  ".join(f"{key} {value:.3f}" for key, value in losses.items())
    print(f"  {name:<13}{speed:8,.0f} tokens/s  {shown}", flush=True)
    return speed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", default="mini")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        recipe, vocabulary, batches = make_batches(options.size, options.steps, Path(folder))
    print(f"ELECTRA {options.size}, {ROWS} x {LENGTH}, {options.threads} threads")
    ours = measure("firth", firth_step(recipe, vocabulary), batches)
    peer = measure("transformers", peer_step(recipe, vocabulary), batches)
    print(f"  {ours / peer:.2f} times as fast")


if __name__ == "__main__":
    main()
