"""Greedy, sampled and beam-searched continuations against plain loops over next-token probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from firth.decoding.generate import BeamSearch, generate, sample_tokens
from firth.decoding.sampling import Sampling, sampling_probabilities
from firth.errors import RecipeError
from firth.nets.causal import CausalDecoderState, CausalNet
from firth.tokens.tokenizer import EOS
from tests.nets.small_nets import small_net

KINDS = pytest.mark.parametrize("name", ["gpt", "gpt2", "lstm", "rnn", "ffnn", "lbl", "xu-bigram"])


def causal(name: str, **options: object) -> CausalNet:
    model = small_net(name, **options)  # type: ignore[arg-type]
    assert isinstance(model, CausalNet)
    model.network.double()
    return model


def continuations(
    model: CausalNet, history: list[int], count: int, length: int, sampling: Sampling, beams: int
) -> list[list[int]]:
    return generate(lambda rows: CausalDecoderState(model, history, rows), count, length, sampling, beams)


def greedy(model: CausalNet, history: list[int], length: int) -> list[int]:
    ids: list[int] = []
    while len(ids) < length:
        ids.append(int(np.argmax(model.next_logprobs([*history, *ids]))))
        if ids[-1] == EOS:
            return ids[:-1]
    return ids


@KINDS
@pytest.mark.parametrize("history", [[], [9, 7], list(range(5, 33))])
def test_the_likeliest_token_each_time_past_the_last_position(name: str, history: list[int]) -> None:
    model = causal(name)
    found = continuations(model, history, 2, 40, Sampling(temperature=0), 1)
    assert found == [greedy(model, history, 40)] * 2


@KINDS
def test_drawn_texts_follow_the_next_tokens_probabilities(name: str) -> None:
    """Each token is where the row's own chance falls, whatever other rows do."""
    model = causal(name)
    sampling = Sampling(temperature=0.8, top_k=20, top_p=0.9, seed=3)
    for row, ids in enumerate(continuations(model, [6], 4, 30, sampling, 1)):
        rng = np.random.default_rng([3, row])
        for place in range(len(ids) + (len(ids) < 30)):
            weights = sampling_probabilities(model.next_logprobs([6, *ids[:place]]), sampling._replace(top_p=None))
            order = np.argsort(-weights, kind="stable")
            reached = np.cumsum(weights[order])
            kept = order[: int(np.searchsorted(reached, 0.9)) + 1]
            shares = np.cumsum(weights[kept]) / weights[kept].sum()
            drawn = int(kept[np.searchsorted(shares, rng.random(), side="right")])
            assert drawn == (ids[place] if place < len(ids) else EOS)


def test_the_number_of_texts_changes_none_of_them() -> None:
    model = causal("gpt")
    many, few = model.generate(count=5, seed=1), model.generate(count=2, seed=1)
    assert many[:2] == few
    assert model.generate(count=5, seed=2) != many
    assert all(text.startswith("The quick") for text in model.generate("The quick", count=3))


def test_frequencies_of_drawn_tokens_are_their_probabilities() -> None:
    logs = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log()
    chances = (torch.arange(2000) + 0.5) / 2000
    drawn = sample_tokens(logs.expand(2000, -1), chances, Sampling())
    assert torch.bincount(drawn).tolist() == [1000, 500, 300, 200]
    cut = sample_tokens(logs.expand(2000, -1), chances, Sampling(top_p=0.6))
    assert torch.bincount(cut).tolist() == [1333, 667]
    hot = sample_tokens(logs.expand(2000, -1), chances, Sampling(temperature=1e9))
    assert torch.bincount(hot).tolist() == [500] * 4
    assert sample_tokens(logs, torch.tensor([0.999]), Sampling(top_p=0)).tolist() == [0]
    assert sample_tokens(logs, torch.tensor([0.999]), Sampling(top_k=1)).tolist() == [0]


def every_text(model: CausalNet, history: list[int], length: int) -> list[tuple[float, list[int]]]:
    """All texts of at most so many tokens with the mean log-probability of theirs, best first."""
    found = []
    going = [(0.0, [])]
    for step in range(1, length + 1):
        longer = []
        for total, ids in going:
            logs = model.next_logprobs([*history, *ids])
            for token in np.flatnonzero(logs > -np.inf).tolist():
                score = total + float(logs[token])
                if token == EOS:
                    found.append((score / step, ids))
                else:
                    longer.append((score, [*ids, token]))
        going = longer
    found += [(score / length, ids) for score, ids in going]
    return sorted(found, key=lambda one: -one[0])


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_wide_beams_find_the_best_texts_of_all(name: str) -> None:
    model = causal(name)
    if name == "lstm":  # so that texts that end are among the best
        model.network.output.bias.data[EOS] += 4  # type: ignore[union-attr, operator]
    expected = every_text(model, [6], 2)
    with torch.inference_mode():
        found = BeamSearch(1, len(model.words), 2, length_penalty=1.0, early_stopping=False).run(
            CausalDecoderState(model, [6], 1)
        )[0]
    assert [one.text_tokens for one in found] == [ids for _, ids in expected[: len(model.words)]]
    assert name == "gpt" or {len(one.text_tokens) for one in found} == {0, 1, 2}


def test_beams_find_likelier_texts_than_greed() -> None:
    model = causal("gpt")

    def mean(ids: list[int]) -> float:
        closed = [*ids, EOS] if len(ids) < 12 else ids
        return float(np.mean([model.next_logprobs([7, *closed[:place]])[one] for place, one in enumerate(closed)]))

    plain, wide = (continuations(model, [7], 1, 12, Sampling(), beams)[0] for beams in (1, 8))
    best = continuations(model, [7], 8, 12, Sampling(), 8)
    means = [mean(ids) for ids in best]
    assert means == sorted(means, reverse=True)
    assert best[0] == wide
    assert means[0] > mean(plain)
    assert len({tuple(ids) for ids in best}) == 8


def test_beams_go_on_past_the_last_position() -> None:
    model = causal("gpt", length=8)
    (found,) = continuations(model, [7], 1, 20, Sampling(), 3)
    assert found
    assert model.generate("The quick", beams=3, length=20)[0].startswith("The quick")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"length": 0}, "length=0"),
        ({"count": 0}, "count=0"),
        ({"beams": 0}, "beams=0"),
        ({"beams": 2, "count": 3}, "set beams=3"),
        ({"beams": 2, "top_k": 3}, "does not sample"),
        ({"beams": 2, "temperature": 0.5}, "does not sample"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        causal("gpt").generate(**options)  # type: ignore[arg-type]


def test_the_lowest_temperatures_are_greedy() -> None:
    """Their logits would overflow."""
    logs = torch.tensor([[0.2, 0.5, 0.3]]).log()
    for temperature in (0.0, 1e-320, 1e-101, 1e-99):
        assert sample_tokens(logs, torch.tensor([0.99]), Sampling(temperature)).item() == 1
        weights = sampling_probabilities(logs[0].double().numpy(), Sampling(temperature))
        assert weights.tolist() == [0, 1, 0]
