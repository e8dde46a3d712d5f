"""`firth compress`: a method applied to a model, measured beside the original, and saved if it is good enough."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from firth.abilities import Embeds, Scores, TaskPredictor, without_tasks
from firth.arguments import require_list, require_path
from firth.artifact.any_model import AnyModel
from firth.artifact.folder import Artifact, open_artifact
from firth.artifact.formats.network_alone import network_alone
from firth.artifact.models import load
from firth.errors import AbilityError, ArgumentError, OutputError
from firth.files import require_free
from firth.fit.budget import Budget
from firth.fit.compress.auto import search
from firth.fit.compress.card import CompressionError, options_json, refusal
from firth.fit.compress.method import CompressionJob
from firth.fit.compress.methods import AUTO, find_method, method_options
from firth.fit.compress.quality import EvaluationSet, Side, TaskSet, read_set, text_set
from firth.fit.compress.saving import measure, write
from firth.fit.examples import Examples, read_all
from firth.fit.run import Text, open_corpus
from firth.progress import note
from firth.recipes.values import Settings, setting_list
from firth.text.corpus import Corpus

_HELD_OUT = 0.05  # of a corpus, if nothing else measures quality
_HELD_OUT_LINES = 1000


def compress(
    model: str | Path,
    *,
    out: str | Path,
    method: str = "auto",
    corpus: Text | Sequence[Text] | None = None,
    train: Examples | None = None,
    dev: Examples | None = None,
    eval: Sequence[str | Path] = (),
    settings: Settings = (),
    budget: str | None = None,
    at_most_loss: float | None = None,
    max_mb: float | None = None,
    max_ms: float | None = None,
    allow_slower: bool = False,
    columns: Sequence[str] = (),
    seed: int = 0,
    threads: int | None = None,
    resume: bool = False,
) -> AnyModel:
    """The compressed model, saved in the folder `out` with a card of what it cost.

    `method` is distil, prune, quantise, static or auto, and `settings` are its options. `corpus` is text without
    labels, `train` and `dev` are labelled examples of a fine-tuned model. Quality is measured before and after on each
    file of `eval`: labelled examples, scored pairs of texts, or plain text; by default on `dev`, or on a part of the
    corpus that is held out. A result that is slower, or loses more than `at_most_loss` of the metric, is not written.
    """
    folder = require_path(out, "out", "the folder to write")
    source = require_path(model, "model", "the folder of a saved model")
    given = [require_path(one, "eval", "a file to measure quality on") for one in require_list(eval, "eval")]
    if resume and (folder / "manifest.json").exists():
        note(f"{folder} is finished already.")
        return cast(AnyModel, load(folder))
    require_free(folder)
    artifact = open_artifact(source)
    original = load(source)
    chosen = None if method == AUTO else find_method(method, original)
    if chosen is None or not chosen.keeps_ngrams:
        original = network_alone(original, f"--method {method}")
    if chosen is None and setting_list(settings):
        raise ArgumentError("auto sets the options of the methods itself: leave --set out.")
    options = None if chosen is None else method_options(chosen, setting_list(settings))
    if chosen is not None and chosen.only_embeds:
        original = without_tasks(original)
    side = Side(original, _pooling(artifact))
    texts = None if corpus is None else _open(corpus)
    job = CompressionJob(
        model=original,
        artifact=artifact,
        out=folder,
        corpus=texts,
        train=train,
        dev=dev,
        budget=Budget.parse(budget) if budget else None,
        seed=seed,
        threads=threads,
        resume=resume,
        columns=columns,
        pooling=side.pooling,
    )
    if job.work.exists() and not resume:
        raise OutputError(f"{job.work} holds unfinished work: continue with --resume, or remove it.")
    if chosen is not None and (reason := chosen.refusal(job)):
        raise AbilityError(reason)
    rest, sets = _evaluation(side, given, dev, texts, columns, chosen is not None and chosen.only_embeds)
    job = replace(job, corpus=rest)
    limits: dict[str, Any] = {"max_mb": max_mb, "max_ms": max_ms, "allow_slower": allow_slower}
    if chosen is None:
        with _work(job):
            search(job, sets, at_most_loss, max_mb, max_ms)
    else:
        with _work(job):
            started = time.monotonic()
            made = chosen.run(job, options)
            seconds = time.monotonic() - started
            card = measure(job, made, sets, chosen.only_embeds)
            if reason := refusal(card, at_most_loss, **limits):
                raise CompressionError(f"nothing is written: {reason}.")
            write(job, made, card, chosen.name, options_json(options), seconds)
    return cast(AnyModel, load(folder, verify=False))


@contextmanager
def _work(job: CompressionJob) -> Iterator[None]:
    """A block that may train in `job.work`, which is removed after success and kept after a refusal or an interrupt."""
    try:
        yield
    except CompressionError as error:
        if not job.work.exists():
            raise
        reason = error.message.removesuffix(".")
        raise CompressionError(
            f"{reason}; {job.work} keeps what was trained, for --resume with other limits."
        ) from None
    shutil.rmtree(job.work, ignore_errors=True)


def _open(corpus: Text | Sequence[Text]) -> Corpus:
    texts = list(corpus) if isinstance(corpus, list | tuple) else [corpus]
    return open_corpus(cast(Sequence[Text], texts), "text", None, "auto")


def _pooling(artifact: Artifact) -> str | None:
    """The pooling that an imported model of sentence vectors is made for."""
    found = artifact.manifest.metrics.get("sentences")
    return str(found["pooling"]) if isinstance(found, dict) and "pooling" in found else None


def _evaluation(
    side: Side,
    files: Sequence[Path],
    dev: Examples | None,
    corpus: Corpus | None,
    columns: Sequence[str],
    only_embeds: bool,
) -> tuple[Corpus | None, list[EvaluationSet]]:
    """The text to compress with, and what measures quality: files, dev examples, or a part of the text."""
    model = side.model
    if not isinstance(model, Scores | Embeds | TaskPredictor):
        raise AbilityError(f"a {type(model).__name__} neither scores, embeds nor predicts: it cannot be measured.")
    if files:
        return corpus, [read_set(one, side, only_embeds, columns) for one in files]
    if dev is not None and isinstance(model, TaskPredictor):
        examples = read_all(cast(Any, model.task), dev, skip_bad=False, columns=columns)
        return corpus, [TaskSet("dev", examples, model)]
    if corpus is None or isinstance(model, TaskPredictor):
        raise ArgumentError(
            "there is nothing to measure quality on: give a file with --eval, labelled examples, scored pairs or text."
        )
    rest, held_out, _ = corpus.parts(_HELD_OUT, 0.0)
    lines = [line for line, _ in zip(held_out.sentences(), range(_HELD_OUT_LINES), strict=False)]
    return rest, [text_set("held-out text", lines, side, only_embeds)]
