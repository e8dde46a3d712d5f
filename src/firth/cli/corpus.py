"""firth check: what is in this text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from firth.cli.console import EncodingOption, FieldOption, JsonFlag, LayoutOption, print_fields, show, verb


@verb
def check(
    corpus: Annotated[list[str], typer.Argument(help="Files, folders, globs, - or builtin:NAME.")],
    against: Annotated[str | None, typer.Option("--against", help="A test text that should not be in it.")] = None,
    field: FieldOption = "text",
    encoding: EncodingOption = None,
    layout: LayoutOption = "auto",
    segmenter: Annotated[str, typer.Option("--segmenter", help="Chinese words by rjieba, jieba or space.")] = "rjieba",
    dictionary: Annotated[Path | None, typer.Option("--dictionary", help="User words for the segmenter.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """What is in this text: structure, encoding, duplicates, leakage, and what to do about it.

    Example: firth check news.txt --against test.txt
    """
    from firth.progress import progress
    from firth.text.check import check_corpus
    from firth.text.corpus import read_corpus
    from firth.text.segment import make_segmenter

    options: dict[str, Any] = {"field": field, "encoding": encoding, "segmenter": make_segmenter(segmenter, dictionary)}
    checked = read_corpus(*corpus, layout=layout, **options)
    test = read_corpus(against, layout=checked.layout, **options) if against else None
    with progress("checking", checked.size()) as advance:
        report = check_corpus(checked, test, advance).to_json()
    report["layout"] = checked.layout
    entropy = checked.entropy()
    if entropy is not None:
        report["entropy"] = entropy
    show(as_json, report, lambda: _print(report))


def _print(report: dict[str, Any]) -> None:
    plain = ("documents", "sentences", "words", "distinct_words", "characters", "bytes", "layout")
    shares = ("duplicates", "near_duplicates", "duplicate_sentences")
    rows: dict[str, Any] = {name: report[name] for name in plain}
    rows |= {name: f"{report[name]:.2%}" for name in shares}
    for name in ("scripts", "languages"):
        rows[name] = ", ".join(f"{kind} {share:.1%}" for kind, share in report[name].items() if share >= 0.001)
    for name, lengths in report["lengths"].items():
        rows[name] = ", ".join(f"{key} {value:,.4g}" for key, value in lengths.items())
    rows["longest_line"] = f"{report['longest_line']['characters']:,} characters ({report['longest_line']['source']})"
    rows |= {name: report[name] for name in ("control_characters", "replacement_characters")}
    for name in ("overlap", "entropy"):
        if report.get(name):
            rows[name] = ", ".join(f"{key} {value:.4g}" for key, value in report[name].items())
    rows["encodings"] = _name_encodings(report["encodings"])
    print_fields(rows)
    print("\nproblems:" if report["problems"] else "\nno problems found")
    for problem in report["problems"]:
        print(f"  {problem['what']}: {problem['message']}")


def _name_encodings(encodings: dict[str, str]) -> str:
    """Each file's encoding, or how many files have each where there are many."""
    if len(encodings) <= 5:
        return ", ".join(f"{name}: {encoding}" for name, encoding in encodings.items())
    kinds = sorted(set(encodings.values()))
    return ", ".join(f"{sum(code == kind for code in encodings.values())} files {kind}" for kind in kinds)
