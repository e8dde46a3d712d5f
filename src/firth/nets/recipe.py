"""All that distinguishes one neural model from another: parts, not papers.

recipe = tokenizer x embedding x encoder x visibility x objectives x output layer, and how it is taught
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import Any, ClassVar, Literal

from firth.errors import RecipeError
from firth.text.layout import Layout
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer

Visibility = Literal["causal", "bidirectional", "forward+backward"]
Format = Literal["stream", "sentences", "segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]
Kind = Literal["none", "window", "bilinear", "rnn", "lstm", "transformer"]
Output = Literal["full", "tied", "classes", "huffman", "tree", "importance", "nce", "adaptive", "direct"]
Activation = Literal["gelu", "gelu-tanh", "relu", "tanh"]
MOST_LENGTH = 100_000


@dataclass(frozen=True, kw_only=True)
class EmbeddingRecipe:
    """What a token is before it meets others."""

    width: int = 768
    """Numbers of a token's vector; a Transformer's width is reached by a product if that is another (ALBERT)."""
    characters: bool = False
    """Make vectors from the letters of tokens, by convolutions and highway layers (ELMo)."""
    positions: Literal["none", "learned", "sinusoidal"] = "none"
    segments: int = 0
    """Kinds of segments that are told apart by a vector of their own."""
    norm: bool = False
    """Normalise the sum of all these."""
    dropout: float = 0.0
    start: Literal["random", "vectors"] = "random"
    """The first vectors of tokens. vectors: those that CBOW finds in the same text, in little time."""

    def __post_init__(self) -> None:
        _check(self, width=(1, 100_000), segments=(0, 100))
        _check_share(self, "dropout")
        if self.characters and self.start == "vectors":
            raise RecipeError("vectors made from letters have no table to begin with: set embedding.start=random.")


@dataclass(frozen=True, kw_only=True)
class EncoderRecipe:
    """What makes states of vectors."""

    kind: Kind = "transformer"
    layers: int = 12
    width: int = 768
    """Of a state: two of them side by side where both directions are read."""
    inner: int = 3072
    """Transformer: width of the feed-forward layers. LSTM: of its cells, which a product brings to `width`; 0: same."""
    heads: int = 12
    context: int = 0
    """Window and bilinear: tokens that are looked at on each side that can be seen."""
    direct: bool = False
    """Window: the words' vectors reach the output past the hidden layer, too (Bengio et al. 2003)."""
    norm: Literal["none", "pre", "post"] = "post"
    eps: float = 1e-12
    """What is added to variances where states are normalised."""
    activation: Activation = "gelu"
    share: Literal["none", "all", "attention", "feed-forward"] = "none"
    """Parameters that all layers have in common (ALBERT)."""
    dropout: float = 0.1
    attention_dropout: float = 0.1
    variational: bool = False
    """Recurrent: the same dropout at every step of a row (Gal and Ghahramani 2016)."""
    weight_drop: float = 0.0
    """LSTM: dropout of the recurrent weights (Merity et al. 2018)."""
    start: Literal["random", "neighbours"] = "random"
    """Transformer that sees both sides: the first parameters. neighbours: positions are waves, and some heads of the
    first layer look at the tokens beside, so that masked models learn from few texts what goes with what."""
    skip: bool = False
    """Recurrent: what goes into a layer is added to what comes out (ELMo)."""
    source: int = 0
    """Transformer: the width of another network's states, which each layer looks at between its own two halves: that of
    a decoder (Vaswani et al. 2017); 0: there is no other network."""

    def __post_init__(self) -> None:
        _check(self, layers=(0, 1000), width=(1, 100_000), inner=(0, 400_000), heads=(1, 1000), context=(0, 1000))
        _check(self, source=(0, 200_000))
        if self.source and self.kind != "transformer":
            raise RecipeError(f"a {self.kind} cannot look at a source: set encoder.source=0, or take a transformer.")
        for name in ("dropout", "attention_dropout", "weight_drop"):
            _check_share(self, name)
        if not 0 < self.eps < 1:
            raise RecipeError(f"encoder.eps={self.eps} must be above 0 and small, such as 1e-12.")
        if self.kind == "transformer" and self.width % self.heads:
            raise RecipeError(f"encoder.width={self.width} must be a multiple of encoder.heads={self.heads}.")
        if self.kind in ("window", "bilinear") and self.context < 1:
            raise RecipeError(f"encoder.context=0 leaves a {self.kind} nothing to look at: set it to 4, say.")


@dataclass(frozen=True, kw_only=True)
class OutputRecipe:
    """From a state to the probability of a token."""

    kind: Output = "full"
    """All words at once, with weights of their own or the embedding's (tied), or the states themselves (direct); by
    class and word; by a tree; against samples; or frequent words first."""
    transform: bool = False
    """One more layer before it, as in BERT."""
    bias: bool = True
    samples: int = 1000
    """Importance sampling and noise contrast: words drawn for a step."""
    proposal: Literal["unigram", "bigram"] = "unigram"
    """What samples are drawn from."""

    def __post_init__(self) -> None:
        _check(self, samples=(1, 1_000_000))


@dataclass(frozen=True, kw_only=True)
class RowsRecipe:
    """How text is laid out for the network (the input formats of the RoBERTa study, and those of older models)."""

    format: Format = "stream"
    """A stream of sentences, each with its end; sentences one by one; two segments or sentences; as many sentences as
    fit, over documents or within one, the last cut at a word if much room would stay empty."""
    length: int = 128
    """Tokens of a row at most, special ones included: as many positions as there are."""

    def __post_init__(self) -> None:
        _check(self, length=(4, MOST_LENGTH))


@dataclass(frozen=True, kw_only=True)
class MaskingRecipe:
    """Which tokens are hidden from a masked language model, and by what."""

    policy: Literal["token", "word", "ngram", "span"] = "token"
    rate: float = 0.15
    mask: float = 0.8
    """Of the chosen: replaced by the mask."""
    random: float = 0.1
    """Of the chosen: replaced by a random token. The rest stays."""
    masks: Literal["dynamic", "static", "duplicated"] = "dynamic"
    """Other masks in every pass, always the same, or ten different ones in turn."""
    longest: int = 3
    """Words of an n-gram, or of a span, at most (SpanBERT: 10)."""

    def __post_init__(self) -> None:
        _check(self, longest=(1, 100))
        for name in ("rate", "mask", "random"):
            _check_share(self, name)
        if self.rate == 0 or self.mask + self.random > 1:
            raise RecipeError("masking.rate must be above 0, and masking.mask and masking.random at most 1 together.")


@dataclass(frozen=True, kw_only=True)
class LearningRecipe:
    """How the parameters are found."""

    optimiser: Literal["adamw", "adam", "adagrad", "sgd", "lamb"] = "adamw"
    rate: float | Literal["auto"] = "auto"
    """The highest learning rate; auto: by the kind and the size of the network."""
    batch: int = 4096
    """Tokens of a step."""
    accumulate: int = 1
    """Parts that a step is done in: less memory, the same gradients."""
    schedule: Literal["linear", "inverse-sqrt", "slanted", "cosine", "stable-decay", "constant"] = "linear"
    warmup: float = 0.06
    """Share of the steps in which the rate rises."""
    decay: float = 0.01
    """Weight decay."""
    beta2: float = 0.98
    clip: float = 1.0
    """Longest gradient; 0 for any."""
    epochs: int = 10
    """Passes over the text, unless a budget decides."""
    short: float = 0.0
    """Share of the steps at the start that read rows of a quarter of the length."""
    patience: int = 0
    """Stop after so many validations without progress; 0: never."""

    def __post_init__(self) -> None:
        _check(self, batch=(1, 100_000_000), accumulate=(1, 10_000), epochs=(1, 1_000_000), patience=(0, 10_000))
        for name in ("warmup", "decay", "short", "beta2"):
            _check_share(self, name)
        if (self.rate != "auto" and not 0 < self.rate <= 100) or self.clip < 0:
            raise RecipeError(
                f"learning.rate={self.rate} must be above 0, such as 0.001, and learning.clip not below 0."
            )


@dataclass(frozen=True, kw_only=True)
class NetRecipe:
    """A neural model."""

    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="wordpiece", vocab_size=16_000))
    embedding: EmbeddingRecipe = field(default_factory=EmbeddingRecipe)
    encoder: EncoderRecipe = field(default_factory=EncoderRecipe)
    visibility: Visibility = "causal"
    """What a state may know: what came before, everything, or half of it what came before and half what follows."""
    objectives: str = "clm"
    """What is learnt: names joined by +."""
    masking: MaskingRecipe = field(default_factory=MaskingRecipe)
    output: OutputRecipe = field(default_factory=OutputRecipe)
    rows: RowsRecipe = field(default_factory=RowsRecipe)
    learning: LearningRecipe = field(default_factory=LearningRecipe)
    home: ClassVar[str] = "firth.nets.model"

    def __post_init__(self) -> None:
        import_module("firth.nets.products").check(self)

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "nets"

    @property
    def names(self) -> tuple[str, ...]:
        """The objectives one by one."""
        return tuple(self.objectives.split("+"))

    @property
    def directions(self) -> int:
        """How many encoders read the text, each with parameters of its own."""
        return 2 if self.visibility == "forward+backward" else 1

    @property
    def width(self) -> int:
        """Numbers of a state in all."""
        direct = self.encoder.context * self.embedding.width if self.encoder.direct else 0
        return (self.encoder.width + direct) * self.directions

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> NetRecipe:
        """The same with another tokenizer."""
        return replace(self, tokenizer=tokenizer)

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> Any:
        """The model of a saved artifact's arrays."""
        return import_module(self.home).restore(self, arrays, tokenizer, layout)


def _check(recipe: Any, **ranges: tuple[int, int]) -> None:
    for name, (low, high) in ranges.items():
        value = getattr(recipe, name)
        if not low <= value <= high:
            raise RecipeError(f"{_place(recipe)}.{name}={value} must be from {low} to {high}.")


def _check_share(recipe: Any, name: str) -> None:
    value = getattr(recipe, name)
    if not 0 <= value < 1 and not (name in ("mask", "random") and value == 1):
        raise RecipeError(f"{_place(recipe)}.{name}={value} must be from 0 to 1.")


def _place(recipe: Any) -> str:
    """The name of the field of a recipe that has parts of this type."""
    return next((one.name for one in fields(NetRecipe) if one.name in type(recipe).__name__.lower()), "recipe")
