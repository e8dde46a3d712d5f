"""Fine-tuned models to the task classes of Hugging Face and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from firth.artifact.formats.huggingface_config import make_config
from firth.artifact.formats.huggingface_family import TOKENS, Config, HeadClass, Tensors
from firth.artifact.formats.huggingface_registry import MODEL_TYPES, model_type_for, model_type_of
from firth.artifact.formats.huggingface_weights import backbone_tensors, check_shape, first_nonfinite
from firth.errors import AbilityError, ArtifactError, FirthError
from firth.nets.recipe import NetRecipe
from firth.recipes.values import recipe_from_json, recipe_to_json
from firth.tasks.recipe import HeadRecipe, TaskName, TaskRecipe, default_learning

TASK_KEY = "firth_task"  # key of config.json that holds the task recipe; other programs ignore it
_PROBLEM_TYPES = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "number": "regression",
}
_PAIR_LABELS = {"entailment", "contradiction", "equivalent", "paraphrase", "duplicate"}  # without a prefix `not_`
_GLUE_PAIR_TASKS = {"mnli", "mrpc", "qnli", "qqp", "rte", "stsb", "wnli"}  # as the examples of transformers name them


HEAD_CLASSES = {name: family.head_classes for name, family in MODEL_TYPES.items()}
"""Model type -> task -> class."""


def task_to_huggingface(recipe: TaskRecipe, arrays: Mapping[str, Tensor]) -> tuple[Config, Tensors]:
    """The config.json and the weights of a fine-tuned model, given the arrays of its artifact."""
    head_class = head_class_of(recipe)
    state = dict(arrays)
    prefix = f"heads.{recipe.task}.head."
    head = {name.removeprefix(prefix): tensor for name, tensor in arrays.items() if name.startswith(prefix)}
    if not head_class.has_bias:
        norm = _last_norm_bias(recipe.network)
        state[norm] = state[norm] + _bias_as_states(head["classifier.weight"], head.pop("classifier.bias"))
    prefix = model_type_for(recipe.network).task_prefix
    tensors = {prefix + name: tensor for name, tensor in backbone_tensors(recipe.network, state).items()}
    tensors |= {their_head_name(head_class, name): tensor for name, tensor in head.items()}
    if wrong := first_nonfinite(tensors):
        raise AbilityError(f"{wrong} holds NaN or infinity: fine-tune the model again with a lower learning rate.")
    config = make_config(recipe.network, len(state[TOKENS]), has_head=False)
    return config | _task_config(recipe, head_class), tensors


def parts_left_out(recipe: TaskRecipe) -> dict[str, str]:
    """What a fine-tuned model has and their classes have not, with the setting that tunes a model without it.

    >>> parts_left_out(TaskRecipe(task="tag", head=HeadRecipe(crf=True)))
    {'the CRF': 'head.crf=false'}
    """
    found = {"the CRF": "head.crf=false"} if recipe.task == "tag" and recipe.head.crf else {}
    return found | ({"the linear part": "linear_weight=0"} if recipe.linear is not None else {})


def head_class_of(recipe: TaskRecipe) -> HeadClass:
    """The class of transformers with the architecture of a fine-tuned model.

    >>> from firth.recipes.nets import roberta
    >>> head_class_of(TaskRecipe(task="tag", network=roberta())).architecture
    'RobertaForTokenClassification'
    >>> head_class_of(TaskRecipe(task="tag", network=roberta(), words_per_token=2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    firth.errors.AbilityError: Hugging Face has no class with such a head: ... settings={'words_per_token': 1}.
    """
    if recipe.knowledge is not None:
        raise AbilityError(
            "Hugging Face has no class that inserts facts of a knowledge graph into texts: use the model with firth "
            "predict, or fine-tune one without --knowledge."
        )
    if recipe.decoder is not None:
        raise AbilityError(
            "Hugging Face has no class whose encoder and decoder have token vectors of their own: export the model "
            "that was fine-tuned, or use this one with firth predict."
        )
    if recipe.task == "generate":
        raise AbilityError(
            "Hugging Face has no network that encodes a source bidirectionally and continues it: export the model that "
            "was fine-tuned, or use this one with firth predict."
        )
    model_type = model_type_for(recipe.network)
    if recipe.task not in model_type.head_classes:
        others = ", ".join(name for name, classes in HEAD_CLASSES.items() if recipe.task in classes)
        if not others:
            raise AbilityError(f"Hugging Face has no class for {recipe.task}: use the model with firth predict.")
        raise AbilityError(f"Hugging Face has no {model_type.name} class for {recipe.task}: fine-tune one of {others}.")
    head_class = model_type.head_classes[recipe.task]
    if settings := _needed_settings(recipe, head_class):
        wanted = " ".join(f"--set {setting}" for setting in settings)
        raise AbilityError(f"Hugging Face has no class with such a head: for export, tune with {wanted}.")
    return head_class


def _needed_settings(recipe: TaskRecipe, head_class: HeadClass) -> list[str]:
    """The settings that would make the head one of theirs."""
    head = recipe.head
    unsupported = {
        "head.layers=last": head.layers != "last",
        "head.encoder=none": head.encoder != "none",
        "head.token_width=0": head.token_width > 0,
        "head.answer=pooled": head.answer != "pooled",
        "words_per_token=1": recipe.words_per_token > 1,
        "symmetric=false": recipe.symmetric and recipe.task == "pair",
    }
    if recipe.task in ("classify", "pair", "choice"):
        pooler = bool(head_class.pooler)
        unsupported[f"head.pooling={head_class.pooling}"] = head.pooling != head_class.pooling
        unsupported[f"head.pooler={str(pooler).lower()}"] = head.pooler != pooler
    return [setting for setting, is_needed in unsupported.items() if is_needed]


def their_head_name(head_class: HeadClass, name: str) -> str:
    """Their name of a tensor of our head, such as `classifier.weight` or `pooler.bias`."""
    layer, _, leaf = name.rpartition(".")
    return f"{head_class.pooler if layer == 'pooler' else head_class.classifier}.{leaf}"


def _last_norm_bias(recipe: NetRecipe) -> str:
    """The name of the last bias that is added to the hidden states."""
    last = recipe.encoder.layers - 1
    return "encoders.0.norm.bias" if recipe.encoder.norm == "pre" else f"encoders.0.layers.{last}.norm2.bias"


def _bias_as_states(weight: Tensor, bias: Tensor) -> Tensor:
    """The shortest d with W d = b, to be added to the hidden states: W (h + d) = W h + b, since their logits lack b."""
    double = weight.double()
    found: Tensor = torch.linalg.pinv(double) @ bias.double()
    if not torch.allclose(double @ found, bias.double(), rtol=0, atol=1e-6):
        raise AbilityError("their class has no bias of the logits: fine-tune a bert or roberta, or a wider network.")
    return found.to(weight.dtype)


def _task_config(recipe: TaskRecipe, head_class: HeadClass) -> Config:
    model_type = model_type_for(recipe.network)
    stored = recipe_to_json(replace(recipe, head=replace(recipe.head, crf=False)))
    del stored["network"]
    config: Config = {"architectures": [head_class.architecture]}
    config |= {model_type.classifier_dropout: recipe.head.dropout, TASK_KEY: stored}
    config |= model_type.task_config(recipe.task)
    if recipe.task in ("classify", "pair"):
        config["problem_type"] = _PROBLEM_TYPES[recipe.form]
    if labels := recipe.labels or (("score",) if recipe.form == "number" else ()):
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    return config


class HfTaskHead(NamedTuple):
    """The task head of a Hugging Face model."""

    task: TaskName
    head_class: HeadClass
    tensors: Tensors  # with our names, such as `classifier.weight`
    is_guess: bool  # whether the class serves another task as well

    def arrays(self) -> dict[str, Any]:
        single = {name: tensor.to(torch.float32) for name, tensor in self.tensors.items()}
        return {f"heads.{self.task}.head.{name}": tensor.contiguous().numpy() for name, tensor in single.items()}


def split_head(
    config: Config, tensors: Mapping[str, Tensor], task: str | None = None
) -> tuple[HfTaskHead | None, Tensors]:
    """The head of a fine-tuned model, None for a language model, and the other weights.

    `task` is the task if it is known.
    """
    found = _find_task(config, task)
    if found is None:
        return None, dict(tensors)
    head_class = model_type_of(config).head_classes[found]
    is_guess = task is None and found == "classify" and not _stored_recipe(config)
    own: Tensors = {}
    for layer in ("classifier", *(["pooler"] if head_class.pooler else [])):
        for leaf in ("weight", *(["bias"] if head_class.has_bias else [])):
            name = f"{layer}.{leaf}"
            own[name] = _head_tensor(tensors, their_head_name(head_class, name))
    if not head_class.has_bias:
        own["classifier.bias"] = own["classifier.weight"].new_zeros(len(own["classifier.weight"]))
    names = {their_head_name(head_class, name) for name in own}
    others = {name: tensor for name, tensor in tensors.items() if name not in names}
    return HfTaskHead(found, head_class, own, is_guess), others


def _find_task(config: Config, wanted: str | None) -> TaskName | None:
    """The task of a model by its class; of several the one that is wanted or stored, else by its labels."""
    classes = model_type_of(config).head_classes
    possible = [task for task, one in classes.items() if config.get("architectures") == [one.architecture]]
    if wanted is not None and wanted not in possible:
        reason = f"its class is for {' or '.join(possible)}" if possible else "it has no task head, so fine-tune it"
        raise AbilityError(f"the model cannot be imported for {wanted}: {reason}; leave --task out.")
    if not possible:
        return None
    known = wanted or _stored_recipe(config).get("task")
    default: TaskName = "pair" if "pair" in possible and _has_pair_labels(config) else possible[0]
    return next((task for task in possible if task == known), default)


def _has_pair_labels(config: Config) -> bool:
    """Whether the labels are those of sentence pairs, or there is a single number, such as a similarity."""
    labels = config.get("id2label")
    names = list(labels.values()) if isinstance(labels, dict) else ["", ""]  # the default of transformers
    plain = {str(name).lower().replace("-", "_").replace(" ", "_").removeprefix("not_") for name in names}
    glue_task = str(config.get("finetuning_task")).lower().replace("-", "")
    return len(names) == 1 or not plain.isdisjoint(_PAIR_LABELS) or glue_task in _GLUE_PAIR_TASKS


def _stored_recipe(config: Config) -> dict[str, Any]:
    found = config.get(TASK_KEY)
    return found if isinstance(found, dict) else {}


def _head_tensor(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    again = "save the fine-tuned model again with save_pretrained."
    if name not in tensors:
        raise ArtifactError(f"the weights lack {name}: {again}")
    found = tensors[name]
    if not found.is_floating_point() or found.ndim != (2 if name.endswith("weight") else 1):
        raise ArtifactError(f"{name} cannot be a layer of a head ({found.dtype}, {tuple(found.shape)}): {again}")
    if not bool(torch.isfinite(found).all()):
        raise ArtifactError(f"{name} holds NaN or infinity: use a model whose training went well.")
    return found


def task_recipe_of(config: Config, head: HfTaskHead, network: NetRecipe) -> TaskRecipe:
    """The recipe of a fine-tuned model: the stored one, or one inferred from config.json."""
    recipe = _restore_recipe(config, head, network) or _infer_recipe(config, head, network)
    wanted = _output_width(recipe)
    sizes = {"classifier.weight": (wanted, network.width), "classifier.bias": (wanted,)}
    sizes |= {"pooler.weight": (network.width, network.width), "pooler.bias": (network.width,)}
    for name, tensor in head.tensors.items():
        check_shape(their_head_name(head.head_class, name), tensor, sizes[name])
    return recipe


def _output_width(recipe: TaskRecipe) -> int:
    return {"span": 2, "choice": 1}.get(recipe.task, 1 if recipe.form == "number" else len(recipe.labels))


def _restore_recipe(config: Config, head: HfTaskHead, network: NetRecipe) -> TaskRecipe | None:
    """The recipe stored in a config.json, if it fits the head."""
    try:
        fields = {name: value for name, value in recipe_to_json(network).items() if name != "type"}
        found = recipe_from_json({**_stored_recipe(config), "network": fields})
        if not isinstance(found, TaskRecipe) or found.task != head.task:
            return None
        return found if head_class_of(found).pooler == head.head_class.pooler and _output_width(found) else None
    except (FirthError, KeyError, TypeError, ValueError):
        return None


def _infer_recipe(config: Config, head: HfTaskHead, network: NetRecipe) -> TaskRecipe:
    outputs = len(head.tensors["classifier.weight"])
    labels = _labels(config, outputs) if head.task in ("classify", "pair", "tag") else ()
    form = next((form for form, name in _PROBLEM_TYPES.items() if config.get("problem_type") == name), "single")
    if head.task == "pair" and outputs == 1:
        form, labels = "number", ()
    elif head.task == "classify" and outputs == 1:
        raise AbilityError("the model predicts one number, which Firth supports for pairs only: leave --task out.")
    elif head.task == "pair" and form == "multi":
        raise AbilityError("the model predicts several labels, which Firth lacks for pairs: leave --task out.")
    elif form == "number" or head.task != "classify":
        form = "single"
    pooling: Any = head.head_class.pooling
    return TaskRecipe(
        task=head.task,
        form=cast(Any, form),
        network=network,
        head=HeadRecipe(pooling=pooling, pooler=bool(head.head_class.pooler)),
        labels=labels,
        learning=default_learning(),
    )


def _labels(config: Config, count: int) -> tuple[str, ...]:
    id2label = config.get("id2label", {str(number): f"LABEL_{number}" for number in range(count)})
    names: list[Any] = [id2label.get(str(number)) for number in range(count)] if isinstance(id2label, dict) else []
    if len(set(map(str, names))) < count or len(id2label) > count or not all(isinstance(name, str) for name in names):
        raise ArtifactError(f"config.json must give {count} labels different names from 0 on: correct its id2label.")
    return tuple(names)
