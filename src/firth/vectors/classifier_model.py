"""ClassifierModel: which of some labels a text has, told from the mean of its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import AbilityError, ArtifactError
from firth.text.layout import Layout
from firth.tokens.tokenizer import EOS, UNK, Tokenizer
from firth.vectors import _classifier_kernels as kernels
from firth.vectors.classifier_rows import Slots, Spelling, list_rows, slots_of, spell, spell_all
from firth.vectors.model import VectorModel, saved_matrix
from firth.vectors.neighbours import Floats
from firth.vectors.phrases import saved_phrases
from firth.vectors.recipe import ClassifierRecipe
from firth.vectors.sampling import Tree
from firth.vectors.text import FIRST_WORD

_TEXTS = 20_000  # that are looked at together, or fewer where there are many labels
_NUMBERS = 1 << 24  # of such a batch, at most


class ClassifierModel(VectorModel):
    """Words, n-grams and labels as vectors: the nearer a label to the mean of a text, the more probable it is.

    `inputs` has a row for each word, then one for each bucket of `used`, into which n-grams fall; n-grams of other
    buckets count as zeros. The end of a text, </s>, is a word like others and has a row.
    """

    def __init__(
        self,
        recipe: ClassifierRecipe,
        tokenizer: Tokenizer,
        layout: Layout,
        inputs: Floats,
        *,
        used: npt.NDArray[np.int32],
        outputs: Floats,
        labels: Sequence[str],
        label_counts: npt.NDArray[np.int64],
        **others: Any,
    ) -> None:
        """`others` are those of `VectorModel`."""
        super().__init__(recipe, tokenizer, layout, inputs[: len(inputs) - used.size], outputs=outputs, **others)
        assert isinstance(recipe.buckets, int)
        self.inputs, self.used = inputs, used
        self.labels, self.label_counts = list(labels), label_counts
        self.slots: Slots = slots_of(used, recipe.buckets, len(self.words))
        if recipe.max_n:
            self.vectors = np.empty((len(self.words), inputs.shape[1]), dtype=np.float32)
            kernels.mean_rows(inputs, self._spelling.parts, self._spelling.starts, self.vectors)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps."""
        found = super().arrays() | {"inputs": self.inputs, "used": self.used, "label_counts": self.label_counts}
        found["labels"] = np.frombuffer(json.dumps(self.labels, ensure_ascii=False).encode(), dtype=np.uint8)
        del found["vectors"]  # they are in `inputs`, or made of it
        return found

    def predict(self, texts: Sequence[str], count: int = 1) -> list[list[tuple[str, float]]]:
        """The `count` likeliest labels of each text, with their probabilities, likeliest first."""
        if count < 1:
            raise AbilityError(f"{count} labels of a text cannot be told: ask for 1 or more.")
        found: list[list[tuple[str, float]]] = []
        steps = len(self.labels) if self._tree is None else max(self._tree.nodes.size, 1)
        together = max(1, min(_TEXTS, _NUMBERS // steps))
        for begin in range(0, len(texts), together):
            chances = self.probabilities(texts[begin : begin + together])
            best = np.argsort(-chances, axis=1, kind="stable")[:, :count]
            for labels, row in zip(best.tolist(), chances, strict=True):
                found.append([(self.labels[label], float(row[label])) for label in labels])
        return found

    def probabilities(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """The probability of each label, a row for each text.

        With negative sampling each label is told from all others by itself, so that they need not add up to one.
        """
        scores = np.empty((len(texts), len(self.labels)), dtype=np.float32)
        assert self.outputs is not None
        kernels.score_labels(self.embed(texts), self.outputs, scores)
        wide = scores.astype(np.float64)
        if self._tree is not None:
            return tree_probabilities(wide, self._tree)
        if self.recipe.loss == "negative":
            return np.asarray(np.exp(-np.logaddexp(0, -wide)))
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def embed(self, texts: Sequence[str]) -> Floats:
        """The mean of each text's rows: what labels are told from."""
        means = np.empty((len(texts), self.inputs.shape[1]), dtype=np.float32)
        for begin in range(0, len(texts), _TEXTS):
            part = texts[begin : begin + _TEXTS]
            ids, bounds, spelling = self._read(part)
            rows, places = list_rows(ids, bounds, spelling, self.recipe.word_ngrams, self.slots)
            kernels.mean_rows(self.inputs, rows, places, means[begin : begin + len(part)])
        return means

    def unknown(self, word: str) -> Floats | None:
        """The mean of the rows of a word's character n-grams; None if there are none."""
        parts = self._spell([word], np.zeros(1, dtype=np.bool_)).parts
        return np.asarray(self.inputs[parts[parts >= 0]].sum(axis=0) / np.float32(parts.size)) if parts.size else None

    @cached_property
    def _tree(self) -> Tree | None:
        return label_tree(self.label_counts) if self.recipe.loss == "hierarchical" else None

    @cached_property
    def _spelling(self) -> Spelling:
        own = np.ones(len(self.words), dtype=np.bool_)
        own[:FIRST_WORD] = np.any(self.inputs[:FIRST_WORD] != 0, axis=1)  # the end of a text, others if they came so
        return spell_all(self.words, own, self.recipe, self.slots)

    def _spell(self, words: Sequence[str], own: npt.NDArray[np.bool_]) -> Spelling:
        return spell(words, own, self.recipe.min_n, self.recipe.max_n, self.slots)

    def _read(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], Spelling]:
        """The ids of texts and their ends, and how words are spelt: those that have no id are given one."""
        found, bounds = self.encode(texts)
        ids = np.insert(found, bounds[1:], EOS).astype(np.uint32)
        bounds = bounds + np.arange(bounds.size)
        places = np.flatnonzero(ids == UNK)
        if not places.size:
            return ids, bounds, self._spelling
        texts_with = np.unique(np.searchsorted(bounds, places, side="right") - 1)
        new: dict[str, int] = {}
        words = self._unknown_words([texts[text] for text in texts_with])
        ids[places] = [len(self.words) + new.setdefault(word, len(new)) for word in words]
        return ids, bounds, self._spelling.and_then(self._spell([*new], np.zeros(len(new), dtype=np.bool_)))

    def _unknown_words(self, texts: Sequence[str]) -> list[str]:
        """All unknown words of texts, as the tokenizer writes them."""
        spaced = [self.tokenizer.spaced(" ".join(text.replace("\0", " ").splitlines())) for text in texts]
        encodings = self.tokenizer.backend.encode_batch(spaced, add_special_tokens=False)
        return [
            self.written(text[begin:end])
            for text, encoding in zip(spaced, encodings, strict=True)
            for id, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if id == UNK
        ]


def label_tree(counts: npt.NDArray[np.int64]) -> Tree:
    """Huffman's tree over labels, the most frequent first, as fastText makes it: of equals it joins inner nodes first.

    >>> tree = label_tree(np.array([2, 1, 1]))
    >>> [tree.codes[a:b].tolist() for a, b in zip(tree.starts, tree.starts[1:])]
    [[1], [0, 1], [0, 0]]
    """
    labels = len(counts)
    weights = [*counts.tolist(), *[10**15] * (labels - 1)]
    parents, codes = [0] * (2 * labels - 1), [0] * (2 * labels - 1)
    leaf, inner = labels - 1, labels
    for node in range(labels, 2 * labels - 1):
        weights[node] = 0
        for code in range(2):
            if leaf >= 0 and (inner >= node or weights[leaf] < weights[inner]):
                child, leaf = leaf, leaf - 1
            else:
                child, inner = inner, inner + 1
            parents[child], codes[child] = node, code
            weights[node] += weights[child]
    starts, nodes, sides = [0], [], []
    for child in range(labels):
        way = []
        while child != 2 * labels - 2:
            way.append((parents[child] - labels, codes[child]))
            child = parents[child]
        nodes += [node for node, _ in reversed(way)]
        sides += [code for _, code in reversed(way)]
        starts.append(len(nodes))
    return Tree(np.array(starts, np.int64), np.array(nodes, np.int32), np.array(sides, np.uint8))


def tree_probabilities(scores: npt.NDArray[np.float64], tree: Tree) -> npt.NDArray[np.float64]:
    """The probability of each label: that of going its way at all nodes above it."""
    if not tree.nodes.size:
        return np.ones_like(scores)
    steps = scores[:, tree.nodes] * np.where(tree.codes, 1.0, -1.0)
    return np.asarray(np.exp(np.add.reduceat(-np.logaddexp(0, -steps), tree.starts[:-1], axis=1)))


def restore_classifier(
    recipe: ClassifierRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout
) -> ClassifierModel:
    """The model of a saved artifact's arrays."""
    phrases, words = saved_phrases(arrays, tokenizer)
    used, counts, label_counts = arrays.get("used"), arrays.get("counts"), arrays.get("label_counts")
    if recipe.buckets == "auto" or used is None or used.dtype != np.int32 or used.ndim != 1:
        raise _wrong("used")
    if used.size and (used[0] < 0 or used[-1] >= recipe.buckets or np.any(np.diff(used) <= 0)):
        raise _wrong("used")
    inputs = saved_matrix(arrays, "inputs", len(words) + used.size)
    labels = _saved_labels(arrays.get("labels"))
    outputs = saved_matrix(arrays, "outputs", len(labels))
    if outputs.shape[1] != inputs.shape[1]:
        raise _wrong("outputs")
    if label_counts is None or label_counts.dtype != np.int64 or label_counts.shape != (len(labels),):
        raise _wrong("label_counts")
    if counts is not None and (counts.dtype != np.int64 or counts.shape != (len(words),)):
        raise _wrong("counts")
    return ClassifierModel(
        recipe, tokenizer, layout, inputs, used=used, outputs=outputs, labels=labels, label_counts=label_counts,
        counts=counts, words=words, phrases=phrases,
    )  # fmt: skip


def _saved_labels(letters: Any) -> list[str]:
    if letters is None or letters.dtype != np.uint8 or letters.ndim != 1:
        raise _wrong("labels")
    try:
        labels = json.loads(letters.tobytes())
    except ValueError:
        raise _wrong("labels") from None
    sound = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not sound or not labels or len(set(labels)) < len(labels):
        raise _wrong("labels")
    return list(labels)


def _wrong(name: str) -> ArtifactError:
    return ArtifactError(f"the array {name!r} is missing or damaged: train the model again.")
