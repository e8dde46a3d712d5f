"""VectorModel: words as points, near to each other if they mean alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import AbilityError, ArtifactError
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors import _neighbour_kernels as kernels
from firth.vectors.index import Index, build_index
from firth.vectors.lookup import Found, NoVectorError, WordModel, refuse_context
from firth.vectors.neighbours import Floats, Method, Neighbours, Rows, unit
from firth.vectors.phrases import Phrases, phrase_words, saved_phrases
from firth.vectors.text import FIRST_WORD

_TEXTS = 20_000  # that are encoded at once


class VectorModel(WordModel):
    """Words as vectors. Row `i` is the vector of `words[i]`; the rows of special tokens are zero."""

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
        """`phrases` make words of their own, after those of the tokenizer."""
        if words is None:
            words = tokenizer.vocabulary if phrases is None else phrase_words(phrases, tokenizer.vocabulary)
        super().__init__(recipe, tokenizer, layout, words, counts, phrases)
        self.vectors = vectors
        self.outputs = outputs

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps."""
        outputs = {} if self.outputs is None else {"outputs": self.outputs}
        return super().arrays() | {"vectors": self.vectors} | outputs

    def unknown(self, word: str) -> Floats | None:
        """A vector for a word that has no row, made from its letters; None here, where words have no parts."""
        return None

    def vector(self, word: str) -> Floats:
        """The vector of a word."""
        row = self.find(word)
        if row is not None:
            return np.asarray(self.vectors[row])
        made = self.unknown(self.written(word))
        if made is None:
            raise NoVectorError(word, self.rows)
        return made

    def similarity(self, one: str, two: str) -> float:
        """The cosine of the angle between two words."""
        return float(np.clip(unit(self.vector(one)) @ unit(self.vector(two)), -1, 1))

    def distance(self, one: str, two: str) -> float:
        """One less the similarity: 0 for the same direction, 2 for opposite ones."""
        return 1 - self.similarity(one, two)

    @cached_property
    def neighbours(self) -> Neighbours:
        """All rows, ready to be compared."""
        return Neighbours(self.vectors, FIRST_WORD)

    def index(self) -> Index:
        """What finds nearly all neighbours many times faster; made once, in seconds for a million words."""
        return self._index

    @cached_property
    def _index(self) -> Index:
        return build_index(self.neighbours)

    def similar(
        self,
        word: str,
        count: int = 10,
        *,
        context: str | None = None,
        exclude: Sequence[str] = (),
        approximate: bool = False,
    ) -> Found:
        """The nearest words and their cosines, nearest first; `approximate` looks them up in the index."""
        refuse_context(context)
        leave_out = self._known([word, *exclude])
        search = self.index() if approximate else self.neighbours
        return self._named(search.nearest(self.vector(word), count, leave_out))

    def analogy(
        self, positive: Sequence[str], negative: Sequence[str] = (), count: int = 10, method: Method = "add"
    ) -> Found:
        """The words that are near to all of `positive` and far from all of `negative`, none of them given.

        `add` takes the nearest to the sum of the unit vectors (3CosAdd, Mikolov et al. 2013), `mul` multiplies and
        divides their cosines, moved to 0 to 1 (3CosMul, Levy and Goldberg 2014).
        """
        if not positive:
            raise AbilityError("an analogy needs at least one word to be near to.")
        near, leave_out = self.neighbours, self._known([*positive, *negative])
        plus, minus = ([self.vector(word) for word in words] for words in (positive, negative))
        if method == "add":
            target = sum((unit(one) for one in plus), np.zeros(self.vectors.shape[1], dtype=np.float32))
            return self._named(near.nearest(sum((-unit(one) for one in minus), target), count, leave_out))
        above = np.ones(len(self.vectors), dtype=np.float32)
        below = np.ones(len(self.vectors), dtype=np.float32)
        for one in plus:
            above *= (1 + near.scores(one)) / 2
        for one in minus:
            below *= (1 + near.scores(one)) / 2
        scores = above / (below + np.float32(1e-6))
        return self._named(near.best(scores, count, leave_out))

    def answers(self, questions: Rows, kinds: Rows, among: Rows, method: Method = "add") -> Rows:
        """For each line of rows (a, b, c) the row that is to c as b is to a: see `Neighbours.analogies`."""
        return self.neighbours.analogies(questions, kinds, among, method)

    def odd_one_out(self, words: Sequence[str]) -> str:
        """The word that is farthest from the middle of all."""
        if len(words) < 3:
            raise AbilityError("the odd one out needs three words or more to choose from.")
        units = np.array([unit(self.vector(word)) for word in words])
        return words[int(np.argmin(units @ unit(units.mean(axis=0))))]

    def embed(self, texts: Sequence[str]) -> Floats:
        """The mean vector of each text's words, those without a vector left out; zeros if none has one."""
        means = np.zeros((len(texts), self.vectors.shape[1]), dtype=np.float32)
        vectors = self.neighbours.vectors
        for begin in range(0, len(texts), _TEXTS):
            ids, bounds = self.encode(texts[begin : begin + _TEXTS])
            kernels.mean_rows(vectors, ids, bounds, FIRST_WORD, means[begin : begin + _TEXTS])
        return means

    def _known(self, words: Sequence[str]) -> list[int]:
        """The rows of those words that have one."""
        return [row for row in map(self.find, words) if row is not None]

    def _named(self, found: Sequence[tuple[int, float]]) -> Found:
        return [(self.words[row], score) for row, score in found]


def restore_vectors(
    recipe: Any, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout, make: type[VectorModel] = VectorModel
) -> VectorModel:
    """The model of a saved artifact's arrays: `vectors` and, where they are, `outputs`, `counts` and `phrases`."""
    phrases, words = saved_phrases(arrays, tokenizer)
    rows = len(words)
    vectors = saved_matrix(arrays, "vectors", rows)
    outputs, counts = arrays.get("outputs"), arrays.get("counts")
    if outputs is not None and (outputs.dtype != np.float32 or outputs.ndim != 2):
        raise _wrong("outputs")
    if counts is not None and (counts.dtype != np.int64 or counts.shape != (rows,)):
        raise _wrong("counts")
    return make(recipe, tokenizer, layout, vectors, counts=counts, outputs=outputs, words=words, phrases=phrases)


def saved_matrix(arrays: Mapping[str, Any], name: str, rows: int) -> Floats:
    """The matrix of that name, with a row for each word and nothing but numbers in it."""
    matrix = arrays.get(name)
    if matrix is None or matrix.dtype != np.float32 or matrix.ndim != 2 or matrix.shape[0] != rows or not matrix.size:
        raise _wrong(name)
    return matrix  # type: ignore[no-any-return]


def _wrong(name: str) -> ArtifactError:
    return ArtifactError(f"the array {name!r} is missing or has a wrong shape: train the model again.")
