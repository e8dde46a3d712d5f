"""The fastText classifier against a NumPy reference, finite differences, hashes by hand, and itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from firth.artifact.restore import restore
from firth.errors import AbilityError, ArtifactError, CorpusError, RecipeError, TrainingError
from firth.text.corpus import read_corpus
from firth.tokens.tokenizer import EOS, FIRST_WORD, UNK
from firth.vectors import _classifier_kernels as kernels
from firth.vectors import classifier
from firth.vectors.classifier import ClassifierTrainer, resolve_defaults, train_classifier, used_buckets
from firth.vectors.classifier_model import (
    ClassifierModel,
    label_tree,
    list_rows,
    rows_of_buckets,
    tree_probabilities,
    vocabulary_features,
    word_hashes,
)
from firth.vectors.job import VectorJob
from firth.vectors.recipe import ClassifierRecipe
from firth.vectors.sampling import huffman_tree
from firth.vectors.text import TrainingText
from tests.memory_checkpointer import KilledError, MemoryCheckpointer
from tests.vectors.word_groups import job_of

SMALL = ClassifierRecipe(dimension=9, epochs=3, lr=0.5)
LOSSES = ("softmax", "hierarchical", "negative")
TOPICS = {"sea": "boat ship wave sail", "farm": "cow plough barn hay", "town": "tram shop bank pub", "sky": "sun moon"}


def labelled(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Texts of a topic's words and others, sorted by label, as files often are."""
    rng = np.random.default_rng(seed)
    labels = sorted(map(str, rng.choice([*TOPICS], count, p=[0.4, 0.3, 0.2, 0.1])))
    return [
        (label, " ".join([*rng.choice(TOPICS[label].split(), 2), *rng.choice(["a", "the", "of"], 3)]))
        for label in labels
    ]


def make_job(rows: Sequence[tuple[str, str]], **options: Any) -> VectorJob:
    names = sorted({label for label, _ in rows})
    labels = np.array([[names.index(label)] for label, _ in rows], dtype=np.int32)
    return job_of(read_corpus([[text] for _, text in rows]), labels=labels, names=tuple(names), **options)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> VectorJob:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(tmp_path_factory.mktemp("cache")))
        return make_job(labelled(300), seed=3)


def text_of(texts: Sequence[Sequence[int]], words: int) -> TrainingText:
    """A text of ids, each of `texts` one document."""
    bounds = np.cumsum([0, *map(len, texts)]).astype(np.uint64)
    ids = np.array([word for text in texts for word in text], dtype=np.uint16)
    return TrainingText(ids, bounds, np.arange(len(texts) + 1, dtype=np.uint64), [f"w{word}" for word in range(words)])


def fnv(word: str) -> int:
    """FNV-1a of signed bytes in 32 bits, as a signed number."""
    value = 2166136261
    for byte in word.encode():
        value = ((value ^ (byte | (0xFFFFFF00 if byte > 127 else 0))) * 16777619) % 2**32
    return value - 2**32 if value >= 2**31 else value


def bucket(words: Sequence[str], buckets: int) -> int:
    """fastText's bucket of a word n-gram."""
    value = fnv(words[0]) % 2**64
    for word in words[1:]:
        value = (value * 116049371 + fnv(word)) % 2**64
    return value % buckets


def test_hashes_by_hand() -> None:
    assert fnv("a") == 0xE40C292C - 2**32  # from the authors of FNV
    assert fnv("foobar") == 0xBF9CF968 - 2**32
    words = ["a", "the", "</s>", "foobar", "语言", "é", ""]
    assert word_hashes(words).astype(np.int64).tolist() == [fnv(word) for word in words]
    # 0xE40C292C and 0xE70C2DE5, "a" and "b", extended with their signs to 64 bits
    assert bucket(["a", "b"], 2**64) == (0xFFFFFFFFE40C292C * 116049371 + 0xFFFFFFFFE70C2DE5) % 2**64


@pytest.mark.parametrize("longest", [1, 2, 3, 5])
@pytest.mark.parametrize("max_n", [0, 3])
def test_rows_are_those_of_words_then_of_ngrams(longest: int, max_n: int) -> None:
    from firth.vectors.subwords import ngram_buckets

    words = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "to", "be", "语言"]
    own = np.array([False, False, False, True, False, True, True, True])
    buckets = 50
    bucket_rows = np.arange(100, 100 + buckets, dtype=np.int32)
    bucket_rows[::3] = -1
    features = vocabulary_features(words, own, replace(SMALL, min_n=2 if max_n else 0, max_n=max_n), bucket_rows)
    texts = [[5, 6, 7, EOS], [5, UNK, 6, 7, EOS], [EOS]]
    bounds = np.array([0, 4, 9, 10])
    rows, positions = list_rows(np.concatenate(texts).astype(np.uint32), bounds, features, longest, bucket_rows)
    for number, text in enumerate(texts):
        wanted = []
        for word in text:
            wanted += [word] if own[word] else []
            if max_n and word >= FIRST_WORD:
                wanted += [int(bucket_rows[row]) for row in ngram_buckets([words[word]], 2, max_n, buckets)[1]]
        for first in range(len(text)):
            for n in range(2, longest + 1):
                ngram = text[first : first + n]
                if len(ngram) == n and UNK not in ngram:
                    wanted.append(int(bucket_rows[bucket([words[word] for word in ngram], buckets)]))
        assert rows[positions[number] : positions[number + 1]].tolist() == wanted


def test_only_buckets_that_occur_have_rows() -> None:
    text = text_of([[5, 6], [6, 5, 7], [UNK, 7]], 8)
    recipe = replace(SMALL, word_ngrams=3, buckets=1000)
    text.words[EOS] = "</s>"  # as the end is spelt, whatever its token is called
    found = [[5, 6, EOS], [6, 5, 7, EOS], [7, EOS]]
    wanted = {
        bucket([text.words[word] for word in one[first : first + n]], 1000)
        for one in found
        for n in (2, 3)
        for first in range(len(one) - n + 1)
    }
    used = used_buckets(recipe, text)
    assert set(np.flatnonzero(used).tolist()) == wanted
    assert resolve_defaults(replace(SMALL, word_ngrams=3), text).buckets == 1000
    assert resolve_defaults(replace(SMALL, word_ngrams=1), text).buckets == 0
    assert rows_of_buckets(np.array([2], dtype=np.int32), 4, 8).tolist() == [-1, -1, 8, -1]


def twin(blocks: ClassifierTrainer, content: Any, lr: float) -> tuple[npt.NDArray[Any], npt.NDArray[Any], float]:
    """What a block makes of the tables, in NumPy and double precision, and its loss."""
    inputs = blocks.inputs.matrix().astype(np.float64)
    outputs = blocks.outputs.matrix().astype(np.float64)
    loss = 0.0
    for text, answer in enumerate(content.labels):
        rows = content.rows[content.row_bounds[text] : content.row_bounds[text + 1]]
        mean = inputs[rows].mean(axis=0)
        if blocks.recipe.loss == "softmax":
            targets, flags = content.targets, np.arange(content.targets.size) == answer
            scores = outputs[targets] @ mean
            chances = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
            loss -= np.log(chances[answer])
        else:
            part = slice(content.target_starts[text], content.target_starts[text + 1])
            targets, flags = content.targets[part], content.is_positive[part]
            chances = 1 / (1 + np.exp(-outputs[targets] @ mean))
            loss -= np.log(np.where(flags, chances, 1 - chances)).sum()
        steps = lr * (flags - chances)
        moved = steps @ outputs[targets]
        outputs[targets] += np.outer(steps, mean)
        np.add.at(inputs, rows, moved / rows.size)
    return inputs, outputs, loss


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dimension", [3, 100])
def test_a_block_is_trained_as_by_the_reference(job: VectorJob, loss: Any, dimension: int) -> None:
    recipe = resolve_defaults(replace(SMALL, loss=loss, dimension=dimension, max_n=3, min_n=3), job.text)
    assert job.labels is not None
    blocks = ClassifierTrainer(recipe, job.text, job.labels, len(job.names), 1)
    rng = np.random.default_rng(0)
    blocks.inputs.matrix()[EOS:] = rng.normal(size=(blocks.inputs.rows - EOS, dimension)) * 0.5
    blocks.outputs.matrix()[:] = rng.normal(size=(4, dimension)) * 0.5
    plan = blocks.plan(0, 0)
    inputs, outputs, total = twin(blocks, plan.content, 0.2)
    found, examples = blocks.train_block(plan, 0.2)
    assert examples == len(plan.content.labels) > 50
    assert found == pytest.approx(total, rel=1e-4)
    assert np.allclose(blocks.inputs.matrix(), inputs, atol=2e-4)
    assert np.allclose(blocks.outputs.matrix(), outputs, atol=2e-4)
    rest = blocks.inputs.weights.reshape(blocks.inputs.rows, -1)[:, dimension:]
    assert not rest.any()


def block_loss(content: Any, inputs: Any, outputs: Any, softmax: bool) -> float:
    """The loss of one text, in double precision."""
    scores = outputs[content.targets] @ inputs[content.rows].mean(axis=0)
    if softmax:
        return float(np.log(np.exp(scores).sum()) - scores[content.labels[0]])
    return float(np.log1p(np.exp(np.where(content.is_positive, -scores, scores))).sum())


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_goes_down_the_gradient(loss: Any) -> None:
    text = text_of([[5, 6, 5], [6, 7]], 8)
    recipe = resolve_defaults(replace(SMALL, loss=loss, dimension=4), text)
    blocks = ClassifierTrainer(recipe, text, np.array([0, 1], dtype=np.int32), 3, 0)
    blocks.label_counts[:] = [3, 2, 1]
    blocks.tree = label_tree(blocks.label_counts) if loss == "hierarchical" else None
    rng = np.random.default_rng(0)
    blocks.inputs.matrix()[EOS:] = rng.normal(size=(blocks.inputs.rows - EOS, 4))
    blocks.outputs.matrix()[:] = rng.normal(size=(3, 4))
    blocks.texts_per_block = 1
    plan = blocks.plan(0, 0)
    before = [table.matrix().astype(np.float64) for table in blocks.tables]
    blocks.train_block(plan, 1e-2)
    moved = [(table.matrix() - old) / 1e-2 for table, old in zip(blocks.tables, before, strict=True)]
    for number in range(2):
        for position in np.ndindex(before[number].shape):
            losses = []
            for sign in (1, -1):
                tables = [table.copy() for table in before]
                tables[number][position] += sign * 1e-5
                losses.append(block_loss(plan.content, *tables, loss == "softmax"))
            assert moved[number][position] == pytest.approx(-(losses[0] - losses[1]) / 2e-5, abs=2e-4)


def test_one_of_several_labels_is_drawn_uniformly_by_its_position() -> None:
    labels = np.array([[4, -1, -1], [0, 1, 2], [3, 5, -1]], dtype=np.int32)
    drawn = np.empty((3000, 3), dtype=np.int32)
    for epoch in range(3000):
        kernels.draw_labels(labels, np.arange(3), 7, epoch, drawn[epoch])
    assert set(drawn[:, 0]) == {4}
    for column, kinds in ((1, (0, 1, 2)), (2, (3, 5))):
        counts = np.array([np.count_nonzero(drawn[:, column] == kind) for kind in kinds])
        expected = 3000 / len(kinds)
        assert counts.sum() == 3000
        assert ((counts - expected) ** 2 / expected).sum() < 14  # chi-squared, beyond 0.1%
    again = np.empty(2, dtype=np.int32)
    kernels.draw_labels(labels, np.array([2, 1]), 7, 11, again)
    assert again.tolist() == [drawn[11, 2], drawn[11, 1]]


@pytest.mark.parametrize("counts", [[1, 1], [5, 2, 1], [3, 3, 3, 3, 3], [40, 9, 9, 9, 5, 5, 1, 1, 1, 0]])
def test_the_tree_of_labels_is_huffmans(counts: list[int]) -> None:
    weights = np.array(counts, dtype=np.int64)
    tree = label_tree(weights)
    assert sorted(set(tree.nodes.tolist())) == list(range(len(counts) - 1))
    other = huffman_tree(np.maximum(weights, 1))
    if min(counts):
        assert (np.diff(tree.starts) * weights).sum() == (np.diff(other.starts) * weights).sum()
    scores = np.random.default_rng(0).normal(size=(7, len(counts)))
    assert np.allclose(tree_probabilities(scores, tree).sum(axis=1), 1)


def test_each_pass_goes_through_all_texts_in_an_order_of_its_own(
    job: VectorJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier, "_BLOCK_WORDS", 50)
    assert job.labels is not None
    blocks = ClassifierTrainer(resolve_defaults(SMALL, job.text), job.text, job.labels, len(job.names), 1)
    epochs = [[blocks.plan(epoch, block).content for block in range(blocks.num_blocks)] for epoch in range(2)]
    assert len(set(epochs[0][0].labels)) > 1  # though the file is sorted by label
    for contents in epochs:
        answers = np.concatenate([content.labels for content in contents])
        assert np.array_equal(np.bincount(answers), blocks.label_counts)
        assert np.array_equal(np.bincount(answers), np.bincount(job.labels[:, 0]))
    assert not np.array_equal(epochs[0][0].rows, epochs[1][0].rows)


def test_one_label_alone_is_certain() -> None:
    assert tree_probabilities(np.zeros((2, 1)), label_tree(np.array([3]))).tolist() == [[1.0], [1.0]]


def digests(model: ClassifierModel) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in model.arrays().items()}


@pytest.mark.parametrize("loss", LOSSES)
def test_exact_mode_gives_the_same_bytes_with_any_threads(
    job: VectorJob, loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier, "_BLOCK_WORDS", 50)
    models = [train_classifier(replace(SMALL, loss=loss), replace(job, threads=threads)).model for threads in (1, 2, 3)]
    assert digests(models[0]) == digests(models[1]) == digests(models[2])
    assert digests(models[0]) != digests(train_classifier(replace(SMALL, loss=loss), replace(job, seed=4)).model)


def test_a_killed_run_resumes_to_the_same_bytes(job: VectorJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "_BLOCK_WORDS", 20)
    checkpointer = MemoryCheckpointer(dies_after=3)
    with pytest.raises(KilledError):
        train_classifier(SMALL, replace(job, checkpointer=checkpointer, threads=2))
    resumed = train_classifier(SMALL, replace(job, checkpointer=checkpointer))
    whole = train_classifier(SMALL, job)
    assert digests(resumed.model) == digests(whole.model)
    assert resumed.metrics["losses"] == whole.metrics["losses"]


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("loss", LOSSES)
def test_topics_are_classified(job: VectorJob, loss: Any, mode: Any) -> None:
    result = train_classifier(replace(SMALL, loss=loss, mode=mode, epochs=20), replace(job, threads=2))
    model = result.model
    fresh = labelled(200, seed=9)
    assert (
        np.mean(
            [best[0][0] == label for (label, _), best in zip(fresh, model.predict([t for _, t in fresh]), strict=True)]
        )
        > 0.97
    )
    assert result.metrics["losses"][-1] < result.metrics["losses"][0] / 3
    assert result.tokens == 20 * len(job.text.ids)
    assert result.metrics["texts"] == 300
    neighbours = [word for word, _ in model.similar("boat", 3)]
    assert set(neighbours) == {"ship", "wave", "sail"}


@pytest.mark.parametrize("loss", ["softmax", "hierarchical"])
def test_the_loss_is_that_of_the_models_own_probabilities(job: VectorJob, loss: Any) -> None:
    """With a learning rate of zero, the loss of texts equals that of the predicted probabilities."""
    assert job.labels is not None
    recipe = resolve_defaults(replace(SMALL, loss=loss, epochs=2), job.text)
    blocks = ClassifierTrainer(recipe, job.text, job.labels, len(job.names), 1)
    for block in range(blocks.num_blocks):
        blocks.train_block(blocks.plan(0, block), 0.5)
    found = sum(blocks.train_block(blocks.plan(1, block), 0.0)[0] for block in range(blocks.num_blocks))
    rows = labelled(300)
    chances = blocks.model(recipe, job).probabilities([text for _, text in rows])
    wanted = -sum(np.log(chances[position, job.names.index(label)]) for position, (label, _) in enumerate(rows))
    assert found == pytest.approx(wanted, rel=1e-5)


def test_invalid_queries(job: VectorJob) -> None:
    model = train_classifier(replace(SMALL, epochs=10), job).model
    assert model.predict([]) == []
    texts = ["the boat", "", "qqq zzz", "BOAT ship\nsail", "\0"]
    found = model.predict(texts, 9)
    assert [len(labels) for labels in found] == [4] * 5
    for labels in found:
        assert [p for _, p in labels] == sorted((p for _, p in labels), reverse=True)
        assert sum(p for _, p in labels) == pytest.approx(1)
    assert found[0][0][0] == found[3][0][0] == "sea"
    assert found[1] == found[4]
    assert model.predict(texts * 3, 1)[5:10] == [labels[:1] for labels in found]
    assert model.embed(texts).shape == (5, 9)
    with pytest.raises(AbilityError, match="must be 1 or more"):
        model.predict(["a"], 0)
    with pytest.raises(AbilityError, match="no vector for 'qqq'"):
        model.vector("qqq")


def test_unseen_ngrams_count_as_zeros(job: VectorJob) -> None:
    model = train_classifier(replace(SMALL, epochs=1), job).model
    row = model.rows
    words = ["hay", "sun"]  # of two topics: they never co-occur
    pairs = [bucket(pair, model.recipe.buckets) for pair in (("hay", "sun"), ("sun", "</s>"))]
    rows = [row["hay"], row["sun"], EOS, *(int(model.bucket_rows[pair]) for pair in pairs)]
    wanted = sum(model.inputs[one] for one in rows if one >= 0) / 5
    assert -1 in rows
    assert np.allclose(model.embed([" ".join(words)])[0], wanted, atol=1e-6)


def test_character_ngrams_tell_unknown_words(job: VectorJob) -> None:
    model = train_classifier(replace(SMALL, epochs=20, min_n=2, max_n=4), job).model
    assert model.predict(["boats shipping"])[0][0][0] == "sea"
    assert model.oov_vector("boats") is not None
    assert model.similarity("boats", "boat") > 0.5
    back = restore(model.recipe, model.arrays(), job.tokenizer, "lines")
    assert np.array_equal(back.vectors, model.vectors)


def test_a_budget_of_words_or_time(job: VectorJob) -> None:
    assert train_classifier(SMALL, replace(job, tokens=3000)).tokens == pytest.approx(3000, abs=750)
    assert train_classifier(SMALL, replace(job, flops=1e7)).tokens > 0
    assert train_classifier(SMALL, replace(job, seconds=0.2)).tokens > 0


def test_a_model_comes_back_from_its_arrays(job: VectorJob) -> None:
    model = train_classifier(SMALL, job).model
    arrays = model.arrays()
    back = restore(model.recipe, arrays, job.tokenizer, "lines")
    assert digests(back) == digests(model)
    assert back.predict(["the boat of hay"], 4) == model.predict(["the boat of hay"], 4)
    damaged: dict[str, Any] = {
        "inputs": arrays["inputs"][:-1],
        "outputs": arrays["outputs"][:, :-1],
        "used": arrays["used"][::-1],
        "labels": np.frombuffer(b'["a", "a", "b", "c"]', dtype=np.uint8),
        "label_counts": arrays["label_counts"][:2],
        "counts": arrays["counts"][:2],
    }
    for name, array in damaged.items():
        with pytest.raises(ArtifactError, match="train the model again"):
            restore(model.recipe, arrays | {name: array}, job.tokenizer, "lines")
        if name != "counts":
            with pytest.raises(ArtifactError, match="train the model again"):
                restore(
                    model.recipe, {key: value for key, value in arrays.items() if key != name}, job.tokenizer, "lines"
                )
    for encoded in (b"no json", b"{}", b"[1]", b"[]"):
        with pytest.raises(ArtifactError, match="labels"):
            restore(model.recipe, arrays | {"labels": np.frombuffer(encoded, dtype=np.uint8)}, job.tokenizer, "lines")


def test_untrainable_texts(job: VectorJob) -> None:
    with pytest.raises(RecipeError, match="labelled texts"):
        train_classifier(SMALL, replace(job, labels=None))
    with pytest.raises(RecipeError, match="labelled texts"):
        train_classifier(SMALL, replace(job, labels=np.zeros(3, dtype=np.int32)))
    with pytest.raises(CorpusError, match="two labels or more"):
        train_classifier(SMALL, replace(job, labels=np.zeros(300, dtype=np.int32), names=("only",)))
    with pytest.raises(TrainingError, match="diverged: the loss is infinite"):
        train_classifier(replace(SMALL, lr=10.0, epochs=200), make_job([("a", "x"), ("b", "x")] * 30))
    with pytest.raises(RecipeError, match="buckets=auto"):
        ClassifierRecipe(buckets=0)
    with pytest.raises(RecipeError, match="min_n"):
        ClassifierRecipe(min_n=3)


def test_a_vocabulary_of_nothing_is_not_refused() -> None:
    """Texts of unknown words alone still have ends, so the more frequent label is predicted."""
    text = text_of([[UNK], [UNK, UNK], [UNK]], 6)
    labels = np.array([0, 0, 1], dtype=np.int32)
    job = make_job([("a", "x"), ("b", "y"), ("b", "z")])
    result = train_classifier(SMALL, replace(job, text=text, labels=labels, names=("a", "b")))
    assert result.metrics["ngrams"] == 0
    assert result.metrics["losses"][-1] < 0.75
