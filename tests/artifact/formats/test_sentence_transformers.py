"""Folders of sentence-transformers: their modules by transformers and tokenizers alone, and by the library itself."""

from __future__ import annotations

import importlib.util
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

import firth
from firth.apply.embed import text_vectors
from firth.errors import AbilityError, ArtifactError
from tests.command import firth as command
from tests.fit.small_nets import text

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

Floats = npt.NDArray[np.float32]
TEXTS = ["w1 w2 w3 w4", "w7", "w3 unknown w9 w9", "nothing known", "", " ".join(["w5 w8"] * 20)]
NETS = {"bert": ["encoder.ffn_width=32"], "roberta": ["encoder.ffn_width=32"], "simcse": ["encoder.ffn_width=32"]}
SMALL = [
    *("embedding.width=16", "encoder.width=16", "encoder.layers=2", "encoder.heads=2", "sequence.length=24"),
    *("tokenizer.vocab_size=300", "learning.batch=256"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("st")
    for name, more in NETS.items():
        firth.train(name, text(), out=home / name, settings=[*SMALL, *more], budget="2ktok", threads=1)
    for name, prefix in (("skipgram", ""), ("sif", "base.")):
        settings = [f"{prefix}dimension=6", f"{prefix}epochs=1", "tokenizer.min_count=1"]
        firth.train(name, text(), out=home / name, settings=settings, threads=1)
    return home


def plain_vectors(folder: Path, texts: list[str]) -> Floats:
    """What the library computes, from the files of the folder."""
    modules = json.loads((folder / "modules.json").read_text())
    kinds = [one["type"].rpartition(".")[2] for one in modules]
    if kinds[0] == "StaticEmbedding":
        weights = load_file(folder / modules[0]["path"] / "model.safetensors")["embedding.weight"]
        tokenizer = Tokenizer.from_file(str(folder / modules[0]["path"] / "tokenizer.json"))
        bags = [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
        found = torch.stack([weights[ids].mean(0) if ids else torch.zeros(weights.shape[1]) for ids in bags])
    else:
        found = transformer_vectors(folder, modules[1]["path"], texts)
    if kinds[-1] == "Normalize":
        found = torch.nn.functional.normalize(found, dim=1)
    return found.numpy()


def transformer_vectors(folder: Path, pooling: str, texts: list[str]) -> torch.Tensor:
    modes = json.loads((folder / pooling / "config.json").read_text())
    length = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    if modes["pooling_mode_cls_token"]:
        return states[:, 0]
    if modes["pooling_mode_max_tokens"]:
        return states.masked_fill(mask == 0, -torch.inf).amax(1)
    return (states * mask).sum(1) / mask.sum(1)


def our_vectors(model: Any, texts: list[str], **options: Any) -> Floats:
    return text_vectors(model, texts, **options)[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(("pooling", "unit"), [("whole", True), ("first", False)])
def test_networks_give_the_same_vectors(home: Path, tmp_path: Path, name: str, pooling: str, unit: bool) -> None:
    model = firth.load(home / name)
    report = firth.export(model, "sentence-transformers", tmp_path / "out", pooling=pooling, unit=unit)
    assert report["sentences"] == {"pooling": pooling, "unit": unit, "length": 24}
    texts = [one for one in TEXTS if one]
    found = plain_vectors(tmp_path / "out", texts)
    np.testing.assert_allclose(found, our_vectors(model, texts, pooling=pooling, unit=unit), atol=1e-5)
    again = firth.import_("sentence-transformers", tmp_path / "out", tmp_path / "in")
    np.testing.assert_allclose(our_vectors(again, texts, pooling=pooling, unit=unit), found, atol=1e-5)


@pytest.mark.parametrize("name", ["skipgram", "sif"])
def test_static_vectors_are_the_same(home: Path, tmp_path: Path, name: str) -> None:
    model = firth.load(home / name)
    firth.export(model, "sentence-transformers", tmp_path / "out")
    ours, theirs = our_vectors(model, TEXTS, unit=True), plain_vectors(tmp_path / "out", TEXTS)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
    assert ours[0].any()
    assert not ours[3].any()
    again = firth.import_("sentence-transformers", tmp_path / "out", tmp_path / "in")
    np.testing.assert_allclose(our_vectors(again, TEXTS, unit=True), ours, atol=1e-5)


def test_the_library_gives_the_same_vectors(home: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("sentence_transformers") is None:
        pytest.skip("sentence-transformers is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        for name, options in {"bert": {"pooling": "whole", "unit": True}, "simcse": {"pooling": "first"}}.items():
            model = firth.load(home / name)
            firth.export(model, "sentence-transformers", tmp_path / name, **options)
            theirs = SentenceTransformer(str(tmp_path / name), device="cpu").encode(TEXTS[:4])
            np.testing.assert_allclose(theirs, our_vectors(model, TEXTS[:4], **options), atol=1e-5)
        for name in ("skipgram", "sif"):
            model = firth.load(home / name)
            firth.export(model, "sentence-transformers", tmp_path / name)
            theirs = SentenceTransformer(str(tmp_path / name), device="cpu").encode(TEXTS)
            np.testing.assert_allclose(theirs, our_vectors(model, TEXTS, unit=True), atol=1e-5)


def test_what_cannot_be_exported_or_imported(home: Path, tmp_path: Path) -> None:
    firth.train("multi-prototype", text(), out=tmp_path / "m", settings=["base.dimension=5", "base.epochs=1"])
    with pytest.raises(AbilityError, match="no mean"):
        firth.export(tmp_path / "m", "sentence-transformers", tmp_path / "a")
    with pytest.raises(AbilityError, match="pooling"):
        firth.export(home / "bert", "sentence-transformers", tmp_path / "b", pooling="last")
    with pytest.raises(AbilityError, match="sentence-transformers"):
        firth.export(home / "bert", "huggingface", tmp_path / "c", unit=True)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "modules.json").write_text('[{"type": "sentence_transformers.models.BoW", "path": "0_BoW"}]')
    with pytest.raises(ArtifactError, match="BoW"):
        firth.import_("sentence-transformers", tmp_path / "d", tmp_path / "e")
    done = command("import", "sentence-transformers", tmp_path / "nowhere", "-o", tmp_path / "f")
    assert done.code == 1
    assert not (tmp_path / "a").exists()
