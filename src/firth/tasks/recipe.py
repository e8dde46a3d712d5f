"""TaskRecipe: a network, the head of a task, and how both are fine-tuned.

ManyRecipe: a network with the heads of several tasks. LinearRecipe: a linear model of a task.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from firth.errors import ArgumentError, RecipeError, near_miss
from firth.metrics.tags import Scheme
from firth.nets.recipe import LearningRecipe, NetRecipe
from firth.tokens.recipe import TokenizerRecipe

TaskName = Literal["classify", "pair", "tag", "span", "choice", "generate", "typing", "relation"]
TASKS: tuple[TaskName, ...] = ("classify", "pair", "tag", "span", "choice", "generate", "typing", "relation")
Strategy = Literal["full", "frozen", "features", "discriminative", "gradual", "ulmfit"]
STRATEGIES: tuple[Strategy, ...] = ("full", "frozen", "features", "discriminative", "gradual", "ulmfit")
GRADUAL: tuple[Strategy, ...] = ("gradual", "ulmfit")
"""Strategies that train one more layer in each epoch."""
LAYERED: tuple[Strategy, ...] = ("discriminative", *GRADUAL)
"""Strategies with lower rates in lower layers."""
Pooling = Literal["first", "last", "mean", "max", "concat"]
WITH_KNOWLEDGE: tuple[TaskName, ...] = ("classify", "pair", "tag")
"""Tasks of texts into which facts can be inserted."""
WITH_LINEAR: tuple[TaskName, ...] = ("classify", "pair", "tag")
"""Tasks with linear models."""
MANY = "many"
"""Several tasks in one run."""
Mixing = Literal["size", "sqrt", "equal"]
MIXINGS: tuple[Mixing, ...] = ("size", "sqrt", "equal")
SHARED_FIELDS = ("network", "strategy", "layer_decay", "learning")
"""Fields of a task that all tasks of a network have in common."""
_TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MAX_WEIGHT = 1e6
_FORMS = {"classify": ("single", "multi"), "pair": ("single", "number"), "tag": ("single",)}


def check_sources(task: str, tasks: Any, given: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` unless a task has its examples, and several tasks their file and no other options.

    given: the options `--train` and `--dev`, and those that several tasks cannot have.
    """
    if task != MANY:
        if tasks is not None:
            raise ArgumentError("--tasks is for several tasks at once: use firth finetune MODEL many, or leave it out.")
        if missing := [option for option in ("--train", "--dev") if given[option] is None]:
            raise ArgumentError(f"{task} needs labelled examples: give {' and '.join(missing)}.")
        return
    if tasks is None:
        raise ArgumentError("many needs the file that lists the tasks: give --tasks, such as tasks.toml.")
    if extra := [option for option, value in given.items() if value]:
        raise ArgumentError(f"the file of --tasks names the examples of each task: leave {extra[0]} out.")


def base_name(name: str) -> str:
    """The name of a model without the tasks that it was fine-tuned for.

    >>> base_name("bert-wwm-classify-many"), base_name("gpt")
    ('bert-wwm', 'gpt')
    """
    base, _, task = name.rpartition("-")
    return base_name(base) if base and task in (*TASKS, MANY) else name


@dataclass(frozen=True, kw_only=True)
class HeadRecipe:
    """The layers between the hidden states of a network and the predictions."""

    layers: Literal["last", "mix", "ends"] = "last"
    """The last layer, a trained weighted mean of all layers (ELMo), or the token vectors and the last layer,
    concatenated (CoVe)."""
    encoder: Literal["none", "lstm", "cnn"] = "none"
    """An encoder over the hidden states: a bidirectional LSTM or a convolution."""
    width: int = 256
    """Hidden size of that encoder."""
    token_width: int = 0
    """Dimension of token embeddings concatenated to the hidden states; 0: none."""
    placement: Literal["below", "between", "around"] = "below"
    """Where the network's hidden states enter: below the encoder, between two encoders (TagLM), or below and above
    (ELMo, input and output)."""
    pooling: Pooling = "first"
    """classify, pair and choice: pooling of the states of a text; concat: last state, maximum and mean (ULMFiT)."""
    pooler: bool = True
    """A dense layer with tanh on the pooled state (BERT)."""
    hidden: int = 0
    """Width of a normalised layer with ReLU between the pooled state and the scores; 0: none (ULMFiT: 50)."""
    dropout: float = 0.1
    answer: Literal["pooled", "san", "text"] = "pooled"
    """classify and pair: labels by the pooled state; of pairs by a stochastic answer network over both texts (MT-DNN);
    or as text, which the model's decoder writes (T5)."""
    turns: int = 5
    """san: reasoning steps, whose probabilities are averaged."""
    crf: bool = False
    """tag: a conditional random field over the labels."""
    label_smoothing: float = 0.0
    balanced: bool = False
    """Weight labels by their inverse frequency."""

    def __post_init__(self) -> None:
        for name in ("dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"head.{name}={getattr(self, name)} must be from 0 to less than 1.")
        sizes = (("width", 2, 100_000), ("token_width", 0, 100_000), ("turns", 1, 100), ("hidden", 0, 100_000))
        for name, low, high in sizes:
            if not low <= getattr(self, name) <= high:
                raise RecipeError(f"head.{name}={getattr(self, name)} must be from {low} to {high}.")
        if self.placement != "below" and (self.encoder == "none" or not self.token_width):
            raise RecipeError(
                f"head.placement={self.placement} needs token embeddings: set head.encoder and head.token_width."
            )
        if self.encoder == "lstm" and self.width % 2:
            raise RecipeError(f"head.width={self.width} must be even: half of it is for each direction.")


@dataclass(frozen=True, kw_only=True)
class KnowledgeRecipe:
    """Facts of a knowledge graph that are inserted into texts (K-BERT, Liu et al. 2020)."""

    triples: int = 2
    """Facts about a name that are inserted, in the order of the graph."""
    predicate: bool = True
    """Insert predicate and object (default of classify and pair), or the object alone (of tag)."""
    shuffled: bool = False
    """Permute the objects of all facts: whether knowledge helps, or only longer texts."""
    digest: str = ""
    """SHA-256 of the facts, which are saved with the model."""

    def __post_init__(self) -> None:
        if not 1 <= self.triples <= 1000:
            raise RecipeError(f"knowledge.triples={self.triples} must be from 1 to 1000.")


def default_learning() -> LearningRecipe:
    """Default hyperparameters: batches of 32 examples, three epochs (Devlin et al. 2019)."""
    return LearningRecipe(batch=32, epochs=3, warmup=0.1, beta2=0.999)


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """A network fine-tuned for a task."""

    task: TaskName = "classify"
    form: Literal["single", "multi", "number"] = "single"
    """classify: single- or multi-label; pair: a label or a number; typing: multi-label."""
    network: NetRecipe = field(default_factory=NetRecipe)
    decoder: NetRecipe | None = None
    """A decoder with cross-attention to `network`, which writes targets or labels; None: `network` does all."""
    head: HeadRecipe = field(default_factory=HeadRecipe)
    labels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """Columns of the fields of an example in files, as ROLE=NAME."""
    strategy: Strategy = "full"
    layer_decay: float = 0.95
    """discriminative, gradual, ulmfit: factor of the learning rate from each layer to the one below."""
    lm_weight: float = 0.0
    """Weight of the language model's loss added to the task's (GPT)."""
    symmetric: bool = False
    """pair: encode both orders and add their scores (GPT on similarity)."""
    spaced: bool = True
    """tag: whether words are separated by spaces."""
    words_per_token: int = 1
    """tag: classifiers for the words in a token. From 2 on, unspaced sentences are tokenized as a whole, so that their
    tokens are those of pre-training although words are single characters."""
    stride: int = 64
    """span: tokens between the beginnings of consecutive windows over a long passage."""
    max_length: int = 30
    """Maximum number of tokens of an answer (span) or target (generate)."""
    beams: int = 4
    """generate: beam size; 1 is greedy decoding."""
    no_repeat_ngram: int = 3
    """generate: block repeated n-grams of this size (Paulus et al. 2018); 0: none."""
    allow_no_answer: bool = False
    """span: questions may have no answer."""
    no_answer_threshold: float = 0.0
    """span: no answer is predicted if its score exceeds that of the best span by more."""
    knowledge: KnowledgeRecipe | None = None
    """classify, pair, tag: a knowledge graph whose facts are inserted into texts."""
    linear: LinearRecipe | None = None
    """classify, pair, tag: a linear model whose scores are mixed with those of the head."""
    linear_weight: float = 0.0
    """The weight of its scores, from 0 to 1; that of the head's is the rest. Unless set, the best on the dev
    examples."""
    learning: LearningRecipe = field(default_factory=default_learning)
    """`batch` counts examples."""

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise RecipeError(f"there is no task {self.task!r}: {near_miss(self.task, TASKS)}")
        if self.strategy not in STRATEGIES:
            raise RecipeError(f"there is no strategy {self.strategy!r}: {near_miss(self.strategy, STRATEGIES)}")
        for name, low, high in (
            ("words_per_token", 1, 100),
            ("beams", 1, 1000),
            ("max_length", 1, 100_000),
            ("no_repeat_ngram", 0, 1000),
        ):
            if not low <= getattr(self, name) <= high:
                raise RecipeError(f"{name}={getattr(self, name)} must be from {low} to {high}.")
        if not 0 < self.layer_decay <= 1:
            raise RecipeError(f"layer_decay={self.layer_decay} must be above 0 and at most 1, such as 0.95.")
        if not 0 <= self.linear_weight <= 1:
            raise RecipeError(f"linear_weight={self.linear_weight} must be from 0 to 1, such as 0.3.")
        self._check_decoder()
        self._check_knowledge()
        if self.task == "generate" and self.decoder is None and self.strategy in ("frozen", "features"):
            raise RecipeError("generate has no head to train: use --strategy=full, or give a --decoder.")
        if self.task == "generate" and self.strategy == "ulmfit":
            raise RecipeError("ulmfit trains a head first, and generate has none: use --strategy=gradual.")
        if self.head.answer == "san" and (self.task != "pair" or self.form == "number"):
            raise RecipeError("head.answer=san gives the labels of pairs of texts: leave it out for anything else.")
        if self.lm_weight and "next" not in self.network.predicts:
            raise RecipeError("only a causal language model has a next-token loss: set lm_weight=0.")

    def _check_knowledge(self) -> None:
        if self.knowledge is None:
            return
        if self.task not in WITH_KNOWLEDGE or self.decoder is not None:
            raise RecipeError(f"facts are inserted for {', '.join(WITH_KNOWLEDGE)} with a head: leave --knowledge out.")
        encoder, embedding = self.network.encoder, self.network.embedding
        is_absolute = embedding.positions != "none" and encoder.positions == "none"
        if encoder.kind != "transformer" or self.network.visibility != "bidirectional" or not is_absolute:
            raise RecipeError(
                "inserted facts need a Transformer with absolute positions that attends in both directions, such as "
                "bert: fine-tune one, or leave --knowledge out."
            )
        if self.head.encoder != "none":
            raise RecipeError(
                f"an encoder of the head ({self.head.encoder}) would read inserted facts as text: set "
                "head.encoder=none or --strategy=full, or leave --knowledge out."
            )

    def _check_decoder(self) -> None:
        writes = self.head.answer == "text"
        if self.decoder is not None and self.task != "generate" and not writes:
            raise RecipeError(f"{self.task} generates no text: leave --decoder out, or choose the task generate.")
        if not writes:
            return
        if self.task not in ("classify", "pair"):
            raise RecipeError(f"head.answer=text is for labels of texts, not for {self.task}: leave it out.")
        if self.decoder is None:
            raise RecipeError("head.answer=text needs a decoder that writes labels: fine-tune a t5 or a bart, say.")
        if self.form == "multi":
            raise RecipeError("a label as text is one for each text: for several labels set head.answer=pooled.")
        if self.head.balanced or self.head.label_smoothing:
            raise RecipeError("labels as text are not weighted or smoothed: leave head.balanced, label_smoothing out.")

    @property
    def kind(self) -> str:
        """The kind of the artifact."""
        return "tasks"

    @property
    def tokenizer(self) -> TokenizerRecipe:
        """The tokenizer of the network."""
        return self.network.tokenizer

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> TaskRecipe:
        """A copy with another tokenizer."""
        linear = None if self.linear is None else self.linear.with_tokenizer(tokenizer)
        return replace(self, network=self.network.with_tokenizer(tokenizer), linear=linear)


@dataclass(frozen=True, kw_only=True)
class NamedTask:
    """One of several tasks of a network."""

    name: str
    recipe: TaskRecipe
    weight: float = 1.0
    """Factor of its loss."""

    def __post_init__(self) -> None:
        if not _TASK_NAME.fullmatch(self.name):
            raise RecipeError(f"a task is named by letters, digits, - and _, not {self.name!r:.80}: rename it.")
        if not 0 < self.weight <= _MAX_WEIGHT:
            raise RecipeError(f"the weight of {self.name} is {self.weight}: give a number above 0, such as 1 or 0.5.")


@dataclass(frozen=True, kw_only=True)
class ManyRecipe:
    """A network fine-tuned for several tasks, each with a head of its own (MT-DNN, Liu et al. 2019)."""

    network: NetRecipe = field(default_factory=NetRecipe)
    tasks: tuple[NamedTask, ...] = ()
    mixing: Mixing = "size"
    """Batches of a task in an epoch: all of its own, or as many by the square root of their number, or equally many."""
    strategy: Strategy = "full"
    layer_decay: float = 0.95
    learning: LearningRecipe = field(default_factory=default_learning)

    def __post_init__(self) -> None:
        names = [one.name for one in self.tasks]
        if twice := [name for name in names if names.count(name) > 1]:
            raise RecipeError(f"two tasks are named {twice[0]}: give each a name of its own.")
        for one in self.tasks:
            if one.recipe.task == "generate":
                raise RecipeError(f"the task {one.name} generates text, which is no head beside others: tune it alone.")
            if any(getattr(one.recipe, part) != getattr(self, part) for part in SHARED_FIELDS):
                raise RecipeError(f"the task {one.name} has another network than the others: tune it alone.")

    @property
    def kind(self) -> str:
        """The kind of the artifact."""
        return "tasks"

    @property
    def tokenizer(self) -> TokenizerRecipe:
        """The tokenizer of the network."""
        return self.network.tokenizer

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> ManyRecipe:
        """A copy with another tokenizer."""
        tasks = tuple(replace(one, recipe=one.recipe.with_tokenizer(tokenizer)) for one in self.tasks)
        return replace(self, network=self.network.with_tokenizer(tokenizer), tasks=tasks)


@dataclass(frozen=True, kw_only=True)
class LinearRecipe:
    """A linear model of a task."""

    task: Literal["classify", "pair", "tag"] = "classify"
    form: Literal["single", "multi", "number"] = "single"
    """classify: single- or multi-label; pair: a label or a number; tag: one label per word."""
    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words"))
    labels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """Columns of the fields of an example in files, as ROLE=NAME."""
    features: Literal["auto", "tokens", "characters"] = "auto"
    """Unit of the n-grams. auto: characters if the tokens are words and the text is Chinese, where a word vocabulary
    from another corpus covers too little; else tokens. tag: words with their affixes, or characters with their
    neighbours."""
    ngrams: int = 2
    """Maximum n-gram order; lower orders are included. Unless set, 3 to classify Chinese texts."""
    min_count: int = 2
    """Minimum number of texts with an n-gram, or of words with a feature."""
    weighting: Literal["tfidf", "ratio", "binary", "counts"] = "tfidf"
    """Of n-grams. ratio: tf-idf times how much an n-gram tells of a label. Unless set, ratio to classify."""
    cost: float | Literal["auto"] = "auto"
    """C of logistic regression or of the CRF: weight of the loss against the squared norm of the weights; auto: the
    best on the dev examples."""
    scheme: Scheme = "plain"
    """tag: tagging scheme, which predictions never violate."""
    differences: bool = False
    """pair: features of n-grams that only one of the texts has, instead of all of the first one."""
    word_classes: bool = False
    """tag: features of the classes of words that the network has, beside which the model is trained."""

    def __post_init__(self) -> None:
        if self.form not in _FORMS[self.task]:
            raise RecipeError(f"form={self.form} does not go with {self.task}: leave it out.")
        if not 1 <= self.ngrams <= 6:
            raise RecipeError(f"ngrams={self.ngrams} must be from 1 to 6.")
        if self.weighting == "ratio" and (self.task != "classify" or self.form == "number"):
            raise RecipeError("weighting=ratio needs texts with labels to classify: set weighting=tfidf.")
        if self.min_count < 1:
            raise RecipeError(f"min_count={self.min_count} must be 1 or more.")
        if self.cost != "auto" and not 0 < self.cost < math.inf:
            raise RecipeError(f"cost={self.cost} must be a number above 0, or auto.")

    @property
    def kind(self) -> str:
        """The kind of the artifact."""
        return "tasks"

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> LinearRecipe:
        """A copy with another tokenizer."""
        return replace(self, tokenizer=tokenizer)
