"""Imported models of the transformers library compute the same, also after another export."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import models, normalizers, pre_tokenizers

from firth.artifact.formats import import_model
from firth.artifact.formats.huggingface import read_huggingface, read_model
from firth.artifact.formats.huggingface_config import MODEL_TYPES
from firth.artifact.formats.huggingface_tokenizer import import_tokenizer
from firth.artifact.formats.huggingface_weights import ABSENT_BIAS
from firth.artifact.models import load
from firth.errors import ArtifactError
from firth.tokens.tokenizer import EOS
from tests.artifact.formats.small_transformers import (
    TEXTS,
    THEIR_TOKENIZERS,
    equal,
    language_class,
    load_theirs,
    put,
    same_scores,
    some_ids,
    their_folder,
    transformers,
)


@pytest.mark.parametrize("kind", THEIR_TOKENIZERS)
def test_models_of_transformers_are_imported_and_exported(kind: str, tmp_path: Path) -> None:
    other, tokenizer = their_folder(kind, tmp_path / "theirs")
    import_model("huggingface", tmp_path / "theirs", tmp_path / "ours")
    model = load(tmp_path / "ours")
    assert tuple(model.tokenizer.vocabulary[:5]) == model.recipe.tokenizer.specials
    same_scores(other, tokenizer, model)
    again = put(model, tmp_path / "again")
    same_scores(load_theirs(again, language_class(kind)), transformers.AutoTokenizer.from_pretrained(again), model)
    assert equal(read_model(again), model)


def test_gpt2_gets_the_tokens_it_lacks(tmp_path: Path) -> None:
    _, tokenizer = their_folder("gpt2", tmp_path / "theirs")
    model = read_model(tmp_path / "theirs")
    assert len(model.tokenizer) == len(tokenizer) + 4
    bias = model.arrays()["output.bias"]
    assert [number for number in range(len(bias)) if bias[number] == ABSENT_BIAS] == [0, 1, 2, 4]
    ids = some_ids(model)
    assert model.logits(ids).softmax(-1)[..., [0, 1, 2, 4]].max() == 0
    assert model.tokenizer.vocabulary[EOS] == "</s>"
    put(model, tmp_path / "again")
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (again["vocab_size"], again["eos_token_id"], again["pad_token_id"]) == (len(tokenizer), 0, None)


@pytest.mark.parametrize("kinds", [1, 2])
def test_segments_of_roberta(kinds: int, tmp_path: Path) -> None:
    """A single segment embedding is kept unless it is zero."""
    their_folder("roberta", tmp_path / "theirs", type_vocab_size=kinds)
    assert read_model(tmp_path / "theirs").recipe.embedding.segments == kinds
    if kinds == 1:
        path, name = tmp_path / "theirs/model.safetensors", "roberta.embeddings.token_type_embeddings.weight"
        save_file(load_file(path) | {name: torch.zeros(1, 16)}, path)
        assert read_model(tmp_path / "theirs").recipe.embedding.segments == 0


def test_old_and_bare_names(tmp_path: Path) -> None:
    their_folder("bert", tmp_path / "new")
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    tensors = load_file(tmp_path / "new/model.safetensors")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    table = tensors["bert.embeddings.word_embeddings.weight"]
    renamed |= {
        "cls.predictions.decoder.weight": table.clone(),
        "bert.embeddings.position_ids": torch.arange(30)[None],
        "bert.pooler.dense.weight": torch.zeros(16, 16),
        "bert.pooler.dense.bias": torch.zeros(16),
    }
    save_file(renamed, tmp_path / "old/model.safetensors")
    model, report = read_model(tmp_path / "old"), read_huggingface(tmp_path / "old").report
    assert report["left_out"] == ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]
    assert equal(model, read_model(tmp_path / "new"))

    their_folder("gpt2", tmp_path / "gpt2")
    model = read_model(tmp_path / "gpt2")
    path = tmp_path / "gpt2/model.safetensors"
    bare = {name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}
    save_file(bare | {"h.0.attn.bias": torch.ones(1, 1, 28, 28)}, path)
    assert equal(read_model(tmp_path / "gpt2"), model)


def test_shards_and_half_precision(tmp_path: Path) -> None:
    other, _ = their_folder("bert", tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two/model.safetensors").unlink()
    other.save_pretrained(tmp_path / "two", max_shard_size="20KB")
    assert len(list((tmp_path / "two").glob("*.safetensors"))) > 1
    assert equal(read_model(tmp_path / "two"), read_model(tmp_path / "one"))
    index = tmp_path / "two/model.safetensors.index.json"
    content = json.loads(index.read_text())
    moved = {**content, "weight_map": {name: min(content["weight_map"].values()) for name in content["weight_map"]}}
    index.write_text(json.dumps(moved))
    with pytest.raises(ArtifactError, match="does not hold the tensors"):
        read_model(tmp_path / "two")
    index.write_text(json.dumps({"weight_map": dict.fromkeys(content["weight_map"], "../one/model.safetensors")}))
    with pytest.raises(ArtifactError, match="no shards beside it"):
        read_model(tmp_path / "two")

    path = tmp_path / "one/model.safetensors"
    half = {name: tensor.half() for name, tensor in load_file(path).items()}
    save_file(half, path)
    model = read_model(tmp_path / "one")
    table = model.arrays()["embedding.segments.weight"]
    assert table.dtype == np.float32
    assert np.array_equal(table, half["bert.embeddings.token_type_embeddings.weight"].float().numpy())


def test_vocab_txt_is_enough(tmp_path: Path) -> None:
    _, tokenizer = their_folder("bert", tmp_path / "theirs")
    model = read_model(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer.json").unlink()
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    (tmp_path / "theirs/vocab.txt").write_text("\n".join(words) + "\n")
    found = read_model(tmp_path / "theirs")
    assert equal(found, model)
    for text in TEXTS:
        assert found.tokenizer.encode(text).ids == model.tokenizer.encode(text).ids
    (tmp_path / "theirs/tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = read_model(tmp_path / "theirs").tokenizer
    assert not cased.recipe.lowercase
    assert cased.encode("THE").ids != model.tokenizer.encode("THE").ids
    (tmp_path / "theirs/vocab.txt").write_text("\n".join([*words[:-1], words[0]]))
    with pytest.raises(ArtifactError, match="a token twice"):
        read_model(tmp_path / "theirs")


def test_added_tokens_come_last() -> None:
    backend = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "the": 1, "do": 2, "##g": 3}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_tokens(["zebra"])
    backend.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    ours, order = import_tokenizer(str(backend.to_str()).encode(), {}, MODEL_TYPES["bert"], 9)
    assert ours.vocabulary == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "do", "##g", "zebra"]
    assert order == [5, 0, 6, 7, 8, 1, 2, 3, 4]
    assert ours.tokenize("The dog [MASK] zebra cat") == ["the", "do", "##g", "[MASK]", "zebra", "[UNK]"]
