"""Span corruption: deterministic counts, sentinels, targets by hand, and the other styles that the paper compares."""

from __future__ import annotations

import numpy as np
import pytest

from firth.errors import RecipeError
from firth.objectives._span_kernels import span_counts
from firth.objectives.spans import SpanCorruption
from firth.recipes.values import override
from firth.tokens.tokenizer import EOS, MASK
from tests.objectives.restoring_batches import VOCABULARY, Ids, built, corrupt, corrupted, numbers, packed, small

FIRST = VOCABULARY - 1  # the first sentinel


def spliced(source: Ids, targets: Ids) -> Ids:
    """The text that source and targets make together, with each span where its sentinel is."""
    assert targets[-1] == EOS
    spans: dict[int, Ids] = {}
    for token in targets[:-1]:
        if token > FIRST - 100:
            spans[token] = []
        else:
            spans[next(reversed(spans))].append(token)
    return [one for token in source[1:-1] for one in spans.get(token, [token])]


@pytest.mark.parametrize(
    ("tokens", "noise", "spans"), [(568, 85, 28), (141, 21, 7), (70, 10, 3), (10, 2, 1), (2, 1, 1), (20, 3, 1)]
)
def test_counts_are_those_of_the_authors_program(tokens: int, noise: int, spans: int) -> None:
    """568 raw tokens make inputs of 512 and targets of 114 with their ends (`random_spans_helper`); ties to even."""
    assert span_counts(tokens, 0.15, 3.0) == (noise, spans)
    if tokens > 100:
        assert (tokens - noise + spans + 1, noise + spans + 1) == {568: (512, 114), 141: (128, 29)}[tokens]


def test_each_span_follows_its_sentinel_in_the_target() -> None:
    (text,) = numbers(141)
    head, _ = built(small("t5"))
    for seed in range(40):
        ((source, inputs, positions, targets),) = corrupt(head, packed([[text]], seeds=seed))
        assert spliced(source, targets) == text
        assert inputs == [EOS, *targets[:-1]]
        assert positions == list(range(29))
        assert len(source) - 1 == 128
        sentinels = [token for token in source if token > FIRST - 100]
        assert sentinels == list(range(FIRST, FIRST - 7, -1)), "descending from the last id"
        assert targets[0] == FIRST
        assert source[1] == text[0], "the first token is never masked"
        assert source[-2] == FIRST - 6, "the last one always is"


def test_a_rolled_text_may_begin_and_end_anywhere() -> None:
    (text,) = numbers(50)
    head, _ = built(small("t5", roll=True))
    ends = set()
    for seed in range(200):
        ((source, _, _, targets),) = corrupt(head, packed([[text]], seeds=seed))
        assert spliced(source, targets) == text
        ends.add((source[1] == text[0], source[-2] == text[-1]))
    assert ends == {(True, True), (True, False), (False, True), (False, False)}


def test_compositions_are_equally_likely() -> None:
    """Of 10 tokens, 4 in 2 spans: lengths 1+3, 2+2, 3+1, and clean ones 1+5 ... 5+1."""
    (text,) = numbers(10)
    head, _ = built(small("t5", length=50, rate=0.4, span_length=2.0))
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(3000):
        ((source, *_),) = corrupt(head, packed([[text]], seeds=seed))
        clean = source.index(FIRST) - 1
        between = source.index(FIRST - 1) - source.index(FIRST) - 1
        first = source[source.index(FIRST) + 1] - text[clean]
        counts[clean, between, first] = counts.get((clean, between, first), 0) + 1
    assert len(counts) == 15
    assert max(counts.values()) < 2 * min(counts.values())
    assert np.std(list(counts.values())) < 2 * np.sqrt(200)


def test_a_text_of_one_token_is_kept() -> None:
    assert corrupted(small("t5"), packed([[[10]]])) == [([2, 10, 3], [EOS], [0], [EOS])]


def test_other_styles() -> None:
    (text,) = numbers(60)
    batch = [[text]]
    for seed in range(20):
        ((source, _, _, targets),) = corrupted(small("t5", style="prefix"), packed(batch, seeds=seed))
        assert source[1:-1] + targets[:-1] == text
        assert len(source) > 2
        assert len(targets) > 1
        ((source, _, _, targets),) = corrupted(small("t5", style="drop"), packed(batch, seeds=seed))
        assert sorted(source[1:-1] + targets[:-1]) == text
        assert targets[:-1] == sorted(targets[:-1])
        ((source, _, _, targets),) = corrupted(small("t5", style="deshuffle"), packed(batch, seeds=seed))
        assert (sorted(source[1:-1]), targets) == (text, [*text, EOS])
        assert source[1:-1] != text
        ((source, _, _, targets),) = corrupted(small("t5", style="bert"), packed(batch, seeds=seed))
        assert targets == [*text, EOS]
        changed = [one for one, token in zip(source[1:-1], text, strict=True) if one != token]
        assert 0 < len(changed) < 25
    many = [corrupted(small("t5", style="bert"), packed(batch, seeds=seed))[0][0][1:-1] for seed in range(200)]
    changed = [one for row in many for one, token in zip(row, text, strict=True) if one != token]
    assert len(changed) / (200 * 60) == pytest.approx(0.15, abs=0.01)
    assert changed.count(MASK) / len(changed) == pytest.approx(0.9, abs=0.02)


def test_statistics_are_those_stated() -> None:
    head, _ = built(small("t5"))
    batch = packed([numbers(141), numbers(140, first=200)])
    corrupt(head, batch)
    shares = {name: part / whole for name, (part, whole) in head.shares(batch).items()}
    assert shares == pytest.approx({"chosen": 42 / 281, "first": 0.0, "last": 1.0, "mean span": 3.0})
    assert shares.keys() == SpanCorruption().published_noise().keys()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("tokenizer.sentinels=5", "need 30 sentinels, and tokenizer.sentinels=5: set tokenizer.sentinels=100"),
        ("spans.span_length=1", "need 90 sentinels"),
        ("spans.rate=0", "spans.rate=0.0 must be above 0"),
        ("spans.span_length=0.5", "spans.span_length=0.5 must be from 1"),
        ("sequence.format=segment-pair", "single sequences"),
    ],
)
def test_impossible_spans_are_refused(setting: str, said: str) -> None:
    recipe = override(small("t5"), ["tokenizer.sentinels=50"])
    with pytest.raises(RecipeError, match=said):
        override(recipe, [setting])


def test_other_styles_need_no_sentinels() -> None:
    override(small("t5"), ["spans.style=prefix", "tokenizer.sentinels=0"])


def test_short_runs_have_spans_anywhere() -> None:
    assert SpanCorruption().small_run_defaults()["roll"][0] is True
    assert SpanCorruption(roll=True).small_run_defaults() == {}
    assert SpanCorruption(style="prefix").small_run_defaults() == {}
