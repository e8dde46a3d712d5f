"""Fine-tuned models as the classes of Hugging Face that have a head for a task, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from firth.artifact.formats.huggingface_config import Config, Kind, config_of, find_kind, kind_of
from firth.artifact.formats.huggingface_tokens import export_tokenizer
from firth.artifact.formats.huggingface_weights import Tensors, body_of, not_finite
from firth.artifact.formats.huggingface_writing import write_files
from firth.errors import AbilityError, ArtifactError, FirthError
from firth.nets.recipe import NetRecipe
from firth.recipes.values import recipe_from_json, recipe_to_json
from firth.tasks.model import TaskModel
from firth.tasks.recipe import HeadRecipe, TaskName, TaskRecipe, default_learning
from firth.tokens.tokenizer import BOS

OURS = "firth_task"
"""The key of config.json under which our recipe of the task is kept; nobody else looks at it."""
_PROBLEMS = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "number": "regression",
}
_OF_PAIRS = {"entailment", "contradiction", "equivalent", "paraphrase", "duplicate"}
"""Labels that only two texts can have, without `not_` before them."""
_GLUE_PAIRS = {"mnli", "mrpc", "qnli", "qqp", "rte", "stsb", "wnli"}
"""Tasks of GLUE that are about two texts, as the examples of transformers write them into config.json."""


class Form(NamedTuple):
    """A class of theirs with the head of a task."""

    architecture: str
    classifier: str
    """The layer that gives scores."""
    pooler: str = ""
    """The layer before it, which has tanh; nothing where states are scored as they are."""

    @property
    def biased(self) -> bool:
        """Whether the scores have a bias."""
        return self.classifier != "score"


def _masked(name: str, pooler: str, texts: Form | None = None) -> dict[TaskName, Form]:
    """The classes of a masked model; `texts` is the one that classifies, if it is not like the others."""
    texts = texts or Form(f"{name}ForSequenceClassification", "classifier", pooler)
    return {
        "classify": texts,
        "pair": texts,
        "tag": Form(f"{name}ForTokenClassification", "classifier"),
        "span": Form(f"{name}ForQuestionAnswering", "qa_outputs"),
        "choice": Form(f"{name}ForMultipleChoice", "classifier", pooler),
    }


FORMS: dict[str, dict[TaskName, Form]] = {
    "bert": _masked("Bert", "bert.pooler.dense"),
    "roberta": _masked(
        "Roberta",
        "roberta.pooler.dense",
        Form("RobertaForSequenceClassification", "classifier.out_proj", "classifier.dense"),
    ),
    "albert": _masked("Albert", "albert.pooler"),
    "gpt2": {
        "classify": Form("GPT2ForSequenceClassification", "score"),
        "pair": Form("GPT2ForSequenceClassification", "score"),
        "tag": Form("GPT2ForTokenClassification", "classifier"),
        "span": Form("GPT2ForQuestionAnswering", "qa_outputs"),
    },
    "openai-gpt": {
        "classify": Form("OpenAIGPTForSequenceClassification", "score"),
        "pair": Form("OpenAIGPTForSequenceClassification", "score"),
    },
}
"""Type of a Hugging Face model -> task -> the class that does it."""


def export_task(model: TaskModel, path: Path) -> dict[str, Any]:
    """Writes a fine-tuned model as a folder that `transformers` and its pipelines load."""
    recipe, tokenizer = model.recipe, model.tokenizer
    arrays = {name: torch.from_numpy(np.require(array, requirements="W")) for name, array in model.arrays().items()}
    config, tensors = to_their_task(recipe, arrays)
    kind, network = kind_of(recipe.network), recipe.network
    tokens = list(range(len(tokenizer)))
    files = {"config.json": config, **export_tokenizer(tokenizer, kind, network, tokens, framed=True)}
    told = {"type": kind.name, "architecture": config["architectures"][0], "vocabulary": len(tokens)}
    return told | write_files(path, files, tensors)


def to_their_task(recipe: TaskRecipe, arrays: Mapping[str, Tensor]) -> tuple[Config, Tensors]:
    """The config.json and the weights of a fine-tuned model, whose arrays are those of its artifact."""
    form = form_of(recipe)
    state = dict(arrays)
    prefix = f"heads.{recipe.task}.head."
    head = {name.removeprefix(prefix): tensor for name, tensor in arrays.items() if name.startswith(prefix)}
    if not form.biased:
        norm = _last_norm(recipe.network)
        state[norm] = state[norm] + _bias_below(head["classifier.weight"], head.pop("classifier.bias"))
    tensors = body_of(recipe.network, state) | {their_name(form, name): tensor for name, tensor in head.items()}
    if wrong := not_finite(tensors):
        raise AbilityError(f"{wrong} holds NaN or infinity: fine-tune the model again at a lower rate.")
    config = config_of(recipe.network, len(state["embedding.tokens.weight"]), pairs=False)
    return config | _task_config(recipe, form), tensors


def form_of(recipe: TaskRecipe) -> Form:
    """The class of theirs that is built like a fine-tuned model.

    >>> from firth.recipes.nets import roberta
    >>> form_of(TaskRecipe(task="tag", network=roberta())).architecture
    'RobertaForTokenClassification'
    >>> form_of(TaskRecipe(task="tag", network=roberta(), head=HeadRecipe(crf=True)))
    Traceback (most recent call last):
    ...
    firth.errors.AbilityError: Hugging Face has no class with such a head: for export, tune with --set head.crf=false.
    """
    if recipe.task == "generate":
        raise AbilityError(
            "Hugging Face has no network that reads a source at once and writes after it: export the model that was "
            "fine-tuned, or use this one with firth predict."
        )
    kind = kind_of(recipe.network)
    if recipe.task not in FORMS[kind.name]:
        able = ", ".join(name for name, forms in FORMS.items() if recipe.task in forms)
        raise AbilityError(f"Hugging Face has no class for {recipe.task} with {kind.name}: fine-tune one of {able}.")
    form = FORMS[kind.name][recipe.task]
    if changes := _changes(recipe, kind, form):
        wanted = " ".join(f"--set {change}" for change in changes)
        raise AbilityError(f"Hugging Face has no class with such a head: for export, tune with {wanted}.")
    return form


def _changes(recipe: TaskRecipe, kind: Kind, form: Form) -> list[str]:
    """What would have to be set for the head to be one of theirs."""
    head = recipe.head
    wrong = {
        "head.layers=last": head.layers != "last",
        "head.encoder=none": head.encoder != "none",
        "head.inputs=0": head.inputs > 0,
        "head.crf=false": head.crf and recipe.task == "tag",
        "inside=1": recipe.inside > 1,
        "symmetric=false": recipe.symmetric and recipe.task == "pair",
    }
    if recipe.task in ("classify", "pair", "choice"):
        pooling, pooler = ("last", False) if kind.causal else ("first", True)
        wrong[f"head.pooling={pooling}"] = head.pooling != pooling
        wrong[f"head.pooler={str(pooler).lower()}"] = head.pooler != pooler
    return [change for change, is_so in wrong.items() if is_so]


def their_name(form: Form, name: str) -> str:
    """What they call a tensor of our head: `classifier.weight`, `pooler.bias` and so on."""
    layer, _, leaf = name.rpartition(".")
    return f"{form.pooler if layer == 'pooler' else form.classifier}.{leaf}"


def _last_norm(recipe: NetRecipe) -> str:
    """The bias that is added to the states last of all."""
    last = recipe.encoder.layers - 1
    return "encoders.0.norm.bias" if recipe.encoder.norm == "pre" else f"encoders.0.layers.{last}.norm2.bias"


def _bias_below(weight: Tensor, bias: Tensor) -> Tensor:
    """The shortest d with weight @ d = bias: their scores have none, so the states take it up: W (h + d) = W h + b."""
    double = weight.double()
    found: Tensor = torch.linalg.pinv(double) @ bias.double()
    if not torch.allclose(double @ found, bias.double(), rtol=0, atol=1e-6):
        raise AbilityError(
            "the scores of the labels have a bias, for which their class has no place: fine-tune a bert, roberta or "
            "albert, or a wider network."
        )
    return found.to(weight.dtype)


def _task_config(recipe: TaskRecipe, form: Form) -> Config:
    """What a config.json tells of a task."""
    kind = kind_of(recipe.network)
    dropout = "classifier_dropout_prob" if kind.name == "albert" else "classifier_dropout"
    told = recipe_to_json(recipe)
    del told["network"]
    config: Config = {"architectures": [form.architecture], dropout: recipe.head.dropout, OURS: told}
    if kind.causal:
        config["bos_token_id"] = BOS
    if recipe.task in ("classify", "pair"):
        config["problem_type"] = _PROBLEMS[recipe.form]
    if labels := recipe.labels or (("score",) if recipe.form == "number" else ()):
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    return config


class Head(NamedTuple):
    """The head of a folder that holds a fine-tuned model."""

    task: TaskName
    form: Form
    tensors: Tensors
    """Under our names: `classifier.weight` and so on."""
    guessed: bool
    """Whether it might be for another task as well."""

    def arrays(self) -> dict[str, Any]:
        """What an artifact keeps of it."""
        single = {name: tensor.to(torch.float32) for name, tensor in self.tensors.items()}
        return {f"heads.{self.task}.head.{name}": tensor.contiguous().numpy() for name, tensor in single.items()}


def split_head(config: Config, tensors: Mapping[str, Tensor], asked: str | None = None) -> tuple[Head | None, Tensors]:
    """The head of a fine-tuned model and the other weights; no head if the folder holds a language model.

    `asked` is the task if it is known.
    """
    found = _find_form(config, asked)
    if found is None:
        return None, dict(tensors)
    task, form = found
    guessed = asked is None and task == "classify" and not _stored(config)
    own: Tensors = {}
    for layer in ("classifier", *(["pooler"] if form.pooler else [])):
        for leaf in ("weight", *(["bias"] if form.biased else [])):
            name = f"{layer}.{leaf}"
            own[name] = _head_tensor(tensors, their_name(form, name))
    if not form.biased:
        own["classifier.bias"] = own["classifier.weight"].new_zeros(len(own["classifier.weight"]))
    names = {their_name(form, name) for name in own}
    return Head(task, form, own, guessed), {name: tensor for name, tensor in tensors.items() if name not in names}


def _find_form(config: Config, asked: str | None) -> tuple[TaskName, Form] | None:
    """The task of a folder by its class; of several the one that is asked for or was kept, else what labels tell."""
    named = config.get("architectures")
    forms = FORMS[find_kind(config).name]
    able = [task for task, form in forms.items() if named == [form.architecture]]
    if asked is not None and asked not in able:
        can = f"its class does {' or '.join(able)}" if able else "it has no head for a task, so fine-tune it instead"
        raise AbilityError(f"the model cannot be taken for {asked}: {can}; leave --task out.")
    if not able:
        return None
    known = asked or _stored(config).get("task")
    task = next((one for one in able if one == known), "pair" if "pair" in able and _judges_pairs(config) else able[0])
    return task, forms[task]


def _judges_pairs(config: Config) -> bool:
    """Whether the labels are such as only two texts have, or there is one number, such as how similar they are."""
    labels = config.get("id2label")
    names = list(labels.values()) if isinstance(labels, dict) else ["", ""]  # as many as transformers has
    plain = {str(name).lower().replace("-", "_").replace(" ", "_").removeprefix("not_") for name in names}
    learnt = str(config.get("finetuning_task")).lower().replace("-", "")
    return len(names) == 1 or not plain.isdisjoint(_OF_PAIRS) or learnt in _GLUE_PAIRS


def _stored(config: Config) -> dict[str, Any]:
    found = config.get(OURS)
    return found if isinstance(found, dict) else {}


def _head_tensor(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    again = "save the fine-tuned model again with save_pretrained."
    if name not in tensors:
        raise ArtifactError(f"the weights lack {name}: {again}")
    found = tensors[name]
    if not found.is_floating_point() or found.ndim != (2 if name.endswith("weight") else 1):
        raise ArtifactError(f"{name} is no layer of a head ({found.dtype}, {tuple(found.shape)}): {again}")
    if not bool(torch.isfinite(found).all()):
        raise ArtifactError(f"{name} holds NaN or infinity: use a model whose training went well.")
    return found


def read_task(config: Config, head: Head, network: NetRecipe) -> TaskRecipe:
    """The recipe of a fine-tuned model: that which was kept, or what config.json tells."""
    recipe = _kept_recipe(config, head, network) or _told_recipe(config, head, network)
    wanted = _outputs(recipe)
    sizes = {"classifier.weight": (wanted, network.width), "classifier.bias": (wanted,)}
    sizes |= {"pooler.weight": (network.width, network.width), "pooler.bias": (network.width,)}
    for name, tensor in head.tensors.items():
        if tuple(tensor.shape) != sizes[name]:
            raise ArtifactError(
                f"{their_name(head.form, name)} has the shape {tuple(tensor.shape)}, and config.json asks for "
                f"{sizes[name]}: give the files of one model."
            )
    return recipe


def _outputs(recipe: TaskRecipe) -> int:
    """How many numbers the last layer of a head tells."""
    return {"span": 2, "choice": 1}.get(recipe.task, 1 if recipe.form == "number" else len(recipe.labels))


def _kept_recipe(config: Config, head: Head, network: NetRecipe) -> TaskRecipe | None:
    """The recipe that was kept in a config.json, if it is one for such a head."""
    try:
        found = recipe_from_json({**_stored(config), "network": asdict(network)})
        if isinstance(found, TaskRecipe) and found.task == head.task and form_of(found).pooler == head.form.pooler:
            return found if _outputs(found) else None
    except (FirthError, KeyError, TypeError, ValueError):
        pass
    return None


def _told_recipe(config: Config, head: Head, network: NetRecipe) -> TaskRecipe:
    """The recipe that a config.json without ours tells."""
    outputs = len(head.tensors["classifier.weight"])
    labels = _labels(config, outputs) if head.task in ("classify", "pair", "tag") else ()
    form = next((form for form, name in _PROBLEMS.items() if config.get("problem_type") == name), "single")
    if head.task == "pair" and outputs == 1:
        form, labels = "number", ()
    elif head.task == "classify" and outputs == 1:
        raise AbilityError("the model tells one number, which only pairs have here: leave --task out.")
    elif head.task == "pair" and form == "multi":
        raise AbilityError("the model tells several labels at once, which pairs have not here: leave --task out.")
    elif form == "number" or head.task != "classify":
        form = "single"
    pooled = bool(head.form.pooler)
    return TaskRecipe(
        task=head.task,
        form=cast(Any, form),
        network=network,
        head=HeadRecipe(pooling="last" if network.visibility == "causal" else "first", pooler=pooled),
        labels=labels,
        learning=default_learning(),
    )


def _labels(config: Config, count: int) -> tuple[str, ...]:
    """The names of labels in the order of their numbers."""
    told = config.get("id2label", {str(number): f"LABEL_{number}" for number in range(count)})
    names: list[Any] = [told.get(str(number)) for number in range(count)] if isinstance(told, dict) else []
    if len(set(map(str, names))) < count or len(told) > count or not all(isinstance(name, str) for name in names):
        raise ArtifactError(f"config.json must give {count} labels different names from 0 on: correct its id2label.")
    return tuple(names)
