"""What is found in the cache is checked: no changed, exchanged or renamed file gives other tokens or a crash."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firth.errors import StoreError
from firth.files import cache_folder, digest_bytes
from firth.text.corpus import read_corpus
from firth.tokens import store as store_module
from firth.tokens.build import build_store, open_store, open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import FILES, TokenStore, open_verified
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import train_tokenizer
from tests.command import firth

TEXT = [["the cat sat", "a dog ran"], ["我们 研究"], ["the dog sat"]]
OTHER = [["a cat ran", "the cat ran"], ["研究 我们"], ["the dog ran"]]
RECIPE = TokenizerRecipe(model="words", min_count=1, segmenter="space")


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer(RECIPE, read_corpus(TEXT))


@pytest.fixture
def store(words: Tokenizer, tmp_path: Path) -> TokenStore:
    return build_store(read_corpus(TEXT), words, tmp_path, threads=1)


def flip(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("name", [*FILES, "store.json"])
def test_flipped_bits_are_found(store: TokenStore, words: Tokenizer, name: str) -> None:
    path, vocabulary = store.folder / name, len(words)
    open_verified(store.folder, vocabulary)
    for at in range(0, path.stat().st_size, 1 if name in FILES else 5):
        flip(path, at, at % 8)
        with pytest.raises(StoreError, match="remove"):
            open_verified(store.folder, vocabulary)
        flip(path, at, at % 8)
    open_verified(store.folder, vocabulary)


def with_values(store: TokenStore, name: str, change: Callable[[np.ndarray], None]) -> Path:
    """A store with valid digests whose file `name` was changed."""
    data = {one: np.fromfile(store.folder / one, dtype="u1") for one in FILES}
    dtypes = dict(zip(FILES, (store.info.dtype, "u1", "u8", "u8"), strict=True))
    change(data[name].view(dtypes[name]))
    info = replace(store.info, files={one: digest_bytes(values.tobytes()) for one, values in data.items()})
    folder = store.folder.parent / info.digest
    folder.mkdir()
    for one, values in data.items():
        values.tofile(folder / one)
    (folder / "store.json").write_text(info.to_json())
    return folder


@pytest.mark.parametrize(
    ("name", "index", "value", "reason"),
    [
        ("ids.bin", 2, 60_000, "holds ids above"),
        ("starts.bin", 1, 7, "other bytes than 0 and 1"),
        ("sentences.bin", 0, 1, "offsets out of order"),
        ("sentences.bin", 1, 2**63, "offsets out of order"),
        ("sentences.bin", -1, 2**40, "offsets out of order"),
        ("documents.bin", 1, 9, "offsets out of order"),
        ("documents.bin", -1, 3, "offsets out of order"),
    ],
)
def test_values_that_kernels_follow_are_checked(
    store: TokenStore, words: Tokenizer, name: str, index: int, value: int, reason: str
) -> None:
    """Digests prove identity, not sanity."""
    folder = with_values(store, name, lambda values: values.__setitem__(index, value))
    with pytest.raises(StoreError, match=reason):
        open_verified(folder, len(words))


@pytest.mark.parametrize(
    "fields",
    [{"dtype": "object"}, {"dtype": "float64"}, {"tokens": -1}, {"tokens": 2**60}, {"sentences": "3"}, {"files": {}}],
)
def test_fields_that_no_store_has_are_refused(store: TokenStore, fields: dict[str, object]) -> None:
    info = replace(store.info, **fields)  # type: ignore[arg-type]
    (store.folder / "store.json").write_text(info.to_json())
    with pytest.raises(StoreError, match=r"store.json is damaged"):
        TokenStore(store.folder)


@pytest.mark.parametrize("content", [b"[" * 60_000, b"[]", b"3", b"{}", b"\xff", b" " * 100_000, b'{"format": 1}'])
def test_a_store_json_of_another_kind_is_refused(store: TokenStore, content: bytes) -> None:
    (store.folder / "store.json").write_bytes(content)
    with pytest.raises(StoreError, match="remove"):
        TokenStore(store.folder)


@pytest.mark.parametrize("name", ["ids.bin", "store.json"])
def test_pipes_and_folders_are_not_read(store: TokenStore, name: str) -> None:
    (store.folder / name).unlink()
    os.mkfifo(store.folder / name)
    with pytest.raises(StoreError, match="not a regular file"):
        TokenStore(store.folder)
    (store.folder / name).unlink()
    (store.folder / name).mkdir()
    with pytest.raises(StoreError, match="not a regular file"):
        TokenStore(store.folder)


def test_files_are_digested_once_until_one_changes(
    store: TokenStore, words: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested: list[str] = []

    def digest(path: Path) -> str:
        digested.append(path.name)
        return digest_bytes(path.read_bytes())

    monkeypatch.setattr(store_module, "digest_file", digest)
    open_verified(store.folder, len(words))
    open_verified(store.folder, len(words))
    assert digested == [*FILES, *FILES], "a file this young may change without a new timestamp"
    monkeypatch.setattr(store_module, "_TIMESTAMP_PRECISION", -(10**18))
    digested.clear()
    for _ in range(3):
        open_verified(store.folder, len(words))
    assert digested == [*FILES]
    path = store.folder / "ids.bin"
    times = path.stat()
    flip(path, 0, 0)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if it had not been written to
    with pytest.raises(StoreError, match=r"ids.bin has changed"):
        open_verified(store.folder, len(words))


@pytest.mark.parametrize(
    "pattern", [*(f"stores/*/{name}" for name in (*FILES, "store.json")), "tokenizers/*", "keys/*"]
)
def test_a_flipped_bit_in_the_cache_gives_the_same_tokens_and_a_note(
    pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer, store = open_tokens(RECIPE, read_corpus(TEXT), threads=1)
    rng = random.Random(pattern)
    for path in cache_folder().glob(pattern):
        flip(path, rng.randrange(path.stat().st_size), rng.randrange(8))
    capsys.readouterr()
    again, other = open_tokens(RECIPE, read_corpus(TEXT), threads=1)
    other.verify(len(again))
    assert (again.data, other.digest) == (tokenizer.data, store.digest)
    assert capsys.readouterr().err.count("the cache is damaged: ") == (2 if pattern == "keys/*" else 1)
    open_tokens(RECIPE, read_corpus(TEXT), threads=1)
    assert not capsys.readouterr().err, "it was not made again"


def test_exchanged_keys_and_stores_are_found(words: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    corpora = [read_corpus(TEXT), read_corpus(OTHER)]
    stores = [open_store(corpus, words) for corpus in corpora]
    one, two = (cache_folder() / "keys").iterdir()
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    assert [open_store(corpus, words).digest for corpus in corpora] == [store.digest for store in stores]
    assert capsys.readouterr().err.count("the cache is damaged") == 2
    shutil.rmtree(stores[0].folder)
    shutil.copytree(stores[1].folder, stores[0].folder)
    assert open_store(corpora[0], words).digest == stores[0].digest
    assert "the cache is damaged" in capsys.readouterr().err


def test_a_key_that_points_elsewhere_is_not_followed(words: Tokenizer, tmp_path: Path) -> None:
    store = open_store(read_corpus(TEXT), words)
    (key,) = (cache_folder() / "keys").iterdir()
    for entry in ({"store": "../keys"}, {"store": 3}, {"tokenizer": None}, {"digest": ""}):
        key.write_text(json.dumps(json.loads(key.read_text()) | entry))
        assert open_store(read_corpus(TEXT), words).digest == store.digest


def test_training_again_after_a_flipped_bit_gives_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("the cat sat\na dog ran\nthe dog sat\n" * 20)

    def train(name: str) -> tuple[str, str]:
        outcome = firth("train", "mkn3", tmp_path / "s.txt", "-o", tmp_path / name, "--json")
        assert outcome.code == 0, outcome.err
        weights = b"".join(path.read_bytes() for path in sorted((tmp_path / name).glob("*.safetensors")))
        return digest_bytes(weights), outcome.err

    digest, err = train("first")
    assert "damaged" not in err
    for name in (*FILES, "store.json"):
        (path,) = cache_folder().glob(f"stores/*/{name}")
        flip(path, path.stat().st_size // 2, 1)
        again, err = train(f"after-{name}")
        assert again == digest
        assert "the cache is damaged" in err
