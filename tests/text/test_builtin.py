"""Built-in corpora by name."""

from __future__ import annotations

import pytest

from firth.errors import CorpusError
from firth.text.oracle import builtin_documents, builtin_names, entropy_of, oracle_source

ORACLES = [name for name in builtin_names() if name != "pydoc"]


@pytest.mark.parametrize("name", ORACLES)
def test_oracles_have_two_thousand_documents_of_ten_sentences(name: str) -> None:
    documents = list(builtin_documents(name))
    assert len(documents) == 2000
    assert all(document.text.count("\n") == 9 for document in documents)
    assert len({document.source for document in documents}) == 2000
    assert documents[:3] == [
        document for document, _ in zip(builtin_documents(f"builtin:{name}"), range(3), strict=False)
    ]


def test_entropy_is_that_of_the_source() -> None:
    found = entropy_of("builtin:oracle")
    source = oracle_source("english")
    assert found is not None
    assert found["bits_per_byte"] == source.entropy_per_byte_bits
    assert found["bits_per_sentence_given_topic"] == source.entropy_given_topic_bits
    assert found["bits_per_word_given_topic"] < found["bits_per_word"]
    assert entropy_of("pydoc") is None


def test_a_wrong_name_is_an_error() -> None:
    with pytest.raises(CorpusError, match="did you mean 'builtin:pydoc'"):
        builtin_documents("pydocs")
    with pytest.raises(CorpusError, match="did you mean 'builtin:oracle'"):
        entropy_of("builtin:orcale")
