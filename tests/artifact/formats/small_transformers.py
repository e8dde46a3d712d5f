"""Small Transformers of ours and of the transformers library, for tests of the huggingface format."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from firth.artifact.formats import export_model
from firth.artifact.formats.huggingface import read_model
from firth.artifact.formats.huggingface_config import MODEL_TYPES
from firth.errors import ArtifactError
from firth.fit.loop import TrainingModule
from firth.lm.language_model import UnknownWordModel
from firth.nets.model import NetModel
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.nets.restore import make_model
from firth.objectives.heads.build import make_heads
from firth.recipes.nets import albert, bert, gpt, gpt2, roberta
from firth.text.corpus import read_corpus
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import train_tokenizer
from tests.samples import CHINESE, ENGLISH, small_recipe

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

MEMBERS = {"bert": bert, "roberta": roberta, "albert": albert, "gpt2": gpt2, "openai-gpt": gpt}
EVERY = pytest.mark.parametrize("name", MEMBERS)
MASKED = pytest.mark.parametrize("name", ["bert", "roberta", "albert"])
TEXTS = ["The lazy dog jumps, doesn't it?", "the café — 1,000 foxes", "我们喜欢语言。"]
SENTINELS = 8
TOKENIZERS: dict[str, Tokenizer] = {}


def tokenizer_of(kind: str, sentinels: int = 0) -> Tokenizer:
    """A small tokenizer of this kind, trained once."""
    key = f"{kind} {sentinels}"
    if key not in TOKENIZERS:
        recipe = replace(small_recipe(kind), sentinels=sentinels)
        TOKENIZERS[key] = train_tokenizer(recipe, read_corpus([ENGLISH * 3, CHINESE * 3]))
    return TOKENIZERS[key]


def small(recipe: NetRecipe) -> NetRecipe:
    """The recipe with tiny sizes."""
    sizes: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "ffn_width": 64}
    narrow = 8 if recipe.embedding.width < recipe.encoder.width else 16
    sentinels = min(SENTINELS, recipe.tokenizer.sentinels)
    return replace(
        recipe,
        tokenizer=tokenizer_of(recipe.tokenizer.model, sentinels).recipe,
        embedding=replace(recipe.embedding, width=narrow),
        encoder=replace(recipe.encoder, **sizes),
        decoder=None if recipe.decoder is None else replace(recipe.decoder, **sizes),
        sequence=replace(recipe.sequence, length=24),
    )


def model_of(recipe: NetRecipe, seed: int = 1) -> NetModel:
    """An untrained model, with no parameter at 0 or 1."""
    tokenizer = tokenizer_of(recipe.tokenizer.model, recipe.tokenizer.sentinels)
    vocabulary = Vocabulary(tokenizer.vocabulary, np.arange(len(tokenizer), dtype=np.int64))
    network = build_network(recipe, vocabulary, seed)
    objectives = make_heads(recipe, network)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in (network, *objectives.values()):
            for parameter in module.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    heads = TrainingModule(network, objectives).head_tensors()
    return make_model(recipe, network, tokenizer, "lines", UnknownWordModel.train(["a"]), heads)


def put(model: NetModel, folder: Path) -> Path:
    """Export a model; returns the folder."""
    export_model(model, "huggingface", folder)
    return folder


def language_class(kind: str) -> str:
    """The class of transformers that loads any model of this type with its head for language modelling."""
    return "AutoModelForCausalLM" if MODEL_TYPES[kind].is_causal else "AutoModelForMaskedLM"


def load_theirs(folder: Path, name: str) -> Any:
    """A model that a class of transformers loads from a folder; nothing of it is missing."""
    model, report = getattr(transformers, name).from_pretrained(folder, output_loading_info=True, local_files_only=True)
    missing = {key for key in report["missing_keys"] if "pooler" not in key}
    assert not missing
    assert not report["mismatched_keys"]
    return model.eval()


def some_ids(model: NetModel) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(2).integers(5, len(model.tokenizer), (3, 11)))


def equal(one: NetModel, two: NetModel) -> bool:
    """Whether two models have the same parameters, bit for bit."""
    mine, other = one.arrays(), two.arrays()
    del mine["counts"], other["counts"], mine["spelling"], other["spelling"]
    return mine.keys() == other.keys() and all(np.array_equal(mine[key], other[key]) for key in mine)


def foreign(kind: str, folder: Path, tokens: int, **settings: Any) -> Any:
    """A random model of transformers, saved."""
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "vocab_size": tokens}
    if kind in ("bert", "roberta", "albert"):
        sizes |= {"intermediate_size": 40, "max_position_embeddings": 30}
    if kind == "albert":
        sizes["embedding_size"] = 8
    if kind in ("gpt2", "openai-gpt"):
        sizes |= {"n_positions": 28, "bos_token_id": tokens - 1, "eos_token_id": tokens - 1}
    config = transformers.AutoConfig.for_model(kind, **(sizes | settings))
    torch.manual_seed(4)
    model = getattr(transformers, language_class(kind)).from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model


def same_scores(other: Any, their_tokenizer: Any, model: NetModel) -> None:
    """Compare the logits and probabilities of both libraries for all shared tokens of the same texts."""
    for text in TEXTS:
        ids = model.tokenizer.encode(text).ids
        theirs = their_tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) == len(theirs) <= 28
        their_ids = dict(zip(ids, theirs, strict=True))
        with torch.no_grad():
            mine, others = model.logits(torch.tensor([ids])), other(torch.tensor([theirs])).logits
        for new, old in their_ids.items():
            assert torch.allclose(mine[..., new], others[..., old], rtol=0, atol=2e-5)
        mine, others = mine.softmax(-1), others.softmax(-1)
        for new, old in their_ids.items():
            assert torch.allclose(mine[..., new], others[..., old], rtol=0, atol=1e-6)


def their_bert_tokenizer() -> Any:
    words = tokenizer_of("wordpiece").vocabulary[5:]
    names = ["[PAD]", "[unused0]", *words[:50], "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words[50:]]
    return transformers.BertTokenizer(vocab={token: number for number, token in enumerate(names)})


def their_byte_tokenizer(kind: str) -> Any:
    content = json.loads(tokenizer_of("byte-bpe").data)["model"]
    words, merges = [token for token in content["vocab"] if content["vocab"][token] >= 5], content["merges"]
    names = [*words, "<|endoftext|>"] if kind == "gpt2" else ["<s>", "<pad>", "</s>", "<unk>", *words, "<mask>"]
    made = transformers.GPT2Tokenizer if kind == "gpt2" else transformers.RobertaTokenizer
    return made(vocab={token: number for number, token in enumerate(names)}, merges=[tuple(pair) for pair in merges])


def their_piece_tokenizer() -> Any:
    content = json.loads(tokenizer_of("pieces").data)["model"]["vocab"][5:]
    names = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    return transformers.AlbertTokenizer(
        vocab=[*((name, 0.0) for name in names), *((piece, score) for piece, score in content)]
    )


def their_character_tokenizer() -> Any:
    """The tokenizer of GPT with single characters; the last one of a word is another token."""
    characters = sorted(set("".join(TEXTS).lower()) - {" "})
    names = ["<unk>", *characters, *(f"{character}</w>" for character in characters), "</s>"]
    vocabulary = {token: number for number, token in enumerate(names)}
    return transformers.OpenAIGPTTokenizer(vocab=vocabulary, merges=[], eos_token="</s>")


THEIR_TOKENIZERS: dict[str, Callable[[], Any]] = {
    "bert": their_bert_tokenizer,
    "roberta": lambda: their_byte_tokenizer("roberta"),
    "albert": their_piece_tokenizer,
    "gpt2": lambda: their_byte_tokenizer("gpt2"),
    "openai-gpt": their_character_tokenizer,
}


def their_folder(kind: str, folder: Path, **settings: Any) -> tuple[Any, Any]:
    """A random model of transformers and its tokenizer, both saved in a folder."""
    tokenizer = THEIR_TOKENIZERS[kind]()
    model = foreign(kind, folder, len(tokenizer), **settings)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def assert_refused_with(folder: Path, message: str, tensors: dict[str, Any] | None = None, **changes: Any) -> None:
    """A copy of a folder with other tensors, or other values in config.json, is refused with this message."""
    copy = Path(shutil.copytree(folder, folder.parent / "copy"))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | changes))
    if tensors:
        save_file(load_file(copy / "model.safetensors") | tensors, copy / "model.safetensors")
    with pytest.raises(ArtifactError, match=message):
        read_model(copy)
    shutil.rmtree(copy)
