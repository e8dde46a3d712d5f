"""Objectives of columns and of sequences of their own (ERNIE 1 and 2): losses by hand, gradients by differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as f

from firth.fit.batches import Batches, Cursor
from firth.fit.layouts import LaidOutBatches, ObjectiveMixture, staged_batches
from firth.nets.batch import Batch
from firth.nets.network import Network, Vocabulary, build_network
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.heads.layouts import LaidOutHead
from firth.objectives.heads.token_labels import TokenLabelHead
from firth.objectives.registry import OBJECTIVES
from firth.recipes.knowledge import ernie, ernie2
from tests.objectives.finite_differences import assert_finite_differences, loss_of, number
from tests.objectives.test_layouts import Text, dialogues, documents, opened
from tests.objectives.test_objectives import EVERY

CONTINUAL = {one.name for one in (*ernie().objectives, *ernie2().objectives)}
NAMES = [name for name in OBJECTIVES if name in CONTINUAL and name not in EVERY]
"""The others are objectives of sentences or of the entities of a graph, which have tests of their own."""


@pytest.fixture(scope="module")
def texts() -> dict[str, Text]:
    found = {"dlm": opened(ernie(), dialogues())}
    return found | dict.fromkeys(NAMES, opened(ernie2(), documents())) | found


def made(text: Text, name: str) -> tuple[Network, ObjectiveHead, Batch]:
    """A network in double precision, the head of an objective, and a batch with its labels."""
    recipe, store, tokenizer = text
    rates = {"dropout": 0.0, "attention_dropout": 0.0}
    recipe = replace(
        recipe,
        embedding=replace(recipe.embedding, width=8, dropout=0.0),
        encoder=replace(recipe.encoder, layers=1, width=8, ffn_width=12, heads=2, **rates),
        learning=replace(recipe.learning, batch=128),
    )
    vocabulary = Vocabulary(tokenizer.vocabulary, np.ones(len(tokenizer), dtype=np.int64))
    network = build_network(recipe, vocabulary, 1).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        heads = make_heads(recipe, network)
    head = heads[name].double()
    for parameter in [*network.parameters(), *head.parameters()]:
        parameter.data.mul_(8)  # so that states differ
    if not isinstance(head, LaidOutHead):
        (batch,), _ = Batches(recipe, store, list(heads.values()), 0).step(Cursor())
    else:
        mixture = staged_batches(recipe, store, list(heads.values()), 0).last
        assert isinstance(mixture, ObjectiveMixture)
        source = next(one for one in mixture.sources if isinstance(one, LaidOutBatches) and one.layout.name == name)
        batch = source.step(Cursor())[0][0]
    head.corrupt(batch, np.random.default_rng(3))
    return network, head, batch


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(name: str, texts: dict[str, Text]) -> None:
    network, head, batch = made(texts[name], name)
    assert head.count(batch) > 1
    assert_finite_differences(network, head, batch)


@pytest.mark.parametrize("name", NAMES)
def test_losses_by_hand(name: str, texts: dict[str, Text]) -> None:
    """The sum over the predictions of -log of the probability of the label, one by one."""
    network, head, batch = made(texts[name], name)
    states = network(batch).last_hidden_state[head.positions(batch)].detach()
    labels, total = batch.labels[f"{name}.labels"], 0.0
    for state, label in zip(states, labels.tolist(), strict=True):
        if isinstance(head, TokenLabelHead):
            logit = float(head.classifier(state).detach())
            total += float(np.log1p(np.exp(-logit if label else logit)))
        else:
            assert isinstance(head, LaidOutHead)
            logits = head.classifier(torch.tanh(head.pooler(state))).detach()
            total -= float(f.log_softmax(logits, -1)[int(label)])
    loss = loss_of(network, head, batch)
    assert loss.count == len(labels)
    assert number(loss) == pytest.approx(total, rel=1e-9)
