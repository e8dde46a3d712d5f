"""Statistics and problems of labelled pairs: the analysis of `firth check` for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from firth.fit.labelled_pairs import UNDECIDED, count_labels, open_labelled_pairs, pair_columns
from firth.objectives.sentences import NLI_LABELS
from firth.progress import progress
from firth.text.check import Problem
from firth.text.check_pairs import check_pairs
from firth.text.corpus import Corpus
from firth.text.parallel import parallel_inputs, read_parallel
from firth.text.segment import Segmenter

_MESSAGES = {
    "few-pairs": "There are only {} pairs; published encoders were trained on 550,000: add some.",
    "empty-sides": "{} pairs have a side without text and are left out in training: remove them.",
    "one-label": "There is no other label than {}, so there is nothing to tell apart: add pairs with others.",
    "missing-label": "No pair has the label {}, which natural language inference needs: add such pairs.",
    "undecided": f"{{}} pairs have the label {UNDECIDED}, on which annotators did not agree: they are not used.",
}
_KEPT = ("duplicate-pairs", "leaked-pairs", "leaked-sources")  # problems that are worded alike for translations


def check_labelled(
    files: Sequence[str | Path], against: str | None, encoding: str | None, segmenter: Segmenter
) -> dict[str, Any]:
    """The report on parallel text for the two texts of labelled pairs, with the counts of labels."""
    columns = pair_columns(files[0])
    assert columns is not None
    names = f"{columns['text_a']},{columns['text_b']}"
    inputs = parallel_inputs(*files, pair=names, encoding=encoding)
    test = read_parallel(against, pair=names, encoding=encoding).pairs() if against else None
    with progress("checking", sum(one.size() for one in inputs)) as advance:
        report = check_pairs(inputs, segmenter, test, advance)
    labels = dict(count_labels(Corpus(open_labelled_pairs(files, encoding).inputs)).most_common())
    problems = [*_reworded(report.problems), *_label_problems(labels)]
    return report.to_json() | {"labels": labels, "problems": [asdict(one) for one in problems]}


def _reworded(problems: Sequence[Problem]) -> Iterator[Problem]:
    for one in problems:
        if one.what in _MESSAGES:
            yield Problem(one.what, _MESSAGES[one.what].format(f"{one.count:,}"), one.count)
        elif one.what in _KEPT:
            yield one


def _label_problems(labels: dict[str, int]) -> Iterator[Problem]:
    used = [label for label in labels if label != UNDECIDED]
    if len(used) == 1:
        yield Problem("one-label", _MESSAGES["one-label"].format(used[0]), 1)
    if set(used) < set(NLI_LABELS):
        for label in sorted({*NLI_LABELS} - {*used}):
            yield Problem("missing-label", _MESSAGES["missing-label"].format(label), 0)
    if count := labels.get(UNDECIDED, 0):
        yield Problem("undecided", _MESSAGES["undecided"].format(f"{count:,}"), count)
