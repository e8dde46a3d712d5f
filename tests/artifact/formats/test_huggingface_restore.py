"""Networks that restore text are BartForConditionalGeneration and T5ForConditionalGeneration, both ways."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from firth.artifact.formats import import_model
from firth.artifact.formats.huggingface import read_model
from firth.artifact.formats.huggingface_registry import model_type_for
from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError
from firth.nets.batch import Batch
from firth.nets.denoising import DenoisingNet
from firth.nets.recipe import NetRecipe
from firth.nets.sentinels import SentinelNet
from firth.recipes.denoising import bart, mass, t5, t5_1_1
from firth.tokens.special_tokens import PairFormat
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK
from tests.artifact.formats.small_transformers import (
    SENTINELS,
    TEXTS,
    assert_refused_with,
    equal,
    load_theirs,
    model_of,
    put,
    small,
    their_byte_tokenizer,
    tokenizer_of,
    transformers,
)

LENGTH = 24
STEPS = {"bart": 400, "mass": 400, "t5": 250, "t5-1.1": 250}
RATES = {"bart": 0.005, "mass": 0.005, "t5": 0.01, "t5-1.1": 0.01}
SOURCES = [*TEXTS, "dog", "the fox", "The quick fox jumps"]
MEMBERS: dict[str, Callable[[], NetRecipe]] = {"bart": bart, "mass": mass, "t5": t5, "t5-1.1": t5_1_1}
EVERY = pytest.mark.parametrize("name", MEMBERS)
T5S = pytest.mark.parametrize("name", ["t5", "t5-1.1"])
BART, T5 = "BartForConditionalGeneration", "T5ForConditionalGeneration"
CLASSES = {"bart": BART, "mass": BART, "t5": T5, "t5-1.1": T5}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks are faster with one, and learn the same whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recipe_of(name: str) -> NetRecipe:
    """A small network whose encoder and decoder differ in depth, and those of BART in size.

    Their cache fails if a T5 has more layers in the decoder.
    """
    made = small(MEMBERS[name]())
    assert made.decoder is not None
    sizes = {"layers": 1, "heads": 4, "ffn_width": 20} if name in ("bart", "mass") else {"layers": 1}
    return replace(made, decoder=replace(made.decoder, **sizes))


def copied(rng: np.random.Generator, words: Sequence[int]) -> torch.Tensor:
    """Texts of one length."""
    return torch.from_numpy(rng.choice(words, (32, int(rng.integers(1, 8)))))


@cache
def model(name: str) -> DenoisingNet:
    """A model that has learnt nothing."""
    made = model_of(recipe_of(name))
    assert isinstance(made, DenoisingNet)
    return made


@cache
def trained(name: str) -> DenoisingNet:
    """A model that has learnt a little of copying, so that its texts end, and differ."""
    made, rng = model_of(recipe_of(name)), np.random.default_rng(2)
    assert isinstance(made, DenoisingNet)
    words = sorted({token for text in SOURCES for token in made.tokenizer.encode(text).ids if token > MASK})
    optimiser = torch.optim.Adam(made.network.parameters(), lr=RATES[name])
    for _ in range(STEPS[name]):
        texts = copied(rng, words)
        ends, begins = (torch.full((32, 1), token) for token in (EOS, BOS))
        source, target = torch.cat([begins, texts, ends], 1), torch.cat([ends, texts], 1)
        batch = Batch(target, target > 0, source=Batch(source, source > 0))
        logits = made.network.output.logits(made.network(batch).last_hidden_state)
        loss = torch.nn.functional.cross_entropy(logits, torch.cat([texts, ends], 1).flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return made


@EVERY
def test_logits_are_the_same(name: str, tmp_path: Path) -> None:
    """Of sources that their tokenizer encodes and pads."""
    made = model(name)
    folder = put(made, tmp_path / "out")
    theirs = load_theirs(folder, "AutoModelForSeq2SeqLM")
    assert type(theirs).__name__ == CLASSES[name]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokenizer(TEXTS, return_tensors="pt", padding=True)
    assert (given["attention_mask"] == 0).any()
    targets = torch.from_numpy(np.random.default_rng(3).integers(5, len(made.tokenizer), (len(TEXTS), 7)))
    targets[:, 0] = theirs.config.decoder_start_token_id
    with torch.no_grad():
        found = theirs(**given, decoder_input_ids=targets).logits
    for number, text in enumerate(TEXTS):
        source = torch.tensor([[BOS, *made.tokenizer.encode(text).ids, EOS]])
        assert source[0].tolist() == given["input_ids"][number][: source.shape[1]].tolist()
        mine = made.logits(targets[number : number + 1], source)[0]
        assert torch.allclose(mine, found[number], rtol=0, atol=1e-5)


@pytest.mark.parametrize("beams", [1, 4])
@EVERY
def test_generate_finds_the_same_texts(name: str, beams: int, tmp_path: Path) -> None:
    """Without a measure of length, of which theirs is another one."""
    made = trained(name)
    folder = put(made, tmp_path / "out")
    theirs = load_theirs(folder, "AutoModelForSeq2SeqLM")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    settings = theirs.generation_config
    assert (settings.num_beams, settings.max_length, settings.early_stopping) == (4, LENGTH, True)
    assert (settings.decoder_start_token_id, settings.eos_token_id, settings.pad_token_id) == (EOS, EOS, PAD)
    assert settings.forced_eos_token_id is None
    assert settings.suppress_tokens == [PAD, UNK, BOS, MASK]
    given = tokenizer(SOURCES, return_tensors="pt", padding=True)
    found = theirs.generate(**given, num_beams=beams, length_penalty=0.0)
    mine = made.translate(SOURCES, beams=beams, length_penalty=0.0)
    assert [one.text for one in mine] == tokenizer.batch_decode(found, skip_special_tokens=True)
    assert len({one.text for one in mine}) > 2


@T5S
def test_masks_are_sentinels_there(name: str, tmp_path: Path) -> None:
    """A source with `<extra_id_0>` instead of a mask gets the same spans."""
    made = trained(name)
    assert isinstance(made, SentinelNet)
    folder = put(made, tmp_path / "out")
    theirs = load_theirs(folder, "AutoModelForSeq2SeqLM")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    (mine,) = made.source_ids(["the <mask> jumps <mask> the dog"])
    given = tokenizer("the <extra_id_0> jumps <extra_id_1> the dog", return_tensors="pt")
    last = len(made.tokenizer) - 1
    assert {last, last - 1} <= set(mine.tolist())
    assert given["input_ids"][0].tolist() == [BOS, *mine.tolist(), EOS]
    found = theirs.generate(**given, num_beams=1)[0, 1:].tolist()
    (best,) = made.translate(["the <mask> jumps <mask> the dog"], beams=1)
    tokens = found[: found.index(EOS)]
    assert best.text == made.target_text(mine, tokens)
    assert best.tokens == len(tokens) + 1


def test_a_mass_with_small_embeddings_computes_the_same_as_a_bart(tmp_path: Path) -> None:
    """BART adds 1e-5 to variances, MASS 1e-12: scaled weights make up for it, where vectors are small, too."""
    made = model_of(recipe_of("mass"))
    assert made.recipe.encoder.eps == 1e-12
    with torch.no_grad():
        for part in (made.network.embedding, made.network.decoder_embedding):
            assert part is not None
            for table in (part.tokens, part.positions):
                assert isinstance(table, torch.nn.Embedding)
                table.weight *= 0.03
        made.network.output.bias += torch.randn(len(made.tokenizer))  # type: ignore[operator]
    folder = put(made, tmp_path / "out")
    theirs = load_theirs(folder, "BartForConditionalGeneration")
    source, target = torch.tensor([[BOS, 7, 8, MASK, 9, EOS]]), torch.tensor([[EOS, 9, 10, 11]])
    hidden = (source != MASK).long()
    with torch.no_grad():
        states = theirs.model.encoder(source)
        found = theirs(encoder_outputs=states, attention_mask=hidden, decoder_input_ids=target).logits
        batch = Batch(target, target > 0, source=Batch(source, source > 0, is_hidden=source == MASK))
        mine = made.network.output.logits(made.network(batch).last_hidden_state)
        encoded = made.network(Batch(source, source > 0)).last_hidden_state
    assert float(mine.std()) > 0.5
    assert torch.allclose(found[0], mine, rtol=0, atol=1e-5)
    assert torch.allclose(states.last_hidden_state[0], encoded, rtol=0, atol=1e-5)
    assert equal(read_model(folder), made)


@EVERY
def test_a_round_trip_changes_nothing(name: str, tmp_path: Path) -> None:
    made = model(name)
    folder = put(made, tmp_path / "out")
    back = read_model(folder)
    assert back.recipe == made.recipe
    assert back.tokenizer.data == made.tokenizer.data
    assert equal(back, made)
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == [
        path.read_bytes() for path in sorted(put(back, tmp_path / "again").iterdir())
    ]


@EVERY
def test_what_their_library_saves_again_is_read(name: str, tmp_path: Path) -> None:
    """Version 5 writes other keys: T5 is always tied there, and scaled or not."""
    made = model(name)
    theirs = load_theirs(put(made, tmp_path / "out"), "AutoModelForSeq2SeqLM")
    theirs.save_pretrained(tmp_path / "saved")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "out").save_pretrained(tmp_path / "saved")
    back = read_model(tmp_path / "saved")
    assert equal(back, made)
    assert back.recipe == made.recipe


@pytest.mark.parametrize(
    ("name", "part", "values", "message"),
    [
        ("bart", "encoder", {"eps": 1e-3}, "encoder.eps=0.001"),
        ("bart", "encoder", {"eps": 1e-6}, "encoder.eps=1e-06"),
        ("bart", "encoder", {"eps": 1e-12}, "decoder.eps=1e-05"),
        ("bart", "encoder", {"norm": "pre"}, "encoder.norm=pre"),
        ("bart", "embedding", {"own_decoder": False}, "embedding.own_decoder=False"),
        ("bart", "embedding", {"norm": False}, "embedding.norm=False"),
        ("bart", "output", {"kind": "full"}, "output.kind=full"),
        ("t5", "encoder", {"norm": "post"}, "encoder.norm=post"),
        ("t5", "encoder", {"rms": False}, "encoder.rms=False"),
        ("t5", "decoder", {"activation": "gelu"}, "decoder.activation=gelu"),
        ("t5", "decoder", {"heads": 8}, "decoder.heads=8"),
        ("t5", "embedding", {"norm": True}, "embedding.norm=True"),
    ],
    ids=str,
)
def test_what_their_classes_lack_is_refused(name: str, part: str, values: dict[str, Any], message: str) -> None:
    recipe = recipe_of(name)
    with pytest.raises(AbilityError, match=message):
        model_type_for(replace(recipe, **{part: replace(getattr(recipe, part), **values)}))


def their_piece_tokenizer() -> Any:
    """A tokenizer of T5: padding, end and unknown first, sentinels last, no other special tokens."""
    content = json.loads(tokenizer_of("pieces").data)["model"]["vocab"][5:]
    sentinels = [(f"<extra_id_{number}>", 0.0) for number in reversed(range(SENTINELS))]
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((piece, score) for piece, score in content)]
    return transformers.T5Tokenizer(vocab=[*vocabulary, *sentinels], extra_ids=SENTINELS)


def their_model(name: str, tokens: int, **settings: Any) -> Any:
    """A random model of theirs."""
    torch.manual_seed(5)
    if name == "bart":
        sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 32}
        sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 4, "max_position_embeddings": LENGTH}
        ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
        options = {"vocab_size": tokens, **sizes, **ids, "forced_eos_token_id": None, **settings}
        return transformers.BartForConditionalGeneration(transformers.BartConfig(**options)).eval()
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 2}
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} if name == "t5-1.1" else {}
    options = {"vocab_size": tokens, **sizes, **gated, "decoder_start_token_id": 0, "n_positions": LENGTH, **settings}
    made = transformers.T5ForConditionalGeneration(transformers.T5Config(**options)).eval()
    if name == "t5-1.1":
        made.lm_head.weight = torch.nn.Parameter(torch.randn(tokens, 16))
    return made


def their_folder(
    name: str, folder: Path, steps: int = 0, spare: int = 0, forced: int | None = None, **settings: Any
) -> tuple[Any, Any]:
    """A model of theirs and its tokenizer, saved; `spare` rows have no token, `forced` begins targets."""
    tokenizer = their_byte_tokenizer("roberta") if name == "bart" else their_piece_tokenizer()
    made = their_model(name, len(tokenizer) + spare, **settings)
    made.generation_config.forced_bos_token_id = forced
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    if steps:
        ids = {token for text in SOURCES for token in tokenizer(text, add_special_tokens=False).input_ids}
        _train(made, steps, sorted(ids - {tokenizer.unk_token_id}))
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return made.eval(), tokenizer


def _train(made: Any, steps: int, words: Sequence[int]) -> None:
    """Train a model of theirs to copy a little, by its own loss; its targets begin with what is forced."""
    rng, optimiser = np.random.default_rng(2), torch.optim.Adam(made.parameters(), lr=RATES[made.config.model_type])
    end, forced = made.config.eos_token_id, made.generation_config.forced_bos_token_id
    for _ in range(steps):
        texts = copied(rng, words)
        ends = torch.full((32, 1), end)
        begins = [] if forced is None else [torch.full((32, 1), forced)]
        optimiser.zero_grad()
        made(torch.cat([texts, ends], 1), labels=torch.cat([*begins, texts, ends], 1)).loss.backward()
        optimiser.step()


def their_texts(other: Any, tokenizer: Any, texts: Sequence[str], beams: int) -> list[str]:
    given = tokenizer(list(texts), return_tensors="pt", padding=True)
    options = {"num_beams": beams, "length_penalty": 0.0, "early_stopping": True, "max_length": LENGTH}
    unused = [tokenizer.unk_token_id, tokenizer.pad_token_id]
    found = other.generate(**given, **options, suppress_tokens=unused, do_sample=False)
    return [str(text) for text in tokenizer.batch_decode(found, skip_special_tokens=True)]


FOREIGN = [
    ("bart", {}, PairFormat((BOS,), (EOS,), EOS)),
    ("bart", {"forced": 0, "scale_embedding": True}, PairFormat((BOS,), (EOS,), EOS, (BOS,))),
    ("t5", {}, PairFormat((), (EOS,), PAD)),
    ("t5-1.1", {}, PairFormat((), (EOS,), PAD)),
]


@pytest.mark.parametrize(("name", "settings", "pair_format"), FOREIGN, ids=["bart", "bart-forced", "t5", "t5-1.1"])
def test_models_of_transformers_are_imported_and_write_alike(
    name: str, settings: dict[str, Any], pair_format: PairFormat, tmp_path: Path
) -> None:
    """With other ids and special tokens, which the tokenizer keeps: logits, texts and scores are the same."""
    other, tokenizer = their_folder(name, tmp_path / "theirs", STEPS[name], **settings)
    report = import_model("huggingface", tmp_path / "theirs", tmp_path / "ours")
    assert report["type"] == name.partition("-")[0]
    mine = load(tmp_path / "ours")
    assert mine.pair_format == pair_format
    starts = [other.config.decoder_start_token_id, *([0] if pair_format.prefix else [])]
    for text in TEXTS:
        ids = mine.tokenizer.encode(text).ids
        theirs = tokenizer(text, return_tensors="pt")
        words = tokenizer(text, add_special_tokens=False).input_ids
        assert len(ids) == len(words)
        with torch.no_grad():
            expected = other(**theirs, decoder_input_ids=torch.tensor([[*starts, *words[:4]]]))
        source = torch.tensor([[*pair_format.before, *ids, EOS]])
        found = mine.logits(torch.tensor([[*pair_format.first, *ids[:4]]]), source)
        same = {**dict(zip(ids, words, strict=True)), EOS: tokenizer.eos_token_id, UNK: tokenizer.unk_token_id}
        for new, old in same.items():
            assert torch.allclose(found[..., new], expected.logits[..., old], rtol=0, atol=2e-5)
    for beams in (1, 4):
        wanted = their_texts(other, tokenizer, SOURCES, beams)
        translated = mine.translate(SOURCES, beams=beams, length_penalty=0.0)
        assert [one.text for one in translated] == wanted
        assert len(set(wanted)) > 2
        folder = put(mine, tmp_path / f"again{beams}")
        again = transformers.AutoTokenizer.from_pretrained(folder)
        assert their_texts(load_theirs(folder, "AutoModelForSeq2SeqLM"), again, SOURCES, beams) == wanted
        assert equal(read_model(folder), mine)

    target = tokenizer("the dog jumps", add_special_tokens=False).input_ids
    labels = torch.tensor([[*starts[1:], *target, tokenizer.eos_token_id]])
    with torch.no_grad():
        logits = other(**tokenizer(TEXTS[0], return_tensors="pt"), labels=labels).logits[0]
    never = [tokenizer.pad_token_id] if name != "bart" else [0, tokenizer.pad_token_id, tokenizer.mask_token_id]
    logits[:, never] = -torch.inf
    found = logits.log_softmax(-1).gather(1, labels[0][:, None])[len(starts) - 1 :].sum()
    (score,) = mine.score_pairs([(TEXTS[0], "the dog jumps")])
    assert score.logprob == pytest.approx(float(found), abs=1e-4)


def test_sentinels_and_spare_rows_of_t5(tmp_path: Path) -> None:
    """Published tables have rows without a token at their end; sentinels stay the last tokens."""
    other, tokenizer = their_folder("t5", tmp_path / "theirs", spare=5)
    mine = read_model(tmp_path / "theirs")
    assert mine.tokenizer.recipe.sentinels == SENTINELS
    assert mine.tokenizer.vocabulary[-1] == "<extra_id_0>"
    assert len(mine.tokenizer) == len(tokenizer) + 2  # `<s>` and `<mask>`
    (ids,) = mine.source_ids(["the <mask> jumps"])
    theirs = tokenizer("the <extra_id_0> jumps", return_tensors="pt")
    assert (ids[1], theirs.input_ids[0][1]) == (len(mine.tokenizer) - 1, len(tokenizer) - 1)
    with torch.no_grad():
        expected = other(**theirs, decoder_input_ids=torch.tensor([[0, len(tokenizer) - 1]])).logits
    found = mine.logits(torch.tensor([[PAD, len(mine.tokenizer) - 1]]), torch.tensor([[*ids, EOS]]))
    assert torch.allclose(found[..., -SENTINELS:], expected[..., -SENTINELS - 5 : -5], rtol=0, atol=1e-5)
    again = load_theirs(put(mine, tmp_path / "again"), "AutoModelForSeq2SeqLM")
    assert again.config.vocab_size == len(tokenizer)
    assert [len(one) for one in mine.fill_many(["the <mask> jumps"], top=2)] == [1]


@pytest.mark.parametrize(("role", "message"), [("mask_token", "sentinels"), ("unk_token", "ordinary token")])
def test_a_sentinel_with_another_role_is_none(role: str, message: str, tmp_path: Path) -> None:
    """The first one is the first of all, so that there are none then."""
    their_folder("t5", tmp_path / "theirs")
    path = tmp_path / "theirs/tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {role: "<extra_id_0>"}))
    with pytest.raises(ArtifactError, match=message):
        read_model(tmp_path / "theirs")


def test_the_encoder_of_t5_alone_is_read_and_written(tmp_path: Path) -> None:
    other, tokenizer = their_folder("t5", tmp_path / "theirs")
    encoder = transformers.T5EncoderModel.from_pretrained(tmp_path / "theirs").eval()
    encoder.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    mine = read_model(tmp_path / "encoder")
    assert mine.recipe.decoder is None
    assert mine.recipe.objectives == ()
    theirs = tokenizer(TEXTS[0], return_tensors="pt")
    ids = torch.tensor([[*mine.tokenizer.encode(TEXTS[0]).ids, EOS]])
    with torch.no_grad():
        expected = other.encoder(**theirs).last_hidden_state[0]
        found = mine.network(Batch(ids, ids > 0)).last_hidden_state
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)
    again = load_theirs(put(mine, tmp_path / "again"), "T5EncoderModel")
    with torch.no_grad():
        tokens = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")(TEXTS[0], return_tensors="pt")
        assert torch.allclose(again(**tokens).last_hidden_state[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_invalid_folders_are_refused(name: str, tmp_path: Path) -> None:
    their_folder(name, tmp_path / "theirs")

    refused = partial(assert_refused_with, tmp_path / "theirs")

    refused("decoder_start_token_id=None", decoder_start_token_id=None)
    refused("decoder_start_token_id=100000", decoder_start_token_id=100_000)
    refused("forced_bos_token_id='a'", forced_bos_token_id="a")
    refused("eos_token_id=5, but the tokenizer's is", eos_token_id=5)
    if name == "bart":
        refused("activation_function='mish'", activation_function="mish")
        refused("tie_word_embeddings=False", tie_word_embeddings=False)
        refused("scale_embedding='x': it must be", scale_embedding="x")
        refused("has the shape", {"final_logits_bias": torch.zeros(1, 3)})
        refused("heads of Firth read the encoder alone", architectures=["BartForSequenceClassification"])
        refused("heads of Firth read the encoder alone", architectures=["BartForQuestionAnswering"])
        return
    refused("feed_forward_proj='mish'", feed_forward_proj="gated-mish")
    refused("feed_forward_proj=3", feed_forward_proj=3)
    refused("d_model=16, but 2 heads of d_kv=9", d_kv=9)
    refused("scale_decoder_outputs=1", scale_decoder_outputs=1)
    refused("num_decoder_layers='1'", num_decoder_layers="1")
    refused("need .* sentinels", n_positions=512)
    refused("has the shape", {"lm_head.weight": torch.zeros(3, 16)})
