"""BART's noise: each of the five kinds alone, hand-worked properties, the Poisson law, determinism."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from firth.errors import RecipeError
from firth.nets.recipe import NetRecipe
from firth.objectives.denoising import Denoising
from firth.recipes.values import override
from firth.tokens.tokenizer import EOS, MASK
from tests.objectives.restoring_batches import Ids, built, corrupted, numbers, packed, small

OFF = {"permute": 0.0, "mask": 0.0, "delete": 0.0, "infill": 0.0, "rotate": 0.0}


def only(**settings: float) -> NetRecipe:
    return small("bart", **(OFF | settings))


def text_of(source: Ids) -> Ids:
    assert source[-1] == EOS
    return source[1:-1]


def test_the_decoder_predicts_the_whole_text() -> None:
    texts = [numbers(3, 4), numbers(5, first=40)]
    for text, (_, inputs, positions, targets) in zip(
        texts, corrupted(small("bart"), packed(texts, padding=3)), strict=True
    ):
        tokens = [token for sentence in text for token in sentence]
        assert inputs == [EOS, *tokens]
        assert targets == [*tokens, EOS]
        assert positions == list(range(len(inputs)))


def test_sentences_are_permuted_as_wholes() -> None:
    text = numbers(3, 1, 4, 2, 5)
    orders = set()
    for seed in range(40):
        ((source, *_),) = corrupted(only(permute=1.0), packed([text], seeds=seed))
        left, order = text_of(source), []
        while left:
            sentence = next(number for number, one in enumerate(text) if one[0] == left[0])
            assert left[: len(text[sentence])] == text[sentence]
            order.append(sentence)
            left = left[len(text[sentence]) :]
        assert sorted(order) == list(range(5))
        orders.add(tuple(order))
    assert len(orders) > 30, "every order is likely"


def test_a_share_of_the_sentences_is_permuted() -> None:
    """Half of four, rounded up: at most two differ."""
    text = numbers(2, 2, 2, 2)
    flat = [token for sentence in text for token in sentence]
    moved = set()
    for seed in range(60):
        ((source, *_),) = corrupted(only(permute=0.5), packed([text], seeds=seed))
        moved.add(sum(one != other for one, other in zip(text_of(source), flat, strict=True)))
    assert moved == {0, 4}


def test_tokens_are_masked_or_deleted_exactly_as_often_as_stated() -> None:
    (text,) = numbers(200)
    ((source, *_),) = corrupted(only(mask=0.15), packed([[text]]))
    masked = text_of(source)
    assert [token for token in masked if token == MASK] == [MASK] * 30
    assert all(one in (MASK, token) for one, token in zip(masked, text, strict=True))
    ((source, *_),) = corrupted(only(delete=0.15), packed([[text]]))
    assert len(text_of(source)) == 170
    assert text_of(source) == sorted(set(text_of(source))), "the others keep their order"


def test_texts_are_rotated() -> None:
    (text,) = numbers(9)
    firsts = set()
    for seed in range(60):
        ((source, *_),) = corrupted(only(rotate=1.0), packed([[text]], seeds=seed))
        rotated = text_of(source)
        begin = text.index(rotated[0])
        assert rotated == text[begin:] + text[:begin]
        firsts.add(begin)
    assert firsts == set(range(9))
    whole = [text_of(corrupted(only(rotate=0.3), packed([[text]], seeds=seed))[0][0]) == text for seed in range(300)]
    assert 1 - np.mean(whole) == pytest.approx(0.3 * 8 / 9, abs=0.07)


@pytest.mark.parametrize("word", [1, 3])
def test_spans_of_whole_words_become_one_mask_each(word: int) -> None:
    """What is left is a part of the text, words are whole, and no more words are missing than the budget."""
    (text,) = numbers(90)
    words = [tuple(text[begin : begin + word]) for begin in range(0, 90, word)]
    budget = int(np.ceil(0.3 * len(words)))
    for seed in range(50):
        ((source, *_),) = corrupted(only(infill=0.3), packed([[text]], word=word, seeds=seed))
        left = [token for token in text_of(source) if token != MASK]
        kept = set(left)
        assert left == sorted(left)
        assert all(kept.issuperset(one) or kept.isdisjoint(one) for one in words)
        missing = sum(kept.isdisjoint(one) for one in words)
        assert budget * 0.5 < missing <= budget
        assert 0 < text_of(source).count(MASK) <= budget + 5


def test_adjacent_masks_are_insertions_or_neighbours() -> None:
    """A mask without a missing word is an insertion: a span of no word, 5 % of all."""
    (text,) = numbers(300)
    inserted, spans = 0, 0
    for seed in range(120):
        head, _ = built(only(infill=0.3))
        batch = packed([[text]], seeds=seed)
        head.corrupt(batch, np.random.default_rng(0))
        assert batch.source is not None
        ids = [2, *text, 3]
        left = batch.source.ids[0].tolist()
        position = 0
        for index, token in enumerate(left):
            if token == MASK:
                spans += 1
                following = next(one for one in left[index + 1 :] if one != MASK)
                inserted += ids.index(following) == position and left[index + 1] != MASK and left[index - 1] != MASK
            else:
                position = ids.index(token) + 1
    assert inserted / spans == pytest.approx(np.exp(-3), abs=0.02)


def test_the_lengths_of_spans_are_those_of_poisson() -> None:
    recipe = only(infill=0.3)
    head, _ = built(recipe)
    sums: dict[str, list[float]] = {}
    for seed in range(300):
        batch = packed([numbers(150)], seeds=seed)
        head.corrupt(batch, np.random.default_rng(0))
        for name, given in head.shares(batch).items():
            part, whole = sums.setdefault(name, [0.0, 0.0])
            sums[name] = [part + given[0], whole + given[1]]
    shares = {name: part / whole for name, (part, whole) in sums.items()}
    assert shares["words in spans"] == pytest.approx(0.3, abs=1e-9), "45 of 150 words, always"
    assert shares["mean span"] == pytest.approx(3.0, abs=0.08)
    for name, stated in Denoising().published_noise().items():
        if name.startswith("spans of"):
            assert shares[name] == pytest.approx(stated, abs=0.015), name


def test_a_noised_text_is_not_longer_than_the_network_has_positions() -> None:
    """Texts of one word may get insertions, which stop at the limit."""
    recipe = small("bart", length=16, **(OFF | {"infill": 1.0, "span_length": 0.2}))
    longest = max(len(corrupted(recipe, packed([numbers(14)], seeds=seed))[0][0]) for seed in range(40))
    assert longest == 16


def test_noise_is_a_function_of_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    text = [numbers(30, 20, 10)]
    first, again, other = (corrupted(small("bart"), packed(text, seeds=seed)) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    two = packed(text, seeds=3)
    two.ids, two.word_starts = two.ids.repeat(2, 1), two.word_starts.repeat(2, 1)
    assert two.sentence_starts is not None
    assert two.sequence_ids is not None
    two.sentence_starts, two.sequence_ids = two.sentence_starts.repeat(2, 1), two.sequence_ids.repeat(2, 1)
    two.row_seeds = torch.tensor([4, 3])
    assert corrupted(small("bart"), two) == [*other, *first]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["permute=0", "infill=0"], "without any noise copies its text: set denoising.infill=0.3"),
        (["infill=1.5"], "denoising.infill=1.5 must be from 0 to 1"),
        (["mask=1"], "denoising.mask=1.0 must be 0 or more and below 1"),
        (["span_length=0"], "denoising.span_length=0.0 must be above 0"),
    ],
)
def test_impossible_noise_is_refused(settings: list[str], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        override(small("bart"), [f"denoising.{one}" for one in settings])


def test_recipes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"single sequences, not of sequence\.format=stream"):
        override(small("bart"), ["sequence.format=stream"])
    with pytest.raises(RecipeError, match="denoising predicts by a decoder, and the recipe has none"):
        replace(small("bart"), decoder=None)


def test_loss_by_hand() -> None:
    """The sum of -log p of the next tokens, by the logits of the network at every position."""
    recipe: Any = small("bart", length=20)
    head, network = built(recipe)
    batch = packed([numbers(4), numbers(3, first=30)])
    head.corrupt(batch, np.random.default_rng(1))
    with torch.no_grad():
        loss = head.loss(network, network(batch, head.positions(batch)), batch, None)
        logs = network.output.logits(network(batch).last_hidden_state).log_softmax(-1)
    targets = [*range(10, 14), EOS, *range(30, 33), EOS]
    assert loss.count == head.count(batch) == 9
    assert float(loss.total) == pytest.approx(-sum(float(logs[n, one]) for n, one in enumerate(targets)), rel=1e-5)


@pytest.mark.parametrize(("words", "budget"), [(1, 1), (10, 3), (11, 4), (13, 4), (14, 5)])
def test_the_budget_is_rounded_up(words: int, budget: int) -> None:
    """The smallest whole number that is 30 % of the words or more."""
    head, _ = built(only(infill=0.3))
    batch = packed([numbers(words)])
    head.corrupt(batch, np.random.default_rng(0))
    assert head.shares(batch)["words in spans"] == (budget, words)
