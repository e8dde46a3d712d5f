"""Brown clusters (Brown et al. 1992): word classes that maximise the mutual information of adjacent classes.

Each word, most frequent first, becomes a class; as soon as there are more than wanted, the two are merged that lose
least of the average mutual information (the window of Liang, 2005). Words not yet processed form one more class, so
that the information is always that of the whole text. Finally the classes are merged to one; the order of merges is the
binary tree that gives each class its bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, CorpusError
from firth.progress import note, progress
from firth.text.layout import Layout
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.vectors import _brown_kernels as kernels
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.lookup import ScoredWords, WordModel, refuse_context, saved_counts, saved_vector
from firth.vectors.phrases import saved_phrases
from firth.vectors.recipe import BrownRecipe
from firth.vectors.text import BigramCounts, bounds_of, count_bigrams

_LOG_TABLE = 1 << 14  # n log n is tabulated for smaller n
_PROGRESS_STEP = 500  # words between two progress reports

Ints = npt.NDArray[np.int64]
NeighbourLists = tuple[Ints, Ints, Ints]  # bounds of the neighbours of each word, the neighbours, and their counts


class BrownModel(WordModel):
    """Words in classes, and the classes in a binary tree.

    The path from the root to a class is a string of bits; words with a common prefix are used similarly.
    """

    def __init__(self, *arguments: Any, bits: Sequence[str], clusters: npt.NDArray[np.int32]) -> None:
        """`bits` are the paths of the classes, `clusters` the class of each word, -1 for none."""
        super().__init__(*arguments)
        self.bits, self.clusters = list(bits), clusters

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().arrays() | {
            "clusters": self.clusters,
            "bits": np.frombuffer("".join(self.bits).encode(), dtype=np.uint8),
            "lengths": np.array([len(bits) for bits in self.bits], dtype=np.int64),
        }

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each word that has a class."""
        return {self.words[row]: row for row in np.flatnonzero(self.clusters >= 0).tolist()}

    def path(self, word: str) -> str:
        """The bits of a word."""
        return self.bits[int(self.clusters[self.row(word)])]

    def paths(self) -> Iterator[tuple[str, str, int]]:
        """(bits, word, count) of all words, grouped by class, frequent ones first."""
        assert self.counts is not None
        for row in np.lexsort((-self.counts, self.clusters)):
            if self.clusters[row] >= 0:
                yield self.bits[self.clusters[row]], self.words[row], int(self.counts[row])

    def similarity(self, one: str, two: str) -> float:
        """The common prefix of two paths as a fraction of the longer one; 1 for words of one class."""
        return path_similarity(self.path(one), self.path(two))

    def similar(self, word: str, count: int = 10, *, context: str | None = None) -> ScoredWords:
        """The words with the longest common prefix; ties go to the more frequent word."""
        refuse_context(context)
        path = self.path(word)
        similarities = np.array([path_similarity(path, bits) for bits in self.bits])
        return self.best(self.row(word), similarities[self.clusters], count)

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """(texts, classes): the distribution of each text's words over the classes, in the order of bits."""
        ids, bounds = self.encode(texts)
        vectors = np.zeros((len(texts), len(self.bits)), dtype=np.float32)
        for number, vector in enumerate(vectors):
            classes = self.clusters[ids[bounds[number] : bounds[number + 1]]]
            found = np.bincount(classes[classes >= 0], minlength=len(self.bits))
            vector[:] = found / max(int(found.sum()), 1)
        return vectors


def path_similarity(one: str, two: str) -> float:
    """The length of the common prefix divided by the length of the longer path.

    >>> path_similarity("0110", "01011"), path_similarity("01", "01")
    (0.4, 1.0)
    """
    shared = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    return shared / max(len(one), len(two), 1)


def train_brown(recipe: BrownRecipe, job: VectorJob) -> VectorResult:
    """The clusters of a text."""
    job.refuse_budget("brown reads all its text")
    text = job.text
    text.require_words(2)
    found = count_bigrams(text)
    if not found.counts.size:
        raise CorpusError("no two words are adjacent in the text: give sentences of several words.")
    words = by_frequency(text.counts)
    if words.size < recipe.clusters:
        note(f"the text has only {words.size:,} different words: each is a class of its own")
    tree = cluster(rank_bigrams(found, words, len(text.words)), words.size, min(recipe.clusters, words.size))
    clusters = np.full(len(text.words), -1, dtype=np.int32)
    clusters[words] = tree.clusters
    arguments = (recipe, job.tokenizer, job.layout, text.words, text.counts, job.phrases)
    model = BrownModel(*arguments, bits=tree.bits, clusters=clusters)
    metrics = {"clusters": len(tree.bits), "words": int(words.size), "average_mutual_information": tree.information}
    return VectorResult(model, text.total, metrics)


def by_frequency(counts: Ints) -> Ints:
    """The ids of the words that occur, most frequent first, ties by id."""
    order = np.argsort(-counts, kind="stable")
    return order[counts[order] > 0]


def rank_bigrams(bigrams: BigramCounts, words: Ints, size: int) -> BigramCounts:
    """The same pairs with frequency ranks in place of ids."""
    ranks = np.full(size, -1, dtype=np.int64)
    ranks[words] = np.arange(words.size)
    return BigramCounts(ranks[bigrams.left], ranks[bigrams.right], bigrams.counts)


class BrownClustering(NamedTuple):
    """The class of each word by its rank, the bits of each class, and the mutual information in bits."""

    clusters: npt.NDArray[np.int32]
    bits: list[str]
    information: float


def cluster(bigrams: BigramCounts, words: int, clusters: int) -> BrownClustering:
    """Classes of words, which are numbered by rank, and the tree above them.

    "a b a b a c": b and c follow a, and a follows b.

    >>> of = np.array
    >>> tree = cluster(BigramCounts(of([0, 0, 1]), of([1, 2, 0]), of([2, 1, 2])), 3, 2)
    >>> tree.clusters.tolist(), tree.bits, round(tree.information, 3)
    ([0, 1, 1], ['0', '1'], 0.971)
    """
    state = initial_state(int(bigrams.counts.sum()), clusters)
    members = initial_members(words, clusters)
    followers = neighbour_lists(bigrams.left, bigrams.right, bigrams.counts, words)
    predecessors = neighbour_lists(bigrams.right, bigrams.left, bigrams.counts, words)
    free = 0
    with progress("clustering", total=words, unit="words") as advance:
        for begin in range(0, words, _PROGRESS_STEP):
            words_in_turn = np.arange(begin, min(begin + _PROGRESS_STEP, words))
            free = kernels.cluster_words(state, members, words_in_turn, followers, predecessors, free)
            advance(words_in_turn.size)
    slot_of, information = members.slot_of.copy(), mutual_information(state.after)
    bits = merge_to_tree(state, members)
    order = sorted(bits, key=bits.__getitem__)
    numbers = np.zeros(clusters + 2, dtype=np.int32)
    numbers[order] = np.arange(len(order))
    return BrownClustering(numbers[slot_of], [bits[slot] for slot in order], information)


def initial_state(total: int, clusters: int) -> kernels.ClusterState:
    """The state before the first word: all words are in the last slot."""
    slots = clusters + 2  # one more class than wanted until two are merged, and the unprocessed words
    # No sum is beyond a few times N log N.
    largest = max(total, _LOG_TABLE)
    scale = 2.0 ** np.floor(60 - np.log2(largest * np.log(largest)))
    small = np.arange(_LOG_TABLE)
    logs = np.rint(small * np.log(np.maximum(small, 1)) * scale).astype(np.int64)
    after, before = np.zeros((slots, slots), dtype=np.int64), np.zeros((slots, slots), dtype=np.int64)
    left, right = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
    loss, live = np.full((slots, slots), kernels.NONE), np.zeros(slots, dtype=np.bool_)
    state = kernels.ClusterState(after, before, left, right, loss, live, logs, float(scale))
    for array in (state.after[-1], state.before[-1], state.left, state.right):
        array[-1] = total
    return state


def initial_members(words: int, clusters: int) -> kernels.ClusterMembers:
    """Empty slots; the words of the last one are not chained."""
    slots = clusters + 2
    first, last, sizes = np.full(slots, -1), np.full(slots, -1), np.zeros(slots, dtype=np.int64)
    return kernels.ClusterMembers(np.full(words, slots - 1), np.full(words, -1), first, last, sizes)


def neighbour_lists(ours: Ints, others: Ints, counts: Ints, words: int) -> NeighbourLists:
    """The other words of each word's pairs."""
    order = np.argsort(ours, kind="stable")
    return bounds_of(np.bincount(ours, minlength=words)), others[order], counts[order]


def merge_to_tree(state: kernels.ClusterState, members: kernels.ClusterMembers) -> dict[int, str]:
    """Merges all classes; returns the bits of each slot that held one: 0 is the more frequent branch."""
    merges = []
    for _ in range(int(state.live.sum()) - 1):
        frequency = state.left + state.right
        kept, removed = kernels.merge_best(state, members)
        merges.append((kept, *sorted((kept, removed), key=lambda slot: (-frequency[slot], slot))))
    bits = {int(slot): "" for slot in np.flatnonzero(state.live)}
    for kept, zero, one in reversed(merges):
        path = bits.pop(kept)
        bits[zero], bits[one] = path + "0", path + "1"
    return bits


def mutual_information(table: Ints) -> float:
    """The average mutual information of adjacent classes, in bits.

    >>> mutual_information(np.array([[0, 5], [5, 0]]))
    1.0
    """
    joint = table / table.sum()
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    occurs = joint > 0
    return float(np.sum(joint[occurs] * np.log2(joint[occurs] / independent[occurs])))


def restore_brown(recipe: BrownRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> BrownModel:
    """The model of a saved artifact."""
    phrases, words = saved_phrases(arrays, tokenizer)
    clusters = saved_vector(arrays, "clusters", np.int32, len(words))
    counts = saved_counts(arrays, "counts", len(words))
    lengths = saved_vector(arrays, "lengths", np.int64)
    encoded = saved_vector(arrays, "bits", np.uint8)
    if lengths.min(initial=0) < 0 or lengths.max(initial=0) > encoded.size or lengths.sum() != encoded.size:
        raise ArtifactError("the array 'bits' or 'lengths' is damaged: train the model again.")
    text = encoded.tobytes().decode("latin-1")
    ends = np.cumsum(lengths)
    bits = [text[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
    if set(text) - {"0", "1"} or len(set(bits)) != len(bits):
        raise ArtifactError("the array 'bits' is damaged: train the model again.")
    if clusters.min() < -1 or clusters.max() >= len(bits) or np.any(clusters[:FIRST_WORD] >= 0):
        raise ArtifactError("the array 'clusters' is damaged: train the model again.")
    return BrownModel(recipe, tokenizer, layout, words, counts, phrases, bits=bits, clusters=clusters)
