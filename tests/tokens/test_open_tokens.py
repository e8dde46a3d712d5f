"""One pass over the text gives the very tokenizer and store that two passes give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firth.errors import CorpusError, EncodingError, TokenizerError
from firth.files import cache_folder
from firth.text import corpus as corpus_module
from firth.text.corpus import Corpus, read_corpus
from firth.tokens import build
from firth.tokens.build import SpillBuffer, build_store, open_store, open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.train import train_from_chunks, train_tokenizer
from tests.samples import CHINESE, ENGLISH, KINDS, small_recipe

ODD = ["a <unk> b", "a  [MASK] 我们<mask>喜欢", "\u00a0x\u3000y\t", "\u200b", "e\u0301te\u0301", "  ", "ﬁ İ Ⅷ <s>x"]
DOCUMENTS = [[*ENGLISH, *CHINESE], ENGLISH[:1], [CHINESE[0], "\u200b", ENGLISH[2]], ["\u200b"], CHINESE, ODD] * 5
PROSE = [" ".join(ENGLISH) + "\n" + "".join(CHINESE) + "\n" + ODD[1], *[" ".join(ENGLISH[:2])] * 9]
WRAPPED = [
    "The quick brown fox\njumps over the lazy\ndog. It sleeps.\n\nAnother.",
    "我们喜欢研\n究自然语言。他走了。",
] * 6

Make = Callable[[Path], Corpus]
CORPORA: dict[str, Make] = {
    "english": lambda _: read_corpus([ENGLISH] * 15),
    "chinese": lambda _: read_corpus([CHINESE] * 15),
    "mixed": lambda _: read_corpus(DOCUMENTS),
    "prose": lambda _: read_corpus(PROSE, layout="prose"),
    "wrapped": lambda _: read_corpus(WRAPPED, layout="wrapped"),
    "part": lambda _: read_corpus(DOCUMENTS).parts(0.1, 0.1)[0],
    "files": lambda folder: _files(folder),
}


def _files(folder: Path) -> Corpus:
    texts = ["\n\n".join("\n".join(document) for document in DOCUMENTS), "\n".join(ENGLISH * 9), "\r\n".join(ODD)]
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_bytes(text.encode())
    return read_corpus(folder, layout="lines")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many blocks that workers are started."""
    monkeypatch.setattr(corpus_module, "BLOCK", 200)


def assert_same_as_two_passes(recipe: TokenizerRecipe, corpus: Corpus, folder: Path, threads: int) -> None:
    tokenizer, store = open_tokens(recipe, corpus, threads)
    expected = train_tokenizer(recipe, corpus, threads=1)
    assert tokenizer.data == expected.data
    assert tokenizer.recipe == expected.recipe
    assert tokenizer.digest == expected.digest
    assert store.info.to_json() == build_store(corpus, expected, folder, threads=1).info.to_json()
    store.verify()


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("kind", KINDS)
def test_it_equals_two_passes(kind: str, name: str, tmp_path: Path) -> None:
    assert_same_as_two_passes(small_recipe(kind), CORPORA[name](tmp_path), tmp_path / "stores", threads=1)


THREADS = [(kind, "english") for kind in KINDS]
PROCESSES = [("words", "files"), ("wordpiece", "mixed"), ("byte-bpe", "prose"), ("pieces", "chinese")]


@pytest.mark.parametrize(("kind", "name"), [*THREADS, *PROCESSES])
def test_it_equals_two_passes_with_workers(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "BLOCK", 200)
    assert_same_as_two_passes(small_recipe(kind), CORPORA[name](tmp_path), tmp_path / "stores", threads=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"split": "space"},
        {"split": "space", "normalise": "nfkc", "vocab_size": 20},
        {"split": "space", "normalise": "none", "min_count": 6},
        {"split": "punctuation", "lowercase": True},
        {"split": "space", "lowercase": True, "segmenter": "space"},
    ],
)
def test_words_of_other_recipes(changes: dict[str, str | int | bool], tmp_path: Path) -> None:
    recipe = replace(small_recipe("words"), **changes)  # type: ignore[arg-type]
    assert_same_as_two_passes(recipe, read_corpus(DOCUMENTS), tmp_path, threads=1)


def test_what_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers go through a file, workers forget their chunks, and nothing changes."""
    monkeypatch.setattr("firth.tokens.build._MAX_BUFFER_BYTES", 500)
    monkeypatch.setattr("firth.tokens.workers._MAX_CHUNK_BYTES", 100)
    assert_same_as_two_passes(small_recipe("words"), read_corpus([ENGLISH] * 15), tmp_path / "1", threads=2)
    assert_same_as_two_passes(small_recipe("bpe"), read_corpus(DOCUMENTS), tmp_path / "2", threads=1)
    assert not list(cache_folder().glob("tmp*"))


def test_a_spool_gives_back_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    monkeypatch.setattr("firth.tokens.build._MAX_BUFFER_BYTES", 30)
    arrays = [np.arange(size, dtype=np.int32) for size in (3, 0, 4, 5, 0, 1)]
    with SpillBuffer() as spool:
        for array in arrays:
            spool.append(array)
        assert [array.tolist() for array in spool] == [array.tolist() for array in arrays]


def test_both_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe("words")
    first = open_tokens(recipe, read_corpus(DOCUMENTS), threads=1)
    monkeypatch.setattr("firth.tokens.build.chunk_corpus", None)  # calling it would fail
    tokenizer, store = open_tokens(recipe, read_corpus(DOCUMENTS), threads=1)
    assert (tokenizer.data, tokenizer.recipe, store.folder) == (first[0].data, first[0].recipe, first[1].folder)
    assert open_store(read_corpus(DOCUMENTS), tokenizer, threads=1).folder == store.folder
    for other in (replace(recipe, min_count=2), small_recipe("chars")):
        with pytest.raises(TypeError):
            open_tokens(other, read_corpus(DOCUMENTS), threads=1)
    with pytest.raises(TypeError):
        open_tokens(recipe, read_corpus(DOCUMENTS[1:]))


def test_changed_code_trains_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe("words")
    open_tokens(recipe, read_corpus(DOCUMENTS), threads=1)
    monkeypatch.setattr(build, "_code_digest", lambda: "another")
    monkeypatch.setattr("firth.tokens.build.chunk_corpus", None)
    with pytest.raises(TypeError):
        open_tokens(recipe, read_corpus(DOCUMENTS), threads=1)


def test_a_changed_dictionary_trains_again(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("研究自然 100000\n", encoding="utf-8")
    recipe = TokenizerRecipe(model="words", dictionary=str(words))
    corpus = read_corpus([["我们研究自然语言"]])
    assert "研究自然" in open_tokens(recipe, corpus)[0].vocabulary
    words.write_text("自然语言处理 100\n", encoding="utf-8")
    assert "研究自然" not in open_tokens(recipe, corpus)[0].vocabulary
    words.unlink()
    with pytest.raises(CorpusError, match="no dictionary"):
        open_tokens(recipe, corpus)


@pytest.mark.parametrize("what", ["stores/*/ids.bin", "tokenizers/*", "keys/*"])
def test_what_is_damaged_is_made_again(what: str) -> None:
    first = open_tokens(small_recipe("words"), read_corpus(DOCUMENTS), threads=1)
    for path in cache_folder().glob(what):
        path.write_bytes(b"damaged")
    tokenizer, store = open_tokens(small_recipe("words"), read_corpus(DOCUMENTS), threads=1)
    store.verify()
    assert (tokenizer.data, store.digest) == (first[0].data, first[1].digest)


def test_nothing_to_learn_or_to_store() -> None:
    with pytest.raises(TokenizerError, match="lower min_count"):
        open_tokens(TokenizerRecipe(model="words", min_count=9), read_corpus([["a b c"]]))
    assert not list(cache_folder().glob("stores/*"))


@pytest.mark.parametrize("damage", [b"x\xff\xfey", b"a \0 b", "的".encode()[:2]])
@pytest.mark.parametrize("threads", [1, 2])
def test_damage_in_a_file_raises_the_same_error(damage: bytes, threads: int, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("plain text of é\n\n".encode() * 30_000 + damage)
    recipe = TokenizerRecipe(model="words", split="space")
    corpus = read_corpus(path, layout="lines")

    def message(read: Callable[[], object]) -> str:
        with pytest.raises(EncodingError) as caught:
            read()
        return str(caught.value)

    assert message(lambda: open_tokens(recipe, corpus, threads)) == message(lambda: list(corpus))
    assert message(lambda: list(corpus.blocks())) == message(lambda: list(corpus))


def test_the_library_would_write_the_same_json() -> None:
    from tokenizers import models

    from firth.tokens.train import _to_json, _vocabulary

    tokenizer = train_from_chunks(small_recipe("words"), {'a"b': 3, "back\\slash": 2, "中": 1, "\u2028é\x01": 1})
    model = models.WordLevel(_vocabulary(tokenizer.vocabulary), unk_token="<unk>")
    assert tokenizer.data.decode() == _to_json(model, tokenizer.recipe)
    assert "backend" not in tokenizer.__dict__  # it is read when it is needed
    assert len(tokenizer) == tokenizer.backend.get_vocab_size() == len(tokenizer)
