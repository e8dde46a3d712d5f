"""Dialogues: documents whose lines begin with a speaker and a colon."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TURN = re.compile(r"\s*([^\s:：][^:：]{0,39}?)\s*[:：]\s*[^\s/]")
MIN_TURNS = 3


def is_dialogue(sentences: Sequence[str]) -> bool:
    """Whether a document is a dialogue: see docs/knowledge.md.

    >>> is_dialogue(["A: hi", "B: hello", "how are you", "A: fine"]), is_dialogue(["男：你好", "女：你好", "男：再见"])
    (True, True)
    >>> is_dialogue(["name: Anna", "age: five", "city: Rome"]), is_dialogue(["A: hi", "B: hello"])
    (False, False)
    """
    found = [_TURN.match(sentence) for sentence in sentences]
    speakers = [match[1] for match in found if match is not None]
    begins = bool(found) and found[0] is not None
    enough = len(speakers) >= MIN_TURNS and 2 * len(speakers) >= len(found)
    return begins and enough and 1 < len(set(speakers)) < len(speakers)
