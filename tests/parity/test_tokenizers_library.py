"""A saved tokenizer.json gives the same ids in the tokenizers and transformers libraries."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

import pytest
import tokenizers

import firth
from firth.tokens.build import open_store
from firth.tokens.encoder import TextEncoder
from firth.tokens.tokenizer import Tokenizer
from tests.samples import CHINESE, ENGLISH, KINDS, small_recipe


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    recipe = small_recipe(request.param)
    firth.train(recipe, [ENGLISH * 3, CHINESE * 3], out=tmp_path / "saved")
    return tmp_path / "saved"


def test_the_tokenizers_library_reads_it(folder: Path) -> None:
    ours = firth.load(folder)
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in (*ENGLISH, *CHINESE, "unseen zebra 未登录词 [MASK] <unk>"):
        found = theirs.encode(ours.presegment(text))
        assert found.ids == ours.encode(text).ids
        assert found.tokens == ours.tokenize(text)


def test_the_transformers_library_reads_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import PreTrainedTokenizerFast

    ours = firth.load(folder)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    for text in (*ENGLISH, *CHINESE):
        assert theirs(ours.presegment(text))["input_ids"] == ours.encode(text).ids


REAL = {
    "words": ("vocab_size=30000", "wiki_en"),
    "chars": ("min_count=2", "wiki_zh"),
    "wordpiece": ("vocab_size=16000", "wiki_en"),
    "bpe": ("vocab_size=8000", "wikinews_en"),
    "pieces": ("vocab_size=8000", "wiki_en"),
    "byte-bpe": ("vocab_size=8000", "wiki_zh"),
}


@pytest.mark.shared
@pytest.mark.parametrize("kind", KINDS)
def test_real_lines_are_encoded_identically(kind: str, shared_data: Path, tmp_path: Path) -> None:
    """The store and the fast encoder against the library itself, on real text in both languages."""
    setting, corpus = REAL[kind]
    lines = [line for name in ("wiki_en", "wiki_zh") for line in real_lines(shared_data / f"lm/{name}.txt.gz", 2500)]
    train_on = real_lines(shared_data / f"lm/{corpus}.txt.gz", 4000)
    ours: Tokenizer = firth.train(kind, [train_on], out=tmp_path / "saved", settings=[setting])
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
    expected = [one.ids for one in theirs.encode_batch_fast([ours.presegment(line) for line in lines])]
    encoded = TextEncoder(ours).encode(lines)
    assert encoded.ids.tolist() == [number for ids in expected for number in ids]
    assert encoded.lengths.tolist() == [len(ids) for ids in expected]
    store = open_store(firth.read_corpus([lines]), ours)
    assert store.ids.tolist() == encoded.ids.tolist()


def real_lines(path: Path, count: int) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(islice((line.strip() for line in file if line.strip()), count))
