"""N-gram models: scoring, saving, pruning, packing, invalid recipes."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import firth
from firth.abilities import Generates, Scores, total
from firth.counts.ngram import NgramModel, restore_ngram
from firth.counts.recipe import SMOOTHINGS, WITH_BACKOFF, NgramRecipe
from firth.counts.train import train_on_sentences
from firth.counts.trie import pack_counts, unpack_counts
from firth.decoding.sampling import Sampling, sampling_probabilities
from firth.errors import ArgumentError, ArtifactError, RecipeError
from firth.lm.language_model import TokenStream
from firth.text.corpus import read_corpus
from firth.tokens.tokenizer import EOS, UNK
from tests.samples import CHINESE, ENGLISH, KINDS


def zipf_sentences(seed: int, sentences: int = 200, words: int = 30) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{min(words, rng.zipf(1.3))}" for _ in range(rng.integers(1, 15))) for _ in range(sentences)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> NgramModel:
    return train_on_sentences(zipf_sentences(1), NgramRecipe(order=4))


def histories(model: NgramModel, count: int, seed: int = 0) -> list[list[int]]:
    """Random histories, most of them unseen."""
    rng = np.random.default_rng(seed)
    return [
        [
            int(word)
            for word in rng.integers(1, model.trie.vocab_size, size=rng.integers(0, 6))
            if word in (UNK, EOS) or word > 4
        ]
        for _ in range(count)
    ]


@pytest.mark.parametrize("smoothing", [name for name in SMOOTHINGS if name != "stupid"])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_every_distribution_sums_to_one(smoothing: str, order: int) -> None:
    if smoothing == "church-gale":
        order = 2
    for interpolate in (True, False) if smoothing in WITH_BACKOFF else (True,):
        recipe = NgramRecipe(order=order, smoothing=smoothing, interpolate=interpolate)  # type: ignore[arg-type]
        model = train_on_sentences(zipf_sentences(order), recipe)
        for history in histories(model, 60):
            logs = model.next_logprobs(history)
            assert abs(np.exp(logs).sum() - 1) < 1e-9, history
            assert not np.isnan(logs).any()
            assert (logs[[0, 2, 4]] == -np.inf).all(), "padding, beginning and mask are never predicted"


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_token_and_next_word_probabilities_agree(smoothing: str) -> None:
    recipe = NgramRecipe(order=2 if smoothing == "church-gale" else 4, smoothing=smoothing)  # type: ignore[arg-type]
    model = train_on_sentences(zipf_sentences(3), recipe)
    for history in histories(model, 40, seed=2):
        words = [word for word in history if word != EOS]
        logs = model.token_logprobs(TokenStream.of([words]))
        expected = [model.next_logprobs(words[:position])[word] for position, word in enumerate([*words, EOS])]
        assert logs.tolist() == pytest.approx(expected, abs=1e-12)


def test_top_words_equal_the_sorted_distribution(model: NgramModel) -> None:
    for history in histories(model, 50):
        logs = model.next_logprobs(history)
        order = np.lexsort((np.arange(logs.size), -logs))
        for top in (1, 5, 100):
            ids, scores = model.top_next(history, top)
            expected = order[: min(top, int(np.isfinite(logs).sum()))]
            assert ids.tolist() == expected.tolist()
            assert scores.tolist() == pytest.approx(logs[expected].tolist())
    assert model.next("w1", 3) == [
        (model.tokenizer.vocabulary[word], pytest.approx(p)) for word, p in _best(model, model.history("w1"), 3)
    ]
    assert len(model.next("w1", None)) == model.trie.vocab_size - 3


def _best(model: NgramModel, history: list[int], top: int) -> list[tuple[int, float]]:
    logs = model.next_logprobs(history)
    return [(int(word), float(np.exp(logs[word]))) for word in np.argsort(-logs, kind="stable")[:top]]


def test_sampling_follows_the_probabilities(model: NgramModel) -> None:
    """The first word drawn, 20,000 times, against its distribution: chi-squared on words expected at least 20 times."""
    history = model.history("w1 w2")
    p = np.exp(model.next_logprobs(history))
    drawn = Counter(words[0] if words else EOS for words in model.sample(history, 20_000, 1, seed=5))
    expected = 20_000 * p
    common = np.flatnonzero(expected >= 20)
    statistic = sum((drawn[int(word)] - expected[word]) ** 2 / expected[word] for word in common)
    assert statistic < common.size + 4 * math.sqrt(2 * common.size)
    assert sum(drawn[int(word)] for word in common) / 20_000 == pytest.approx(p[common].sum(), abs=0.01)


def test_drawing_from_a_pruned_model_follows_the_probabilities_too() -> None:
    model = train_on_sentences(zipf_sentences(1), NgramRecipe(order=3, prune=1e-3))
    history = model.history("w1 w3")
    p = np.exp(model.next_logprobs(history))
    drawn = Counter(words[0] if words else EOS for words in model.sample(history, 20_000, 1, seed=6))
    common = np.flatnonzero(20_000 * p >= 20)
    statistic = sum((drawn[int(word)] - 20_000 * p[word]) ** 2 / (20_000 * p[word]) for word in common)
    assert statistic < common.size + 4 * math.sqrt(2 * common.size)


def test_generation_follows_the_seed_and_its_limits(model: NgramModel) -> None:
    assert model.generate(seed=3, count=2) == model.generate(seed=3, count=2) != model.generate(seed=4, count=2)
    assert all(len(text.split()) <= 5 for text in model.generate(count=20, length=5))
    greedy = model.generate("w1", length=1, top_k=1)[0].split()
    best = model.next("w1", 1)[0][0]
    assert greedy == (["w1"] if best == "</s>" else ["w1", best])
    assert model.generate("w1 w2", length=3, temperature=0.5, top_p=0.9, seed=1)[0].startswith("w1 w2")


def test_certain_models_write_without_end_and_stop() -> None:
    """Nothing is left for unseen words: drawing must not look for some forever."""
    model = train_on_sentences(["a b c"] * 3, NgramRecipe(order=3, smoothing="mle"))
    assert model.generate(count=3) == ["a b c"] * 3


def test_sharpening_by_hand() -> None:
    logs = np.log([0.5, 0.25, 0.125, 0.125])
    squared = sampling_probabilities(logs, Sampling(0.5))
    assert squared.tolist() == pytest.approx(np.array([16, 4, 1, 1]) / 22)
    assert sampling_probabilities(logs, Sampling(top_p=0.7)).tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert sampling_probabilities(logs, Sampling(0)).tolist() == [1, 0, 0, 0]
    with pytest.raises(ArgumentError, match="give 0"):
        Sampling(-1).check()


def test_it_offers_its_abilities_and_scores_add_up(tmp_path: Path) -> None:
    model = firth.train("mkn3", [ENGLISH, CHINESE], out=tmp_path / "m")
    assert isinstance(model, Scores)
    assert isinstance(model, Generates)
    texts = [*ENGLISH, *CHINESE]
    together = total(model.score(texts))
    alone = total(model.score([text])[0] for text in texts)
    assert together.logprob == pytest.approx(alone.logprob)
    assert (together.tokens, together.bytes, together.oov) == (alone.tokens, alone.bytes, alone.oov)
    assert together.words == sum(len(read_corpus([["x"]]).words(text)) for text in texts)


def test_many_sentences_are_scored_in_threads_with_the_same_result(model: NgramModel) -> None:
    texts = zipf_sentences(9, sentences=2000)
    together = model.score(texts)
    alone = [model.score([text])[0] for text in texts[:100]]
    assert together[:100] == alone
    assert model.score([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_tokenizer_carries_it(kind: str, tmp_path: Path) -> None:
    size = "tokenizer.vocab_size=300" if kind not in ("words", "chars") else "order=3"
    model = firth.train("mkn3", [ENGLISH, CHINESE], out=tmp_path / "m", settings=[f"tokenizer={kind}", size])
    scores = model.score([*ENGLISH, *CHINESE])
    assert all(np.isfinite(score.logprob) and score.logprob < 0 for score in scores)
    assert total(scores).oov == 0
    assert firth.load(tmp_path / "m").score(ENGLISH) == model.score(ENGLISH)


def test_a_budget_of_tokens_stops_at_a_sentence(tmp_path: Path) -> None:
    firth.train("words", [["a b c", "d e", "f"]], out=tmp_path / "w")
    for most, counted, sentences in ((5, 5, 2), (4, 3, 1), (1, 3, 1), (100, 6, 3)):
        out = tmp_path / str(most)
        model = firth.train("unigram", [["a b c", "d e", "f"]], out=out, tokenizer=tmp_path / "w", budget=f"{most}tok")
        info = firth.info(out)
        assert (info["budget"]["spent"]["tokens"], np.asarray(model.trie.counts)[EOS]) == (counted, sentences)


def test_a_budget_of_time_is_kept(tmp_path: Path) -> None:
    firth.train("unigram", [["a b c"] * 1000], out=tmp_path / "m", budget="1s")
    assert firth.info(tmp_path / "m")["budget"]["spent"]["seconds"] < 30


def test_wrong_arrays_are_refused(model: NgramModel) -> None:
    good = model.arrays()
    recipe = NgramRecipe(order=4)
    assert restore_ngram(recipe, good, model.tokenizer, "lines").score(["w1 w2"]) == model.score(["w1 w2"])
    bad: list[dict[str, np.ndarray]] = [
        {},
        {**good, "words": good["words"][1:]},
        {**good, "words": good["words"].astype(np.int64)},
        {**good, "first": good["first"][:-1]},
        {**good, "levels": good["levels"][::-1].copy()},
        {**good, "counts": good["counts"][1:]},
    ]
    for arrays in bad:
        with pytest.raises(ArtifactError, match="train"):
            restore_ngram(recipe, arrays, model.tokenizer, "lines")


def test_counts_survive_packing() -> None:
    counts = np.array([0, 1, 254, 255, 256, 1 << 33])
    packed = unpack_counts(pack_counts(counts), 6)
    assert np.asarray(packed).tolist() == counts.tolist()
    assert pack_counts(packed)["counts"].dtype == np.uint8


@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "additive", "katz", "witten-bell", "mle"])
@pytest.mark.parametrize(
    "setting", [{"min_counts": "1,1,2"}, {"prune": 1e-4}, {"precision": "8bit"}, {"precision": "float32"}]
)
def test_small_models_still_sum_to_one(smoothing: str, setting: dict[str, object]) -> None:
    recipe = NgramRecipe(order=3, smoothing=smoothing, **setting)  # type: ignore[arg-type]
    model = train_on_sentences(zipf_sentences(4, sentences=400, words=60), recipe)
    # A float32 logarithm is right to 6e-8, and a vocabulary of 60 cannot even that out.
    tolerance = 1e-7 if setting.get("precision") == "float32" else 1e-9
    for history in histories(model, 60):
        assert abs(np.exp(model.next_logprobs(history)).sum() - 1) < tolerance


def test_pruning_drops_the_least_important_n_grams_first() -> None:
    sentences = zipf_sentences(5, sentences=1000, words=60)
    test = zipf_sentences(6, sentences=300, words=60)
    sizes, perplexities = [], []
    for prune in (0.0, 1e-6, 1e-4, 1e-2):
        model = train_on_sentences(sentences, NgramRecipe(order=3, prune=prune))
        sizes.append(model.trie.words.size)
        perplexities.append(total(model.score(test)).perplexity)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[2] > sizes[3]
    assert perplexities[1] < perplexities[0] * 1.01
    cut = train_on_sentences(sentences, NgramRecipe(order=3, min_counts="1,2,3"))
    counts = np.asarray(cut.trie.counts)
    assert counts[cut.trie.level(2)].min() == 2
    assert counts[cut.trie.level(3)].min() == 3


def test_a_byte_a_probability_costs_little() -> None:
    sentences, test = zipf_sentences(5, sentences=1000, words=200), zipf_sentences(6, sentences=300, words=200)
    exact = train_on_sentences(sentences, NgramRecipe(order=3))
    small = train_on_sentences(sentences, NgramRecipe(order=3, precision="8bit"))
    assert small.logp.dtype == np.uint8
    ratio = total(small.score(test)).perplexity / total(exact.score(test)).perplexity
    assert 0.99 < ratio < 1.02
    assert 1 <= small.parameters["quantised_perplexity_ratio"] < 1.05


def test_stupid_back_off_says_that_it_is_no_probability(model: NgramModel) -> None:
    stupid = train_on_sentences(zipf_sentences(1), NgramRecipe(order=3, smoothing="stupid"))
    assert (stupid.score_kind, model.score_kind) == ("pseudo", "causal")


def test_one_sentence_alone(model: NgramModel) -> None:
    for text in [*zipf_sentences(2, sentences=30), "w1 zzz w2", "<unk> w1 </s>"]:
        assert model.log_probability(text) == pytest.approx(model.score([text])[0].logprob, abs=1e-12)


def test_explaining(model: NgramModel) -> None:
    [rows] = model.explain("w1 w2 w1 zzz")
    assert [row["token"] for row in rows] == ["w1", "w2", "w1", "<unk>", "</s>"]
    assert sum(row["logprob"] for row in rows) == pytest.approx(model.score(["w1 w2 w1 zzz"])[0].logprob)
    for row in rows:
        assert row["order"] == len(row["history"]) + 1
        node = model.trie.find([model.tokenizer.id(word) for word in [*row["history"], row["token"]]])
        assert node is not None
        assert row["logprob"] == pytest.approx(float(model.logp[node]) + sum(row["backoffs"]))
    assert rows[-1]["order"] == 1, "after an unknown word only the unigram is left"
    flat = train_on_sentences(zipf_sentences(1), NgramRecipe(order=3, smoothing="additive"))
    assert flat.explain("w1 zzz w2")[0][2]["order"] == 0


def test_an_open_vocabulary_gives_unknown_words_a_share_and_a_closed_one_does_not() -> None:
    for smoothing in ("modified-kneser-ney", "additive", "witten-bell", "katz", "good-turing"):
        for kind in ("open", "closed"):
            recipe = NgramRecipe(order=2, smoothing=smoothing, vocabulary=kind)  # type: ignore[arg-type]
            model = train_on_sentences(zipf_sentences(1), recipe)
            p = np.exp(model.next_logprobs([]))
            assert p.sum() == pytest.approx(1, abs=1e-9)
            assert (p[UNK] > 0) == (kind == "open")


def test_rare_words_train_the_unknown_one() -> None:
    recipe = firth.find_recipe("mkn3")
    from firth.recipes.values import override

    rare = train_on_sentences(["a b c", "a b d", "a e"], override(recipe, ["tokenizer.min_count=2"]))  # type: ignore[arg-type]
    assert np.asarray(rare.trie.counts)[UNK] == 3
    score = rare.score(["a zzz"])[0]
    assert score.oov == 1
    assert score.oov_logprob == pytest.approx(rare.next_logprobs(rare.history("a"))[UNK])
    assert score.known_perplexity == pytest.approx(math.exp(-(score.logprob - score.oov_logprob) / 2))


@pytest.mark.parametrize(
    "texts",
    [["a"], ["a a a a"], ["a"] * 50, ["the same sentence again"] * 20, ["x y"], ["a", "b"]],
    ids=["one word", "one word four times", "one-word sentences", "repeated", "two words", "two sentences"],
)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_tiny_and_repetitive_corpora(texts: list[str], smoothing: str) -> None:
    """Counts of counts that support nothing, orders beyond the sentence length: correct models, never NaN."""
    recipe = NgramRecipe(order=2 if smoothing == "church-gale" else 6, smoothing=smoothing)  # type: ignore[arg-type]
    model = train_on_sentences(texts, recipe)
    for history in ([], [5], [UNK], [5, 5, 5, 5, 5, 5, 5], [5, EOS]):
        logs = model.next_logprobs(history)
        assert not np.isnan(logs).any()
        if smoothing != "stupid":
            assert np.exp(logs).sum() == pytest.approx(1, abs=1e-9)
    assert model.score([texts[0]])[0].logprob <= 1e-12
    assert len(model.generate(count=3, length=10)) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"order": 0}, "1 to 8"),
        ({"order": 3, "smoothing": "church-gale"}, "order=2"),
        ({"delta": 1.0}, "belongs to additive"),
        ({"smoothing": "additive", "delta": 0.0}, "above 0"),
        ({"smoothing": "absolute", "discount": 1.0}, "between 0 and 1"),
        ({"discounts": "0.5,1"}, "D1,D2,D3"),
        ({"discounts": "a,b,c"}, "numbers"),
        ({"min_counts": "2,1"}, "fall"),
        ({"min_counts": "0"}, "1 or more"),
        ({"prune": 1.5}, "small fraction"),
        ({"smoothing": "katz", "interpolate": False}, "not for katz"),
        ({"smoothing": "bayes", "prior": -1.0}, "above 0"),
    ],
)
def test_impossible_recipes_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        NgramRecipe(**fields)  # type: ignore[arg-type]


def test_fixed_parameters_are_used_and_kept(tmp_path: Path) -> None:
    model = firth.train("mkn3", [ENGLISH], out=tmp_path / "m", settings=["discounts=0.4,0.9,1.3"])
    assert model.parameters["discounts"]["3"] == [0.4, 0.9, 1.3]
    assert firth.info(tmp_path / "m")["metrics"]["parameters"] == model.parameters
    assert firth.load(tmp_path / "m").parameters == model.parameters
