"""LinearClassifier: logistic regression on n-grams, for models without hidden states or vectors.

    score(label, text) = bias(label) + sum over n-grams of weight(label, n-gram) * value(n-gram, text)

With tf-idf, value = count * (log((1 + texts) / (1 + texts with the n-gram)) + 1), normalised to unit length. With
ratios the factor is multiplied by how much the n-gram tells of a label, as in the features of Wang and Manning (2012).
The features of a pair are the values of the second text, the elementwise minimum with those of the first, the values
of n-grams that only one of them has, their cosine, and how many n-grams they share and do not.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, CorpusError, RecipeError
from firth.tasks.examples import Example, TextExample
from firth.tasks.predictor import MetricInputs, Prediction, Predictor, multiple_labels, single_label, text_metric_inputs
from firth.tasks.recipe import LinearRecipe
from firth.tokens.encoder import TextEncoder
from firth.tokens.tokenizer import FIRST_WORD, UNK, Tokenizer

Ints = npt.NDArray[np.int64]
_MAX_CHARACTERS = 1 << 22  # whose n-grams are held in memory
_CODE_POINTS = 0x110000
_TINY = 1e-30
_LEAST_RATIO = 1e-3
_OVERLAPS = 7  # columns of `_overlaps`
_DAMAGED = "the arrays of the linear model are damaged: copy the folder again, or train it again."


class NgramFeatures:
    """n-gram features of texts as a sparse matrix.

    An n-gram is encoded as one integer whose digits are its ids; columns are found by binary search.
    """

    def __init__(self, recipe: LinearRecipe, tokenizer: Tokenizer) -> None:
        self.recipe, self.tokenizer = recipe, tokenizer
        self.base = 1 + (_CODE_POINTS if recipe.features == "characters" else len(tokenizer))
        if self.base**recipe.ngrams >= 1 << 63:
            raise RecipeError(
                f"ngrams={recipe.ngrams} of {self.base - 1:,} tokens do not fit into 64 bits: set ngrams to less."
            )
        self.keys = np.zeros(0, dtype=np.int64)  # n-grams of the columns, sorted
        self.idf = np.zeros(0)
        self._encoder = TextEncoder(tokenizer)

    @property
    def columns(self) -> int:
        """Number of columns of the matrix."""
        if self.recipe.task != "pair":
            return int(self.keys.size)
        return 4 * self.keys.size + 1 + _OVERLAPS if self.recipe.differences else 3 * self.keys.size + 1

    def fit(self, examples: Sequence[TextExample]) -> None:
        """Choose the n-grams that occur in enough texts and compute their IDF."""
        texts = [text for one in examples for text in (one.text, one.other) if text is not None]
        keys, document_counts = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        for part in _blocks(texts):
            keys, document_counts = _add(
                keys, document_counts, *np.unique(_distinct(*self.find(part)), return_counts=True)
            )
        kept = document_counts >= self.recipe.min_count
        if not kept.any():
            raise CorpusError(
                f"no token occurs in {self.recipe.min_count} texts: give more examples, or set min_count=1."
            )
        self.keys = keys[kept]
        self.idf = np.ones(self.keys.size)
        if self.is_scaled:
            self.idf = np.log((1 + len(texts)) / (1 + document_counts[kept])) + 1
        if self.recipe.weighting == "ratio":
            self.idf *= self._ratios(examples)

    @property
    def is_scaled(self) -> bool:
        """Whether counts are multiplied by the factors of the n-grams."""
        return self.recipe.weighting in ("tfidf", "ratio")

    def _ratios(self, examples: Sequence[TextExample]) -> npt.NDArray[np.float64]:
        """How much each n-gram tells of a label: the largest |log p / q| over the labels.

        p is its relative frequency in the texts with a label, q that in the others, each counted once more.
        """
        counts = self._stacked([one.text for one in examples], self._counts).sign()
        found = np.full(self.keys.size, _LEAST_RATIO)
        total = np.asarray(counts.sum(axis=0))
        for label in self.recipe.labels:
            has_label = np.array([label in (one.labels or ()) for one in examples], dtype=np.float64)
            with_label = has_label @ counts
            p, q = 1 + with_label, 1 + total - with_label
            np.maximum(found, np.abs(np.log((p / p.sum()) / (q / q.sum()))), out=found)
        return found

    def matrix(self, examples: Sequence[TextExample]) -> Any:
        """(examples, columns): the sparse feature matrix."""
        from scipy import sparse  # type: ignore[import-untyped]

        first = self.values([one.text for one in examples])
        if self.recipe.task == "classify":
            return first
        second = self.values([one.other or "" for one in examples])
        shared, cosines = first.minimum(second), sparse.csr_array(_cosines(first, second)[:, None])
        if not self.recipe.differences:
            return sparse.hstack([first, second, shared, cosines], format="csr")
        only_second, only_first = second - second.multiply(first.sign()), first - first.multiply(second.sign())
        overlaps = sparse.csr_array(_overlaps(first, second))
        return sparse.hstack([second, shared, only_second, only_first, cosines, overlaps], format="csr")

    def values(self, texts: Sequence[str]) -> Any:
        """(texts, n-grams): the sparse matrix of values."""
        return self._stacked(texts, self._values)

    def _stacked(self, texts: Sequence[str], read: Callable[[Sequence[str]], Any]) -> Any:
        from scipy import sparse

        return sparse.vstack([read(part) for part in _blocks(texts)], format="csr")

    def _values(self, texts: Sequence[str]) -> Any:
        from firth.vectors.bag import apply_idf

        counts = self._counts(texts)
        if self.is_scaled:
            return apply_idf(counts, self.idf).astype(np.float64)
        return counts.sign() if self.recipe.weighting == "binary" else counts

    def _counts(self, texts: Sequence[str]) -> Any:
        """(texts, n-grams): the sparse matrix of counts."""
        from scipy import sparse

        keys, rows = self.find(texts)
        columns = np.searchsorted(self.keys, keys)
        known = np.append(self.keys, -1)[columns] == keys
        indices = rows[known], columns[known]
        return sparse.coo_array((np.ones(indices[0].size), indices), shape=(len(texts), self.keys.size)).tocsr()

    def find(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        """All n-grams of texts and the index of the text of each."""
        ids, lengths = self._characters(texts) if self.recipe.features == "characters" else self._tokens(texts)
        return ngram_keys(ids, lengths, self.recipe.ngrams, self.base)

    def _tokens(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        encoded = self._encoder.encode([" ".join(text.replace("\0", " ").split()) for text in texts])
        ids = encoded.ids.astype(np.int64)
        return np.where(ids >= FIRST_WORD, ids, UNK), encoded.lengths

    def _characters(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        """Code points after the tokenizer's normalisation, with single spaces."""
        form, lower = self.tokenizer.recipe.normalise, self.tokenizer.recipe.lowercase
        if form != "none":
            texts = [unicodedata.normalize("NFC" if form == "nfc" else "NFKC", text) for text in texts]
        lines = [" ".join((text.lower() if lower else text).split()) for text in texts]
        ids = np.frombuffer("".join(lines).encode("utf-32-le"), dtype="<u4").astype(np.int64)
        return ids, np.array([len(line) for line in lines], dtype=np.int64)


def ngram_keys(ids: Ints, lengths: Ints, ngrams: int, base: int) -> tuple[Ints, Ints]:
    """The integer of each n-gram within a row, and the index of its row.

    >>> keys, rows = ngram_keys(np.array([5, 6, 5]), np.array([2, 1]), 2, 10)
    >>> keys.tolist(), rows.tolist()
    ([6, 7, 6, 67], [0, 0, 1, 0])
    """
    rows = np.repeat(np.arange(lengths.size), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(ids.size)
    keys, where = [], []
    for length in range(1, ngrams + 1):
        starts = np.flatnonzero(left >= length)
        key = np.zeros(starts.size, dtype=np.int64)
        for offset in range(length):
            key = key * base + ids[starts + offset] + 1
        keys.append(key)
        where.append(rows[starts])
    return np.concatenate(keys), np.concatenate(where)


def _blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Texts in blocks, to limit the memory of n-grams."""
    ends = np.cumsum([len(text) for text in texts])
    begin = 0
    while begin < len(texts):
        read = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, read + _MAX_CHARACTERS, side="right")))
        yield texts[begin:end]
        begin = end


def _distinct(keys: Ints, rows: Ints) -> Ints:
    """The sorted keys, each once for every row that has it."""
    order = np.lexsort((rows, keys))
    keys, rows = keys[order], rows[order]
    new = np.ones(keys.size, dtype=np.bool_)
    new[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
    return keys[new]


def _add(keys: Ints, counts: Ints, more: Ints, theirs: Ints) -> tuple[Ints, Ints]:
    """The summed counts of two sorted arrays of keys."""
    merged, indices = np.unique(np.concatenate([keys, more]), return_inverse=True)
    total = np.bincount(indices, weights=np.concatenate([counts, theirs]), minlength=merged.size)
    return merged, total.astype(np.int64)


def _cosines(first: Any, second: Any) -> npt.NDArray[np.float64]:
    """The cosine of corresponding rows; 0 for an empty row."""
    products = np.asarray(first.multiply(second).sum(axis=1))
    lengths = np.sqrt(np.asarray(first.power(2).sum(axis=1)) * np.asarray(second.power(2).sum(axis=1)))
    return np.asarray(products / np.maximum(lengths, _TINY))


def _overlaps(first: Any, second: Any) -> npt.NDArray[np.float64]:
    """(rows, 7): the fractions of the distinct n-grams of each text that the other has, and whether it has all of the
    second; the logarithms of their numbers; the numbers that only one has. About as large as the other features.

    >>> from scipy import sparse
    >>> one, two = (sparse.csr_array([row]) for row in ([0.6, 0.8, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]))
    >>> _overlaps(one, two)[0, :3].tolist()
    [0.5, 1.0, 1.0]
    """
    sizes = [np.asarray(one.sign().sum(axis=1)) for one in (first, second)]
    shared = np.asarray(first.sign().multiply(second.sign()).sum(axis=1))
    shares = [shared / np.maximum(size, 1) for size in sizes]
    has_all = (shares[1] == 1).astype(np.float64)
    logarithms, rest = [np.log1p(size) / 3 for size in sizes], [(size - shared) / 10 for size in sizes]
    return np.stack([*shares, has_all, *logarithms, *rest], axis=1)


class LinearClassifier(Predictor):
    """Weights of the n-grams for each label."""

    def __init__(
        self, features: NgramFeatures, weights: npt.NDArray[np.float32], bias: npt.NDArray[np.float64]
    ) -> None:
        """weights: (labels, columns), or one row for a number; bias: (labels)."""
        self.features, self.weights, self.bias = features, weights, bias
        self.recipe = features.recipe
        self.tokenizer = features.tokenizer
        self.task: str = self.recipe.task
        self.labels = self.recipe.labels
        self.columns = self.recipe.columns

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the artifact."""
        return {"keys": self.features.keys, "idf": self.features.idf, "weights": self.weights, "bias": self.bias}

    def predict_chunk(self, examples: Sequence[Example]) -> list[Prediction]:
        return self.predict_features(self.features.matrix(cast(Sequence[TextExample], examples)))

    def predict_features(self, matrix: Any) -> list[Prediction]:
        """Predictions for the rows of a feature matrix."""
        from scipy import special

        scores = self.score_features(matrix)
        if self.recipe.form == "number":
            return [{"score": score} for score in scores[:, 0].tolist()]
        if self.recipe.form == "multi":
            return [multiple_labels(self.labels, one) for one in special.expit(scores).tolist()]
        return [single_label(self.labels, one) for one in special.softmax(scores, axis=1).tolist()]

    def scores(self, examples: Sequence[Example]) -> list[npt.NDArray[np.float64]]:
        """(labels), or a number, for each example."""
        return list(self.score_features(self.features.matrix(cast(Sequence[TextExample], examples))))

    def score_features(self, matrix: Any) -> npt.NDArray[np.float64]:
        """(rows of the matrix, labels)."""
        return np.asarray(matrix @ self.weights.T.astype(np.float64) + self.bias)

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        return text_metric_inputs(self.task, self.recipe.form, examples, answers)


def restore_linear(
    recipe: LinearRecipe, arrays: Mapping[str, npt.NDArray[Any]], tokenizer: Tokenizer
) -> LinearClassifier:
    """The model of the arrays of an artifact, whose names, types and shapes are checked."""
    types = {"keys": np.int64, "idf": np.float64, "weights": np.float32, "bias": np.float64}
    if set(arrays) != set(types) or any(arrays[name].dtype != kind for name, kind in types.items()):
        raise ArtifactError(_DAMAGED)
    features = NgramFeatures(recipe, tokenizer)
    features.keys, features.idf = keys, idf = arrays["keys"], arrays["idf"]
    outputs = 1 if recipe.form == "number" else len(recipe.labels)
    has_shapes = keys.ndim == 1 and idf.shape == keys.shape and arrays["bias"].shape == (outputs,)
    has_shapes = has_shapes and arrays["weights"].shape == (outputs, features.columns)
    is_finite = all(np.all(np.isfinite(arrays[name])) for name in ("idf", "weights", "bias"))
    if not (has_shapes and is_finite and np.all(np.diff(keys) > 0)):
        raise ArtifactError(_DAMAGED)
    return LinearClassifier(features, arrays["weights"], arrays["bias"])
