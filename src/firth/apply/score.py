"""Scoring a file line by line, and the summary that compares models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from firth.abilities import Remembers, Score, Scores, total
from firth.errors import AbilityError, CorpusError
from firth.text.corpus import stdin_source
from firth.text.readers import read_lines
from firth.text.sources import find_sources

_BATCH = 20_000  # lines scored at once


def score_file(
    model: Any, path: Path, encoding: str | None = None, *, whole_words: bool = False
) -> Iterator[tuple[int, str, Score]]:
    """(line number from 0, text, score) of every line of a text file, or of standard input (`-`), that is not blank.

    A model that remembers what it read takes the whole file for one document. `whole_words` is for masked models.
    """
    scorer: Any = require_scores(model)
    options = {"whole_words": True} if whole_words else {}
    if whole_words and scorer.score_kind != "pseudo":
        raise AbilityError("whole words are hidden by masked models, such as bert: leave --whole-words out.")
    sources = [stdin_source()] if str(path) == "-" else find_sources([path])
    if len(sources) != 1 or sources[0].format != "text":
        raise CorpusError(f"{path} is not a single text file: name a file with one text on each line.")
    lines = ((number, line.strip()) for number, line in read_lines(sources[0], encoding=encoding))
    kept = ((number, line) for number, line in lines if line)
    remembers = isinstance(scorer, Remembers) and scorer.remembers
    empty = True
    while batch := list(islice(kept, None if remembers else _BATCH)):
        empty = False
        texts = [line for _, line in batch]
        scores = scorer.score(texts, together=True) if remembers else scorer.score(texts, **options)
        yield from ((number, text, score) for (number, text), score in zip(batch, scores, strict=True))
    if empty:
        raise CorpusError(f"there is no text in {path}: name a file with one text on each line.")


def line_row(number: int, score: Score) -> dict[str, Any]:
    """What `firth score -o` writes for a line."""
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
    """The numbers that compare models on the same text."""
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
    """Bits per byte forwards and backwards, of a model that reads both ways; nothing of any other.

    `forward` is the score of the texts as `score_file` has given it.
    """
    if not hasattr(model, "score_backwards"):
        return {}
    backward = total(model.score_backwards(texts, together=model.remembers))
    return {"forward": forward.bits_per_byte, "backward": backward.bits_per_byte}


def explain_text(model: Any, text: str) -> list[list[dict[str, Any]]]:
    """How the probability of each token of a text came about."""
    if not hasattr(model, "explain"):
        raise AbilityError(f"a {type(model).__name__} cannot explain its scores: use an n-gram model.")
    explained: list[list[dict[str, Any]]] = model.explain(text)
    return explained


def next_tokens(model: Any, history: str, top: int) -> list[tuple[str, float]]:
    """The likeliest next tokens after a text, with their probabilities."""
    if not hasattr(model, "next"):
        raise AbilityError(f"a {type(model).__name__} cannot say which token comes next: use a language model.")
    found: list[tuple[str, float]] = model.next(history, top)
    return found


def require_scores(model: Any) -> Scores:
    """The model, if it can score; `AbilityError` otherwise."""
    if not isinstance(model, Scores):
        raise AbilityError(
            f"a {type(model).__name__} gives no probabilities: score with a language model, such as gpt or mkn5."
        )
    return model
