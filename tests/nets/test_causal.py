"""Causal networks: what they say of a text is what a plain loop over one row says."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch

from firth.abilities import score_documents, total
from firth.nets.causal import CausalNet
from firth.nets.scoring import ROOM, batch_of, by_length, following, longest, surrounding
from firth.tokens.language import Stream
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK
from tests.nets.small_nets import CAUSAL, TEXTS, small_net, small_tokenizer

EVERY = pytest.mark.parametrize("name", CAUSAL)


def causal(name: str, **options: object) -> CausalNet:
    model = small_net(name, **options)  # type: ignore[arg-type]
    assert isinstance(model, CausalNet)
    model.network.double()
    return model


def slow_logs(model: CausalNet, ids: list[int]) -> list[float]:
    """Each id after `</s>` and those before it, by one row for each; as much of them as the network has room for."""
    logs = []
    for place, target in enumerate(ids):
        row = [EOS, *ids[:place]]
        most = longest(model.recipe)
        if most is not None and len(row) > most:  # windows begin at every half
            row = row[(place - most // 2) // (most - most // 2) * (most - most // 2) :]
        with torch.inference_mode():
            last = model.network(batch_of(torch.tensor([row]))).last[-1:]
            logs.append(float(model.network.output.log_probabilities(last)[0, target]))
    return logs


def sentences(count: int, most: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    size = len(small_tokenizer())
    return [rng.integers(5, size, rng.integers(0, most)).tolist() for _ in range(count)]


@EVERY
@pytest.mark.parametrize("together", [False, True])
def test_every_token_has_the_probability_that_one_row_gives_it(name: str, together: bool) -> None:
    model = causal(name)
    given = sentences(7, 30)
    stream = Stream.of(given, fresh=not together)
    closed = [[*ids, EOS] for ids in given]
    texts = [list(chain(*closed))] if together and model.remembers else closed
    expected = [log for ids in texts for log in slow_logs(model, ids)]
    np.testing.assert_allclose(model.log_tokens(stream), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["lstm", "rnn", "ffnn", "gpt"])
def test_documents_of_very_different_lengths_are_read_side_by_side(name: str) -> None:
    """Longer than what is read at once, so that some rows end while others go on."""
    model = causal(name, length=16)
    lengths = [700, 3, 256, 257, 255, 600, 1]
    rng = np.random.default_rng(2)
    given = [rng.integers(5, 60, length - 1).tolist() for length in lengths]
    logs = model.log_tokens(Stream.of(given, fresh=True))
    bounds = np.cumsum([0, *lengths])
    for number, ids in enumerate(given):
        alone = model.log_tokens(Stream.of([ids]))
        np.testing.assert_allclose(logs[bounds[number] : bounds[number + 1]], alone, rtol=0, atol=1e-9)
    if longest(model.recipe) is None:
        with torch.inference_mode():
            states = model.network(batch_of(torch.tensor([[EOS, *given[0]]]))).last
            whole = model.network.output.log_probabilities(states).gather(1, torch.tensor([*given[0], EOS])[:, None])
        np.testing.assert_allclose(logs[:700], whole[:, 0].numpy(), rtol=0, atol=1e-9)


@EVERY
def test_the_next_token_is_one_of_the_vocabulary(name: str) -> None:
    model = causal(name)
    for history in ([], [7, 8], [5, EOS, 9, 6], list(range(5, 40))):
        logs = model.log_next(history)
        assert np.exp(logs).sum() == pytest.approx(1, abs=1e-9)
        assert (logs[[PAD, BOS, MASK]] == -np.inf).all()
        assert logs[UNK] > -np.inf


@EVERY
def test_the_next_token_agrees_with_scores(name: str) -> None:
    model = causal(name)
    given = [*sentences(2, 12, seed=4), *sentences(1, 40, seed=5)]
    stream = Stream.of(given)
    logs, history = model.log_tokens(stream), []
    for place, target in enumerate(stream.ids.tolist()):
        assert model.log_next(history)[target] == pytest.approx(logs[place], abs=1e-9)
        history.append(target)


@EVERY
def test_no_token_knows_what_follows(name: str) -> None:
    model = causal(name)
    ids = np.random.default_rng(1).integers(5, 60, 25)
    before = model.log_tokens(Stream.of([ids.tolist()]))
    for place in (0, 6, 13, 24):
        changed = ids.copy()
        changed[place] = 5 + (changed[place] - 5 + 3) % 50
        after = model.log_tokens(Stream.of([changed.tolist()]))
        np.testing.assert_allclose(after[:place], before[:place], rtol=0, atol=1e-9)
        assert abs(after[place] - before[place]) > 1e-5


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
def test_any_tokenizer_will_do(kind: str) -> None:
    model = causal("gpt", kind=kind)
    scores = model.score(TEXTS)
    assert all(np.isfinite(score.bits_per_byte) for score in scores)
    alone = [model.score([text])[0].logprob for text in TEXTS]
    np.testing.assert_allclose([score.logprob for score in scores], alone, atol=1e-9)


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_streams_remember_and_sentences_do_not(name: str) -> None:
    texts = ["The quick brown fox", "jumps over the lazy dog"]
    model = causal(name, length=64)
    assert model.remembers
    apart, together = model.score(texts), model.score(texts, together=True)
    assert together[0].logprob == pytest.approx(apart[0].logprob, abs=1e-9)
    assert abs(together[1].logprob - apart[1].logprob) > 1e-3
    forgetful = causal(name, length=64, rows=replace(model.recipe.rows, format="sentences"))
    assert not forgetful.remembers
    second = [forgetful.score(texts, together=flag)[1].logprob for flag in (False, True)]
    assert second[0] == pytest.approx(second[1], abs=1e-9) == apart[1].logprob


@pytest.mark.parametrize("name", ["gpt", "lstm", "sa-lstm"])
def test_documents_side_by_side_score_as_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = causal(name)
    documents = [["The quick fox", "the dog"], ["over ЖЖ"], ["lazy", "dog", "the\nfox"], [], ["", "fox"]]
    expected = total(score for one in documents for score in model.score(one, together=True))
    for most in (20_000, 3, 1):
        monkeypatch.setattr("firth.nets.causal._SENTENCES", most)
        found = score_documents(model, iter(documents))
        assert found == pytest.approx(expected, abs=1e-9)
    assert score_documents(model, []).tokens == 0


def test_a_sentence_longer_than_the_positions_is_split_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    model = causal("gpt")
    (score,) = model.score([" ".join(["fox"] * 3000)])
    assert score.tokens == 3001
    assert "1 sentences of more than 12 tokens are read in parts" in capsys.readouterr().err


@pytest.mark.parametrize("length", range(1, 40))
def test_windows_tell_of_every_place_once(length: int) -> None:
    for most, overlap in ((4, 2), (5, 2), (9, 1), (8, 0)):
        for windows in (following(length, most, overlap), surrounding(length, most)):
            told = [place for one in windows for place in range(one.first, one.last)]
            assert told == list(range(length))
            assert all(one.begin <= one.first < one.last <= one.end <= length for one in windows)
            assert all(one.end - one.begin <= most for one in windows)
        for one in following(length, most, overlap)[1:]:
            assert one.first - one.begin >= overlap
        for one in surrounding(length, most):
            assert one.first - one.begin >= min(most // 4, one.first)
            assert one.end - one.last >= min(most // 4, length - one.last)


def test_groups_hold_every_text_once() -> None:
    lengths = np.random.default_rng(3).integers(1, 900, 500)
    for equal in (False, True):
        groups = list(by_length(lengths, equal))
        assert sorted(np.concatenate(groups).tolist()) == list(range(500))
        assert all(lengths[group].max() * group.size <= ROOM for group in groups)
        if equal:
            assert all(np.ptp(lengths[group]) == 0 for group in groups)
