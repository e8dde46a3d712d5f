"""MASS: one fragment of half a sentence, where it is, what the decoder reads and attends to."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from firth.errors import RecipeError
from firth.recipes.values import override
from firth.tokens.tokenizer import BOS, EOS, MASK
from tests.objectives.restoring_batches import built, corrupt, numbers, packed, small


def test_the_decoder_reads_the_tokens_before_those_that_it_predicts() -> None:
    """At their own positions; a fragment is 6 of the 12 tokens of a sequence and never has the first."""
    (text,) = numbers(10)
    row = [EOS, *text, EOS]  # the decoder begins with EOS, not with [CLS]
    head, _ = built(small("mass", mask=1.0, random=0.0))
    begins = set()
    for seed in range(200):
        batch = packed([[text]], seeds=seed)
        ((source, inputs, positions, targets),) = corrupt(head, batch)
        first = positions[0] + 1
        begins.add(first)
        assert positions == list(range(first - 1, first + 5))
        assert inputs == row[first - 1 : first + 5]
        assert targets == row[first : first + 6]
        assert source == [BOS, *row[1:first], *[MASK] * 6, *row[first + 6 :]]
        assert batch.source is not None
        assert batch.source.is_hidden is not None
        assert batch.source.is_hidden[0].tolist() == [one == MASK for one in source]
    assert begins == set(range(1, 7))


def test_fragments_are_at_the_start_the_end_or_anywhere() -> None:
    """20 % and 20 %; of the other 60 % each of the 6 begins has one sixth: 30 % in all at each end."""
    (text,) = numbers(10)
    head, _ = built(small("mass"))
    begins: Counter[int] = Counter()
    for seed in range(3000):
        ((_, _, positions, _),) = corrupt(head, packed([[text]], seeds=seed))
        begins[positions[0] + 1] += 1
    shares = [begins[first] / 3000 for first in range(1, 7)]
    assert shares == pytest.approx([0.3, 0.1, 0.1, 0.1, 0.1, 0.3], abs=0.025)


def test_most_tokens_of_a_fragment_are_masked() -> None:
    head, _ = built(small("mass"))
    kinds: Counter[str] = Counter()
    for seed in range(200):
        batch = packed([numbers(40)], seeds=seed)
        ((source, _, positions, targets),) = corrupt(head, batch)
        for position, token in zip(positions, targets, strict=True):
            one = source[position + 1]
            kinds["mask" if one == MASK else "kept" if one == token else "random"] += 1
        assert batch.source is not None
        assert torch.equal(batch.source.is_hidden, batch.source.ids == MASK), "kept and random tokens can be seen"
    shares = {kind: count / kinds.total() for kind, count in kinds.items()}
    assert shares == pytest.approx({"mask": 0.8, "random": 0.1, "kept": 0.1}, abs=0.02)


def test_masks_of_the_source_do_not_reach_the_decoder() -> None:
    """By gradients: the decoder's states depend on the encoder's state of no mask."""
    head, network = built(small("mass", mask=1.0, random=0.0))
    batch = packed([numbers(10), numbers(6, first=40)])
    corrupt(head, batch)
    given = network.encode_source(batch)
    given.states.requires_grad_()
    given.states.retain_grad()
    assert network.decoder is not None
    network._decode(network.decoder, batch, given, None, None).last_hidden_state[:, 0].sum().backward()
    assert given.states.grad is not None
    assert batch.source is not None
    reached = given.states.grad.abs().sum(-1) > 0
    assert torch.equal(reached, batch.source.ids != MASK)


def test_statistics_are_those_stated() -> None:
    recipe = small("mass")
    head, _ = built(recipe)
    batch = packed([numbers(10), numbers(8, first=50)])
    corrupt(head, batch)
    found = head.shares(batch)
    assert found["chosen"] == (11, 22)
    assert sum(found[f"fragments {one}"][0] for one in ("at the start", "at the end", "anywhere")) == 2
    assert found.keys() == recipe.objectives[0].published_noise().keys()


@pytest.mark.parametrize(
    ("setting", "said"),
    [("rate=1", "fragment.rate=1.0"), ("at_start=0.9", "at_start and fragment.at_end"), ("mask=1", "most 1")],
)
def test_impossible_fragments_are_refused(setting: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        override(small("mass"), [f"fragment.{setting}"])


def test_short_sentences() -> None:
    """`[CLS] w [SEP]`: two of three tokens are predicted; [CLS] is left to attend to."""
    head, _ = built(small("mass", mask=1.0, random=0.0))
    assert corrupt(head, packed([[[10]]])) == [([BOS, MASK, MASK], [EOS, 10], [0, 1], [10, EOS])]
    rng = np.random.default_rng(0)
    head.corrupt(packed([numbers(int(size)) for size in rng.integers(1, 9, 20)], padding=2), rng)
