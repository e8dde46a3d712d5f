"""One count of FLOPs, over every neural recipe: that of torch's counter, of a batch, and of a recipe before a run."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from firth.fit.batches import Batches, Cursor, vocabulary_of
from firth.fit.cost import TrainingCosts, training_cost
from firth.fit.loop import BACKWARD, TrainingModule, make_training_module
from firth.fit.parallel import make_batches
from firth.fit.resolve import fill_in
from firth.fit.sentence_batches import SentenceBatches
from firth.nets.batch import Batch
from firth.nets.characters import CharacterTable
from firth.nets.dropout import DropoutRng
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.clm import first_positions
from firth.objectives.heads.sentences import SentenceHead
from firth.recipes.nets import SIZES, resize
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.gazetteer import Gazetteer
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.structure import make_columns
from tests.contracts.test_nets import NETS
from tests.fit.small_nets import sentences, text

EVERY = pytest.mark.parametrize("name", NETS)
ENTITIES = Gazetteer(("w1", "w2 w7"), "", np.array([1, 2], dtype=np.int32))
DRAWS_ROWS = ("gpt-bert", "firth")
WORDS = Vocabulary([f"w{number}" for number in range(500)], np.arange(500, 0, -1))


def small(name: str, length: int = 32, batch: int = 2048) -> NetRecipe:
    """A tiny network; batches of XLM are for one of its objectives."""
    recipe = NETS[name] if NETS[name].output.kind == "direct" else resize(NETS[name], "tiny")
    return replace(
        recipe,
        sequence=replace(recipe.sequence, length=length),
        entities=replace(recipe.entities, count=2, trained=True) if recipe.entities.width else recipe.entities,
        memory=replace(recipe.memory, length=min(recipe.memory.length, 24)),
        objectives=tuple(one for one in recipe.objectives if not one.needs_translations),
        learning=replace(recipe.learning, batch=batch, short_phase=0.0),  # distances are projected once a batch
    )


def open_small(name: str, length: int = 32, batch: int = 2048) -> tuple[TrainingModule, Batches]:
    recipe, pairs = small(name, length, batch), zip(sentences(300), sentences(300, 1), strict=True)
    has_pairs = recipe.sequence.format == "parallel" or any(one.groups_sentences for one in recipe.objectives)
    lines = [list(pair) for pair in pairs] if has_pairs else text(600)
    columns = make_columns(recipe.columns, ENTITIES if recipe.entities.width else None)
    tokenizer, store = open_tokens(TokenizerRecipe(model="words", min_count=1), read_corpus(lines), 1, columns)
    module = make_training_module(fill_in(recipe, len(tokenizer)), vocabulary_of(tokenizer, store), 0)
    module.network.output.prepare(store)
    module.progress = 1.0  # in the last stage
    recipe = module.network.recipe
    head = max(module.objectives, key=lambda one: module._expected_flops([one], length))
    if isinstance(head, SentenceHead):  # the batches are for one of the objectives
        return module, SentenceBatches(recipe, store, head, 0, np.arange(store.info.documents) % 3)
    return module, make_batches(recipe, store, module.objectives, 0)


def make_batch(module: TrainingModule, batches: Batches) -> Batch:
    """The first batch, or with a memory one before which it is full."""
    (batch,), after = batches.step(Cursor())
    for _ in range(2 if module.memory.length else 0):
        module.losses(batch, None)
        (batch,), after = batches.step(after)
    table = module.network.embedding.tokens
    if isinstance(table, CharacterTable):  # its estimate is that of Zipf's law
        table.distinct = len(batch.ids.unique()) / batch.ids.numel()
    for head in module.objectives:
        if isinstance(head, SentenceHead):  # its estimate is that of a short sentence
            head.sentence_length = batch.ids.numel() / len(first_positions(batch))
    return batch


class Counter(FlopCounterMode):
    """torch's, which leaves products that are added in place and attention on a CPU out."""

    def __init__(self) -> None:
        def add(_: Any, left: torch.Size, right: torch.Size, *__: Any, **___: Any) -> int:
            return 2 * left[0] * left[1] * right[1]

        def attend(queries: torch.Size, keys: torch.Size, *_: Any, **__: Any) -> int:
            return 4 * math.prod(queries) * keys[2]

        attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        super().__init__(display=False, custom_mapping={torch.ops.aten.addmm_: add, attention: attend})


@EVERY
def test_flops_are_those_that_torch_counts(name: str) -> None:
    """Of the forward pass, and of both passes; sampled and tree outputs by their expected number of products."""
    module, batches = open_small(name)
    batch = make_batch(module, batches)
    expected = module.flops(batch)
    recall = module.memory.arrays()
    with torch.no_grad(), Counter() as forward:
        module.losses(batch, None)
    assert forward.get_total_flops() == pytest.approx(expected / BACKWARD, rel=0.02)
    if module.memory.length:
        module.memory.restore(recall)
    with Counter() as both:
        losses = module.losses(batch, DropoutRng(0, 0, 0))
        torch.stack([loss.total / max(loss.count, 1) for loss in losses.values()]).sum().backward()  # type: ignore[no-untyped-call]
    assert both.get_total_flops() == pytest.approx(expected, rel=0.02)


@EVERY
def test_the_cost_of_a_recipe_is_that_of_its_network(name: str) -> None:
    recipe = fill_in(small(name), len(WORDS))
    cost, module = training_cost(recipe, WORDS), make_training_module(recipe, WORDS, 0)
    assert cost.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert cost.flops == module.expected_flops()


@EVERY
def test_the_cost_of_a_recipe_is_about_that_of_its_batches(name: str) -> None:
    """As if all positions of a batch were of text; no window of SENNA has the end of a sentence in the middle.

    Some objectives draw how each row is read: batches have rows enough for their mean.
    """
    module, batches = open_small(name, length=128, batch=32_768 if name in DRAWS_ROWS else 2048)
    batch = make_batch(module, batches)
    positions = batch.ids.numel() + (0 if batch.source is None else batch.source.ids.numel())
    sides = next((one.objective.sides for one in module.objectives if one.objective.sides), None)
    tokens = positions / (sum(sides) if sides else max(one.objective.copies for one in module.objectives))
    assert module.expected_flops() * tokens == pytest.approx(module.flops(batch), rel=0.3 if name == "senna" else 0.1)
    filled: float = batch.ids.numel() if batch.sequence_ids is None else int((batch.sequence_ids >= 0).sum())
    filled /= 1.0 if sides is None else sides[1]
    for head in module.objectives:
        for loss, expected in head.expected_counts(128).items():
            assert head.counts(batch)[loss] / filled == pytest.approx(expected, rel=0.1, abs=0.06)


def test_asking_for_a_cost_takes_no_time_and_no_random_numbers() -> None:
    vocabulary = Vocabulary([f"w{number}" for number in range(30_000)], np.arange(30_000, 0, -1))
    state = torch.random.get_rng_state()
    for name in ("bert", "hlbl"):
        training_cost(resize(NETS[name], "base"), vocabulary)
    assert torch.equal(torch.random.get_rng_state(), state)
    costs, began = TrainingCosts(vocabulary), time.process_time()
    for size in SIZES:
        assert costs.of(resize(NETS["bert"], size)) is costs.of(resize(NETS["bert"], size))
    assert time.process_time() - began < 1


def test_a_short_phase_has_shorter_attention() -> None:
    bert = resize(NETS["bert"], "tiny")
    costs = TrainingCosts(WORDS)
    whole, half, most = (
        costs.of(replace(bert, learning=replace(bert.learning, short_phase=share))).flops for share in (0.0, 0.5, 0.9)
    )
    assert whole > half > most
    assert (whole - most) / (whole - half) == pytest.approx(1.8)
