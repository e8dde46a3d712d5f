"""Causal networks: scores against a plain loop of single forward passes."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch

from firth.abilities import TextPiece
from firth.lm.language_model import TokenStream
from firth.nets.causal import CausalNet
from firth.nets.scoring import BATCH_TOKENS, causal_windows, centred_windows, length_groups, make_batch, max_length
from firth.nets.visibility import SegmentMemory
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK
from tests.nets.small_nets import CAUSAL, TEXTS, small_net, small_tokenizer

EVERY = pytest.mark.parametrize("name", CAUSAL)


def causal(name: str, **options: object) -> CausalNet:
    model = small_net(name, **options)  # type: ignore[arg-type]
    assert isinstance(model, CausalNet)
    model.network.double()
    return model


def slow_logs(model: CausalNet, ids: list[int]) -> list[float]:
    """The log-probability of each id in a forward pass of its own, with the last window of context."""
    if model.recipe.memory.length:
        return slow_segment_logs(model, ids)
    logs = []
    for position, target in enumerate(ids):
        row = [EOS, *ids[:position]]
        most = max_length(model.recipe)
        if most is not None and len(row) > most:  # windows begin at every half
            row = row[(position - most // 2) // (most - most // 2) * (most - most // 2) :]
        with torch.inference_mode():
            last = model.network(make_batch(torch.tensor([row]))).last_hidden_state[-1:]
            logs.append(float(model.network.output.log_probabilities(last)[0, target]))
    return logs


def slow_segment_logs(model: CausalNet, ids: list[int]) -> list[float]:
    """The log-probability of each id, in segments whose layers attend to those of the last tokens before them."""
    recipe, rows = model.recipe, torch.tensor([[EOS, *ids[:-1]]])
    memory = [torch.zeros(1, 0, recipe.width, dtype=torch.float64)] * recipe.encoder.layers
    logs: list[float] = []
    for segment in torch.split(rows, recipe.sequence.length, 1):
        visible = torch.ones(1, segment.shape[1], memory[0].shape[1], dtype=torch.bool)
        with torch.inference_mode():
            states = model.network(make_batch(segment), memory=SegmentMemory(memory, visible))
            found = model.network.output.log_probabilities(states.last_hidden_state)
        logs += [float(one[target]) for one, target in zip(found, ids[len(logs) :], strict=False)]
        joined = [torch.cat(each, 1) for each in zip(memory, states.layers, strict=False)]
        memory = [one[:, -recipe.memory.length :] for one in joined]
    return logs


def sentences(count: int, most: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    size = len(small_tokenizer())
    return [rng.integers(5, size, rng.integers(0, most)).tolist() for _ in range(count)]


@EVERY
@pytest.mark.parametrize("together", [False, True])
def test_token_logprobs_equal_one_forward_pass_each(name: str, together: bool) -> None:
    model = causal(name)
    given = sentences(7, 30)
    stream = TokenStream.of(given, starts_document=not together)
    closed = [[*ids, EOS] for ids in given]
    texts = [list(chain(*closed))] if together and model.carries_context else closed
    expected = [log for ids in texts for log in slow_logs(model, ids)]
    np.testing.assert_allclose(model.token_logprobs(stream), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["lstm", "rnn", "ffnn", "gpt"])
def test_documents_of_very_different_lengths_in_one_batch(name: str) -> None:
    """Longer than one step, so that some rows end before others."""
    model = causal(name, length=16)
    lengths = [700, 3, 256, 257, 255, 600, 1]
    rng = np.random.default_rng(2)
    given = [rng.integers(5, 60, length - 1).tolist() for length in lengths]
    logs = model.token_logprobs(TokenStream.of(given, starts_document=True))
    bounds = np.cumsum([0, *lengths])
    for number, ids in enumerate(given):
        alone = model.token_logprobs(TokenStream.of([ids]))
        np.testing.assert_allclose(logs[bounds[number] : bounds[number + 1]], alone, rtol=0, atol=1e-9)
    if max_length(model.recipe) is None:
        with torch.inference_mode():
            states = model.network(make_batch(torch.tensor([[EOS, *given[0]]]))).last_hidden_state
            whole = model.network.output.log_probabilities(states).gather(1, torch.tensor([*given[0], EOS])[:, None])
        np.testing.assert_allclose(logs[:700], whole[:, 0].numpy(), rtol=0, atol=1e-9)


@EVERY
def test_the_next_token_is_one_of_the_vocabulary(name: str) -> None:
    model = causal(name)
    for history in ([], [7, 8], [5, EOS, 9, 6], list(range(5, 40))):
        logs = model.next_logprobs(history)
        assert np.exp(logs).sum() == pytest.approx(1, abs=1e-9)
        assert (logs[[PAD, BOS, MASK]] == -np.inf).all()
        assert logs[UNK] > -np.inf


@EVERY
def test_the_next_token_agrees_with_scores(name: str) -> None:
    model = causal(name)
    given = [*sentences(2, 12, seed=4), *sentences(1, 40, seed=5)]
    stream = TokenStream.of(given)
    logs, history = model.token_logprobs(stream), []
    for position, target in enumerate(stream.ids.tolist()):
        assert model.next_logprobs(history)[target] == pytest.approx(logs[position], abs=1e-9)
        history.append(target)


@EVERY
def test_logprobs_do_not_depend_on_following_tokens(name: str) -> None:
    model = causal(name)
    ids = np.random.default_rng(1).integers(5, 60, 25)
    before = model.token_logprobs(TokenStream.of([ids.tolist()]))
    for position in (0, 6, 13, 24):
        changed = ids.copy()
        changed[position] = 5 + (changed[position] - 5 + 3) % 50
        after = model.token_logprobs(TokenStream.of([changed.tolist()]))
        np.testing.assert_allclose(after[:position], before[:position], rtol=0, atol=1e-9)
        assert abs(after[position] - before[position]) > 1e-5


def test_scores_count_tokens_words_bytes_and_unknown_words() -> None:
    model = causal("gpt")
    one, empty, strange = model.score(["The quick dog", "", "zyzzyva ЖЖ"])
    assert one[1:6] == (4, 3, 1, 13, 0)
    assert one.logprob == pytest.approx(model.log_probability("The quick dog"), abs=1e-9)
    assert empty == (0.0, 0, 0, 0, 0, 0, 0.0, 0.0, 0)
    assert strange.oov == 2
    assert strange.spelling < -10
    assert model.score([]) == []


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "pieces", "chars"])
def test_every_kind_of_tokenizer(kind: str) -> None:
    model = causal("gpt", kind=kind)
    scores = model.score(TEXTS)
    assert all(np.isfinite(score.bits_per_byte) for score in scores)
    alone = [model.score([text])[0].logprob for text in TEXTS]
    np.testing.assert_allclose([score.logprob for score in scores], alone, atol=1e-9)


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_streams_carry_context_and_sentences_do_not(name: str) -> None:
    texts = ["The quick brown fox", "jumps over the lazy dog"]
    model = causal(name, length=64)
    assert model.carries_context
    apart, together = model.score(texts), model.score(texts, as_document=True)
    assert together[0].logprob == pytest.approx(apart[0].logprob, abs=1e-9)
    assert abs(together[1].logprob - apart[1].logprob) > 1e-3
    forgetful = causal(name, length=64, sequence=replace(model.recipe.sequence, format="sentences"))
    assert not forgetful.carries_context
    second = [forgetful.score(texts, as_document=flag)[1].logprob for flag in (False, True)]
    assert second[0] == pytest.approx(second[1], abs=1e-9) == apart[1].logprob


@pytest.mark.parametrize("name", ["gpt", "lstm", "ffnn"])
def test_documents_in_batches_score_as_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a batch ends within a document: `gpt` has 12 positions, so that windows go on, too."""
    model = causal(name, sequence=replace(causal(name).recipe.sequence, format="stream", length=12))
    assert model.carries_context
    documents = [["The quick fox", "the dog"], ["over ЖЖ"], ["lazy", "", "dog", *["the lazy fox"] * 11], ["", "fox"]]
    expected = [score for one in documents for score in model.score(one, as_document=True)]
    pieces = [TextPiece([line] if line else [], not number) for one in documents for number, line in enumerate(one)]
    for most in (20_000, 5, 3, 1):
        monkeypatch.setattr("firth.lm.pieces._PIECES", most)
        found = list(model.score_pieces(iter(pieces)))
        np.testing.assert_allclose(found, expected, atol=1e-9)
    assert list(model.score_pieces([])) == []


def test_a_sentence_longer_than_the_positions_is_split_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    model = causal("gpt")
    (score,) = model.score([" ".join(["fox"] * 3000)])
    assert score.tokens == 3001
    assert "1 sentences of more than 12 tokens are scored in windows" in capsys.readouterr().err


@pytest.mark.parametrize("length", range(1, 40))
def test_windows_use_every_position_once(length: int) -> None:
    for most, overlap in ((4, 2), (5, 2), (9, 1), (8, 0)):
        for windows in (causal_windows(length, most, overlap), centred_windows(length, most)):
            used = [position for one in windows for position in range(one.first, one.last)]
            assert used == list(range(length))
            assert all(one.begin <= one.first < one.last <= one.end <= length for one in windows)
            assert all(one.end - one.begin <= most for one in windows)
        for one in causal_windows(length, most, overlap)[1:]:
            assert one.first - one.begin >= overlap
        for one in centred_windows(length, most):
            assert one.first - one.begin >= min(most // 4, one.first)
            assert one.end - one.last >= min(most // 4, length - one.last)


def test_groups_hold_every_text_once() -> None:
    lengths = np.random.default_rng(3).integers(1, 900, 500)
    for equal in (False, True):
        groups = list(length_groups(lengths, equal))
        assert sorted(np.concatenate(groups).tolist()) == list(range(500))
        assert all(lengths[group].max() * group.size <= BATCH_TOKENS for group in groups)
        if equal:
            assert all(np.ptp(lengths[group]) == 0 for group in groups)
