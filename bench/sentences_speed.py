"""The speed of training quick-thoughts and skip-thoughts of equal width, in sentences per second.

Both read the same sentences of the same text, in batches of the same size, with the same number of threads. The vectors
of both have `--width` dimensions: quick-thoughts have two networks of two directions each, skip-thoughts one of one.

    python bench/sentences_speed.py news.txt --width 512 --steps 20
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import torch

from firth.fit.batches import Cursor, vocabulary_of
from firth.fit.layer_rates import pretraining_groups
from firth.fit.loop import make_training_module, optimizer_step
from firth.fit.optimisers import make_optimiser
from firth.fit.parallel import make_batches
from firth.nets.recipe import NetRecipe
from firth.objectives.sequences import SENTENCES
from firth.recipes.sentences import quick_thoughts, skip_thoughts
from firth.text.corpus import Corpus, read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe

_WARM = 2  # steps that are not measured
_TARGET = 5.0


def recipes(width: int, batch: int, words: int) -> dict[str, NetRecipe]:
    """Both recipes with sentence vectors of a width and the same vocabulary."""
    made = {}
    for name, recipe, own in (
        ("quick-thoughts", quick_thoughts(), width // 4),
        ("skip-thoughts", skip_thoughts(), width),
    ):
        made[name] = replace(
            recipe,
            tokenizer=TokenizerRecipe(model="words", vocab_size=words, lowercase=True),
            embedding=replace(recipe.embedding, width=min(width, recipe.embedding.width)),
            encoder=replace(recipe.encoder, width=own),
            learning=replace(recipe.learning, batch=batch, lr=1e-3),
        )
    return made


def sentences_per_second(recipe: NetRecipe, corpus: Corpus, steps: int) -> float:
    """The speed of whole steps, with the building of batches."""
    tokenizer, store = open_tokens(recipe.tokenizer, corpus)
    module = make_training_module(recipe, vocabulary_of(tokenizer, store), 0)
    groups = pretraining_groups(module.network, module.heads, recipe.learning)
    optimiser = make_optimiser(recipe.learning, module, 0.0, groups)
    batches = make_batches(recipe, store, module.objectives, 0)
    cursor, read, began = Cursor(), 0, time.perf_counter()
    for step in range(_WARM + steps):
        if step == _WARM:
            read, began = 0, time.perf_counter()
        parts, cursor = batches.step(cursor)
        optimizer_step(module, optimiser, parts, recipe.learning.clip, 1e-3, 0, step)
        read += sum(len(part.labels[SENTENCES]) for part in parts)
    return read / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4096, help="tokens of a step")
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    corpus = read_corpus(given.corpus)
    made = recipes(given.width, given.batch, given.words)
    speeds = {name: sentences_per_second(one, corpus, given.steps) for name, one in made.items()}
    for name, speed in speeds.items():
        print(f"{name:<16}{speed:10,.0f} sentences/s")
    ratio = speeds["quick-thoughts"] / speeds["skip-thoughts"]
    print(f"ratio {ratio:.1f}x (at least {_TARGET:.0f}x is wanted)")


if __name__ == "__main__":
    main()
