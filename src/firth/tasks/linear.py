"""LinearModel: logistic regression on the n-grams of texts, for models that have neither states nor vectors.

    score(label, text) = bias(label) + sum over n-grams of weight(label, n-gram) * value(n-gram, text)

With tf-idf, value = count * (log((1 + texts) / (1 + texts that have the n-gram)) + 1), each text scaled to length 1. Of
a pair there are the values of both texts, of what they share (the smaller value), and the cosine of their angle.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, CorpusError, RecipeError
from firth.tasks.examples import Example, TextExample, numeric_labels
from firth.tasks.linear_recipe import LinearRecipe
from firth.tasks.metrics import measure
from firth.tasks.solver import Answer, Solver
from firth.tokens.encoder import Encoder
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import UNK, Tokenizer

Numbers = npt.NDArray[np.int64]
_ROOM = 1 << 22  # characters whose n-grams are held at a time
_CHARACTERS = 0x110000  # code points that there are
_TINY = 1e-30
_LIKELY = 0.5  # from which probability on a label is given, where there may be several
_DAMAGED = "the numbers of the linear model are damaged: copy the folder again, or train it again."


class Grams:
    """The n-grams of texts as the columns of a sparse matrix.

    An n-gram is one whole number, its ids being the digits, so that a column is found in a sorted array.
    """

    def __init__(self, recipe: LinearRecipe, tokenizer: Tokenizer) -> None:
        self.recipe, self.tokenizer = recipe, tokenizer
        self.base = 1 + (_CHARACTERS if recipe.features == "characters" else len(tokenizer))
        if self.base**recipe.ngrams >= 1 << 63:
            raise RecipeError(
                f"ngrams={recipe.ngrams} of {self.base - 1:,} tokens have no room in 64 bits: set ngrams to less."
            )
        self.keys = np.zeros(0, dtype=np.int64)
        """All n-grams that have a column, in order."""
        self.idf = np.zeros(0)
        self._encoder = Encoder(tokenizer)

    @property
    def columns(self) -> int:
        """Of the matrix."""
        return 3 * self.keys.size + 1 if self.recipe.task == "pair" else self.keys.size

    def learn(self, examples: Sequence[TextExample]) -> None:
        """Takes the n-grams that enough texts have, and how rare each is."""
        texts = [text for one in examples for text in (one.text, one.other) if text is not None]
        keys, having = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        for part in _parts(texts):
            keys, having = _add(keys, having, *np.unique(_once(*self.find(part)), return_counts=True))
        kept = having >= self.recipe.min_count
        if not kept.any():
            raise CorpusError(
                f"no token occurs in {self.recipe.min_count} texts: give more examples, or set min_count=1."
            )
        self.keys = keys[kept]
        self.idf = np.ones(self.keys.size)
        if self.recipe.weighting == "tfidf":
            self.idf = np.log((1 + len(texts)) / (1 + having[kept])) + 1

    def matrix(self, examples: Sequence[TextExample]) -> Any:
        """A row for each example, in scipy's sparse form."""
        from scipy import sparse  # type: ignore[import-untyped]

        first = self.values([one.text for one in examples])
        if self.recipe.task == "classify":
            return first
        second = self.values([one.other or "" for one in examples])
        both = sparse.csr_array(_cosines(first, second)[:, None])
        return sparse.hstack([first, second, first.minimum(second), both], format="csr")

    def values(self, texts: Sequence[str]) -> Any:
        """What each text has of each n-gram."""
        from scipy import sparse

        return sparse.vstack([self._values(part) for part in _parts(texts)], format="csr")

    def _values(self, texts: Sequence[str]) -> Any:
        from scipy import sparse

        from firth.vectors.bag import weigh

        keys, rows = self.find(texts)
        columns = np.searchsorted(self.keys, keys)
        known = np.append(self.keys, -1)[columns] == keys
        places = rows[known], columns[known]
        counts = sparse.coo_array((np.ones(places[0].size), places), shape=(len(texts), self.keys.size)).tocsr()
        if self.recipe.weighting == "tfidf":
            return weigh(counts, self.idf).astype(np.float64)
        return counts.sign() if self.recipe.weighting == "binary" else counts

    def find(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        """All n-grams of texts, and in which text each is."""
        ids, lengths = self._characters(texts) if self.recipe.features == "characters" else self._tokens(texts)
        return ngram_keys(ids, lengths, self.recipe.ngrams, self.base)

    def _tokens(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        encoded = self._encoder.encode([" ".join(text.replace("\0", " ").split()) for text in texts])
        ids = encoded.ids.astype(np.int64)
        return np.where(ids >= FIRST_WORD, ids, UNK), encoded.lengths

    def _characters(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        """Code points, after what the tokenizer does to letters; spaces are one."""
        form, lower = self.tokenizer.recipe.normalise, self.tokenizer.recipe.lowercase
        if form != "none":
            texts = [unicodedata.normalize("NFC" if form == "nfc" else "NFKC", text) for text in texts]
        lines = [" ".join((text.lower() if lower else text).split()) for text in texts]
        ids = np.frombuffer("".join(lines).encode("utf-32-le"), dtype="<u4").astype(np.int64)
        return ids, np.array([len(line) for line in lines], dtype=np.int64)


def ngram_keys(ids: Numbers, lengths: Numbers, ngrams: int, base: int) -> tuple[Numbers, Numbers]:
    """Each n-gram as a number, and the row that it is in; none goes beyond its row.

    >>> keys, rows = ngram_keys(np.array([5, 6, 5]), np.array([2, 1]), 2, 10)
    >>> keys.tolist(), rows.tolist()
    ([6, 7, 6, 67], [0, 0, 1, 0])
    """
    rows = np.repeat(np.arange(lengths.size), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(ids.size)
    keys, where = [], []
    for length in range(1, ngrams + 1):
        places = np.flatnonzero(left >= length)
        key = np.zeros(places.size, dtype=np.int64)
        for offset in range(length):
            key = key * base + ids[places + offset] + 1
        keys.append(key)
        where.append(rows[places])
    return np.concatenate(keys), np.concatenate(where)


def _parts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Some texts at a time, so that the n-grams of all need not be held at once."""
    ends = np.cumsum([len(text) for text in texts])
    begin = 0
    while begin < len(texts):
        read = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, read + _ROOM, side="right")))
        yield texts[begin:end]
        begin = end


def _once(keys: Numbers, rows: Numbers) -> Numbers:
    """The keys in order, each once for each row that has it."""
    order = np.lexsort((rows, keys))
    keys, rows = keys[order], rows[order]
    new = np.ones(keys.size, dtype=np.bool_)
    new[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
    return keys[new]


def _add(keys: Numbers, counts: Numbers, more: Numbers, theirs: Numbers) -> tuple[Numbers, Numbers]:
    """The counts of all keys, which are in order in both."""
    merged, places = np.unique(np.concatenate([keys, more]), return_inverse=True)
    total = np.bincount(places, weights=np.concatenate([counts, theirs]), minlength=merged.size)
    return merged, total.astype(np.int64)


def _cosines(first: Any, second: Any) -> npt.NDArray[np.float64]:
    """The cosine of each row and the same one of the other; 0 for a row of nothing."""
    products = np.asarray(first.multiply(second).sum(axis=1))
    lengths = np.sqrt(np.asarray(first.power(2).sum(axis=1)) * np.asarray(second.power(2).sum(axis=1)))
    return np.asarray(products / np.maximum(lengths, _TINY))


@dataclass(frozen=True)
class Whole:
    """How texts are read: never cut."""

    cut: int = 0


class LinearModel(Solver):
    """Weights of n-grams for each label."""

    frame = Whole()

    def __init__(self, grams: Grams, weights: npt.NDArray[np.float32], bias: npt.NDArray[np.float64]) -> None:
        """`weights` has a row for each label, or one for a number, and `bias` as many."""
        self.grams, self.weights, self.bias = grams, weights, bias
        self.recipe = grams.recipe
        self.tokenizer = grams.tokenizer
        self.task: str = self.recipe.task
        self.labels = self.recipe.labels
        self.fields = self.recipe.fields

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps."""
        return {"keys": self.grams.keys, "idf": self.grams.idf, "weights": self.weights, "bias": self.bias}

    def answer_all(self, examples: Sequence[Example]) -> list[Answer]:
        """The answers to some examples."""
        return self.answers(self.grams.matrix(cast(Sequence[TextExample], examples)))

    def answers(self, matrix: Any) -> list[Answer]:
        """What is told of each row of n-grams."""
        from scipy import special

        scores = matrix @ self.weights.T.astype(np.float64) + self.bias
        if self.recipe.form == "number":
            return [{"score": score} for score in scores[:, 0].tolist()]
        if self.recipe.form == "multi":
            return [self._several(chances) for chances in special.expit(scores).tolist()]
        return [self._single(chances) for chances in special.softmax(scores, axis=1).tolist()]

    def _single(self, chances: list[float]) -> Answer:
        best = max(chances)
        return {
            "label": self.labels[chances.index(best)],
            "probability": best,
            "probabilities": dict(zip(self.labels, chances, strict=True)),
        }

    def _several(self, chances: list[float]) -> Answer:
        given = [label for label, chance in zip(self.labels, chances, strict=True) if chance >= _LIKELY]
        return {"labels": given, "probabilities": dict(zip(self.labels, chances, strict=True))}

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """How good answers are: metrics with intervals."""
        texts = cast(Sequence[TextExample], examples)
        gold: list[Any]
        if self.recipe.form == "number":
            kind, told, gold = "similarity", "score", numeric_labels(texts)
        elif self.recipe.form == "multi":
            kind, told, gold = "multilabel", "labels", [one.labels or () for one in texts]
        else:
            kind, told, gold = self.task, "label", [(one.labels or ("",))[0] for one in texts]
        return measure(kind, gold, [one[told] for one in answers], seed=seed, samples=samples)


def restore(recipe: LinearRecipe, arrays: Mapping[str, npt.NDArray[Any]], tokenizer: Tokenizer) -> LinearModel:
    """The model of a saved artifact's arrays, after a look at their names, types and shapes."""
    types = {"keys": np.int64, "idf": np.float64, "weights": np.float32, "bias": np.float64}
    if set(arrays) != set(types) or any(arrays[name].dtype != kind for name, kind in types.items()):
        raise ArtifactError(_DAMAGED)
    grams = Grams(recipe, tokenizer)
    grams.keys, grams.idf = keys, idf = arrays["keys"], arrays["idf"]
    outputs = 1 if recipe.form == "number" else len(recipe.labels)
    shapes = keys.ndim == 1 and idf.shape == keys.shape and arrays["bias"].shape == (outputs,)
    if not shapes or arrays["weights"].shape != (outputs, grams.columns) or not np.all(np.diff(keys) > 0):
        raise ArtifactError(_DAMAGED)
    if not all(np.all(np.isfinite(arrays[name])) for name in ("idf", "weights", "bias")):
        raise ArtifactError(_DAMAGED)
    return LinearModel(grams, arrays["weights"], arrays["bias"])
