"""NetRecipe: the description of a neural model.

recipe = tokenizer x embedding x encoder x visibility x objectives x output layer, and its training
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from firth.errors import RecipeError
from firth.nets.combination import check_combination, check_recurrent
from firth.nets.entity_recipe import EntitiesRecipe
from firth.nets.field_checks import check_fractions, check_ranges
from firth.nets.layer_sizes import check_layer_sizes
from firth.nets.ngrams_recipe import NgramsRecipe
from firth.nets.objective import Objective, Visibility
from firth.nets.sentence_recipe import SentenceRecipe
from firth.tokens.recipe import TokenizerRecipe

Format = Literal[
    "stream", "contiguous", "contiguous-pair", "sentences", "segment-pair", "sentence-pair", "full-sentences",
    "doc-sentences", "consecutive", "parallel",
]  # fmt: skip
Kind = Literal["none", "window", "bilinear", "cnn", "rnn", "gru", "lstm", "bilstm", "transformer"]
Output = Literal[
    "full", "tied", "classes", "huffman", "tree", "importance", "nce", "negative", "adaptive", "adaptive-tied",
    "direct", "none",
]  # fmt: skip
Activation = Literal["gelu", "gelu-tanh", "relu", "silu", "tanh"]
MAX_LENGTH = 100_000
STREAMS = ("stream", "contiguous", "contiguous-pair")
"""Formats of rows that are cut from a stream wherever one ends."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingRecipe:
    """Input embeddings."""

    width: int = 768
    """Dimension of token vectors; projected to a Transformer's width if that is another (ALBERT)."""
    characters: bool = False
    """Compute token vectors from characters, by convolutions and highway layers (ELMo)."""
    positions: Literal["none", "learned", "sinusoidal"] = "none"
    segments: int = 0
    """Number of segment embeddings."""
    languages: int = 0
    """Number of language embeddings: in training, that of the languages of the text (XLM)."""
    tasks: int = 0
    """Number of task embeddings: one for texts, and one for each objective with sequences of its own (ERNIE 2.0)."""
    query: bool = False
    """A vector that is the input at positions whose token is to be predicted, and is attended to by none (XLNet)."""
    norm: bool = False
    """Layer normalisation of the summed embeddings."""
    scaled: bool = False
    """Multiply token vectors by the square root of their width; with sinusoidal positions they always are."""
    dropout: float = 0.0
    variational_dropout: bool = False
    """The same dropout mask at every token of a row (Gal and Ghahramani 2016)."""
    token_dropout: float = 0.0
    """Fraction of the vocabulary whose vectors are zero in a batch, wherever they occur (Gal and Ghahramani 2016)."""
    init: Literal["random", "vectors", "unit"] = "random"
    """Initial token vectors: normal with a standard deviation of 0.02, or of 1 (unit: T5); vectors: trained quickly by
    CBOW on the same text."""
    per_direction: bool = False
    """Recurrent, of two directions: each has vectors of its own, which are one half of the width (context2vec)."""
    own_decoder: bool = False
    """The decoder has positions and a normalisation of its own (BART); token vectors are always shared."""

    def __post_init__(self) -> None:
        check_ranges(self, width=(1, 100_000), segments=(0, 100), languages=(0, 10_000), tasks=(0, 100))
        check_fractions(self, "dropout", "token_dropout")
        if self.characters and self.init == "vectors":
            raise RecipeError("character-based embeddings have no table to initialise: set embedding.init=random.")


@dataclass(frozen=True, kw_only=True)
class EncoderRecipe:
    """The encoder, which maps embeddings to hidden states."""

    kind: Kind = "transformer"
    layers: int = 12
    width: int = 768
    """Dimension of a hidden state, of each direction."""
    ffn_width: int = 3072
    """Transformer: width of the feed-forward layers. LSTM: number of cells, projected to `width`; 0: no projection."""
    inner_width: int = 0
    """Recurrent: dimension of the states of all layers but the last; 0: the same as that of the last."""
    heads: int = 12
    layer_sizes: tuple[str, ...] = ()
    """Transformer: heads and feed-forward width of each layer, such as 3x512, after pruning; empty: all alike."""
    context: int = 0
    """Window, bilinear and each layer of a CNN: tokens on each visible side."""
    direct_connections: bool = False
    """Window: the input vectors are connected to the output, too (Bengio et al. 2003)."""
    positions: Literal["none", "relative", "buckets"] = "none"
    """Transformer: relative adds a term of the distance between query and key to each attention score, from sinusoids;
    queries, keys, values and outputs have no biases then (Dai et al. 2019). buckets adds a learned number for each head
    and range of distances, the same in all layers; products of queries and keys are not scaled (Raffel et al. 2020)."""
    buckets: int = 32
    """Ranges of distances; without a causal mask one half for each direction."""
    max_distance: int = 128
    """Buckets: the distance from which on all are in the last one."""
    tie_position_biases: bool = True
    """Relative positions: the two vectors that are added to queries are the same in all layers."""
    segments: Literal["none", "relative"] = "none"
    """Transformer with relative positions: relative adds a term to each attention score that tells whether query and
    key are of the same segment (Yang et al. 2019)."""
    clamp_length: int = 0
    """Relative positions: the distance from which on all are treated alike; 0: none."""
    norm: Literal["none", "pre", "post"] = "post"
    rms: bool = False
    """Divide by the root of the mean square, without subtracting a mean or adding a bias (Zhang and Sennrich 2019)."""
    eps: float = 1e-12
    """Added to variances in layer normalisation."""
    activation: Activation = "gelu"
    gated: bool = False
    """Transformer: the feed-forward layers multiply the activation of one linear layer by another (Shazeer 2020)."""
    biases: bool = True
    """Transformer: linear layers have biases."""
    tie_layers: Literal["none", "all", "attention", "feed-forward"] = "none"
    """Parameters that all layers share (ALBERT)."""
    dropout: float = 0.1
    attention_dropout: float = 0.1
    variational_dropout: bool = False
    """Recurrent: the same dropout mask at every step of a row (Gal and Ghahramani 2016)."""
    output_dropout: float | None = None
    """Recurrent: dropout of the last layer, whose states are kept without it, too; none: the same as between layers."""
    weight_drop: float = 0.0
    """LSTM: dropout of the recurrent weights (Merity et al. 2018)."""
    init: Literal["random", "adjacent", "fan-in"] = "random"
    """Transformer: initial weights. adjacent: heads that attend to adjacent tokens, by sinusoidal positions or by terms
    of distances, so that masked models learn co-occurrence from little text. fan-in: with a standard deviation of
    1 / sqrt(inputs), and queries small enough for scores that are not scaled (T5)."""
    cross_init: Literal["random", "matching"] = "random"
    """Decoder: initial attention to the encoder; matching: half of the first layer's heads find the token just read."""
    residual: bool = False
    """Recurrent: residual connections between layers (ELMo)."""
    cross_width: int = 0
    """Decoder: width of the encoder states that each layer of a Transformer attends to (Vaswani et al. 2017), or the
    last of an LSTM (Luong et al. 2015); 0: none."""

    def __post_init__(self) -> None:
        check_ranges(
            self, layers=(0, 1000), width=(1, 100_000), ffn_width=(0, 400_000), heads=(1, 1000), context=(0, 1000)
        )
        check_ranges(self, clamp_length=(0, MAX_LENGTH), max_distance=(1, MAX_LENGTH), buckets=(4, 1000))
        check_ranges(self, inner_width=(0, 100_000), cross_width=(0, 200_000))
        check_fractions(self, "dropout", "attention_dropout", "weight_drop")
        if self.output_dropout is not None:
            check_fractions(self, "output_dropout")
        check_recurrent(self)
        if self.cross_width and self.kind not in ("lstm", "transformer"):
            raise RecipeError(
                f"a {self.kind} has no cross-attention: set encoder.cross_width=0 or encoder.kind=transformer."
            )
        if self.positions == "relative" and (self.kind != "transformer" or self.cross_width):
            raise RecipeError("relative positions are of self-attention: set encoder.kind=transformer, cross_width=0.")
        if self.segments == "relative" and self.positions != "relative":
            raise RecipeError("encoder.segments=relative needs encoder.positions=relative: set both, or none.")
        if self.positions == "buckets" and (self.kind != "transformer" or self.max_distance <= self.buckets // 2):
            raise RecipeError(
                f"encoder.positions=buckets is of a Transformer, and encoder.max_distance={self.max_distance} must be "
                f"above half of encoder.buckets={self.buckets}: set it to 128, say."
            )
        if not 0 < self.eps < 1:
            raise RecipeError(f"encoder.eps={self.eps} must be above 0 and small, such as 1e-12.")
        if self.kind == "transformer" and not self.ffn_width:
            raise RecipeError(
                "encoder.ffn_width=0 leaves a Transformer without feed-forward layers: set it to 512, say."
            )
        if self.kind == "transformer" and self.width % self.heads:
            raise RecipeError(f"encoder.width={self.width} must be a multiple of encoder.heads={self.heads}.")
        check_layer_sizes(self)
        if self.kind in ("window", "bilinear", "cnn") and self.context < 1:
            raise RecipeError(f"encoder.context=0 leaves a {self.kind} without context: set it to 4, say.")
        if self.kind == "cnn" and self.layers < 1:
            raise RecipeError("a cnn of encoder.layers=0 has no context: set encoder.layers=8, say.")

    @property
    def receptive_field(self) -> int:
        """Tokens on each visible side that a hidden state depends on, if they are limited."""
        return self.layers * (self.context - 1) + 1 if self.kind == "cnn" else self.context


@dataclass(frozen=True, kw_only=True)
class OutputRecipe:
    """The output layer, which maps hidden states to token probabilities."""

    kind: Output = "full"
    """Full softmax, with its own weights or the embedding's (tied), or the states themselves (direct); class-based; a
    tree; sampled (importance, nce; negative, for the states around a token); adaptive; or none, for a network that
    predicts no tokens."""
    transform: bool = False
    """A dense layer before it, as in BERT."""
    bias: bool = True
    scaled: bool = False
    """Tied and full: divide states by the square root of their width first (T5)."""
    samples: int = 1000
    """Importance sampling and noise contrast: samples of a step; negative sampling: samples of each prediction."""
    proposal: Literal["unigram", "bigram"] = "unigram"
    """The distribution of samples."""
    training_samples: int = 0
    """Full and tied: train on the targets of a step and as many samples; 0: on the whole vocabulary."""

    def __post_init__(self) -> None:
        check_ranges(self, samples=(1, 1_000_000), training_samples=(0, 1_000_000))


@dataclass(frozen=True, kw_only=True)
class SequenceRecipe:
    """How text is cut into sequences (the input formats of the RoBERTa study, and those of older models)."""

    format: Format = "stream"
    """A stream of sentences, each with its end, in random rows or contiguous from step to step, or contiguous with two
    segments after each part; single sentences; two segments or sentences; as many as fit, across documents or within
    one, the last cut at a word if it is long; batches of consecutive sentences; or a source and its target."""
    length: int = 128
    """Maximal tokens of a sequence, special ones included, and number of positions."""
    reused: float = 0.5
    """Format contiguous-pair: fraction of a row that is contiguous from step to step; the segments follow it."""
    reversed: bool = False
    """Format contiguous-pair: half of the rows read their text backwards, with negative distances."""

    def __post_init__(self) -> None:
        check_ranges(self, length=(4, MAX_LENGTH))
        if not 0 < self.reused < 1:
            raise RecipeError(f"sequence.reused={self.reused} must be above 0 and below 1, such as 0.5.")
        if self.reversed and self.format != "contiguous-pair":
            raise RecipeError(f"sequence.format={self.format} is read forwards: set sequence.reversed=false.")


@dataclass(frozen=True, kw_only=True)
class MemoryRecipe:
    """The memory of a Transformer: hidden states of the previous segment, without gradient (Dai et al. 2019)."""

    length: int = 0
    """Tokens whose states are kept; 0: no memory."""
    same_length: bool = False
    """Every token attends to `length` tokens, itself included, wherever it is in its segment."""

    def __post_init__(self) -> None:
        check_ranges(self, length=(0, MAX_LENGTH))
        if self.same_length and not self.length:
            raise RecipeError("memory.same_length needs a memory: set memory.length=128, say.")


@dataclass(frozen=True, kw_only=True)
class SamplingRecipe:
    """How often the texts of a mixture are sampled: p^alpha for one that is the fraction p of all text."""

    batches: float = 1.0
    """The exponent alpha for training steps. Below 1, small texts are sampled more often."""
    vocabulary: float = 1.0
    """The exponent alpha for the text that the tokenizer is trained on."""

    def __post_init__(self) -> None:
        for name in ("batches", "vocabulary"):
            if not 0 <= getattr(self, name) <= 1:
                raise RecipeError(f"sampling.{name}={getattr(self, name)} must be from 0 (equal) to 1 (by size).")


@dataclass(frozen=True, kw_only=True)
class LearningRecipe:
    """Optimisation."""

    optimiser: Literal["adamw", "adam", "adagrad", "sgd", "lamb"] = "adamw"
    lr: float | Literal["auto"] = "auto"
    """Peak learning rate; auto: by the kind and the size of the network."""
    batch: int = 4096
    """Tokens of a step."""
    grad_accumulation: int = 1
    """Micro-batches of a step: less memory, the same gradients."""
    schedule: Literal["linear", "inverse-sqrt", "slanted", "cosine", "stable-decay", "constant"] = "linear"
    warmup: float = 0.06
    """Fraction of the steps in which the learning rate rises."""
    layer_decay: float = 1.0
    """Factor of the learning rate from each layer to the one below; the output layer has the whole rate (Howard and
    Ruder 2018)."""
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.98
    clip: float = 1.0
    """Maximal gradient norm; 0: no clipping."""
    epochs: int = 10
    """Unless a budget decides."""
    short_phase: float = 0.0
    """Fraction of the first steps that train on sequences of a quarter of the length."""
    patience: int = 0
    """Validations without progress before early stopping; 0: never."""

    def __post_init__(self) -> None:
        check_ranges(
            self, batch=(1, 100_000_000), grad_accumulation=(1, 10_000), epochs=(1, 1_000_000), patience=(0, 10_000)
        )
        check_fractions(self, "warmup", "weight_decay", "short_phase", "beta1", "beta2")
        if not 0 < self.layer_decay <= 1:
            raise RecipeError(f"learning.layer_decay={self.layer_decay} must be above 0 and at most 1, such as 0.38.")
        if self.lr != "auto" and not 0 < self.lr <= 100:
            raise RecipeError(f"learning.lr={self.lr} must be above 0, such as 0.001, and at most 100.")
        if not 0 <= self.clip < math.inf:
            raise RecipeError(f"learning.clip={self.clip} must be a number not below 0, such as 1; 0 clips nothing.")


@dataclass(frozen=True, kw_only=True)
class NetRecipe:
    """A neural model."""

    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="wordpiece", vocab_size=16_000))
    embedding: EmbeddingRecipe = field(default_factory=EmbeddingRecipe)
    encoder: EncoderRecipe = field(default_factory=EncoderRecipe)
    visibility: Visibility = "causal"
    """What a hidden state depends on: previous tokens, all tokens, or one half each on previous and following ones."""
    objectives: tuple[Objective, ...] = ()
    """Training objectives; none for a network that is only used."""
    output: OutputRecipe = field(default_factory=OutputRecipe)
    sequence: SequenceRecipe = field(default_factory=SequenceRecipe)
    sentence: SentenceRecipe = field(default_factory=SentenceRecipe)
    memory: MemoryRecipe = field(default_factory=MemoryRecipe)
    sampling: SamplingRecipe = field(default_factory=SamplingRecipe)
    learning: LearningRecipe = field(default_factory=LearningRecipe)
    decoder: EncoderRecipe | None = None
    """A causal Transformer, or an LSTM, that attends to the encoder's states of a source, and predicts."""
    entities: EntitiesRecipe = field(default_factory=EntitiesRecipe)
    ngrams: NgramsRecipe = field(default_factory=NgramsRecipe)
    word_classes: int = 0
    """Classes of words to find in the text, the finest of three levels: features of linear taggers; 0: none."""
    languages: tuple[str, ...] = ()
    """The names of the language embeddings."""
    language: str = ""
    """The language of texts of which none is said; empty: by the script of a text."""

    def __post_init__(self) -> None:
        check_combination(self)

    @property
    def kind(self) -> str:
        """The kind of artifact of this recipe."""
        return "nets"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the objectives."""
        return tuple(objective.name for objective in self.objectives)

    @property
    def predicts(self) -> set[str]:
        """What the output layer is trained to predict: see `Objective.predicts`."""
        return {objective.predicts for objective in self.objectives if objective.predicts}

    @property
    def second_networks(self) -> dict[str, NetRecipe]:
        """Objective -> the network that its head owns."""
        found = {one.name: one.second_network(self) for one in self.objectives}
        return {name: second for name, second in found.items() if second is not None}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the token store that the objectives require."""
        return tuple(dict.fromkeys(name for one in self.objectives for name in one.requires))

    @property
    def stages(self) -> tuple[float, ...]:
        """The fractions of the training at which stages begin, in which batches differ."""
        return tuple(sorted({0.0, *(bound for one in self.objectives for bound in one.stages)}))

    def objective(self, name: str) -> Objective | None:
        """The objective of that name, if the recipe has it."""
        return next((one for one in self.objectives if one.name == name), None)

    @property
    def segments(self) -> int:
        """The number of segments that the network tells apart: 3 if relatively, since the last [CLS] is one, too."""
        return 3 if self.encoder.segments == "relative" else self.embedding.segments

    @property
    def ends_with_class(self) -> bool:
        """Whether [CLS] is the last token of a sequence, and not the first."""
        return self.sequence.format == "contiguous-pair"

    @property
    def directions(self) -> int:
        """The number of encoders, each with its own parameters."""
        return 2 if self.visibility == "forward+backward" else 1

    @property
    def input_width(self) -> int:
        """Dimension of the token vectors that each encoder reads."""
        return self.embedding.width // (self.directions if self.embedding.per_direction else 1)

    @property
    def width(self) -> int:
        """Dimension of a hidden state of the encoder, both directions concatenated."""
        direct = self.encoder.context * self.embedding.width if self.encoder.direct_connections else 0
        return (self.encoder.width + direct) * self.directions

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> NetRecipe:
        """The same with another tokenizer."""
        return replace(self, tokenizer=tokenizer)
