"""Words by their vectors: spelling, neighbours, analogies, texts; gensim gives the same answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from firth.errors import AbilityError, ArgumentError, ArtifactError
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors.bag import BagModel
from firth.vectors.lookup import suggest_spellings
from firth.vectors.model import VectorModel
from firth.vectors.phrases import Phrases
from firth.vectors.subwords import restore_subwords
from tests.vectors.small_models import small_model

WORDS = ["the", "king", "queen", "man", "woman", "football", "足球", "naïve"]
IN_GENSIM = pytest.mark.filterwarnings("ignore:Call to deprecated `init_sims`:DeprecationWarning")
PLANE = [[1, 1], [4, 1], [4, 3], [1, 0], [1, 2], [-1, 5], [-2, 5], [0, -1]]


@pytest.fixture
def model() -> VectorModel:
    return small_model(WORDS, PLANE)


def random_model(rows: int = 500, dimension: int = 20) -> tuple[VectorModel, KeyedVectors]:
    words = [f"w{number}x" for number in range(rows)]
    vectors = np.random.default_rng(0).standard_normal((rows, dimension)).astype(np.float32)
    peer = KeyedVectors(dimension)
    peer.add_vectors(words, vectors)
    return small_model(words, vectors), peer


def assert_same(ours: list[tuple[str, float]], theirs: list[tuple[str, float]]) -> None:
    assert [word for word, _ in ours] == [word for word, _ in theirs]
    assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-5)


def test_words_are_found_as_given_or_as_the_tokenizer_writes_them(model: VectorModel) -> None:
    assert model.row("king") == FIRST_WORD + 1
    assert model.row("KING") == FIRST_WORD + 1
    assert model.row("nai\u0308ve") == FIRST_WORD + 7, "not composed"
    assert model.row("足球") == FIRST_WORD + 6
    assert model.vector("queen").tolist() == [4, 3]


def test_a_model_is_used_like_the_vectors_of_gensim(model: VectorModel) -> None:
    assert len(model) == len(WORDS)
    assert list(model) == WORDS, "words, as of a dictionary"
    assert "king" in model
    assert "KING" in model, "it is found, so it is there"
    assert "prince" not in model
    assert 7 not in model
    assert model["queen"].tolist() == [4, 3]
    assert model[["queen", "man"]].tolist() == [[4, 3], [1, 0]]
    assert model[[]].size == 0
    assert {word: model[word][0] for word in model if word.startswith("m")} == {"man": 1}
    with pytest.raises(KeyError, match="there is no vector for 'prince'"):
        model["prince"]
    with pytest.raises(ArgumentError, match="word must be a string, not 7"):
        model[7]  # type: ignore[index]
    model.rows = {}
    assert bool(model), "a model without words is still a model"


def test_models_without_dense_vectors_say_so() -> None:
    model = object.__new__(BagModel)
    with pytest.raises(AbilityError, match="a BagModel has no dense vectors of words"):
        model["king"]


def test_a_model_prints_a_summary(model: VectorModel) -> None:
    assert repr(model) == (
        "<VectorModel: words 8, dimension 2, architecture skipgram, window 5, tokenizer words, vocabulary 13, "
        "methods similar, vector, analogy, embed>"
    )
    assert model._repr_html_().startswith(
        "<table><caption><b>VectorModel</b></caption><tr><th>words</th><td>8</td></tr>"
    )


def test_case_counts_where_the_tokenizer_keeps_it() -> None:
    model = small_model(["Polish", "polish"], [[1, 0], [0, 1]], lowercase=False)
    assert model.vector("Polish").tolist() == [1, 0]
    with pytest.raises(AbilityError, match="did you mean 'Polish' or 'polish'"):
        model.row("POLISH")


@pytest.mark.parametrize("word", ["footbal", "footbll", "foootball", "fotoball", "Futball"])
def test_an_unknown_word_is_refused_with_spelling_suggestions(model: VectorModel, word: str) -> None:
    with pytest.raises(AbilityError, match=f"there is no vector for '{word}': did you mean 'football'?"):
        model.similar(word)


@pytest.mark.parametrize("word", ["", " ", "xqzvkjwpl", "<unk>", "<pad>", "the king", "\0", "a\nb"])
def test_what_is_no_word_has_no_vector(model: VectorModel, word: str) -> None:
    with pytest.raises(AbilityError, match="there is no vector"):
        model.vector(word)


def test_spelling_suggestions_are_frequent_ones_first() -> None:
    known = {word: position for position, word in enumerate(["cart", "cat", "can", "cab", "dog"])}
    assert suggest_spellings("caz", known) == ["cat", "can", "cab"]
    assert suggest_spellings("a" * 5000, known) == []


def test_unknown_words_may_be_composed_of_their_characters() -> None:
    class Spelled(VectorModel):
        def oov_vector(self, word: str) -> np.ndarray | None:
            return np.array([4.0, 3.0], dtype=np.float32) if word.startswith("queen") else None

    plain = small_model(WORDS, PLANE)
    model = Spelled(plain.recipe, plain.tokenizer, "lines", plain.vectors)
    assert model.similar("Queenly", 1) == [("queen", pytest.approx(1.0))]
    assert model.similarity("queenly", "queen") == pytest.approx(1)
    with pytest.raises(AbilityError, match="no vector"):
        model.similarity("kingly", "queen")


def test_similarity_and_distance(model: VectorModel) -> None:
    assert model.similarity("man", "the") == pytest.approx(0.5**0.5)
    assert model.distance("man", "the") == pytest.approx(1 - 0.5**0.5)
    assert model.similarity("queen", "queen") == 1.0


def test_neighbours_leave_out_the_word_and_others(model: VectorModel) -> None:
    assert [word for word, _ in model.similar("King", 3)] == ["man", "queen", "the"]
    assert [word for word, _ in model.similar("king", 2, exclude=["queen", "nowhere"])] == ["man", "the"]
    assert len(model.similar("king", 100)) == len(WORDS) - 1
    with pytest.raises(AbilityError, match="one vector for a word"):
        model.similar("king", context="the king of spades")


def test_an_analogy_by_hand() -> None:
    model = small_model(WORDS[:5], [[1, 1, 9], [4, 1, 0], [4, 2, 0], [1, 1, 0], [1, 2, 0]])
    assert model.analogy(["king", "woman"], ["man"])[0][0] == "queen"
    with pytest.raises(AbilityError, match="at least one positive word"):
        model.analogy([], ["man"])


def test_the_odd_one_out(model: VectorModel) -> None:
    assert model.odd_one_out(["king", "queen", "man", "football"]) == "football"
    with pytest.raises(AbilityError, match="three words"):
        model.odd_one_out(["king", "queen"])


@IN_GENSIM
def test_gensim_finds_the_same() -> None:
    model, peer = random_model()
    for word in ("w0x", "w77x", "w499x"):
        assert_same(model.similar(word, 15), peer.most_similar(word, topn=15))
        assert model.similarity(word, "w5x") == pytest.approx(float(peer.similarity(word, "w5x")), abs=1e-6)
        assert model.distance(word, "w5x") == pytest.approx(float(peer.distance(word, "w5x")), abs=1e-6)
    questions = [(["w1x", "w2x"], ["w3x"]), (["w9x"], ["w8x", "w7x"]), (["w4x", "w5x", "w6x"], [])]
    for positive, negative in questions:
        ours, theirs = model.analogy(positive, negative), peer.most_similar(positive=positive, negative=negative)
        assert_same(ours, theirs)
        ours = model.analogy(positive, negative, method="mul")
        assert_same(ours, peer.most_similar_cosmul(positive=positive, negative=negative))
    for start in range(0, 100, 7):
        words = [f"w{number}x" for number in range(start, start + 5)]
        assert model.odd_one_out(words) == peer.doesnt_match(words)


def test_the_index_is_built_only_on_demand() -> None:
    model, _ = random_model()
    exact = model.similar("w3x")
    assert "_index" not in vars(model)
    assert len({word for word, _ in model.similar("w3x", approximate=True)} & {word for word, _ in exact}) >= 9
    assert model.index() is model.index()


def test_texts_are_the_means_of_their_words(model: VectorModel) -> None:
    texts = ["The king, the unheard-of queen", "", "nothing known", "我喜欢足球", "king\nqueen\0king", "<unk> <pad>"]
    mean = np.array([(1 + 4 + 1 + 4) / 4, (1 + 1 + 1 + 3) / 4])
    expected = [mean, [0, 0], [0, 0], [-2, 5], [4, 5 / 3], [0, 0]]
    found = model.embed(texts)
    assert found.dtype == np.float32
    assert found == pytest.approx(np.array(expected), abs=1e-6)
    assert model.embed([]).shape == (0, 2)


def test_many_texts_are_what_one_by_one_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.vectors.model._TEXTS", 7)
    model, _ = random_model(50, 6)
    random = np.random.default_rng(1)
    texts = [" ".join(f"w{number}x" for number in random.integers(0, 60, random.integers(0, 9))) for _ in range(40)]
    assert np.array_equal(model.embed(texts), np.vstack([model.embed([text]) for text in texts]))


def phrase_model() -> VectorModel:
    words = ["new", "york", "times", "in"]
    first = FIRST_WORD + len(words)
    pairs = np.array([[FIRST_WORD, FIRST_WORD + 1, 0], [first, FIRST_WORD + 2, 1]], dtype=np.int32)
    rows = np.vstack([np.zeros((FIRST_WORD, 2)), [[1, 0], [2, 0], [3, 0], [4, 0], [0, 5], [0, 6]]]).astype(np.float32)
    plain = small_model(words, rows[FIRST_WORD:-2])
    return VectorModel(plain.recipe, plain.tokenizer, "lines", rows, phrases=Phrases(pairs, first))


def test_phrases_are_words_too() -> None:
    model = phrase_model()
    assert model.words[-2:] == ["new_york", "new_york_times"]
    assert model.vector("new_york").tolist() == [0, 5]
    assert model.vector("New York Times").tolist() == [0, 6]
    assert model.embed(["in New York", "new", "york", "times in new york times"]) == pytest.approx(
        np.array([[2, 2.5], [1, 0], [2, 0], [7 / 3, 2]]), abs=1e-6
    )
    again = restore_subwords(model.recipe, model.arrays(), model.tokenizer, "lines")
    assert again.words == model.words
    assert again.embed(["in new york"]).tolist() == model.embed(["in new york"]).tolist()


def test_a_model_is_restored_from_its_arrays(model: VectorModel) -> None:
    arrays = model.arrays() | {"outputs": np.ones((3, 2), dtype=np.float32)}
    again = restore_subwords(model.recipe, arrays, model.tokenizer, "lines")
    assert again.words == model.words
    assert again.arrays().keys() == arrays.keys()
    assert again.similar("king") == model.similar("king")


BROKEN = {
    "no vectors": {"vectors": None},
    "too few rows": {"vectors": np.zeros((4, 2), np.float32)},
    "wrong numbers": {"vectors": np.zeros((13, 2))},
    "no dimensions": {"vectors": np.zeros((13, 0), np.float32)},
    "wrong counts": {"counts": np.zeros(12, np.int64)},
    "other counts": {"counts": np.zeros(13, np.int32)},
    "flat outputs": {"outputs": np.zeros(13, np.float32)},
    "phrases of two columns": {"phrases": np.zeros((1, 2), np.int32)},
    "phrases of later words": {"phrases": np.array([[5, 13, 0]], np.int32)},
}


@pytest.mark.parametrize("change", BROKEN)
def test_arrays_that_do_not_fit_are_refused(model: VectorModel, change: str) -> None:
    arrays = {name: array for name, array in (model.arrays() | BROKEN[change]).items() if array is not None}
    with pytest.raises(ArtifactError, match="train the model again"):
        restore_subwords(model.recipe, arrays, model.tokenizer, "lines")


def test_a_read_only_map_serves(tmp_path: Path) -> None:
    plain, _ = random_model(40, 8)
    np.save(tmp_path / "vectors.npy", plain.vectors)
    held = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    model = VectorModel(plain.recipe, plain.tokenizer, "lines", held)
    assert model.similar("w3x") == plain.similar("w3x")
    assert np.array_equal(model.embed(["w3x w4x"]), plain.embed(["w3x w4x"]))


@IN_GENSIM
@pytest.mark.shared
def test_gensim_finds_the_same_among_real_words(shared_data: Path) -> None:
    import gzip

    from gensim.models import Word2Vec

    with gzip.open(shared_data / "lm" / "wiki_en.txt.gz", "rt", encoding="utf-8") as file:
        lines = [[word for word in line.lower().split() if word.isalpha() and word.isascii()] for line in file][:6000]
    peer = Word2Vec(lines, vector_size=30, min_count=8, epochs=1, seed=1, workers=1).wv
    model = small_model(list(peer.index_to_key), peer.vectors)
    for word in peer.index_to_key[::50]:
        assert_same(model.similar(word), peer.most_similar(word))
    three = peer.index_to_key[100:103]
    assert_same(model.analogy(three[:2], three[2:]), peer.most_similar(positive=three[:2], negative=three[2:]))
    ours = model.analogy(three[:2], three[2:], method="mul")
    assert_same(ours, peer.most_similar_cosmul(positive=three[:2], negative=three[2:]))
