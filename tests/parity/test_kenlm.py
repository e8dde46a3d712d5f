"""KenLM and Firth load each other's ARPA files and agree on the score of every word."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.formats import export_model
from firth.artifact.formats.arpa import ngram_model, read_arpa
from firth.counts.ngram import NgramModel, NgramRecipe
from firth.counts.train import train_on_sentences
from firth.text.oracle import builtin_documents
from firth.tokens.recipe import TokenizerRecipe

kenlm = pytest.importorskip("kenlm", reason="the kenlm package is not installed")

TOLERANCE = 1e-4
SPACED = TokenizerRecipe(model="words", split="space", normalise="none", segmenter="space")


def texts(name: str, begin: int, end: int) -> list[str]:
    """Sentences of a built-in corpus, with spaces between the words."""
    lines = [line for document in builtin_documents(name) for line in document.text.splitlines() if line.split()]
    chosen = lines[begin:end]
    return [" ".join(line if "chinese" in name else line.split()) for line in chosen]


@pytest.fixture(scope="module")
def english() -> tuple[list[str], list[str]]:
    train, test = texts("oracle", 0, 400), texts("oracle", 400, 460)
    rng = np.random.default_rng(5)
    words = sorted({word for line in train for word in line.split()})
    test += [" ".join(rng.choice([*words, "zyzzyva", "Ünknøwn"], size=12)) for _ in range(60)]
    return train, [*test, "zyzzyva", "zyzzyva zyzzyva " + test[0], "a" * 300]


def assert_agrees(model: NgramModel, path: Path, sentences: list[str]) -> None:
    """Compare scores of words and sentences, and which words are unknown."""
    peer = kenlm.Model(str(path))
    assert peer.order == max(model.trie.order, 2)
    stream, _ = model.stream(sentences)
    logs = model.token_logprobs(stream) / np.log(10)
    for sentence, begin, end in zip(sentences, stream.bounds[:-1], stream.bounds[1:], strict=True):
        found = list(peer.full_scores(sentence))
        assert logs[begin:end] == pytest.approx([score for score, _, _ in found], abs=TOLERANCE)
        assert peer.score(sentence) == pytest.approx(float(logs[begin:end].sum()), abs=TOLERANCE)
        assert (stream.ids[begin:end] == 1).tolist() == [unknown for _, _, unknown in found]


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "katz", "witten-bell"])
def test_agrees_on_every_word(order: int, smoothing: Any, english: Any, tmp_path: Path) -> None:
    model = train_on_sentences(english[0], NgramRecipe(order=order, smoothing=smoothing, tokenizer=SPACED))
    export_model(model, "arpa", tmp_path / "m.arpa")
    assert_agrees(model, tmp_path / "m.arpa", english[1])
    assert_agrees(ngram_model(read_arpa(tmp_path / "m.arpa")), tmp_path / "m.arpa", english[1])


@pytest.mark.parametrize(
    "settings",
    [
        {"prune": 1e-4},
        {"min_counts": "1,2,3"},
        {"precision": "8bit"},
        {"precision": "float32"},
        {"interpolate": False},
        {"smoothing": "stupid"},
    ],
    ids=str,
)
def test_agrees_on_pruned_and_quantised_models(settings: dict[str, Any], english: Any, tmp_path: Path) -> None:
    model = train_on_sentences(english[0], NgramRecipe(order=4, tokenizer=SPACED, **settings))
    export_model(model, "arpa", tmp_path / "m.arpa.gz")
    (tmp_path / "m.arpa").write_bytes(gzip.decompress((tmp_path / "m.arpa.gz").read_bytes()))
    assert_agrees(model, tmp_path / "m.arpa", english[1])
    assert_agrees(model, tmp_path / "m.arpa.gz", english[1])


def test_agrees_on_characters(tmp_path: Path) -> None:
    model = train_on_sentences(texts("oracle-chinese", 0, 200), NgramRecipe(order=5, tokenizer=SPACED))
    export_model(model, "arpa", tmp_path / "m.arpa")
    assert_agrees(model, tmp_path / "m.arpa", texts("oracle-chinese", 200, 260))


def test_agrees_where_sentences_are_shorter_than_the_order(tmp_path: Path) -> None:
    model = train_on_sentences(["a b", "b", "a a"], NgramRecipe(order=5, smoothing="witten-bell", tokenizer=SPACED))
    export_model(model, "arpa", tmp_path / "m.arpa")
    assert_agrees(model, tmp_path / "m.arpa", ["a", "b b b b b b b", "a b", "c a"])


LIKE_LMPLZ = """\\data\\
ngram 1=5
ngram 2=4
ngram 3=2

\\1-grams:
-0.90309	<unk>	0
0	<s>	-0.30103
-0.60206	</s>	0
-0.60206	looking	-0.22184876
-0.42596874	on	-0.1

\\2-grams:
-0.39794	on </s>	0
-0.30103	<s> looking	-0.17609125
-0.15490195	looking on	-0.4
-1.2	looking looking	0

\\3-grams:
-0.2	looking on </s>
-0.1	<s> looking on

\\end\\
"""

LIKE_SRILM = """
\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-0.69897\t</s>
-99\t<s>\t-0.30103
-0.69897\t<unk>
-0.69897\tb
-0.39794\ta\t-0.4771213

\\2-grams:
-0.1249387\t<s> b
-0.30103\ta b
-0.60206\ta a

\\end\\
"""


@pytest.mark.parametrize("text", [LIKE_LMPLZ, LIKE_SRILM], ids=["lmplz", "srilm"])
def test_loads_files_of_lmplz_and_srilm(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.arpa"
    path.write_text(text)
    model = ngram_model(read_arpa(path))
    sentences = ["looking on", "looking looking on looking", "a b", "b a a b", "on zebra looking on", "on"]
    assert_agrees(model, path, sentences)
    export_model(model, "arpa", tmp_path / "again.arpa")
    assert_agrees(model, tmp_path / "again.arpa", sentences)
