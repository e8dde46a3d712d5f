"""Recipes of static word, sense and document vectors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from firth.errors import RecipeError
from firth.tokens.recipe import TokenizerRecipe

Mode = Literal["exact", "fast"]
Auto = Literal["auto"]
Rule = Literal["paper", "program"]
_RANGES = {
    "dimension": (1, 10_000), "window": (1, 1000), "epochs": (1, 100_000), "negatives": (1, 1000),
    "clusters": (2, 5000), "min_n": (0, 50), "max_n": (0, 50), "buckets": (0, 100_000_000), "word_ngrams": (1, 10),
    "max_senses": (1, 100), "min_occurrences": (2, 10**9), "min_training_words": (0, 10**12),
}  # fmt: skip
"""Lower and upper bounds of the fields of all recipes, unless they are auto."""


def _frequent_words() -> TokenizerRecipe:
    return TokenizerRecipe(model="words", lowercase=True, min_count=5)


@dataclass(frozen=True, kw_only=True)
class VectorRecipe:
    """Base class of all recipes that assign vectors to tokens."""

    tokenizer: TokenizerRecipe = field(default_factory=_frequent_words)
    """Words that occur less than `tokenizer.min_count` times get no vector."""
    phrases: int = 0
    """Rounds of joining collocations (new_york) before training."""

    def __post_init__(self) -> None:
        if not 0 <= self.phrases <= 4:
            raise RecipeError(f"phrases={self.phrases} must be 0 to 4 rounds.")
        for name, (low, high) in _RANGES.items():
            value: Any = getattr(self, name, "auto")
            if value != "auto" and not low <= value <= high:
                raise RecipeError(f"{name}={value} must be {low} to {high}.")

    @property
    def kind(self) -> str:
        """The kind of artifact that this recipe makes."""
        return "vectors"

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> Self:
        """The same recipe over other tokens."""
        return replace(self, tokenizer=tokenizer)

    def check_ngrams(self, min_n: int, max_n: int) -> None:
        """Raises `RecipeError` unless both lengths of character n-grams are 0 or a range."""
        if (min_n == 0) != (max_n == 0) or min_n > max_n:
            raise RecipeError(f"min_n={min_n} and max_n={max_n} must both be 0, or min_n the smaller one.")


@dataclass(frozen=True, kw_only=True)
class BagRecipe(VectorRecipe):
    """Bags of words: sparse vectors of texts."""

    weighting: Literal["onehot", "tfidf"] = "tfidf"
    """onehot: raw counts, words are orthogonal; tfidf: words are their documents, weighted."""


@dataclass(frozen=True, kw_only=True)
class SvdRecipe(VectorRecipe):
    """Truncated SVD of a weighted count matrix.

    >>> SvdRecipe(dimension=0)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: dimension=0 must be 1 to 10000.
    """

    matrix: Literal["documents", "windows"] = "documents"
    """Words by documents, or words by words in windows."""
    weighting: Literal["tfidf", "entropy", "ppmi"] = "tfidf"
    """tf-idf or log-entropy for documents, positive pointwise mutual information for windows."""
    dimension: int = 100
    window: int = 5
    shift: float = 1.0
    """ppmi: subtract log(shift), equivalent to that many negative samples (Levy and Goldberg 2014)."""
    smoothing: float = 0.75
    """ppmi: exponent of the context distribution; 1 for none."""
    power: float = 0.5
    """Exponent of the singular values: 0 ignores them, 1 is classical LSA."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.matrix == "windows") != (self.weighting == "ppmi"):
            raise RecipeError("ppmi is for matrix=windows, tfidf and entropy are for matrix=documents.")
        if self.shift < 1 or not 0 < self.smoothing <= 1 or not 0 <= self.power <= 1:
            raise RecipeError("shift must be 1 or more, smoothing above 0 and at most 1, power 0 to 1.")


@dataclass(frozen=True, kw_only=True)
class BrownRecipe(VectorRecipe):
    """Hierarchical word classes that maximise the mutual information of adjacent classes."""

    clusters: int = 256
    """Number of classes; a word's bits are the path to its class in the merge tree."""


@dataclass(frozen=True, kw_only=True)
class SgdRecipe(VectorRecipe):
    """Base class of recipes trained by stochastic gradient descent over text."""

    dimension: int = 100
    epochs: int | Auto = "auto"
    """Epochs, unless a budget decides; auto: 5, more for small texts."""
    lr: float | Auto = "auto"
    """Initial learning rate; it decays linearly to nearly zero at the end of the budget."""
    mode: Mode = "exact"
    """exact: bit-identical for any number of threads; fast: lock-free updates of shared weights (Hogwild)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lr != "auto" and not 0 < self.lr <= 10:
            raise RecipeError(f"lr={self.lr} must be above 0, such as 0.025.")


@dataclass(frozen=True, kw_only=True)
class NegativeSamplingRecipe(SgdRecipe):
    """Window, subsampling and negative sampling, as word2vec and paragraph vectors have them."""

    window: int = 5
    """Maximum distance of context words on each side."""
    subsample: float = 1e-4
    """Discard a word of relative frequency f with probability 1 - sqrt(subsample / f); 0 keeps all."""
    subsample_rule: Rule = "paper"
    """program: keep subsample / f more, as word2vec.c, gensim and fastText do."""
    negatives: int | Auto = "auto"
    """Negative samples for each target; auto: 5, more for small corpora."""
    ns_exponent: float = 0.75
    """Exponent of the unigram distribution that negative samples are drawn from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.subsample <= 1 or not 0 <= self.ns_exponent <= 1:
            raise RecipeError("subsample and ns_exponent must be between 0 and 1.")


@dataclass(frozen=True, kw_only=True)
class Word2vecRecipe(NegativeSamplingRecipe):
    """Skip-gram or continuous bag of words, with or without character n-grams."""

    architecture: Literal["skipgram", "cbow"] = "skipgram"
    loss: Literal["negative", "hierarchical", "nce", "softmax"] = "negative"
    """Negative sampling, hierarchical softmax, noise-contrastive estimation, or full softmax."""
    dynamic_window: bool = True
    """Draw each window size uniformly from 1 to `window`, so that near words count more."""
    min_n: int = 0
    """Minimum length of character n-grams; 0 for none."""
    max_n: int = 0
    buckets: int | Auto = "auto"
    """Hash buckets of character n-grams; auto: twice the number of n-grams, at most two million."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_ngrams(self.min_n, self.max_n)

    @property
    def has_subwords(self) -> bool:
        """Whether words are composed of character n-grams as well."""
        return self.max_n > 0


@dataclass(frozen=True, kw_only=True)
class GloveRecipe(VectorRecipe):
    """Weighted least squares on the logarithms of co-occurrence counts."""

    dimension: int = 100
    window: int = 10
    epochs: int = 15
    lr: float = 0.05
    x_max: float = 10.0
    """Co-occurrence count from which the weight of a pair is 1."""
    alpha: float = 0.75
    """Rarer pairs have the weight (count / x_max) ** alpha."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 < self.lr <= 10 and self.x_max > 0 and 0 < self.alpha <= 1):
            raise RecipeError("lr and x_max must be above 0, alpha above 0 and at most 1.")


@dataclass(frozen=True, kw_only=True)
class SenseRecipe(VectorRecipe):
    """Multi-prototype vectors: one for each sense of a word."""

    base: Word2vecRecipe = field(default_factory=Word2vecRecipe)
    """Recipe of both trainings: of word vectors, then of sense vectors."""
    window: int = 5
    """Words on each side whose idf-weighted mean is the context vector that senses are clustered by."""
    max_senses: int = 10
    """Maximum number of senses of a word; the actual number is found from its contexts."""
    min_occurrences: int = 50
    """Words that occur less often have one sense."""
    max_overlap: float = 0.35
    """Maximum cosine between the contexts of two senses, whitened so that unrelated words have 0."""
    min_training_words: int = 8_000_000
    """Minimum number of words each training processes, in up to 100 epochs: sense induction needs good vectors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -1 <= self.max_overlap <= 1:
            raise RecipeError(f"max_overlap={self.max_overlap} must be -1 to 1, such as 0.35.")
        if self.base.has_subwords or self.base.phrases:
            raise RecipeError("senses are of whole words: leave base.min_n, base.max_n and base.phrases at 0.")


@dataclass(frozen=True, kw_only=True)
class ParagraphRecipe(NegativeSamplingRecipe):
    """Paragraph vectors: a vector for every document that helps to predict its words."""

    epochs: int = 10
    architecture: Literal["dm", "dbow"] = "dm"
    """dm: document and context words predict a word; dbow: the document alone."""
    combine: Literal["mean", "concat"] = "mean"
    """dm: average or concatenate the document and context vectors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.architecture == "dbow" and self.combine == "concat":
            raise RecipeError("combine=concat is for architecture=dm: dbow has no context words to concatenate.")


@dataclass(frozen=True, kw_only=True)
class ClassifierRecipe(SgdRecipe):
    """fastText classifier: the mean of a text's word and n-gram vectors through one linear layer."""

    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words", lowercase=True))
    epochs: int = 5
    word_ngrams: int = 2
    """Maximum order of word n-grams."""
    loss: Literal["softmax", "hierarchical", "negative"] = "softmax"
    """Softmax, hierarchical softmax, or negative sampling with five negatives."""
    min_n: int = 0
    """Minimum length of character n-grams; 0 for none."""
    max_n: int = 0
    buckets: int | Auto = "auto"
    """Hash buckets of word and character n-grams; those in use have rows. auto: two million, or 32
    for each n-gram that occurs if that is less."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_ngrams(self.min_n, self.max_n)
        if self.buckets == 0 and (self.max_n or self.word_ngrams > 1):
            raise RecipeError("buckets=0 leaves n-grams no rows: set word_ngrams=1 and max_n=0, or buckets=auto.")


@dataclass(frozen=True, kw_only=True)
class ImportedRecipe(VectorRecipe):
    """Vectors trained by another program."""

    source: Literal["word2vec", "glove", "fasttext", "sentence-transformers"] = "word2vec"
    min_n: int = 0
    max_n: int = 0
    buckets: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_n and not self.buckets:
            raise RecipeError("buckets=0 must be 1 to 100000000.")


def _names() -> TokenizerRecipe:
    return TokenizerRecipe(model="words", split="space", segmenter="space")


@dataclass(frozen=True, kw_only=True)
class GraphRecipe(VectorRecipe):
    """Vectors of the entities and relations of a knowledge graph.

    >>> GraphRecipe(negatives=0)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: negatives=0 must be 1 to 1000.
    """

    tokenizer: TokenizerRecipe = field(default_factory=_names)
    """A name is a word; spaces in it are written as ▁."""
    scorer: Literal["transe", "distmult", "rotate"] = "transe"
    """transe: -|h + r - t|; distmult: the sum of h r t; rotate: the same as transe with complex numbers, h turned by
    the angles r."""
    norm: Literal["l1", "l2"] = "l1"
    """transe: of the difference."""
    dimension: int = 100
    """Of entities; rotate has half as many complex numbers."""
    loss: Literal["margin", "adversarial"] = "adversarial"
    """margin: ranks a triple above each negative one (Bordes et al. 2013); adversarial: logistic, hard negatives weigh
    more (Sun et al. 2019)."""
    margin: float = 6.0
    temperature: float = 1.0
    """adversarial: of the weights of negatives; 0 gives all the same weight."""
    negatives: int = 32
    """Negative triples for each triple; those that are known to be true are drawn again."""
    sides: Literal["bernoulli", "uniform"] = "bernoulli"
    """bernoulli: where a relation has many tails for a head, the head is replaced more often (Wang et al. 2014)."""
    unit_entities: bool = False
    """Entities are scaled to a norm of 1 after each step."""
    decay: float = 0.0
    """Weight of the squared norm of the rows that are trained."""
    batch: int = 1024
    """Triples of a step."""
    epochs: int = 100
    lr: float = 0.1
    """Initial learning rate of AdaGrad; it decays linearly to nearly zero."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.phrases:
            raise RecipeError("phrases are of texts, not of graphs: leave them out.")
        if not 0 < self.lr <= 10 or not 0 <= self.decay <= 10:
            raise RecipeError("lr must be above 0 and at most 10, decay 0 to 10.")
        if not 0 <= self.margin <= 1000 or not 0 <= self.temperature <= 1000:
            raise RecipeError("margin and temperature must be 0 to 1000.")
        if not 1 <= self.batch <= 1_000_000:
            raise RecipeError(f"batch={self.batch} must be 1 to 1000000.")
        if self.scorer == "rotate" and self.dimension % 2:
            raise RecipeError(f"dimension={self.dimension} is odd: rotate has pairs of a real and an imaginary part.")


@dataclass(frozen=True, kw_only=True)
class SifRecipe(VectorRecipe):
    """Sentence vectors: a weighted mean of word vectors less their first principal component (Arora et al. 2017)."""

    base: Word2vecRecipe = field(default_factory=lambda: Word2vecRecipe(architecture="skipgram"))
    """Recipe of the word vectors."""
    smoothing: float = 1e-3
    """a in the weight a / (a + p(w)) of a word of relative frequency p."""
    components: int = 1
    """Principal components of the sentences of the training text that are taken off; 0 for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.smoothing <= 1:
            raise RecipeError(f"smoothing={self.smoothing} must be above 0 and at most 1.")
        if not 0 <= self.components <= 100:
            raise RecipeError(f"components={self.components} must be 0 to 100.")
        if self.base.has_subwords or self.base.phrases:
            raise RecipeError("sentences are means of whole words: leave base.min_n, base.max_n and base.phrases at 0.")


@dataclass(frozen=True, kw_only=True)
class StaticRecipe(VectorRecipe):
    """Static vectors of the hidden states of a network: a text is the mean of the vectors of its tokens.

    The lengths of vectors are the weights of their tokens in a text.
    """

    dimension: int = 256
    vocabulary: Literal["tokens", "words"] = "tokens"
    """The network's own tokens, or words of a corpus."""
    contexts: Literal["contexts", "alone"] = "contexts"
    """A vector is the mean over the contexts of a corpus, or that of the token alone."""
    weighting: Literal["none", "zipf", "sif"] = "sif"
    """none: all tokens count alike; zipf: log(1 + rank) by frequency; sif: a / (a + p) for a relative frequency p."""
    smoothing: float = 1e-4
    """a of sif."""
    fitted: bool = True
    """Whether the vectors were fitted so that texts have the network's vectors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.smoothing <= 1:
            raise RecipeError(f"smoothing={self.smoothing} must be above 0 and at most 1.")
        if self.phrases:
            raise RecipeError("static vectors have no phrases: leave them out.")


@dataclass(frozen=True, kw_only=True)
class QuantisedRecipe(VectorRecipe):
    """Word vectors in few bits: 8 for each number, or a code of 8 bits for each part of a vector (product quantisation,
    Jegou et al. 2011)."""

    source: str = "word2vec"
    """The type of the vectors that were quantised."""
    parts: int = 0
    """Parts of a vector with a code each; 0: each number has 8 bits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.parts <= 10_000:
            raise RecipeError(f"parts={self.parts} must be 0 to 10000.")
