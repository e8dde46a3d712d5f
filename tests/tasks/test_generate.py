"""Writing: what beam search finds among all texts there are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.nets.network import Vocabulary
from firth.tasks.generate import Follow, Generate, Hypothesis
from firth.tasks.recipe import TaskRecipe
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import EOS

WORDS = (FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2)
LONGEST = 4


class Table(Generate):
    """What comes next depends on the source and the word before, and on nothing else."""

    def follow(self, network: Any, sources: Any, frame: Any) -> Follow:
        def ask(begun: Sequence[tuple[int, tuple[int, ...]]]) -> Tensor:
            return torch.stack([chances(number, tokens) for number, tokens in begun])

        return ask


def chances(source: int, tokens: tuple[int, ...]) -> Tensor:
    rng = np.random.default_rng([source, tokens[-1] if tokens else 0])
    return torch.from_numpy(rng.normal(size=FIRST_WORD + len(WORDS))).log_softmax(0)


def score(source: int, tokens: Sequence[int]) -> float:
    """The sum of the logarithms, each given what stands before it."""
    return sum(float(chances(source, tuple(tokens[:place]))[token]) for place, token in enumerate(tokens))


def every(source: int) -> list[Hypothesis]:
    """All texts that end."""
    texts = [(*some, EOS) for length in range(LONGEST) for some in itertools.product(WORDS, repeat=length)]
    return [Hypothesis(text, score(source, text)) for text in texts]


def written(beams: int, sources: int) -> list[Hypothesis]:
    vocabulary = Vocabulary([str(number) for number in range(8)], np.ones(8, dtype=np.int64))
    task = Table(TaskRecipe(task="generate", beams=beams, longest=LONGEST), vocabulary)
    return task.write(None, [np.zeros(1, dtype=np.int64)] * sources, None)  # type: ignore[arg-type]


def test_a_beam_that_holds_all_texts_finds_the_best() -> None:
    for source, found in enumerate(written(beams=200, sources=20)):
        best = max(every(source), key=lambda one: one.rank)
        assert found.tokens == best.tokens
        assert found.score == pytest.approx(best.score, abs=1e-9)


def test_one_beam_takes_the_likeliest_token_each_time() -> None:
    for source, found in enumerate(written(beams=1, sources=20)):
        tokens: tuple[int, ...] = ()
        while len(tokens) < LONGEST and EOS not in tokens:
            told = chances(source, tokens)
            tokens = (*tokens, max((EOS, *WORDS), key=lambda token: float(told[token])))
        assert found.tokens == tokens


def test_a_wider_beam_is_better_on_the_whole() -> None:
    narrow, wide = (sum(one.rank for one in written(beams, 40)) for beams in (1, 4))
    assert wide > narrow
