"""Brown clusters (Brown et al., 1992): classes of words that tell most about the class of the next word.

Each word in turn, the most frequent first, becomes a class; once there are more than asked for, the two are merged
that lose least of the average mutual information of neighbouring classes (Liang, 2005, keeps as many in his window).
Words that have had no turn form one more class, so that it is always the information of the whole text. In the end the
classes are merged until one is left; which with which is the tree that gives each class its bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, BudgetError, CorpusError
from firth.progress import note, progress
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors import _brown_kernels as kernels
from firth.vectors.bigrams import Bigrams, count_bigrams
from firth.vectors.job import Job, Result
from firth.vectors.lookup import Found, WordModel, refuse_context, saved_vector
from firth.vectors.phrases import Phrases, saved_phrases
from firth.vectors.recipe import BrownRecipe
from firth.vectors.text import FIRST_WORD

_TABLE = 1 << 14  # n log n is looked up for smaller n
_TURNS = 500  # words between two signs of life

Ints = npt.NDArray[np.int64]
Neighbours = tuple[Ints, Ints, Ints]
"""Where the neighbours of each word begin, which words they are and how often they are."""


class BrownModel(WordModel):
    """Words in classes, and the classes in a binary tree.

    The path from the root to a class is a string of bits; words whose bits begin alike are used alike.
    """

    def __init__(
        self,
        recipe: BrownRecipe,
        tokenizer: Tokenizer,
        layout: Layout,
        words: list[str],
        counts: Ints,
        phrases: Phrases | None,
        bits: Sequence[str],
        clusters: npt.NDArray[np.int32],
    ) -> None:
        """`bits` are those of each class, `clusters` the class of each word, -1 for those that have none."""
        super().__init__(recipe, tokenizer, layout, words, counts, phrases)
        self.bits = list(bits)
        self.clusters = clusters

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
        """(bits, word, count) of all words, those of a class together, the frequent ones first."""
        assert self.counts is not None
        for row in np.lexsort((-self.counts, self.clusters)):
            if self.clusters[row] >= 0:
                yield self.bits[self.clusters[row]], self.words[row], int(self.counts[row])

    def similarity(self, one: str, two: str) -> float:
        """How much of the longer path two words share; 1 for words of one class."""
        return shared_path(self.path(one), self.path(two))

    def similar(self, word: str, count: int = 10, *, context: str | None = None) -> Found:
        """The words that share most of their path with a word, the more frequent ones first where it is as much."""
        refuse_context(context)
        path = self.path(word)
        shares = np.array([shared_path(path, bits) for bits in self.bits])
        return self.best(self.row(word), shares[self.clusters], count)

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """How the words of each text are spread over the classes: a column for each class, in the order of bits."""
        ids, bounds = self.encode(texts)
        vectors = np.zeros((len(texts), len(self.bits)), dtype=np.float32)
        for number, vector in enumerate(vectors):
            classes = self.clusters[ids[bounds[number] : bounds[number + 1]]]
            found = np.bincount(classes[classes >= 0], minlength=len(self.bits))
            vector[:] = found / max(int(found.sum()), 1)
        return vectors


def shared_path(one: str, two: str) -> float:
    """The length of what two paths begin with alike, by the length of the longer one.

    >>> shared_path("0110", "01011"), shared_path("01", "01")
    (0.4, 1.0)
    """
    alike = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    return alike / max(len(one), len(two), 1)


def train_brown(recipe: BrownRecipe, job: Job) -> Result:
    """The clusters of a text."""
    if job.tokens is not None or job.seconds is not None or job.flops is not None:
        raise BudgetError("brown reads all its text: leave --budget out and give less text instead.")
    text, phrases = job.text, job.phrases
    text.require(2)
    found = count_bigrams(text)
    if not found.counts.size:
        raise CorpusError("no two words stand beside each other in the text: give sentences of several words.")
    words = frequent_first(text.counts)
    if words.size < recipe.clusters:
        note(f"the text has only {words.size:,} different words: each is a class of its own")
    tree = cluster(rank_bigrams(found, words, len(text.words)), words.size, min(recipe.clusters, words.size))
    clusters = np.full(len(text.words), -1, dtype=np.int32)
    clusters[words] = tree.clusters
    model = BrownModel(recipe, job.tokenizer, job.layout, text.words, text.counts, phrases, tree.bits, clusters)
    metrics = {"clusters": len(tree.bits), "words": int(words.size), "average_mutual_information": tree.information}
    return Result(model, text.total, metrics)


def frequent_first(counts: Ints) -> Ints:
    """The ids of the words that occur, the more frequent first, lower ids first where they are as frequent."""
    order = np.argsort(-counts, kind="stable")
    return order[counts[order] > 0]


def rank_bigrams(bigrams: Bigrams, words: Ints, size: int) -> Bigrams:
    """The same pairs with the ranks of words in place of their ids."""
    ranks = np.full(size, -1, dtype=np.int64)
    ranks[words] = np.arange(words.size)
    return Bigrams(ranks[bigrams.left], ranks[bigrams.right], bigrams.counts)


class Tree(NamedTuple):
    """The class of each word by its rank, the bits of each class, and what they tell of each other in bits."""

    clusters: npt.NDArray[np.int32]
    bits: list[str]
    information: float


def cluster(bigrams: Bigrams, words: int, clusters: int) -> Tree:
    """So many classes of the words, which are numbered by rank, and the tree above them.

    "a b a b a c": b and c follow a, and a follows b.

    >>> of = np.array
    >>> tree = cluster(Bigrams(of([0, 0, 1]), of([1, 2, 0]), of([2, 1, 2])), 3, 2)
    >>> tree.clusters.tolist(), tree.bits, round(tree.information, 3)
    ([0, 1, 1], ['0', '1'], 0.971)
    """
    state = first_state(int(bigrams.counts.sum()), clusters)
    members = first_members(words, clusters)
    followers = neighbours(bigrams.left, bigrams.right, bigrams.counts, words)
    leaders = neighbours(bigrams.right, bigrams.left, bigrams.counts, words)
    free = 0
    with progress("clustering", total=words, unit="words") as advance:
        for begin in range(0, words, _TURNS):
            turns = np.arange(begin, min(begin + _TURNS, words))
            free = kernels.take_turns(state, members, turns, followers, leaders, free)
            advance(turns.size)
    place, information = members.place.copy(), mutual_information(state.after)
    bits = grow_tree(state, members)
    order = sorted(bits, key=bits.__getitem__)
    numbers = np.zeros(clusters + 2, dtype=np.int32)
    numbers[order] = np.arange(len(order))
    return Tree(numbers[place], [bits[slot] for slot in order], information)


def first_state(total: int, clusters: int) -> kernels.Classes:
    """The state before the first turn: all words wait in the last slot."""
    slots = clusters + 2  # one more class than asked for until two are merged, and the words that wait

    def table() -> Ints:
        return np.zeros((slots, slots), dtype=np.int64)

    # No sum is beyond a few times N log N.
    largest = max(total, _TABLE)
    scale = 2.0 ** np.floor(60 - np.log2(largest * np.log(largest)))
    small = np.arange(_TABLE)
    logs = np.rint(small * np.log(np.maximum(small, 1)) * scale).astype(np.int64)
    state = kernels.Classes(
        after=table(),
        before=table(),
        left=np.zeros(slots, dtype=np.int64),
        right=np.zeros(slots, dtype=np.int64),
        loss=np.full((slots, slots), kernels.NONE),
        live=np.zeros(slots, dtype=np.bool_),
        table=logs,
        scale=float(scale),
    )
    for array in (state.after[-1], state.before[-1], state.left, state.right):
        array[-1] = total
    return state


def first_members(words: int, clusters: int) -> kernels.Members:
    """No slot holds a word, but for the last, whose words are not chained."""
    slots = clusters + 2
    return kernels.Members(
        place=np.full(words, slots - 1),
        following=np.full(words, -1),
        first=np.full(slots, -1),
        last=np.full(slots, -1),
        sizes=np.zeros(slots, dtype=np.int64),
    )


def neighbours(ours: Ints, others: Ints, counts: Ints, words: int) -> Neighbours:
    """The other words of each word's pairs."""
    order = np.argsort(ours, kind="stable")
    begins = np.concatenate([[0], np.cumsum(np.bincount(ours, minlength=words))]).astype(np.int64)
    return begins, others[order], counts[order]


def grow_tree(state: kernels.Classes, members: kernels.Members) -> dict[int, str]:
    """Merges all classes; returns the bits of each slot that held one: 0 leads to the more frequent words."""
    merges = []
    for _ in range(int(state.live.sum()) - 1):
        seen = state.left + state.right
        kept, gone = kernels.merge_best(state, members)
        merges.append((kept, *sorted((kept, gone), key=lambda slot: (-seen[slot], slot))))
    bits = {int(slot): "" for slot in np.flatnonzero(state.live)}
    for kept, zero, one in reversed(merges):
        path = bits.pop(kept)
        bits[zero], bits[one] = path + "0", path + "1"
    return bits


def mutual_information(table: Ints) -> float:
    """The average mutual information of neighbours, in bits.

    >>> mutual_information(np.array([[0, 5], [5, 0]]))
    1.0
    """
    joint = table / table.sum()
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    there = joint > 0
    return float(np.sum(joint[there] * np.log2(joint[there] / apart[there])))


def restore(recipe: BrownRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> BrownModel:
    """The model of a saved artifact."""
    phrases, words = saved_phrases(arrays, tokenizer)
    clusters = saved_vector(arrays, "clusters", np.int32, len(words))
    counts = saved_vector(arrays, "counts", np.int64, len(words))
    lengths = saved_vector(arrays, "lengths", np.int64)
    letters = saved_vector(arrays, "bits", np.uint8)
    if lengths.min(initial=0) < 0 or lengths.max(initial=0) > letters.size or lengths.sum() != letters.size:
        raise ArtifactError("the array 'bits' or 'lengths' is damaged: train the model again.")
    text = letters.tobytes().decode("latin-1")
    ends = np.cumsum(lengths)
    bits = [text[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
    if set(text) - {"0", "1"} or len(set(bits)) != len(bits):
        raise ArtifactError("the array 'bits' is damaged: train the model again.")
    if clusters.min() < -1 or clusters.max() >= len(bits) or np.any(clusters[:FIRST_WORD] >= 0) or counts.min() < 0:
        raise ArtifactError("the array 'clusters' or 'counts' is damaged: train the model again.")
    return BrownModel(recipe, tokenizer, layout, words, counts, phrases, bits, clusters)
