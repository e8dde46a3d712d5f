"""The contract of a family of Hugging Face models, which one file for each family fulfils (`huggingface_bert.py`, ...).

A family declares how recipes and config.json, tensors, heads for tasks and special tokens correspond, for export and
import alike. Nothing outside its file tests its name; `huggingface_registry.py` lists all.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy.typing as npt
import torch
from torch import Tensor

from firth.errors import ArtifactError
from firth.nets.recipe import NetRecipe, OutputRecipe
from firth.recipes.values import describe_type, field_types, fits
from firth.tasks.recipe import TaskName
from firth.tokens.special_tokens import SpecialTokens
from firth.tokens.tokenizer import BOS, EOS, MASK, Tokenizer

Config = dict[str, Any]
Tensors = dict[str, Tensor]
Arrays = Mapping[str, npt.NDArray[Any]]
Fields = Mapping[str, tuple[str, Any]]
TOKENS, POSITIONS = "embedding.tokens.weight", "embedding.positions.weight"
_WILDCARD = re.compile(r"(?<=\.layers\.)\d+|(?<=^heads\.)\w+")


class HeadClass(NamedTuple):
    """A class of transformers with a task head."""

    architecture: str
    classifier: str  # the layer that computes the logits
    pooler: str = ""  # the layer with tanh before it, if there is one
    pooling: str = "first"  # the token whose state is classified

    @property
    def has_bias(self) -> bool:
        return self.classifier != "score"


class SecondModel(NamedTuple):
    """A network that is a model of its own at Hugging Face, in a folder in that of the first."""

    folder: str
    recipe: NetRecipe
    tensors: Tensors


class ModelType(ABC):
    """A model type of Hugging Face; the defaults are those of a bidirectional network with an output bias."""

    name: ClassVar[str]
    """`model_type` in config.json."""
    architecture: ClassVar[str]
    """The class with the language-modelling head."""
    pair_architecture: ClassVar[str] = ""
    """The class with the layers of `head_objective` as well."""
    layout: ClassVar[str] = ""
    """Families of the same layout hold the same recipes; empty for a family of its own."""
    fields: ClassVar[Fields]
    """Recipe field -> key of config.json and its default."""
    activations: ClassVar[Mapping[Any, str]]
    """Theirs -> ours; of several for one of ours, the last is written."""
    required: ClassVar[Config] = {}
    """Keys of config.json with the only value that is read, the default."""
    pipelines: ClassVar[Mapping[str, str]] = {}
    """Class -> task in the words of Hugging Face, if its name does not say it."""

    names: ClassVar[Mapping[str, str]]
    """Module or tensor of ours -> theirs. `*` is the number of a layer or the name of an objective; `query|key|value`
    are three layers whose rows are concatenated in ours."""
    prefix: ClassVar[str]
    """Prefix of the tensors that a model without head has without it."""
    head_prefixes: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the tensors of language-modelling heads."""
    has_output_bias: ClassVar[bool] = True

    has_spare_rows: ClassVar[bool] = False
    """Whether the table of tokens may have rows without a token, at its end."""

    head_classes: ClassVar[Mapping[TaskName, HeadClass]] = {}
    task_prefix: ClassVar[str] = ""
    """Prefix that the tensors of the network have in classes for tasks besides."""
    classifier_dropout: ClassVar[str] = "classifier_dropout"
    """Key of config.json."""

    is_causal: ClassVar[bool] = False
    begin_token: ClassVar[int] = BOS
    """Of a text, `bos_token_id` in config.json."""
    required_specials: ClassVar[tuple[int, ...]] = (BOS, EOS, MASK)
    """Our special tokens that a tokenizer must have an equivalent of."""
    prefers_cls: ClassVar[bool] = True
    """Whether cls_token and sep_token come before bos_token and eos_token, if a tokenizer has both."""
    padding_side: ClassVar[str] = "right"
    """Where their tokenizer fills up texts of a batch."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """New names of tokens that are ordinary there, but special here."""
    missing_template: ClassVar[SpecialTokens | None] = None
    """The special tokens around texts if a tokenizer.json has none; None: those of such a recipe."""

    @abstractmethod
    def published(self) -> NetRecipe:
        """The published recipe, for what config.json lacks."""

    # The recipe and config.json

    @abstractmethod
    def claims(self, recipe: NetRecipe) -> bool:
        """Whether a recipe is of this family by its parts; families that are registered later are asked first."""

    @abstractmethod
    def unsupported(self, recipe: NetRecipe) -> Mapping[str, bool]:
        """Parts such as `encoder.kind=lstm` of a claimed recipe, and whether this family lacks them."""

    def architecture_of(self, recipe: NetRecipe, has_head: bool) -> str:
        """The class of a model, with or without the layers of `head_objective`."""
        return self.pair_architecture if has_head else self.architecture

    def remarks(self, recipe: NetRecipe) -> list[str]:
        """What an exported model computes a little differently."""
        return []

    def further_config(self, recipe: NetRecipe) -> Config:
        """Keys of config.json that are not in `fields`."""
        return {}

    def position_offset(self, config: Config) -> int:
        """Unused rows of the position embedding."""
        return 0

    def check_config(self, config: Config) -> None:
        """Refuse a config.json of a model that Firth cannot build."""
        for key, wanted in self.required.items():
            if config.get(key, wanted) != wanted:
                raise ArtifactError(
                    f"config.json has {key}={config[key]!r:.80}: Firth reads models with {wanted!r} only."
                )
        if config.get("quantization_config"):
            raise ArtifactError("config.json says that the weights are quantised: save the model in float32 first.")

    def recipe_values(self, config: Config) -> dict[str, Any]:
        """The values of recipe fields such as `encoder.width`."""
        values = {ours: self._recipe_value(config, ours) for ours in self.fields}
        if "sequence.length" in values:  # a network without position embeddings has no limit
            values["sequence.length"] -= self.position_offset(config)
        values.setdefault("embedding.width", values["encoder.width"])
        values.setdefault("encoder.ffn_width", 4 * values["encoder.width"])
        return values

    def _recipe_value(self, config: Config, ours: str) -> Any:
        theirs, default = self.fields[ours]
        found = config.get(theirs, default)
        part, _, field = ours.partition(".")
        if field == "ffn_width" and found is None:
            return 4 * self._recipe_value(config, f"{part}.width")
        if field == "activation":
            if type(found) not in (str, bool) or found not in self.activations:
                known = ", ".join(map(str, self.activations))
                raise ArtifactError(f"config.json has {theirs}={found!r:.80}: Firth reads {self.name} with {known}.")
            return self.activations[found]
        hint = field_types(type(getattr(self.published(), part)))[field]
        if not fits(found, hint):
            raise ArtifactError(f"config.json has {theirs}={found!r:.80}: it must be {describe_type(hint)}.")
        return found

    def default_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of recipe fields that config.json lacks, if Firth did not write it."""
        return {"embedding.dropout": values["encoder.dropout"]}

    def starting_recipe(self, given: Mapping[str, Tensor]) -> NetRecipe:
        """The recipe for what config.json lacks, if Firth did not write it; `given` are the weights."""
        return self.published()

    def read_output(self, base: NetRecipe, config: Config, given: Mapping[str, Tensor]) -> OutputRecipe:
        """The output layer of a model."""
        return replace(base.output, kind="tied" if is_tied(config) else "full", bias=self.has_output_bias)

    def read_objectives(
        self, base: NetRecipe, values: dict[str, Any], config: Config, given: Mapping[str, Tensor]
    ) -> NetRecipe:
        """The recipe with the objectives, formats and inputs of a model; may change the `values` of fields."""
        return base

    # Tensors

    def their_names(self, name: str) -> list[str]:
        """The names of our tensor `name` in a model of theirs."""
        found, pattern = _WILDCARD.search(name), _WILDCARD.sub("*", name)
        module, _, leaf = pattern.rpartition(".")
        table = self.names
        theirs, suffix = (table[pattern], "") if pattern in table else (table[module], f".{leaf}")
        prefix, _, last = theirs.replace("*", found.group() if found else "").rpartition(".")
        return [f"{prefix}.{part}{suffix}" if prefix else f"{part}{suffix}" for part in last.split("|")]

    def their_name(self, name: str) -> str:
        """The first of `their_names`."""
        return self.their_names(name)[0]

    def reshape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        """Our tensor in their shape, before it is split; `offset` is that of positions."""
        if offset and name == POSITIONS:
            return torch.cat([tensor.new_zeros(offset, tensor.shape[1]), tensor])
        return tensor

    def restore_shape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        """The inverse of `reshape`."""
        return tensor[offset:] if name == POSITIONS else tensor

    def rescale(self, recipe: NetRecipe, tensors: Tensors, inverse: bool = False) -> Tensors:
        """Our tensors with other scales but the same computation, as their model needs them, or those again as ours."""
        return tensors

    def to_theirs(self, ours: Mapping[str, Tensor], offset: int) -> Tensors:
        """Our tensors with their names and shapes."""
        theirs: Tensors = {}
        for name, tensor in ours.items():
            names = self.their_names(name)
            theirs |= zip(names, self.reshape(name, tensor, offset).chunk(len(names)), strict=True)
        return theirs

    def divide_heads(self, recipe: NetRecipe, theirs: Tensors) -> Tensors:
        """Their tensors, with a dimension of its own for heads where their model has one."""
        return theirs

    def to_ours(self, theirs: Mapping[str, Tensor], names: Iterable[str], offset: int) -> Tensors:
        """Our tensors `names` made of theirs: the inverse of `to_theirs`."""
        ours: Tensors = {}
        for name in names:
            their = self.their_names(name)
            tensor = theirs[their[0]] if len(their) == 1 else torch.cat([theirs[each] for each in their])
            ours[name] = self.restore_shape(name, tensor, offset).contiguous()
        return ours

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        """Tensors that their model has and ours lacks, with values that change nothing: zeros, identities, copies."""
        return {}

    def tied_copies(self) -> dict[str, str]:
        """The names of tensors that may be stored although they are tied -> those that they equal."""
        return {self.their_name("output.weight"): self.their_name(TOKENS)}

    def drop_static(self, config: Config, given: Tensors) -> None:  # noqa: B027 (optional)
        """Remove tensors that are not trained, which must have their usual values."""

    def head_objective(self, recipe: NetRecipe) -> str:
        """The objective whose layers their model has a place for, or an empty string."""
        return ""

    def head_layers(self, recipe: NetRecipe) -> dict[str, int]:
        """The layers of `head_objective` and their numbers of outputs; all have the width of states as inputs."""
        return {}

    def second_model(self, recipe: NetRecipe, tensors: Mapping[str, Any]) -> tuple[NetRecipe, SecondModel] | None:
        """The recipe of the first and the second of two networks that are two models at Hugging Face."""
        return None

    second_folder: ClassVar[str] = ""
    """The folder in that of the first model that a second one is read from."""

    def can_join(self, first: NetRecipe) -> bool:
        """Whether a second model belongs to an imported one."""
        return False

    def join(
        self, first: NetRecipe, arrays: Arrays, second: NetRecipe, others: Arrays, stored: NetRecipe | None
    ) -> tuple[NetRecipe, dict[str, npt.NDArray[Any]]]:
        """The recipe and the arrays of two models that are one here; `stored` is the recipe that Firth wrote."""
        raise AssertionError("a family of single models is not asked, see can_join")

    # Tasks and tokens

    def task_config(self, task: TaskName) -> Config:
        """Keys of config.json that a class for a task needs."""
        return {}

    def token_config(self, tokenizer: Tokenizer, kept: Sequence[int]) -> Config:
        """Keys of config.json with ids of special tokens; `kept` has the ids of the model's tokens."""
        return {}

    def further_files(self, recipe: NetRecipe, config: Config) -> dict[str, Config]:
        """JSON files by name that the folder has besides."""
        return {}

    def export_roles(self, tokens: Mapping[int, str], roles: dict[str, str], for_task: bool) -> dict[str, str]:
        """Roles such as cls_token of the special tokens, by id."""
        return roles

    def export_template(self, kept: Sequence[int], for_task: bool) -> SpecialTokens | None:
        """The special tokens around texts; None: those of the tokenizer or of the recipe."""
        return None

    def import_template(self, found: SpecialTokens | None, config: Config, is_task: bool) -> SpecialTokens | None:
        """The special tokens that imported texts are read with, given those of tokenizer.json; None: the recipe's."""
        return found or self.missing_template

    def check_tokens(self, config: Config, order: Sequence[int]) -> None:  # noqa: B027 (optional)
        """Refuse a tokenizer that does not go with config.json; `order` has the old id of each token."""


def is_tied(config: Config) -> bool:
    """Whether the output layer shares the weights of the embedding."""
    tied = config.get("tie_word_embeddings", True)
    if not isinstance(tied, bool):
        raise ArtifactError(f"config.json has tie_word_embeddings={tied!r:.80}: it must be true or false.")
    return tied


PLAIN: Config = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
}
"""What config.json of BERT and its descendants must say, if anything."""
ACTIVATIONS: Mapping[Any, str] = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_new": "gelu-tanh",
    "relu": "relu",
    "swish": "silu",
    "silu": "silu",
    "tanh": "tanh",
}
