"""ClassifierModel: fastText's linear classifier over the mean of word and n-gram vectors, hashed as in fastText."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import AbilityError
from firth.text.layout import Layout
from firth.tokens.tokenizer import EOS, FIRST_WORD, UNK, Tokenizer
from firth.vectors import _classifier_kernels as kernels
from firth.vectors.lookup import saved_counts, saved_matrix, saved_vector, wrong_array
from firth.vectors.model import VectorModel
from firth.vectors.neighbours import Floats
from firth.vectors.phrases import saved_phrases
from firth.vectors.recipe import ClassifierRecipe
from firth.vectors.sampling import HuffmanCodes, build_tree
from firth.vectors.subwords import ngram_buckets

_TEXTS = 20_000  # in a batch, or fewer if there are many labels
_MAX_SCORES = 1 << 24  # of a batch
END = "</s>"  # fastText's end of text, a word without character n-grams
BucketRows = npt.NDArray[np.int32]  # the row of each bucket, -1 for buckets without n-grams in the training text


class ClassifierModel(VectorModel):
    """Vectors of words, n-grams and labels; the logit of a label is its product with the mean of a text.

    `inputs` has a row for each word, then one for each used bucket; n-grams of other buckets count as zeros. The end of
    a text, </s>, is a word with a row.
    """

    def __init__(
        self, recipe: ClassifierRecipe, tokenizer: Tokenizer, layout: Layout, inputs: Floats, *,
        used: npt.NDArray[np.int32], labels: Sequence[str], label_counts: npt.NDArray[np.int64], **others: Any,
    ) -> None:  # fmt: skip
        """`others` are those of `VectorModel`; `outputs` among them has a row for each label."""
        super().__init__(recipe, tokenizer, layout, inputs[: len(inputs) - used.size], **others)
        assert isinstance(recipe.buckets, int)
        self.inputs, self.used = inputs, used
        self.labels, self.label_counts = list(labels), label_counts
        self.bucket_rows: BucketRows = rows_of_buckets(used, recipe.buckets, len(self.words))
        if recipe.max_n:
            self.vectors = np.empty((len(self.words), inputs.shape[1]), dtype=np.float32)
            kernels.mean_rows(inputs, self._features.subwords, self._features.starts, self.vectors)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        found = super().arrays() | {"inputs": self.inputs, "used": self.used, "label_counts": self.label_counts}
        found["labels"] = np.frombuffer(json.dumps(self.labels, ensure_ascii=False).encode(), dtype=np.uint8)
        del found["vectors"]  # derived from `inputs`
        return found

    def predict(self, texts: Sequence[str], count: int = 1) -> list[list[tuple[str, float]]]:
        """The `count` most probable labels of each text, with their probabilities."""
        if count < 1:
            raise AbilityError(f"count={count} must be 1 or more labels.")
        found: list[list[tuple[str, float]]] = []
        steps = len(self.labels) if self._tree is None else max(self._tree.nodes.size, 1)
        batch = max(1, min(_TEXTS, _MAX_SCORES // steps))
        for begin in range(0, len(texts), batch):
            probabilities = self.probabilities(texts[begin : begin + batch])
            best = np.argsort(-probabilities, axis=1, kind="stable")[:, :count]
            for labels, row in zip(best.tolist(), probabilities, strict=True):
                found.append([(self.labels[label], float(row[label])) for label in labels])
        return found

    def probabilities(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """(texts, labels): the probability of each label.

        With negative sampling labels are independent, so that they need not sum to one.
        """
        scores = np.empty((len(texts), len(self.labels)), dtype=np.float32)
        assert self.outputs is not None
        kernels.score_labels(self.embed(texts), self.outputs, scores)
        logits = scores.astype(np.float64)
        if self._tree is not None:
            return tree_probabilities(logits, self._tree)
        if self.recipe.loss == "negative":
            return np.asarray(np.exp(-np.logaddexp(0, -logits)))
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def embed(self, texts: Sequence[str]) -> Floats:
        """The mean of each text's input rows."""
        means = np.empty((len(texts), self.inputs.shape[1]), dtype=np.float32)
        for begin in range(0, len(texts), _TEXTS):
            batch = texts[begin : begin + _TEXTS]
            ids, bounds, features = self._read(batch)
            rows, row_bounds = list_rows(ids, bounds, features, self.recipe.word_ngrams, self.bucket_rows)
            kernels.mean_rows(self.inputs, rows, row_bounds, means[begin : begin + len(batch)])
        return means

    def oov_vector(self, word: str) -> Floats | None:
        """The mean of the rows of a word's character n-grams; None if there are none."""
        subwords = self._word_features([word], np.zeros(1, dtype=np.bool_)).subwords
        if not subwords.size:
            return None
        return np.asarray(self.inputs[subwords[subwords >= 0]].sum(axis=0) / np.float32(subwords.size))

    @cached_property
    def _tree(self) -> HuffmanCodes | None:
        return label_tree(self.label_counts) if self.recipe.loss == "hierarchical" else None

    @cached_property
    def _features(self) -> ClassifierFeatures:
        own = np.ones(len(self.words), dtype=np.bool_)
        own[:FIRST_WORD] = np.any(self.inputs[:FIRST_WORD] != 0, axis=1)  # the end of a text, others if imported so
        return vocabulary_features(self.words, own, self.recipe, self.bucket_rows)

    def _word_features(self, words: Sequence[str], own: npt.NDArray[np.bool_]) -> ClassifierFeatures:
        return word_features(words, own, self.recipe.min_n, self.recipe.max_n, self.bucket_rows)

    def _read(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], ClassifierFeatures]:
        """The ids of texts with their ends, and word features: unknown words are given new ids."""
        found, bounds = self.encode(texts)
        ids = np.insert(found, bounds[1:], EOS).astype(np.uint32)
        bounds = bounds + np.arange(bounds.size)
        row_bounds = np.flatnonzero(ids == UNK)
        if not row_bounds.size:
            return ids, bounds, self._features
        texts_with = np.unique(np.searchsorted(bounds, row_bounds, side="right") - 1)
        new: dict[str, int] = {}
        words = self._unknown_words([texts[text] for text in texts_with])
        ids[row_bounds] = [len(self.words) + new.setdefault(word, len(new)) for word in words]
        return ids, bounds, self._features.extended(self._word_features([*new], np.zeros(len(new), dtype=np.bool_)))

    def _unknown_words(self, texts: Sequence[str]) -> list[str]:
        spaced = [self.tokenizer.presegment(" ".join(text.replace("\0", " ").splitlines())) for text in texts]
        encodings = self.tokenizer.backend.encode_batch(spaced, add_special_tokens=False)
        return [
            self.normalize(text[begin:end])
            for text, encoding in zip(spaced, encodings, strict=True)
            for id, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if id == UNK
        ]


def label_tree(counts: npt.NDArray[np.int64]) -> HuffmanCodes:
    """The Huffman tree of labels, most frequent first, as fastText builds it: ties join inner nodes first.

    >>> tree = label_tree(np.array([2, 1, 1]))
    >>> [tree.codes[a:b].tolist() for a, b in zip(tree.starts, tree.starts[1:])]
    [[1], [0, 1], [0, 0]]
    """
    labels = np.arange(len(counts))[::-1].copy()
    tree = build_tree(counts, labels, inner_first=True)
    return tree._replace(nodes=len(counts) - 2 - tree.nodes)  # fastText numbers inner nodes from the leaves up


def tree_probabilities(scores: npt.NDArray[np.float64], tree: HuffmanCodes) -> npt.NDArray[np.float64]:
    """The probability of each label: the product over the nodes of its path."""
    if not tree.nodes.size:
        return np.ones_like(scores)
    steps = scores[:, tree.nodes] * np.where(tree.codes, 1.0, -1.0)
    return np.asarray(np.exp(np.add.reduceat(-np.logaddexp(0, -steps), tree.starts[:-1], axis=1)))


def restore_classifier(
    recipe: ClassifierRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout
) -> ClassifierModel:
    """The model of a saved artifact's arrays."""
    phrases, words = saved_phrases(arrays, tokenizer)
    used, labels = saved_vector(arrays, "used", np.int32), _saved_labels(arrays)
    damaged = used.size and np.any(np.diff(used) <= 0)
    if recipe.buckets == "auto" or damaged or (used.size and (used[0] < 0 or used[-1] >= recipe.buckets)):
        raise wrong_array("used")
    inputs = saved_matrix(arrays, "inputs", len(words) + used.size)
    outputs = saved_matrix(arrays, "outputs", len(labels))
    if outputs.shape[1] != inputs.shape[1]:
        raise wrong_array("outputs")
    label_counts = saved_counts(arrays, "label_counts", len(labels))
    counts = saved_counts(arrays, "counts", len(words)) if "counts" in arrays else None
    return ClassifierModel(
        recipe, tokenizer, layout, inputs, used=used, outputs=outputs, labels=labels, label_counts=label_counts,
        counts=counts, words=words, phrases=phrases,
    )  # fmt: skip


def _saved_labels(arrays: Mapping[str, Any]) -> list[str]:
    try:
        labels = json.loads(saved_vector(arrays, "labels", np.uint8).tobytes())
    except (ValueError, RecursionError):
        raise wrong_array("labels") from None
    sound = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not sound or not labels or len(set(labels)) < len(labels):
        raise wrong_array("labels")
    return list(labels)


class ClassifierFeatures(NamedTuple):
    """The input rows and hashes of a list of words."""

    starts: npt.NDArray[np.int64]  # bounds of the rows of each word in `subwords`
    subwords: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]  # hashes that buckets of word n-grams are computed from

    def extended(self, other: ClassifierFeatures) -> ClassifierFeatures:
        """The features of these words and more."""
        starts = np.concatenate([self.starts, self.starts[-1] + other.starts[1:]])
        subwords = np.concatenate([self.subwords, other.subwords])
        return ClassifierFeatures(starts, subwords, np.concatenate([self.hashes, other.hashes]))


def word_hashes(words: Sequence[str]) -> npt.NDArray[np.uint64]:
    """fastText's hash of each word: FNV-1a in 32 bits, sign-extended.

    >>> word_hashes(["a", "the"]).astype(np.int64).tolist()
    [-468965076, -1274105316]
    """
    encoded = [word.encode(errors="surrogatepass") for word in words]
    bounds = np.cumsum([0, *map(len, encoded)])
    hashes = np.empty(len(words), dtype=np.uint64)
    kernels.hash_words(np.frombuffer(b"".join(encoded) or b"\0", dtype=np.uint8), bounds, hashes)
    return hashes


def word_features(
    words: Sequence[str], own: npt.NDArray[np.bool_], min_n: int, max_n: int, bucket_rows: BucketRows
) -> ClassifierFeatures:
    """The features of words: word w's own row is w, where `own`; the rows of its character n-grams follow."""
    starts, buckets = np.zeros(len(words) + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
    if max_n and bucket_rows.size:
        starts, buckets = ngram_buckets(words, min_n, max_n, bucket_rows.size)
    subwords = np.insert(bucket_rows[buckets], starts[:-1][own], np.flatnonzero(own)).astype(np.int32)
    return ClassifierFeatures(starts + np.concatenate([[0], np.cumsum(own)]), subwords, word_hashes(words))


def vocabulary_features(
    words: Sequence[str], own: npt.NDArray[np.bool_], recipe: ClassifierRecipe, bucket_rows: BucketRows
) -> ClassifierFeatures:
    """The features of a whole vocabulary."""
    return word_features(fasttext_words(words), own, recipe.min_n, recipe.max_n, bucket_rows)


def fasttext_words(words: Sequence[str]) -> list[str]:
    """A vocabulary with the end of text and the unknown word replaced by fastText's </s>, which has no n-grams.

    >>> fasttext_words(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"])
    ['[PAD]', '</s>', '[CLS]', '</s>', '[MASK]', 'word']
    """
    written = list(words)
    written[UNK] = written[EOS] = END
    return written


def list_rows(
    ids: npt.NDArray[np.uint32], bounds: npt.NDArray[np.int64], features: ClassifierFeatures, max_order: int,
    bucket_rows: BucketRows,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:  # fmt: skip
    """The rows of texts, words before n-grams, and the bounds of each text's."""
    row_bounds = np.empty(bounds.size, dtype=np.int64)
    kernels.count_rows(ids, bounds, features.starts, max_order, row_bounds)
    rows = np.empty(int(row_bounds[-1]), dtype=np.int32)
    used = kernels.list_rows(ids, bounds, *features, max_order, bucket_rows, rows, row_bounds)
    return rows[:used], row_bounds


def rows_of_buckets(used: npt.NDArray[np.int32], buckets: int, first: int) -> BucketRows:
    """The row of each bucket: used ones are numbered from `first` on.

    >>> rows_of_buckets(np.array([1, 3], dtype=np.int32), 5, 10).tolist()
    [-1, 10, -1, 11, -1]
    """
    bucket_rows = np.full(buckets, -1, dtype=np.int32)
    bucket_rows[used] = np.arange(first, first + used.size, dtype=np.int32)
    return bucket_rows
