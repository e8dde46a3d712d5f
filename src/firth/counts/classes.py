"""Class-based n-gram models (Brown et al., 1992): a model of word classes, and of the words in each class.

    p(w | h) = p(class of w | classes of h) * p(w | class of w)

The first factor is an n-gram model over classes, the second the relative frequency of the word in its class:
(c(w) + delta) / (c(class) + delta * words of the class).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import models

from firth.counts.em import add_prefix, saved_array, strip_prefix
from firth.counts.ngram import restore_ngram
from firth.counts.recipe import ClassRecipe
from firth.counts.trie import Floats, Integers, WordIds
from firth.errors import ArtifactError, RecipeError
from firth.lm.language_model import LanguageModel, TokenStream, UnknownWordModel, restore_spelling
from firth.text.layout import Layout
from firth.text.segment import HAN
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer, add_specials, make_backend

_MIN_DELTA, _MAX_DELTA = 1e-6, 1e3
_MAX_LINE = 1000

TrainClassModel = Callable[[TokenStream, Tokenizer], LanguageModel]  # the words of the tokenizer are the classes


class ClassModel(LanguageModel):
    """A model over word classes and of the words in each class."""

    def __init__(
        self,
        recipe: ClassRecipe,
        tokenizer: Tokenizer,
        layout: Layout,
        unknown_word_model: UnknownWordModel,
        classes: WordIds,
        counts: Integers,
        inner: LanguageModel,
    ) -> None:
        """`classes` and `counts` hold the class and the count of every word; `inner` is the model over class ids."""
        super().__init__(recipe, tokenizer, layout, unknown_word_model)
        self.classes, self.counts, self.inner = classes, counts, inner
        self._within_class = within_class_logprobs(classes, counts, float(recipe.delta))

    @property
    def parameters(self) -> dict[str, Any]:
        return {"classes": int(self.classes.max()) + 1 - FIRST_WORD, "delta": self.recipe.delta}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = add_prefix("base", self.inner.arrays())
        return arrays | {"classes": self.classes, "counts": self.counts, "spelling": self.unknown_word_model.counts}

    def token_logprobs(self, stream: TokenStream) -> Floats:
        return self.inner.token_logprobs(class_stream(stream, self.classes)) + self._within_class[stream.ids]

    def next_logprobs(self, history: Sequence[int]) -> Floats:
        before = self.classes[np.array(history, dtype=np.int64)].tolist()
        return self.inner.next_logprobs(before)[self.classes] + self._within_class


def class_stream(stream: TokenStream, classes: WordIds) -> TokenStream:
    return TokenStream(classes[stream.ids], stream.bounds, stream.starts_document)


def within_class_logprobs(classes: WordIds, counts: Integers, delta: float) -> Floats:
    """The log-probability of each word given its class.

    >>> classes = np.array([0, 1, 2, 3, 4, 5, 5], dtype=np.uint32)
    >>> np.exp(within_class_logprobs(classes, np.array([0, 0, 0, 0, 0, 3, 1]), 0.5)).tolist()[5:]
    [0.7, 0.3]
    """
    words = np.bincount(classes)[classes]
    total = np.bincount(classes, weights=counts)[classes]
    return np.asarray(np.log((counts + delta) / (total + delta * words)))


def is_class_map(classes: WordIds) -> bool:
    """Whether each special token is a class with its own id, and no class is empty."""
    own = np.array_equal(classes[:FIRST_WORD], np.arange(FIRST_WORD)) and np.all(classes[FIRST_WORD:] >= FIRST_WORD)
    return bool(own and classes.max() < classes.size and np.bincount(classes).min() > 0)


def class_tokenizer(count: int) -> Tokenizer:
    """A tokenizer whose words are the classes.

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
    train_class_model: TrainClassModel,
    stream: TokenStream,
    tokenizer: Tokenizer,
    layout: Layout,
    unknown_word_model: UnknownWordModel,
    classes: WordIds | None = None,
) -> ClassModel:
    """The class model of a text, with the given classes or those of the recipe."""
    counts = np.bincount(stream.ids, minlength=len(tokenizer)).astype(np.int64)
    if classes is None and recipe.classes is not None:
        classes = read_classes(Path(recipe.classes), tokenizer)
    if classes is None:
        classes = spelling_classes(tokenizer.vocabulary, counts, recipe.max_classes)
    if not is_class_map(classes):
        raise RecipeError("the special tokens need classes of their own, and every class a word: number them densely.")
    inner = train_class_model(class_stream(stream, classes), class_tokenizer(int(classes.max()) + 1))
    delta = fit_delta(classes, counts) if recipe.delta == "auto" else recipe.delta
    return ClassModel(replace(recipe, delta=delta), tokenizer, layout, unknown_word_model, classes, counts, inner)


def fit_delta(classes: WordIds, counts: Integers) -> float:
    """The delta with the highest leave-one-out likelihood of the words given their classes."""
    from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

    words = np.bincount(classes)[classes]
    total = np.bincount(classes, weights=counts)[classes]
    is_fitted = (counts > 0) & (words > 1)
    if not is_fitted.any():
        return 1.0
    times, others, within, size = counts[is_fitted], counts[is_fitted] - 1, total[is_fitted] - 1, words[is_fitted]

    def loss(log_delta: float) -> float:
        delta = np.exp(log_delta)
        return -float(np.sum(times * np.log((others + delta) / (within + delta * size))))

    found = minimize_scalar(loss, bounds=(np.log(_MIN_DELTA), np.log(_MAX_DELTA)), method="bounded")
    return float(np.exp(found.x))


def assign_class_ids(names: Sequence[Any]) -> WordIds:
    """The class id of every word, given the class name of each word after the special tokens.

    Special tokens have their own ids as classes; other classes are numbered by first occurrence.

    >>> assign_class_ids(["noun", "verb", "noun"]).tolist()
    [0, 1, 2, 3, 4, 5, 6, 5]
    """
    numbers: dict[Any, int] = {}
    ids = [numbers.setdefault(name, FIRST_WORD + len(numbers)) for name in names]
    return np.array([*range(FIRST_WORD), *ids], dtype=np.uint32)


def class_ids_of(names: Mapping[str, str], tokenizer: Tokenizer, source: str) -> WordIds:
    """The class of every word id, given the class name of each word; `source` names their origin in errors."""
    found: dict[int, str] = {}
    for name, tokens in zip(names.values(), tokenizer.encode_batch(list(names)), strict=True):
        if len(tokens.ids) == 1 and tokens.ids[0] >= FIRST_WORD:
            found.setdefault(tokens.ids[0], name)
    if not found:
        raise RecipeError(f"no word of {source} is in the vocabulary: give classes of words as the text spells them.")
    return assign_class_ids([found.get(number) for number in range(FIRST_WORD, len(tokenizer))])


def read_classes(path: Path, tokenizer: Tokenizer) -> WordIds:
    """The class of every word id, from a file with a word and its class on each line, separated by a tab or spaces.

    Words of the vocabulary missing from the file form one more class. Words of the file that are not one token of the
    vocabulary are ignored.
    """
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
        if len(fields) != 2 or not all(fields) or "\0" in line or len(line) > _MAX_LINE:
            raise RecipeError(f"{path}, line {number}: expected a word and its class, found {line.strip()!r:.80}.")
        word, name = fields
        if pairs.setdefault(word, name) != name:
            raise RecipeError(f"{path}, line {number}: {word!r} has the class {pairs[word]!r} already: keep one.")
    if not pairs:
        raise RecipeError(f"the class file {path} is empty: put a word and its class on each line.")
    return class_ids_of(pairs, tokenizer, str(path))


def spelling_classes(vocabulary: Sequence[str], counts: npt.NDArray[Any], limit: int) -> WordIds:
    """Classes derived from the spelling: the `limit` most frequent spelling features.

    The class of a word is the most specific of its `spelling_features` that is frequent enough. So frequent words are
    classes of their own, and rare words share a class with others of the same suffix.
    """
    words = list(vocabulary)[FIRST_WORD:]
    features = [spelling_features(word) for word in words]
    common: Counter[tuple[str, ...]] = Counter()
    for own, count in zip(features, counts[FIRST_WORD:].tolist(), strict=True):
        for feature in own:
            common[feature] += count
    ranked = sorted(common, key=lambda feature: (-common[feature], len(feature), feature))
    kinds = {own[0] for own in features}
    chosen = kinds | set([feature for feature in ranked if feature not in kinds][: max(0, limit - len(kinds))])
    return assign_class_ids([next(feature for feature in reversed(own) if feature in chosen) for own in features])


def spelling_features(word: str) -> list[tuple[str, ...]]:
    """Descriptions of a word from general to specific: its kind, its last characters, itself.

    >>> spelling_features("Walked")
    [('Word',), ('Word', 'd'), ('Word', 'd', 'e'), ('Word', 'd', 'e', 'k'), ('Word', 'd', 'e', 'k', 'Walked')]
    >>> spelling_features("1,987")
    [('number',), ('number', '0,000'), ('number', '0,000', '1,987')]
    >>> spelling_features("语言学")
    [('han',), ('han', '3'), ('han', '3', '学'), ('han', '3', '学', '语言学')]
    """
    features: list[tuple[str, ...]] = [(_kind(word),)]
    if features[0] == ("number",):
        suffixes = ["".join("0" if character.isdigit() else character for character in word)]
    elif features[0] == ("han",):
        suffixes = [str(min(len(word), 5)), word[-1]]
    elif features[0] == ("mark",):
        suffixes = []
    else:
        suffixes = list(reversed(word.lower()[-3:]))
    for part in [*suffixes, word]:
        features.append((*features[-1], part))
    return features


def _kind(word: str) -> str:
    if not any(character.isalnum() for character in word):
        return "mark"
    if HAN.search(word):
        return "han"
    if not any(character.isalpha() for character in word):
        return "number"
    if any(character.isdigit() for character in word):
        return "mixed"
    if word == word.lower():
        return "word"
    return "WORD" if word == word.upper() and len(word) > 1 else "Word"


def restore_classes(recipe: ClassRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> ClassModel:
    """The model of the arrays of a saved artifact."""
    if recipe.delta == "auto":
        raise ArtifactError("the recipe does not give the delta of words in a class: train the model again.")
    classes = saved_array(arrays, "classes", np.uint32, (len(tokenizer),))
    counts = saved_array(arrays, "counts", np.int64, (len(tokenizer),))
    unknown_word_model = restore_spelling(arrays)
    if not (is_class_map(classes) and np.all(counts >= 0)):
        raise ArtifactError("the array 'classes' or 'counts' is damaged: train the model again.")
    names = class_tokenizer(int(classes.max()) + 1)
    inner = restore_ngram(recipe.base, strip_prefix("base", arrays), names, layout)
    return ClassModel(recipe, tokenizer, layout, unknown_word_model, classes, counts, inner)
