"""ServedModel: a model that is loaded from its folder and verified by digest, and what it can do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firth.abilities import (
    Embeds,
    Fills,
    Generates,
    HasLayers,
    HasSenses,
    HasTasks,
    HasVectors,
    Predicts,
    PredictsNext,
    Scores,
    ScoresPairs,
    TaskPredictor,
    Translates,
    without_tasks,
)
from firth.artifact.folder import open_artifact
from firth.artifact.manifest import Manifest
from firth.artifact.models import load
from firth.service.refusals import Refusal
from firth.summaries import recipe_facts
from firth.tokens.tokenizer import MASK, Tokenizer


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model and what a server needs to know of it."""

    name: str
    digest: str
    manifest: Manifest
    model: Any
    network: Any
    """The model without the head of a task, which still can do what it could before."""
    abilities: tuple[str, ...]
    """The names of the operations."""
    max_tokens: int | None
    """Tokens that a network reads at once, special ones included."""
    batched: set[str] = field(default_factory=set)
    """Operations whose answers have the same bits alone and in a batch, found by the self-test."""

    def require(self, ability: str) -> None:
        """Raise a refusal unless the model has the ability."""
        if ability not in self.abilities:
            others = ", ".join(self.abilities)
            raise Refusal(422, f"the model {self.name!r} cannot {_VERBS[ability]}: it can {others}.", param="model")

    @property
    def pooling(self) -> dict[str, Any]:
        """The pooling and normalisation that an imported model of sentences was trained with."""
        found = self.manifest.metrics.get("sentences")
        return {"pooling": found.get("pooling"), "unit": found.get("unit")} if isinstance(found, dict) else {}

    def info(self) -> dict[str, Any]:
        """What /info says of the model."""
        model, network = self.model, self.network
        encoder = getattr(getattr(network, "recipe", None), "encoder", None)
        tasks = {name: one.task for name, one in model.tasks.items()} if isinstance(model, HasTasks) else {}
        if not tasks and "predict" in self.abilities:
            tasks = {"": str(getattr(model, "task", "classify"))}
        return {
            "name": self.name,
            "digest": self.digest,
            "kind": self.manifest.kind,
            "recipe": self.manifest.name,
            "type": type(model).__name__,
            "vocabulary": len(model.tokenizer),
            "abilities": list(self.abilities),
            "context": isinstance(network, HasLayers | HasSenses),
            "max_tokens": self.max_tokens,
            "bytes": sum(entry.size for entry in self.manifest.files.values()),
            "tasks": tasks,
            "labels": [str(label) for label in getattr(model, "labels", ())] if "predict" in self.abilities else [],
            "languages": list(getattr(network, "languages", ())),
            "score_kind": getattr(network, "score_kind", None) if "score" in self.abilities else None,
            "layers": encoder.layers + 1 if isinstance(network, HasLayers) and encoder is not None else None,
            "mask": model.tokenizer.vocabulary[MASK] if "fill" in self.abilities else None,
            "batched": sorted(self.batched),
            "facts": {name: _plain(value) for name, value in recipe_facts(getattr(model, "recipe", None)).items()},
        }


_VERBS = {
    "score": "score texts",
    "next": "predict the next token",
    "fill": "fill masks",
    "similar": "compare words",
    "embed": "embed texts",
    "predict": "predict labels",
    "generate": "generate text",
    "tokenize": "tokenize",
}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else str(value)


def abilities_of(model: Any, network: Any) -> tuple[str, ...]:
    """The names of the operations that a model offers."""
    if isinstance(model, Tokenizer):
        return ("tokenize",)
    offered = {
        "score": isinstance(network, Scores | ScoresPairs),
        "next": isinstance(network, PredictsNext),
        "fill": isinstance(network, Fills),
        "generate": isinstance(network, Generates | Translates),
        "similar": isinstance(network, HasVectors),
        "embed": isinstance(network, Embeds),
        "predict": isinstance(model, TaskPredictor | Predicts | HasTasks),
        "tokenize": True,
    }
    return tuple(name for name, has_it in offered.items() if has_it)


def load_served(folder: Path, name: str) -> ServedModel:
    """The model of a folder, whose digests are verified.

    The folder may be replaced by a new model at any moment: the digest is that of the model which was loaded.
    """
    manifest = open_artifact(folder, verify=False).manifest
    model = load(folder, verify=True)
    if open_artifact(folder, verify=False).manifest != manifest:
        return load_served(folder, name)
    digest = str(json.loads(manifest.to_bytes())["digest"])
    network = without_tasks(model)
    max_tokens = None
    if isinstance(network, HasLayers):
        from firth.nets.scoring import max_length

        max_tokens = max_length(network.recipe)  # type: ignore[attr-defined]
    return ServedModel(name, digest, manifest, model, network, abilities_of(model, network), max_tokens)
