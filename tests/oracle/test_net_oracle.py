"""Networks against what a perfect model of the oracle's texts would score."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.abilities import total
from firth.fit.train import train
from firth.nets.contextual_vectors import word_states
from firth.text.oracle import MARKOV_WORDS, OracleSource, oracle_source

SMALL = ["tokenizer=words", "embedding.width=32", "encoder.width=32", "sequence.length=32", "learning.batch=1024"]
TRANSFORMER = [*SMALL, "encoder.ffn_width=64", "encoder.heads=2", "encoder.layers=2", "learning.lr=0.004"]
RECURRENT = [*SMALL, "learning.lr=0.01"]
STILL = ["embedding.dropout=0", "encoder.dropout=0", "encoder.attention_dropout=0"]


def sentences(source: OracleSource, first: int, documents: int, each: int = 10) -> list[str]:
    return [one.text for index in range(first, first + documents) for one in source.sample_document(0, index, each)]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def trained(recipe: str, texts: Sequence[str], out: Path, settings: Sequence[str], budget: str) -> Any:
    documents = [texts[begin : begin + 10] for begin in range(0, len(texts), 10)]
    return train(recipe, documents, out=out, settings=settings, budget=budget, threads=2)


@pytest.mark.parametrize(
    ("recipe", "settings", "gap"),
    [
        ("gpt", [*TRANSFORMER, *STILL], 0.04),
        ("lstm", [*RECURRENT, "embedding.dropout=0", "encoder.dropout=0"], 0.04),
        ("ffnn", RECURRENT, 0.04),
    ],
)
def test_causal_models_approach_the_known_entropy(recipe: str, settings: list[str], gap: float, tmp_path: Path) -> None:
    """A chain of order one: what is lost against the true probabilities is less than `gap` nats a token."""
    source = oracle_source("markov1")
    model = trained(recipe, sentences(source, 0, 600), tmp_path / "model", settings, "300ktok")
    held_out = sentences(source, 5000, 60)
    score = total(model.score(held_out))
    best = sum(source.log_probability(text) for text in held_out)
    assert score.tokens > 5000
    assert 0 < (best - score.logprob) / score.tokens < gap


def exact_pseudo_likelihood(source: OracleSource, text: str) -> float:
    """The sum over tokens of log p(token | all others), by trying every word in every place."""
    *words, mark = [*text.removesuffix(".").split(), "."]
    assert mark == "."
    found = 0.0
    for place, word in enumerate(words):
        logs = {}
        for other in MARKOV_WORDS:
            changed = [*words[:place], other, *words[place + 1 :]]
            logs[other] = source.log_probability(" ".join(changed) + ".")
        found += logs[word] - np.logaddexp.reduce(list(logs.values()))
    return float(found)  # the end mark can be nothing else


WINDOW = [
    *("encoder.kind=window", "encoder.context=2", "encoder.layers=1", "encoder.ffn_width=0", "encoder.heads=1"),
    *("encoder.norm=none", "encoder.activation=tanh", "embedding.positions=none", "embedding.norm=false"),
]
"""A window on both sides: the same objective without attention."""
WIDER = ["embedding.width=64", "encoder.width=64", "encoder.norm=pre", "learning.lr=0.003", "learning.batch=256"]
"""What a Transformer needs to find out within seconds where to look: steps, and room."""
ALL_HIDDEN = ["mlm.masking.rate=0.3", "mlm.masking.mask=1", "mlm.masking.random=0"]
"""No wrong words beside the hidden ones: then the best model is the conditional probability itself."""
SENTENCES = ["objectives=mlm", "sequence.format=sentences", "embedding.segments=0"]


@pytest.mark.parametrize(("settings", "budget"), [(WINDOW, "300ktok"), (WIDER, "600ktok")], ids=["window", "attention"])
def test_masked_models_approach_the_known_conditional_entropy(settings: list[str], budget: str, tmp_path: Path) -> None:
    source = oracle_source("markov1")
    settings = [*TRANSFORMER, *STILL, *SENTENCES, *ALL_HIDDEN, *settings]
    model = trained("bert", sentences(source, 0, 800), tmp_path / "model", settings, budget)
    held_out = sentences(source, 5000, 20)
    score = total(model.score(held_out))
    best = sum(exact_pseudo_likelihood(source, text) for text in held_out)
    assert model.score_kind == "pseudo"
    assert 0 < (best - score.logprob) / score.tokens < 0.06


def told_apart(model: Any, source: OracleSource, layer: str | int) -> tuple[float, float]:
    """How often the nearest mean vector of a word's senses is that of the planted one; and the commonest sense's share.

    The means are those of the first half of the occurrences, the shares are of the second.
    """
    marked = [one for index in range(5000, 5400) for one in source.sample_document(0, index, 10)]
    found: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for sentence, (spans, states) in zip(marked, word_states(model, [one.text for one in marked], layer), strict=True):
        for span, state in zip(spans, states, strict=True):
            senses = {sense for word, sense in zip(sentence.words, sentence.senses, strict=True) if word == span.word}
            if len(senses) == 1 and None not in senses:
                found[span.word].append((next(iter(senses)) or "", state))
    right = common = total_count = 0
    for pairs in found.values():
        half = len(pairs) // 2
        names = sorted({sense for sense, _ in pairs[:half]})
        means = np.array([np.mean([state for sense, state in pairs[:half] if sense == name], axis=0) for name in names])
        chosen = [names[int(np.argmin(((means - state) ** 2).sum(1)))] for _, state in pairs[half:]]
        planted = [sense for sense, _ in pairs[half:]]
        right += sum(one == other for one, other in zip(chosen, planted, strict=True))
        common += max(Counter(planted).values(), default=0)
        total_count += len(planted)
    assert total_count > 150
    return right / total_count, common / total_count


@pytest.mark.parametrize(
    ("recipe", "settings", "budget", "layer"),
    [
        ("elmo", [*RECURRENT, "encoder.ffn_width=0", *STILL[:2], "embedding.characters=false"], "400ktok", 1),
        ("bert", [*TRANSFORMER, *STILL, *SENTENCES, *ALL_HIDDEN, *WIDER], "900ktok", "last"),
    ],
)
def test_vectors_in_context_tell_planted_senses_apart(
    recipe: str, settings: list[str], budget: str, layer: str | int, tmp_path: Path
) -> None:
    """The lower layer of a biLM, the last one of a masked model; what enters the network knows no context."""
    source = oracle_source("english")
    settings = [*settings, "learning.batch=256"]
    model = trained(recipe, sentences(source, 0, 800), tmp_path / "model", settings, budget)
    in_context, commonest = told_apart(model, source, layer)
    static, _ = told_apart(model, source, 0)
    assert static < commonest < 0.75
    assert in_context > commonest + 0.12
