"""ARPA files that are damaged or something else: what is wrong is told, with the line."""

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
        ("-0.30103\ta b", "nan\ta b", "line 16: 'nan' stands where a number should"),
        ("-0.30103\ta b", "inf\ta b", "line 16: 'inf' stands where a number should"),
        ("-0.30103\ta b", "0.5\ta b", "line 16: '0.5' is no logarithm of a probability"),
        ("-0.30103\ta b", "1e999\ta b", "line 16: '1e999' is no logarithm"),
        ("-0.30103\ta b", "a b", "line 16: 'a' stands where a number should"),
        ("-0.30103\ta b", "-0.30103\ta", "line 16: it does not have a number, 2 words"),
        ("-0.30103\ta b", "-0.30103\ta b b", "line 16: 'b' stands where a number should"),
        ("-0.30103\ta b", "-0.30103\ta b 0 0", "line 16: it does not have a number, 2 words"),
        ("-0.30103\ta b", "-0.30103\ta c", "line 16: the word 'c' is not among the 1-grams"),
        ("-0.30103\ta b", "-0.30103\ta <pad>", "line 16: the word '<pad>' is not among the 1-grams"),
        ("-0.30103\ta b", "-0.30103\ta b\tnan", "line 16: 'nan' stands where a number should"),
        ("-0.30103\ta b", "-0.30103\ta b\t1e5", "line 16: '1e5' as the logarithm of a back-off weight is above 99"),
        ("-0.30103\ta b", "-0.30103\ta b\0", "line 16: it holds a zero byte"),
        ("-0.30103\ta b", "-0.30103\ra b", "line 16: it holds a zero byte or a stray carriage return"),
        ("-0.30103\ta b", "-0.30103\tb </s>", "line 19: the 2-gram 'b </s>' stands twice"),
        ("-0.30103\ta b", "-0.30103\ta b\n-1\tb b", "line 19: this is one more 2-gram than the 4"),
        ("-0.30103\ta b\n", "", "line 19: the 2-grams end after 3 where the header promises 4"),
        ("<s> a b", "<s> b a", "line 21: the 3-gram begins with '<s> b', which is not among the 2-grams"),
        ("<s> a b", "<s> a b\t-0.5", "line 21: the back-off weight '-0.5' stands in the highest order"),
        ("-0.522879\tb", "-0.522879\ta", "line 12: the word 'a' stands among the 1-grams a second time"),
        ("-0.522879\tb", "-0.522879\t<UNK>", "line 12: the word '<UNK>' stands among the 1-grams a second time"),
        ("-0.522879\tb", "-0.522879\t<mask>", "line 12: '<mask>' is a name that Firth keeps for itself"),
        ("-99\t<s>", "-99\tc", "line 14: <s> is not among the 1-grams"),
        ("-0.60206\t</s>", "-99\tc", "line 14: </s> is not among the 1-grams"),
        ("\\end\\", "", "line 24: the file ends where \\end\\ should stand"),
        ("\\end\\", "\\end\\\n\nmore", "line 25: 'more' follows after \\end\\"),
        ("\\end\\", "\\4-grams:", "line 23: '\\\\4-grams:' stands where \\end\\ should"),
        ("\\2-grams:", "\\3-grams:", "line 14: '\\\\3-grams:' stands where \\2-grams: should"),
        ("\\2-grams:\n", "", "line 14: 'a' stands where a number should"),
        ("\\1-grams:\n", "", "line 7: '-0.69897\\t<unk>' stands where ngram 4=COUNT or \\1-grams: should"),
        ("\\data\\\n", "", "line 2: 'ngram 1=5' stands where an ARPA file has \\data\\"),
        ("ngram 2=4", "ngram 3=4", "line 4: 'ngram 3=4' stands where ngram 2=COUNT"),
        ("ngram 2=4", "ngram 2=x", "line 4: 'ngram 2=x' stands where ngram 2=COUNT"),
        ("ngram 2=4", "ngram 2=-4", "line 4: 'ngram 2=-4' stands where"),
        ("ngram 2=4", "ngram 2=" + "9" * 5000, "line 4: "),
        ("ngram 2=4", "ngram 2=99999999999", "the header promises more n-grams than Firth can hold"),
        ("ngram 2=4", "ngram 2=4000000000", "line 20: the 2-grams end after 4 where the header promises 4000000000"),
        ("ngram 1=5", "ngram 1=0", "line 7: the header promises no 1-grams"),
        ("ngram 1=5\nngram 2=4\nngram 3=1\n", "", "line 4: the header promises no 1-grams"),
        ("ngram 3=1\n", "".join(f"ngram {n}=1\n" for n in range(3, 10)), "line 11: Firth reads orders up to 8"),
    ],
)  # fmt: skip
def test_tells_what_is_wrong_and_where(tmp_path: Path, old: str, new: str, message: str) -> None:
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
        (b"once upon a time\n", "stands where an ARPA file has \\data\\"),
        (bytes(range(256)) * 20, "stands where an ARPA file has \\data\\"),
        (b"mmap lm http://kheafield.com/code format version 5\n\0", "is a KenLM binary"),
        (b"iARPA\n\n", "is an IRSTLM file"),
        (gzip.compress(SMALL.encode())[:-30], "is a damaged gzip file"),
        (gzip.compress(SMALL.encode())[:-4], "is a damaged gzip file"),
        (b"\x1f\x8b\x08" + b"\0" * 40, "is a damaged gzip file"),
        (b"\x1f\x8b", "is a damaged gzip file"),
        (gzip.compress(SMALL.encode()) + b"trash", "is a damaged gzip file"),
        (SMALL.encode().replace(b"b\n\n\\2", b"\xff\xfe\n\n\\2"), "line 12: the word '��' is not in UTF-8"),
        (SMALL.encode().replace(b"b\n\n\\2", b"\xed\xa0\x80\n\n\\2"), "is not in UTF-8"),
        (b"\\data\\\nngram 1=3\n\n" + b"x" * (10 << 20), "line 4: it is longer than"),
    ],
)  # fmt: skip
def test_files_that_are_something_else(tmp_path: Path, data: bytes, message: str) -> None:
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
def test_whatever_is_changed_gives_a_model_or_a_sentence(tmp_path_factory: Any, data: st.DataObject) -> None:
    fields = re.split(rb"([\t\n ])", SMALL.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(fields) - 1))
        match data.draw(st.sampled_from(["odd", "drop", "again", "move", "bytes", "cut"])):
            case "odd":
                fields[place] = data.draw(st.sampled_from(ODD))
            case "drop":
                del fields[place : place + data.draw(st.integers(0, 6))]
                fields = fields or [b""]
            case "again":
                fields[place:place] = fields[place : place + data.draw(st.integers(0, 6))]
            case "move":
                fields.append(fields.pop(place))
            case "bytes":
                fields[place] = data.draw(st.binary(max_size=4))
            case "cut":
                fields = fields[: place + 1]
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
