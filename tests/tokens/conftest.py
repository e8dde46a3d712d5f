"""A small mixed corpus and a tokenizer of each kind, trained once."""

from __future__ import annotations

import pytest

from firth.text.corpus import Corpus, read_corpus
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import train_tokenizer
from tests.samples import CHINESE, ENGLISH, KINDS, small_recipe


@pytest.fixture(scope="session")
def mixed_corpus() -> Corpus:
    return read_corpus([ENGLISH * 3, CHINESE * 3, [*ENGLISH, *CHINESE]])


@pytest.fixture(scope="session")
def tokenizers_by_kind(mixed_corpus: Corpus) -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(small_recipe(kind), mixed_corpus) for kind in KINDS}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tokenizers_by_kind: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers_by_kind[request.param]
