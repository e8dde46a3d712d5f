"""Two small languages that are translations of each other, and tiny networks of both."""

from __future__ import annotations

from pathlib import Path

from tests.fit.small_nets import sentences

SETTINGS = [
    *("tokenizer=words", "tokenizer.min_count=1", "embedding.width=16", "encoder.width=16", "encoder.ffn_width=64"),
    *("encoder.layers=2", "encoder.heads=2", "sequence.length=32", "learning.batch=64", "embedding.init=random"),
]


def translate(sentence: str) -> str:
    """Each word in Chinese characters, in reverse order."""
    return " ".join("词" + chr(0x4E00 + int(word[1:])) for word in reversed(sentence.split()))


def write_texts(folder: Path, count: int = 120) -> list[str]:
    """Write a text of each language and pairs; returns the arguments of `firth train`."""
    english, chinese, pairs = sentences(count, 1), sentences(count // 3, 2), sentences(count, 3)
    (folder / "en.txt").write_text("\n".join(english) + "\n", encoding="utf-8")
    (folder / "zh.txt").write_text("\n".join(map(translate, chinese)) + "\n", encoding="utf-8")
    lines = [f"{one}\t{translate(one)}" for one in pairs]
    (folder / "pairs.tsv").write_text("\n".join(["en\tzh", *lines]) + "\n", encoding="utf-8")
    return [f"en={folder / 'en.txt'}", f"zh={folder / 'zh.txt'}", str(folder / "pairs.tsv")]
