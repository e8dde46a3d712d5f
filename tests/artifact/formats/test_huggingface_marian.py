"""Exported Transformers translate alike as MarianMTModel, and those of the transformers library are imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import processors

from firth.artifact.formats import import_model
from firth.artifact.formats.huggingface import read_model
from firth.artifact.formats.huggingface_registry import model_type_for
from firth.artifact.models import load
from firth.errors import AbilityError
from firth.fit.adapt import adapt
from firth.nets.batch import Batch
from firth.nets.recipe import NetRecipe
from firth.nets.seq2seq import Seq2SeqNet
from firth.objectives.heads.build import make_heads
from firth.recipes.nets import transformer
from firth.tokens.special_tokens import PairFormat
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK
from tests.artifact.formats.small_transformers import (
    TEXTS,
    assert_refused_with,
    equal,
    load_theirs,
    model_of,
    put,
    small,
    tokenizer_of,
    transformers,
)
from tests.command import assert_refused, firth
from tests.vectors.small_models import save_model

LENGTH = 24
STEPS = 250
SOURCES = [*TEXTS, "dog", "the fox", "The quick fox jumps"]
NEVER = [PAD, BOS, MASK]  # tokens that Firth gives the probability 0


def recipe_of(eps: float = 1e-5, **changes: Any) -> NetRecipe:
    """A small Transformer whose encoder and decoder differ in size."""
    made = small(transformer())
    part = replace(made.encoder, eps=eps)
    return replace(made, encoder=part, decoder=replace(part, layers=3, heads=4, ffn_width=20), **changes)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks are faster with one, and learn the same whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def model() -> Seq2SeqNet:
    """A model that has learnt nothing."""
    made = model_of(recipe_of())
    assert isinstance(made, Seq2SeqNet)
    return made


@cache
def trained() -> Seq2SeqNet:
    """A model that has learnt a little of copying, so that its texts end, and differ."""
    made, rng = model_of(recipe_of()), np.random.default_rng(2)
    assert isinstance(made, Seq2SeqNet)
    (head,) = make_heads(made.recipe, made.network).values()
    optimiser = torch.optim.Adam(made.network.parameters(), lr=0.01)
    for _ in range(STEPS):
        texts = torch.from_numpy(rng.integers(5, len(made.tokenizer), (32, int(rng.integers(1, 8)))))
        ends, begins = (torch.full((32, 1), token) for token in (EOS, BOS))
        source, target = torch.cat([begins, texts, ends], 1), torch.cat([ends, texts], 1)
        batch = Batch(target, target > 0, source=Batch(source, source > 0))
        loss = head.loss(made.network, made.network(batch), batch, None)
        optimiser.zero_grad()
        (loss.total / loss.count).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return made


def inputs(made: Seq2SeqNet, theirs: Any, folder: Path) -> dict[str, torch.Tensor]:
    """The sources as their tokenizer encodes them, and what the decoder has read of each."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokenizer(TEXTS, return_tensors="pt", padding=True)
    start = theirs.config.decoder_start_token_id
    targets = torch.from_numpy(np.random.default_rng(3).integers(5, len(made.tokenizer), (len(TEXTS), 7)))
    targets[:, 0] = start
    return {**given, "decoder_input_ids": targets}


def test_logits_are_the_same(tmp_path: Path) -> None:
    folder = put(model(), tmp_path / "out")
    theirs = load_theirs(folder, "AutoModelForSeq2SeqLM")
    assert type(theirs).__name__ == "MarianMTModel"
    given = inputs(model(), theirs, folder)
    with torch.no_grad():
        found = theirs(**given).logits
    for number, text in enumerate(TEXTS):
        source = torch.tensor([[BOS, *model().tokenizer.encode(text).ids, EOS]])
        assert source[0].tolist() == given["input_ids"][number][: source.shape[1]].tolist()
        mine = model().logits(given["decoder_input_ids"][number : number + 1], source)[0]
        assert torch.allclose(mine, found[number], rtol=0, atol=1e-5)


def test_the_loss_of_labels_is_that_of_firth(tmp_path: Path) -> None:
    """Labels are the target and its end; their decoder reads them one step later, after the start."""
    folder = put(model(), tmp_path / "out")
    theirs = load_theirs(folder, "MarianMTModel")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    target = "the dog jumps"
    labels = torch.tensor([[*tokenizer(target, add_special_tokens=False).input_ids, EOS]])
    with torch.no_grad():
        logits = theirs(**tokenizer(TEXTS[0], return_tensors="pt"), labels=labels).logits[0]
    logits[:, NEVER] = -torch.inf
    found = logits.log_softmax(-1).gather(1, labels[0][:, None]).sum()
    (mine,) = model().score_pairs([(TEXTS[0], target)])
    assert mine.logprob == pytest.approx(float(found), abs=1e-4)


@pytest.mark.parametrize("beams", [1, 3, 4])
def test_generate_finds_the_same_texts(beams: int, tmp_path: Path) -> None:
    """With one measure of length: theirs has no offset, so neither side normalises here."""
    made = trained()
    folder = put(made, tmp_path / "out")
    theirs = load_theirs(folder, "AutoModelForSeq2SeqLM")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    settings = theirs.generation_config
    assert (settings.num_beams, settings.max_length, settings.early_stopping) == (4, LENGTH, True)
    assert (settings.decoder_start_token_id, settings.eos_token_id, settings.pad_token_id) == (EOS, EOS, PAD)
    assert settings.forced_eos_token_id is None
    # The mass of tokens that are never predicted is distributed over the others in Firth only.
    theirs.final_logits_bias[0, NEVER] = -1e9
    given = tokenizer(SOURCES, return_tensors="pt", padding=True)
    found = theirs.generate(**given, num_beams=beams, length_penalty=0.0)
    mine = made.translate(SOURCES, beams=beams, length_penalty=0.0)
    assert [one.text for one in mine] == tokenizer.batch_decode(found, skip_special_tokens=True)
    assert all(one.finished for one in mine)
    assert len({one.text for one in mine}) > 2


def test_generate_gives_no_special_tokens(tmp_path: Path) -> None:
    """However probable they are, as in Firth."""
    folder = put(model(), tmp_path / "out")
    theirs = load_theirs(folder, "AutoModelForSeq2SeqLM")
    theirs.final_logits_bias[0, [PAD, UNK, BOS, MASK]] = 5.0
    found = theirs.generate(torch.tensor([[BOS, 7, 8, EOS], [BOS, 9, 10, EOS]]), num_beams=1, max_length=9)[:, 1:]
    ended = (found == EOS).cumsum(1) > 0
    assert not set(found[~ended].tolist()) & {PAD, UNK, BOS, MASK}


@pytest.mark.parametrize("bias", [False, True])
def test_a_round_trip_changes_nothing(bias: bool, tmp_path: Path) -> None:
    recipe = recipe_of()
    made = model_of(replace(recipe, output=replace(recipe.output, bias=bias)))
    folder = put(made, tmp_path / "out")
    back = read_model(folder)
    assert back.recipe == made.recipe
    assert back.tokenizer.data == made.tokenizer.data
    assert equal(back, made)
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == [
        path.read_bytes() for path in sorted(put(back, tmp_path / "again").iterdir())
    ]
    source, target = torch.tensor([[BOS, 7, 8, EOS]]), torch.tensor([[EOS, 9, 10]])
    with torch.no_grad():
        found = load_theirs(folder, "MarianMTModel")(source, decoder_input_ids=target).logits
    assert torch.allclose(found, made.logits(target, source), rtol=0, atol=1e-5)  # type: ignore[call-arg]


def test_a_smaller_constant_of_normalisation_is_reported(tmp_path: Path) -> None:
    """Marian's is 1e-5. The published one is kept by an import; logits differ by a few millionths."""
    made = model_of(recipe_of(eps=1e-6))
    save_model(made, tmp_path / "kept")
    shown = firth("export", tmp_path / "kept", "huggingface", tmp_path / "out", "--json")
    assert shown.code == 0
    assert shown.json["type"] == "marian"
    assert "--set encoder.eps=1e-05 --set decoder.eps=1e-05" in shown.err
    assert read_model(tmp_path / "out").recipe == made.recipe
    source, target = torch.tensor([[BOS, 7, 8, EOS]]), torch.tensor([[EOS, 9, 10]])
    theirs = load_theirs(tmp_path / "out", "MarianMTModel")
    with torch.no_grad():
        found, mine = theirs(source, decoder_input_ids=target).logits, made.logits(target, source)  # type: ignore[call-arg]
        assert float((found - mine).abs().max() / mine.abs().max()) < 2e-5
        for module in theirs.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.eps = 1e-6
        found = theirs(source, decoder_input_ids=target).logits
    assert torch.allclose(found, mine, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("encoder", {"eps": 1e-3}, "encoder.eps=0.001"),
        ("encoder", {"norm": "pre"}, "encoder.norm=pre"),
        ("decoder", {"activation": "gelu"}, "decoder.activation=gelu"),
        ("decoder", {"tie_layers": "all"}, "decoder.tie_layers=all"),
        ("embedding", {"positions": "learned"}, "embedding.positions=learned"),
        ("output", {"kind": "full"}, "output.kind=full"),
    ],
    ids=str,
)
def test_what_marian_has_not_is_refused(part: str, values: dict[str, Any], message: str) -> None:
    recipe = recipe_of()
    with pytest.raises(AbilityError, match=message):
        model_type_for(replace(recipe, **{part: replace(getattr(recipe, part), **values)}))


def their_tokenizer(template: str = "$A </s>") -> Any:
    """A tokenizer with the special tokens and ids of Marian: the end first, padding last."""
    content = json.loads(tokenizer_of("bpe").data)
    words = [token for token, number in content["model"]["vocab"].items() if number >= 5]
    vocabulary = {token: number for number, token in enumerate(["</s>", "<unk>", *words, "<pad>"])}
    content["model"] |= {"vocab": vocabulary}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    content["added_tokens"] = [
        {"id": vocabulary[token], "content": token, **flags} for token in ("</s>", "<unk>", "<pad>")
    ]
    backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    backend.post_processor = processors.TemplateProcessing(
        single=template, pair=template.replace("$A", "$A $B"), special_tokens=[("</s>", 0)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    )


def their_folder(folder: Path, steps: int = 0, **settings: Any) -> tuple[Any, Any]:
    """A random MarianMTModel and its tokenizer, saved."""
    tokenizer = their_tokenizer()
    last = len(tokenizer) - 1
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 32}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 4, "max_position_embeddings": LENGTH}
    ids = {"vocab_size": last + 1, "pad_token_id": last, "decoder_start_token_id": last, "eos_token_id": 0}
    options = sizes | ids | {"scale_embedding": True, "forced_eos_token_id": None} | settings
    torch.manual_seed(5)
    made = transformers.MarianMTModel(transformers.MarianConfig(**options)).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "embed_positions" not in name:
                parameter += 0.2 * torch.randn_like(parameter)
        made.final_logits_bias += 0.1 * torch.randn_like(made.final_logits_bias)
        made.final_logits_bias[0, last] = -1e9  # as published models: padding is never predicted
    if steps:
        _train(made, steps)
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return made.eval(), tokenizer


def _train(made: Any, steps: int) -> None:
    """Train a model of theirs to copy a little, by its own loss."""
    rng, optimiser = np.random.default_rng(2), torch.optim.Adam(made.parameters(), lr=0.01)
    for _ in range(steps):
        texts = torch.from_numpy(rng.integers(2, made.config.vocab_size - 1, (32, int(rng.integers(1, 8)))))
        given = torch.cat([texts, torch.zeros(32, 1, dtype=torch.int64)], 1)
        optimiser.zero_grad()
        made(given, labels=given).loss.backward()
        optimiser.step()


def their_texts(other: Any, tokenizer: Any, texts: Sequence[str], beams: int) -> list[str]:
    given = tokenizer(list(texts), return_tensors="pt", padding=True)
    options = {"num_beams": beams, "length_penalty": 0.0, "early_stopping": True, "max_length": LENGTH}
    unknown = tokenizer.unk_token_id
    found = other.generate(**given, **options, suppress_tokens=[unknown], do_sample=False)
    return [str(text) for text in tokenizer.batch_decode(found, skip_special_tokens=True)]


@pytest.mark.parametrize("beams", [1, 4])
def test_models_of_transformers_are_imported_and_translate_alike(beams: int, tmp_path: Path) -> None:
    """Their sources have no `<s>`, and their decoder starts with padding; the tokenizer keeps both."""
    other, tokenizer = their_folder(tmp_path / "theirs", STEPS)
    report = import_model("huggingface", tmp_path / "theirs", tmp_path / "ours")
    assert report["type"] == "marian"
    mine = load(tmp_path / "ours")
    assert mine.pair_format == PairFormat((), (EOS,), PAD)
    for text in TEXTS:
        ids = mine.tokenizer.encode(text).ids
        theirs = tokenizer(text, return_tensors="pt")
        assert len(ids) + 1 == theirs.input_ids.shape[1]
        with torch.no_grad():
            expected = other(**theirs, decoder_input_ids=torch.tensor([[len(tokenizer) - 1, *theirs.input_ids[0][:4]]]))
        found = mine.logits(torch.tensor([[PAD, *ids[:4]]]), torch.tensor([[*ids, EOS]]))
        same = dict(zip([*ids, EOS, UNK], [*theirs.input_ids[0].tolist(), 1], strict=True))
        for new, old in same.items():
            assert torch.allclose(found[..., new], expected.logits[..., old], rtol=0, atol=1e-5)
    translated = mine.translate(SOURCES, beams=beams, length_penalty=0.0)
    wanted = their_texts(other, tokenizer, SOURCES, beams)
    assert [one.text for one in translated] == wanted
    assert all(one.finished for one in translated)
    assert len(set(wanted)) > 2

    labels = torch.tensor([tokenizer("the dog jumps").input_ids])
    with torch.no_grad():
        logits = other(**tokenizer(TEXTS[0], return_tensors="pt"), labels=labels).logits[0]
    (score,) = mine.score_pairs([(TEXTS[0], "the dog jumps")])
    assert score.logprob == pytest.approx(float(logits.log_softmax(-1).gather(1, labels[0][:, None]).sum()), abs=1e-4)

    folder = put(mine, tmp_path / "again")
    config = json.loads((folder / "config.json").read_text())
    assert config["decoder_start_token_id"] == PAD
    again = transformers.AutoTokenizer.from_pretrained(folder)
    assert their_texts(load_theirs(folder, "AutoModelForSeq2SeqLM"), again, SOURCES, beams) == wanted
    assert equal(read_model(folder), mine)


def test_the_activation_of_published_models_is_read(tmp_path: Path) -> None:
    """swish(x) = x sigmoid(x)."""
    other, tokenizer = their_folder(tmp_path / "theirs", activation_function="swish")
    mine = read_model(tmp_path / "theirs")
    assert (mine.recipe.encoder.activation, mine.recipe.decoder.activation) == ("silu", "silu")
    theirs, ids = tokenizer(TEXTS[0], return_tensors="pt"), mine.tokenizer.encode(TEXTS[0]).ids
    with torch.no_grad():
        expected = other(**theirs, decoder_input_ids=torch.tensor([[len(tokenizer) - 1]])).logits
    found = mine.logits(torch.tensor([[PAD]]), torch.tensor([[*ids, EOS]]))
    for new, old in zip(ids, theirs.input_ids[0].tolist(), strict=False):
        assert torch.allclose(found[..., new], expected[..., old], rtol=0, atol=1e-5)
    again = load_theirs(put(mine, tmp_path / "again"), "MarianMTModel")
    assert again.config.activation_function == "silu"
    assert equal(read_model(tmp_path / "again"), mine)


def test_a_foreign_format_is_not_trained_further(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    import_model("huggingface", tmp_path / "theirs", tmp_path / "ours")
    with pytest.raises(AbilityError, match="other special tokens"):
        adapt(tmp_path / "ours", [("the dog", "the fox")] * 8, out=tmp_path / "more", budget="1ktok")


def test_invalid_folders_are_refused(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")

    refused = partial(assert_refused_with, tmp_path / "theirs")

    refused("scale_embedding=False", scale_embedding=False)
    refused("another vocabulary for the decoder", decoder_vocab_size=7)
    refused("activation_function='mish'", activation_function="mish")
    refused("decoder_start_token_id=None", decoder_start_token_id=None)
    refused("decoder_start_token_id=100000", decoder_start_token_id=100_000)
    refused("eos_token_id=5, but the tokenizer's is 0", eos_token_id=5)
    refused("normalize_before=True", normalize_before=True)
    refused("decoder_layers='1': it must be a whole number", decoder_layers="1")
    refused("holds no sinusoids", {"model.encoder.embed_positions.weight": torch.ones(LENGTH, 16)})
    refused("has the shape", {"final_logits_bias": torch.zeros(1, 3)})


def test_a_sentencepiece_file_alone_is_refused(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer.json").unlink()
    (tmp_path / "theirs/source.spm").write_bytes(b"\n")
    shown = firth("import", "huggingface", tmp_path / "theirs", "-o", tmp_path / "ours")
    assert_refused(shown, "source.spm, which Firth cannot read")


def test_stored_sinusoids_are_left_out(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    before, path = read_model(tmp_path / "theirs"), tmp_path / "theirs/model.safetensors"
    table = transformers.MarianMTModel(transformers.MarianConfig.from_pretrained(tmp_path / "theirs"))
    positions = table.model.encoder.embed_positions.weight.detach().clone()
    save_file(load_file(path) | {"model.decoder.embed_positions.weight": positions.half()}, path)
    assert equal(read_model(tmp_path / "theirs"), before)
