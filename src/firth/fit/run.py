"""The input and the result of every trainer, and how a result is saved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from firth.artifact.models import save
from firth.errors import ArgumentError, CorpusError
from firth.fit.budget import Budget as Budget
from firth.fit.checkpoints import CheckpointFolder, hold
from firth.fit.knowledge import Knowledge
from firth.progress import note
from firth.text.corpus import Corpus, read_corpus
from firth.text.multilingual import MultilingualCorpus, read_multilingual
from firth.text.parallel import read_parallel
from firth.text.triples import as_token, read_triples
from firth.tokens.build import open_store, open_tokens
from firth.tokens.columns import Column
from firth.tokens.gazetteer import Gazetteer
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer

Text = str | Path | Corpus | Mapping[str, Any] | Iterable[str | Sequence[str]]


@dataclass(frozen=True)
class TrainingRun:
    """The options of a training run beside the recipe."""

    corpus: Corpus
    valid: Corpus | None
    """Held-out text, to validate on and to fit hyperparameters to."""
    tokenizer: Tokenizer | None
    budget: Budget | None
    seed: int
    threads: int | None
    out: Path | None = None
    """The folder of the model, where checkpoints are written."""
    resume: bool = False
    """Continue from the checkpoint there."""
    named: bool = False
    """Whether the recipe was given by name: then unset fields may be chosen."""
    size: str | None = None
    settings: Sequence[str] = ()
    """Fields set by the user, which are not to be chosen."""
    start: str | None = None
    """The digest of the model that training continues from."""
    licence: str | None = None
    """That of the text, if the user has named it."""
    gazetteer: Gazetteer | None = None
    """Entities that occur in the text, if the user has named some."""
    knowledge: Knowledge | None = None
    """The entities of a graph, which the network reads; their names are the gazetteer."""
    auxiliary: Callable[[Any, Sequence[Any]], Any] | None = None
    """Makes a further `ObjectiveHead` of a network and its heads, which serves training alone."""
    started: float = field(default_factory=time.monotonic)

    def open_tokens(self, recipe: TokenizerRecipe, columns: Sequence[Column] = ()) -> tuple[Tokenizer, TokenStore]:
        """The given tokenizer, or one trained on the corpus, and the corpus in its tokens."""
        if self.tokenizer is None:
            sample = self.corpus.vocabulary_sample()
            tokenizer, store = open_tokens(recipe, sample, self.threads, columns)
            if sample is self.corpus:
                return tokenizer, store
            return tokenizer, open_store(self.corpus, tokenizer, self.threads, columns)
        return self.tokenizer, open_store(self.corpus, self.tokenizer, self.threads, columns)

    def open_valid(self, tokenizer: Tokenizer, columns: Sequence[Column] = ()) -> TokenStore | None:
        """The held-out text in tokens."""
        return None if self.valid is None else open_store(self.valid, tokenizer, self.threads, columns)

    def checkpointer(self, recipe: Mapping[str, Any], store: TokenStore, **others: Any) -> CheckpointFolder | None:
        """The checkpoints of this run; they can be resumed with the same recipe, text, seed, budget and `others`."""
        if self.out is None:
            return None
        budget = self.budget.text if self.budget else None
        identity = {"recipe": recipe, "store": store.digest, "seed": self.seed, "budget": budget, **others}
        return CheckpointFolder(self.out, json.loads(json.dumps(identity)), self.resume)

    def spent(self, tokens: float) -> dict[str, float]:
        """The resources used so far."""
        return {"seconds": time.monotonic() - self.started, "tokens": tokens}


@dataclass(frozen=True)
class TrainingResult:
    """A trained model with its metrics."""

    model: Any
    """Its recipe has all fields resolved."""
    store: TokenStore
    spent: Mapping[str, float]
    metrics: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further files of the artifact."""

    def save(self, folder: Path, run: TrainingRun, name: str, seed: int, metrics: Mapping[str, Any]) -> None:
        """Write the artifact."""
        hold(folder)  # another process may have begun to train into it since
        save(
            folder,
            self.model,
            name=name,
            recipe=self.model.recipe,
            budget={"asked": run.budget.text if run.budget else None, "spent": dict(self.spent)},
            corpus=with_licence(run.corpus.describe() | store_counts(self.store), run.licence),
            seed=seed,
            metrics={**self.metrics, **metrics},
            files=self.files,
        )


def open_pairs(texts: Sequence[Text], pair: str | None, encoding: str | None) -> Corpus:
    """The pairs of parallel files, or of lists of two texts each."""
    if len(texts) == 1 and isinstance(texts[0], Corpus):
        return texts[0]
    if all(isinstance(one, str | Path) for one in texts):
        return read_parallel(*cast(Sequence[str], texts), pair=pair, encoding=encoding)
    if pair is not None:
        raise ArgumentError("--pair names columns or files: leave it out for a list of pairs.")
    return read_corpus(*cast(Sequence[str], texts), layout="lines")


def open_triples(texts: Sequence[Text], encoding: str | None) -> Corpus:
    """The triples of files, or of lists of three names each."""
    if len(texts) == 1 and isinstance(texts[0], Corpus):
        return texts[0]
    if all(isinstance(one, str | Path) for one in texts):
        return read_triples(*cast(Sequence[str], texts), encoding=encoding)
    found = [[as_token(name) for name in triple] for text in texts for triple in cast(Iterable[Sequence[str]], text)]
    return read_corpus(found, layout="lines")


def open_corpus(texts: Sequence[Text], field: str, encoding: str | None, layout: str) -> Corpus:
    """The corpus of the texts given to a verb; notes encodings other than UTF-8."""
    if len(texts) == 1 and isinstance(texts[0], Corpus):
        return texts[0]
    corpus = read_corpus(*cast(Sequence[str], texts), field=field, encoding=encoding, layout=layout)
    if next(corpus.raw_documents()).text.startswith("\\data\\"):
        raise CorpusError(
            f"{texts[0]} is an ARPA model, not a text: bring it in with firth import arpa {texts[0]} -o DIR."
        )
    note_encodings(corpus)
    return corpus


def open_languages(texts: Sequence[Text], alpha: float, language: str, **reading: Any) -> MultilingualCorpus:
    """The corpus of texts in several languages given to a verb; see `read_multilingual`."""
    corpus = read_multilingual(*texts, alpha=alpha, language=language, **reading)
    note_encodings(corpus)
    return corpus


def note_encodings(corpus: Corpus) -> None:
    """Note encodings other than UTF-8."""
    for name, found in corpus.encodings().items():
        if found != "utf-8":
            note(f"{name}: reading as {found}")


def with_licence(corpus: Mapping[str, Any], licence: str | None) -> dict[str, Any]:
    """The manifest's description of a text with its licence, if that is known."""
    others = {name: value for name, value in corpus.items() if name != "licence"}
    return others if licence is None else others | {"licence": licence}


def join_licences(old: str | None, new: str | None) -> str | None:
    """The licences of the text of a model and of the text that it is adapted to; None if the latter is not known.

    >>> join_licences("MIT", "CC-BY-4.0"), join_licences("MIT", "MIT"), join_licences(None, "MIT")
    ('MIT; CC-BY-4.0', 'MIT', 'not recorded; MIT')
    """
    if new is None:
        return None
    known = old or "not recorded"
    return known if new in known.split("; ") else f"{known}; {new}"


def store_counts(store: TokenStore) -> dict[str, Any]:
    """The digests and counts of a text for the manifest."""
    names = ("documents", "sentences", "words", "tokens", "bytes", "unknown")
    return {"digest": store.info.corpus, "store": store.info.digest} | {n: getattr(store.info, n) for n in names}
