"""Tables of word vectors are exported and imported bit by bit; errors name the line and the fault."""

from __future__ import annotations

import gzip
import math
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firth.artifact.folder import open_artifact
from firth.artifact.formats import FORMATS, export_model, import_model
from firth.artifact.formats.vectors import VectorTable, nearest_float32, read_vectors, write_binary, write_text
from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError, FirthError, OutputError
from firth.vectors.model import VectorModel
from tests.artifact.formats.small_vectors import SPECIALS, TEXT, WORDS, plain_model, write
from tests.command import firth


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("vectors")


HARD = [0.0, -0.0, 1e-45, -1.17549421e-38, 3.4028235e38, 1.0, 16777216.0, 0.1, -2.5e-5, 123456.79, 9.9999998e-6, 1e9]


def bits(array: Any) -> Any:
    return np.asarray(array, dtype=np.float32).view(np.uint32).tolist()


def read(folder: Path, data: str | bytes, *, header: bool = True) -> VectorTable:
    return read_vectors(write(folder, data), header=header)


@pytest.mark.parametrize(
    ("style", "name"),
    [
        ("word2vec", "m.bin"),
        ("word2vec", "m.bin.gz"),
        ("word2vec", "m.txt"),
        ("word2vec", "m.vec.gz"),
        ("glove", "m.txt"),
        ("glove", "m.txt.gz"),
        ("fasttext", "m.vec"),
    ],
)
def test_a_round_trip_bit_by_bit(style: str, name: str, tmp_path: Path) -> None:
    rows = np.resize(np.array(HARD, dtype=np.float32), (len(WORDS), 5))
    model = plain_model(rows)
    report = export_model(model, style, tmp_path / name)
    assert (report["vocabulary"], report["dimension"]) == (len(WORDS), 5)
    assert report.get("binary", False) == (".bin" in name)
    report = import_model(style, tmp_path / name, tmp_path / "back")
    assert "duplicates" not in report
    back = load(tmp_path / "back")
    assert isinstance(back, VectorModel)
    assert back.words == [*SPECIALS, *WORDS]
    assert bits(back.vectors) == bits(model.vectors)
    assert (back.counts, back.recipe.source) == (None, style)
    assert bits(back.vector("naïve")) == bits(rows[2])
    assert "naïve" not in [word for word, _ in back.similar("naïve", 3)]
    manifest = open_artifact(tmp_path / "back").manifest
    assert (manifest.kind, manifest.name, manifest.corpus["imported"]) == ("vectors", "imported", name)


def test_text_is_as_other_programs_write_it(tmp_path: Path) -> None:
    model = plain_model([[0.5, -1.0], [1e-3, 2.25], [3.0, 4e-20]], ["the", "cat", "dog"])
    export_model(model, "word2vec", tmp_path / "m.txt")
    assert (tmp_path / "m.txt").read_text() == "3 2\nthe 0.5 -1\ncat 0.001 2.25\ndog 3 4e-20\n"
    export_model(model, "glove", tmp_path / "m.glove")
    assert (tmp_path / "m.glove").read_text() == "the 0.5 -1\ncat 0.001 2.25\ndog 3 4e-20\n"
    export_model(model, "word2vec", tmp_path / "m.bin")
    floats = np.array([0.5, -1.0], dtype="<f4").tobytes()
    assert (tmp_path / "m.bin").read_bytes().startswith(b"3 2\nthe " + floats + b"\ncat ")


def test_tables_larger_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.artifact.formats.input_file._BLOCK", 1000)
    monkeypatch.setattr("firth.artifact.formats.vectors._BLOCK", 200)
    rows = np.random.default_rng(3).normal(size=(500, 7)).astype(np.float32)
    words = [f"word{number}".encode() for number in range(500)]
    write_text(tmp_path / "t", words, rows, header=True)
    write_binary(tmp_path / "b", words, rows)
    for name in ("t", "b"):
        found = read_vectors(tmp_path / name, header=True)
        assert bits(found.vectors[len(SPECIALS) :]) == bits(rows)
        assert [word.encode() for word in found.words] == words


floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=200)
@given(st.lists(floats32, min_size=1, max_size=20))
@example(HARD)
def test_digits_are_the_fewest_that_restore_a_number(folder: Path, numbers: list[float]) -> None:
    rows = np.array([numbers], dtype=np.float32)
    write_text(folder / "one", [b"w"], rows, header=False)
    fields = (folder / "one").read_text().split()[1:]
    assert bits(read_vectors(folder / "one", header=False).vectors[-1]) == bits(rows[0])
    for field, number in zip(fields, rows[0], strict=True):
        if abs(number) > 2e-38:  # below that all nine are written
            assert len(_digits(field)) <= len(_digits(str(number)))
        assert bits(np.float32(float(field))) == bits(number)


def _digits(text: str) -> str:
    return text.lower().partition("e")[0].replace(".", "").replace("-", "").strip("0")


@settings(max_examples=200)
@given(st.lists(st.decimals("-3e38", "3e38", allow_nan=False), min_size=1, max_size=10))
def test_numbers_round_to_the_nearest(folder: Path, numbers: list[Any]) -> None:
    texts = [str(number) for number in numbers if len(str(number)) < 100] or ["1"]
    path = write(folder, "w " + " ".join(texts) + "\n")
    assert bits(read_vectors(path, header=False).vectors[-1]) == bits([nearest_float32(text) for text in texts])


@pytest.mark.parametrize("base", [1.0, 0.1, 3e-20, 5e30, 2.0**-126, 1e-40])
def test_numbers_between_two_go_to_the_nearer_one(base: float, tmp_path: Path) -> None:
    low = np.float32(base)
    high = np.nextafter(low, np.float32(np.inf))
    middle = (Fraction(float(low)) + Fraction(float(high))) / 2
    even = low if int(low.view(np.uint32)) % 2 == 0 else high
    tiny = Fraction(1, 10**60) * middle
    for exact, nearest in [(middle, even), (middle - tiny, low), (middle + tiny, high)]:
        text = _spell(exact)
        if exact == middle and Fraction(text) != middle:
            continue  # its digits are too many
        assert nearest_float32(text) == nearest
        path = write(tmp_path, f"w {text} {text}\n")
        assert bits(read_vectors(path, header=False).vectors[-1]) == bits([nearest, nearest])


def _spell(number: Fraction) -> str:
    """A positive number with 90 digits."""
    exponent = math.floor(math.log10(float(number)))
    return f"{round(number * Fraction(10) ** (89 - exponent))}e{exponent - 89}"


@pytest.mark.parametrize(
    "text",
    [
        "3 2\r\nthe 0.5 -1\r\ncat 1e-3 2.25\r\ndog 3 4",
        "\ufeff3 2\nthe 0.5 -1\ncat 1e-3 2.25\ndog 3 4\n",
        "3 2\nthe 0.5 -1 \ncat 1e-3 2.25 \n\ndog 3 4 \n\n",
        "3\t2\nthe\t0.5\t-1\ncat\t1e-3\t2.25\ndog\t3\t4\n",
        " 3 2 \n the  .5  -1.\n cat +0.001 2.25E0\n dog 3e0 0.04e+2\n",
    ],
)
def test_reads_what_programs_write(text: str, tmp_path: Path) -> None:
    found = read(tmp_path, text)
    assert found.words == ["the", "cat", "dog"]
    assert bits(found.vectors[5:]) == bits([[0.5, -1.0], [1e-3, 2.25], [3.0, 4.0]])
    assert not found.vectors[:5].any()
    assert (found.duplicates, found.left_out) == (0, [])


def test_words_may_have_spaces_in_them(tmp_path: Path) -> None:
    text = "the 0.5 -1\n. . . 1 2\nat name@domain.com 3 4\n\u00a0 7 8\n"
    assert read(tmp_path, text, header=False).words == ["the", ". . .", "at name@domain.com", "\u00a0"]


def test_tables_without_a_first_line(tmp_path: Path) -> None:
    rows = TEXT.partition("\n")[2]
    assert read(tmp_path, rows, header=False).words == ["the", "cat", "dog"]
    assert read(tmp_path, TEXT, header=False).words == ["the", "cat", "dog"]
    assert read(tmp_path, "\ufeff" + rows, header=False).words == ["the", "cat", "dog"]
    assert read(tmp_path, "5 3\n6 7\n", header=False).words == ["5", "6"]
    with pytest.raises(
        ArtifactError,
        match=r"line 1: expected the numbers .* found 'the 0.5 -1'; .* firth\.import_\('glove', \.\.\.\)\.",
    ):
        read(tmp_path, rows)


def test_the_first_of_equal_words_counts(tmp_path: Path) -> None:
    path = write(tmp_path, "5 1\nthe 1\ncat 2\nthe 3\n<unk> 4\n</s> 5\n")
    report = import_model("word2vec", path, tmp_path / "m")
    assert report["duplicates"] == 1
    assert report["left_out"] == ["<unk>", "</s>"]
    assert report["vocabulary"] == 2
    model = load(tmp_path / "m")
    assert model.vectors.tolist() == [[0], [0], [0], [0], [0], [1], [2]]
    assert open_artifact(tmp_path / "m").manifest.metrics["duplicates"] == 1


def test_content_decides_between_text_and_binary(tmp_path: Path) -> None:
    model = plain_model()
    export_model(model, "word2vec", tmp_path / "m.bin")
    export_model(model, "word2vec", tmp_path / "m.txt")
    (tmp_path / "m.bin").rename(tmp_path / "swap")
    (tmp_path / "m.txt").rename(tmp_path / "m.bin")
    (tmp_path / "swap").rename(tmp_path / "m.txt")
    for name in ("m.bin", "m.txt"):
        assert bits(read_vectors(tmp_path / name, header=True).vectors) == bits(model.vectors)
    for columns in (1, 2, 3):
        rows = np.random.default_rng(columns).normal(size=(30, columns)).astype(np.float32)
        write_binary(tmp_path / "small", [b"word%d" % row for row in range(30)], rows)
        assert bits(read_vectors(tmp_path / "small", header=True).vectors[5:]) == bits(rows)


def test_rows_of_a_binary_need_no_line_ends(tmp_path: Path) -> None:
    one, two = (np.array(row, dtype="<f4").tobytes() for row in ([1, 2], [3, 4]))
    for between, end in [(b"", b""), (b"\n", b"\n"), (b"\n", b"")]:
        found = read(tmp_path, b"2 2\nthe " + one + between + b"cat " + two + end)
        assert found.words == ["the", "cat"]
        assert found.vectors[5:].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cat 1e-3 2.25", "cat nan 2.25", "line 3: 'nan' is not a number, one of 2"),
        ("cat 1e-3 2.25", "cat 1e-3 inf", "line 3: 'inf' is not a number"),
        ("cat 1e-3 2.25", "cat 1e-3 -inf", "line 3: '-inf' is not a finite float32"),
        ("cat 1e-3 2.25", "cat 1e-3 1e39", "line 3: '1e39' is not a finite float32"),
        ("cat 1e-3 2.25", "cat 1e-3 1_0", "line 3: '1_0' is not a number"),
        ("cat 1e-3 2.25", "cat 1e-3 0." + "0" * 200, "line 3: '0.000"),
        ("cat 1e-3 2.25", "cat 1e-3", "line 3: it must have a word and 2 numbers"),
        ("cat 1e-3 2.25", "1e-3 2.25", "line 3: it must have a word and 2 numbers"),
        ("cat 1e-3 2.25", "cat 1e-3 2.25 7.5", "line 3: it has more than 2 numbers"),
        ("cat 1e-3 2.25", "cat 1 1e-3 2.25", "line 3: it has more than 2 numbers"),
        ("cat 1e-3 2.25", "cat 1 2.25\0", "line 3: it holds a zero byte"),
        ("cat 1e-3 2.25", "cat 1 \r2.25", "line 3: it holds a zero byte or a stray carriage return"),
        ("dog 3 4\n", "", "the file ends after 2 words where line 1 declares 3"),
        ("dog 3 4\n", "dog 3 4\npig 5 6\n", "line 5: this is one word more than the 3"),
        ("3 2\n", "1000000000000 2\n", "line 1: it declares 1000000000000 words of 2 numbers, more than the file"),
        ("3 2\n", f"{10**29} 2\n", "more than the file can hold"),
        ("3 2\n", "100 2\n", "line 1: it declares 100 words of 2 numbers, more than the file can hold"),
        ("3 2\n", "3 1000000000000\n", "line 1: Firth reads up to 10000 dimensions, not 1000000000000"),
        ("3 2\n", "0 2\n", "line 1: it declares 0 words of 2 numbers, an empty table"),
        ("3 2\n", "3 0\n", "an empty table"),
        ("3 2\n", "3 3\n", "line 2: it must have a word and 3 numbers"),
        ("3 2\n", "3 1\n", "line 2: it has more than 1 numbers"),
        ("3 2\n", "-3 2\n", "line 1: expected the numbers of words and dimensions, found '-3 2'"),
        ("cat", "<s>", None),
    ],
)  # fmt: skip
def test_the_error_names_fault_and_line(old: str, new: str, message: str | None, tmp_path: Path) -> None:
    assert TEXT.count(old) == 1
    path = write(tmp_path, TEXT.replace(old, new))
    if message is None:
        assert read_vectors(path, header=True).left_out == ["<s>"]
        return
    with pytest.raises(ArtifactError) as caught:
        read_vectors(path, header=True)
    assert str(caught.value).startswith(f"{path}, ")
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")


ROW = np.array([1.0, 2.0], dtype="<f4").tobytes()
NAN = np.array([1.0, np.nan], dtype="<f4").tobytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1: the file is empty"),
        (b" \n\n", "line 1: the file is empty"),
        (b"2 2\nthe " + ROW + b"\ncat " + ROW[:5], "row 2: the file ends here where line 1 declares 2 words"),
        (b"2 2\nthe " + ROW + b"\ncat " + NAN, "row 2: the vector of 'cat' holds NaN or infinity"),
        (b"2 2\nthe " + ROW + b"\nc\xff " + ROW, "row 2: the word 'c\ufffd' is not UTF-8"),
        (b"2 2\nthe " + ROW + b"\n " + ROW + b"\n\n", "row 2: it has no word"),
        (b"2 2\nthe " + ROW + b"\nc\0t " + ROW, "row 2: it has no word, or one with a zero byte"),
        (b"1 2\nthe " + ROW + b"\ncat " + ROW, "row 2: other bytes follow after the 1 words"),
        (b"3 2\nthe " + ROW + b"\ncat " + ROW, "row 3: the file ends here where line 1 declares 3 words"),
        (b"1000000000000 2\nthe " + ROW, "line 1: it declares 1000000000000 words of 2 numbers, more than the file"),
        (b"2 2\n" + b"\x00\xff" * 40_000, "row 1: no word ends within 65536 bytes"),
        (b"2 1\nthe 1\nc\xe9t 2\n", "line 3: the word 'c\ufffdt' is not UTF-8"),
        (b"1 1\n<unk> 1\n", "last line: the file has no words besides special tokens"),
        (b"2 1\na 1 " + b"1 " * (1 << 20) + b"\nb 1", "line 2: it is longer than 1048576 bytes"),
        (gzip.compress(TEXT.encode())[:-9], "is a damaged gzip file"),
        (b"PK\x03\x04zip", "is a zip archive: unpack it"),
        ((793712314).to_bytes(4, "little") + b"\0" * 50, "import it with firth.import_('fasttext'"),
    ],
    ids=range(17),
)  # fmt: skip
def test_refuses_damaged_files(data: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.artifact.formats.input_file._BLOCK", 1 << 20)
    with pytest.raises(ArtifactError) as caught:
        read(tmp_path, data)
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")


def test_refuses_files_without_a_first_line(tmp_path: Path) -> None:
    for data, message in [
        (b"the\ncat 1\n", "line 1: this is not text"),
        (b"the " + ROW * 50, "line 1: this is not text"),
        (b"the " + b"1 " * 20_000 + b"\n", "line 1: it has 20000 numbers after the word, not 1 to 10000"),
        (b"the 1 2\ncat 1\n", "line 2: it must have a word and 2 numbers"),
        (b"the 1 2\ncat 1 2 0.5\n", "line 2: it has more than 2 numbers"),
    ]:
        with pytest.raises(ArtifactError, match=message):
            read(tmp_path, data, header=False)
    with pytest.raises(ArtifactError, match=r"cannot read .* \(no such file or directory\)"):
        read_vectors(tmp_path / "missing", header=True)


def test_declared_sizes_take_no_memory(tmp_path: Path) -> None:
    for start in (b"1000000000 9000\nthe 1 2\n", b"1000000000 9000\nthe " + ROW * 9, b"90000000 3\nthe 1 2 3\n"):
        for data in (start, gzip.compress(start + b"\0" * 10)):
            path = write(tmp_path, data)
            read_vectors(write(tmp_path, TEXT, "other"), header=True)
            tracemalloc.start()
            with pytest.raises(ArtifactError):
                read_vectors(path, header=True)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 10 << 20


@pytest.fixture(scope="module")
def tables(folder: Path) -> list[bytes]:
    """A text, a text without its first line, and a binary."""
    rows = np.random.default_rng(4).normal(size=(4, 3)).astype(np.float32)
    encoded = [b"the", b"na\xc3\xafve", b"</s>", b". ."]
    write_text(folder / "t", encoded, rows, header=True)
    write_text(folder / "g", encoded, rows, header=False)
    write_binary(folder / "b", encoded[:3], rows[:3])
    return [(folder / name).read_bytes() for name in "tgb"]


@settings(max_examples=400)
@given(st.data())
def test_damage_is_refused_or_harmless(folder: Path, tables: list[bytes], data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(tables)))
    for _ in range(data.draw(st.integers(1, 3))):
        offset = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, 8))
        content[offset : offset + length] = data.draw(st.binary(max_size=8))
    path = write(folder, bytes(content), "damaged")
    try:
        found = read_vectors(path, header=data.draw(st.booleans()))
    except FirthError:
        return
    assert len(found.words) == len(set(found.words)) == len(found.vectors) - len(SPECIALS)
    assert np.isfinite(found.vectors).all()


def test_words_that_files_cannot_hold(tmp_path: Path) -> None:
    model = plain_model([[1.0], [2.0]], ["new york", "b"])
    export_model(model, "word2vec", tmp_path / "m.txt")
    assert (tmp_path / "m.txt").read_text() == "2 1\nnew▁york 1\nb 2\n"
    for words, message in [(["a\nb", "c"], "cannot hold the word"), (["a b", "a▁b"], "would both be written 'a▁b'")]:
        with pytest.raises(OutputError, match=message):
            export_model(plain_model([[1.0], [2.0]], words), "word2vec", tmp_path / "other.bin")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.txt"]


@pytest.mark.parametrize("name", ["m.bin", "m.txt", "m.vec.gz"])
def test_a_failed_export_leaves_the_old_file(name: str, tmp_path: Path) -> None:
    write(tmp_path, "old", name)
    with pytest.raises(OutputError, match="NaN or infinity"):
        export_model(plain_model([[1.0], [np.nan]], ["a", "b"]), "word2vec", tmp_path / name)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.txt.gz", "b.txt.gz"):
        export_model(plain_model(), "word2vec", tmp_path / name)
    assert (tmp_path / "a.txt.gz").read_bytes() == (tmp_path / "b.txt.gz").read_bytes()
    assert (tmp_path / "a.txt.gz").read_bytes()[4:8] == bytes(4)  # where gzip keeps the time


def test_other_models_are_refused(tmp_path: Path) -> None:
    for style in ("word2vec", "glove", "fasttext"):
        assert style in FORMATS
        with pytest.raises(AbilityError, match="word vectors only"):
            export_model(plain_model().tokenizer, style, tmp_path / "m.bin")
    with pytest.raises(AbilityError, match="did you mean 'word2vec'"):
        import_model("word2vek", tmp_path / "m.bin", tmp_path / "m")


def test_verbs(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    done = firth("import", "word2vec", path, "-o", tmp_path / "m", "--json")
    assert (done.code, done.json["vocabulary"], done.json["dimension"]) == (0, 3, 2)
    done = firth("export", tmp_path / "m", "word2vec", tmp_path / "m.bin", "--json")
    assert (done.code, done.json["binary"], done.json["bytes"]) == (0, True, (tmp_path / "m.bin").stat().st_size)
    assert firth("export", tmp_path / "m", "glove", tmp_path / "m.txt").code == 0
    assert (tmp_path / "m.txt").read_text() == "the 0.5 -1\ncat 0.001 2.25\ndog 3 4\n"
    assert firth("verify", tmp_path / "m").code == 0
    done = firth("import", "word2vec", write(tmp_path, "10 2\nthe 1 2\n"), "-o", tmp_path / "n")
    assert (done.code, "Traceback" in done.err) == (1, False)
    assert not (tmp_path / "n").exists()
