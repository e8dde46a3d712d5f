"""Exported folders load in the transformers library, and round trips change nothing."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from firth.artifact.formats import export_model, import_model
from firth.artifact.formats.huggingface import read_model, write_folder
from firth.artifact.formats.huggingface_config import MODEL_TYPES, model_type_for
from firth.artifact.models import load, save
from firth.errors import AbilityError, OutputError
from firth.nets.batch import Batch
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.registry import parse_objectives
from firth.recipes.nets import bert, elmo, gpt, gpt2, lstm
from firth.tokens.tokenizer import MASK
from tests.artifact.formats.small_transformers import (
    EVERY,
    MASKED,
    MEMBERS,
    TEXTS,
    equal,
    language_class,
    load_theirs,
    model_of,
    put,
    small,
    some_ids,
    their_folder,
    tokenizer_of,
    transformers,
)
from tests.command import assert_refused, firth
from tests.vectors.small_models import save_model


@EVERY
def test_transformers_loads_what_was_exported(name: str, tmp_path: Path) -> None:
    model = model_of(small(MEMBERS[name]()))
    folder = put(model, tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == name == model_type_for(model.recipe).name
    other = load_theirs(folder, language_class(name))
    ids = some_ids(model)
    with torch.no_grad():
        assert torch.allclose(other(ids).logits, model.logits(ids), rtol=0, atol=1e-5)
        body = load_theirs(folder, "AutoModel")(ids).last_hidden_state
        states = model.network(Batch(ids, ids > 0)).last_hidden_state
    assert torch.allclose(body.reshape(-1, 16), states, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "albert"])
def test_the_sentence_pair_head_is_exported(name: str, tmp_path: Path) -> None:
    model = model_of(small(MEMBERS[name]()))
    folder = put(model, tmp_path / "out")
    other = load_theirs(folder, MODEL_TYPES[name].pair_architecture)
    ids = some_ids(model)
    segments = (torch.arange(11) > 5).long().expand(3, -1)
    pair_objective = make_heads(model.recipe, model.network)[model.recipe.names[1]]
    prefix = f"heads.{model.recipe.names[1]}."
    pair_objective.load_state_dict({key.removeprefix(prefix): tensor for key, tensor in model.heads.items()})
    with torch.no_grad():
        states = model.network(Batch(ids, ids > 0, segment_ids=segments)).last_hidden_state.view(3, 11, -1)
        found = other(ids, token_type_ids=segments)
        scores = found.sop_logits if name == "albert" else found.seq_relationship_logits
        assert torch.allclose(pair_objective.classify(states[:, 0]), scores, rtol=0, atol=1e-5)


@EVERY
def test_the_tokenizer_is_exported(name: str, tmp_path: Path) -> None:
    model = model_of(small(MEMBERS[name]()))
    other = transformers.AutoTokenizer.from_pretrained(put(model, tmp_path / "out"))
    assert other.model_max_length == 24
    for text in TEXTS:
        ids = model.tokenizer.encode(text).ids
        expected = [3, *ids] if MODEL_TYPES[name].is_causal else [2, *ids, 3]
        assert other(text)["input_ids"] == expected
        assert other.decode(ids) == model.tokenizer.backend.decode(ids)
    one, two = (model.tokenizer.encode(text).ids for text in TEXTS[:2])
    pair = other(TEXTS[0], TEXTS[1])
    if not MODEL_TYPES[name].is_causal:
        between = [3, 3] if name == "roberta" else [3]
        assert pair["input_ids"] == [2, *one, *between, *two, 3]
        assert other.mask_token == model.tokenizer.vocabulary[MASK]
    if model.recipe.embedding.segments:
        assert pair["token_type_ids"] == [0] * (len(one) + 2) + [1] * (len(two) + 1)
    else:
        assert "token_type_ids" not in pair
    padded = other(TEXTS, padding=True)
    assert {len(row) for row in padded["input_ids"]} == {max(len(row) for row in other(TEXTS)["input_ids"])}


@MASKED
def test_the_pipeline_fills_as_we_do(name: str, tmp_path: Path) -> None:
    model = model_of(small(MEMBERS[name]()))
    mask = model.tokenizer.vocabulary[MASK]
    folder = str(put(model, tmp_path / "out"))
    fill = transformers.pipeline("fill-mask", folder, tokenizer=folder, top_k=len(model.tokenizer))
    text = f"The lazy {mask} jumps over"
    theirs = {one["token"]: one["score"] for one in fill(text)}
    ids = torch.tensor([[2, *model.masked_ids([text])[0], 3]])
    position = ids[0].tolist().index(MASK)
    ours = model.logits(ids)[0, position].softmax(-1)
    assert ours.tolist() == pytest.approx([theirs[number] for number in range(len(ours))], abs=1e-6)


@EVERY
def test_a_round_trip(name: str, tmp_path: Path) -> None:
    model = model_of(small(MEMBERS[name]()))
    report = export_model(model, "huggingface", tmp_path / "out")
    assert report["type"] == name
    assert report["bytes"] == sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    report = import_model("huggingface", tmp_path / "out", tmp_path / "back")
    back = load(tmp_path / "back")
    assert report["vocabulary"] == len(model.tokenizer)
    assert "left_out" not in report
    assert back.recipe == model.recipe
    assert back.tokenizer.data == model.tokenizer.data
    assert equal(back, model)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bert", {"output": {"kind": "full"}}),
        ("bert", {"objectives": "mlm+sop"}),
        ("bert", {"encoder": {"activation": "relu"}, "embedding": {"dropout": 0.3}}),
        ("roberta", {"output": {"kind": "full"}}),
        ("roberta", {"objectives": "mlm+nsp", "sequence": {"format": "segment-pair"}}),
        ("roberta", {"encoder": {"activation": "gelu-tanh"}}),
        ("roberta", {"embedding": {"segments": 1}}),
        ("albert", {"embedding": {"width": 16}}),
        ("albert", {"embedding": {"segments": 0}}),
        ("gpt2", {"output": {"kind": "full"}, "encoder": {"ffn_width": 40, "activation": "tanh"}}),
    ],
    ids=str,
)
def test_a_round_trip_of_variants(name: str, change: dict[str, Any], tmp_path: Path) -> None:
    recipe = small(MEMBERS[name]())
    for part, values in change.items():
        value = replace(getattr(recipe, part), **values) if isinstance(values, dict) else parse_objectives(values)
        recipe = (
            replace(recipe, sequence=replace(recipe.sequence, format="segment-pair"))
            if part == "objectives"
            else recipe
        )
        recipe = replace(recipe, **{part: value})
    model = model_of(recipe)
    folder = put(model, tmp_path / "out")
    back = read_model(folder)
    assert back.recipe == recipe
    assert equal(back, model)
    other = load_theirs(folder, language_class(name))
    ids = some_ids(model)
    with torch.no_grad():
        assert torch.allclose(other(ids).logits, model.logits(ids), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("recipe", "part"),
    [
        (lstm(), "encoder.kind=lstm"),
        (elmo(), "encoder.kind=lstm"),
        (replace(bert(), embedding=replace(bert().embedding, positions="sinusoidal")), "sinusoidal"),
        (replace(bert(), encoder=replace(bert().encoder, tie_layers="attention")), "encoder.tie_layers=attention"),
        (replace(bert(), embedding=replace(bert().embedding, width=128)), "embedding.width=128"),
        (replace(gpt2(), embedding=replace(gpt2().embedding, norm=True)), "embedding.norm=True"),
        (replace(gpt(), encoder=replace(gpt().encoder, activation="gelu")), "encoder.activation=gelu"),
        (replace(bert(), encoder=replace(bert().encoder, norm="pre")), "encoder.norm=pre"),
        (replace(bert(), output=replace(bert().output, transform=False)), "output.transform=False"),
        (replace(gpt2(), output=replace(gpt2().output, kind="adaptive")), "output.kind=adaptive"),
    ],
    ids=str,
)
def test_what_hugging_face_has_not_is_refused(recipe: NetRecipe, part: str) -> None:
    with pytest.raises(AbilityError, match=part):
        model_type_for(recipe)


def test_an_output_bias_is_refused_for_gpt2(tmp_path: Path) -> None:
    recipe = small(gpt2())
    model = model_of(replace(recipe, output=replace(recipe.output, bias=True)))
    with pytest.raises(AbilityError, match=r"'output\.bias': False"):
        put(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("layout", "found"), [("prose", "prose"), ("lines", "lines"), (5, "lines"), ("none", "lines")])
def test_the_layout_of_text_is_restored(layout: Any, found: str, tmp_path: Path) -> None:
    """How text is split into sentences, which decides what is scored."""
    model = model_of(small(MEMBERS["gpt2"]()))
    model.layout = "prose"
    folder = put(model, tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    assert config["firth_layout"] == "prose"
    (folder / "config.json").write_text(json.dumps(config | {"firth_layout": layout}))
    import_model("huggingface", folder, tmp_path / "back")
    assert load(tmp_path / "back").layout == read_model(folder).layout == found


def test_only_networks_are_exported(tmp_path: Path) -> None:
    with pytest.raises(AbilityError, match="neural models"):
        export_model(tokenizer_of("wordpiece"), "huggingface", tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="already holds something"):
        put(model_of(small(bert())), tmp_path / "out")


def test_nan_is_not_exported(tmp_path: Path) -> None:
    model = model_of(small(bert()))
    with torch.no_grad():
        model.network.embedding.tokens.weight[7, 3] = torch.nan
    with pytest.raises(AbilityError, match=r"embedding\.tokens\.weight holds NaN"):
        put(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_commands(tmp_path: Path) -> None:
    their_folder("bert", tmp_path / "theirs")
    done = firth("import", "huggingface", tmp_path / "theirs", "-o", tmp_path / "in", "--json")
    assert done.code == 0, done.err
    assert done.json["type"] == "bert"
    done = firth("export", tmp_path / "in", "huggingface", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    assert equal(read_model(tmp_path / "out"), load(tmp_path / "in"))


def test_write_folder_takes_parts(tmp_path: Path) -> None:
    model = model_of(small(gpt2()))
    arrays = {name: torch.from_numpy(array) for name, array in model.arrays().items()}
    write_folder(tmp_path / "out", model.recipe, arrays, model.tokenizer)
    assert equal(read_model(tmp_path / "out"), model)
    save(
        tmp_path / "kept",
        model,
        name="gpt2",
        recipe=model.recipe,
        budget={"asked": None, "spent": {}},
        corpus={"layout": "lines"},
        seed=0,
        metrics={},
    )
    assert firth("export", tmp_path / "kept", "huggingface", tmp_path / "again").code == 0
    for file in (tmp_path / "out").iterdir():
        if file.name != "README.md":  # the card is that of an artifact
            assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_a_causal_model_scores_alike_with_its_own_tokenizer(tmp_path: Path) -> None:
    """What the tokenizer returns begins with the end of text, as texts do in Firth."""
    model = model_of(small(gpt2()))
    folder = put(model, tmp_path / "out")
    theirs, tokenizer = load_theirs(folder, "AutoModelForCausalLM"), transformers.AutoTokenizer.from_pretrained(folder)
    text = "The lazy dog jumps, doesn't it?"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    assert ids[0].tolist() == [3, *model.tokenizer.encode(text).ids]
    complete = torch.cat([ids, torch.tensor([[tokenizer.eos_token_id]])], 1)
    with torch.no_grad():
        logits = theirs(complete).logits[0, :-1]
    logits[:, [0, 2, 4]] = -torch.inf  # <pad>, <s> and <mask>, which Firth never predicts
    found = logits.log_softmax(-1).gather(1, complete[0, 1:, None]).sum()
    assert float(found) == pytest.approx(model.score([text])[0].logprob, abs=1e-4)


def test_the_folder_has_a_model_card(tmp_path: Path) -> None:
    model = model_of(small(gpt2()))
    values: dict[str, Any] = {"budget": {"asked": "5min", "spent": {"seconds": 7.25, "tokens": 1234}}, "seed": 7}
    corpus = {"layout": "lines", "encodings": {"news.txt": "utf-8"}, "documents": 12, "digest": "ab" * 32}
    metrics = {"bits_per_byte": 2.5, "bits_per_byte_interval": [2.25, 2.75], "seconds": 7.25}
    save(tmp_path / "kept", model, name="gpt2", recipe=model.recipe, corpus=corpus, metrics=metrics, **values)
    card = (tmp_path / "kept" / "card.md").read_text(encoding="utf-8")
    for part in (
        "# gpt2",
        "Radford et al.",
        "news.txt",
        "ab" * 32,
        "5min",
        "1,234",
        "2.5 (2.25 to 2.75)",
        "not recorded",
    ):
        assert part in card
    assert "7.25" not in card, "times differ between equal runs"
    assert "firth generate MODEL" in card
    assert firth("export", tmp_path / "kept", "huggingface", tmp_path / "out").code == 0
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")
    assert "from transformers import AutoTokenizer, GPT2LMHeadModel" in readme
    assert card.partition("## Use")[0].strip() in readme


def test_a_full_disk_is_told_in_one_sentence(tmp_path: Path) -> None:
    """No file may grow beyond a few kilobytes: writing the weights fails as on a full disk."""
    save_model(model_of(small(bert())), tmp_path / "bert")
    before, highest = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, highest))
    try:
        shown = firth("export", tmp_path / "bert", "huggingface", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, highest))
    assert_refused(shown, f"cannot write {tmp_path / 'out'}: a file may not be that large")
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]
