"""The same text gives the same documents whatever it is packed in, and what is no text is refused."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.errors import CorpusError, EncodingError
from firth.text import readers
from firth.text.files import find_files
from firth.text.layout import RawDocument
from firth.text.readers import (
    MAX_LINE,
    file_encoding,
    read_blocks,
    read_documents,
    read_lines,
    require_text,
    split_document,
)

CHINESE = (
    "今天我们来谈一谈语言模型是怎么工作的，\n它为什么能够理解人们说的话。\n\n这是第二篇文章的第一行，\n还有第二行。\n"
)
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
Pieces = list[tuple[str, bool]]


def read(path: Path, **options: object) -> Pieces:
    """The (text, continues) of the documents of a file."""
    (source,) = find_files([path])
    documents = list(read_documents(source, **options))  # type: ignore[arg-type]
    assert {document.source for document in documents} <= {str(path)}
    return [(document.text, document.continues) for document in documents]


def expected(text: str, piece: int) -> Pieces:
    """What reading must give, written line by line."""
    documents: list[list[str]] = [[]]
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if line and not line.isspace():
            documents[-1].append(line)
        else:
            documents.append([])
    return [found for lines in documents for found in expected_pieces(lines, piece)]


def expected_pieces(lines: list[str], piece: int) -> Iterator[tuple[str, bool]]:
    continues = False
    while lines:
        count = 1
        while count < len(lines) and len("\n".join(lines[: count + 1])) <= piece:
            count += 1
        yield "\n".join(lines[:count]), continues
        lines, continues = lines[count:], True


def write_records(folder: Path, texts: list[str]) -> list[Path]:
    """The texts as records of JSONL and Parquet, in small row groups."""
    rows = [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts)]
    (folder / "a.jsonl").write_text("".join(row + "\n" for row in rows))
    table = pa.table({"id": list(range(len(texts))), "text": pa.array(texts, pa.large_string())})
    pq.write_table(table, folder / "a.parquet", row_group_size=3)
    return [folder / "a.jsonl", folder / "a.parquet"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "PIECE", 12)


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("", []),
        ("\n \n\t\n\u3000\n", []),
        ("one", ["one"]),
        ("one\ntwo\n\nthree\n", ["one\ntwo", "three"]),
        ("\n\n  one\n   \n\n two \n", ["  one", " two "]),
        ("one\r\ntwo\r\n\r\nthree", ["one\ntwo", "three"]),
        ("one\rtwo\r\rthree", ["one\ntwo", "three"]),
        ("a\u2028b\x0bc\x0cd\x85e\x1cf\n\u3000\ng", ["a\u2028b\x0bc\x0cd\x85e\x1cf", "g"]),
    ],
)
def test_blank_lines_part_documents(tmp_path: Path, text: str, documents: list[str]) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode())
    assert read(tmp_path / "a.txt") == [(document, False) for document in documents]


def test_long_documents_come_in_pieces(tmp_path: Path, small: None) -> None:
    (tmp_path / "a.txt").write_text("12345\n12345\n1234567\n1234567890123456\n12\n\n123456789012\n\nend")
    assert read(tmp_path / "a.txt") == [
        ("12345\n12345", False),
        ("1234567", True),
        ("1234567890123456", True),
        ("12", True),
        ("123456789012", False),
        ("end", False),
    ]


LINES = st.text(st.sampled_from(["a", "b", "中", "é", "𝄞", " ", "\t", "\u3000", "\u2028", "\x0b"]), max_size=9)
TEXTS = st.lists(st.tuples(LINES, st.sampled_from(["\n", "\n\n", "\r\n", "\r", "\n \n"])), max_size=12).map(
    lambda lines: "".join(line + end for line, end in lines)
)


@settings(deadline=None, max_examples=100)
@given(TEXTS, st.integers(4, 40), st.integers(1, 30))
def test_documents_do_not_depend_on_blocks_or_packing(text: str, block: int, piece: int) -> None:
    wanted = expected(text, piece)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_BLOCK", block)
        patch.setattr(readers, "PIECE", piece)
        path = Path(name) / "a.txt"
        for codec in ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "gb18030"):
            path.write_bytes(text.encode(codec))
            assert read(path, encoding=codec) == wanted
        for record in write_records(path.parent, [part for part, _ in expected(text, 1000)]):
            assert read(record) == wanted
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        path.write_bytes(text.encode())
        wanted_lines = lines[:-1] if lines[-1] == "" else lines
        assert list(read_lines(find_files([path])[0], encoding="utf-8")) == list(enumerate(wanted_lines))


@settings(deadline=None, max_examples=100)
@given(TEXTS, st.integers(4, 40), st.integers(1, 60))
def test_blocks_are_the_text_in_whole_lines(text: str, block: int, size: int) -> None:
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    wanted = (plain if not plain or plain.endswith("\n") else plain + "\n").encode()
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_BLOCK", block)
        path = Path(name) / "a.txt"
        for codec in ("utf-8", "utf-8-sig", "utf-16", "gb18030"):
            path.write_bytes(text.encode(codec))
            blocks = list(read_blocks(find_files([path])[0], encoding=codec, size=size))
            assert b"".join(blocks) == wanted
            assert all(one.endswith(b"\n") for one in blocks)
            assert max(map(len, blocks), default=0) < size + block + max(map(len, wanted.split(b"\n"))) + 2


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "gb18030"])
@pytest.mark.parametrize("suffix", PACK)
def test_encodings_and_packing_are_found_out(tmp_path: Path, codec: str, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](CHINESE.encode(codec)))
    assert read(path) == expected(CHINESE, 100)
    assert file_encoding(find_files([path])[0]) == codec.removesuffix("-sig")


@pytest.mark.parametrize("suffix", PACK)
def test_records_may_be_packed_and_in_any_encoding(tmp_path: Path, suffix: str) -> None:
    wanted = expected(CHINESE, 100)
    for path in write_records(tmp_path, [text for text, _ in wanted]):
        other = path.with_name("packed" + path.name + suffix)
        other.write_bytes(PACK[suffix](path.read_bytes()))
        assert read(other) == wanted
        assert file_encoding(find_files([other])[0]) == "utf-8"
    path = tmp_path / f"gb.jsonl{suffix}"
    path.write_bytes(PACK[suffix](json.dumps({"text": CHINESE}, ensure_ascii=False).encode("gb18030")))
    assert read(path) == [(CHINESE.replace("\n\n", "\n").strip(), False)]
    assert file_encoding(find_files([path])[0]) == "gb18030"


def test_blank_lines_mean_nothing_within_a_record(tmp_path: Path) -> None:
    for path in write_records(tmp_path, ["\n \n  one\r\n\n \ntwo\rthree \n\n", "", " \n", "four"]):
        assert read(path) == [("  one\ntwo\nthree ", False), ("four", False)]


def test_an_encoding_that_is_given_is_used(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("été".encode("latin-1"))
    assert read(path, encoding="ISO-8859-1") == [("été", False)]
    assert file_encoding(find_files([path])[0], "l1") == "latin-1"
    with pytest.raises(EncodingError, match="did you mean"):
        read(path, encoding="latin-3")


@pytest.mark.parametrize("block", [5, 1 << 18])
@pytest.mark.parametrize(
    ("data", "encoding", "message"),
    [
        (b"good text\n\xff\xfe more", "utf-8", "utf-8 at first, not at byte 10"),
        ("中文中文".encode() + b"\xed\xa0\x80", "utf-8", "utf-8 at first, not at byte 12"),
        ("中文".encode() + "中文".encode("gb18030"), "utf-8", "utf-8 at first, not at byte 6"),
        ("中文中文".encode("gb18030") + b"\xff", "gb18030", "gb18030 at first, not at byte 8"),
        ("中文".encode("big5") + b"\xff\xff", "big5", "big5 at first, not at byte 4"),
        ("中文".encode("utf-16") + b"\0\xdc", "utf-16", "utf-16 at first, not at byte 6"),
        ("中文".encode()[:-1], "utf-8", "utf-8 at first, not at byte 3"),
        ("é中\r\n\0".encode(), "utf-8", "NUL character (byte 7): remove it"),
        ("é中\r\n\0".encode("utf-16"), "utf-16", "NUL character (byte 10): remove it"),
        (b"text\0text", None, "looks like a binary file (byte 4 is NUL)"),
        ("text\0text".encode("utf-16-le"), None, "NUL character (byte 8): remove it"),
    ],
)
def test_what_is_not_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, encoding: str | None, message: str, block: int
) -> None:
    if encoding:
        monkeypatch.setattr(readers, "_BLOCK", block)
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(EncodingError) as caught:
        read(tmp_path / "a.txt", encoding=encoding)
    assert message in str(caught.value)
    assert "a.txt" in str(caught.value)


@pytest.mark.parametrize("later", ["utf-8", "cp950"])
def test_an_encoding_that_changes_late_is_refused(tmp_path: Path, later: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes((CHINESE * 3000).encode("gb18030") + ("這是繁體中文的第一行，\n" * 20_000).encode(later))
    with pytest.raises(EncodingError, match=r"a\.txt seems to mix encodings \(gb18030 at first.*pass encoding"):
        read(path)


@pytest.mark.parametrize("block", [5, 1 << 18])
@pytest.mark.parametrize(("text", "line"), [("x" * 31, 1), ("a\n\n" + "x" * 31 + "\nb", 3), ("a\r\n" + "x" * 99, 2)])
def test_a_line_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int, block: int
) -> None:
    monkeypatch.setattr(readers, "_BLOCK", block)
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(CorpusError, match=rf"line {line} of .*a\.txt is longer than 30 characters: break it.*fold -s"):
        read(tmp_path / "a.txt", max_line=30)
    assert "".join(part for part, _ in read(tmp_path / "a.txt", max_line=99)).count("x") == text.count("x")


@pytest.mark.parametrize("block", [5, 1 << 18])
def test_a_line_too_long_is_refused_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(readers, "_BLOCK", block)
    monkeypatch.setattr(readers, "MAX_LINE", 30)
    path = tmp_path / "a.txt"
    path.touch()
    (source,) = find_files([path])
    for text in ("a\n" + "x" * 31, "a\n" + "x" * 500, "a\r\n" + "中" * 31 + "\nb"):
        path.write_bytes(text.encode())
        with pytest.raises(CorpusError, match=r"line 2 of .*a\.txt is longer than 30 characters: break it.*fold -s"):
            list(read_blocks(source, encoding="utf-8", size=20))
    text = "中" * 30 + "\n" + "x" * 30 + "\n"
    path.write_bytes(text.encode())
    assert b"".join(read_blocks(source, encoding="utf-8", size=20)) == text.encode()


def test_a_line_too_long_in_a_record_is_refused(tmp_path: Path) -> None:
    jsonl, parquet = write_records(tmp_path, ["short", "short\n" + "x" * 50])
    with pytest.raises(CorpusError, match=r"line 2 of .*a\.jsonl is longer than 40 characters: split the record"):
        read(jsonl, max_line=40)
    with pytest.raises(CorpusError, match=r"row 2 of .*a\.parquet holds a line longer than 40 characters"):
        read(parquet, max_line=40)


@pytest.mark.parametrize("suffix", ["", ".zst"])
def test_a_huge_line_is_refused_in_little_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](b"x" * 200_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match=f"line 1 .* longer than {MAX_LINE:,} characters"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 8 * MAX_LINE
        with pytest.raises(CorpusError, match=f"line 1 .* longer than {MAX_LINE:,} characters"):
            next(read_blocks(find_files([path])[0], size=1 << 20))
        assert tracemalloc.get_traced_memory()[1] < 12 * MAX_LINE
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"A line of some text in one long document.\n" * 1_000_000)
    (source,) = find_files([path])
    tracemalloc.start()
    try:
        count = sum(len(document.text) + 1 for document in read_documents(source))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert count == path.stat().st_size


def test_memory_does_not_grow_with_a_row_group(tmp_path: Path) -> None:
    texts = [random.Random(number).randbytes(500).hex() for number in range(20_000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", use_dictionary=False, row_group_size=len(texts))
    before = pa.total_allocated_bytes()
    (source,) = find_files([tmp_path / "a.parquet"])
    peak = max(pa.total_allocated_bytes() for _ in read_documents(source))
    assert source.path.stat().st_size > 10_000_000
    assert peak - before < 5_000_000


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        (
            '{"id": 1, "txt": "x"}',
            CorpusError,
            "has no field 'text' but id, txt; name the one with the text by field",
        ),
        ('{"id": 1, "txt": "x"}', CorpusError, "did you mean 'txt'?"),
        ("{}", CorpusError, "has no fields"),
        ('{"text": 3}', CorpusError, "has no text but int in 'text'"),
        ('{"text": null}', CorpusError, "has no text but null in 'text'"),
        ('{"text": "x"', CorpusError, "is not JSON (Expecting ',' delimiter, column 13)"),
        ('["text"]', CorpusError, "is not a JSON object"),
        ("[" * 100_000, CorpusError, "cannot be read as JSON"),
        ('{"text": ' + "9" * 5000 + "}", CorpusError, "cannot be read as JSON"),
        ('{"text": "a\\ud800"}', EncodingError, "holds half of a surrogate pair (character 1)"),
        ('{"text": "ab\\u0000"}', EncodingError, "holds a NUL character (character 2)"),
    ],
)
def test_bad_records_are_refused(tmp_path: Path, line: str, error: type[CorpusError], message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n\n' + line + "\n")
    with pytest.raises(error) as caught:
        read(path)
    assert f"line 3 of {path} " in str(caught.value)
    assert message in str(caught.value)


def test_the_field_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": 1, "body": "here"}\n')
    assert read(tmp_path / "a.jsonl", field="body") == [("here", False)]
    pq.write_table(pa.table({"text": [1], "body": ["here"]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", field="body") == [("here", False)]


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        ({"txet": ["x"]}, CorpusError, "has no field 'text' but txet; name the one with the text by field"),
        ({"text": [1]}, CorpusError, "the column 'text' of .* holds int64, not text: choose another with field"),
        ({"text": ["x", None]}, CorpusError, "row 2 of .* has no text but null"),
        ({"text": ["x", "\0"]}, EncodingError, "row 2 of .* holds a NUL character"),
        ({"text": pa.array([b"x", b"\xff"]).view(pa.string())}, EncodingError, "row 2 of .* is not UTF-8"),
    ],
)
def test_bad_columns_are_refused(
    tmp_path: Path, column: dict[str, object], error: type[CorpusError], message: str
) -> None:
    pq.write_table(pa.table(column), tmp_path / "a.parquet")
    with pytest.raises(error, match=message):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_damaged_parquet_is_refused(tmp_path: Path, suffix: str) -> None:
    *_, path = write_records(tmp_path, ["some text"] * 100)
    whole = path.read_bytes()
    bad = tmp_path / f"bad.parquet{suffix}"
    for data in (b"", b"no Parquet", whole[:-10], whole[: len(whole) // 2], whole[:-30] + bytes(30)):
        bad.write_bytes(PACK[suffix](data))
        with pytest.raises(CorpusError, match=r"bad\.parquet.* is damaged Parquet .*: fetch or write it again"):
            read(bad)


def test_lines_need_plain_text(tmp_path: Path) -> None:
    for path in write_records(tmp_path, ["x"]):
        with pytest.raises(CorpusError, match="is not plain text: give a file with one text a line"):
            read_lines(find_files([path])[0])


def test_documents_from_elsewhere_are_checked_and_cut(small: None) -> None:
    assert [piece.text for piece in split_document("12345\n12345\n123", "x")] == ["12345\n12345", "123"]
    assert list(split_document(" \n", "x")) == []
    assert list(split_document("end", "x", continues=True)) == [RawDocument("end", "x", True)]
    with pytest.raises(EncodingError, match="item 3 holds half of a surrogate pair"):
        require_text("\udfff", "item 3")


@pytest.mark.shared
@pytest.mark.parametrize(("name", "count"), [("wiki_zh", 19_081), ("wiki_en", 22_655), ("wikinews_en", 13_188)])
def test_real_documents_are_counted(shared_data: Path, name: str, count: int) -> None:
    found = read(shared_data / "lm" / f"{name}.txt.gz")
    assert len(found) == count
    assert not any(continues for _, continues in found)


@pytest.mark.shared
def test_real_text_is_the_same_however_packed(shared_data: Path, tmp_path: Path) -> None:
    text = gzip.decompress((shared_data / "lm/wiki_zh.txt.gz").read_bytes()).decode()[:1_500_000]
    wanted = expected(text, readers.PIECE)
    for codec in ("utf-8-sig", "utf-16", "utf-16-be", "gb18030"):
        (tmp_path / "a.txt.zst").write_bytes(zstandard.compress(text.encode(codec)))
        assert read(tmp_path / "a.txt.zst") == wanted
    for path in write_records(tmp_path, [document for document, _ in wanted]):
        assert read(path) == wanted
