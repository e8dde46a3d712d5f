"""A tokenizer.json from elsewhere can neither take for ever nor crash the process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firth.errors import TokenizerError
from firth.text.corpus import read_corpus
from firth.tokens.loading import check_parts, load_backend, try_tokenizer
from firth.tokens.train import train_tokenizer
from tests.samples import ENGLISH, KINDS, small_recipe

BASE: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"},
}


def chain(*steps: Any) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(steps)}


def replacement(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def encoded(**changes: Any) -> bytes:
    return json.dumps(BASE | changes).encode()


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokenizers_of_all_recipes_pass(kind: str) -> None:
    data = train_tokenizer(small_recipe(kind), read_corpus([ENGLISH])).data
    try_tokenizer(data)
    assert load_backend(data).encode(ENGLISH[0]).ids


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "Shell"}}, "a normalizer of type 'Shell'"),
        ({"normalizer": {"type": []}}, "a normalizer of type"),
        ({"pre_tokenizer": 3}, "a pre_tokenizer that is no object"),
        ({"model": {"type": "Remote", "vocab": {}}}, "a model of type 'Remote'"),
        ({"plugin": "x.py"}, "an unknown part 'plugin'"),
        ({"padding": {"strategy": {"Fixed": 10**9}}}, "truncation or padding"),
        ({"added_tokens": [{"content": "x" * 10**6}]}, "an added token"),
        ({"normalizer": chain(*[{"type": "NFC"}] * 40)}, "41 steps"),
        ({"normalizer": chain(*[replacement({"String": "a"}, "aa")] * 20)}, "more than 64 characters of one"),
        ({"normalizer": replacement({"String": ""}, "a" * 100)}, "more than 64 characters of one"),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 1000}}, "'prepend' of 1000 characters"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|" * 3000}}}, "'pattern' of 9000 characters"),
        ({"normalizer": chain(chain(chain(chain(chain(chain())))))}, "nested too deeply"),
    ],
)
def test_other_parts_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        check_parts(BASE | changes)
    if "plugin" not in changes:  # which the library ignores
        with pytest.raises(TokenizerError, match=f"{message}|cannot be read"):
            load_backend(encoded(**changes))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"model": []}', b'{"model": {}}'])
def test_what_is_no_tokenizer_is_refused(data: bytes) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_backend(data)


def split_by(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def test_a_pattern_that_makes_the_library_panic_is_refused() -> None:
    with pytest.raises(TokenizerError, match=r"cannot be used .*retry-limit"):
        try_tokenizer(encoded(pre_tokenizer=split_by("(a+)+b")))


def test_a_trial_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr("firth.tokens.loading._TRIAL", tmp_path / "slow.py")
    monkeypatch.setattr("firth.tokens.loading._TRIAL_SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(TokenizerError, match=r"takes more than 0\.2 s or 1024 MB"):
        try_tokenizer(encoded(pre_tokenizer=split_by("a")))
    assert time.monotonic() - began < 30


def test_the_trial_has_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.tokens.loading._TRIAL_MB", 20)  # the library alone needs more
    with pytest.raises(TokenizerError, match=r"cannot be used|takes more than"):
        try_tokenizer(encoded(pre_tokenizer=split_by("b")))


class PanicException(BaseException):
    """As the one that Rust libraries raise."""


@pytest.mark.parametrize("error", [PanicException("index out of bounds"), ValueError("x"), RecursionError("deep")])
def test_panics_of_the_library_are_errors(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(text: str) -> None:
        raise error

    fake: Callable[[str], None] = panic
    monkeypatch.setattr("firth.tokens.loading.tokenizers.Tokenizer", type("Fake", (), {"from_str": staticmethod(fake)}))
    with pytest.raises(TokenizerError, match=f"cannot be read .{type(error).__name__}") as caught:
        load_backend(encoded())
    assert "make it again, with firth.train." in str(caught.value)
