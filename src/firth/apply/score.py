"""Scores of files line by line, their summary, explanations and next tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, tee
from pathlib import Path
from typing import Any, NamedTuple, cast

from firth.abilities import (
    CONTEXTS,
    Context,
    Explains,
    PredictsNext,
    Score,
    Scores,
    ScoresBackwards,
    TextPiece,
    total,
)
from firth.errors import AbilityError, ArgumentError, CorpusError, near_miss
from firth.text.corpus import LAYOUTS, read_corpus, save_stdin
from firth.text.files import CorpusFile, find_files
from firth.text.layout import Layout, sentences_of
from firth.text.readers import PIECE, read_lines
from firth.tokens.coverage import note_poor_coverage

_SAMPLE = 1000  # lines that are compared with the vocabulary


class TextLine(NamedTuple):
    """A line of a file, which may be blank; or a paragraph of wrapped text."""

    file: str
    number: int
    """From 0, blank lines included; of a paragraph, that of its first line."""
    text: str
    """Stripped."""
    starts_document: bool
    """Whether it is the first line of a file or follows a blank one."""


class TextFiles:
    """The lines of text files and of standard input (`-`), which can be read several times."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        context: Context = "line",
        *,
        encoding: str | None = None,
        layout: str = "lines",
    ) -> None:
        """`layout` tells how sentences relate to lines; auto detects it."""
        if context not in CONTEXTS:
            raise ArgumentError(f"there is no context {context!r:.80}: {near_miss(str(context), CONTEXTS)}")
        if layout != "auto" and layout not in LAYOUTS:
            raise ArgumentError(f"there is no layout {layout!r:.80}: {near_miss(str(layout), (*LAYOUTS, 'auto'))}")
        self.encoding, self.context = encoding, context
        self.files = [file for path in paths for file in _text_files(path)]
        self.layout: Layout = "lines" if layout == "auto" else cast(Layout, layout)
        if not any(line.text for line in self):
            names = ", ".join(file.name for file in self.files)
            raise CorpusError(f"there is no text in {names}: name a file with one text on each line.")
        if layout == "auto":
            self.layout = read_corpus(*(file.path for file in self.files), encoding=encoding).layout

    def __iter__(self) -> Iterator[TextLine]:
        lines = (line for file in self.files for line in self._lines(file))
        return _paragraphs(lines) if self.layout == "wrapped" else lines

    def _lines(self, file: CorpusFile) -> Iterator[TextLine]:
        starts_document = True
        for number, line in read_lines(file, encoding=self.encoding):
            text = line.strip()
            yield TextLine(file.name, number, text, starts_document)
            starts_document = not text

    def pieces(self, lines: Iterable[TextLine]) -> Iterator[TextPiece]:
        """The sentences of each line; a wrapped paragraph is a document in any case, as a blank line ends it."""
        by_line = self.context == "line" and self.layout != "wrapped"
        return (TextPiece(sentences_of(line.text, self.layout), by_line or line.starts_document) for line in lines)


def _text_files(path: str | Path) -> list[CorpusFile]:
    files = [save_stdin()] if str(path) == "-" else find_files([path])
    if any(file.format != "text" for file in files):
        raise CorpusError(f"{path} is not plain text: name a file with one text on each line.")
    return files


def _paragraphs(lines: Iterable[TextLine]) -> Iterator[TextLine]:
    """The lines between blank ones joined, in pieces of bounded size."""
    held: list[TextLine] = []
    size = 0
    for line in lines:
        if held and (line.starts_document or not line.text or size + len(line.text) > PIECE):
            yield held[0]._replace(text="\n".join(one.text for one in held))
            held, size = [], 0
        if line.text:
            held.append(line)
            size += len(line.text) + 1
    if held:
        yield held[0]._replace(text="\n".join(one.text for one in held))


def open_texts(
    model: Any,
    paths: Sequence[str | Path],
    context: Context = "line",
    *,
    encoding: str | None = None,
    layout: str | None = None,
) -> TextFiles:
    """The files that a model is to score; by default with the layout of its training text."""
    require_scores(model)
    return TextFiles(paths, context, encoding=encoding, layout=layout or model.layout)


def score_lines(model: Any, files: TextFiles, *, whole_words: bool = False) -> Iterator[tuple[TextLine, Score]]:
    """Every line with its score, by itself or in the context of its document; a blank line scores 0.

    A note is printed if the vocabulary does not fit the text. `whole_words` is for masked models.
    """
    scorer: Any = require_scores(model)
    if whole_words and scorer.score_kind != "pseudo":
        raise AbilityError("whole words are masked by masked models, such as bert: leave --whole-words out.")
    options = {"whole_words": True} if whole_words else {}
    note_poor_coverage(model.tokenizer, (line.text for line in islice(files, _SAMPLE)))
    lines, inputs = tee(files)
    yield from zip(lines, scorer.score_pieces(files.pieces(inputs), **options), strict=True)


def file_lines(path: Path, encoding: str | None) -> Iterator[tuple[int, str]]:
    """(line number from 0, line) of a text file, or of standard input (`-`)."""
    files = [save_stdin()] if str(path) == "-" else find_files([path])
    if len(files) != 1 or files[0].format != "text":
        raise CorpusError(f"{path} is not a single text file: name a file with one text on each line.")
    return read_lines(files[0], encoding=encoding)


def line_row(line: TextLine, score: Score, several: bool = False) -> dict[str, Any]:
    """The record of a line that `firth score -o` writes; with its file if there are several."""
    return ({"file": line.file} if several else {}) | {
        "line": line.number,
        "logprob": score.logprob,
        "tokens": score.tokens,
        "bytes": score.bytes,
        "oov": score.oov,
        "oov_logprob": score.oov_logprob,
        "spelling": score.spelling,
    }


def summarise(score: Score, kind: str, context: Context = "document") -> dict[str, Any]:
    """The metrics that compare models on the same text, scored with this context."""
    return {
        "bits_per_byte": score.bits_per_byte,
        "perplexity": score.perplexity,
        "word_perplexity": score.word_perplexity,
        "tokens": score.tokens,
        "words": score.words,
        "bytes": score.bytes,
        "oov": score.oov,
        "kind": kind,
        "context": context,
        "logprob": score.logprob,
        "sentences": score.sentences,
        "known_perplexity": score.known_perplexity,
    }


def directions(model: Any, files: TextFiles, forward: Score) -> dict[str, float]:
    """Bits per byte forwards and backwards of a bidirectional model; empty for others.

    `forward` is the total of `score_lines`.
    """
    if not isinstance(model, ScoresBackwards):
        return {}
    backward = total(model.score_pieces_backwards(files.pieces(files)))
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
