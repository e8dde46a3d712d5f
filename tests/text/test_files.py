"""Files are found in a fixed order, and opened whatever they are packed in, or refused with the reason."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard

from firth.errors import CorpusError
from firth.text.files import Compression, CorpusFile, find_files, open_bytes, open_seekable

TEXT = "".join(f"Line {number}, and 一些中文。\n" for number in range(20_000)).encode()
PACK: dict[Compression, Callable[[bytes], bytes]] = {
    "gz": partial(gzip.compress, mtime=0),  # bytes stand in the names of tests, which must be the same for all workers
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.compress,
}


def packed(path: Path, compression: Compression, data: bytes) -> CorpusFile:
    path.write_bytes(data)
    return CorpusFile(path, path.name, "text", compression)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of all kinds, and some that are no text."""
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    for name in ("b.txt", "a.md", "B.TXT.GZ", "c.jsonl.zst", "sub/a.parquet", "sub/deep/z.ndjson.bz2", "sub/q.text.xz"):
        (tmp_path / name).write_bytes(b"x")
    for name in ("image.png", "data.json", "table.tsv", "archive.gz", ".secret.txt", ".hidden/a.txt"):
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def test_a_folder_gives_its_texts_in_order(folder: Path) -> None:
    found = find_files([folder])
    assert [source.path.relative_to(folder).as_posix() for source in found] == [
        "B.TXT.GZ",
        "a.md",
        "b.txt",
        "c.jsonl.zst",
        "sub/a.parquet",
        "sub/deep/z.ndjson.bz2",
        "sub/q.text.xz",
    ]
    assert [(source.format, source.compression) for source in found] == [
        ("text", "gz"),
        ("text", ""),
        ("text", ""),
        ("jsonl", "zst"),
        ("parquet", ""),
        ("jsonl", "bz2"),
        ("text", "xz"),
    ]


def test_a_named_file_may_have_any_suffix(folder: Path) -> None:
    assert find_files([str(folder / "table.tsv")]) == [
        CorpusFile(folder / "table.tsv", str(folder / "table.tsv"), "text", "")
    ]
    assert find_files([folder / "archive.gz"])[0].compression == "gz"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.txt", ["b.txt"]),
        ("?.??", ["a.md"]),
        ("[ab].txt", ["b.txt"]),
        ("sub/*", ["a.parquet", "q.text.xz"]),
        ("**/*.xz", ["q.text.xz"]),
    ],
)
def test_globs(folder: Path, pattern: str, names: list[str]) -> None:
    assert [source.path.name for source in find_files([str(folder / pattern)])] == names


def test_a_file_with_the_characters_of_a_glob_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("x")
    (tmp_path / "a1.txt").write_text("x")
    assert [source.path.name for source in find_files([tmp_path / "a[1].txt"])] == ["a[1].txt"]


def test_a_file_named_twice_is_kept_once(folder: Path) -> None:
    (folder / "link.txt").symlink_to(folder / "b.txt")
    found = find_files([folder / "b.txt", folder / "a.md", str(folder / "*.txt"), folder / "sub" / ".." / "b.txt"])
    assert [source.path.name for source in found] == ["b.txt", "a.md"]


def test_names_can_be_printed(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"\xff.txt")
    with open(path, "wb") as file:
        file.write(b"x")
    assert find_files([tmp_path])[0].name == f"{tmp_path}/\ufffd.txt"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "'' is not a path"),
        ("a\0b", "is not a path"),
        ("corpus.tx", "did you mean 'corpus.txt'?"),
        ("nothing-like-it", "check the path"),
        ("nowhere/x.txt", "nor such a folder"),
        ("corpus.txt/x.txt", "nor such a folder"),
        ("*.csv", "no file matches"),
        ("empty", "no text in the folder"),
        ("x" * 5000, "cannot read"),
        ("pipe", "not a regular file"),
    ],
)
def test_what_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError) as caught:
        find_files([name])
    assert message in str(caught.value)


def test_an_unreadable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(CorpusError, match=r"may not read .*a\.txt: change its permissions"):
        find_files([path])


def test_an_unreadable_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(CorpusError, match=r"cannot look into .*Permission denied"):
        find_files([tmp_path])


@pytest.mark.parametrize("gone", [True, False])
def test_a_file_that_vanished_or_is_a_folder_is_an_error(tmp_path: Path, gone: bool) -> None:
    source = CorpusFile(tmp_path / "a.txt" if gone else tmp_path, "a.txt")
    with pytest.raises(CorpusError, match=r"cannot read a\.txt"):
        open_bytes(source)


def test_plain_bytes(tmp_path: Path) -> None:
    with open_bytes(packed(tmp_path / "a.txt", "", TEXT)) as stream:
        assert stream.read(10) == TEXT[:10]
        assert stream.read() == TEXT[10:]


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("parts", [1, 3])
def test_compressed_bytes(tmp_path: Path, compression: Compression, parts: int) -> None:
    size = len(TEXT) // parts + 1
    data = b"".join(PACK[compression](TEXT[start : start + size]) for start in range(0, len(TEXT), size))
    with open_bytes(packed(tmp_path / "a", compression, data)) as stream:
        assert stream.read(100_000) == TEXT[:100_000]
        assert stream.read() == TEXT[100_000:]
        assert stream.read() == b""


def test_frames_of_zstd_that_hold_no_text_are_skipped(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    data = skippable + zstandard.compress(b"one ") + skippable + zstandard.compress(b"two") + skippable
    with open_bytes(packed(tmp_path / "a", "zst", data)) as stream:
        assert stream.read() == b"one two"


@pytest.mark.parametrize("compression", PACK)
def test_truncated_data_is_an_error(tmp_path: Path, compression: Compression) -> None:
    data = PACK[compression](TEXT)
    for size in (20, len(data) // 2, len(data) - 1):
        source = packed(tmp_path / "cut.txt", compression, data[:size])
        with (
            open_bytes(source) as stream,
            pytest.raises(CorpusError, match=r"cut\.txt is damaged \(it ends too early\): fetch"),
        ):
            stream.read()


@pytest.mark.parametrize("compression", PACK)
def test_damaged_data_is_an_error(tmp_path: Path, compression: Compression) -> None:
    data = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    data = data if compression == "zst" else bytearray(PACK[compression](TEXT))
    data[len(data) // 2] ^= 0x10
    with (
        open_bytes(packed(tmp_path / "bad.txt", compression, bytes(data))) as stream,
        pytest.raises(CorpusError, match=r"bad\.txt is damaged"),
    ):
        stream.read()


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("data", [b"just some text", b""])
def test_a_suffix_that_lies_is_an_error(tmp_path: Path, compression: Compression, data: bytes) -> None:
    with pytest.raises(CorpusError, match=f"a.txt is not the .{compression} file that its name says"):
        open_bytes(packed(tmp_path / "a.txt", compression, data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        *((pack(b"x"), f"is compressed: add .{compression} to its name") for compression, pack in PACK.items()),
        (bz2.compress(b""), "is compressed: add .bz2 to its name"),
        (b"PK\x03\x04rest", "is a zip archive: unpack it first"),
        (b"%PDF-1.7\n", "is a PDF: convert it to text first"),
    ],
)
def test_a_missing_suffix_is_an_error(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(CorpusError) as caught:
        open_bytes(packed(tmp_path / "a.txt", "", data))
    assert str(caught.value) == f"a.txt {message}."


@pytest.mark.parametrize("compression", PACK)
def test_memory_is_bounded_whatever_is_unpacked(tmp_path: Path, compression: Compression) -> None:
    source = packed(tmp_path / "a.txt", compression, PACK[compression](bytes(100_000_000)))
    tracemalloc.start()
    try:
        with open_bytes(source) as stream:
            assert len(stream.read(1 << 20)) == 1 << 20
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", ["", *PACK])
def test_a_file_can_be_read_in_any_order(tmp_path: Path, compression: Compression) -> None:
    data = PACK[compression](TEXT) if compression else TEXT
    source = packed(tmp_path / "a.parquet", compression, data)
    with open_seekable(source) as file:
        if isinstance(file, Path):
            assert compression == ""
            assert file.read_bytes() == TEXT
        else:
            file.seek(1000)
            assert file.read(10) == TEXT[1000:1010]


def test_no_space_for_decompression_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    opening = open_seekable(packed(tmp_path / "a.parquet", "gz", gzip.compress(TEXT)))
    with pytest.raises(CorpusError, match=r"cannot unpack a\.parquet .*No space left on device.*TMPDIR"):
        opening.__enter__()
