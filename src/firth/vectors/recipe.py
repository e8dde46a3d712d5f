"""All that distinguishes one kind of static vectors from another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, Literal, Self

from firth.errors import RecipeError
from firth.text.layout import Layout
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer

Mode = Literal["exact", "fast"]
Auto = Literal["auto"]
Rule = Literal["paper", "program"]


def _frequent_words() -> TokenizerRecipe:
    return TokenizerRecipe(model="words", lowercase=True, min_count=5)


@dataclass(frozen=True, kw_only=True)
class VectorRecipe:
    """What all of them have: tokens that are given vectors."""

    tokenizer: TokenizerRecipe = field(default_factory=_frequent_words)
    """Words that occur less than `tokenizer.min_count` times get no vector."""
    phrases: int = 0
    """Join pairs of words that belong together (new_york) so many times over before training."""
    home: ClassVar[str]
    """The module whose `restore` makes the model of a saved artifact."""

    def __post_init__(self) -> None:
        if not 0 <= self.phrases <= 4:
            raise RecipeError(f"phrases={self.phrases} must be 0 to 4 rounds.")

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "vectors"

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> Self:
        """The same recipe over other tokens."""
        return replace(self, tokenizer=tokenizer)

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> Any:
        """The model of a saved artifact's arrays."""
        return import_module(self.home).restore(self, arrays, tokenizer, layout)


@dataclass(frozen=True, kw_only=True)
class BagRecipe(VectorRecipe):
    """Texts as bags of words; a word is where it stands: in its own place, or in documents."""

    home: ClassVar[str] = "firth.vectors.bag"
    weighting: Literal["onehot", "tfidf"] = "tfidf"
    """onehot: a word is itself and nothing else; tfidf: frequent here, rare elsewhere."""


@dataclass(frozen=True, kw_only=True)
class SvdRecipe(VectorRecipe):
    """A matrix of counts, weighed, and its largest singular vectors.

    >>> SvdRecipe(dimension=0)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: dimension=0 must be 1 to 10000.
    """

    home: ClassVar[str] = "firth.vectors.svd"
    matrix: Literal["documents", "windows"] = "documents"
    """What words are counted in: documents, or windows around each other."""
    weighting: Literal["tfidf", "entropy", "ppmi"] = "tfidf"
    """tfidf or log-entropy for documents, positive pointwise mutual information for windows."""
    dimension: int = 100
    window: int = 5
    shift: float = 1.0
    """ppmi: logarithm of so much is taken off, as k negative samples would (Levy and Goldberg 2014)."""
    smoothing: float = 0.75
    """ppmi: contexts count by their frequency to this power; 1 leaves it as it is."""
    power: float = 0.5
    """Singular values are raised to this power: 0 ignores them, 1 is the textbook."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, dimension=(1, 10_000), window=(1, 1000))
        if (self.matrix == "windows") != (self.weighting == "ppmi"):
            raise RecipeError("ppmi is for matrix=windows, tfidf and entropy are for matrix=documents.")
        if self.shift < 1 or not 0 < self.smoothing <= 1 or not 0 <= self.power <= 1:
            raise RecipeError("shift must be 1 or more, smoothing above 0 and at most 1, power 0 to 1.")


@dataclass(frozen=True, kw_only=True)
class BrownRecipe(VectorRecipe):
    """Classes of words that tell most about the next word's class, in a binary tree."""

    home: ClassVar[str] = "firth.vectors.brown"
    clusters: int = 256
    """How many classes; the tree above them gives each word its bits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, clusters=(2, 5000))


@dataclass(frozen=True, kw_only=True)
class SteppedRecipe(VectorRecipe):
    """What all recipes share that learn step by step."""

    dimension: int = 100
    epochs: int = 5
    """Passes over the text, unless a budget decides."""
    learning_rate: float | Auto = "auto"
    """The first step; it falls in a straight line to nearly nothing at the end of the budget."""
    mode: Mode = "exact"
    """exact: the same bits for any number of threads; fast: threads change the vectors without waiting."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, dimension=(1, 10_000), epochs=(1, 100_000))
        if self.learning_rate != "auto" and not 0 < self.learning_rate <= 10:
            raise RecipeError(f"learning_rate={self.learning_rate} must be above 0, such as 0.025.")


@dataclass(frozen=True, kw_only=True)
class Word2vecRecipe(SteppedRecipe):
    """A word predicts the words around it (skip-gram), or they predict it (continuous bag of words)."""

    home: ClassVar[str] = "firth.vectors.word2vec"
    architecture: Literal["skipgram", "cbow"] = "skipgram"
    loss: Literal["negative", "hierarchical", "nce", "softmax"] = "negative"
    """Tell the word from noise, decide at each node of a Huffman tree, or the exact objective over all words."""
    window: int = 5
    """Words on each side at most."""
    shrink: bool = True
    """Draw each window's width from 1 to `window`, so that near words count more."""
    subsample: float = 1e-4
    """Leave out a word of relative frequency f with probability 1 - sqrt(subsample / f); 0 keeps all."""
    subsample_rule: Rule = "paper"
    """program: keep subsample / f more, as word2vec.c, gensim and fastText do."""
    negatives: int | Auto = "auto"
    """Words drawn from the noise for each; auto: 5, and up to 15 for small texts."""
    noise: float = 0.75
    """Noise words are drawn by their frequency to this power."""
    min_n: int = 0
    """Shortest character n-gram that is part of a word's vector; 0 for none."""
    max_n: int = 0
    buckets: int | Auto = "auto"
    """Rows that all character n-grams share; auto: twice as many as there are n-grams, at most two million."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, window=(1, 1000), max_n=(0, 50), min_n=(0, 50), negatives=(1, 1000))
        check_range(self, buckets=(0, 100_000_000))
        if not 0 <= self.subsample <= 1 or not 0 <= self.noise <= 1:
            raise RecipeError("subsample and noise must be between 0 and 1.")
        if (self.min_n == 0) != (self.max_n == 0) or self.min_n > self.max_n:
            raise RecipeError(f"min_n={self.min_n} and max_n={self.max_n} must both be 0, or min_n the smaller one.")

    @property
    def subwords(self) -> bool:
        """Whether words are made of character n-grams as well."""
        return self.max_n > 0


@dataclass(frozen=True, kw_only=True)
class GloveRecipe(VectorRecipe):
    """Dot products that fit the logarithms of how often words stand near each other."""

    home: ClassVar[str] = "firth.vectors.glove"
    dimension: int = 100
    window: int = 10
    epochs: int = 15
    learning_rate: float = 0.05
    x_max: float = 10.0
    """Pairs that occur more often weigh no more."""
    alpha: float = 0.75
    """Rarer pairs weigh (count / x_max) to this power."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, dimension=(1, 10_000), window=(1, 1000), epochs=(1, 100_000))
        if not (0 < self.learning_rate <= 10 and self.x_max > 0 and 0 < self.alpha <= 1):
            raise RecipeError("learning_rate and x_max must be above 0, alpha above 0 and at most 1.")


@dataclass(frozen=True, kw_only=True)
class SenseRecipe(VectorRecipe):
    """Several vectors for words that have several meanings."""

    home: ClassVar[str] = "firth.vectors.senses"
    base: Word2vecRecipe = field(default_factory=Word2vecRecipe)
    """How vectors are trained, before and after the senses are told apart."""
    context: int = 5
    """Words on each side whose idf-weighted mean says what is meant."""
    senses: int = 10
    """At most so many for a word; how many it has is found from its contexts."""
    least: int = 50
    """Words that occur less often have one."""
    overlap: float = 0.35
    """How alike the contexts of two senses may be: at 0 they are as strange to each other as any two words."""
    exposure: int = 8_000_000
    """Words that each training goes through at least, in up to 100 passes: senses are told by good vectors only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, context=(1, 1000), senses=(1, 100), least=(2, 10**9), exposure=(0, 10**12))
        if not -1 <= self.overlap <= 1:
            raise RecipeError(f"overlap={self.overlap} must be -1 to 1, such as 0.35.")
        if self.base.subwords or self.base.phrases:
            raise RecipeError("senses are of whole words: leave base.min_n, base.max_n and base.phrases at 0.")


@dataclass(frozen=True, kw_only=True)
class ParagraphRecipe(SteppedRecipe):
    """A vector for every document, which helps to predict its words."""

    home: ClassVar[str] = "firth.vectors.paragraph"
    epochs: int = 10
    architecture: Literal["dm", "dbow"] = "dm"
    """dm: the document and the words around predict a word; dbow: the document alone."""
    combine: Literal["mean", "concat"] = "mean"
    """dm: how the document's vector and the words' are put together."""
    window: int = 5
    subsample: float = 1e-4
    subsample_rule: Rule = "paper"
    negatives: int | Auto = "auto"
    noise: float = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, window=(1, 1000), negatives=(1, 1000))
        if not 0 <= self.subsample <= 1 or not 0 <= self.noise <= 1:
            raise RecipeError("subsample and noise must be between 0 and 1.")
        if self.architecture == "dbow" and self.combine == "concat":
            raise RecipeError("combine=concat is for architecture=dm: a document alone has nothing to be put with.")


@dataclass(frozen=True, kw_only=True)
class ClassifierRecipe(SteppedRecipe):
    """The mean of a text's word and word n-gram vectors through one linear layer: the bag of tricks."""

    home: ClassVar[str] = "firth.vectors.classifier"
    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words", lowercase=True))
    word_ngrams: int = 2
    """Longest run of words that has a vector of its own."""
    loss: Literal["softmax", "hierarchical", "negative"] = "softmax"
    """Which label among all, decide at each node of a Huffman tree, or tell it from five others."""
    min_n: int = 0
    """Shortest character n-gram that is part of a word; 0 for none."""
    max_n: int = 0
    buckets: int | Auto = "auto"
    """Numbers that n-grams of words and characters are hashed to; those that occur have rows. auto: two million, or 32
    for each n-gram that occurs if that is less."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, word_ngrams=(1, 10), max_n=(0, 50), min_n=(0, 50), buckets=(0, 100_000_000))
        if (self.min_n == 0) != (self.max_n == 0) or self.min_n > self.max_n:
            raise RecipeError(f"min_n={self.min_n} and max_n={self.max_n} must both be 0, or min_n the smaller one.")
        if self.buckets == 0 and (self.max_n or self.word_ngrams > 1):
            raise RecipeError("buckets=0 leaves n-grams no rows: set word_ngrams=1 and max_n=0, or buckets=auto.")


@dataclass(frozen=True, kw_only=True)
class ImportedRecipe(VectorRecipe):
    """Vectors that another program has trained."""

    home: ClassVar[str] = "firth.vectors.imported"
    source: Literal["word2vec", "glove", "fasttext"] = "word2vec"
    min_n: int = 0
    max_n: int = 0
    buckets: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, max_n=(0, 50), min_n=(0, 50), buckets=(1 if self.max_n else 0, 100_000_000))


def check_range(recipe: VectorRecipe, **bounds: tuple[int, int]) -> None:
    """Raises `RecipeError` unless the fields lie within their bounds; auto always does."""
    for name, (low, high) in bounds.items():
        if getattr(recipe, name) != "auto" and not low <= getattr(recipe, name) <= high:
            raise RecipeError(f"{name}={getattr(recipe, name)} must be {low} to {high}.")
