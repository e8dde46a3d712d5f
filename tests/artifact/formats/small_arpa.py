"""A small ARPA file that several tests change."""

from __future__ import annotations

from pathlib import Path

SPECIALS = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]

SMALL = r"""
\data\
ngram 1=5
ngram 2=4
ngram 3=1

\1-grams:
-0.69897	<unk>
-99	<s>	-0.30103
-0.60206	</s>
-0.60206	a	-0.176091
-0.522879	b

\2-grams:
-0.1249387	<s> a	0
-0.30103	a b
-0.7781513	a </s>
-0.2	b </s>

\3-grams:
-0.2	<s> a b

\end\
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "model.arpa"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
