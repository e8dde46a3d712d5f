"""Scores of a file line by line, their summary, explanations and next tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from firth.abilities import CarriesContext, Explains, PredictsNext, Score, Scores, ScoresBackwards, total
from firth.errors import AbilityError, CorpusError
from firth.text.corpus import save_stdin
from firth.text.files import find_files
from firth.text.readers import read_lines

_BATCH = 20_000  # lines scored at a time


def score_file(
    model: Any, path: Path, encoding: str | None = None, *, whole_words: bool = False
) -> Iterator[tuple[int, str, Score]]:
    """(line number from 0, text, score) of every line that is not blank of a text file or standard input (`-`).

    A model that carries context scores the file as one document. `whole_words` is for masked models.
    """
    scorer: Any = require_scores(model)
    options = {"whole_words": True} if whole_words else {}
    if whole_words and scorer.score_kind != "pseudo":
        raise AbilityError("whole words are masked by masked models, such as bert: leave --whole-words out.")
    stripped = ((number, line.strip()) for number, line in file_lines(path, encoding))
    lines = ((number, line) for number, line in stripped if line)
    carries_context = isinstance(scorer, CarriesContext) and scorer.carries_context
    empty = True
    while batch := list(islice(lines, None if carries_context else _BATCH)):
        empty = False
        texts = [line for _, line in batch]
        scores = scorer.score(texts, as_document=True) if carries_context else scorer.score(texts, **options)
        yield from ((number, text, score) for (number, text), score in zip(batch, scores, strict=True))
    if empty:
        raise CorpusError(f"there is no text in {path}: name a file with one text on each line.")


def file_lines(path: Path, encoding: str | None) -> Iterator[tuple[int, str]]:
    """(line number from 0, line) of a text file, or of standard input (`-`)."""
    files = [save_stdin()] if str(path) == "-" else find_files([path])
    if len(files) != 1 or files[0].format != "text":
        raise CorpusError(f"{path} is not a single text file: name a file with one text on each line.")
    return read_lines(files[0], encoding=encoding)


def line_row(number: int, score: Score) -> dict[str, Any]:
    """The record of a line that `firth score -o` writes."""
    return {
        "line": number,
        "logprob": score.logprob,
        "tokens": score.tokens,
        "bytes": score.bytes,
        "oov": score.oov,
        "oov_logprob": score.oov_logprob,
        "spelling": score.spelling,
    }


def summarise(score: Score, kind: str) -> dict[str, Any]:
    """The metrics that compare models on the same text."""
    return {
        "bits_per_byte": score.bits_per_byte,
        "perplexity": score.perplexity,
        "word_perplexity": score.word_perplexity,
        "tokens": score.tokens,
        "words": score.words,
        "bytes": score.bytes,
        "oov": score.oov,
        "kind": kind,
        "logprob": score.logprob,
        "sentences": score.sentences,
        "known_perplexity": score.known_perplexity,
    }


def directions(model: Any, texts: Sequence[str], forward: Score) -> dict[str, float]:
    """Bits per byte forwards and backwards of a bidirectional model; empty for others.

    `forward` is the total score of the texts by `score_file`.
    """
    if not isinstance(model, ScoresBackwards):
        return {}
    backward = total(model.score_backwards(texts, as_document=model.carries_context))
    return {"forward": forward.bits_per_byte, "backward": backward.bits_per_byte}


def explain_text(model: Any, text: str) -> list[list[dict[str, Any]]]:
    """The computation of the probability of each token of a text."""
    if not isinstance(model, Explains):
        raise AbilityError(f"a {type(model).__name__} cannot explain its scores: use an n-gram model.")
    return model.explain(text)


def next_tokens(model: Any, history: str, top: int) -> list[tuple[str, float]]:
    """The most probable next tokens after a text, with their probabilities."""
    if not isinstance(model, PredictsNext):
        raise AbilityError(f"a {type(model).__name__} cannot predict the next token: use a language model.")
    return model.next(history, top)


def require_scores(model: Any) -> Scores:
    """The model if it can score, or else `AbilityError`."""
    if not isinstance(model, Scores):
        raise AbilityError(
            f"a {type(model).__name__} gives no probabilities: score with a language model, such as gpt or mkn5."
        )
    return model
