"""Models that restore text: sources with masks, spans in place of sentinels, scores by hand, fills."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from firth.abilities import Fills, Scores, ScoresPairs, Translates, total
from firth.apply.pairs import wants_pairs
from firth.errors import AbilityError
from firth.nets.batch import Batch
from firth.nets.denoising import DenoisingNet
from firth.nets.fragments import FragmentNet
from firth.nets.model import NetModel
from firth.nets.sentinels import SentinelNet
from firth.tokens.tokenizer import BOS, EOS, MASK
from tests.nets.small_nets import small_net
from tests.samples import ENGLISH

NAMES = ["bart", "t5", "t5-1.1", "mass"]
EVERY = pytest.mark.parametrize("name", NAMES)
TEXT = "The quick brown fox"


def net(name: str) -> DenoisingNet:
    made = small_net(name, length=40)
    assert isinstance(made, DenoisingNet)
    return made


def one(ids: list[int]) -> Batch:
    rows = torch.tensor([ids])
    return Batch(rows, torch.ones_like(rows, dtype=torch.bool))


def log_probability(
    model: NetModel, source: list[int], inputs: list[int], token: int, first: int = 0, is_fill: bool = False
) -> float:
    """Of a token after the inputs of the decoder, computed without the code of the model.

    Only in fills the probabilities of special tokens count.
    """
    batch = one(inputs)
    batch.position_ids = torch.arange(first, first + len(inputs))[None]
    batch.source = one(source)
    if isinstance(model, FragmentNet):
        batch.source.is_hidden = batch.source.ids == MASK
    with torch.no_grad():
        logits = model.network.output.logits(model.network(batch).last_hidden_state[-1:])[0]
    logits[[] if is_fill else [0, BOS, MASK]] = -torch.inf
    return float(logits.log_softmax(-1)[token])


def end_log_probability(model: NetModel, source: list[int], inputs: list[int]) -> float:
    """That the span after a sentinel ends: by the end of the target, or by another sentinel."""
    first = len(model.words) - model.tokenizer.recipe.sentinels
    ends = [log_probability(model, source, inputs, token) for token in (EOS, *range(first, len(model.words)))]
    return float(np.logaddexp.reduce(ends))


@EVERY
def test_models_score_fill_and_generate(name: str) -> None:
    model = net(name)
    assert isinstance(model, Scores)
    assert isinstance(model, Fills)
    assert isinstance(model, Translates)
    assert isinstance(model, ScoresPairs)
    assert model.score_kind == "pseudo"
    assert model.embed(ENGLISH).shape == (3, 16)


@EVERY
def test_scores_are_pseudo_log_likelihoods_by_hand(name: str) -> None:
    model = net(name)
    (ids,) = (one.tolist() for one in model.encode([TEXT]))
    expected = 0.0
    for position, token in enumerate(ids):
        before, after = ids[:position], ids[position + 1 :]
        if name == "bart":
            expected += log_probability(model, [BOS, *before, MASK, *after, EOS], [EOS, *before], token)
        elif name == "mass":
            last = before[-1:] or [EOS]
            expected += log_probability(model, [BOS, *before, MASK, *after, EOS], last, token, position)
        else:
            sentinel = len(model.words) - 1
            source = [BOS, *before, sentinel, *after, EOS]
            expected += log_probability(model, source, [EOS, sentinel], token)
            expected += end_log_probability(model, source, [EOS, sentinel, token])
    (score,) = model.score([TEXT])
    assert score.logprob == pytest.approx(expected, abs=1e-4)
    assert score.tokens == len(ids)
    both = total(model.score([TEXT, ENGLISH[1]]))
    assert both.logprob == pytest.approx(score.logprob + model.score([ENGLISH[1]])[0].logprob, abs=1e-4)


def test_whole_words_are_one_mask() -> None:
    """With chars every word has several tokens: those after a token in its word are under the same mask."""
    model = small_net("bart", "chars", length=40)
    assert isinstance(model, DenoisingNet)
    (ids,) = (one.tolist() for one in model.encode(["The dog"]))
    words = [3, 3, 3, 7, 7, 7, 7]  # where the word of each token ends
    expected = sum(
        log_probability(model, [BOS, *ids[:at], MASK, *ids[words[at] :], EOS], [EOS, *ids[:at]], token)
        for at, token in enumerate(ids)
    )
    assert model.score(["The dog"], whole_words=True)[0].logprob == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("size", [40, 6])
def test_spans_of_sentinels_are_words(size: int) -> None:
    """All tokens of a word after its sentinel, and the end after them; in windows, too, which may cut a word."""
    model = small_net("t5", "chars", length=size)
    assert isinstance(model, SentinelNet)
    (ids,) = (one.tolist() for one in model.encode(["The dog"]))
    sentinel = len(model.words) - 1
    (score,) = model.score(["The dog"])
    assert score.tokens == len(ids) == 7
    assert model.score(["The dog"], whole_words=True) == [score]
    if size == 6:
        assert math.isfinite(score.logprob)
        return
    expected = 0.0
    for begin, end in ((0, 3), (3, 7)):
        source, inputs = [BOS, *ids[:begin], sentinel, *ids[end:], EOS], [EOS, sentinel]
        for token in ids[begin:end]:
            expected += log_probability(model, source, inputs, token)
            inputs.append(token)
        expected += end_log_probability(model, source, inputs)
    assert score.logprob == pytest.approx(expected, abs=1e-4)
    both = model.score(["The dog", "dog"])
    assert both[0].logprob == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["bart", "mass"])
def test_masks_are_filled_one_after_the_other(name: str) -> None:
    model = net(name)
    first, second = model.fill("The [MASK] brown <mask>", top=3)
    the, brown = (model.row(word) for word in ("The", "brown"))
    for position, found, before in ((0, first, [the]), (1, second, None)):
        assert len(found) == 3
        assert found[0].probability >= found[1].probability >= found[2].probability > 0
        assert found[0].text is None
        best = model.row(first[0].token)
        prefix = before or [the, best, brown]
        source = [BOS, the, MASK, brown, MASK, EOS] if position == 0 else [BOS, the, best, brown, MASK, EOS]
        inputs, at = ([EOS, *prefix], 0) if name == "bart" else (prefix[-1:], len(prefix))
        logs = log_probability(model, source, inputs, model.row(found[0].token), at, is_fill=True)
        assert math.log(found[0].probability) == pytest.approx(logs, abs=1e-4)
    (only,) = model.fill("The [MASK] fox")
    assert only[0].text == f"The {only[0].token} fox"
    with pytest.raises(AbilityError, match="nothing to fill"):
        model.fill("The fox")


def test_sentinels_stand_for_masks_and_spans_for_sentinels() -> None:
    model = net("t5")
    assert isinstance(model, SentinelNet)
    last = len(model.words) - 1
    the, quick, brown, fox = (model.row(word) for word in TEXT.split())
    (source,) = model.source_ids(["The [MASK] brown <mask>"])
    assert source.tolist() == [the, last, brown, last - 1]
    assert model.source_ids(["The <extra_id_0> brown"])[0].tolist() == [the, last, brown]
    assert model.spans([last, quick, fox, last - 1, the]) == {last: [quick, fox], last - 1: [the]}
    assert model.target_text(source, [last, quick, fox, last - 1, the]) == "The quick fox brown The"
    assert model.target_text(source, [last - 1, quick]) == "The brown quick", "an empty span"
    assert model.target_text(np.array([the, fox]), [quick, brown]) == "quick brown", "no span was asked for"
    with pytest.raises(AbilityError, match="4 masks, and the model 3 sentinels"):
        model.fill("[MASK] [MASK] [MASK] [MASK]")
    with pytest.raises(AbilityError, match="nothing to fill"):
        model.fill("The fox")


def test_spans_are_filled_by_beam_search() -> None:
    model = net("t5")
    with torch.no_grad():  # an end that is likely, so that spans are short
        model.network.embedding.table[EOS] *= 4
    first, second = model.fill("The [MASK] brown [MASK]", top=2)
    for found in (first, second):
        assert 1 <= len(found) <= 2
        probabilities = [one.probability for one in found]
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 < sum(probabilities) <= 1 + 1e-6
    (only,) = model.fill("The [MASK] fox", top=4)
    assert only[0].text == " ".join(f"The {only[0].token} fox".split())
    assert len({one.token for one in only}) == len(only)


@EVERY
def test_texts_are_generated_from_sources_with_masks(name: str) -> None:
    model = net(name)
    masked, plain, blank = model.translate(["The [MASK] fox", "The quick fox", ""], beams=2, length=6)
    assert masked.tokens <= 6
    assert plain.tokens <= 6
    assert blank.text == ""
    (alone,) = model.translate(["The [MASK] fox"], beams=2, length=6)
    assert alone.text == masked.text
    assert alone.logprob == pytest.approx(masked.logprob, abs=1e-4)


def test_decoders_do_not_attend_to_masks_in_use() -> None:
    model = net("mass")
    ids = np.array([model.row("The"), MASK, model.row("fox")])
    given = model.encode_sources([ids, ids[:2]])
    assert given.bias.bias is not None
    assert (given.bias.bias[:, 0] == 0).tolist() == [[True, True, False, True, True], [True, True, False, True, False]]


def test_files_of_pairs_are_scored_as_pairs(tmp_path: Path) -> None:
    model, pairs, text = net("bart"), tmp_path / "pairs.tsv", tmp_path / "text.txt"
    pairs.write_text("en\tde\nA dog\tEin Hund\n", encoding="utf-8")
    text.write_text("A dog\n", encoding="utf-8")
    assert wants_pairs(model, [pairs], None)
    assert wants_pairs(model, str(pairs), None)
    assert wants_pairs(model, [("a", "b")], None)
    assert wants_pairs(model, [], "en,de")
    assert not wants_pairs(model, [text], None)
    assert not wants_pairs(model, str(text), None)
    assert not wants_pairs(model, ["A dog"], None)
    assert wants_pairs(small_net("transformer", length=40), [text], None)
    assert not wants_pairs(small_net("bert"), [pairs], None)
