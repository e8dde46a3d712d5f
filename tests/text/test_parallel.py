"""Parallel text: tables, JSONL and files line by line, directions, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from firth.errors import ArgumentError, CorpusError, EncodingError
from firth.text.parallel import is_parallel, read_parallel
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe

PAIRS = [("a dog .", "ein Hund ."), ("two  cats", "zwei Katzen"), ("猫", "eine Katze")]


def table(folder: Path, name: str = "a.tsv", header: str = "en\tde") -> Path:
    path = folder / name
    text = "\n".join([header, *("\t".join(pair) for pair in PAIRS)]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def found(*paths: Path, pair: str | None = None) -> list[tuple[str, str]]:
    return [(one.source, one.target) for one in read_parallel(*paths, pair=pair).pairs()]


CLEAN = [("a dog .", "ein Hund ."), ("two cats", "zwei Katzen"), ("猫", "eine Katze")]


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_a_table_has_a_pair_in_each_row(tmp_path: Path, name: str) -> None:
    path = table(tmp_path, name)
    assert found(path) == CLEAN
    assert read_parallel(path).languages == ("en", "de")
    assert is_parallel(path)


def test_a_pair_of_columns_is_a_direction(tmp_path: Path) -> None:
    path = table(tmp_path)
    assert found(path, pair="de,en") == [(target, source) for source, target in CLEAN]
    assert read_parallel(path, pair="de,en").key() != read_parallel(path).key()


def test_json_lines_have_other_fields_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"id": number, "en": source, "de": target} for number, (source, target) in enumerate(PAIRS)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert found(path) == CLEAN
    assert found(path, pair="de,en")[0] == ("ein Hund .", "a dog .")


def test_two_files_are_read_line_by_line(tmp_path: Path) -> None:
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    for number, path in enumerate(files):
        path.write_text("\n".join(pair[number] for pair in PAIRS) + "\n")
    corpus = read_parallel(pair=f"{files[0]},{files[1]}")
    assert [(one.source, one.target) for one in corpus.pairs()] == CLEAN
    assert corpus.languages == ("en", "de")
    files[1].write_text("ein Hund .\n")
    with pytest.raises(CorpusError, match="has more lines than"):
        list(read_parallel(pair=f"{files[0]},{files[1]}").pairs())


def test_documents_of_the_token_store_are_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / "cache"))
    tokenizer, store = open_tokens(TokenizerRecipe(model="words", min_count=1), read_parallel(table(tmp_path)))
    assert np.diff(store.documents.astype(np.int64)).tolist() == [2, 2, 2]
    texts = [tokenizer.decode(store.sentence(number).tolist()) for number in range(2)]
    assert texts == ["a dog.", "ein Hund."]


def test_parts_keep_pairs_together(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("en\tde\n" + "".join(f"one {number}\teins {number}\n" for number in range(200)))
    corpus = read_parallel(path)
    parts = [[(one.source, one.target) for one in part.pairs()] for part in corpus.parts(0.2, 0.2)]  # type: ignore[attr-defined]
    assert sorted(pair for part in parts for pair in part) == sorted((one.source, one.target) for one in corpus.pairs())
    assert all(len(part) > 20 for part in parts)
    assert all(source.split()[1] == target.split()[1] for part in parts for source, target in part)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("en\tde\na dog\t\n", "line 2 of .* has no text in de: remove the pair"),
        ("en\tde\na dog\n", "line 2 of .* has 1 columns, the header 2"),
        ("en\tde\n", "no pair in"),
        ("en\na dog\n", "has 1 column: parallel text has two"),
        ("A dog ran.\tEin Hund lief.\n", "is no header"),
        ("", "has 1 column"),
    ],
)
def test_bad_tables_get_a_sentence(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.tsv"
    path.write_text(content)
    with pytest.raises(CorpusError, match=message):
        list(read_parallel(path).pairs())


def test_wrong_columns_and_values_get_a_sentence(tmp_path: Path) -> None:
    path = table(tmp_path)
    with pytest.raises(CorpusError, match="no column 'den'"):
        read_parallel(path, pair="den,de")
    for pair in ("en", "en,", "en,en", "en,de,fr"):
        with pytest.raises(ArgumentError, match="two columns"):
            read_parallel(path, pair=pair)
    with pytest.raises(CorpusError, match="no pairs were given"):
        read_parallel()
    other = table(tmp_path, "b.tsv", header="en\tfr")
    with pytest.raises(CorpusError, match="columns en, fr"):
        read_parallel(path, other)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"en": "a", "de": "b"}\n{"en": "a", "de": 1}\n')
    with pytest.raises(CorpusError, match=r"line 2 .* no text in 'de'"):
        list(read_parallel(bad).pairs())
    surrogate = tmp_path / "half.jsonl"
    surrogate.write_text('{"en": "a\\ud800", "de": "b"}\n')
    with pytest.raises(EncodingError, match="surrogate"):
        list(read_parallel(surrogate).pairs())
    assert not is_parallel(tmp_path / "missing.tsv")
    assert not is_parallel(bad)
