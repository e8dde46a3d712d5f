"""Method: a way to make a model smaller, what it reads and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from firth.artifact.folder import Artifact
from firth.fit.budget import Budget
from firth.fit.examples import Examples
from firth.text.corpus import Corpus

RUN = "run"
"""The name of the folder in `CompressionJob.work` that training keeps its checkpoints in."""


@dataclass(frozen=True, kw_only=True)
class CompressionJob:
    """A model to compress, and what the user gave for it."""

    model: Any
    """The loaded model."""
    artifact: Artifact
    """The folder that it was loaded from."""
    out: Path
    """The folder of the result. Training keeps its checkpoints in `work`, beside it."""
    corpus: Corpus | None = None
    """Text without labels; what is held out of it for the card is not in it."""
    train: Examples | None = None
    dev: Examples | None = None
    """Labelled examples, for models that were fine-tuned."""
    budget: Budget | None = None
    """Of training."""
    seed: int = 0
    threads: int | None = None
    resume: bool = False
    columns: Sequence[str] = ()
    """ROLE=NAME of labelled files."""
    pooling: str | None = None
    """How the model makes vectors of texts, if it is known to be made for one way."""

    @property
    def work(self) -> Path:
        """The folder of unfinished work, which is removed after the result is saved or refused."""
        return self.out.with_name(f"{self.out.name}.compress")

    @property
    def digest(self) -> str:
        """The SHA-256 of the weights of the model."""
        return self.artifact.manifest.files["model.safetensors"].sha256


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """A smaller model, and what is to be known of how it was made."""

    model: Any
    """Its recipe has all fields resolved."""
    name: str | None = None
    """Of its kind of model; None: that of the original."""
    notes: Sequence[str] = ()
    """Sentences for the card."""
    corpus: Mapping[str, Any] | None = None
    """The manifest's description of the text; None: that of the original model."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Tokens and floating-point operations of training."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further files of the artifact."""


class Method(ABC):
    """A way to make a model smaller. Its options are a frozen dataclass, whose fields --set changes."""

    name: ClassVar[str]
    options: ClassVar[type]
    only_embeds: ClassVar[bool] = False
    """Whether the result embeds texts, and has lost what else the model could do."""
    keeps_ngrams: ClassVar[bool] = False
    """Whether the result has the n-gram model that the network has beside it."""

    @abstractmethod
    def refusal(self, job: CompressionJob) -> str:
        """Why the method does not fit the model or lacks something, with the remedy; empty if it can run."""

    @abstractmethod
    def run(self, job: CompressionJob, options: Any) -> Compressed:
        """The smaller model."""
