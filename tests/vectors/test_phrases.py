"""Phrases: worked by hand, against a slow twin, against gensim, and joined again in new text."""

from __future__ import annotations

import itertools
from collections import Counter
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from gensim.models.phrases import Phrases as GensimPhrases
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.artifact.models import load
from firth.errors import ArtifactError, RecipeError
from firth.vectors import phrases as module
from firth.vectors.phrases import Phrases, find_phrases, phrase_words, restore_phrases
from firth.vectors.text import TrainingText
from tests.command import firth

SPECIALS = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]


class Phrased(NamedTuple):
    """A text with its phrases joined, and the phrases."""

    text: TrainingText
    phrases: Phrases | None


def join_phrases(*arguments: Any, **settings: Any) -> Phrased:
    return Phrased(*find_phrases(*arguments, **settings))


def text_of(sentences: list[list[str]], documents: list[int] | None = None) -> TrainingText:
    """A text of sentences, `?` for an unknown word; `documents` are the first sentences of them, and the end."""
    words = [*SPECIALS, *sorted({word for sentence in sentences for word in sentence if word != "?"})]
    numbers = {word: number for number, word in enumerate(words)} | {"?": 1}
    ids = np.array([numbers[word] for sentence in sentences for word in sentence], dtype=np.uint16)
    bounds = np.cumsum([0, *map(len, sentences)]).astype(np.uint64)
    return TrainingText(ids, bounds, np.array(documents or [0, len(sentences)], dtype=np.uint64), words)


def sentences_of(text: TrainingText) -> list[list[str]]:
    return [[text.words[id] for id in text.ids[a:b]] for a, b in itertools.pairwise(text.sentences.astype(int))]


def slow_round(sentences: list[list[str]], delta: float, threshold: float) -> list[list[str]]:
    """One round as in the paper."""
    known = Counter(word for sentence in sentences for word in sentence if word != "?")
    pairs = Counter(pair for sentence in sentences for pair in itertools.pairwise(sentence) if "?" not in pair)
    total = sum(known.values())
    joined = []
    for sentence in sentences:
        out, buffer = [], 0
        while buffer < len(sentence):
            pair = tuple(sentence[buffer : buffer + 2])
            if pairs[pair] and (pairs[pair] - delta) * total / (known[pair[0]] * known[pair[1]]) > threshold:
                out.append("_".join(pair))
                buffer += 2
            else:
                out.append(sentence[buffer])
                buffer += 1
        joined.append(out)
    return joined


def random_sentences(seed: int, characters: str = "abcdefg", count: int = 20) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(len(characters), 0.5), size=len(characters))
    sentences = []
    for _ in range(count):
        words = [int(rng.integers(len(characters)))]
        for _ in range(int(rng.integers(0, 15))):
            words.append(int(rng.choice(len(characters), p=weights[words[-1]])))
        sentences.append([characters[word] if rng.random() > 0.05 else "?" for word in words])
    return sentences


def test_by_hand() -> None:
    """new york: (6 - 1) * 30 / (6 * 6) = 4.17; then new_york times: (3 - 1) * 24 / (6 * 3) = 2.67 with half of 4."""
    sentences = [["new", "york", "times", "x"]] * 3 + [["new", "york", "x", "y"]] * 3 + [["y", "x"]] * 3
    one = join_phrases(text_of(sentences), 1, delta=1, threshold=4)
    assert sentences_of(one.text)[0] == ["new_york", "times", "x"]
    two = join_phrases(text_of(sentences), 2, delta=1, threshold=4)
    assert sentences_of(two.text)[0] == ["new_york_times", "x"]
    assert sentences_of(two.text)[3] == ["new_york", "x", "y"]
    assert two.phrases is not None
    names = phrase_words(two.phrases, text_of(sentences).words)
    assert names == two.text.words
    assert names[10:] == ["new_york", "new_york_times"]
    assert two.phrases.pairs.tolist() == [[5, 9, 0], [10, 6, 1]]
    assert sentences_of(join_phrases(text_of(sentences), 1, delta=1, threshold=4.2).text)[0][:2] == ["new", "york"]


def test_joining_is_greedy_from_the_left() -> None:
    phrases = Phrases(np.array([[5, 5, 0], [5, 6, 0], [6, 7, 0]], dtype=np.int32), 8)
    assert phrases.join([5, 6, 7]).tolist() == [9, 7]
    assert phrases.join([5, 5, 5, 6, 7, 6]).tolist() == [8, 9, 7, 6]
    assert phrases.join([]).tolist() == []
    assert phrases.join([1, 7, 0]).tolist() == [1, 7, 0]
    assert Phrases(np.zeros((0, 3), dtype=np.int32), 8).join([5, 6]).tolist() == [5, 6]


@given(st.integers(0, 10_000), st.sampled_from([0.0, 1.0, 2.5]), st.sampled_from([0.7, 1.2, 2.0, 5.0]))
@settings(max_examples=30)
def test_a_slow_twin_joins_the_same(seed: int, delta: float, threshold: float) -> None:
    sentences = random_sentences(seed)
    known = [["<unk>" if word == "?" else word for word in sentence] for sentence in sentences]
    assert sentences_of(text_of(sentences)) == known
    one = join_phrases(text_of(sentences), 1, delta=delta, threshold=threshold)
    slow = slow_round(sentences, delta, threshold)
    assert sentences_of(one.text) == [["<unk>" if word == "?" else word for word in sentence] for sentence in slow]


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_saved_phrases_join_new_text_as_they_joined_the_old(seed: int) -> None:
    text = text_of(random_sentences(seed), [0, 7, 20])
    found = join_phrases(text, 3, delta=0, threshold=1.5)
    assert found.phrases is not None
    again = restore_phrases(found.phrases.pairs, len(text.words))
    for number, (a, b) in enumerate(itertools.pairwise(text.sentences.astype(int))):
        c, d = found.text.sentences[number : number + 2].astype(int)
        assert again.join(text.ids[a:b]).tolist() == found.text.ids[c:d].tolist()
    joined, bounds = again.join_texts(text.ids, text.sentences.astype(np.int64))
    assert joined.tolist() == found.text.ids.tolist()
    assert bounds.tolist() == found.text.sentences.tolist()
    assert found.text.documents.tolist() == [0, 7, 20]
    assert len(set(found.text.words)) == len(found.text.words)
    assert found.text.counts.sum() == (found.text.ids >= 5).sum()


def test_one_name_is_one_phrase() -> None:
    """a_b c and a b_c would both be a_b_c: only one of them is joined."""
    sentences = [["a", "b", "x"]] * 9 + [["y", "b", "c"]] * 9 + [["a", "b", "c"]] * 9 + [["b", "z", "c", "z", "a"]] * 9
    found = join_phrases(text_of(sentences), 4, delta=0, threshold=0.8)
    assert len(set(found.text.words)) == len(found.text.words)


@pytest.mark.parametrize("seed", range(3))
def test_gensim_finds_the_same(seed: int) -> None:
    """Its score has the number of different words and pairs in place of the number of words."""
    sentences = [[word for word in sentence if word != "?"] for sentence in random_sentences(seed, "abcdefghij", 99)]
    sentences = [sentence for sentence in sentences if sentence]
    theirs = GensimPhrases(sentences, min_count=2, threshold=0.2)
    total = sum(map(len, sentences))
    ours = join_phrases(text_of(sentences), 1, delta=2, threshold=0.2 * total / len(theirs.vocab))
    assert ours.phrases is not None
    assert len(ours.phrases.pairs) > 3
    assert sentences_of(ours.text) == [list(theirs[sentence]) for sentence in sentences]
    names = ours.text.words[len(SPECIALS) + 10 :]
    assert sorted(names) == sorted(theirs.export_phrases())


def test_parts_and_files_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> Phrased:
        return join_phrases(text_of(random_sentences(5)), 2, delta=0, threshold=1.5)

    whole = found()
    monkeypatch.setattr(module, "_CHUNK", 3)
    monkeypatch.setenv("FIRTH_MEMORY", "0")
    parts = found()
    assert parts.text.ids.tolist() == whole.text.ids.tolist()
    assert parts.text.sentences.tolist() == whole.text.sentences.tolist()
    buffer = parts.text.ids
    while isinstance(buffer, np.ndarray):
        buffer = buffer.base
    assert isinstance(buffer, mmap)


def test_texts_without_phrases() -> None:
    text = text_of([["a"], ["b"], [], ["?"]])
    found = join_phrases(text, 2)
    assert found.text.words == text.words
    assert found.phrases is None
    assert join_phrases(text_of([["a", "b"]] * 9), 0).text.ids.tolist() == [5, 6] * 9


@pytest.mark.parametrize("settings", [{"delta": -1}, {"delta": np.nan}, {"threshold": 0}, {"threshold": np.inf}])
def test_impossible_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="above 0"):
        join_phrases(text_of([["a", "b"]]), 1, **settings)
    with pytest.raises(RecipeError, match="rounds=5"):
        join_phrases(text_of([["a", "b"]]), 5)


@pytest.mark.parametrize(
    "pairs",
    [
        np.zeros((2, 2), dtype=np.int32),
        np.zeros(3, dtype=np.int32),
        np.array([[5, 6, 0]], dtype=np.int64),
        np.array([[4, 6, 0]], dtype=np.int32),
        np.array([[5, 8, 0]], dtype=np.int32),
        np.array([[5, 6, -1]], dtype=np.int32),
        np.array([[5, 6, 10**9]], dtype=np.int32),
        np.array([[6, 5, 0], [5, 6, 0]], dtype=np.int32),
    ],
)
def test_damaged_phrases(pairs: Any) -> None:
    with pytest.raises(ArtifactError, match="'phrases'"):
        restore_phrases(pairs, 8)


@pytest.mark.parametrize("kind", ["onehot", "tfidf", "brown"])
def test_models_with_phrases(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for number in range(600):
        words = [f"w{word}" for word in rng.integers(0, 60, size=6)]
        if number % 30 == 0:
            words[2:4] = ["new", "york"]
        lines.append(" ".join(words) + ("\n" if number % 10 == 0 else ""))
    (tmp_path / "text.txt").write_text("\n".join(lines))
    settings = ("--set", "phrases=2", "--set", "tokenizer.min_count=1")
    outcome = firth("train", kind, tmp_path / "text.txt", "-o", tmp_path / "model", *settings)
    assert outcome.code == 0, outcome.err
    model = load(tmp_path / "model")
    assert model.words[-1] == "new_york"
    assert model.similarity("new_york", "new_york") == pytest.approx(1)
    assert model.similar("new_york", 3)
    vector = np.asarray(model.embed(["new york"]).sum(axis=0)).reshape(-1)
    buffer = model.row("new_york") if kind != "brown" else model.clusters[model.row("new_york")]
    assert vector[buffer] == vector.sum() == 1
