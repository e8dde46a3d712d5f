"""ernie-thu from a graph and a text: training, adapting, names, and what is refused."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import firth
from firth.fit.knowledge import Knowledge, make_gazetteer, open_knowledge, without_common_words
from firth.fit.noise import noise
from firth.nets.model import NetModel
from firth.nets.scoring import make_batch
from firth.tokens.gazetteer import Gazetteer
from tests.command import Outcome, assert_refused
from tests.command import firth as command

CITIES = ("paris", "rome", "new york", "york", "boston")
TRIPLES = [("paris", "in", "france"), ("rome", "in", "italy"), ("new york", "in", "usa"), ("boston", "in", "usa"),
           ("york", "in", "england"), ("new york", "near", "boston"), ("x", "in", "usa")]  # fmt: skip
SMALL = [
    *("tokenizer=wordpiece", "tokenizer.vocab_size=300", "embedding.width=16", "encoder.width=16"),
    *("encoder.ffn_width=32", "encoder.layers=2", "encoder.heads=2", "sequence.length=24", "learning.batch=192"),
]
RUN: dict[str, Any] = {"budget": "3ktok", "threads": 1}


def lines(seed: int = 0) -> list[list[str]]:
    rng = random.Random(seed)
    return [
        [
            f"the road from {rng.choice(CITIES)} to {rng.choice(CITIES)} is {rng.choice(['long', 'short'])} ."
            for _ in range(6)
        ]
        for _ in range(20)
    ]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph") / "t"
    firth.train("transe", TRIPLES, out=folder, settings={"dimension": 8, "epochs": 5}, threads=1)
    return folder


@pytest.fixture(scope="module")
def ernie(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ernie") / "e"
    settings = [*SMALL, "entities.text_layers=0"]
    firth.train("ernie-thu", lines(), out=folder, knowledge=graph, settings=settings, reload=False, **RUN)
    return folder


def mentions(model: NetModel, text: str) -> list[str]:
    table = model.network.entities
    assert table is not None
    ids = torch.tensor([model.tokenizer.encode(text).ids])
    return [table.titles[number] for number in table.link(ids).flatten().tolist() if number]


def test_an_artifact_links_plain_text_without_the_graph(ernie: Path, tmp_path: Path) -> None:
    shutil.copytree(ernie, tmp_path / "copy")
    model = firth.load(tmp_path / "copy")
    assert mentions(model, "from new york to york and yorkshire , rome .") == ["new york", "york", "rome"]
    assert model.recipe.entities.count == 10
    assert model.recipe.entities.heads == 4
    metrics = command("info", ernie, "--json").json["metrics"]
    assert metrics["mentions"] == 240
    assert metrics["linked_entities"] == 5
    assert {"mlm", "nsp", "dea"} == {*metrics["losses"]}
    assert model.fill("the road from [MASK] to rome is long .")
    assert model.score(["the road from rome to paris is long ."])[0].logprob < 0
    assert model.embed(["rome", ""]).shape == (2, 16)
    assert command("verify", ernie).code == 0


def test_entities_change_what_a_model_says_of_a_text(ernie: Path) -> None:
    model = firth.load(ernie)
    assert isinstance(model, NetModel)
    ids = torch.tensor([[2, *model.tokenizer.encode("from rome to paris .").ids, 3]])
    with torch.no_grad():
        linked = model.network(make_batch(ids)).last_hidden_state
        without = make_batch(ids)
        without.side_ids["entities"] = torch.zeros_like(ids)
        assert (linked - model.network(without).last_hidden_state).abs().max() > 1e-4


def test_the_entity_table_is_that_of_the_graph_and_stays(graph: Path, ernie: Path, tmp_path: Path) -> None:
    vectors, known = firth.load(graph), open_knowledge(graph)
    table = firth.load(ernie).network.entities
    for name, number in zip(known.gazetteer.entries, known.gazetteer.numbers.tolist(), strict=True):
        assert np.array_equal(table.vectors[number].numpy(), vectors.vector(name))
    assert not table.vectors[0].any()
    settings = [*SMALL, "entities.text_layers=0", "entities.trained=true"]
    trained = firth.train("ernie-thu", lines(), out=tmp_path / "m", knowledge=graph, settings=settings, **RUN)
    assert not torch.equal(trained.network.entities.vectors[1:], table.vectors[1:])


def test_training_twice_gives_the_same_bits(graph: Path, ernie: Path, tmp_path: Path) -> None:
    settings = [*SMALL, "entities.text_layers=0"]
    again = firth.train("ernie-thu", lines(), out=tmp_path / "m", knowledge=graph, settings=settings, **RUN)
    first = firth.load(ernie).arrays()
    assert first.keys() == again.arrays().keys()
    assert all(np.array_equal(array, first[name]) for name, array in again.arrays().items())


def test_a_bert_becomes_an_ernie_that_keeps_its_weights(graph: Path, tmp_path: Path) -> None:
    bert = firth.train("bert", lines(), out=tmp_path / "b", settings=SMALL, **RUN)
    assert isinstance(bert, NetModel)
    running = {**RUN, "settings": ["learning.lr=1e-30"]}
    ernie = firth.adapt(tmp_path / "b", lines(), out=tmp_path / "e", knowledge=graph, **running)
    assert isinstance(ernie, NetModel)
    assert ernie.recipe.names == ("mlm", "nsp", "dea")
    assert ernie.recipe.entities.text_layers == 0
    assert command("info", tmp_path / "e", "--json").json["name"] == "ernie-thu"
    own = ernie.arrays()
    for name, array in bert.arrays().items():
        if name not in ("spelling", "counts"):
            np.testing.assert_allclose(own[name], array, atol=1e-12, err_msg=name)
    text = ["nothing is said here ."]
    np.testing.assert_allclose(ernie.embed(text), bert.embed(text), atol=1e-6)
    further = firth.adapt(tmp_path / "e", lines(1), out=tmp_path / "f", **running)
    assert mentions(further, "new york") == ["new york"]
    assert np.array_equal(further.network.entities.vectors, ernie.network.entities.vectors)
    grown = [*running["settings"], "tokenizer.vocab_size=320"]
    larger = firth.adapt(
        tmp_path / "e", [["paris paris parisian bostonian"] * 9], out=tmp_path / "g", **{**running, "settings": grown}
    )
    assert len(larger.tokenizer) > len(ernie.tokenizer)
    assert mentions(larger, "new york and paris") == ["new york", "paris"]


def test_an_ernie_is_fine_tuned(ernie: Path, tmp_path: Path) -> None:
    examples = [
        ("long" if n % 2 else "short", f"the road to {city} is {'long' if n % 2 else 'short'} .")
        for n, city in enumerate(CITIES * 3)
    ]
    tuned = firth.finetune(
        ernie, "classify", train=examples, dev=examples, out=tmp_path / "m", settings=["learning.epochs=2"], threads=1
    )
    assert tuned.base.network.entities.titles
    assert firth.load(tmp_path / "m").predict([examples[0][1]]) == tuned.predict([examples[0][1]])


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_names_of_a_file_mean_the_entity_of_the_highest_prior(graph: Path, tmp_path: Path) -> None:
    table = write(
        tmp_path / "n.tsv",
        "entity\tlabel\tprior\nnew york\tBig Apple\t1\nboston\tHub\t2\nrome\tHub\t5\nmars\tMars\t1\n",
    )
    names = open_knowledge(graph, table).gazetteer
    titles = {
        number: name
        for name, number in zip(
            open_knowledge(graph).gazetteer.entries, open_knowledge(graph).gazetteer.numbers.tolist(), strict=True
        )
    }
    assert {name: titles[number] for name, number in zip(names.entries, names.numbers.tolist(), strict=True)} == {
        "Hub": "rome",
        "Big Apple": "new york",
    }
    plain = write(tmp_path / "p.txt", "rome\nmars\nboston\n")
    assert {*open_knowledge(graph, plain).gazetteer.entries} == {"rome", "boston"}
    by_degree = write(tmp_path / "d.tsv", "Hub\tboston\nHub\trome\n")  # two triples and one
    assert titles[int(open_knowledge(graph, by_degree).gazetteer.numbers[0])] == "boston"


def test_single_characters_and_unnamed_entities_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    made = make_gazetteer([("x", 1, 1.0), ("rome", 2, 1.0), ("rome", 3, 4.0)], "names")
    assert made.numbers.tolist() == [3]


def test_names_that_are_ordinary_words_are_not_linked_in_lower_case() -> None:
    numbers = np.array([1, 2, 3], dtype=np.int32)
    known = Knowledge(
        np.zeros((3, 4), dtype=np.float32), Gazetteer(("It", "Rome", "Up in Rome"), "", numbers), "digest"
    )
    text = ["It is said that it went up, to Rome .", "Rome and it are in Rome.", "he saw It once"]
    found = without_common_words(known, text).gazetteer
    assert found.entries == ("Rome", "Up in Rome")
    assert found.numbers.tolist() == [2, 3]
    assert without_common_words(known, ["he saw It"]) is known


def test_given_annotations_are_the_links_of_a_text(graph: Path, tmp_path: Path) -> None:
    documents = [" ".join(each) for each in lines()[:8]]
    spans = [{"start": one.index("road"), "end": one.index("road") + 4, "entity": "rome"} for one in documents]
    import json

    rows = [{"text": text, "spans": [span]} for text, span in zip(documents, spans, strict=True)]
    corpus = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    found = noise(
        "ernie-thu", corpus, knowledge=graph, entities=corpus, threads=1, settings=["tokenizer.vocab_size=300"]
    )
    tokens = sum(len(text.split()) for text in documents)
    assert found["objectives"]["dea"]["measured"]["predicted"] == pytest.approx(8 / tokens, rel=0.05)
    assert found["objectives"]["dea"]["stated"] == pytest.approx({"replaced": 0.05, "dropped": 0.15, "kept": 0.8})


def assert_fails(outcome: Outcome, *parts: str) -> None:
    """As `assert_refused`, after notes on what was chosen."""
    assert outcome.code == 1, outcome.out + outcome.err
    last = outcome.err.splitlines()[-1]
    assert last.startswith("firth: ")
    assert all(part in last for part in parts), last


def test_what_cannot_be_linked_is_refused(graph: Path, ernie: Path, tmp_path: Path) -> None:
    text, out = write(tmp_path / "t.txt", "\n".join(lines()[0]) + "\n"), tmp_path / "m"
    train = ("train", "ernie-thu", text, "-o", out, "--budget", "1ktok", "--threads", "1", "--size", "tiny")
    assert_refused(command(*train), "--knowledge", code=2)
    assert_refused(command(*train, "--knowledge", ernie), "holds no graph", "transe", code=1)
    assert_refused(command(*train, "--knowledge", tmp_path / "none"), "none", code=1)
    nowhere = write(tmp_path / "n.tsv", "Atlantis\trome\n")
    assert_fails(command(*train, "--knowledge", graph, "--entities", nowhere), "none of the 1 names")
    unknown = write(tmp_path / "u.txt", "mars\nvenus\n")
    assert_fails(command(*train, "--knowledge", graph, "--entities", unknown), "no entity")
    prior = write(tmp_path / "p.tsv", "Hub\trome\tmuch\n")
    assert_refused(command(*train, "--knowledge", graph, "--entities", prior), "line 1", "much", code=1)
    wrong = write(tmp_path / "w.jsonl", '{"text": "rome", "spans": [{"start": 0, "end": 99, "entity": "rome"}]}\n')
    assert_refused(command(*train, "--knowledge", graph, "--entities", wrong), "from 0 to 99", code=1)
    assert_refused(command("train", "bert", text, "-o", out, "--knowledge", graph), "--knowledge", code=2)
    assert_refused(command("adapt", ernie, text, "-o", out, "--knowledge", graph), "already", code=2)
    assert_refused(command("noise", "ernie-thu", text), "--knowledge", code=2)
    assert_refused(command("export", ernie, "huggingface", tmp_path / "hf"), "entities.width", code=1)
    assert not out.exists()
