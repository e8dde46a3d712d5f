"""VectorModel: dense word vectors compared by cosine similarity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import AbilityError
from firth.text.layout import Layout
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.vectors import _neighbour_kernels as kernels
from firth.vectors.index import ApproximateIndex, build_index
from firth.vectors.lookup import NoVectorError, ScoredWords, WordModel, refuse_context, saved_counts, saved_matrix
from firth.vectors.neighbours import ExactIndex, Floats, Method, Rows, unit
from firth.vectors.phrases import Phrases, phrase_words, saved_phrases

_TEXTS = 20_000  # encoded at once


class VectorModel(WordModel):
    """Word vectors: row `i` is the vector of `words[i]`; the rows of special tokens are zero."""

    def __init__(
        self,
        recipe: Any,
        tokenizer: Tokenizer,
        layout: Layout,
        vectors: Floats,
        *,
        counts: npt.NDArray[np.int64] | None = None,
        outputs: Floats | None = None,
        words: list[str] | None = None,
        phrases: Phrases | None = None,
    ) -> None:
        """`outputs` are the context vectors; `words` default to those of the tokenizer and the phrases."""
        words = phrase_words(phrases, tokenizer.vocabulary) if words is None else words
        super().__init__(recipe, tokenizer, layout, words, counts, phrases)
        self.vectors, self.outputs = vectors, outputs

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        outputs = {} if self.outputs is None else {"outputs": self.outputs}
        return super().arrays() | {"vectors": self.vectors} | outputs

    def oov_vector(self, word: str) -> Floats | None:
        """A vector for an out-of-vocabulary word; None in models without subwords."""
        return None

    def vector(self, word: str) -> Floats:
        """The vector of a word."""
        row = self.find_row(word)
        if row is not None:
            return np.asarray(self.vectors[row])
        composed = self.oov_vector(self.normalize(word))
        if composed is None:
            raise NoVectorError(word, self.rows)
        return composed

    def __contains__(self, word: object) -> bool:
        """Whether there is a vector of a word; subwords make those of unknown words, too."""
        return isinstance(word, str) and (
            self.find_row(word) is not None or self.oov_vector(self.normalize(word)) is not None
        )

    def summary(self) -> dict[str, Any]:
        """The numbers of words and dimensions, the recipe, the tokenizer and the methods."""
        return {"words": len(self), "dimension": self.vectors.shape[1]} | super().summary()

    def similarity(self, one: str, two: str) -> float:
        """The cosine similarity of two words."""
        return float(np.clip(unit(self.vector(one)) @ unit(self.vector(two)), -1, 1))

    def distance(self, one: str, two: str) -> float:
        """The cosine distance of two words, 0 to 2."""
        return 1 - self.similarity(one, two)

    @cached_property
    def exact_index(self) -> ExactIndex:
        """Exhaustive nearest-neighbour search over all words."""
        return ExactIndex(self.vectors, FIRST_WORD)

    def index(self) -> ApproximateIndex:
        """Approximate nearest-neighbour search, many times faster; built once, in seconds for a million words."""
        return self._index

    @cached_property
    def _index(self) -> ApproximateIndex:
        return build_index(self.exact_index)

    def similar(
        self,
        word: str,
        count: int = 10,
        *,
        context: str | None = None,
        exclude: Sequence[str] = (),
        approximate: bool = False,
    ) -> ScoredWords:
        """The nearest words and their cosines, nearest first; `approximate` uses the index.

        With senses: the nearest to the one meant in the context, or to any of the word's, by the highest cosine.
        """
        queries, excluded = self._queries(word, context), self._known([word, *exclude])
        search = self.index() if approximate else self.exact_index
        best: dict[int, float] = {}
        for query in queries:
            for row, score in search.nearest(query, count, excluded):
                best[row] = max(score, best.get(row, score))
        return self._named(sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[: max(count, 0)])

    def _queries(self, word: str, context: str | None) -> Sequence[Floats]:
        """The vectors that stand for a word."""
        refuse_context(context)
        return [self.vector(word)]

    def analogy(
        self, positive: Sequence[str], negative: Sequence[str] = (), count: int = 10, method: Method = "add"
    ) -> ScoredWords:
        """The words nearest to all of `positive` and farthest from all of `negative`, excluding the given ones.

        `add` ranks by cosine with the sum of the unit vectors (3CosAdd, Mikolov et al. 2013), `mul` multiplies and
        divides cosines shifted to [0, 1] (3CosMul, Levy and Goldberg 2014).
        """
        if not positive:
            raise AbilityError("an analogy needs at least one positive word.")
        index, exclude = self.exact_index, self._known([*positive, *negative])
        plus, minus = ([self.vector(word) for word in words] for words in (positive, negative))
        if method == "add":
            target = sum((unit(one) for one in plus), np.zeros(self.vectors.shape[1], dtype=np.float32))
            return self._named(index.nearest(sum((-unit(one) for one in minus), target), count, exclude))
        numerator, denominator = np.ones((2, len(self.vectors)), dtype=np.float32)
        for product, vectors in ((numerator, plus), (denominator, minus)):
            for one in vectors:
                product *= (1 + index.cosines(one)) / 2
        return self._named(index.best(numerator / (denominator + np.float32(1e-6)), count, exclude))

    def answers(self, questions: Rows, groups: Rows, among: Rows, method: Method = "add") -> Rows:
        """For each line of rows (a, b, c) the row that is to c as b is to a: see `ExactIndex.analogies`."""
        return self.exact_index.analogies(questions, groups, among, method)

    def odd_one_out(self, words: Sequence[str]) -> str:
        """The word farthest from the mean of all."""
        if len(words) < 3:
            raise AbilityError("the odd one out needs three words or more to choose from.")
        units = np.array([unit(self.vector(word)) for word in words])
        return words[int(np.argmin(units @ unit(units.mean(axis=0))))]

    def embed(self, texts: Sequence[str]) -> Floats:
        """The mean vector of each text's known words; zeros if there are none."""
        means = np.zeros((len(texts), self.vectors.shape[1]), dtype=np.float32)
        vectors = self.exact_index.vectors
        for begin in range(0, len(texts), _TEXTS):
            ids, bounds = self.encode(texts[begin : begin + _TEXTS])
            rows = self._rows_of_ids(ids, bounds)
            kernels.mean_rows(vectors, rows, bounds, FIRST_WORD, means[begin : begin + _TEXTS])
        return means

    def text_table(self) -> Floats | None:
        """(words, dimension): rows whose mean over the known words of a text is its vector; None if there are none.

        The rows of special tokens are zero.
        """
        if type(self).embed is not VectorModel.embed or type(self)._rows_of_ids is not VectorModel._rows_of_ids:
            return None
        return None if self.phrases is not None else _without_specials(self.vectors)

    def _rows_of_ids(self, ids: npt.NDArray[np.uint32], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
        return ids

    def _known(self, words: Sequence[str]) -> list[int]:
        return [row for row in map(self.find_row, words) if row is not None]

    def _named(self, found: Sequence[tuple[int, float]]) -> ScoredWords:
        return [(self.words[row], score) for row, score in found]


def _without_specials(rows: Floats) -> Floats:
    found = np.array(rows, dtype=np.float32)
    found[:FIRST_WORD] = 0
    return found


def saved_vectors(arrays: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """The arguments of a `VectorModel` from saved arrays, of which only `vectors` is required."""
    phrases, words = saved_phrases(arrays, tokenizer)
    return {
        "vectors": saved_matrix(arrays, "vectors", len(words)),
        "outputs": saved_matrix(arrays, "outputs") if "outputs" in arrays else None,
        "counts": saved_counts(arrays, "counts", len(words)) if "counts" in arrays else None,
        "words": words,
        "phrases": phrases,
    }
