"""TokenStore: bounds, determinism, content addresses, damage, kills and dying workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from firth.errors import StoreError, WorkerError
from firth.files import cache_folder
from firth.text import corpus as corpus_module
from firth.text.corpus import Corpus, read_corpus
from firth.tokens import workers
from firth.tokens.build import StoreWriter, build_store, open_store
from firth.tokens.encoder import EncodedSentences
from firth.tokens.store import FILES, TokenStore
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import train_tokenizer
from firth.tokens.workers import JobConfig, Message
from tests.samples import CHINESE, ENGLISH, small_recipe

DOCUMENTS = [[*ENGLISH, *CHINESE], ENGLISH[:1], [CHINESE[0], "\u200b", ENGLISH[2]], CHINESE] * 7


@pytest.fixture(scope="module")
def words(mixed_corpus: Corpus) -> Tokenizer:
    return train_tokenizer(small_recipe("words"), mixed_corpus)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many blocks that workers are started."""
    monkeypatch.setattr(corpus_module, "BLOCK", 100)


def test_it_holds_what_the_tokenizer_gives(tokenizer: Tokenizer) -> None:
    store = open_store(read_corpus(DOCUMENTS), tokenizer)
    sentences = [sentence for document in DOCUMENTS for sentence in document]
    tokens = [one for one in tokenizer.encode_batch(sentences) if one.ids]
    assert [store.sentence(index).tolist() for index in range(store.info.sentences)] == [one.ids for one in tokens]
    assert store.word_starts.tolist() == [start for one in tokens for start in one.word_starts]
    assert store.info.tokens == len(store) == sum(len(one.ids) for one in tokens)
    assert store.info.bytes == sum(len(sentence.encode()) for sentence in sentences)
    kept = [[s for s in document if tokenizer.encode(s).ids] for document in DOCUMENTS]
    assert np.diff(store.documents.astype(int)).tolist() == [len(document) for document in kept]
    assert [ids.tolist() for ids in store.document(1)] == [tokenizer.encode(ENGLISH[0]).ids]


def test_rows_are_batches(words: Tokenizer) -> None:
    store = open_store(read_corpus(DOCUMENTS), words)
    rows = store.windows(np.array([0, 5, 2]), 4)
    assert rows.tolist() == [store.ids[a : a + 4].tolist() for a in (0, 5, 2)]


@pytest.mark.usefixtures("small_blocks")
def test_the_number_of_workers_changes_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus = read_corpus(DOCUMENTS)
    assert len(list(corpus.blocks())) > 10
    stores = [build_store(corpus, tokenizer, tmp_path / str(threads), threads) for threads in (1, 2, 3)]
    assert len({store.info.to_json() for store in stores}) == 1


@pytest.mark.usefixtures("small_blocks")
def test_the_number_of_workers_changes_no_vocabulary(tokenizer: Tokenizer) -> None:
    corpus = read_corpus(DOCUMENTS)
    recipe = small_recipe(tokenizer.recipe.model)
    assert train_tokenizer(recipe, corpus, threads=1).data == train_tokenizer(recipe, corpus, threads=3).data


@pytest.mark.usefixtures("small_blocks")
def test_long_documents_in_pieces_are_one_document(words: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = read_corpus([["one two three"] * 50, ["four five"]])
    whole = open_store(corpus, words)
    monkeypatch.setattr("firth.text.readers.PIECE", 40)
    pieces = read_corpus([["one two three"] * 50, ["four five"]])
    assert sum(document.continues for document in pieces.raw_documents()) > 10
    assert open_store(pieces, words).info.documents == whole.info.documents == 2


@pytest.mark.parametrize("size", [1, 7, 15, 40, 1000])
def test_documents_of_a_file_do_not_depend_on_blocks(
    words: Tokenizer, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "BLOCK", size)
    monkeypatch.setattr("firth.text.readers._BLOCK", 5)
    path = tmp_path / "a.txt"
    path.write_text("one two\nthree four\n\nfive six\n \n\nseven\neight\n\n")
    store = build_store(read_corpus(path, layout="lines", encoding="utf-8"), words, tmp_path / "stores", threads=1)
    assert store.documents.tolist() == [0, 2, 3, 5]
    other = read_corpus([["one two", "three four"], ["five six"], ["seven", "eight"]])
    assert build_store(other, words, tmp_path / "stores", threads=1).digest == store.digest


def test_a_document_begins_where_its_first_token_is(words: Tokenizer, tmp_path: Path) -> None:
    """Its first sentence is left out, and the next one is in another block."""
    blocks = [
        ([2, 0, 1], [True, True, False]),
        ([0], [True]),
        ([], []),
        ([3, 0], [False, True]),
        ([1, 1], [False, True]),
    ]
    with StoreWriter(tmp_path, words) as writer:
        for lengths, starts_document in blocks:
            ids = np.full(sum(lengths), 7, dtype=writer.dtype)
            encoded = EncodedSentences(ids, np.ones(ids.size, dtype=np.bool_), np.array(lengths, dtype=np.int64))
            writer.add(encoded, np.array(starts_document, dtype=np.bool_))
        facts = writer.finish("corpus", size=20, words=8)
    (tmp_path / "store.json").write_text(facts.to_json())
    store = TokenStore(tmp_path)
    assert store.sentences.tolist() == [0, 2, 3, 6, 7, 8]
    assert store.documents.tolist() == [0, 1, 2, 3, 4, 5]
    assert (facts.tokens, facts.words, facts.sentences, facts.documents) == (8, 8, 5, 5)
    store.verify()


def test_a_second_run_finds_it(words: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_store(read_corpus(DOCUMENTS), words)
    monkeypatch.setattr("firth.tokens.build.build_store", None)  # calling it would fail
    assert open_store(read_corpus(DOCUMENTS), words).folder == first.folder


def test_other_text_or_tokens_make_another(words: Tokenizer, tokenizers_by_kind: dict[str, Tokenizer]) -> None:
    stores = [
        open_store(read_corpus(DOCUMENTS), words),
        open_store(read_corpus(DOCUMENTS[1:]), words),
        open_store(read_corpus(DOCUMENTS), tokenizers_by_kind["chars"]),
        open_store(read_corpus(DOCUMENTS).parts(0.45, 0.45)[0], words),
    ]
    assert len({store.info.digest for store in stores}) == 4


@pytest.mark.parametrize("name", [*FILES, "store.json"])
def test_damage_is_found(words: Tokenizer, name: str) -> None:
    store = open_store(read_corpus(DOCUMENTS), words)
    path = store.folder / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(StoreError, match="remove"):
        TokenStore(store.folder).verify()
    path.write_bytes(data[:-1])
    with pytest.raises(StoreError, match="remove"):
        TokenStore(store.folder)
    path.unlink()
    with pytest.raises(StoreError, match="remove"):
        TokenStore(store.folder)


def test_a_damaged_store_is_built_again(words: Tokenizer) -> None:
    store = open_store(read_corpus(DOCUMENTS), words)
    (store.folder / "ids.bin").write_bytes(b"")
    again = open_store(read_corpus(DOCUMENTS), words)
    again.verify()
    assert again.info.to_json() == store.info.to_json()


BUILD = """
import sys
from pathlib import Path
from firth.text import corpus as corpus_module
from firth.text.corpus import read_corpus
from firth.tokens.build import open_store
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.train import train_tokenizer
corpus_module.BLOCK = 2000
corpus = read_corpus(sys.argv[1])
print("ready", flush=True)
print(open_store(corpus, train_tokenizer(TokenizerRecipe(model="words"), corpus)).info.digest)
"""


@pytest.fixture
def big_file(tmp_path: Path) -> Path:
    path = tmp_path / "big.txt"
    path.write_text("".join(f"sentence {n} of many words\n{n % 7 * 'x'} y\n\n" for n in range(20_000)))
    return path


def start(big_file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", BUILD, str(big_file)], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("wait", [0.3, 1.0, 2.0])
def test_a_kill_leaves_nothing_that_could_be_taken_for_a_store(big_file: Path, wait: float) -> None:
    process = start(big_file)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(wait)
    process.kill()
    process.communicate()
    stores = cache_folder() / "stores"
    for folder in stores.glob("*") if stores.exists() else []:
        if not folder.name.startswith("."):
            TokenStore(folder).verify()
    output, _ = start(big_file).communicate(timeout=60)
    digest = output.split()[-1]
    TokenStore(stores / digest).verify()
    assert [folder.name for folder in stores.iterdir()] == [digest], "the killed writer's draft is still there"


def test_two_processes_build_the_same_one(big_file: Path) -> None:
    both = [start(big_file), start(big_file)]
    digests = {process.communicate(timeout=60)[0].split()[-1] for process in both}
    assert len(digests) == 1
    stores = cache_folder() / "stores"
    assert [folder.name for folder in stores.iterdir()] == list(digests)
    TokenStore(stores / digests.pop()).verify()


@pytest.mark.usefixtures("small_blocks")
def test_a_worker_that_is_killed_fails_the_run(words: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    request = workers.WorkerProcess.request

    def request_and_kill(self: workers.WorkerProcess, message: Message) -> Message:
        if self._is_ready:
            os.kill(self._process.pid, signal.SIGKILL)
        return request(self, message)

    monkeypatch.setattr(workers.WorkerProcess, "request", request_and_kill)
    with pytest.raises(WorkerError, match=r"killed.*fewer threads"):
        open_store(read_corpus(DOCUMENTS), words, threads=2)
    assert not list((cache_folder() / "stores").iterdir())


@pytest.mark.usefixtures("small_blocks")
def test_a_failing_worker_reports_the_reason(words: Tokenizer) -> None:
    blocks = read_corpus(DOCUMENTS).blocks()
    wrong = JobConfig("encode", words.recipe, "lines", b"not a tokenizer")
    with pytest.raises(WorkerError, match=r"tokenizer.json cannot be read"):
        list(workers.run_job(wrong, blocks, threads=2))
    unknown = JobConfig("dance", words.recipe, "lines")
    with pytest.raises(WorkerError, match="KeyError: 'dance'"):
        list(workers.run_job(unknown, read_corpus(DOCUMENTS).blocks(), threads=2))


def test_opening_reads_no_tokens(words: Tokenizer) -> None:
    """Only the sizes in store.json are checked: a store whose ids were all changed still opens."""
    store = open_store(read_corpus(DOCUMENTS), words)
    size = (store.folder / "ids.bin").stat().st_size
    (store.folder / "ids.bin").write_bytes(bytes(size))
    assert not TokenStore(store.folder).ids.any()
    assert json.loads((store.folder / "store.json").read_bytes())["tokens"] == len(store)
