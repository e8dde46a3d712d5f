"""Sums of probabilities in ARPA files that were worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from firth.artifact.formats.arpa import verify_arpa
from firth.errors import ArtifactError
from tests.artifact.formats.small_arpa import write


def proper_file(folder: Path) -> Path:
    """A bigram model with sums of exactly one: p(a) = 1/2, p(b) = p(</s>) = 1/4; after a: p(b) = 1/2, W = 2/3."""
    half, quarter = "-0.30103", "-0.60206"
    text = f"""\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99	<s>
{half}	a	-0.1760913
{quarter}	b
{quarter}	</s>

\\2-grams:
{half}	a b
-99	b </s>

\\end\\
"""
    return write(folder, text.replace(f"{quarter}\tb\n", f"{quarter}\tb\t0.1249387\n"))


def test_reports_on_a_proper_model(tmp_path: Path) -> None:
    report = verify_arpa(proper_file(tmp_path))
    assert report.pop("largest_deviation") < 1e-6
    worst = report.pop("worst_context")
    assert worst in ("", "a", "b")
    assert report == {"ok": True, "order": 2, "ngrams": [4, 2], "vocabulary": 4}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-0.1760913", "-0.2", "after 'a' sum to 0.973"),
        ("-0.1760913", "-99", "after 'a' sum to 0.5 "),
        ("-0.30103\ta b", "-0.1\ta b", "after 'a' sum to 1.29"),
        ("-0.30103\ta\t", "-0.31\ta\t", "of single words sum to 0.98"),
        ("-99\t<s>", "-99\t<s>\t0.5", "after '<s>' sum to 3.16"),
    ],
)
def test_an_improper_model_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = proper_file(tmp_path).read_text()
    assert text.count(old) == 1
    with pytest.raises(ArtifactError, match=re.escape(message)):
        verify_arpa(write(tmp_path, text.replace(old, new)))


def test_nothing_follows_the_end(tmp_path: Path) -> None:
    text = proper_file(tmp_path).read_text()
    assert verify_arpa(write(tmp_path, text.replace("\t</s>\n\n\\2", "\t</s>\t-0.5\n\n\\2")))["ok"]


def test_large_weights_do_not_end_in_infinity(tmp_path: Path) -> None:
    text = proper_file(tmp_path).read_text()
    for weight in ("99", "-99", "1e-300"):
        with pytest.raises(ArtifactError, match="sum to"):
            verify_arpa(write(tmp_path, text.replace("-0.1760913", weight).replace("0.1249387", weight)))


def test_backs_off_through_missing_suffixes(tmp_path: Path) -> None:
    """p(b | <s> a) is listed and p(b | a) is not, so that W(a) p(b) stands below it."""
    text = f"""\\data\\
ngram 1=4
ngram 2=2
ngram 3=1

\\1-grams:
-99	<s>	{np.log10((1 - 0.6) / (1 - 0.5)):.7f}
-0.30103	a	{np.log10((1 - 0.7) / (1 - 0.25)):.7f}
-0.60206	b
-0.60206	</s>

\\2-grams:
{np.log10(0.6):.7f}	<s> a	{np.log10((1 - 0.8) / (1 - 0.25 * 0.4)):.7f}
{np.log10(0.7):.7f}	a </s>

\\3-grams:
{np.log10(0.8):.7f}	<s> a b

\\end\\
"""
    assert verify_arpa(write(tmp_path, text))["largest_deviation"] < 1e-6
    with pytest.raises(ArtifactError, match="after '<s> a' sum to"):
        verify_arpa(write(tmp_path, text.replace(f"{np.log10(0.8):.7f}", "-0.2")))
