"""Invalid Hugging Face folders are refused with one sentence, and no artifact is written."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from firth.artifact.formats.huggingface import read_model
from firth.artifact.formats.huggingface_config import MODEL_TYPES
from firth.artifact.formats.huggingface_tokenizer import import_tokenizer, wordpiece_json
from firth.errors import ArtifactError, FirthError
from firth.recipes.values import recipe_to_json
from tests.artifact.formats.small_transformers import their_folder
from tests.command import firth


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    their_folder("bert", folder)
    return folder


@pytest.fixture
def copied(bert_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bert_folder, tmp_path / "copied"))


def change(folder: Path, file: str, **values: Any) -> None:
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(content | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "bloom"}, "it reads bert, roberta, albert, electra, gpt2, openai-gpt, xlm"),
        ({"model_type": ["bert"]}, "it reads bert"),
        ({"hidden_act": "mish"}, "hidden_act='mish'"),
        ({"hidden_act": ["gelu"]}, "hidden_act"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"num_hidden_layers": 3}, "lack bert.encoder.layer.2.attention"),
        ({"num_hidden_layers": 1}, "have bert.encoder.layer.1.attention"),
        ({"num_hidden_layers": 10**12}, "encoder.layers=1000000000000 must be from 0 to 1000"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers='2': it must be a whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers=True"),
        ({"hidden_size": 16.0}, "hidden_size=16.0"),
        ({"hidden_size": None}, "hidden_size=None"),
        ({"hidden_size": 32}, r"has the shape \(.*, 16\), but config.json needs \(.*, 32\)"),
        ({"hidden_size": -16}, "must be from"),
        ({"num_attention_heads": 3}, "must be a multiple"),
        ({"intermediate_size": 10**12}, "must be from"),
        ({"max_position_embeddings": 31}, "has the shape"),
        ({"max_position_embeddings": 10**12}, "must be from"),
        ({"type_vocab_size": 3}, "has the shape"),
        ({"hidden_dropout_prob": 2}, "must be from 0 to 1"),
        ({"vocab_size": 10**12}, "declares 1000000000000 tokens"),
        ({"tie_word_embeddings": False}, "lack cls.predictions.decoder"),
    ],
    ids=str,
)
def test_unsupported_configs_are_refused(values: dict[str, Any], message: str, copied: Path) -> None:
    change(copied, "config.json", **values)
    with pytest.raises(FirthError, match=message):
        read_model(copied)


def change_weights(folder: Path, **tensors: torch.Tensor | None) -> None:
    path = folder / "model.safetensors"
    content = load_file(path) | {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    save_file({name: tensor for name, tensor in content.items() if tensor is not None}, path)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"cls__predictions__bias": None}, "lack cls.predictions.bias"),
        ({"bert__embeddings__word_embeddings__weight": None}, "lack the tensor bert.embeddings.word_embeddings.weight"),
        ({"classifier__weight": torch.zeros(2, 16)}, "have classifier.weight, which Firth does not know"),
        ({"bert__embeddings__LayerNorm__bias": torch.zeros(17)}, r"shape \(17,\)"),
        ({"bert__embeddings__LayerNorm__bias": torch.full((16,), torch.nan)}, "LayerNorm.bias holds NaN"),
        ({"bert__embeddings__LayerNorm__bias": torch.full((16,), torch.inf)}, "LayerNorm.bias holds NaN"),
        ({"bert__embeddings__LayerNorm__bias": torch.zeros(16, dtype=torch.int64)}, "not floating-point"),
        ({"bert__embeddings__LayerNorm__beta": torch.zeros(16)}, "twice"),
        ({"cls__predictions__decoder__bias": torch.ones(200)}, "but they differ"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_weights_are_refused(tensors: dict[str, Any], message: str, copied: Path) -> None:
    change_weights(copied, **tensors)
    with pytest.raises(ArtifactError, match=message):
        read_model(copied)


def test_pickles_are_not_opened(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "weights.pt", "model.ckpt"):
        (copied / name).write_bytes(b"\x80\x04cos\nsystem\n")
        with pytest.raises(ArtifactError, match=f"{name}, a pickle.*save_pretrained writes model.safetensors"):
            read_model(copied)
        (copied / name).unlink()
    with pytest.raises(ArtifactError, match=r"has no model\.safetensors"):
        read_model(copied)


def test_unsupported_tokenizers_are_refused(copied: Path, bert_folder: Path) -> None:
    content = json.loads((copied / "tokenizer.json").read_text())

    def refused(message: str, **changes: Any) -> None:
        (copied / "tokenizer.json").write_text(json.dumps(content | changes))
        with pytest.raises(FirthError, match=message):
            read_model(copied)

    words = content["model"]["vocab"]
    refused("tokens and the weights have", model=content["model"] | {"vocab": dict(list(words.items())[:-1])})
    refused("missing or repeated ids", model=content["model"] | {"vocab": {**words, max(words, key=words.get): 10**6}})
    refused("a model of type 'Magic'", model={"type": "Magic"})
    refused("an added token that is empty", added_tokens=[{"id": "x"}])
    refused("splits text in a way", pre_tokenizer={"type": "WhitespaceSplit"})
    renamed = {("[BEGIN]" if token == "[CLS]" else token): number for token, number in words.items()}
    others = [token for token in content["added_tokens"] if token["content"] != "[CLS]"]
    change(copied, "tokenizer_config.json", cls_token=None)
    refused("has no cls_token", model=content["model"] | {"vocab": renamed}, added_tokens=others)
    (copied / "tokenizer.json").unlink()
    with pytest.raises(ArtifactError, match=r"has no tokenizer\.json"):
        read_model(copied)


def test_ordinary_tokens_must_not_be_called_special() -> None:
    data = wordpiece_json(["<pad>", "[UNK]", "<s>", "</s>", "<mask>", "[CLS]", "the"], {})
    settings = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": {"content": "</s>"}, "mask_token": "<mask>"}
    with pytest.raises(ArtifactError, match=r"an ordinary token '\[CLS\]'"):
        import_tokenizer(data, settings, MODEL_TYPES["bert"], 7)


def test_damaged_files_are_refused_with_one_sentence(bert_folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for file in sorted(bert_folder.iterdir()):
        data = file.read_bytes()
        cuts = [data[: len(data) // 2], b"", b"\xff" * 40, b"[]", b"{}", data[:-1]]
        flips = []
        for _ in range(12):
            flipped = bytearray(data)
            flipped[rng.integers(len(data))] ^= 1 << rng.integers(8)
            flips.append(bytes(flipped))
        for number, damaged in enumerate([*cuts, *flips]):
            folder = Path(shutil.copytree(bert_folder, tmp_path / f"{file.name}-{number}"))
            (folder / file.name).write_bytes(damaged)
            with suppress(FirthError):  # and nothing else
                read_model(folder)


def test_a_header_that_declares_too_much(copied: Path) -> None:
    shape = [10**12, 16]
    head = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 64 * 10**12]}}).encode()
    (copied / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises(ArtifactError, match="the tensors end at byte"):
        read_model(copied)


def test_missing_files_are_reported_by_the_command(copied: Path, tmp_path: Path) -> None:
    (copied / "config.json").unlink()
    for path in (copied, tmp_path / "nowhere", copied / "tokenizer.json"):
        done = firth("import", "huggingface", path, "-o", tmp_path / "out")
        assert done.code == 1
        assert "Traceback" not in done.err
        assert len(done.err.strip().splitlines()) <= 3
        assert not (tmp_path / "out").exists()


def test_a_projection_between_equal_widths_is_refused(tmp_path: Path) -> None:
    their_folder("albert", tmp_path / "theirs", embedding_size=16)
    with pytest.raises(ArtifactError, match=r"values of albert\.encoder\.embedding_hidden_mapping_in.* no equivalent"):
        read_model(tmp_path / "theirs")


@pytest.mark.parametrize("recipe", ["gpt2", "openai-gpt", "albert", 5, {"type": "nets"}, {"type": []}])
def test_another_recipe_in_a_config_changes_nothing(recipe: Any, copied: Path) -> None:
    expected = read_model(copied).recipe
    stored = recipe_to_json(MODEL_TYPES[recipe].published()) if isinstance(recipe, str) else recipe
    change(copied, "config.json", firth=stored)
    assert read_model(copied).recipe == expected
