"""Contextual vectors of tokens, words and texts against single forward passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from firth.abilities import Embeds, HasVectors
from firth.errors import AbilityError, ArgumentError
from firth.nets.contextual_vectors import nearest_occurrences, word_spans, word_states
from firth.nets.model import NetModel
from firth.nets.scoring import make_batch
from firth.tokens.tokenizer import BOS, EOS, MASK, UNK
from tests.nets.small_nets import NETS, TEXTS, small_net

EVERY = pytest.mark.parametrize("name", NETS)


def row_of(model: NetModel, text: str) -> list[int]:
    ids = [one if one > MASK else UNK for one in model.tokenizer.encode(text).ids]
    return [model.start_token, *ids, EOS]


def states_of(model: NetModel, text: str, layer: int = -1) -> np.ndarray:
    """(positions, width): the states of a text with its special tokens."""
    with torch.inference_mode():
        return model.network(make_batch(torch.tensor([row_of(model, text)]))).layers[layer][0].numpy()


@pytest.mark.parametrize("name", [name for name in NETS if name != "context2vec"])  # a text is a context there
def test_a_text_is_the_mean_of_its_tokens(name: str) -> None:
    model = small_net(name, length=40)
    assert isinstance(model, Embeds)
    found = model.embed([*TEXTS, "", "  "], pooling="mean")
    assert found.dtype == np.float32
    for row, text in zip(found, TEXTS, strict=False):
        np.testing.assert_allclose(row, states_of(model, text)[1:-1].mean(axis=0), rtol=0, atol=1e-4)
    assert not found[-2:].any()
    assert model.embed([], pooling="mean").shape == (0, found.shape[1])


def test_layers_and_poolings() -> None:
    model = small_net("bert", length=40)
    text = TEXTS[0]
    layers = [states_of(model, text, layer) for layer in range(3)]
    last = layers[-1]

    def embed(**options: str | int) -> np.ndarray:
        return model.embed([text, "fox"], **options)[0]  # type: ignore[arg-type]

    for options, expected in [
        ({"pooling": "max"}, last[1:-1].max(axis=0)),
        ({"pooling": "first"}, last[0]),
        ({"pooling": "last"}, last[-2]),
        ({"layer": 0}, layers[0][1:-1].mean(axis=0)),
        ({"layer": -2}, layers[1][1:-1].mean(axis=0)),
        ({"layer": "mix"}, np.mean(layers, axis=0)[1:-1].mean(axis=0)),
        ({"layer": "all"}, np.concatenate(layers, axis=1)[1:-1].mean(axis=0)),
    ]:
        np.testing.assert_allclose(embed(**options), expected, rtol=0, atol=1e-5)  # type: ignore[arg-type]
    causal = small_net("gpt", length=40)
    states = states_of(causal, text)
    np.testing.assert_allclose(causal.embed([text], pooling="first")[0], states[1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(causal.embed([text], pooling="last")[0], states[-2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_sentences_of_a_text_have_special_tokens_as_in_training(name: str) -> None:
    model = small_net(name, length=40)
    one, two = ([i if i > MASK else UNK for i in model.tokenizer.encode(text).ids] for text in ("The fox", "the dog"))
    row = [BOS, *one, *two, EOS] if name == "bert" else [EOS, *one, EOS, *two, EOS]
    own = [position for position, token in enumerate(row) if token not in (BOS, EOS)]
    with torch.inference_mode():
        states = model.network(make_batch(torch.tensor([row]))).layers[-1][0].numpy()
    np.testing.assert_allclose(model.embed(["The fox\nthe dog"])[0], states[own].mean(axis=0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt"])
@pytest.mark.parametrize("pooling", ["mean", "max", "first", "last"])
def test_a_long_text_is_encoded_in_windows(name: str, pooling: str) -> None:
    """A long text has one state for each token, from the window around it."""
    model = small_net(name, length=8)
    ids = np.random.default_rng(0).integers(5, 60, 21).tolist()
    text = " ".join(model.words[one] for one in ids)
    (layers,) = model.layers([text])
    states = layers[-1]
    assert states.shape == (21, 16)
    with torch.inference_mode():
        row = torch.tensor([[model.start_token, *ids[:7]]])
        first = model.network(make_batch(row)).layers[-1][0, 1:].numpy()
    np.testing.assert_allclose(states[:5], first[:5], rtol=0, atol=1e-5)
    if name == "gpt":  # half a window of context
        with torch.inference_mode():
            row = torch.tensor([[EOS, *ids, EOS][4:12]])
            second = model.network(make_batch(row)).layers[-1][0].numpy()
        np.testing.assert_allclose(states[7:11], second[4:], rtol=0, atol=1e-5)
    found = model.embed([text], pooling=pooling)[0]
    expected = {"mean": states.mean(axis=0), "max": states.max(axis=0), "first": states[0], "last": states[-1]}
    if not (name == "bert" and pooling == "first"):
        np.testing.assert_allclose(found, expected[pooling], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 3}, "choose from 0 to 2"),
        ({"layer": "first"}, "no layer first"),
        ({"pooling": "median"}, "no pooling .median.: did you mean .mean."),
    ],
)
def test_unknown_layers_and_poolings_are_refused(options: dict[str, str | int], message: str) -> None:
    kind = AbilityError if options == {"layer": 3} else ArgumentError  # which depends on the network
    with pytest.raises(kind, match=message):
        small_net("bert").embed(["fox"], **options)  # type: ignore[arg-type]


def test_layers_of_different_widths_have_no_mean() -> None:
    recipe = small_net("ffnn").recipe
    model = small_net("ffnn", encoder=replace(recipe.encoder, width=24))
    with pytest.raises(AbilityError, match="choose one, or all"):
        model.embed(["fox"], layer="mix")
    assert model.embed(["fox"], layer="all").shape == (1, 16 + 24)


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "pieces", "words", "chars"])
def test_a_word_is_the_mean_of_its_tokens(kind: str) -> None:
    model = small_net("bert", kind, length=60)
    texts = ["Unbelievables foxed, 我们喜欢语言", "jumping"]
    for text, (spans, states) in zip(texts, word_states(model, texts, "last"), strict=True):
        tokens = model.tokenizer.encode(text)
        every = states_of(model, text)[1:-1]
        assert len(spans) == sum(tokens.word_starts) == len(states)
        for span, state in zip(spans, states, strict=True):
            np.testing.assert_allclose(state, every[span.first : span.end].mean(axis=0), rtol=0, atol=1e-5)
        words = [span.word for span in spans]
        assert words in (["Unbelievables", "foxed", ",", "我们", "喜欢", "语言"], ["jumping"])


def test_words_without_characters_are_left_out() -> None:
    model = small_net("bert", "byte-bpe", length=60)
    text = "a  b "
    assert [span.word for span in word_spans(text, model.tokenizer.encode(text))] == ["a", "b"]


SENTENCES = [
    "the quick brown fox",
    "over the lazy dog",
    "the lazy fox jumps",
    "他说今天天气不错",
    "the quick brown fox",
]


@pytest.mark.parametrize("name", ["bert", "elmo", "gpt", "lstm", "senna"])
def test_nearest_occurrences_are_those_of_all_pairs(name: str) -> None:
    model = small_net(name, length=40)
    context = "jumps over the quick fox"
    query = dict(zip(context.split(), word_states(model, [context], "last")[0][1], strict=True))["fox"]
    every = []
    for sentence in dict.fromkeys(SENTENCES):
        spans, states = word_states(model, [sentence], "last")[0]
        for span, state in zip(spans, states, strict=True):
            cosine = float(state @ query / np.linalg.norm(state) / np.linalg.norm(query))
            every.append((cosine, span.word, sentence))
    every.sort(reverse=True)
    found = nearest_occurrences(model, "fox", context, SENTENCES, 5)
    assert [(near.word, near.context) for near in found] == [(word, sentence) for _, word, sentence in every[:5]]
    assert [near.score for near in found] == pytest.approx([cosine for cosine, _, _ in every[:5]], abs=1e-5)


def test_a_word_is_not_its_own_neighbour_and_results_are_distinct() -> None:
    model = small_net("bert", length=40)
    found = nearest_occurrences(model, "fox", "the quick brown fox", SENTENCES, 50)
    assert ("fox", "the quick brown fox") not in [(near.word, near.context) for near in found]
    assert len({(near.word, near.context) for near in found}) == len(found)
    assert nearest_occurrences(model, "fox", "the quick brown fox", SENTENCES, 0) == []


def test_a_word_that_a_sentence_has_twice_is_as_near_as_the_nearer() -> None:
    model = small_net("bert", length=40)
    sentences = ["the fox and the dog", "the lazy the dog", "the quick the", "over the brown dog jumps the"]
    query = word_states(model, ["the quick brown fox"], "last")[0][1][3]
    nearest = nearest_occurrences(model, "fox", "the quick brown fox", sentences, 99)
    found = {near.context: near.score for near in nearest if near.word == "the"}
    order = set()
    for sentence, (spans, states) in zip(sentences, word_states(model, sentences, "last"), strict=True):
        cosines = [
            float(state @ query) / np.linalg.norm(state) / np.linalg.norm(query)
            for span, state in zip(spans, states, strict=True)
            if span.word == "the"
        ]
        order.add(cosines[0] < cosines[1])
        assert found[sentence] == pytest.approx(max(cosines), abs=1e-5)
    assert order == {True, False}


def test_without_sentences_the_context_is_searched() -> None:
    model = small_net("bert", length=40)
    found = nearest_occurrences(model, "Fox", "the quick brown fox")
    assert {near.word for near in found} == {"the", "quick", "brown"}
    assert model.similar("fox", 2, context="the quick brown fox") == [(near.word, near.score) for near in found[:2]]


def test_a_word_that_is_not_in_its_context_is_refused() -> None:
    model = small_net("bert")
    for context in ("the lazy dog", "", "   "):
        with pytest.raises(AbilityError, match="the context does not have the word 'fox'"):
            nearest_occurrences(model, "fox", context)
    with pytest.raises(AbilityError, match="does not have the word ' '"):
        nearest_occurrences(model, " ", "the dog")
    assert nearest_occurrences(model, "法", "我们学习语法", ["语言"])  # a part of a word


@EVERY
def test_tokens_have_neighbours_without_any_context(name: str) -> None:
    model = small_net(name)
    assert isinstance(model, HasVectors)
    vectors = model.vectors / np.linalg.norm(model.vectors, axis=1, keepdims=True)
    row = model.row("fox")
    scores = vectors @ vectors[row]
    scores[:5] = scores[row] = -2
    best = int(scores.argmax())
    found = model.similar("fox", 3)
    assert found[0] == (model.words[best], pytest.approx(float(scores[best]), abs=1e-5))
    assert model.similarity("fox", model.words[best]) == pytest.approx(float(scores[best]), abs=1e-5)
    assert model.similarity("fox", "fox") == pytest.approx(1)
    assert model.similar("fox", 0) == []


def test_a_word_of_several_tokens_is_their_mean() -> None:
    model = small_net("bert", "wordpiece")
    ids = model.tokenizer.encode("foxed").ids
    assert len(ids) > 1
    np.testing.assert_allclose(model.vector("foxed"), model.vectors[ids].mean(axis=0), atol=1e-6)
    assert model.similar("foxed", 1)
    with pytest.raises(AbilityError, match="use its vector"):
        model.row("foxed")
    for word in ("☃", "", "\0"):
        with pytest.raises(AbilityError, match="there is no vector for"):
            model.vector(word)
