"""Arguments and options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Model = Annotated[Path, Argument(help="The folder of a trained model.")]
Corpus = Annotated[list[str], Argument(help="Files, folders, globs, - or builtin:NAME.")]
Texts = Annotated[Path, Argument(help="A text file with one text per line; - for standard input.")]
Out = Annotated[Path, Option("-o", "--out", help="The new folder to write.")]
Settings = Annotated[list[str] | None, Option("--set", help="Set a recipe field: key.sub=value.")]
Seed = Annotated[int, Option("--seed", min=0, max=2**63 - 1, help="Seed of the random numbers.")]
Resume = Annotated[bool, Option("--resume", help="Resume an interrupted run from its checkpoint.")]
SkipBad = Annotated[bool, Option("--skip-bad", help="Skip invalid examples and count them.")]
Method = Annotated[str, Option("--method", help="Analogies: add (3CosAdd) or mul (3CosMul).")]
Json = Annotated[bool, Option("--json", help="Print one JSON object to standard output and nothing else.")]
Force = Annotated[bool, Option("--force", help="Replace an existing file; never one that is read.")]
Columns = Annotated[list[str] | None, Option("--field", help="Column or field of a part: ROLE=NAME, as text_a=review.")]
Task = Annotated[str | None, Option("--task", help="Which of several tasks that the model was fine-tuned for.")]
Field = Annotated[str, Option("--field", help="JSONL and Parquet: the field that holds the text.")]
Encoding = Annotated[str | None, Option("--encoding", help="Encoding of the files.")]
Layout = Annotated[str, Option("--layout", help="lines (of one sentence), prose (of one paragraph), wrapped, auto.")]
Pair = Annotated[
    str | None, Option("--pair", help="Parallel text: two columns, as en,de, or two files without a corpus.")
]
Entities = Annotated[
    Path | None,
    Option("--entities", help="Entities: a file of names, .spo triples, columns entity and name, or JSONL with spans."),
]
Knowledge = Annotated[Path | None, Option("--knowledge", help="Networks that read entities: a trained graph (transe).")]
Language = Annotated[str | None, Option("--language", help="Models of several languages: that of the text.")]
UseSettings = Annotated[list[str] | None, Option("--set", help="Networks with a memory: memory.length=640, say.")]
Layer = Annotated[str | None, Option("--layer", help="Networks: a number, last, mix (mean) or all (concatenated).")]
Pooling = Annotated[str | None, Option("--pooling", help="Networks: mean, whole, max, first (CLS) or last.")]
Threads = Annotated[int | None, Option("--threads", min=1, help="Number of processes; default: all cores.")]
Licence = Annotated[
    str | None,
    Option("--licence", "--license", help="Licence of the text, for manifest and model card.", metavar="TEXT"),
]
Budget = Annotated[str | None, Option("--budget", help="20s, 10min, 3h, 300ktok, 20Mtok, 1e15flop.")]


Shots = Annotated[int | None, Option("--shots", min=0, help="Language models: examples in the prompt, untrained.")]
ShotsFile = Annotated[Path | None, Option("--train", help="With --shots: labelled examples to choose from.")]
Answer = Annotated[list[str] | None, Option("--answer", help="With --shots: the word of a label, such as 1=good.")]
Template = Annotated[str | None, Option("--template", help="With --shots: a line such as '{text_a} : {label}'.")]


def completion(names: str) -> Callable[[str], list[str]]:
    """A function that completes names of recipes, tasks, formats or suites in a shell.

    >>> completion("formats")("w")
    ['word2vec']
    """

    def complete(incomplete: str) -> list[str]:
        return [name for name in _names_of(names) if name.startswith(incomplete)]

    return complete


def _names_of(names: str) -> list[str]:
    match names:
        case "recipes":
            from firth.recipes.table import RECIPES

            return list(RECIPES)
        case "tasks":
            from firth.tasks.recipe import MANY, TASKS

            return [*TASKS, MANY]
        case "formats":
            from firth.artifact.formats import FORMATS

            return list(FORMATS)
    from firth.api import SUITES

    return list(SUITES)
