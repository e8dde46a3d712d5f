"""The corpus of documentation strings of this installation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from firth.text import pydoc
from firth.text.pydoc import PydocEntry, pydoc_documents, pydoc_entries


@pytest.fixture(autouse=True)
def _use_extracted(pydoc_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(pydoc_cache))


def test_several_megabytes_of_clean_english() -> None:
    documents = list(pydoc_documents())
    size = sum(len(document.text.encode()) for document in documents)
    assert 3e6 < size < 15e6
    assert len({document.text for document in documents}) == len(documents)
    for document in documents:
        assert len(document.text) >= 80
        assert ">>>" not in document.text
        assert all(line == line.strip() and line.isprintable() for line in document.text.split("\n"))
    letters = sum(c.isascii() and (c.isalpha() or c == " ") for document in documents for c in document.text)
    assert letters > 0.9 * size
    words = Counter(word for document in documents for word in document.text.lower().split())
    assert words.most_common(1)[0][0] == "the"


def test_entries_carry_labels() -> None:
    entries = list(pydoc_entries())
    packages = Counter(entry.package for entry in entries)
    assert packages["python"] > 1000
    assert packages["numpy"] > 300
    assert set(packages) <= {"python", *pydoc.PACKAGES}
    assert sum(bool(entry.body) for entry in entries) > len(entries) / 3
    found = {(entry.module, entry.name): entry for entry in entries}
    decode = found["json", "load"]
    assert decode.package == "python"
    assert decode.summary.startswith("Deserialize fp (a .read()-supporting file-like object")
    assert "object_pairs_hook" in decode.body
    norm = dict(found["numpy.linalg._linalg", "norm"].parameters)
    assert norm["x"].startswith("Input array.")


def test_text_is_made_of_the_parts() -> None:
    entry = PydocEntry("p", "p.m", "f", "A summary.", "One.\nTwo.", (("x", "The x."),))
    assert entry.text == "A summary.\nOne.\nTwo.\nx: The x."
    assert PydocEntry("p", "p.m", "", "A summary.", "", ()).text == "A summary."


def test_another_process_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = [entry for entry in pydoc_entries() if entry.package == "click"]
    roots = [root for root in pydoc._roots() if root[0] == "click"]
    monkeypatch.setattr(pydoc, "_roots", lambda: iter(roots))
    assert list(pydoc._extract()) == cached != []


SENTENCE = "This sentence is long enough to be kept as a document of the corpus, since it has many words."


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library of one module with a test beside it, a package that is not installed, an empty cache."""
    library = tmp_path / "library"
    (library / "tests").mkdir(parents=True)
    (library / "tests" / "module.py").write_text(f'"""In tests. {SENTENCE}"""')
    (library / "broken.py").write_text('"""No end')
    (library / "module.py").write_text(
        f'"""A module. {SENTENCE}"""\n'
        f'if True:\n    class A:\n        def f(self):\n            """Of f. {SENTENCE}"""\n'
        f'            def g():\n                """Of g. {SENTENCE}"""\n'
        f'def again():\n    """Of f. {SENTENCE}"""\n'
        'def short():\n    """Too short to keep."""\n'
    )
    monkeypatch.setattr(pydoc, "PACKAGES", ("a_package_that_is_missing",))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(library))
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.usefixtures("tiny")
def test_tests_repeats_and_inner_functions_are_left_out() -> None:
    assert [document.source for document in pydoc_documents()] == ["module", "module:A.f"]
    assert next(pydoc_documents()).text == f"A module. {SENTENCE}"


def test_the_cache_is_used(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = list(pydoc_entries())
    monkeypatch.setattr(pydoc, "_extract", lambda: pytest.fail("the cache should have been read"))
    assert list(pydoc_entries()) == fresh


def test_a_damaged_cache_is_made_again(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = list(pydoc_entries())
    (cached,) = (tiny / "cache" / "pydoc").iterdir()
    written = cached.read_bytes()
    for damaged in (written.replace(b"module", b"nodule"), written[:-20], b""):
        cached.write_bytes(damaged)
        assert list(pydoc_entries()) == fresh
        assert cached.read_bytes() == written
        assert f"the cache is damaged: {cached} has changed" in capsys.readouterr().err
    other = cached.with_name(cached.name.replace(cached.name[0], "x"))
    cached.rename(other)  # the text of another installation, say
    cached.write_bytes(other.read_bytes().replace(b"module", b"nodule"))
    assert list(pydoc_entries()) == fresh


def test_another_version_is_extracted_again(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(pydoc_entries())) == 2
    (tiny / "library" / "module.py").write_text(f'"""Another version. {SENTENCE}"""')
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    assert [entry.summary for entry in pydoc_entries()] == [f"Another version. {SENTENCE}"]


def test_a_cache_that_cannot_be_written_is_not_needed(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tiny / "file").write_text("")
    monkeypatch.setenv("FIRTH_CACHE", str(tiny / "file"))
    assert len(list(pydoc_entries())) == 2
