"""Messages are written once, with the options of the command line, and read in Python with the names of arguments."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from firth.errors import FirthError
from firth.progress import note
from firth.wording import command_line, in_python

SOURCE = Path(__file__).resolve().parents[1] / "src" / "firth"
COMMAND_LINE = re.compile(r"(?<![\w'\"`-])(?:--[a-z]|-o\b)|\bfirth (?:train|adapt|finetune|import|export|score|info)\b")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("leave --size out.", "leave size out."),
        ("use firth finetune MODEL many --tasks FILE.toml.", "use firth.finetune(MODEL, 'many', tasks=FILE)."),
        ("start again without --resume.", "start again without resume."),
        ("continue with --resume, or choose another -o.", "continue with resume=True, or choose another out."),
        ("run again with --threads 1 to see why.", "run again with threads=1 to see why."),
        ("tune with --set head.crf=false.", "tune with settings={'head.crf': False}."),
        ("use --set lr=0.1 --set mode=fast, say.", "use settings={'lr': 0.1, 'mode': 'fast'}, say."),
        ("more with --set vocab_size=N.", "more with settings={'vocab_size': N}."),
        ("--set takes key=value.", "settings takes key=value."),
        ("name it by --field text_a=NAME", "name it by columns=['text_a=NAME']"),
        ("pass --encoding=utf-16-le.", "pass encoding='utf-16-le'."),
        ("leave such examples out with --skip-bad.", "leave such examples out with skip_bad=True."),
        ("give the folder that firth train -o wrote.", "give the folder that firth.train wrote."),
        ("check the path, or make it with firth train -o.", "check the path, or make it with firth.train."),
        ("train one with firth train byte-bpe.", "train one with firth.train('byte-bpe', ...)."),
        ("use firth finetune MODEL tag", "use firth.finetune(MODEL, 'tag', ...)"),
        ("import it with firth import glove.", "import it with firth.import_('glove', ...)."),
        ("use firth import arpa my model.arpa -o DIR.", "use firth.import_('arpa', 'my model.arpa', out=DIR)."),
        ("check it with firth check.", "check it with firth.check_corpus."),
        ("convert it with `compile-lm --text yes`.", "convert it with `compile-lm --text yes`."),
        ("free some space with firth cache --clear, or -o.", "free some space with firth cache --clear, or out."),
        ("there is no field '--set'.", "there is no field '--set'."),
        ("a well-known file-o is e-mail - or not.", "a well-known file-o is e-mail - or not."),
    ],
)
def test_options_become_arguments(written: str, read: str) -> None:
    assert in_python(written) == read


def test_errors_and_notes_keep_the_options_on_the_command_line_only(capsys: pytest.CaptureFixture[str]) -> None:
    error = FirthError("leave --budget out.")
    with command_line():
        assert str(error) == "leave --budget out."
        note("give a --budget")
    assert str(error) == "leave budget out."
    note("give a --budget")
    assert capsys.readouterr().err == "give a --budget\ngive a budget\n"
    assert error.message == "leave --budget out."


def messages() -> list[tuple[str, str]]:
    """The strings of the library, without docstrings, and where they are."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent.name == "cli" or path.name in ("wording.py", "plots.py"):
            continue
        text = path.read_text(encoding="utf-8")
        if not COMMAND_LINE.search(text):
            continue
        tree = ast.parse(text)
        docstrings = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inside:
                found.append((f"{path.relative_to(SOURCE)}:{node.lineno}", node.value))
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "x" for part in node.values]
                found.append((f"{path.relative_to(SOURCE)}:{node.lineno}", "".join(map(str, parts))))
    return found


def test_no_message_speaks_of_the_command_line_in_python() -> None:
    written = messages()
    assert sum(COMMAND_LINE.search(text) is not None for _, text in written) > 40
    kept = re.compile("`.*?`|firth cache --clear")
    assert not [(where, text) for where, text in written if COMMAND_LINE.search(kept.sub("", in_python(text)))]
