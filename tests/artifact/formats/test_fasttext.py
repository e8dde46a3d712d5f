"""Reading and writing of fastText's .bin files."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.artifact.formats import export_model, import_model
from firth.artifact.formats.fasttext import (
    FasttextArgs,
    FasttextFile,
    read_fasttext,
    vector_model,
    vectors_file,
    write_fasttext,
)
from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError, FirthError, OutputError
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.subwords import SubwordModel
from tests.artifact.formats.small_vectors import SPECIALS, WORDS, plain_model, subword_model, write
from tests.command import firth


def numbers(*shape: int) -> Any:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def small(**changes: Any) -> FasttextFile:
    """Three words, one of them special, and n-grams of two characters in four buckets."""
    args = FasttextArgs(dimension=2, window=7, buckets=4, min_n=2, max_n=2, subsample=0.5)
    content = FasttextFile(
        args=args,
        words=["the", "</s>", "我们"],
        counts=np.array([5, 4, 3]),
        word_input=numbers(3, 2),
        ngram_input=numbers(4, 2),
        output=numbers(3, 2),
        labels=[],
        label_counts=np.empty(0, dtype=np.int64),
        tokens=12,
    )
    return replace(content, **changes)


def classifier() -> FasttextFile:
    return small(
        args=FasttextArgs(dimension=2, model="supervised", loss="softmax", word_ngrams=2, buckets=4),
        labels=["__label__a", "__label__b"],
        label_counts=np.array([2, 1]),
        output=numbers(2, 2),
    )


def data_of(content: FasttextFile, folder: Path) -> bytes:
    write_fasttext(folder / "whole.bin", content)
    return (folder / "whole.bin").read_bytes()


def test_layout_by_hand(tmp_path: Path) -> None:
    content = small()
    wanted = struct.pack("<ii12id", 793712314, 12, 2, 7, 5, 1, 5, 1, 2, 2, 4, 2, 2, 100, 0.5)
    wanted += struct.pack("<iiiqq", 3, 3, 0, 12, -1)
    for word, count in [("the", 5), ("</s>", 4), ("我们", 3)]:
        wanted += word.encode() + b"\0" + struct.pack("<qb", count, 0)
    wanted += b"\0" + struct.pack("<qq", 7, 2) + content.word_input.tobytes() + content.ngram_input.tobytes()
    wanted += b"\0" + struct.pack("<qq", 3, 2) + content.output.tobytes()
    assert data_of(content, tmp_path) == wanted


@pytest.mark.parametrize("make", [small, classifier])
@pytest.mark.parametrize("name", ["m.bin", "m.bin.gz"])
def test_a_round_trip_of_files(make: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.artifact.formats.input_file._BLOCK", 30)
    content = make()
    write_fasttext(tmp_path / name, content)
    back = read_fasttext(tmp_path / name)
    assert (back.args, back.words, back.labels, back.tokens) == (
        content.args,
        content.words,
        content.labels,
        content.tokens,
    )
    for field in ("counts", "label_counts", "word_input", "ngram_input", "output"):
        assert np.array_equal(getattr(back, field), getattr(content, field)), field


@pytest.mark.parametrize("name", ["m.bin", "m.bin.gz"])
def test_a_round_trip_of_a_subword_model(name: str, tmp_path: Path) -> None:
    model = subword_model()
    report = export_model(model, "fasttext", tmp_path / name)
    assert (report["vocabulary"], report["dimension"], report["ngrams"]) == (len(WORDS), 4, 50)
    import_model("fasttext", tmp_path / name, tmp_path / "back")
    back = load(tmp_path / "back")
    assert isinstance(back, SubwordModel)
    assert back.words == model.words
    assert (back.recipe.min_n, back.recipe.max_n, back.recipe.buckets) == (2, 4, 50)
    for array, kept in model.arrays().items():
        assert np.array_equal(back.arrays()[array], kept), array
    assert np.array_equal(back.vector("unseen"), model.vector("unseen"))


def test_models_without_ngrams_and_counts_are_exported(tmp_path: Path) -> None:
    model = plain_model()
    export_model(model, "fasttext", tmp_path / "m.bin")
    content = read_fasttext(tmp_path / "m.bin")
    assert (content.args.max_n, content.args.buckets, len(content.ngram_input)) == (0, 0, 0)
    assert np.array_equal(content.word_input, model.vectors[len(SPECIALS) :])
    assert content.counts.tolist() == [1] * len(WORDS)
    assert not content.output.any()
    back = vector_model(tmp_path, content)
    assert not isinstance(back, SubwordModel)
    assert np.array_equal(back.vectors, model.vectors)


@pytest.mark.parametrize(("loss", "kept"), [("negative", True), ("softmax", True), ("hierarchical", False)])
def test_a_file_has_the_training_arguments(loss: Any, kept: bool) -> None:
    model = subword_model()
    model.recipe = Word2vecRecipe(
        tokenizer=model.tokenizer.recipe, architecture="cbow", loss=loss, window=3, min_n=2, max_n=4, epochs=9
    )
    content = vectors_file(model)
    assert (content.args.model, content.args.window, content.args.epochs) == ("cbow", 3, 9)
    assert (content.args.negatives, content.args.min_n, content.args.max_n) == (5, 2, 4)
    assert (content.args.loss == loss) == kept
    assert content.output.any() == kept


def test_special_tokens_are_left_out(tmp_path: Path) -> None:
    write_fasttext(tmp_path / "m.bin", small())
    report = import_model("fasttext", tmp_path / "m.bin", tmp_path / "m")
    assert (report["vocabulary"], report["left_out"], report["ngrams"]) == (2, ["</s>"], 4)
    model = load(tmp_path / "m")
    assert model.words == [*SPECIALS, "the", "我们"]
    assert model.counts.tolist() == [0, 0, 0, 0, 0, 5, 3]
    assert np.array_equal(model.own[5:], small().word_input[[0, 2]])
    assert np.array_equal(model.outputs[5:], small().output[[0, 2]])
    hierarchical = replace(small(), args=replace(small().args, loss="hierarchical"))
    assert vector_model(tmp_path, hierarchical).outputs is None
    only = small(words=["</s>"], counts=np.array([1]), word_input=numbers(1, 2), output=numbers(1, 2))
    with pytest.raises(ArtifactError, match="no words besides special tokens"):
        vector_model(tmp_path, only)


HEAD = struct.calcsize("<ii12id")


@pytest.mark.parametrize(
    ("offset", "layout", "value", "message"),
    [
        (0, "<i", 1, "byte 0: this is no fastText .bin file"),
        (4, "<i", 13, "version 13 of the format is unknown"),
        (8, "<i", 0, "Firth reads 1 to 10000 dimensions, not 0"),
        (8, "<i", 2**31 - 1, "Firth reads 1 to 10000 dimensions"),
        (8, "<i", 3, "the input matrix is 7 x 2 where it should be 7 x 3"),
        (32, "<i", 9, "there is no loss 9"),
        (36, "<i", 0, "no model 0"),
        (40, "<i", -1, "n-grams of 2 to 2 characters in -1 buckets are impossible"),
        (40, "<i", 0, "n-grams of 2 to 2 characters in 0 buckets are impossible"),
        (40, "<i", 2**31 - 1, "the input matrix is 7 x 2 where it should be 2147483650 x 2"),
        (48, "<i", 1000, "n-grams of 2 to 1000 characters"),
        (HEAD, "<i", 4, "4 entries, 3 words, 0 labels and 12 tokens are inconsistent"),
        (HEAD, "<iii", (2**31 - 1, 2**31 - 1, 0), "it declares 2147483647 dictionary entries, more than"),
        (HEAD, "<iii", (3, 2, 1), "dictionary entry 3, '我们', is damaged"),
        (HEAD, "<iii", (0, 0, 0), "are inconsistent"),
        (HEAD + 20, "<q", 5, "this is a quantised model (.ftz)"),
        (HEAD + 28, "<c", b"\0", "dictionary entry 1, '', is damaged"),
        (HEAD + 28, "<c", b"\xff", "the word '\ufffdhe' is not UTF-8"),
        (HEAD + 28, "<3s", b"<s>", None),
        (HEAD + 32, "<q", -5, "dictionary entry 1, 'the', is damaged"),
        (-41, "<c", b"\1", "this is a quantised model (.ftz)"),
        (-40, "<c", b"\2", "the output matrix is 2 x 2 where it should be 3 x 2"),
        (-4, "<f", np.nan, "the matrix that ends here holds NaN or infinity"),
    ],
)
def test_the_error_names_fault_and_byte(
    offset: int, layout: str, value: Any, message: str | None, tmp_path: Path
) -> None:
    data = bytearray(data_of(small(), tmp_path))
    struct.pack_into(layout, data, offset % len(data), *(value if isinstance(value, tuple) else (value,)))
    path = write(tmp_path, bytes(data), "m.bin")
    if message is None:
        assert read_fasttext(path).words[0] == "<s>"
        return
    with pytest.raises(ArtifactError) as caught:
        read_fasttext(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}, byte ")
    assert str(caught.value).endswith(".")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = data_of(small(), tmp_path)
    for end in range(len(data)):
        with pytest.raises(ArtifactError):
            read_fasttext(write(tmp_path, data[:end], "cut.bin"))
    with pytest.raises(ArtifactError, match="other bytes follow"):
        read_fasttext(write(tmp_path, data + b"\0", "more.bin"))
    twice = data_of(small(words=["the", "</s>", "the"]), tmp_path)
    with pytest.raises(ArtifactError, match="is in the dictionary twice"):
        read_fasttext(write(tmp_path, twice, "twice.bin"))


def test_declared_sizes_take_no_memory(tmp_path: Path) -> None:
    content = small(args=replace(small().args, buckets=100_000_000))
    data = data_of(content, tmp_path)
    shape = struct.pack("<qq", 7, 2)
    assert data.count(shape) == 1
    data = data.replace(shape, struct.pack("<qq", 100_000_003, 2))
    for one in (data, gzip.compress(data)):
        path = write(tmp_path, one, "huge.bin")
        tracemalloc.start()
        with pytest.raises(ArtifactError, match="more than the file can hold"):
            read_fasttext(path)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
        tracemalloc.stop()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A folder, and the bytes of two files."""
    folder = tmp_path_factory.mktemp("fasttext")
    return folder, [data_of(small(), folder), data_of(classifier(), folder)]


@settings(max_examples=300)
@given(st.data())
def test_damage_is_refused_or_harmless(files: tuple[Path, list[bytes]], data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(files[1])))
    for _ in range(data.draw(st.integers(1, 3))):
        offset = data.draw(st.integers(0, len(content) - 1))
        length = data.draw(st.integers(0, 8))
        content[offset : offset + length] = data.draw(st.binary(min_size=length, max_size=length))
    path = write(files[0], bytes(content), "damaged")
    try:
        found = read_fasttext(path)
    except FirthError:
        return
    assert len(found.words) == len(found.word_input) == len(found.counts)
    assert np.isfinite(found.word_input).all()
    assert found.ngram_input.shape == (found.args.buckets, found.args.dimension)


def test_old_classifiers_have_no_ngrams(tmp_path: Path) -> None:
    content = classifier()
    data = bytearray(data_of(replace(content, args=replace(content.args, max_n=3)), tmp_path))
    assert read_fasttext(write(tmp_path, bytes(data), "new.bin")).args.max_n == 3
    struct.pack_into("<i", data, 4, 11)
    assert read_fasttext(write(tmp_path, bytes(data), "old.bin")).args.max_n == 0


def test_models_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(AbilityError, match=r"name the file \.bin"):
        export_model(plain_model(), "fasttext", tmp_path / "m.ftz")
    with pytest.raises(OutputError, match="fastText cannot hold the word"):
        write_fasttext(tmp_path / "x.bin", small(words=["a\0b", "b", "c"]))
    with pytest.raises(OutputError, match="NaN or infinity"):
        write_fasttext(tmp_path / "x.bin", small(word_input=numbers(3, 2) * np.nan))
    assert list(tmp_path.iterdir()) == []


def test_tables_of_fasttext(tmp_path: Path) -> None:
    model = subword_model()
    report = export_model(model, "fasttext", tmp_path / "m.vec")
    assert report["binary"] is False
    assert firth("import", "fasttext", tmp_path / "m.vec", "-o", tmp_path / "m").code == 0
    back = load(tmp_path / "m")
    assert np.array_equal(back.vectors, model.vectors)
    assert (back.recipe.source, back.recipe.max_n) == ("fasttext", 0)
