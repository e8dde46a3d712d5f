"""Fine-tuning with a knowledge graph: the same as without if it is empty, determinism, the artifact, and refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import ArtifactError
from firth.fit.finetune import finetune
from firth.fit.train import train
from tests.command import assert_refused, firth
from tests.fit.small_nets import sentences, small_bert

LINES = sentences(60, seed=5)
TEXTS = [(str(int("w3" in line.split())), line) for line in LINES]
PAIRS = [("same" if one == two else "other", one, two) for one, two in zip(LINES, LINES[:30] * 2, strict=True)]
TAGS = [(line.split(), ["B-X" if word == "w3" else "O" for word in line.split()]) for line in LINES[:24]]
EXAMPLES: dict[str, list[Any]] = {"classify": TEXTS, "pair": PAIRS, "tag": TAGS}
QUICK = ["learning.epochs=2", "learning.batch=8", "learning.lr=0.005"]
GRAPH = "w3\tis\tw17\nw3\thas\tw18\nw3\thas\tw19\nw5 w16\tis\tw1\nw9\tis\tw2\n"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_bert(tmp_path_factory.mktemp("facts"), "5ktok", length=32) as folder:
        (folder.parent / "graph.spo").write_text(GRAPH)
        (folder.parent / "empty.spo").write_text("")
        (folder.parent / "foreign.spo").write_text("胃炎\t类别\t疾病\n")
        yield folder


def tune(model: Path, out: Path, task: str = "classify", graph: str | None = "graph.spo", **given: Any) -> Any:
    settings = [*QUICK, *given.pop("settings", [])]
    knowledge = None if graph is None else model.parent / graph
    data = EXAMPLES[task]
    shared = {"train": data, "dev": data[-12:], "settings": settings, "threads": 1, "knowledge": knowledge}
    return finetune(model, task, out=out, **(shared | given))


def weights(path: Path) -> dict[str, Any]:
    return {name: one for name, one in load(path).arrays().items() if name != "knowledge.triples"}


def knowledge_metrics(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = open_artifact(path).manifest.metrics["knowledge"]
    return found


@pytest.mark.parametrize("task", EXAMPLES)
@pytest.mark.parametrize("graph", ["empty.spo", "foreign.spo"])
def test_a_graph_without_names_of_the_texts_changes_no_bit(task: str, graph: str, bert: Path, tmp_path: Path) -> None:
    plain, empty = tune(bert, tmp_path / "plain", task, None), tune(bert, tmp_path / "empty", task, graph)
    ours, others = weights(tmp_path / "plain"), weights(tmp_path / "empty")
    assert ours.keys() == others.keys()
    assert all(np.array_equal(ours[name], others[name]) for name in ours)
    items = [one[1:] if task == "pair" else one[task == "classify"] for one in EXAMPLES[task]]
    assert plain.predict(items) == empty.predict(items)
    assert knowledge_metrics(tmp_path / "empty")["facts"] == 0
    first, second = (open_artifact(tmp_path / name).manifest.metrics["dev"] for name in ("plain", "empty"))
    assert first == second


@pytest.mark.parametrize("task", EXAMPLES)
def test_facts_change_the_model_which_predicts_without_the_file(task: str, bert: Path, tmp_path: Path) -> None:
    graph = tmp_path / "graph.spo"
    graph.write_text(GRAPH)
    tune(bert, tmp_path / "plain", task, None)
    tuned = tune(bert, tmp_path / "out", task, knowledge=graph)
    graph.unlink()
    loaded = load(tmp_path / "out")
    items = [one[1:] if task == "pair" else one[task == "classify"] for one in EXAMPLES[task]]
    assert loaded.predict(items) == tuned.predict(items)
    assert loaded.predict(items) != load(tmp_path / "plain").predict(items)
    recipe = loaded.recipe.knowledge
    assert (recipe.triples, recipe.predicate, recipe.shuffled) == (2, task != "tag", False)
    assert recipe.digest == loaded.graph.digest
    assert [fact.tail for fact in loaded.graph.facts["w3"]] == ["w17", "w18"], "the first two, in the order of the file"
    found = knowledge_metrics(tmp_path / "out")
    assert (found["triples"], found["names"]) == (5, 3)
    assert found["facts"] > found["examples_with_facts"] > 0
    assert firth("verify", tmp_path / "out").code == 0
    exported = firth("export", tmp_path / "out", "huggingface", tmp_path / "hf")
    assert_refused(exported, "no class that inserts facts")


def test_the_network_reads_the_facts(bert: Path, tmp_path: Path) -> None:
    """Another object of a fact that occurs gives another prediction; one that does not occur gives the same."""
    tune(bert, tmp_path / "out")
    model = load(tmp_path / "out")
    before = model.predict(["w3 w4", "w7 w8"])
    model.builder.graph = type(model.graph)(
        tuple(one._replace(tail="w11") if one.head == "w3" else one for one in model.graph.triples)
    )
    model.builder._branches.clear()
    after = model.predict(["w3 w4", "w7 w8"])
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_the_seed_shuffles_objects(bert: Path, tmp_path: Path) -> None:
    def objects(name: str, **given: Any) -> list[Any]:
        tune(bert, tmp_path / name, settings=["learning.epochs=1"], **given)
        return [tuple(fact) for fact in load(tmp_path / name).graph.triples]

    plain, one = objects("plain"), objects("one", shuffle_graph=True, seed=1)
    assert load(tmp_path / "one").recipe.knowledge.shuffled
    assert one == objects("again", shuffle_graph=True, seed=1)
    assert one != objects("two", shuffle_graph=True, seed=2)
    assert [fact[:2] for fact in plain] == [fact[:2] for fact in one]
    assert plain != one
    assert {fact[2] for fact in one} <= {"w17", "w18", "w19", "w1", "w2"}


def test_settings_of_facts(bert: Path, tmp_path: Path) -> None:
    tune(bert, tmp_path / "out", "tag", settings=["knowledge.triples=1", "knowledge.predicate=true"])
    model = load(tmp_path / "out")
    assert len(model.graph.facts["w3"]) == 1
    (head,) = model.builder.heads(["w3"])[0]
    assert [branch.size for branch in head.branches] == [2]


@pytest.mark.parametrize("value", ["0", "7"])
def test_the_order_of_hashes_does_not_matter(value: str, bert: Path, tmp_path: Path) -> None:
    """The order of Python's sets changes with PYTHONHASHSEED; facts and weights do not."""
    train_file, out = tmp_path / "train.tsv", tmp_path / "out"
    rows = "".join(f"{label}\t{text}\n" for label, text in TEXTS)
    train_file.write_text(f"label\ttext_a\n{rows}")
    arguments = [
        *("finetune", bert, "classify", "--train", train_file, "--dev", train_file, "-o", out, "--threads", "1"),
        *("--knowledge", bert.parent / "graph.spo", *(part for one in QUICK for part in ("--set", one))),
    ]
    environment = os.environ | {"PYTHONHASHSEED": value, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "firth", *map(str, arguments)]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    reference = bert.parent / "hashed"
    if not reference.exists():
        tune(bert, reference, train=train_file, dev=train_file)
    digests = {open_artifact(one).manifest.files["model.safetensors"].sha256 for one in (out, reference)}
    assert len(digests) == 1


def test_dropped_facts_are_counted(bert: Path, tmp_path: Path) -> None:
    names = "".join(f"w3\thas\t{' '.join(['w4'] * 20)} w{number}\n" for number in range(2))
    (tmp_path / "long.spo").write_text(names)
    model = tune(bert, tmp_path / "out", knowledge=tmp_path / "long.spo")
    found = knowledge_metrics(tmp_path / "out")
    assert found["dropped_facts"] >= found["examples_with_facts"] > 0
    first, second = model.predict(["w3 w4", "w7"])
    assert first["dropped_facts"] == 1
    assert "dropped_facts" not in second
    (tmp_path / "new.txt").write_text("w3 w4\nw7\n")
    shown = firth("predict", tmp_path / "out", tmp_path / "new.txt", "--json")
    assert shown.json["dropped_facts"] == 1
    assert shown.json["truncated"] == 0
    (tmp_path / "dev.tsv").write_text("label\ttext_a\n1\tw3 w4\n1\tw3\n0\tw7\n")
    assert firth("evaluate", tmp_path / "out", "task", tmp_path / "dev.tsv", "--json").json["dropped_facts"] == 2
    assert firth("evaluate", tmp_path / "out", "task", tmp_path / "dev.tsv").code == 0
    assert firth("evaluate", tmp_path / "out", "task", tmp_path / "dev.tsv", "-o", tmp_path / "page.html").code == 0


def test_a_model_without_its_graph_is_refused(bert: Path, tmp_path: Path) -> None:
    tune(bert, tmp_path / "out")
    model = load(tmp_path / "out")
    from firth.tasks.registry import restore_task

    arrays = {name: one for name, one in model.arrays().items() if name != "knowledge.triples"}
    with pytest.raises(ArtifactError, match="lacks the knowledge graph"):
        restore_task(model.recipe, arrays, model.tokenizer, "lines")


def command(bert: Path, tmp_path: Path, task: str, *options: object) -> Any:
    path = tmp_path / "train.jsonl"
    rows = [{"label": label, "text": text} for label, text in TEXTS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    quick = [part for one in QUICK for part in ("--set", one)]
    return firth(
        *("finetune", bert, task, "--train", path, "--dev", path, "-o", tmp_path / "out", "--threads", 1),
        *(*quick, *options),
    )


def test_bad_graphs_are_refused_in_one_sentence(bert: Path, tmp_path: Path) -> None:
    assert_refused(command(bert, tmp_path, "classify", "--knowledge", tmp_path / "none.spo"), "none.spo")
    (tmp_path / "two.spo").write_text("w3\tis\tw4\nw3\tis\n")
    assert_refused(
        command(bert, tmp_path, "classify", "--knowledge", tmp_path / "two.spo"),
        "line 2 of",
        "two.spo",
        "2 of the three",
    )
    (tmp_path / "bytes.spo").write_bytes(b"\x00\xff\xfe\tis\tw4\n")
    assert_refused(command(bert, tmp_path, "classify", "--knowledge", tmp_path / "bytes.spo"), "bytes.spo")
    assert not (tmp_path / "out").exists()


def test_options_that_do_not_fit(bert: Path, tmp_path: Path) -> None:
    graph = bert.parent / "graph.spo"
    assert "for classify, pair, tag" in command(bert, tmp_path, "choice", "--knowledge", graph).err
    assert "give one with --knowledge" in command(bert, tmp_path, "classify", "--shuffle-graph").err
    refused = command(bert, tmp_path, "classify", "--knowledge", graph, "--set", "knowledge.triples=0")
    assert_refused(refused, "knowledge.triples=0 must be from 1")
    refused = command(bert, tmp_path, "classify", "--knowledge", graph, "--strategy", "features")
    assert_refused(refused, "head.encoder=none")
    refused = command(bert, tmp_path, "many", "--tasks", graph, "--knowledge", graph)
    assert refused.code == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["gpt", "t5", "mkn3"])
def test_models_that_cannot_insert_facts(name: str, bert: Path, tmp_path: Path) -> None:
    small = ["embedding.width=16", "encoder.width=16", "encoder.ffn_width=32", "encoder.layers=1", "encoder.heads=2"]
    words = ["tokenizer=words", "tokenizer.min_count=1", f"tokenizer.sentinels={100 if name == 't5' else 0}"]
    settings = [*words, *([] if name == "mkn3" else small)]
    if name == "t5":
        settings += ["decoder.width=16", "decoder.ffn_width=32", "decoder.layers=1", "decoder.heads=2"]
    budget = None if name == "mkn3" else "500tok"
    train(name, [LINES], out=tmp_path / "base", settings=settings, budget=budget, threads=1, reload=False)
    refused = command(tmp_path / "base", tmp_path, "classify", "--knowledge", bert.parent / "graph.spo")
    assert_refused(refused, "--knowledge")
    assert not (tmp_path / "out").exists()


def test_a_name_that_never_occurs_is_noted(bert: Path, tmp_path: Path) -> None:
    found = command(bert, tmp_path, "classify", "--knowledge", bert.parent / "foreign.spo")
    assert found.code == 0, found.err
    assert "no name of the knowledge graph occurs in the training examples" in found.err
    assert "0 facts" in found.out


def test_facts_are_reported(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "twice.spo").write_text(GRAPH + GRAPH)
    found = command(bert, tmp_path, "classify", "--knowledge", tmp_path / "twice.spo")
    assert found.code == 0, found.err
    assert "facts are inserted into" in found.err
    assert "5 triples of" in found.err
    assert "knowledge: 5 triples, 3 names, " in found.out
