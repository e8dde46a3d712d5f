"""The cache folder: listed, cleared, limited in size, and worked around where it cannot be written."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from firth.cache import cache_entries, cache_limit, clear_cache, trim_cache
from firth.errors import OutputError
from firth.files import cache_folder, temporary_prefix, writing
from firth.text.corpus import read_corpus
from firth.tokens.build import open_store, open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from tests.command import assert_refused, firth

RECIPE = TokenizerRecipe(model="words", min_count=1, segmenter="space")
TEXTS = [[["the cat sat"]], [["a dog ran"]], [["we saw it"]]]


def make_stores() -> list[TokenStore]:
    """Three stores, the first used ten days ago, the last now."""
    stores = [open_tokens(RECIPE, read_corpus(text), threads=1)[1] for text in TEXTS]
    for days, store in zip((10, 5, 0), stores, strict=True):
        used = time.time() - days * 86400
        os.utime(store.folder, (used, used))
    return stores


def names(folder: str) -> set[str]:
    return {path.name for path in (cache_folder() / folder).iterdir()}


def test_it_is_listed() -> None:
    stores = make_stores()
    outcome = firth("cache", "--json")
    report = outcome.json
    assert report["folder"] == str(cache_folder())
    assert [entry["name"] for entry in report["entries"]] == [store.digest for store in stores]
    assert report["limit"] == 20_000_000_000
    files = [path for path in cache_folder().rglob("*") if path.is_file()]
    assert report["bytes"] == sum(path.stat().st_size for path in files)
    assert report["removed"] == {"entries": 0, "bytes": 0}
    text = firth("cache").out
    assert str(cache_folder()) in text
    assert stores[0].digest[:16] in text


def test_what_is_old_is_removed_with_all_that_belongs_to_it() -> None:
    stores = make_stores()
    assert (len(names("keys")), len(names("tokenizers"))) == (6, 3)
    report = firth("cache", "--older", "7d", "--json").json
    assert report["removed"]["entries"] == 1
    assert report["removed"]["bytes"] > 0
    assert names("stores") == {store.digest for store in stores[1:]}
    assert (len(names("keys")), len(names("tokenizers"))) == (4, 2)
    assert open_tokens(RECIPE, read_corpus(TEXTS[0]), threads=1)[1].digest == stores[0].digest


def test_use_keeps_a_store_young() -> None:
    make_stores()
    tokenizer, _ = open_tokens(RECIPE, read_corpus(TEXTS[0]), threads=1)
    open_store(read_corpus(TEXTS[0]), tokenizer)
    assert len(clear_cache(7 * 86400)) == 0


def test_clearing_removes_all_of_ours_and_nothing_else() -> None:
    make_stores()
    foreign = [cache_folder() / name for name in ("notes.txt", "keys/my-key.pem", "stores/mine/a.txt", "spool/x")]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("not Firth's")
    machine = os.uname().nodename.replace(".", "-")
    left = cache_folder() / "spool" / f".firth-{machine}-{2**22 + 1}.abc"  # above the largest process id
    in_use = cache_folder() / "spool" / f"{temporary_prefix()}abc"
    for path in (left, in_use):
        path.write_text("standard input")
    outcome = firth("cache", "--clear")
    assert outcome.out.startswith("removed 3 entries")
    files = {path for path in cache_folder().rglob("*") if path.is_file()}
    assert files == {*foreign, in_use}


def test_the_least_recently_used_stores_give_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = make_stores()
    sizes = [entry.bytes for entry in cache_entries()]
    monkeypatch.setenv("FIRTH_CACHE_LIMIT", f"{sum(sizes)}B")
    trim_cache(keep=stores[0].folder)
    assert names("stores") == {store.digest for store in stores}
    new = open_tokens(RECIPE, read_corpus([["they ran"]]), threads=1)[1]
    assert names("stores") == {stores[1].digest, stores[2].digest, new.digest}
    assert "removed 1 old token store" in capsys.readouterr().err
    monkeypatch.setenv("FIRTH_CACHE_LIMIT", "1")
    trim_cache(keep=new.folder)
    assert names("stores") == {new.digest}
    assert new.sentence(0).tolist()
    assert stores[0].sentence(0).tolist(), "a store that was removed stays readable where it is open"


@pytest.mark.parametrize(
    ("given", "size"), [("500MB", 500_000_000), ("1.5 GB", 1_500_000_000), ("2T", 2 * 10**12), ("7", 7), ("3kb", 3000)]
)
def test_the_limit_is_a_size(given: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE_LIMIT", given)
    assert cache_limit() == size


def test_a_wrong_limit_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE_LIMIT", "much")
    with pytest.raises(OutputError, match="FIRTH_CACHE_LIMIT='much' must be a size"):
        open_tokens(RECIPE, read_corpus(TEXTS[0]), threads=1)
    assert not (cache_folder() / "stores").exists()


@pytest.mark.parametrize("age", ["", "soon", "30", "-3d", "1e9d", "nand"])
def test_a_wrong_age_is_wrong_usage(age: str) -> None:
    assert_refused(firth("cache", "--older", age), "30d", code=2)


@pytest.mark.parametrize("folder", ["/dev/null/x", "file", "file/deep/er", "x" * 300])
def test_a_cache_that_cannot_be_written_is_worked_around(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "s.txt").write_text("the cat sat\na dog ran\n" * 5)
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / folder))
    outcome = firth("train", "unigram", tmp_path / "s.txt", "-o", tmp_path / "m", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("cannot be written") == 1
    assert str(tmp_path / folder) in outcome.err
    assert "FIRTH_CACHE" in outcome.err
    assert (tmp_path / "file").read_text() == "mine"
    assert cache_folder().is_dir()


def test_errors_of_the_cache_name_its_setting() -> None:
    with pytest.raises(OutputError, match=r"firth cache --clear, or set FIRTH_CACHE"), writing(cache_folder() / "x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OutputError, match=r"set FIRTH_CACHE to another folder"), writing(cache_folder() / "x"):
        raise OSError(errno.EACCES, "Permission denied")
