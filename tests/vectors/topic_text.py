"""A text of sentences about one topic each, with a word that occurs in two of them."""

from __future__ import annotations

import numpy as np

from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors.text import TrainingText
from tests.vectors.word_groups import text_of

TOPICS = 12
WORDS = 6  # of each topic


def two_faced_text(sentences: int = 1500, seed: int = 0) -> TrainingText:
    """Sentences about one of twelve topics each; word 5 occurs in those of two topics, word 6 in all, others in one."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(sentences):
        topic = int(rng.integers(TOPICS))
        line = (FIRST_WORD + 2 + topic * WORDS + rng.integers(WORDS, size=8)).tolist()
        line.insert(4, FIRST_WORD if topic < 2 else FIRST_WORD + 1)
        line.insert(1, FIRST_WORD + 1)
        lines.append(line)
    return text_of(lines, FIRST_WORD + 2 + TOPICS * WORDS)
