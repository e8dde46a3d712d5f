"""TextGenerator: text generation from next-token probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from firth.arguments import ChecksArguments
from firth.decoding.sampling import Sampling, sampling_probabilities
from firth.errors import AbilityError
from firth.tokens.tokenizer import EOS, Tokenizer


class TextGenerator(ChecksArguments, ABC):
    """A model that generates text token by token."""

    tokenizer: Tokenizer

    @abstractmethod
    def history(self, text: str) -> list[int]:
        """The ids of an unfinished text."""

    @abstractmethod
    def next_logprobs(self, history: Sequence[int]) -> np.ndarray:
        """(vocabulary,): log-probabilities of the next token."""

    def generate(
        self,
        prompt: str = "",
        *,
        count: int = 1,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        beams: int = 1,
    ) -> list[str]:
        """`count` continuations of the prompt, of at most `length` tokens each.

        A temperature of 0 is greedy. Several `beams`, of networks, search for the most probable texts instead, by the
        mean log-probability of their tokens.
        """
        history, sampling = self.history(prompt), Sampling(temperature, top_k, top_p, seed)
        sampling.check()
        found = self.continuations(history, count, length, sampling, beams)
        return [self.tokenizer.decode([*history, *ids]) for ids in found]

    def generate_stepwise(
        self,
        prompt: str = "",
        *,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> Iterator[str]:
        """One continuation of the prompt, token by token: the text so far, at last the one that `generate` gives."""
        history, sampling = self.history(prompt), Sampling(temperature, top_k, top_p, seed)
        sampling.check()
        for ids in self.continuation_steps(history, length, sampling):
            yield self.tokenizer.decode([*history, *ids])

    def continuations(
        self, history: Sequence[int], count: int, length: int, sampling: Sampling, beams: int = 1
    ) -> list[list[int]]:
        """The ids of `count` continuations."""
        if beams > 1:
            raise AbilityError(
                f"a {type(self).__name__} has no beam search: leave --beams out, or use a network, such as gpt or lstm."
            )
        rng = np.random.default_rng(sampling.seed)
        return [list(self._sampled(history, length, sampling, rng)) for _ in range(count)]

    def continuation_steps(self, history: Sequence[int], length: int, sampling: Sampling) -> Iterator[list[int]]:
        """The ids of one continuation, before and after each token."""
        ids: list[int] = []
        yield ids
        for token in self._sampled(history, length, sampling, np.random.default_rng(sampling.seed)):
            ids.append(token)
            yield ids

    def _sampled(
        self, history: Sequence[int], length: int, sampling: Sampling, rng: np.random.Generator
    ) -> Iterator[int]:
        """The tokens of a continuation up to the end of the sentence."""
        ids = list(history)
        for _ in range(length):
            weights = sampling_probabilities(self.next_logprobs(ids), sampling)
            token = int(rng.choice(weights.size, p=weights))
            if token == EOS:
                return
            ids.append(token)
            yield token
