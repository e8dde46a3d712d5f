"""Models of pairs in use: scores of targets given their sources, and texts generated from sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, tee
from pathlib import Path
from typing import Any, NamedTuple

from firth.abilities import Score, Scores, ScoresPairs, Translates, Translation
from firth.apply.score import file_lines, summarise
from firth.errors import AbilityError, CorpusError
from firth.progress import note
from firth.text.parallel import ParallelCorpus, TextPair, is_parallel

_CHUNK = 1024  # sources translated before the next are read


class SourceLine(NamedTuple):
    """A source with what was generated from it."""

    number: int
    source: str
    made: Translation

    def row(self) -> dict[str, Any]:
        """The record of a line that `firth generate --source` prints and writes."""
        return {"line": self.number, **self.made._asdict()}


def read_sources(given: str, encoding: str | None = None) -> Iterator[str]:
    """The lines of a file (`-`: standard input), or the text itself if there is no such file."""
    if given == "-" or _is_file(given):
        if given != "-" and is_parallel(given):
            raise CorpusError(
                f"{given} holds pairs: name a file with one source on each line, or evaluate with firth evaluate MODEL "
                f"translation {given}."
            )
        return (line.strip() for _, line in file_lines(Path(given), encoding))
    return iter([given])


def _is_file(given: str) -> bool:
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # a text may be no possible name of a file
        return False


def translate_lines(model: Any, sources: Iterable[str], **options: Any) -> Iterator[SourceLine]:
    """Each source with the text generated from it; `options` are those of `translate`."""
    translator, left, number = require_translates(model), iter(sources), 0
    unfinished = 0
    while some := list(islice(left, _CHUNK)):
        for source, made in zip(some, translator.translate(some, **options), strict=True):
            unfinished += not made.finished
            yield SourceLine(number, source, made)
            number += 1
    if unfinished:
        note(f"{unfinished:,} of {number:,} texts reached the limit of their length without an end: see --length")


def score_pair_lines(model: Any, corpus: ParallelCorpus) -> Iterator[tuple[TextPair, Score]]:
    """Each pair with the score of its target given its source."""
    if not isinstance(model, ScoresPairs):
        raise AbilityError(f"a {type(model).__name__} scores no pairs: use a model such as transformer.")
    pairs, inputs = tee(corpus.pairs())
    yield from zip(pairs, model.score_pairs((one.source, one.target) for one in inputs), strict=True)


def wants_pairs(model: Any, texts: Any, pair: str | None) -> bool:
    """Whether a model is to score these files or texts as pairs: if it can do nothing else, or if they are pairs."""
    if not isinstance(model, ScoresPairs):
        return False
    if not isinstance(model, Scores) or pair is not None:
        return True
    if isinstance(texts, str | Path):
        return is_parallel(texts)
    first = next(iter(texts), "") if isinstance(texts, Sequence) else ""
    return not isinstance(first, str | Path) or (isinstance(first, Path) and is_parallel(first))


def summarise_pairs(score: Score, pairs: int) -> dict[str, Any]:
    """The metrics of targets given their sources."""
    return summarise(score, "causal") | {"context": "source", "pairs": pairs}


def require_translates(model: Any) -> Translates:
    """The model if it generates from a source, or else `AbilityError`."""
    if not isinstance(model, Translates):
        raise AbilityError(
            f"a {type(model).__name__} reads no source: use a model such as transformer, or give a --prompt."
        )
    return model
