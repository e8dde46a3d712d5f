"""Masked networks: pseudo-log-likelihoods and fillings against plain loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from firth.abilities import Fills, Generates, Scores
from firth.errors import AbilityError
from firth.nets.masked import MaskedNet
from firth.nets.scoring import make_batch
from firth.objectives.registry import parse_objectives
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK
from tests.nets.small_nets import MASKED, TEXTS, small_net

EVERY = pytest.mark.parametrize("name", MASKED)


def masked(name: str = "bert", kind: str = "wordpiece", **options: object) -> MaskedNet:
    model = small_net(name, kind, **options)  # type: ignore[arg-type]
    assert isinstance(model, MaskedNet)
    model.network.double()
    model.predictor.double()  # of electra the generator
    return model


def slow_chances(model: MaskedNet, row: list[int], position: int) -> np.ndarray:
    """The distribution of predictable tokens at one position."""
    with torch.inference_mode():
        state = model.predictor(make_batch(torch.tensor([row]))).last_hidden_state[position : position + 1]
        return model.predictor.output.log_probabilities(state)[0].numpy()


def slow_score(model: MaskedNet, ids: list[int], words: list[int] | None = None) -> float:
    """The sum of the log-probabilities of each masked token, with the rest of its word masked if words are given."""
    total = 0.0
    for position, target in enumerate(ids):
        hidden = [
            MASK if at == position or (words and at > position and words[at] == words[position]) else one
            for at, one in enumerate(ids)
        ]
        total += slow_chances(model, [model.start_token, *hidden, EOS], position + 1)[target]
    return total


@EVERY
def test_each_token_is_masked_in_turn(name: str) -> None:
    model = masked(name, length=200)
    for text, score in zip(TEXTS, model.score(TEXTS), strict=True):
        ids = [one if one > MASK else UNK for one in model.tokenizer.encode(text).ids]
        assert score.logprob == pytest.approx(slow_score(model, ids), abs=1e-9)
        assert (score.tokens, score.silent) == (len(ids), 1)
        assert score.perplexity == pytest.approx(math.exp(-score.logprob / len(ids)))


def test_the_rest_of_a_word_is_masked_with_it() -> None:
    model = masked(length=200)
    text = "Unbelievables foxed jumping"
    tokens = model.tokenizer.encode(text)
    assert len(tokens.ids) > sum(tokens.word_starts) == 3
    (score,) = model.score([text], whole_words=True)
    assert score.logprob == pytest.approx(
        slow_score(model, tokens.ids, np.cumsum(tokens.word_starts).tolist()), abs=1e-9
    )
    assert score.word_perplexity == pytest.approx(math.exp(-score.logprob / 3))
    assert abs(score.logprob - model.score([text])[0].logprob) > 1e-3


def test_every_token_of_a_long_sentence_is_scored_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The first and last tokens have one-sided context, others have both sides."""
    model = masked(length=8, kind="words")
    ids = np.random.default_rng(0).integers(5, 60, 9).tolist()
    text = " ".join(model.words[one] for one in ids)
    assert model.tokenizer.encode(text).ids == ids
    windows = [(0, range(4)), (3, range(4, 9))]  # windows of 6 from 0 and from 3, cut in the middle of the overlap
    expected = 0.0
    for begin, positions in windows:
        for position in positions:
            row = list(ids)
            row[position] = MASK
            expected += slow_chances(model, [BOS, *row[begin : begin + 6], EOS], position - begin + 1)[ids[position]]
    (score,) = model.score([text])
    assert score.tokens == 9
    assert "1 sentences of more than 6 tokens" in capsys.readouterr().err
    assert score.logprob == pytest.approx(expected, abs=1e-9)


def test_texts_score_alike_alone_and_in_batches() -> None:
    model = masked(length=40)
    several = [*TEXTS, "", "fox", "fox\nthe lazy dog"]
    alone = [model.score([text])[0] for text in several]
    for one, other in zip(model.score(several), alone, strict=True):
        assert one[1:] == pytest.approx(other[1:])
        assert one.logprob == pytest.approx(other.logprob, abs=1e-9)
    assert alone[6] == (0.0, 0, 0, 0, 0, 0, 0.0, 0.0, 0)
    assert alone[8].silent == alone[8].sentences == 2


@EVERY
@pytest.mark.parametrize("kind", ["wordpiece", "words", "byte-bpe", "pieces", "chars"])
def test_fillings_are_the_top_of_the_softmax(name: str, kind: str) -> None:
    model = masked(name, kind, length=40)
    (found,) = model.fill("The quick [MASK] fox", top=5)
    ids = model.masked_ids(["The quick [MASK] fox"])[0]
    position = ids.index(MASK)
    row = torch.tensor([[model.start_token, *ids, EOS]])
    chances = model.logits(row)[0, position + 1].double().softmax(-1)
    assert float(chances.sum()) == pytest.approx(1)
    chances[[PAD, UNK, BOS, EOS, MASK]] = -1
    best = chances.argsort(descending=True)[:5].tolist()
    assert [one.token for one in found] == [model.token_text(row) for row in best]
    assert [one.probability for one in found] == pytest.approx(chances[best].tolist())
    assert found[0].text == model.tokenizer.decode([*ids[:position], best[0], *ids[position + 1 :]])


def test_token_texts() -> None:
    pieces = masked(kind="wordpiece")
    assert [pieces.token_text(row) for row in (EOS, pieces.words.index("##ïve"))] == ["[SEP]", "##ïve"]
    for kind, shown in (("byte-bpe", " fox"), ("pieces", "fox"), ("words", "fox")):
        model = masked(kind=kind)
        assert model.token_text(model.tokenizer.encode("lazy fox").ids[-1]) == shown


def test_a_space_before_a_mask_belongs_to_the_masked_token() -> None:
    """If the space before a word is a part of its token, it is removed before the mask."""
    for kind in ("byte-bpe", "bpe", "pieces"):
        model = masked("roberta", kind, length=40)
        plain, spaced = model.masked_ids(["The<mask> fox"])[0], model.masked_ids(["The  [MASK] fox"])[0]
        assert plain == spaced
        assert plain.count(MASK) == 1


def test_several_masks_in_either_spelling() -> None:
    model = masked(length=40)
    found = model.fill("我们[MASK]欢<mask>言", top=3)
    assert [len(mask) for mask in found] == [3, 3]
    assert all(one.text is None for mask in found for one in mask)
    ids = model.masked_ids(["我们[MASK]欢<mask>言"])[0]
    assert [position for position, one in enumerate(ids) if one == MASK] == [2, 4]
    logs = model.logits(torch.tensor([[BOS, *ids, EOS]])).softmax(-1)
    assert found[1][0].probability == pytest.approx(float(logs[0, 5, 5:].max()), abs=1e-6)


def test_masks_of_a_long_text_have_the_context_around_them() -> None:
    model = masked(kind="words", length=12)
    words = ["fox"] * 40
    words[3] = words[20] = words[39] = "[MASK]"
    first, middle, last = model.fill(" ".join(words), top=2)
    whole = model.masked_ids([" ".join(words)])[0]
    row = torch.tensor([[BOS, *whole[15:25], EOS]])
    expected = model.logits(row)[0, 6].softmax(-1).topk(1)
    assert middle[0].probability == pytest.approx(float(expected.values[0]))
    assert first != middle != last


def test_many_texts_are_filled_as_one_by_one() -> None:
    model = masked(length=30)
    texts = [
        "The [MASK] fox",
        "[MASK] 喜 [MASK]",
        "fox [MASK]",
        "The <mask> dog",
        "[MASK] " * 70,
        "over the [MASK] dog",
    ]
    for many, text in zip(model.fill_many(texts, 3), texts, strict=True):
        one = model.fill(text, 3)
        assert len(many) == len(one) == text.upper().count("MASK")
        for here, there in zip(many, one, strict=True):
            assert [filling.token for filling in here] == [filling.token for filling in there]
            assert [filling.text for filling in here] == [filling.text for filling in there]
            assert [filling.probability for filling in here] == pytest.approx([f.probability for f in there], abs=1e-9)
    assert model.fill_many([]) == []
    with pytest.raises(AbilityError, match="nothing to fill in text 1"):
        model.fill_many(["[MASK]", "none"])


def test_more_tokens_than_there_are() -> None:
    model = masked(length=40)
    (found,) = model.fill("[MASK]", top=100_000)
    assert len(found) == len(model.words) - 5, "no special token is shown"
    assert sum(one.probability for one in found) <= 1
    assert not {one.token for one in found} & set(model.words[:5])


@pytest.mark.parametrize(
    ("text", "top", "said"), [("no mask", 5, r"write \[MASK\]"), ("", 5, "nothing to fill"), ("[MASK]", 0, "top=0")]
)
def test_texts_without_masks_are_refused(text: str, top: int, said: str) -> None:
    with pytest.raises(AbilityError, match=said):
        masked().fill(text, top)


def test_abilities_are_those_of_the_objectives() -> None:
    model = masked()
    assert isinstance(model, Scores)
    assert isinstance(model, Fills)
    assert not isinstance(model, Generates)
    causal = small_net("gpt")
    assert isinstance(causal, Generates)
    assert not isinstance(causal, Fills)
    judge = small_net("senna")
    assert not isinstance(judge, Scores | Fills | Generates)


def test_a_masked_model_of_streams_has_sentence_ends() -> None:
    model = masked(kind="words", length=20)
    streamed = masked(
        kind="words",
        length=20,
        sequence=replace(model.recipe.sequence, format="stream"),
        objectives=parse_objectives("mlm"),
    )
    ids = [7, 8, 9]
    text = " ".join(model.words[one] for one in ids)
    expected = 0.0
    for position, target in enumerate(ids):
        row = [EOS, *ids, EOS]
        row[position + 1] = MASK
        expected += slow_chances(streamed, row, position + 1)[target]
    assert streamed.score([text])[0].logprob == pytest.approx(expected, abs=1e-9)
