"""Permutation language models against the exact conditionals of a language of two words, in every order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from firth.fit.train import train
from firth.nets.permutation import Order, PermutationNet
from firth.nets.scoring import make_batch
from firth.tokens.tokenizer import EOS

WORDS = 3
STAY = {"a": 0.9, "b": 0.8}
START = {"a": 0.6, "b": 0.4}
TEXTS = ["".join(words) for words in itertools.product("ab", repeat=WORDS)]
TRAINED = 0.12  # probabilities are that near after seconds of training; those of another order differ by up to 0.4


def probability(text: str) -> float:
    """Of a text of three words: a chain of order one."""
    steps = [STAY[one] if one == two else 1 - STAY[one] for one, two in itertools.pairwise(text)]
    return float(START[text[0]] * np.prod(steps))


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PermutationNet:
    """Trained on documents of one text each, all tokens predicted in a random order (K = 1)."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(len(TEXTS), size=12_000, p=[probability(text) for text in TEXTS])
    settings = [
        *("tokenizer=words", "tokenizer.min_count=1", "embedding.width=32", "encoder.width=32", "encoder.ffn_width=64"),
        *("encoder.layers=2", "encoder.heads=2", "sequence.length=64", "learning.batch=512", "learning.lr=0.006"),
        *("encoder.dropout=0", "encoder.attention_dropout=0", "embedding.dropout=0", "plm.context=1"),
        *("plm.max_length=1", "sequence.format=stream", "sequence.reversed=false", "memory.length=0"),
    ]
    out: Path = tmp_path_factory.mktemp("two") / "m"
    documents = [[" ".join(TEXTS[number])] for number in drawn.tolist()]
    found = train("xlnet", documents, out=out, settings=settings, budget="300ktok", threads=1)
    assert isinstance(found, PermutationNet)
    return found


def first_in(order: Order, seed: int) -> int:
    """The position of the first predicted token of a text, which may be its end."""
    if order != "random":
        return 0 if order == "left-to-right" else WORDS - 1
    return int(np.argmin(np.random.default_rng([seed, 0]).permutation(WORDS + 1)))


@pytest.mark.parametrize(
    ("order", "seed"), [("left-to-right", 0), ("right-to-left", 0), *(("random", seed) for seed in range(8))]
)
def test_scores_in_every_order_are_the_exact_conditionals(order: Order, seed: int, model: PermutationNet) -> None:
    """By the chain rule all are p(text); the first factor is left out.

    Attention to a single token has the weight 1 at every distance, so that the first query cannot know its position.
    """
    logs = np.array([model.score_in_order([" ".join(text)], order, seed=seed)[0].logprob for text in TEXTS])
    first, exact = first_in(order, seed), np.array([probability(text) for text in TEXTS])
    given = np.array([text[first : first + 1] for text in TEXTS])
    for word in set(given.tolist()):
        group = given == word
        found = np.exp(logs[group] - np.logaddexp.reduce(logs[group]))
        assert found == pytest.approx(exact[group] / exact[group].sum(), abs=TRAINED)


def test_predictions_from_both_sides_are_the_exact_conditionals(model: PermutationNet) -> None:
    """Each word after all others in the order."""
    for text, place in itertools.product(TEXTS, range(WORDS)):
        ids = torch.tensor([[EOS, *(model.words.index(word) for word in text), EOS]])
        batch = make_batch(ids)
        batch.is_query, batch.attention_order = True, torch.zeros_like(ids)
        batch.attention_order[0, place + 1] = 1
        with torch.no_grad():
            state = model.network(batch, torch.tensor([place + 1])).last_hidden_state
            found = model.network.output.log_probabilities(state)[0, ids[0, place + 1]].exp()
        both = sum(probability(text[:place] + word + text[place + 1 :]) for word in "ab")
        assert float(found) == pytest.approx(probability(text) / both, abs=TRAINED), (text, place)
