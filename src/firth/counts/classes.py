"""Class-based n-gram models (Brown et al., 1992): which class comes next, and which of its words.

    p(w | h) = p(class of w | classes of h) * p(w | class of w)

The first factor is an n-gram model over classes, the second is how frequent the word is within its class:
(c(w) + delta) / (c(class) + delta * words of the class).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from tokenizers import models

from firth.counts.em import arrays_of, prefixed, saved_array
from firth.counts.recipe import NgramRecipe
from firth.errors import ArtifactError, RecipeError
from firth.text.layout import Layout
from firth.text.segment import HAN
from firth.tokens.language import FIRST_WORD, LanguageModel, Stream
from firth.tokens.pipeline import add_specials, make_backend
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.spelling import END, Spelling
from firth.tokens.tokenizer import Tokenizer

_SMALLEST, _LARGEST = 1e-6, 1e3  # delta is looked for between these
_LONGEST_LINE = 1000

TrainIds = Callable[[Stream, Tokenizer], LanguageModel]
"""Makes a model of a stream of class ids; the words of the tokenizer are the classes."""


@dataclass(frozen=True, kw_only=True)
class ClassRecipe:
    """An n-gram model over classes of words.

    >>> ClassRecipe(limit=2)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: limit=2 is too few classes to tell words apart: set it to 10 or more.
    """

    base: NgramRecipe = field(default_factory=NgramRecipe)
    """The model of the classes, and how text becomes words."""
    classes: str | None = None
    """Where the classes come from: a file with a word and its class on each line, or Brown clusters (the folder that
    `firth train brown` wrote, or a file of paths); none means classes by spelling."""
    limit: int = 1000
    """Classes by spelling: at most so many."""
    delta: float | Literal["auto"] = "auto"
    """What is added to the count of each word; auto means what predicts the words best from all the others."""

    def __post_init__(self) -> None:
        if self.limit < 10:
            raise RecipeError(f"limit={self.limit} is too few classes to tell words apart: set it to 10 or more.")
        if self.delta != "auto" and not (isinstance(self.delta, (int, float)) and 0 < self.delta < np.inf):
            raise RecipeError(f"delta={self.delta} would give unseen words no probability: set it above 0.")
        if self.classes is not None and not self.classes.strip():
            raise RecipeError("classes names no file: give the path of one, or none for classes by spelling.")

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "counts"

    @property
    def tokenizer(self) -> TokenizerRecipe:
        """That of the words."""
        return self.base.tokenizer

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> ClassRecipe:
        """The same with another tokenizer."""
        return replace(self, base=self.base.with_tokenizer(tokenizer))

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> ClassModel:
        """The model of a saved artifact's arrays."""
        if self.delta == "auto":
            raise ArtifactError("the recipe does not say how words are spread in a class: train the model again.")
        classes = saved_array(arrays, "classes", np.uint32, (len(tokenizer),))
        counts = saved_array(arrays, "counts", np.int64, (len(tokenizer),))
        spelling = Spelling(saved_array(arrays, "spelling", np.int64, (END + 1, END + 1)))
        if not (is_class_map(classes) and np.all(counts >= 0)):
            raise ArtifactError("the array 'classes' or 'counts' is damaged: train the model again.")
        names = class_tokenizer(int(classes.max()) + 1)
        inner = self.base.restore(arrays_of("base", arrays), names, layout)
        return ClassModel(self, tokenizer, layout, spelling, classes, counts, inner)


class ClassModel(LanguageModel):
    """A model of classes and of the words in each; where the classes come from does not matter."""

    def __init__(
        self,
        recipe: ClassRecipe,
        tokenizer: Tokenizer,
        layout: Layout,
        spelling: Spelling,
        classes: npt.NDArray[np.uint32],
        counts: npt.NDArray[np.int64],
        inner: LanguageModel,
    ) -> None:
        """`classes` and `counts` have the class and the frequency of every word; `inner` is over the ids of classes."""
        super().__init__(recipe, tokenizer, layout, spelling)
        self.classes = classes
        self.counts = counts
        self.inner = inner
        self._log_within = log_within(classes, counts, float(recipe.delta))

    @property
    def parameters(self) -> dict[str, Any]:
        """What was found in the training text."""
        return {"classes": int(self.classes.max()) + 1 - FIRST_WORD, "delta": self.recipe.delta}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = prefixed("base", self.inner.arrays())
        return arrays | {"classes": self.classes, "counts": self.counts, "spelling": self.spelling.counts}

    def log_tokens(self, stream: Stream) -> npt.NDArray[np.float64]:
        return self.inner.log_tokens(class_stream(stream, self.classes)) + self._log_within[stream.ids]

    def log_next(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        before = self.classes[np.array(history, dtype=np.int64)].tolist()
        return self.inner.log_next(before)[self.classes] + self._log_within


def class_stream(stream: Stream, classes: npt.NDArray[np.uint32]) -> Stream:
    """A stream of words as the stream of their classes."""
    return Stream(classes[stream.ids], stream.bounds, stream.fresh)


def log_within(classes: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64], delta: float) -> npt.NDArray[np.float64]:
    """The log-probability of each word among the words of its class.

    >>> classes = np.array([0, 1, 2, 3, 4, 5, 5], dtype=np.uint32)
    >>> np.exp(log_within(classes, np.array([0, 0, 0, 0, 0, 3, 1]), 0.5)).tolist()[5:]
    [0.7, 0.3]
    """
    words = np.bincount(classes)[classes]
    total = np.bincount(classes, weights=counts)[classes]
    return np.asarray(np.log((counts + delta) / (total + delta * words)))


def is_class_map(classes: npt.NDArray[np.uint32]) -> bool:
    """Whether the special tokens have classes of their own, with their own ids, and no class is empty."""
    own = np.array_equal(classes[:FIRST_WORD], np.arange(FIRST_WORD)) and np.all(classes[FIRST_WORD:] >= FIRST_WORD)
    return bool(own and classes.max() < classes.size and np.bincount(classes).min() > 0)


def class_tokenizer(count: int) -> Tokenizer:
    """A tokenizer whose words are the classes, so that their model is like any other.

    >>> class_tokenizer(7).vocabulary
    ['<pad>', '<unk>', '<s>', '</s>', '<mask>', 'class5', 'class6']
    """
    recipe = TokenizerRecipe(model="words", split="space", normalise="none", segmenter="space")
    names = [*recipe.specials, *(f"class{number}" for number in range(FIRST_WORD, count))]
    model = models.WordLevel({name: number for number, name in enumerate(names)}, unk_token=recipe.specials[1])
    backend = make_backend(model, recipe)
    add_specials(backend, recipe)
    return Tokenizer(json.dumps(json.loads(backend.to_str())).encode(), recipe)


def train_classes(
    recipe: ClassRecipe,
    train_ids: TrainIds,
    stream: Stream,
    tokenizer: Tokenizer,
    layout: Layout,
    spelling: Spelling,
    classes: npt.NDArray[np.uint32] | None = None,
) -> ClassModel:
    """The class model of a text; the classes are those given, or else those that the recipe asks for."""
    counts = np.bincount(stream.ids, minlength=len(tokenizer)).astype(np.int64)
    if classes is None and recipe.classes is not None:
        classes = read_classes(Path(recipe.classes), tokenizer)
    if classes is None:
        classes = spelling_classes(tokenizer.vocabulary, counts, recipe.limit)
    if not is_class_map(classes):
        raise RecipeError("the special tokens need classes of their own, and every class a word: number them densely.")
    inner = train_ids(class_stream(stream, classes), class_tokenizer(int(classes.max()) + 1))
    delta = best_delta(classes, counts) if recipe.delta == "auto" else recipe.delta
    return ClassModel(replace(recipe, delta=delta), tokenizer, layout, spelling, classes, counts, inner)


def best_delta(classes: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64]) -> float:
    """The delta that makes the text likeliest when each word in turn is left out of the counts that predict it.

    The sum over words of c(w) log((c(w) - 1 + delta) / (c(class) - 1 + delta * words of the class)).
    """
    from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

    words = np.bincount(classes)[classes]
    total = np.bincount(classes, weights=counts)[classes]
    open_ = (counts > 0) & (words > 1)
    if not open_.any():
        return 1.0
    times, others, within, size = counts[open_], counts[open_] - 1, total[open_] - 1, words[open_]

    def loss(log_delta: float) -> float:
        delta = np.exp(log_delta)
        return -float(np.sum(times * np.log((others + delta) / (within + delta * size))))

    found = minimize_scalar(loss, bounds=(np.log(_SMALLEST), np.log(_LARGEST)), method="bounded")
    return float(np.exp(found.x))


def number_classes(names: Sequence[Any]) -> npt.NDArray[np.uint32]:
    """The class ids of words, given the name of each word's class, in the order of ids after the special tokens.

    Special tokens have their own ids as classes; the others are numbered as they are met.

    >>> number_classes(["noun", "verb", "noun"]).tolist()
    [0, 1, 2, 3, 4, 5, 6, 5]
    """
    numbers: dict[Any, int] = {}
    ids = [numbers.setdefault(name, FIRST_WORD + len(numbers)) for name in names]
    return np.array([*range(FIRST_WORD), *ids], dtype=np.uint32)


def read_classes(path: Path, tokenizer: Tokenizer) -> npt.NDArray[np.uint32]:
    """The class of every word id, from a file with a word and its class on each line, a tab or spaces between.

    Words of the vocabulary that the file leaves out form one more class. Words of the file that are not one token of
    the vocabulary are left out.
    """
    return classes_of(_read_pairs(path), tokenizer, str(path))


def classes_of(names: Mapping[str, str], tokenizer: Tokenizer, source: str) -> npt.NDArray[np.uint32]:
    """The class of every word id, given the names of the classes of words; `source` is where they come from."""
    found: dict[int, str] = {}
    for name, tokens in zip(names.values(), tokenizer.encode_batch(list(names)), strict=True):
        if len(tokens.ids) == 1 and tokens.ids[0] >= FIRST_WORD:
            found.setdefault(tokens.ids[0], name)
    if not found:
        raise RecipeError(f"no word of {source} is in the vocabulary: give classes of words as the text spells them.")
    return number_classes([found.get(number) for number in range(FIRST_WORD, len(tokenizer))])


def _read_pairs(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except FileNotFoundError:
        raise RecipeError(f"there is no class file {path}: name a file with a word and its class a line.") from None
    except (UnicodeDecodeError, OSError) as error:
        raise RecipeError(f"cannot read the class file {path}: {error}; save it as UTF-8 text.") from None
    pairs: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        fields = [part.strip() for part in line.split("\t")] if "\t" in line else line.split()
        if len(fields) != 2 or not all(fields) or "\0" in line or len(line) > _LONGEST_LINE:
            raise RecipeError(f"{path}, line {number}: expected a word and its class, found {line.strip()!r:.80}.")
        word, name = fields
        if pairs.setdefault(word, name) != name:
            raise RecipeError(f"{path}, line {number}: {word!r} has the class {pairs[word]!r} already: keep one.")
    if not pairs:
        raise RecipeError(f"the class file {path} is empty: put a word and its class on each line.")
    return pairs


def spelling_classes(vocabulary: Sequence[str], counts: npt.NDArray[Any], limit: int) -> npt.NDArray[np.uint32]:
    """Classes by spelling: the commonest `limit` among the ways in which the words can be described.

    A word can be described more and more closely (`spellings`); its class is the closest description that is common
    enough. So frequent words are classes of their own, and rare ones go with those that end alike.
    """
    words = list(vocabulary)[FIRST_WORD:]
    described = [spellings(word) for word in words]
    common: Counter[tuple[str, ...]] = Counter()
    for ways, count in zip(described, counts[FIRST_WORD:].tolist(), strict=True):
        for way in ways:
            common[way] += count
    ranked = sorted(common, key=lambda way: (-common[way], len(way), way))
    kinds = {ways[0] for ways in described}
    chosen = kinds | set([way for way in ranked if way not in kinds][: max(0, limit - len(kinds))])
    return number_classes([next(way for way in reversed(ways) if way in chosen) for ways in described])


def spellings(word: str) -> list[tuple[str, ...]]:
    """What a word looks like, ever more closely: its kind, its last letters, itself.

    >>> spellings("Walked")
    [('Word',), ('Word', 'd'), ('Word', 'd', 'e'), ('Word', 'd', 'e', 'k'), ('Word', 'd', 'e', 'k', 'Walked')]
    >>> spellings("1,987")
    [('number',), ('number', '0,000'), ('number', '0,000', '1,987')]
    >>> spellings("语言学")
    [('han',), ('han', '3'), ('han', '3', '学'), ('han', '3', '学', '语言学')]
    """
    ways: list[tuple[str, ...]] = [(_kind(word),)]
    if ways[0] == ("number",):
        closer = ["".join("0" if letter.isdigit() else letter for letter in word)]
    elif ways[0] == ("han",):
        closer = [str(min(len(word), 5)), word[-1]]
    elif ways[0] == ("mark",):
        closer = []
    else:
        closer = list(reversed(word.lower()[-3:]))
    for part in [*closer, word]:
        ways.append((*ways[-1], part))
    return ways


def _kind(word: str) -> str:
    if not any(letter.isalnum() for letter in word):
        return "mark"
    if HAN.search(word):
        return "han"
    if not any(letter.isalpha() for letter in word):
        return "number"
    if any(letter.isdigit() for letter in word):
        return "mixed"
    if word == word.lower():
        return "word"
    return "WORD" if word == word.upper() and len(word) > 1 else "Word"
