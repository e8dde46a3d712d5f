"""Small files that expand to huge texts are refused in bounded memory, with the switch that allows them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from firth.errors import CorpusError
from firth.tasks.readers.reader import read_task
from firth.text import files
from firth.text.corpus import read_corpus
from firth.text.parquet_pages import read_pages

REFUSED = r"expands to over .* bytes.*: .*unpack it first or set FIRTH_MAX_EXPANSION to a larger factor than 100"
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need not expand 64 MB."""
    monkeypatch.setattr(files, "_ALWAYS_EXPANDED", 1 << 17)


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_compressed_text(tmp_path: Path, suffix: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"text": "the cat sat"}\n' if name == "a.jsonl" else b"the cat sat\n"
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(PACK[suffix](15_000 * line))
    with pytest.raises(CorpusError, match=REFUSED):
        list(read_corpus(path).blocks())
    monkeypatch.setenv("FIRTH_MAX_EXPANSION", "100000")
    assert sum(1 for _ in read_corpus(path, layout="lines").sentences()) == 15_000


def test_text_that_is_compressed_as_usual_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("".join(f"line {number} of many\n" for number in range(50_000)).encode()))
    assert sum(1 for _ in read_corpus(path, layout="lines").sentences()) == 50_000


def test_compressed_questions(tmp_path: Path) -> None:
    """The reader of SQuAD's JSON has the whole file in memory."""
    paragraph = {"context": "the cat saw a cat " * 10_000, "qas": []}
    path = tmp_path / "squad.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"data": [{"paragraphs": [paragraph] * 100}]}).encode()))
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match=REFUSED):
            list(read_task("span", path))
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()


def repeated_text(path: Path, characters: int, rows: int, compression: str = "zstd") -> None:
    """A Parquet file of one text in each of many rows, which it stores once."""
    indices = pa.array([0] * rows, type=pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["the cat sat " * (characters // 12)]))
    schema = pa.schema([pa.field("text", column.type)])
    pq.write_table(pa.table([column], schema=schema), path, compression=compression, store_schema=False)


def test_parquet_that_repeats_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    repeated_text(path, 1_200_000, 3000)
    monkeypatch.setattr(files, "_ALWAYS_EXPANDED", 1 << 24)
    assert path.stat().st_size < 3000
    before = pa.total_allocated_bytes()
    documents = read_corpus(path).raw_documents()
    sizes = []
    with pytest.raises(CorpusError, match=REFUSED):
        for document in documents:
            sizes.append(len(document.text))
            assert pa.total_allocated_bytes() - before < 30_000_000
    assert sum(sizes) > 10_000_000


def test_parquet_with_a_large_page(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = ["the cat sat " * 50_000 + str(number) for number in range(5)]
    pq.write_table(pa.table({"text": texts}), path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 10_000
    with pytest.raises(CorpusError, match=REFUSED):
        read_corpus(path)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_page_sizes_are_those_of_the_pages(tmp_path: Path, version: str, use_dictionary: bool) -> None:
    """By their own headers, which need not agree with the footer; that of a file by pyarrow does."""
    texts = [f"text {number % 50} " * 20 + "é" * 3000 for number in range(500)]
    pq.write_table(
        pa.table({"id": list(range(500)), "text": texts}),
        tmp_path / "a.parquet",
        compression="gzip",
        data_page_version=version,
        use_dictionary=use_dictionary,
        data_page_size=10_000,
        row_group_size=200,
        write_batch_size=10,
    )
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    declared = sum(metadata.row_group(index).column(1).total_uncompressed_size for index in range(3))
    with open(tmp_path / "a.parquet", "rb") as file:
        pages = list(read_pages(file, "text"))
        assert not list(read_pages(file, "other"))
    headers = declared - sum(page.size for page in pages)
    assert 0 < headers < 30_000 * len(pages)
    assert len(pages) >= (6 if use_dictionary else 20)
    assert sum(page.is_dictionary for page in pages) == 3 * use_dictionary


@pytest.mark.parametrize("rows", [1, 255, 256, 2000])
def test_dictionaries_of_parquet_change_no_text(tmp_path: Path, rows: int) -> None:
    """Some values repeat; with many different ones, the file gives up its dictionary in the middle."""
    texts = [f"text {number % 7}" if number % 3 else 9 * f"one of {number}," for number in range(rows)]
    options = {"row_group_size": 700, "dictionary_pagesize_limit": 4000, "data_page_size": 2000}
    pq.write_table(pa.table({"text": texts, "id": list(range(rows))}), tmp_path / "a.parquet", **options)
    read = [document.text for document in read_corpus(tmp_path / "a.parquet").raw_documents()]
    assert read == texts


@pytest.mark.parametrize("value", ["many", "-1", "1.5", "9" * 30])
def test_a_wrong_factor_is_refused(tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"the cat sat\n"))
    monkeypatch.setenv("FIRTH_MAX_EXPANSION", value)
    with pytest.raises(CorpusError, match=r"FIRTH_MAX_EXPANSION=.* must be a whole number"):
        read_corpus(path)
