"""TaskRecipe: a network, what is put on top of it, and how both learn a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, Literal

from firth.errors import RecipeError, near_miss
from firth.nets.recipe import LearningRecipe, NetRecipe
from firth.text.layout import Layout
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer

TaskName = Literal["classify", "pair", "tag", "span", "choice", "generate"]
TASKS: tuple[TaskName, ...] = ("classify", "pair", "tag", "span", "choice", "generate")
Strategy = Literal["full", "frozen", "features", "discriminative", "gradual"]
STRATEGIES: tuple[Strategy, ...] = ("full", "frozen", "features", "discriminative", "gradual")
Pooling = Literal["first", "last", "mean", "max"]


@dataclass(frozen=True, kw_only=True)
class HeadRecipe:
    """What stands between the states of a network and the answers."""

    layers: Literal["last", "mix"] = "last"
    """Which states are read: those of the last layer, or a learnt mean of all layers', and its scale (ELMo)."""
    encoder: Literal["none", "lstm", "cnn"] = "none"
    """An encoder of its own over what is read: both directions of an LSTM, or windows of words."""
    width: int = 256
    """Of the states of that encoder."""
    inputs: int = 0
    """Numbers of a vector of its own for each token, put beside what is read; 0: none."""
    reading: Literal["below", "between", "around"] = "below"
    """With an encoder: whether it reads the network's states, or a second one does that reads the first one's beside
    them (TagLM), or the states are put beside its own once more (ELMo, input and output)."""
    pooling: Pooling = "first"
    """classify, pair and choice: how the states of a text become one."""
    pooler: bool = True
    """A product and tanh between that state and the labels (BERT's)."""
    dropout: float = 0.1
    crf: bool = False
    """tag: labels are chosen together, by how well they follow each other."""
    smoothing: float = 0.0
    """Share of the probability that is spread over all labels (label smoothing)."""
    balanced: bool = False
    """Rare labels count as much as frequent ones."""

    def __post_init__(self) -> None:
        for name in ("dropout", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"head.{name}={getattr(self, name)} must be from 0 to less than 1.")
        for name, low in (("width", 2), ("inputs", 0)):
            if not low <= getattr(self, name) <= 100_000:
                raise RecipeError(f"head.{name}={getattr(self, name)} must be from {low} to 100000.")
        if self.reading != "below" and (self.encoder == "none" or not self.inputs):
            raise RecipeError(
                f"head.reading={self.reading} needs vectors of its own: set head.encoder and head.inputs."
            )
        if self.encoder == "lstm" and self.width % 2:
            raise RecipeError(f"head.width={self.width} must be even: half of it is for each direction.")


def default_learning() -> LearningRecipe:
    """How a task is learnt if nothing else is said: steps of 32 examples, three passes (Devlin et al. 2019)."""
    return LearningRecipe(batch=32, epochs=3, warmup=0.1, beta2=0.999)


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """A network that does a task."""

    task: TaskName = "classify"
    form: Literal["single", "multi", "number"] = "single"
    """classify: one label or several; pair: a label or a number."""
    network: NetRecipe = field(default_factory=NetRecipe)
    decoder: NetRecipe | None = None
    """generate: another network that writes and looks at the states of `network`; None: `network` does both."""
    head: HeadRecipe = field(default_factory=HeadRecipe)
    labels: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Where the parts of examples stand in files, as ROLE=NAME."""
    strategy: Strategy = "full"
    layer_decay: float = 0.95
    """discriminative: what the rate of a layer is multiplied by for the one below."""
    auxiliary: float = 0.0
    """Weight of the language model's own loss beside the task's (GPT)."""
    symmetric: bool = False
    """pair: both orders are read and their states added (GPT on similarity)."""
    spaced: bool = True
    """tag: whether spaces stand between words."""
    inside: int = 1
    """tag: words that a token may hold, each with scores of its own; from 2 on sentences without spaces are read as a
    whole, so that a network finds the tokens it has learnt where words are single characters."""
    stride: int = 64
    """span: tokens from the beginning of a window over a long passage to that of the next."""
    longest: int = 30
    """span: tokens of an answer at most. generate: tokens of a target at most."""
    beams: int = 4
    """generate: texts that are followed side by side; 1 takes the likeliest token each time."""
    once: int = 3
    """generate: so many tokens in a row stand in a text once at most (Paulus et al. 2018); 0: as often as they like."""
    empty: bool = False
    """span: some questions have no answer."""
    threshold: float = 0.0
    """span: how much better than no answer a span must be."""
    learning: LearningRecipe = field(default_factory=default_learning)
    """Of which `batch` counts examples."""
    home: ClassVar[str] = "firth.tasks.model"

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise RecipeError(f"there is no task {self.task!r}: {near_miss(self.task, TASKS)}")
        if self.strategy not in STRATEGIES:
            raise RecipeError(f"there is no strategy {self.strategy!r}: {near_miss(self.strategy, STRATEGIES)}")
        for name, low, high in (("inside", 1, 100), ("beams", 1, 1000), ("longest", 1, 100_000), ("once", 0, 1000)):
            if not low <= getattr(self, name) <= high:
                raise RecipeError(f"{name}={getattr(self, name)} must be from {low} to {high}.")
        if not 0 < self.layer_decay <= 1:
            raise RecipeError(f"layer_decay={self.layer_decay} must be above 0 and at most 1, such as 0.95.")
        if self.decoder is not None and self.task != "generate":
            raise RecipeError(f"{self.task} writes nothing: leave --decoder out, or take the task generate.")
        if self.task == "generate" and self.decoder is None and self.strategy in ("frozen", "features"):
            raise RecipeError(
                "generate has no layers of its own that could learn: use --strategy full, or give a --decoder."
            )
        if self.auxiliary and "clm" not in self.network.names:
            raise RecipeError("only a causal language model goes on predicting the next word: set auxiliary=0.")

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "tasks"

    @property
    def tokenizer(self) -> TokenizerRecipe:
        """That of the network."""
        return self.network.tokenizer

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> TaskRecipe:
        """The same with another tokenizer."""
        return replace(self, network=self.network.with_tokenizer(tokenizer))

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> Any:
        """The model of a saved artifact's arrays."""
        return import_module(self.home).restore(self, arrays, tokenizer, layout)
