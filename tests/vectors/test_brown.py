"""Brown clusters: worked by hand, the losses against brute force, the tree, saving, and real text."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.artifact.formats.brown import export_brown, import_brown
from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError
from firth.text.oracle import oracle_source
from firth.vectors import _brown_kernels as kernels
from firth.vectors.brown import (
    BrownModel,
    by_frequency,
    cluster,
    initial_members,
    initial_state,
    mutual_information,
    neighbour_lists,
    path_similarity,
    rank_bigrams,
    restore_brown,
)
from firth.vectors.text import BigramCounts, TrainingText, count_bigrams
from tests.command import firth

SPECIALS = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
Matrix = npt.NDArray[np.int64]


def text_of(*sentences: str) -> TrainingText:
    """Sentences of words, `?` for an unknown one; the ids are in the order of first appearance."""
    split = [sentence.split() for sentence in sentences]
    words = [*SPECIALS, *dict.fromkeys(word for sentence in split for word in sentence if word != "?")]
    ids = [words.index(word) if word != "?" else 1 for sentence in split for word in sentence]
    bounds = np.cumsum([0, *map(len, split)])
    return TrainingText(
        np.array(ids, dtype=np.uint16), bounds.astype(np.uint64), np.array([0, len(split)], dtype=np.uint64), words
    )


def random_bigrams(seed: int, words: int, pairs: int) -> BigramCounts:
    rng = np.random.default_rng(seed)
    left, right = np.divmod(rng.choice(words * words, size=pairs, replace=False), words)
    counts = rng.integers(1, 6, size=pairs) ** 3
    return BigramCounts(left, right, counts)


def class_table(bigrams: BigramCounts, slot_of: Matrix, slots: int) -> Matrix:
    """How often each class follows each other one, added up afresh."""
    table = np.zeros((slots, slots), dtype=np.int64)
    np.add.at(table, (slot_of[bigrams.left], slot_of[bigrams.right]), bigrams.counts)
    return table


def slow_loss(table: Matrix, a: int, b: int) -> float:
    """What merging two classes loses of the mutual information, by making the table of the merged classes."""
    merged = table.copy()
    merged[a] += merged[b]
    merged[:, a] += merged[:, b]
    merged[b] = merged[:, b] = 0
    return mutual_information(table) - mutual_information(merged)


def scaled_loss(state: kernels.ClusterState, table: Matrix, a: int, b: int) -> int:
    """The same in the integers of the kernels."""

    def f(values: Any) -> int:
        return sum(kernels.f(int(n), state.table, state.scale) for n in np.ravel(values))

    def information(table: Matrix) -> int:
        return f(table) - f(table.sum(axis=0)) - f(table.sum(axis=1))

    merged = table.copy()
    merged[a] += merged[b]
    merged[:, a] += merged[:, b]
    merged[b] = merged[:, b] = 0
    return information(table) - information(merged)


def check_state(state: kernels.ClusterState, bigrams: BigramCounts, slot_of: Matrix) -> None:
    """Counts and all losses are those of the classes, to the last bit."""
    table = class_table(bigrams, slot_of, state.live.size)
    assert np.array_equal(state.after, table)
    assert np.array_equal(state.before, table.T)
    assert np.array_equal(state.left, table.sum(axis=1))
    assert np.array_equal(state.right, table.sum(axis=0))
    live = np.flatnonzero(state.live)
    for a, b in itertools.combinations(live, 2):
        assert state.loss[a, b] == state.loss[b, a] == scaled_loss(state, table, a, b)
        bits = state.loss[a, b] / state.scale / bigrams.counts.sum() / np.log(2)
        assert bits == pytest.approx(slow_loss(table, a, b), abs=1e-9)
    dead = np.flatnonzero(~state.live)
    assert np.all(state.loss[dead] == kernels.NONE)
    assert np.all(np.diag(state.loss) == kernels.NONE)


def slow_turns(bigrams: BigramCounts, words: int, clusters: int) -> Matrix:
    """The slots of all words after their turns, every loss computed afresh."""
    slot_of = np.full(words, clusters + 1)
    live: list[int] = []
    sizes = [0] * (clusters + 2)
    free = 0
    state = initial_state(int(bigrams.counts.sum()), clusters)
    for word in range(words):
        slot_of[word] = free
        sizes[free] = 1
        live = sorted([*live, free])
        free = len(live)
        if len(live) > clusters:
            table = class_table(bigrams, slot_of, clusters + 2)
            kept, gone = min(itertools.combinations(live, 2), key=lambda pair: scaled_loss(state, table, *pair))
            if sizes[gone] > sizes[kept]:
                kept, gone = gone, kept
            slot_of[slot_of == gone] = kept
            sizes[kept] += sizes[gone]
            live.remove(gone)
            free = gone
    return slot_of


@pytest.mark.parametrize(("words", "pairs", "clusters"), [(9, 30, 4), (12, 100, 5), (10, 14, 3), (6, 30, 2)])
def test_losses_are_exact_after_every_step(words: int, pairs: int, clusters: int) -> None:
    bigrams = random_bigrams(words, words, pairs)
    state, members = initial_state(int(bigrams.counts.sum()), clusters), initial_members(words, clusters)
    followers = neighbour_lists(bigrams.left, bigrams.right, bigrams.counts, words)
    predecessors = neighbour_lists(bigrams.right, bigrams.left, bigrams.counts, words)
    free = 0
    for word in range(words):
        free = kernels.cluster_words(state, members, np.array([word]), followers, predecessors, free)
        check_state(state, bigrams, members.slot_of)
    assert members.slot_of.tolist() == slow_turns(bigrams, words, clusters).tolist()
    while state.live.sum() > 1:
        before, cost = mutual_information(state.after), state.loss.min()
        kernels.merge_best(state, members)
        check_state(state, bigrams, members.slot_of)
        lost = before - mutual_information(state.after)
        assert cost / state.scale / bigrams.counts.sum() / np.log(2) == pytest.approx(lost, abs=1e-9)


@given(st.integers(0, 10_000), st.integers(2, 9))
@settings(max_examples=20)
def test_classes_are_those_of_brute_force(seed: int, clusters: int) -> None:
    bigrams = random_bigrams(seed, 10, 40)
    tree = cluster(bigrams, 10, clusters)
    slow = slow_turns(bigrams, 10, clusters)
    assert len(tree.bits) == clusters
    assert np.array_equal(tree.clusters[:, None] == tree.clusters, slow[:, None] == slow)
    assert tree.information == pytest.approx(mutual_information(class_table(bigrams, slow, clusters + 2)), abs=1e-12)


def test_by_hand() -> None:
    """Determiner, noun and verb follow each other: classes have log2(3) bits of information about their neighbours.

    Any two of the three lose the same when they are merged; the lowest slots are those of the words that came first:
    verb and determiner, which are seen more often together than the nouns.
    """
    text = text_of("the cat ran a dog ran the dog ran a cat ran the")
    words = by_frequency(text.counts)
    assert [text.words[word] for word in words] == ["ran", "the", "cat", "a", "dog"]
    tree = cluster(rank_bigrams(count_bigrams(text), words, len(text.words)), 5, 3)
    ran, the, cat, a, dog = (tree.bits[number] for number in tree.clusters)
    assert (ran, the, a, cat, dog) == ("00", "01", "01", "1", "1")
    assert tree.information == pytest.approx(np.log2(3))


def test_bigrams_by_hand() -> None:
    text = text_of("a b a b", "b ? a", "b", "a a a")
    words = [text.words[word] for word in range(7)]
    found = {
        (words[a], words[b]): n for a, b, n in zip(*(array.tolist() for array in count_bigrams(text)), strict=True)
    }
    assert found == {("a", "b"): 2, ("b", "a"): 1, ("a", "a"): 2}


@given(st.integers(0, 10_000), st.integers(1, 40))
@settings(max_examples=30)
def test_bigrams_of_parts_add_up(seed: int, chunk: int) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 9, size=60).astype(np.uint16)
    bounds = np.unique([0, 60, *rng.integers(0, 60, size=8)]).astype(np.uint64)
    text = TrainingText(ids, bounds, np.array([0, len(bounds) - 1], dtype=np.uint64), [*SPECIALS, *"abcd"])
    slow: Counter[tuple[int, int]] = Counter()
    for begin, end in itertools.pairwise(bounds.tolist()):
        slow.update(pair for pair in itertools.pairwise(ids[begin:end].tolist()) if min(pair) >= 5)
    found = count_bigrams(text, chunk)
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == sorted(slow)
    assert found.counts.tolist() == [slow[pair] for pair in sorted(slow)]


def test_path_similarity() -> None:
    assert path_similarity("0", "1") == 0
    assert path_similarity("0101", "01") == 0.5
    assert path_similarity("0101", "0101") == 1


@pytest.fixture(scope="module")
def oracle_model(tmp_path_factory: pytest.TempPathFactory) -> BrownModel:
    folder = tmp_path_factory.mktemp("brown")
    text = folder / "text.txt"
    documents = oracle_source("english").sample(7, 10, 600)
    text.write_text("\n\n".join(document.text for document in documents))
    outcome = firth("train", "brown", text, "-o", folder / "model", "--set", "clusters=24", "--json")
    assert outcome.code == 0, outcome.err
    model = load(folder / "model")
    assert isinstance(model, BrownModel)
    return model


def test_words_of_a_class_of_the_grammar_end_up_together(oracle_model: BrownModel) -> None:
    """Purity: the fraction of words that belong to the class most frequent in their cluster."""
    of = {word: name for name, words in oracle_source("english").classes.items() for word in words}
    inside: dict[str, Counter[str]] = defaultdict(Counter)
    for bits, word, _ in oracle_model.paths():
        if word in of:
            inside[bits][of[word]] += 1
    known = sum(sum(names.values()) for names in inside.values())
    purity = sum(max(names.values()) for names in inside.values()) / known
    by_chance = max(Counter(of.values()).values()) / len(of)
    assert known > 50
    assert purity > 0.5 > by_chance, (purity, by_chance)


def test_similar_words_share_their_path(oracle_model: BrownModel) -> None:
    model = oracle_model
    word = next(word for _, word, _ in model.paths())
    found = model.similar(word, 1000)
    assert len(found) == len(model.rows) - 1
    assert word not in dict(found)
    keys = [(-score, -int(model.counts[model.row(other)])) for other, score in found]
    assert keys == sorted(keys)
    assert all(score == model.similarity(word, other) for other, score in found)
    same = [other for other, score in found if score == 1]
    assert same
    assert {model.path(other) for other in same} == {model.path(word)}
    assert model.similar(word, 0) == []
    with pytest.raises(AbilityError, match="unicorn"):
        model.similar("unicorn")


def test_paths_are_a_binary_tree(oracle_model: BrownModel) -> None:
    bits = oracle_model.bits
    assert bits == sorted(bits)
    assert len(bits) == 24
    assert sum(2.0 ** -len(path) for path in bits) == 1  # no path is a prefix of another, and no branch is empty
    listed = list(oracle_model.paths())
    assert [path for path, _, _ in listed] == sorted(path for path, _, _ in listed)
    assert sum(count for _, _, count in listed) == oracle_model.counts.sum()


def test_texts_are_distributions_over_classes(oracle_model: BrownModel) -> None:
    one, two = (word for _, word, _ in list(oracle_model.paths())[::50][:2])
    vectors = oracle_model.embed([f"{one} {two} {one} unicorn", "", "unicorn"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (3, 24)
    expected = np.zeros(24)
    expected[oracle_model.clusters[oracle_model.row(one)]] += 2 / 3
    expected[oracle_model.clusters[oracle_model.row(two)]] += 1 / 3
    assert vectors[0] == pytest.approx(expected)
    assert not vectors[1:].any()


def test_damaged_arrays(oracle_model: BrownModel) -> None:
    model, arrays = oracle_model, oracle_model.arrays()

    def again(**changed: Any) -> BrownModel:
        return restore_brown(model.recipe, arrays | changed, model.tokenizer, model.layout)

    assert list(again().paths()) == list(model.paths())
    wrong_bits = arrays["bits"].copy()
    wrong_bits[3] = 7
    for name, value in [
        ("clusters", arrays["clusters"][:-1]),
        ("clusters", arrays["clusters"] + np.int32(1)),
        ("clusters", np.full_like(arrays["clusters"], -2)),
        ("counts", -arrays["counts"]),
        ("counts", arrays["counts"].astype(np.float64)),
        ("lengths", arrays["lengths"] * 2),
        ("lengths", -arrays["lengths"]),
        ("lengths", np.full(2, 2**62)),
        ("bits", wrong_bits),
        ("bits", arrays["bits"] * 0 + np.uint8(ord("0"))),
        ("bits", None),
    ]:
        with pytest.raises(ArtifactError, match=name):
            again(**{name: value})


def test_the_same_text_gives_the_same_bytes(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(s.text for s in oracle_source("english").sample_document(1, 0, 300)))
    digests = []
    for threads in (1, 2):
        made = firth("train", "brown", text, "-o", tmp_path / f"m{threads}", "--threads", threads, "--json")
        digests.append(made.json["files"]["model.safetensors"]["sha256"])
        metrics = made.json["metrics"]
    assert digests[0] == digests[1]
    assert metrics["clusters"] == metrics["words"] < 256  # each word a class of its own
    assert 0 < metrics["average_mutual_information"] < np.log2(metrics["words"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word\n" * 20, "1 word"),
        ("one\ntwo\n" * 20, "no two words are adjacent"),
        ("a b c\n", "lower min_count"),
    ],
)
def test_texts_without_neighbours(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(text)
    outcome = firth("train", "brown", tmp_path / "text.txt", "-o", tmp_path / "model")
    assert outcome.code == 1
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_budgets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c a b c\n" * 20)
    outcome = firth("train", "brown", tmp_path / "text.txt", "-o", tmp_path / "model", "--budget", "1ktok")
    assert outcome.code == 2
    assert "leave --budget out" in outcome.err


def test_paths_files_and_back(oracle_model: BrownModel, tmp_path: Path) -> None:
    path = tmp_path / "paths"
    assert export_brown(oracle_model, path) == {"words": len(oracle_model.rows), "clusters": 24}
    lines = path.read_text().splitlines()
    assert lines == [f"{bits}\t{word}\t{count}" for bits, word, count in oracle_model.paths()]
    assert import_brown(path, tmp_path / "again") == {"words": len(oracle_model.rows), "clusters": 24}
    again = load(tmp_path / "again")
    assert sorted(again.paths()) == sorted(oracle_model.paths())
    word = lines[0].split("\t")[1]
    assert dict(again.similar(word, 1000)) == dict(oracle_model.similar(word, 1000))
    assert again.embed([word]) == pytest.approx(oracle_model.embed([word]))
    with pytest.raises(AbilityError, match="Brown clusters only"):
        export_brown(None, path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"0\ta\t1\n1\tb\n", "line 2: expected bits, a word and its count"),
        (b"0\ta\t1\n12\tb\t1\n", "line 2: expected"),
        (b"0\ta\t1\n1\tb c\t1\n", "line 2: expected"),
        (b"0\ta\t1\n1\tb\t-1\n", "line 2: expected"),
        (b"0\ta\t1\n1\tb\t99999999999999999999\n", "line 2: expected"),
        (b"0\ta\t1\n1\ta\t1\n", "line 2: 'a' is in the file twice"),
        (b"0\ta\t1\n0\tb\t1\n", "has 1 clusters"),
        (b"0\t\xff\t1\n", "line 1: it is not UTF-8"),
        (b"0" * 30_000 + b"\ta\t1\n", "line 1: it is longer"),
    ],
)
def test_wrong_paths_files(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "paths").write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        import_brown(tmp_path / "paths", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_special_tokens_of_a_paths_file_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "paths").write_text("0\t<unk>\t9\n10\ta\t5\n11\tb\t7\n")
    import_brown(tmp_path / "paths", tmp_path / "model")
    assert list(load(tmp_path / "model").paths()) == [("10", "a", 5), ("11", "b", 7)]
    with pytest.raises(ArtifactError, match="cannot read"):
        import_brown(tmp_path / "nothing", tmp_path / "other")
