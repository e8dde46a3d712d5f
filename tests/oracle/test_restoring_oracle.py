"""Networks that restore text, on texts whose order and probabilities are known."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.abilities import total
from firth.fit.train import train
from firth.text.oracle import oracle_source
from tests.oracle.test_net_oracle import sentences

PART = ("width=64", "ffn_width=128", "heads=2", "layers=1", "dropout=0", "attention_dropout=0")
SMALL = [
    *("tokenizer=words", "embedding.width=64", "embedding.dropout=0", "sequence.length=48", "learning.lr=0.003"),
    *(f"{side}.{field}" for side in ("encoder", "decoder") for field in PART),
]
CHANCE = 1 / 6  # of the right order of three sentences


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def three_sentences(first: int, documents: int, ordered: bool) -> list[list[str]]:
    """Documents of three short sentences with different first words, in alphabetical order or as they come.

    The sentences of an oracle's document are independent: it is the alphabet that gives them an order.
    """
    source, found = oracle_source("markov1"), []
    for index in range(first, first + documents):
        texts = [one.text for one in source.sample_document(0, index, 12)]
        short = [text for text in texts if len(text.split()) <= 6][:3]
        if len({text.split()[0].strip(".") for text in short}) == 3:
            found.append(sorted(short) if ordered else short)
    return found


def right_orders(model: Any, documents: list[list[str]]) -> float:
    """How often the right order is the likeliest of all, given the sentences in a random one."""
    rng, found = np.random.default_rng(0), []
    for texts in documents:
        orders = [" ".join(order) for order in itertools.permutations(texts)]
        source = orders[int(rng.integers(len(orders)))]
        scores = [score.logprob for score in model.score_pairs([(source, order) for order in orders])]
        found.append(int(np.argmax(scores)) == 0)
    return float(np.mean(found))


@pytest.mark.parametrize("ordered", [True, False])
def test_bart_restores_the_order_of_sentences(ordered: bool, tmp_path: Path) -> None:
    """Far better than chance if there is an order to be learnt, and not without."""
    documents = three_sentences(0, 3000, ordered)
    settings = [*SMALL, "denoising.infill=0", "learning.batch=512", "learning.lr=0.005"]
    model = train("bart", documents, out=tmp_path / "bart", settings=settings, budget="40ktok", threads=1)
    held_out = three_sentences(20_000, 300, ordered=True)[:60]
    assert len(held_out) == 60
    right = right_orders(model, held_out)
    assert right > 3 * CHANCE if ordered else right < 2 * CHANCE


def word_pairs(first: int, documents: int) -> list[str]:
    """Sentences of two words, the second of which follows the first in the chain."""
    texts = [text.removesuffix(".").split() for text in sentences(oracle_source("markov1"), first, documents)]
    return [f"{words[place]} {words[place + 1]}" for words in texts for place in range(0, len(words) - 1, 2)]


def test_t5_fills_spans_better_than_word_frequencies_do(tmp_path: Path) -> None:
    """By probability, between word frequencies and the true conditional probabilities; and by the best span."""
    texts, held_out = word_pairs(0, 300), word_pairs(5000, 12)
    settings = [*SMALL, "sequence.format=sentences", "spans.span_length=1", "spans.roll=true", "learning.batch=256"]
    settings += ["tokenizer.sentinels=20"]
    model: Any = train("t5", [texts], out=tmp_path / "t5", settings=settings, budget="60ktok", threads=1)
    joint = Counter(tuple(text.split()) for text in texts)
    alone = Counter(word for text in texts for word in text.split())
    first, second = (Counter(text.split()[place] for text in texts) for place in (0, 1))
    pairs = [tuple(text.split()) for text in held_out if joint[tuple(text.split())]]
    score = total(model.score([" ".join(pair) for pair in pairs]))
    assert score.tokens == 2 * len(pairs) > 400
    by_frequency = sum(np.log(alone[word] / alone.total()) for pair in pairs for word in pair)
    best = sum(np.log(joint[one, two] ** 2 / (first[one] * second[two])) for one, two in pairs)
    assert by_frequency + 0.2 * score.tokens < score.logprob < best + 0.05 * score.tokens

    fillings = model.fill_many([f"{one} [MASK]" for one, _ in pairs[:60]], top=1)
    right = [found[0][0].token.strip() == two for found, (_, two) in zip(fillings, pairs, strict=False)]
    commonest = second.most_common(1)[0][0]
    assert np.mean(right) > np.mean([two == commonest for _, two in pairs[:60]]) + 0.1
