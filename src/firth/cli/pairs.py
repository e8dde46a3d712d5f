"""What firth score and firth generate do with models of pairs: targets given their sources."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from firth.cli.console import print_fields, show, to_json
from firth.errors import ArgumentError


def refuse_options(given: dict[str, Any], why: str) -> None:
    """Raise `ArgumentError` if any of some options was given."""
    for option, value in given.items():
        if value:
            raise ArgumentError(f"{why}: leave {option} out.")


def score_pairs(
    model: Any, files: Sequence[Path], pair: str | None, encoding: str | None, out: Path | None, as_json: bool
) -> None:
    """Print the scores of targets given their sources."""
    from firth.abilities import Score
    from firth.apply.pairs import score_pair_lines, summarise_pairs
    from firth.apply.score import TextLine, line_row
    from firth.files import new_file
    from firth.text.parallel import read_parallel

    corpus, total, number = read_parallel(*files, pair=pair, encoding=encoding), Score(), -1
    with ExitStack() as stack:
        rows = stack.enter_context(new_file(out)) if out else None
        for number, (one, score) in enumerate(score_pair_lines(model, corpus)):
            total += score
            if rows:
                line = TextLine(one.where, number, one.target, True)
                rows.write(to_json(line_row(line, score)).encode() + b"\n")
    summary = summarise_pairs(total, number + 1)
    show(as_json, summary, lambda: print_fields(summary))


def generate_from(
    model: Any, source: str, beams: int | None, length: int | None, out: Path | None, as_json: bool
) -> None:
    """Print or write the texts generated from sources."""
    from firth.apply.pairs import read_sources, translate_lines
    from firth.files import new_file

    made, counts = [], {"sources": 0, "unfinished": 0}
    with ExitStack() as stack:
        rows = stack.enter_context(new_file(out)) if out else None
        for line in translate_lines(model, read_sources(source), beams=beams or 4, length=length):
            counts["sources"] += 1
            counts["unfinished"] += not line.made.finished
            if rows is None:
                made.append(line.row())
            else:
                is_json = str(out).endswith(".jsonl")
                text = to_json(line.row()) if is_json else " ".join(line.made.text.split())
                rows.write(text.encode() + b"\n")
    details: dict[str, Any] = {"out": str(out)} if out else {"texts": [one["text"] for one in made], "lines": made}

    def text_output() -> None:
        for one in made:
            print(" ".join(one["text"].split()))
        if out:
            print_fields(counts | details)

    show(as_json, counts | details, text_output)
