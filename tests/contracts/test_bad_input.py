"""Bad input on the command line: a message of one sentence, the right exit code, no partial output."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from firth.files import cache_folder
from tests.command import assert_refused, firth

VERBS = {
    "check": lambda corpus, out: ("check", corpus),
    "train a tokenizer": lambda corpus, out: ("train", "words", corpus, "-o", out),
    "train a model": lambda corpus, out: ("train", "unigram", corpus, "-o", out),
}


def write(name: str, data: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


def empty_folder(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def long_line(folder: Path) -> Path:
    path = folder / "long.txt"
    with open(path, "wb") as file:
        for _ in range(200):
            file.write(b"word " * 200_000)
    return path


def truncated_gzip(folder: Path) -> Path:
    import gzip

    path = folder / "cut.txt.gz"
    path.write_bytes(gzip.compress(os.urandom(4000).hex().encode())[:-100])
    return path


CHINESE = "今天天气很好，我们去公园里玩了一整天。" * 50
BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "empty file": (write("a.txt", b""), "no text"),
    "blank lines": (write("a.txt", b"\n  \n\t\n\n"), "no text"),
    "empty folder": (empty_folder, "empty"),
    "missing file": (lambda folder: folder / "nowhere.txt", "nowhere.txt"),
    "binary file": (write("a.txt", bytes(range(256)) * 40), "binary"),
    "compressed under another name": (write("a.txt", b"\x1f\x8b\x08\x00rest"), "gz"),
    "NUL in the text": (write("a.txt", b"some text\nand a \0 in it\n" * 30), "NUL"),
    "lone surrogate": (write("a.txt", b"some text \xed\xa0\x80 here\n" * 30), "--encoding"),
    "lone surrogate in JSON": (write("a.jsonl", b'{"text": "a \\ud800 b"}\n'), "surrogate"),
    "wrong field": (write("a.jsonl", b'{"txt": "hello there"}\n'), "--field"),
    "broken JSON": (write("a.jsonl", b'{"text": "fine"}\n{"text": \n'), "line 2"),
    "mixed encodings": (write("a.txt", (CHINESE + "\n").encode() + CHINESE.encode("gb18030")), "--encoding"),
    "truncated gzip": (truncated_gzip, "cut.txt.gz"),
    "200 MB on one line": (long_line, "fold"),
    "broken Parquet": (write("a.parquet", b"PAR1 and nothing else"), "Parquet"),
}


def assert_no_output(folder: Path, before: set[Path]) -> None:
    assert set(folder.rglob("*")) == before
    stores = cache_folder() / "stores"
    assert not stores.exists() or not list(stores.iterdir())


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", VERBS)
def test_bad_text_is_refused(name: str, kind: str, tmp_path: Path) -> None:
    make, message = BAD[kind]
    corpus = make(tmp_path)
    before = set(tmp_path.rglob("*"))
    outcome = firth(*VERBS[name](corpus, tmp_path / "out"), "--json")
    assert_refused(outcome, message)
    assert_no_output(tmp_path, before)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("one two three\nfour five\n\nsix seven\n")
    return path


def test_folders_with_other_content_are_not_overwritten(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious.txt").write_text("mine")
    assert_refused(firth("train", "unigram", corpus, "-o", out), "already holds")
    assert (out / "precious.txt").read_text() == "mine"
    assert_refused(firth("train", "unigram", corpus, "-o", corpus), "is a file")
    assert_refused(firth("train", "unigram", corpus, "-o", corpus / "below"), "file")


def test_unwritable_folder(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr("firth.files.os.mkdir", refuse)
    assert_refused(firth("train", "unigram", corpus, "-o", tmp_path / "out"), "permission denied")
    assert not (tmp_path / "out").exists()


def test_full_disk(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write to the store fails as it would on a full disk."""

    def refuse(self: object, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("firth.tokens.build._DigestedFile._write", refuse)
    before = set(tmp_path.rglob("*"))
    assert_refused(firth("train", "unigram", corpus, "-o", tmp_path / "out"), "disk is full")
    assert_no_output(tmp_path, before)


def test_unreadable_file(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = open

    def refuse(file: object, *args: object, **kwargs: object) -> object:
        if str(file) == str(corpus):
            raise PermissionError(errno.EACCES, "Permission denied", str(corpus))
        return real(file, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("io.open", refuse)
    assert_refused(firth("check", corpus), "corpus.txt")


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("train", "unigramm", "CORPUS", "-o", "OUT"), "did you mean 'unigram'", 2),
        (("train", "unigram", "CORPUS", "-o", "OUT", "--set", "dleta=1"), "did you mean 'delta'", 2),
        (("train", "unigram", "CORPUS", "-o", "OUT", "--set", "delta=much"), "a number", 2),
        (("train", "unigram", "CORPUS", "-o", "OUT", "--set", "delta"), "key=value", 2),
        (("train", "unigram", "CORPUS", "-o", "OUT", "--set", "delta=0"), "above 0", 2),
        (("train", "unigram", "CORPUS", "-o", "OUT", "--set", "delta=1e308"), "below 1e12", 2),
        (("train", "katz3", "CORPUS", "-o", "OUT", "--set", "katz_cutoff=1000000000"), "from 1 to 1000", 2),
        (("train", "bayes", "CORPUS", "-o", "OUT", "--set", "prior=1e308"), "below 1e12", 2),
        (("train", "unigram", "CORPUS", "-o", "OUT", "--set", "tokenizer=unigram"), "choose from", 2),
        (("train", "unigram", "CORPUS", "-o", "OUT", "--size", "base"), "--size", 2),
        (("train", "unigram", "CORPUS", "-o", "OUT", "--budget", "soon"), "10min", 2),
        (("train", "unigram", "CORPUS", "-o", "OUT", "--budget", "0s"), "buys nothing", 2),
        (("train", "unigram", "CORPUS", "-o", "OUT", "--budget", "1e9flop"), "time or tokens", 2),
        (("train", "words", "CORPUS", "-o", "OUT", "--budget", "10s"), "less text", 2),
        (("train", "words", "CORPUS", "-o", "OUT", "--set", "vocab_size=3"), "10 or more", 2),
        (("train", "words", "CORPUS", "-o", "OUT", "--encoding", "klingon"), "encoding", 2),
        (("train", "words", "CORPUS", "-o", "OUT", "--layout", "prosa"), "did you mean 'prose'", 2),
        (("train", "unigram", "builtin:pydok", "-o", "OUT"), "did you mean 'builtin:pydoc'", 2),
        (("diff", "bpe", "bpee"), "did you mean 'bpe'", 2),
        (("info", "NOWHERE"), "nowhere", 1),
        (("verify", "CORPUS"), "corpus.txt", 1),
        (("score", "NOWHERE", "CORPUS"), "nowhere", 1),
        (("generate", "CORPUS"), "corpus.txt", 1),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], message: str, code: int, corpus: Path, tmp_path: Path) -> None:
    names = {"CORPUS": corpus, "OUT": tmp_path / "out", "NOWHERE": tmp_path / "nowhere"}
    assert_refused(firth(*(names.get(word, word) for word in arguments)), message, code=code)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [("dance",), ("train",), ("check",), ("score", "x"), ("check", "x", "--nope")])
def test_wrong_usage_exits_with_code_2(arguments: tuple[str, ...]) -> None:
    outcome = firth(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""


def test_tokenizers_do_not_score(corpus: Path, tmp_path: Path) -> None:
    assert firth("train", "words", corpus, "-o", tmp_path / "words").code == 0
    assert_refused(firth("score", tmp_path / "words", corpus), "language model")
    assert_refused(firth("generate", tmp_path / "words"), "language model")


def test_tokenizers_of_a_few_tokens_are_adapted(corpus: Path, tmp_path: Path) -> None:
    """A quarter more than a few tokens is less than the smallest size that may be set."""
    (tmp_path / "small.txt").write_text("one two\n")
    assert firth("train", "words", tmp_path / "small.txt", "-o", tmp_path / "words").code == 0
    adapted = firth("adapt", tmp_path / "words", corpus, "-o", tmp_path / "adapted", "--json")
    assert adapted.json["metrics"]["vocabulary"] == 10


def test_json_errors_leave_standard_output_empty(tmp_path: Path) -> None:
    outcome = firth("check", tmp_path / "nowhere.txt", "--json")
    assert outcome.out == ""
    with pytest.raises(json.JSONDecodeError):
        _ = outcome.json


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_leave_nothing_and_exit_with_130(stop: signal.Signals, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    with open(corpus, "w") as file:
        for number in range(300_000):
            file.write(f"sentence number {number} of a long text with {number % 1000} words\n")
    before = set(tmp_path.rglob("*"))
    command = [sys.executable, "-c", "from firth.cli.main import main; main()"]
    process = subprocess.Popen(
        [*command, "train", "unigram", str(corpus), "-o", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, stop, signal.SIG_DFL),  # background processes inherit an ignored signal
    )
    deadline = time.monotonic() + 60
    stores = cache_folder() / "stores"
    while not (stores.exists() and list(stores.iterdir())):  # until the store is being written
        assert time.monotonic() < deadline
        assert process.poll() is None, "finished before it could be interrupted"
        time.sleep(0.01)
    process.send_signal(stop)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.startswith("firth: interrupted")
    assert "Traceback" not in err
    assert_no_output(tmp_path, before)


def test_arpa_models_are_refused_as_text(tmp_path: Path) -> None:
    path = tmp_path / "model.arpa"
    path.write_text("\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\n-1\t</s>\n\n\\end\\\n")
    outcome = firth("train", "mkn3", path, "-o", tmp_path / "out")
    assert outcome.code == 1
    assert "firth import arpa" in outcome.err
    assert not (tmp_path / "out").exists()
