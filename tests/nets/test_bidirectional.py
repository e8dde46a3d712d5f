"""Bidirectional language models against single forward passes."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch

from firth.lm.language_model import TokenStream
from firth.nets.causal import BidirectionalNet
from firth.nets.recipe import OutputRecipe
from firth.nets.scoring import make_batch
from firth.tokens.tokenizer import EOS
from tests.nets.small_nets import small_net, small_net_recipe, small_tokenizer

KINDS = pytest.mark.parametrize("kind", ["lstm", "rnn", "window", "transformer"])


def bidirectional(kind: str = "lstm", format: str = "stream", length: int = 12) -> BidirectionalNet:
    base = small_net_recipe("elmo", len(small_tokenizer()))
    encoder = replace(
        base.encoder, kind=kind, ffn_width=24 if kind in ("lstm", "transformer") else 0, context=3, heads=2
    )
    changes = {
        "encoder": encoder,
        "embedding": replace(base.embedding, characters=False),
        "output": OutputRecipe(kind="full"),
        "sequence": replace(base.sequence, format=format, length=length),
    }
    model = small_net("elmo", **changes)  # type: ignore[arg-type]
    assert isinstance(model, BidirectionalNet)
    model.network.double()
    return model


def both(model: BidirectionalNet, ids: list[int]) -> tuple[list[float], list[float]]:
    """Forward log-probabilities of `ids` after `</s>`, and backward ones of the previous tokens."""
    row = [EOS, *ids]
    with torch.inference_mode():
        states = model.network(make_batch(torch.tensor([row]))).last_hidden_state
        half = states.shape[1] // 2
        logs = [model.network.output.log_probabilities(part) for part in (states[:, :half], states[:, half:])]
    forward = [float(logs[0][position, one]) for position, one in enumerate(ids)]
    backward = [float(logs[1][position + 1, one]) for position, one in enumerate(row[:-1])]
    return forward, backward


@KINDS
@pytest.mark.parametrize("format", ["stream", "sentences"])
def test_both_directions_equal_one_forward_pass(kind: str, format: str) -> None:
    model = bidirectional(kind, format, length=60)
    given = [[7, 8, 9], [5], [], [10, 11, 12, 13, 14, 6]]
    for starts_document in (True, False):
        stream = TokenStream.of(given, starts_document=starts_document)
        forward, backward = model.token_logprobs(stream), model.token_logprobs_backwards(stream)
        closed = [[*ids, EOS] for ids in given]
        texts = closed if starts_document or not model.carries_context else [list(chain(*closed))]
        expected = [both(model, ids) for ids in texts]
        np.testing.assert_allclose(forward, list(chain(*(one[0] for one in expected))), rtol=0, atol=1e-9)
        moved = [[*back[1:], back[0]] for _, back in expected]  # each at its token, that of the first </s> at the end
        np.testing.assert_allclose(backward, list(chain(*moved)), rtol=0, atol=1e-9)


@KINDS
def test_long_texts_backwards(kind: str) -> None:
    """A recurrent network reads from the very end; a window needs only its context."""
    model = bidirectional(kind, length=16)
    ids = np.random.default_rng(0).integers(5, 60, 1500).tolist()
    logs = model.token_logprobs_backwards(TokenStream.of([ids]))
    assert np.isfinite(logs).all()
    if kind != "transformer":
        _, expected = both(model, [*ids, EOS])
        np.testing.assert_allclose(logs, [*expected[1:], expected[0]], rtol=0, atol=1e-9)
    else:  # the last sixteen tokens fit into one row
        _, last = both(model, [*ids[-15:], EOS])
        np.testing.assert_allclose(logs[-16:-1], last[1:], rtol=0, atol=1e-9)


def test_scores_of_both_directions() -> None:
    model = bidirectional()
    texts = ["The quick brown fox", "over the lazy dog"]
    forward, backward = model.score_both(texts)
    assert forward == model.score(texts)
    assert [one.tokens for one in backward] == [one.tokens for one in forward] == [5, 5]
    ids = model.tokenizer.encode(texts[0]).ids
    assert backward[0].logprob == pytest.approx(sum(both(model, [*ids, EOS])[1]), abs=1e-9)
    together = model.score_both(texts, as_document=True)[1]
    assert together[1].logprob == pytest.approx(
        backward[1].logprob - _first(model, texts[1]) + _end(model, texts), abs=1e-9
    )


def _first(model: BidirectionalNet, text: str) -> float:
    """The backward log-probability of the `</s>` before a text."""
    return both(model, [*model.tokenizer.encode(text).ids, EOS])[1][0]


def _end(model: BidirectionalNet, texts: list[str]) -> float:
    """The backward log-probability of the `</s>` before all texts, which is listed at their end."""
    ids = [one for text in texts for one in [*model.tokenizer.encode(text).ids, EOS]]
    return both(model, ids)[1][0]


def test_generation_is_forward() -> None:
    model = bidirectional()
    found = model.generate("The quick", temperature=0, length=20)
    ids = model.history("The quick")
    for _ in range(20):
        token = int(np.argmax(model.next_logprobs(ids)))
        if token == EOS:
            break
        ids.append(token)
    assert found == [model.tokenizer.decode(ids)]


def test_logits_are_those_of_the_forward_half() -> None:
    model = bidirectional()
    row = [EOS, 7, 8, 9]
    logits = model.logits(torch.tensor([row]))
    assert logits.shape == (1, 4, len(model.words))
    logits[..., [0, 2, 4]] = -torch.inf
    forward, _ = both(model, [7, 8, 9])
    found = logits.log_softmax(-1)[0, torch.arange(3), torch.tensor([7, 8, 9])]
    assert found.tolist() == pytest.approx(forward, abs=1e-9)


def test_layers_are_the_embedding_and_two_states_each() -> None:
    model = bidirectional()
    model.network.float()
    (layers,) = model.layers(["The quick fox"])
    assert len(layers) == 2 * model.recipe.encoder.layers + 1 == 5
    assert {layer.shape for layer in layers} == {(3, 16)}
    row = torch.tensor([[EOS, *model.tokenizer.encode("The quick fox").ids, EOS]])
    with torch.inference_mode():
        states = model.network(make_batch(row)).layers
    np.testing.assert_allclose(layers[0], states[0][0, 1:4, :16], atol=1e-6)
    np.testing.assert_allclose(layers[3], states[2][0, 1:4, :16], atol=1e-6)
    np.testing.assert_allclose(layers[4], states[2][0, 1:4, 16:], atol=1e-6)
