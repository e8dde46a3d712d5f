"""firth check: statistics and problems of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from firth.cli import options
from firth.cli.checks import check_reading, require_choice
from firth.cli.console import checking_arguments, print_fields, show, verb
from firth.errors import ArgumentError


@verb
def check(
    corpus: Annotated[list[str] | None, Argument(help="Files, folders, globs, - or builtin:NAME.")] = None,
    against: Annotated[str | None, Option("--against", help="Test text that must not be in the corpus.")] = None,
    field: options.Field = "text",
    encoding: options.Encoding = None,
    layout: options.Layout = "auto",
    segmenter: Annotated[str, Option("--segmenter", help="Of Chinese words: rjieba, jieba or space.")] = "rjieba",
    dictionary: Annotated[Path | None, Option("--dictionary", help="User dictionary of the segmenter.")] = None,
    pair: options.Pair = None,
    as_json: options.Json = False,
) -> None:
    """Check a text: structure, encoding, duplicates, leakage of test text, and what to do about problems.

    Example: firth check news.txt --against test.txt
    """
    with checking_arguments():
        if not corpus and pair is None:
            raise ArgumentError("nothing to check was given: name a corpus.")
        check_reading(layout, encoding, [*(corpus or []), against])
        require_choice("segmenter", segmenter, ("rjieba", "jieba", "space"))

    from firth.fit.check_labelled import check_labelled
    from firth.fit.labelled_pairs import pair_columns
    from firth.progress import progress
    from firth.text.check import check_corpus
    from firth.text.corpus import read_corpus
    from firth.text.parallel import is_parallel
    from firth.text.segment import make_segmenter

    reading: dict[str, Any] = {"field": field, "encoding": encoding, "segmenter": make_segmenter(segmenter, dictionary)}
    if pair is None and all(pair_columns(one) is not None for one in corpus or ()):
        labelled = check_labelled(corpus or [], against, encoding, reading["segmenter"])
        show(as_json, labelled, lambda: _print_pairs(labelled))
        return
    if pair is not None or all(map(is_parallel, corpus or ())):
        _check_pairs(corpus or [], pair, against, encoding, reading["segmenter"], as_json)
        return
    checked = read_corpus(*(corpus or []), layout=layout, **reading)
    test = read_corpus(against, layout=checked.layout, **reading) if against else None
    with progress("checking", checked.size()) as advance:
        report = check_corpus(checked, test, advance).to_json()
    report["layout"] = checked.layout
    if (entropy := checked.entropy()) is not None:
        report["entropy"] = entropy
    show(as_json, report, lambda: _print(report))


def _check_pairs(
    corpus: list[str], pair: str | None, against: str | None, encoding: str | None, segmenter: Any, as_json: bool
) -> None:
    from firth.progress import progress
    from firth.text.check_pairs import check_pairs
    from firth.text.parallel import parallel_inputs, read_parallel

    inputs = parallel_inputs(*corpus, pair=pair, encoding=encoding)
    names = pair if corpus else None
    test = read_parallel(against, pair=names, encoding=encoding).pairs() if against else None
    with progress("checking", sum(one.size() for one in inputs)) as advance:
        report = check_pairs(inputs, segmenter, test, advance).to_json()
    show(as_json, report, lambda: _print_pairs(report))


def _print_pairs(report: dict[str, Any]) -> None:
    rows: dict[str, Any] = {"pairs": report["pairs"], "columns": ", ".join(report["columns"])}
    if "labels" in report:
        rows["labels"] = ", ".join(f"{label} {count:,}" for label, count in report["labels"].items())
    rows |= {name: f"{report[name]:.2%}" for name in ("duplicates", "repeated_sources", "identical")}
    for name in ("words", "characters", "empty"):
        rows[name] = ", ".join(f"{column} {value:,}" for column, value in report[name].items())
    for column, found in report["languages"].items():
        rows[f"languages of {column}"] = ", ".join(
            f"{one} {share:.1%}" for one, share in found.items() if share >= 0.001
        )
        rows[f"characters of {column}"] = ", ".join(f"{k} {v:,.4g}" for k, v in report["lengths"][column].items())
    rows["ratios"] = ", ".join(f"{key} {value:.3g}" for key, value in report["ratios"].items())
    if "overlap" in report:
        rows["overlap"] = ", ".join(f"{key} {value:.4g}" for key, value in report["overlap"].items())
    rows["encodings"] = _describe_encodings(report["encodings"])
    print_fields(rows)
    _print_problems(report)


def _print_problems(report: dict[str, Any]) -> None:
    print("\nproblems:" if report["problems"] else "\nno problems found")
    for problem in report["problems"]:
        print(f"  {problem['what']}: {problem['message']}")


def _print(report: dict[str, Any]) -> None:
    plain = ("documents", "sentences", "words", "distinct_words", "characters", "bytes", "layout")
    fractions = ("duplicates", "near_duplicates", "duplicate_sentences")
    rows: dict[str, Any] = {name: report[name] for name in plain}
    rows |= {name: f"{report[name]:.2%}" for name in fractions}
    if report["dialogues"] >= 0.0001:
        rows["dialogues"] = f"{report['dialogues']:.2%}"
    for name in ("scripts", "languages"):
        rows[name] = ", ".join(f"{kind} {fraction:.1%}" for kind, fraction in report[name].items() if fraction >= 0.001)
    for name, lengths in report["lengths"].items():
        rows[name] = ", ".join(f"{key} {value:,.4g}" for key, value in lengths.items())
    rows["longest_line"] = f"{report['longest_line']['characters']:,} characters ({report['longest_line']['source']})"
    rows |= {name: report[name] for name in ("control_characters", "replacement_characters")}
    for name in ("overlap", "entropy"):
        if report.get(name):
            rows[name] = ", ".join(f"{key} {value:.4g}" for key, value in report[name].items())
    rows["encodings"] = _describe_encodings(report["encodings"])
    print_fields(rows)
    _print_problems(report)


def _describe_encodings(encodings: dict[str, str]) -> str:
    """The encoding of each file, or for many files the number with each encoding."""
    if len(encodings) <= 5:
        return ", ".join(f"{name}: {encoding}" for name, encoding in encodings.items())
    kinds = sorted(set(encodings.values()))
    return ", ".join(f"{sum(code == kind for code in encodings.values())} files {kind}" for kind in kinds)
