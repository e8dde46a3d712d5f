"""Wrong arguments: one sentence and exit code 2, before a library that takes time is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import firth as library
from tests.command import assert_refused, firth

HEAVY = ("torch", "numba", "scipy", "sklearn", "tokenizers", "matplotlib", "transformers", "pyarrow")
FILES = ("--train", "FILE", "--dev", "FILE", "-o", "OUT")
# Arguments, and what is said.
WRONG: list[tuple[tuple[str, ...], str]] = [
    (("train", "berd", "FILE", "-o", "OUT"), "no recipe 'berd': did you mean 'bert'?"),
    (("train", "mkn99", "FILE", "-o", "OUT"), "order=99 is out of range"),
    (("train", "mkn" + "9" * 5000, "FILE", "-o", "OUT"), "no recipe"),
    (("train", "bert", "FILE", "-o", "OUT", "--size", "huge"), "no size 'huge': choose from base, mini, small, tiny."),
    (("train", "unigram", "FILE", "-o", "OUT", "--size", "tiny"), "unigram comes in one size"),
    (("train", "bert", "FILE", "-o", "OUT", "--budget", "soon"), "10min"),
    (("train", "bert", "FILE", "-o", "OUT", "--budget", "0s"), "buys nothing"),
    (("train", "bert", "FILE", "-o", "OUT", "--budget", "1e999tok"), "out of range"),
    (("train", "bert", "FILE", "-o", "OUT", "--set", "encoder.layer=2"), "no field 'encoder.layer': did you mean"),
    (("train", "bert", "FILE", "-o", "OUT", "--set", "encoder.layers=two"), "takes a whole number"),
    (("train", "bert", "FILE", "-o", "OUT", "--set", "encoder.layers=-2"), "encoder.layers"),
    (("train", "bert", "FILE", "-o", "OUT", "--set", "seed"), "key=value"),
    (("train", "bert", "FILE", "-o", "OUT", "--layout", "prosa"), "no layout 'prosa': did you mean 'prose'?"),
    (("train", "bert", "FILE", "-o", "OUT", "--encoding", "klingon"), "unknown encoding 'klingon'"),
    (("train", "bert", "builtin:pydok", "-o", "OUT"), "did you mean 'builtin:pydoc'"),
    (("train", "bert", "FILE", "-o", "OUT", "--valid", "builtin:orakel"), "did you mean 'builtin:oracle'"),
    (("adapt", "MODEL", "-o", "OUT"), "name a corpus"),
    (("adapt", "MODEL", "FILE", "-o", "OUT", "--budget", "3"), "10min"),
    (("finetune", "MODEL", "clasify", *FILES), "no task 'clasify': did you mean 'classify'?"),
    (("finetune", "MODEL", "classify", *FILES, "--strategy", "ful"), "no strategy 'ful': did you mean 'full'?"),
    (("finetune", "MODEL", "classify", *FILES, "--field", "review"), "text_a=review"),
    (("finetune", "MODEL", "classify", *FILES, "--field", "body=review"), "classify has no part 'body'"),
    (("finetune", "MODEL", "classify", *FILES, "--budget", "10 mins"), "10min"),
    (("mix", "MODEL", "--valid", "FILE", "-o", "OUT"), "two models or more"),
    (("evaluate", "MODEL", "wrods", "FILE"), "no suite 'wrods': did you mean 'words'?"),
    (("evaluate", "MODEL", "analogies", "FILE", "--method", "div"), "no method 'div': choose from add, mul."),
    (("evaluate", "MODEL", "words", "FILE", "-o", "OUT"), "-o belongs to the suite task"),
    (("evaluate", "MODEL", "task", "FILE", "FILE"), "name one"),
    (("predict", "MODEL", "FILE", "--encoding", "klingon"), "unknown encoding"),
    (("predict", "MODEL", "FILE", "--field", "=x"), "text_a=review"),
    (("export", "MODEL", "onxx", "OUT"), "there is no format 'onxx': did you mean 'onnx'"),
    (("import", "arpaa", "FILE", "-o", "OUT"), "did you mean 'arpa'?"),
    (("import", "arpa", "FILE", "-o", "OUT", "--task", "pair"), "--task is for models of huggingface"),
    (("import", "huggingface", "FILE", "-o", "OUT", "--task", "tag"), "choose from classify, pair."),
    (("score", "MODEL", "FILE", "--context", "docment"), "no context 'docment': did you mean 'document'?"),
    (("score", "MODEL", "FILE", "--layout", "verse"), "no layout 'verse'"),
    (("score", "MODEL", "FILE", "--encoding", "klingon"), "unknown encoding 'klingon'"),
    (("score", "MODEL", "FILE", "--explain", "--context", "document"), "leave --context document out"),
    (("generate", "MODEL", "--temperature", "nan"), "--temperature is nan: give 0 (greedy decoding) or above"),
    (("generate", "MODEL", "--temperature", "-1"), "--temperature is -1.0: give 0"),
    (("similar", "MODEL", "king", "--method", "ad"), "no method 'ad': did you mean 'add'?"),
    (("similar", "MODEL", "king", "--context", "the king", "--layer", "lats"), "did you mean 'last'?"),
    (("similar", "MODEL", "king", "--layer", "last"), "--text and --layer go with one word"),
    (("similar", "MODEL", "king", "--distance"), "--distance takes two words"),
    (("similar", "MODEL"), "no word was given: name one"),
    (("embed", "MODEL", "FILE", "-o", "OUT", "--layer", "lats"), "no layer 'lats': did you mean 'last'?"),
    (("embed", "MODEL", "FILE", "-o", "OUT", "--layer", "1.5"), "no layer '1.5': give a number, all, last or mix."),
    (("embed", "MODEL", "FILE", "-o", "OUT", "--pooling", "maen"), "no pooling 'maen': did you mean 'mean'?"),
    (("embed", "MODEL", "FILE", "-o", "OUT", "--encoding", "klingon"), "unknown encoding 'klingon'"),
    (("cache", "--older", "30 fortnights"), "30d"),
    (("check", "FILE", "--segmenter", "jeiba"), "did you mean 'jieba'?"),
    (("check", "FILE", "--layout", "verse"), "no layout 'verse'"),
    (("recipes", "berd"), "did you mean 'bert'?"),
    (("diff", "bert", "berd"), "did you mean 'bert'?"),
    (("diff", "bert", "mkn99"), "order=99"),
]


def test_wrong_arguments_are_answered_before_anything_is_loaded() -> None:
    """All in one new interpreter, in which nothing heavy has been imported in the end; the model does not exist."""
    script = f"""
import json, sys
from tests.command import firth
found = [[outcome.code, outcome.out, outcome.err] for outcome in (firth(*one) for one in json.load(sys.stdin))]
json.dump([found, [name for name in {HEAVY} if name in sys.modules]], sys.stdout)
"""
    given = json.dumps([arguments for arguments, _ in WRONG])
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], input=given, capture_output=True, text=True, check=True, cwd=root
    )
    outcomes, loaded = json.loads(done.stdout)
    for (arguments, message), (code, out, err) in zip(WRONG, outcomes, strict=True):
        assert (code, out) == (2, ""), (arguments, err)
        assert message in err, arguments
        assert err.startswith("firth: "), arguments
        assert err.count("\n") == 1, arguments
    assert loaded == []


def test_late_findings_have_exit_code_2_too(tmp_path: Path) -> None:
    """What a model or a text decides: budgets that the model cannot have, fields that the task's recipe has not."""
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be\nthat is the question\n")
    labelled = tmp_path / "labelled.tsv"
    labelled.write_text("label\ttext_a\nyes\tto be\nno\tor not\n")
    library.train("unigram", text, out=tmp_path / "uni")
    examples = ("--train", labelled, "--dev", labelled, "-o", tmp_path / "out")
    cases: list[tuple[tuple[Any, ...], str]] = [
        (("train", "words", text, "-o", tmp_path / "out", "--budget", "10s"), "leave --budget out"),
        (("train", "unigram", text, "-o", tmp_path / "out", "--budget", "1e9flop"), "time or tokens"),
        (("adapt", tmp_path / "uni", text, "-o", tmp_path / "out", "--budget", "10s"), "leave --budget"),
        (("finetune", tmp_path / "uni", "classify", *examples, "--set", "head.widht=3"), "no field 'head.widht'"),
    ]
    for arguments, message in cases:
        assert_refused(firth(*arguments), message, code=2)
        assert not (tmp_path / "out").exists()


def test_version_help_and_completion() -> None:
    shown = firth("--version")
    assert (shown.code, shown.out) == (0, f"firth {library.__version__}\n")
    for arguments in (("-h",), ("train", "-h"), ("export", "-h")):
        shown = firth(*arguments)
        assert shown.code == 0
        assert "Usage" in shown.out
    assert "--install-completion" in firth("--help").out


@pytest.mark.parametrize(
    ("names", "start", "found"),
    [
        ("recipes", "robe", ["roberta"]),
        ("tasks", "c", ["classify", "choice"]),
        ("formats", "hugg", ["huggingface"]),
        ("suites", "wo", ["words"]),
    ],
)
def test_names_are_completed(names: str, start: str, found: list[str]) -> None:
    from firth.cli.options import completion

    assert completion(names)(start) == found


class TestDiff:
    @pytest.fixture
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        for name, order in (("mkn3", 3), ("other", 2)):
            settings = [f"order={order}"]
            library.train("mkn3", [["to be or not to be"]], out=tmp_path / name, settings=settings, seed=order)
        return tmp_path

    def test_an_artifact_and_a_recipe(self, here: Path) -> None:
        shown = firth("diff", "other", "kn3", "--json").json
        assert shown["differences"]["order"] == {"other": 2, "kn3": 3}
        assert shown["differences"]["smoothing"] == {"other": "modified-kneser-ney", "kn3": "kneser-ney"}
        assert "training" not in shown

    def test_two_artifacts(self, here: Path) -> None:
        shown = firth("diff", "other", here / "mkn3", "--json").json
        assert shown["differences"] == {"order": {"other": 2, str(here / "mkn3"): 3}}
        assert shown["training"]["seed"] == {"other": 2, str(here / "mkn3"): 3}
        text = firth("diff", "other", here / "mkn3").out
        assert text.splitlines()[0].split() == ["order", "2", "->", "3"]
        assert "training:" in text
        assert "have the same recipe" in firth("diff", "other", "other").out

    def test_a_folder_beats_a_recipe_with_a_note(self, here: Path) -> None:
        (here / "katz3").mkdir()  # no artifact
        shown = firth("diff", "mkn3", "katz3")
        assert shown.code == 0
        assert shown.err == "mkn3 is a folder here and a recipe: the folder is compared.\n"

    def test_folders_that_are_no_artifacts(self, here: Path) -> None:
        (here / "empty").mkdir()
        assert_refused(firth("diff", "empty", "mkn5"), "empty is empty")
        assert_refused(firth("diff", "./othr", "mkn5"), "did you mean 'other'?")
