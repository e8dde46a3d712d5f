"""Damaged ARPA files and other files: the error names the line and the fault."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.artifact.formats.arpa import read_arpa
from firth.errors import ArtifactError, FirthError
from tests.artifact.formats.small_arpa import SMALL, write


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-0.30103\ta b", "nan\ta b", "line 16: 'nan' is not a number"),
        ("-0.30103\ta b", "inf\ta b", "line 16: 'inf' is not a number"),
        ("-0.30103\ta b", "0.5\ta b", "line 16: the log-probability '0.5' is above 0"),
        ("-0.30103\ta b", "1e999\ta b", "line 16: the log-probability '1e999' is above 0"),
        ("-0.30103\ta b", "a b", "line 16: 'a' is not a number"),
        ("-0.30103\ta b", "-0.30103\ta", "line 16: it must have a log-probability, 2 words"),
        ("-0.30103\ta b", "-0.30103\ta b b", "line 16: 'b' is not a number"),
        ("-0.30103\ta b", "-0.30103\ta b 0 0", "line 16: it must have a log-probability, 2 words"),
        ("-0.30103\ta b", "-0.30103\ta c", "line 16: the word 'c' is not among the 1-grams"),
        ("-0.30103\ta b", "-0.30103\ta <pad>", "line 16: the word '<pad>' is not among the 1-grams"),
        ("-0.30103\ta b", "-0.30103\ta b\tnan", "line 16: 'nan' is not a number"),
        ("-0.30103\ta b", "-0.30103\ta b\t1e5", "line 16: the log back-off weight '1e5' is above 99"),
        ("-0.30103\ta b", "-0.30103\ta b\0", "line 16: it holds a zero byte"),
        ("-0.30103\ta b", "-0.30103\ra b", "line 16: it holds a zero byte or a stray carriage return"),
        ("-0.30103\ta b", "-0.30103\tb </s>", "line 19: the 2-gram 'b </s>' is twice"),
        ("-0.30103\ta b", "-0.30103\ta b\n-1\tb b", "line 19: this is one 2-gram more than the 4"),
        ("-0.30103\ta b\n", "", "line 19: the 2-grams end after 3 where the header declares 4"),
        ("<s> a b", "<s> b a", "line 21: the 3-gram begins with '<s> b', which is not among the 2-grams"),
        ("<s> a b", "<s> a b\t-0.5", "line 21: the back-off weight '-0.5' is in the highest order"),
        ("-0.522879\tb", "-0.522879\ta", "line 12: the word 'a' is among the 1-grams twice"),
        ("-0.522879\tb", "-0.522879\t<UNK>", "line 12: the word '<UNK>' is among the 1-grams twice"),
        ("-0.522879\tb", "-0.522879\t<mask>", "line 12: '<mask>' is reserved by Firth"),
        ("-99\t<s>", "-99\tc", "line 14: <s> is not among the 1-grams"),
        ("-0.60206\t</s>", "-99\tc", "line 14: </s> is not among the 1-grams"),
        ("\\end\\", "", "line 24: expected \\end\\, found the end of the file"),
        ("\\end\\", "\\end\\\n\nmore", "line 25: 'more' follows after \\end\\"),
        ("\\end\\", "\\4-grams:", "line 23: expected \\end\\, found '\\\\4-grams:'"),
        ("\\2-grams:", "\\3-grams:", "line 14: expected \\2-grams:, found '\\\\3-grams:'"),
        ("\\2-grams:\n", "", "line 14: 'a' is not a number"),
        ("\\1-grams:\n", "", "line 7: expected ngram 4=COUNT or \\1-grams:, found '-0.69897\\t<unk>'"),
        ("\\data\\\n", "", "line 2: expected \\data\\, found 'ngram 1=5'"),
        ("ngram 2=4", "ngram 3=4", "line 4: expected ngram 2=COUNT or \\1-grams:, found 'ngram 3=4'"),
        ("ngram 2=4", "ngram 2=x", "line 4: expected ngram 2=COUNT or \\1-grams:, found 'ngram 2=x'"),
        ("ngram 2=4", "ngram 2=-4", "line 4: expected ngram 2=COUNT or \\1-grams:, found 'ngram 2=-4'"),
        ("ngram 2=4", "ngram 2=" + "9" * 5000, "line 4: "),
        ("ngram 2=4", "ngram 2=99999999999", "the header declares more n-grams than Firth can hold"),
        ("ngram 2=4", "ngram 2=4000000000", "line 20: the 2-grams end after 4 where the header declares 4000000000"),
        ("ngram 1=5", "ngram 1=0", "line 7: the header declares no 1-grams"),
        ("ngram 1=5\nngram 2=4\nngram 3=1\n", "", "line 4: the header declares no 1-grams"),
        ("ngram 3=1\n", "".join(f"ngram {n}=1\n" for n in range(3, 10)), "line 11: Firth reads orders up to 8"),
    ],
)  # fmt: skip
def test_the_error_names_fault_and_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert SMALL.count(old) == 1
    path = write(tmp_path, SMALL.replace(old, new))
    with pytest.raises(ArtifactError) as caught:
        read_arpa(path)
    assert str(caught.value).startswith(f"{path}, line ")
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1: the file is empty"),
        (b"\n\n \n", "the file is empty"),
        (b"once upon a time\n", "expected \\data\\, found"),
        (bytes(range(256)) * 20, "expected \\data\\, found"),
        (b"mmap lm http://kheafield.com/code format version 5\n\0", "is a KenLM binary"),
        (b"iARPA\n\n", "is an IRSTLM file"),
        (gzip.compress(SMALL.encode())[:-30], "is a damaged gzip file"),
        (gzip.compress(SMALL.encode())[:-4], "is a damaged gzip file"),
        (b"\x1f\x8b\x08" + b"\0" * 40, "is a damaged gzip file"),
        (b"\x1f\x8b", "is a damaged gzip file"),
        (gzip.compress(SMALL.encode()) + b"trash", "is a damaged gzip file"),
        (SMALL.encode().replace(b"b\n\n\\2", b"\xff\xfe\n\n\\2"), "line 12: the word '��' is not UTF-8"),
        (SMALL.encode().replace(b"b\n\n\\2", b"\xed\xa0\x80\n\n\\2"), "is not UTF-8"),
        (b"\\data\\\nngram 1=3\n\n" + b"x" * (10 << 20), "line 4: it is longer than"),
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=re.escape(message)):
        read_arpa(write(tmp_path, data))


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path in (tmp_path / "none.arpa", tmp_path):
        with pytest.raises(ArtifactError, match="cannot read"):
            read_arpa(path)


ODD = [b"nan", b"inf", b"-inf", b"1e999", b"-1e999", b"1.5", b"-", b"1e", b"0", b"<s>", b"<unk>", b"\xff", b"\0", b"",
       b"\\end\\", b"\\2-grams:", b"ngram 2=9999999999", b"\r", b"a", b"b", b"\x1f\x8b"]  # fmt: skip


@given(st.data())
@settings(max_examples=400)
def test_any_change_gives_a_model_or_an_error(tmp_path_factory: Any, data: st.DataObject) -> None:
    fields = re.split(rb"([\t\n ])", SMALL.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(fields) - 1))
        match data.draw(st.sampled_from(["odd", "drop", "again", "move", "bytes", "cut"])):
            case "odd":
                fields[position] = data.draw(st.sampled_from(ODD))
            case "drop":
                del fields[position : position + data.draw(st.integers(0, 6))]
                fields = fields or [b""]
            case "again":
                fields[position:position] = fields[position : position + data.draw(st.integers(0, 6))]
            case "move":
                fields.append(fields.pop(position))
            case "bytes":
                fields[position] = data.draw(st.binary(max_size=4))
            case "cut":
                fields = fields[: position + 1]
    text = b"".join(fields)
    path = tmp_path_factory.getbasetemp() / "changed.arpa"
    path.write_bytes(gzip.compress(text)[: data.draw(st.integers(0, 400))] if data.draw(st.booleans()) else text)
    try:
        found = read_arpa(path)
    except FirthError:
        return
    assert not np.isnan(found.logp).any()
    assert not np.isnan(found.bow).any()
    assert (found.logp <= 0).all()
    assert (found.bow < np.inf).all()
