"""The corpora that come with Firth, by name: nothing is downloaded, nothing is stored in the package."""

from __future__ import annotations

from collections.abc import Iterator

from firth.errors import CorpusError, near_miss
from firth.text.document import RawDocument

PREFIX = "builtin:"

_ORACLES = {
    "oracle": "english",
    "oracle-chinese": "chinese",
    "oracle-markov1": "markov1",
    "oracle-markov2": "markov2",
}

# Imports are made where they are needed: this module is loaded with the command line, NumPy need not be.


def builtin_names() -> tuple[str, ...]:
    """The names of all built-in corpora, as they follow `builtin:`.

    >>> builtin_names()
    ('pydoc', 'oracle', 'oracle-chinese', 'oracle-markov1', 'oracle-markov2')
    """
    return ("pydoc", *_ORACLES)


def builtin_documents(name: str) -> Iterator[RawDocument]:
    """The documents of a built-in corpus, named with or without `builtin:`; the same each time.

    >>> next(builtin_documents("builtin:oracle-chinese")).text.splitlines()[0]
    '两座木屋着火。'
    """
    from firth.text.oracle import oracle_documents
    from firth.text.pydoc import pydoc_documents

    name = _known(name)
    return pydoc_documents() if name == "pydoc" else oracle_documents(_ORACLES[name])


def entropy_of(name: str) -> dict[str, float] | None:
    """The exact entropy of a built-in corpus in bits, or nothing where no one knows it.

    It is what a perfect model scores sentence by sentence, and (`_given_topic`) what it nears on long documents,
    from which the topic can be told.

    >>> round((entropy_of("oracle") or {})["bits_per_byte"], 4)
    0.6225
    """
    from firth.text.oracle import oracle_source

    name = _known(name)
    if name == "pydoc":
        return None
    source = oracle_source(_ORACLES[name])
    return {
        "bits_per_sentence": source.entropy_per_sentence_bits,
        "bits_per_word": source.entropy_per_word_bits,
        "bits_per_byte": source.entropy_per_byte_bits,
        "bits_per_sentence_given_topic": source.entropy_given_topic_bits,
        "bits_per_word_given_topic": source.entropy_given_topic_bits / source.expected_words,
        "bits_per_byte_given_topic": source.entropy_given_topic_bits / source.expected_bytes,
    }


def _known(name: str) -> str:
    bare = name.removeprefix(PREFIX)
    if bare not in builtin_names():
        full = [PREFIX + known for known in builtin_names()]
        raise CorpusError(f"no built-in corpus is called {bare!r}: {near_miss(PREFIX + bare, full)}")
    return bare
