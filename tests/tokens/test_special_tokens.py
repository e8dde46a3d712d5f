"""Special tokens of sources and targets, by the template of a tokenizer."""

from __future__ import annotations

import json

from tokenizers import processors

from firth.tokens.special_tokens import PairFormat, SpecialTokens, tokenizer_special_tokens
from firth.tokens.tokenizer import BOS, EOS, PAD, Tokenizer
from tests.artifact.formats.small_transformers import tokenizer_of


def with_template(single: str, pair: str) -> Tokenizer:
    """A tokenizer with a template of special tokens."""
    made = tokenizer_of("bpe")
    names = {made.vocabulary[number]: number for number in range(5)}
    template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(names.items()))
    content = json.loads(made.data) | {"post_processor": json.loads(template.__getstate__())}
    return Tokenizer(json.dumps(content).encode(), made.recipe)


def test_the_format_of_training_is_the_default() -> None:
    assert PairFormat.of(tokenizer_of("bpe")) == PairFormat((BOS,), (EOS,), EOS) == PairFormat()
    own = with_template("<s> $A </s>", "<s> $A </s> </s> $B </s>")
    assert tokenizer_special_tokens(own.backend) == SpecialTokens((BOS,), (EOS, EOS), (EOS,), 0)
    assert PairFormat.of(own) == PairFormat()


def test_a_template_of_pairs_has_the_start_of_the_target_last() -> None:
    assert PairFormat.of(with_template("$A </s>", "$A </s> <pad> $B </s>")) == PairFormat((), (EOS,), PAD)


def test_a_template_without_tokens_between_texts_is_no_format() -> None:
    assert PairFormat.of(with_template("$A </s>", "$A $B </s>")) == PairFormat()
