"""The linear tagger: features, the CRF against enumeration of all tag sequences, training, artifacts, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError, CorpusError, RecipeError
from firth.fit.examples import read_all
from firth.fit.finetune import finetune
from firth.fit.linear import TAGGER_COSTS, resolve_linear, train_tagger
from firth.fit.resolve_task import FinetuneConfig
from firth.fit.train import train
from firth.metrics.tags import Scheme, fault_table, is_fault, scheme_of, segment_tags, tag_pairs
from firth.tasks._crf_kernels import adagrad_epoch, emit, marginals, viterbi
from firth.tasks.crf import Crf
from firth.tasks.examples import TagExample
from firth.tasks.linear_tagger import FORBIDDEN, LinearTagger, restore_tagger
from firth.tasks.recipe import LinearRecipe
from firth.tasks.tag_features import FeatureExtractor, shape, word_strings
from firth.text.segment import make_segmenter
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.word_classes import WordClasses, word_key
from tests.command import firth

NAMES = ("anna", "bert", "carl", "dora")
THINGS = ("ball", "book", "lamp", "ship")
COLOURS = ("red", "blue", "green", "white")
PATTERN = ("B-NAME", "O", "O", "B-THING", "I-THING", "O")
ITEMS = [(f"{n} has a {c} {t} .".split(), list(PATTERN)) for n in NAMES for c in COLOURS for t in THINGS]
BIO = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
BIOES = ("B-X", "E-X", "I-X", "O", "S-X")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A tokenizer and an n-gram model."""
    folder = tmp_path_factory.mktemp("linear")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        for name, settings in (("words", ["min_count=1"]), ("kn3", ["tokenizer.min_count=1"])):
            lines = [[" ".join(words)] for words, _ in ITEMS]
            train(name, lines, out=folder / name, settings=settings, threads=1, reload=False)
        yield folder


@pytest.fixture(scope="module")
def words(folder: Path) -> Tokenizer:
    found = load(folder / "words")
    assert isinstance(found, Tokenizer)
    return found


def train_model(words: Tokenizer, items: list[Any], *settings: str, dev: list[Any] | None = None) -> LinearTagger:
    examples: list[Any] = read_all("tag", items)
    unseen: list[Any] = examples if dev is None else read_all("tag", dev)
    tuning = FinetuneConfig(task="tag", train=examples, dev=unseen, out=Path(), settings=settings)
    return train_tagger(resolve_linear(tuning, words), words, examples, unseen, seed=0)[0]


def looks(sentence: tuple[str, ...], place: int, kind: str) -> list[Any]:
    """The features of a word as they are written down, in the order of the columns."""

    def word(distance: int) -> list[str | None]:
        return word_strings(sentence[place + distance] if 0 <= place + distance < len(sentence) else "")

    lower = {distance: word(distance)[0] for distance in range(-2, 3)}
    shapes = {distance: word(distance)[1] for distance in (-1, 0, 1)}
    shared = ["always", *lower.values(), shapes[0]]
    if kind == "characters":
        pairs = [(lower[one], lower[one + 1]) for one in (-2, -1, 0, 1)]
        return [*shared, *pairs, (lower[-1], lower[1]), *[None] * 9]  # no segmenter finds words around them
    beside = [shapes[-1], shapes[1], (lower[-1], lower[0]), (lower[0], lower[1])]
    return [*shared, *word(0)[2:], *beside, (shapes[-1], shapes[0]), (shapes[0], shapes[1])]


@pytest.mark.parametrize("kind", ["tokens", "characters"])
@pytest.mark.parametrize("min_count", [1, 2])
def test_features_are_what_is_seen_around_a_word(kind: Any, min_count: int) -> None:
    texts = ["The U.N. said the man in Rome said so", "the Rome man", "", "so", "the U.N. said 1996-08-22"]
    examples = [TagExample(tuple(text.split())) for text in texts]
    extractor = FeatureExtractor(LinearRecipe(task="tag", features=kind))
    counts = extractor.fit(examples, min_count)
    found = extractor.extract(examples)
    plain = [
        [None if value is None else (column, value) for column, value in enumerate(looks(one.words, place, kind))]
        for one in examples
        for place in range(len(one.words))
    ]
    seen = [value for row in plain for value in row if value is not None]
    kept = {value for value in seen if seen.count(value) >= min_count}
    numbers: dict[Any, int] = {}
    for row, features in zip(plain, found.features.tolist(), strict=True):
        for value, feature in zip(row, features, strict=True):
            assert (feature >= 0) == (value in kept)
            if value in kept:
                assert numbers.setdefault(value, feature) == feature
    assert len(set(numbers.values())) == len(numbers) == len(kept) == extractor.keys.size
    assert {value: counts[number] for value, number in numbers.items()} == {value: seen.count(value) for value in kept}
    assert found.bounds.tolist() == [0, 9, 12, 12, 13, 17]


def test_characters_have_the_words_around_them() -> None:
    """Beside the 12 features above: words in sight, places in them, and both."""
    chinese = TagExample(("我", "喜", "欢", "语", "言"), spaced=False)
    recipe = LinearRecipe(task="tag", features="characters")
    columns = list(FeatureExtractor(recipe, make_segmenter()).columns([chinese]))
    assert len(columns) == 21
    around, places = ["我", "喜欢", "喜欢", "语言", "语言"], ["S", "B", "E", "B", "E"]

    def digest(words: list[str], place: int) -> int:
        text = words[place].encode() if 0 <= place < 5 else None
        return 0 if text is None else int.from_bytes(blake2b(text, digest_size=8).digest(), "little")

    for number, (words, distance) in enumerate(
        [*((around, one) for one in (-2, -1, 0, 1, 2)), *((places, one) for one in (-1, 0, 1))], start=12
    ):
        found = [digest(words, place + distance) for place in range(5)]
        expected = [mix(mix(number + 1, one), 0) if one else 0 for one in found]
        assert columns[number].view(np.uint64).tolist() == expected
    both = mix(mix(mix(21, digest(around, 2)), digest(places, 2)), 0)
    assert columns[20].view(np.uint64)[2] == both
    spaced = list(FeatureExtractor(recipe, make_segmenter()).columns([replace(chinese, spaced=True)]))
    assert not any(column.any() for column in spaced[12:])


def test_words_have_classes() -> None:
    """Those of five words at each level, and pairs of the finest; none of unknown words."""
    classes = WordClasses(np.array(sorted(map(word_key, ("rome", "said")))), np.array([[1, 2, 3], [4, 5, 6]], np.int16))
    extractor = FeatureExtractor(LinearRecipe(task="tag", features="tokens"), None, classes)
    plain = FeatureExtractor(LinearRecipe(task="tag", features="tokens"))
    example = TagExample(("Rome", "said", "so"))
    columns, before = list(extractor.columns([example])), list(plain.columns([example]))
    assert all(np.array_equal(one, two) for one, two in zip(columns, before, strict=False))
    more = np.array(columns[len(before) :])
    own = more.reshape(-1, 3)[:15].reshape(3, 5, 3)  # (levels, distances, words)
    assert ((own != 0) == [[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]]).all()
    for level, of_rome in enumerate((1, 2, 3) if word_key("rome") < word_key("said") else (4, 5, 6)):
        digest = int.from_bytes(blake2b(f"{level} {of_rome}".encode(), digest_size=8).digest(), "little")
        number = len(before) + 5 * level + 2  # of the template, from 0
        assert own.view(np.uint64)[level, 2, 0] == mix(mix(number + 1, digest), 0)
    assert FeatureExtractor(LinearRecipe(task="tag", features="characters"), None, classes).classes is None
    assert (more[15:] != 0).tolist() == [[False, True, False], [True, False, False]]


def mix(one: int, two: int) -> int:
    """SplitMix64 in Python's numbers."""
    mixed = ((one ^ two) + 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


def test_numbers_of_features_never_change() -> None:
    """Artifacts rely on them: they are the same on every machine and in every version."""
    extractor = FeatureExtractor(LinearRecipe(task="tag", features="tokens"))
    columns = list(extractor.columns([TagExample(("Anna", "语"))]))
    digests = [int.from_bytes(blake2b(one.encode(), digest_size=8).digest(), "little") for one in ("anna", "语")]
    assert columns[0].view(np.uint64).tolist() == [mix(1, 0)] * 2
    assert columns[3].view(np.uint64).tolist() == [mix(mix(4, one), 0) for one in digests]
    both = mix(mix(mix(18, digests[0]), digests[1]), 0)  # the word before and this one
    assert columns[17].view(np.uint64)[1] == both


def test_what_a_word_has_not_is_no_feature() -> None:
    """0 stands for what is not there, also where all known features are below it."""
    extractor = FeatureExtractor(LinearRecipe(task="tag", features="tokens"))
    extractor.keys = np.array([-5, -3])
    assert (extractor.extract([TagExample(("a",))]).features == -1).all()


@pytest.mark.parametrize(
    ("word", "wanted"),
    [("U.N.", "X.X."), ("McDonald", "XxXx"), ("22:05", "0:0"), ("语言", "c"), ("A4", "X0")],
)
def test_shapes(word: str, wanted: str) -> None:
    assert shape(word) == wanted


def every_row(emissions: Any, steps: Any) -> list[tuple[float, tuple[int, ...]]]:
    """All tag sequences of a sentence with their scores."""
    size = emissions.shape[1]
    found = []
    for row in product(range(size), repeat=len(emissions)):
        score = sum(emissions[place, tag] for place, tag in enumerate(row))
        score += sum(steps[one, two] for one, two in zip((size, *row), (*row, size), strict=True))
        found.append((float(score), row))
    return found


@pytest.mark.parametrize(("length", "labels"), [(1, 3), (2, 4), (5, 3)])
def test_the_field_against_all_rows_of_tags(length: int, labels: int) -> None:
    rng = np.random.default_rng((length, labels))
    emissions, steps = rng.normal(0, 3, (length, labels)), rng.normal(0, 2, (labels + 1, labels + 1))
    rows = every_row(emissions, steps)
    chances = np.exp([score for score, _ in rows])
    chances /= chances.sum()
    wanted, steps_wanted = np.zeros((length, labels)), np.zeros_like(steps)
    for chance, (_, row) in zip(chances, rows, strict=True):
        wanted[np.arange(length), row] += chance
        for one, two in zip((labels, *row), (*row, labels), strict=True):
            steps_wanted[one, two] += chance
    shares = np.zeros_like(steps)
    np.testing.assert_allclose(marginals(emissions, np.exp(steps), shares), wanted, atol=1e-12)
    np.testing.assert_allclose(shares, steps_wanted, atol=1e-12)
    assert tuple(viterbi(emissions, steps)) == max(rows)[1]


def test_the_field_is_the_one_of_networks() -> None:
    rng = np.random.default_rng(1)
    emissions, steps = rng.normal(0, 3, (7, 5)), rng.normal(0, 1, (6, 6))
    crf = Crf(BIO, constrained=True)
    with torch.no_grad():
        crf.start.copy_(torch.from_numpy(steps[5, :5]))
        crf.between.copy_(torch.from_numpy(steps[:5, :5]))
        crf.end.copy_(torch.from_numpy(steps[:5, 5]))
    barred = fault_table(BIO, "BIO")
    legal = np.where(barred, FORBIDDEN, steps)
    rows = torch.from_numpy(emissions)[None].requires_grad_()
    (theirs,) = torch.autograd.grad(crf.log_partition(rows, torch.tensor([7])).sum(), rows)  # its derivative
    ours = marginals(emissions, np.exp(legal), np.zeros((6, 6)))
    np.testing.assert_allclose(ours, theirs[0].numpy(), atol=1e-5)
    best = viterbi(emissions, legal)
    found = crf.decode(emissions)
    assert best.tolist() == found[0].tolist()
    np.testing.assert_allclose(ours[np.arange(7), best], found[1], atol=1e-5)


def test_a_step_goes_down_the_slope_of_the_loss() -> None:
    """AdaGrad's first step is  rate * slope / sqrt(first + slope^2), the slope being that of loss and decay."""
    rng = np.random.default_rng(2)
    weights, steps = rng.normal(0, 1, (4, 3)).astype(np.float32), rng.normal(0, 1, (4, 4))
    features = np.array([[0, 1], [2, -1], [3, -1]], dtype=np.int32)  # each once, so that each moves once
    tags, decay = np.array([2, 0, 1]), rng.uniform(0.1, 1, 4)

    def loss(weights: Any, steps: Any) -> float:
        rows = every_row(emit(features, weights), steps)
        gold = next(score for score, row in rows if row == tuple(tags))
        own = (decay[:, None] * weights**2).sum() / 2 + 0.3 * (steps**2).sum() / 2
        return float(np.log(np.exp([score for score, _ in rows]).sum()) - gold + own)

    new, new_steps = weights.copy(), steps.copy()
    adagrad_epoch(
        np.array([0]), np.array([0, 3]), features, tags, decay, 0.2, new, np.full_like(weights, 0.01), new_steps,
        np.full_like(steps, 0.01), np.zeros_like(steps), 0.3,
    )  # fmt: skip
    for before, after, which in ((weights, new, 0), (steps, new_steps, 1)):
        slopes = np.zeros(before.shape)
        for place in np.ndindex(*before.shape):
            ends = []
            for change in (1e-4, -1e-4):
                both = [weights.astype(np.float64), steps.copy()]
                both[which][place] += change
                ends.append(loss(*both))
            slopes[place] = (ends[0] - ends[1]) / 2e-4
        np.testing.assert_allclose(before - after, 0.2 * slopes / np.sqrt(0.01 + slopes**2), atol=1e-4)


@pytest.mark.parametrize(
    ("labels", "scheme"), [(BIO, "BIO"), (BIOES, "BIOES"), (("B", "E", "I", "S"), "BIES"), (BIO, "IOB1")]
)
def test_answers_never_break_the_scheme(labels: tuple[str, ...], scheme: Scheme, words: Tokenizer) -> None:
    """With any weights, also huge ones."""
    rng = np.random.default_rng(3)
    recipe = LinearRecipe(task="tag", labels=labels, scheme=scheme, features="tokens", tokenizer=words.recipe)
    examples = [TagExample(tuple(rng.choice(NAMES, size=size).tolist())) for size in (0, 1, 2, 3, 9, 40)]
    extractor = FeatureExtractor(recipe)
    extractor.fit(examples, 1)
    size = len(labels)
    for scale in (0.1, 100.0):
        weights = rng.normal(0, scale, (extractor.keys.size, size)).astype(np.float32)
        model = LinearTagger(recipe, words, extractor, weights, rng.normal(0, scale, (size + 1, size + 1)))
        for example, answer in zip(examples, model.predict_examples(examples), strict=True):
            assert len(answer["tags"]) == len(answer["probabilities"]) == len(example.words)
            assert not any(is_fault(*pair, scheme) for pair in tag_pairs(answer["tags"]))
            assert all(0 <= chance <= 1 + 1e-9 for chance in answer["probabilities"])


def test_a_sentence_that_no_legal_tags_fit(words: Tokenizer) -> None:
    """Three characters are not words of two; something is said nonetheless."""
    model = train_model(words, [(list("abab"), ["B", "E", "B", "E"])] * 2)
    assert model.recipe.scheme == "BIES"
    (answer,) = model.predict([["a", "b", "a"]])
    assert len(answer["tags"]) == 3
    assert np.isfinite(answer["probabilities"]).all()


@pytest.mark.parametrize("name", ["words", "kn3"])
def test_a_few_examples_are_memorised(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(4)
    given = [ITEMS[place] for place in rng.choice(len(ITEMS), size=4, replace=False)]
    tuned = finetune(folder / name, "tag", train=given, dev=given, test=given[:2], out=tmp_path / "m")
    assert "linear baseline is trained on words and their neighbours" in capsys.readouterr().err
    manifest = open_artifact(tmp_path / "m").manifest
    assert manifest.kind == "tasks"
    assert manifest.name == f"{name}-tag"
    assert manifest.metrics["dev"]["entity_f1"] == 1
    assert manifest.metrics["test"]["examples"] == 2
    assert manifest.recipe["scheme"] == "BIO"
    assert manifest.recipe["features"] == "tokens"
    assert manifest.recipe["cost"] == TAGGER_COSTS[0]  # the smallest of equals
    assert [row["cost"] for row in manifest.metrics["costs"]] == list(TAGGER_COSTS)
    asked = [words for words, _ in given]
    answers = load(tmp_path / "m").predict(asked)
    assert answers == tuned.predict(asked)
    assert [answer["tags"] for answer in answers] == [tags for _, tags in given]
    again = finetune(folder / name, "tag", train=given, dev=given, out=tmp_path / "n").arrays()
    assert all(np.array_equal(array, again[part]) for part, array in tuned.arrays().items())
    other = finetune(folder / name, "tag", train=given, dev=given, out=tmp_path / "o", seed=1).arrays()
    assert not np.array_equal(tuned.arrays()["weights"], other["weights"])


def test_random_tags_are_not_predicted(words: Tokenizer) -> None:
    rng = np.random.default_rng(5)
    given = [(sentence, rng.choice(["X", "Y"], size=6).tolist()) for sentence, _ in ITEMS]
    order = rng.permutation(len(given)).tolist()
    model = train_model(words, [given[one] for one in order[:32]], "min_count=1")
    right = [
        one == two
        for sentence, tags in (given[one] for one in order[32:])
        for one, two in zip(model.predict([sentence])[0]["tags"], tags, strict=True)
    ]
    assert abs(np.mean(right) - 0.5) < 0.18, "192 tags by chance: five standard deviations are 0.18"


def test_what_is_around_and_in_a_word_decides(words: Tokenizer) -> None:
    """Names that were never seen are known by the words beside them, their endings or their shape."""
    rng = np.random.default_rng(6)

    def item(part: int) -> Any:
        letters = "bcdfg" if part == 0 else "klmnp"
        one, two, three = ("".join(rng.choice(list(letters), size=5)) for _ in range(3))
        return f"mister {one} {two}burg {three.title()} {two} .".split(), ["O", "B-PER", "B-LOC", "B-ORG", "O", "O"]

    model = train_model(words, [item(0) for _ in range(60)])
    for sentence, tags in (item(1) for _ in range(20)):
        assert model.predict([sentence])[0]["tags"] == tags


def test_characters_have_bigram_features(words: Tokenizer) -> None:
    """Which characters are one word is only known from both of them."""
    rng = np.random.default_rng(7)
    both = [["甲乙", "乙丙", "丙甲"][number] for number in range(3)]
    items = []
    for _ in range(120):
        sentence = [str(word) for word in rng.choice([*both, "丁", "，"], size=6)]
        items.append((list("".join(sentence)), segment_tags(sentence)))
    model = train_model(words, items[:80], dev=items[80:])
    assert model.recipe.features == "characters"
    assert model.recipe.scheme == "BIES"
    examples = read_all("tag", items[80:])
    found = model.measure(examples, model.predict_examples(examples), samples=0)
    assert found["main"] == "word_f1"
    assert found["word_f1"] > 0.95


def test_the_command_line(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    sentences = ["".join(f"{word}\t{tag}\n" for word, tag in zip(*item, strict=True)) for item in ITEMS]
    file.write_text("\n".join(sentences), encoding="utf-8")
    out = tmp_path / "m"
    made = firth("finetune", folder / "words", "tag", "--train", file, "--dev", file, "-o", out, "--set", "cost=10")
    assert made.code == 0, made.err
    report = firth("predict", out, file, "--json").json
    assert report["examples"] == len(ITEMS)
    assert report["predictions"][0]["tags"] == list(PATTERN)
    found = firth("evaluate", out, "task", file, "--json").json
    assert found["entity_f1"] == open_artifact(out).manifest.metrics["dev"]["entity_f1"] == 1
    recipe = firth("info", out, "--json").json["recipe"]
    assert (recipe["type"], recipe["task"], recipe["cost"]) == ("linear", "tag", 10)


def test_refusals(folder: Path, tmp_path: Path) -> None:
    def tune(train: list[Any], dev: list[Any], **more: Any) -> Any:
        return finetune(folder / "words", "tag", train=train, dev=dev, out=tmp_path / "m", **more)

    with pytest.raises(CorpusError, match="one label only"):
        tune([(["a"], ["O"])], ITEMS[:2])
    with pytest.raises(CorpusError, match="'B-OTHER' is not among"):
        tune(ITEMS, [(["a"], ["B-OTHER"])])
    with pytest.raises(CorpusError, match="set min_count=1"):
        tune(ITEMS[:1], ITEMS[:1], settings=["min_count=100"])
    for setting in ("ngrams=3", "weighting=binary", "scheme=plain"):
        with pytest.raises(RecipeError, match="only features, min_count, cost can be set"):
            tune(ITEMS, ITEMS, settings=[setting])
    with pytest.raises(RecipeError, match="form=multi does not go with tag"):
        LinearRecipe(task="tag", form="multi")
    with pytest.raises(AbilityError, match="strategy means nothing"):
        tune(ITEMS, ITEMS, strategy="full")
    assert not (tmp_path / "m").exists()


def test_damaged_numbers(words: Tokenizer) -> None:
    model = train_model(words, ITEMS[:8], "cost=1")
    whole = model.arrays()
    assert restore_tagger(model.recipe, whole, words).predict([["anna"]]) == model.predict([["anna"]])
    broken: list[dict[str, Any]] = [{name: array for name, array in whole.items() if name != gone} for gone in whole]
    broken += [
        whole | {"more": whole["keys"]},
        whole | {"keys": whole["keys"][::-1].copy()},
        whole | {"keys": whole["keys"].astype(np.float64)},
        whole | {"weights": whole["weights"][:-1]},
        whole | {"weights": whole["weights"] * np.float32(np.nan)},
        whole | {"steps": whole["steps"][:-1]},
        whole | {"steps": np.full_like(whole["steps"], np.nan)},
        whole | {"steps": np.full_like(whole["steps"], 1e5)},
    ]
    for arrays in broken:
        with pytest.raises(ArtifactError, match="linear tagger are damaged"):
            restore_tagger(model.recipe, arrays, words)
    with pytest.raises(ArtifactError, match="linear tagger are damaged"):
        restore_tagger(replace(model.recipe, labels=()), whole, words)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "floor", "features"),
    # with 5,000 and 3,000 sentences 0.85 and 0.75
    [("conll2003_ner", 0.70, "tokens"), ("msra_ner", 0.55, "characters")],
)
def test_real_names(name: str, floor: float, features: str, shared_data: Path, words: Tokenizer) -> None:
    examples: list[Any] = read_all("tag", shared_data / "tag" / f"{name}.train.txt.gz")
    dev: list[Any] = read_all("tag", shared_data / "tag" / f"{name}.dev.txt.gz")[::4]
    model = train_model(words, examples[:: len(examples) // 1000], "cost=10", dev=dev)
    assert model.recipe.features == features
    answers = model.predict_examples(dev)
    assert model.measure(dev, answers, samples=0)["entity_f1"] >= floor
    assert scheme_of([answer["tags"] for answer in answers]) == "BIO"
    assert not any(is_fault(*pair, "BIO") for answer in answers for pair in tag_pairs(answer["tags"]))
