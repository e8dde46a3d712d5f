"""typing and relation: markers around mentions, windows of long texts, files, metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import firth
from firth.errors import CorpusError
from firth.metrics.measure import measure
from firth.nets.model import NetModel
from firth.tasks.examples import MentionExample
from firth.tasks.mentions import KINDS, mark_mentions, nearest_tokens
from firth.tasks.readers.reader import read_items, read_task
from firth.tasks.sequences import MARKERS, pack
from firth.tokens.tokenizer import FIRST_WORD, UNK
from tests.command import assert_refused
from tests.command import firth as command

NAMES = ("anna", "bert", "carl", "dora")
SETTINGS = [
    *("tokenizer=words", "tokenizer.min_count=1", "embedding.width=32", "encoder.width=32", "encoder.ffn_width=64"),
    *("encoder.layers=2", "encoder.heads=2", "sequence.length=16"),
]
QUICK = ["learning.epochs=60", "learning.batch=8", "learning.lr=0.004", "head.dropout=0", "network.encoder.dropout=0"]


def related() -> list[Any]:
    """Which of two names is the head tells the relation; the texts are the same."""
    found: list[Any] = []
    for one in NAMES:
        for two in NAMES:
            if one != two:
                text = f"{one} likes {two} ."
                first, second = (0, 4), (11, 15)
                found += [("likes", text, first, second), ("liked by", text, second, first)]
    return found


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    lines = [[f"{one} likes {two} ." for one in NAMES for two in NAMES]] * 4
    firth.train("bert", lines, out=folder / "m", settings=SETTINGS, budget="2ktok", threads=1, reload=False)
    return folder / "m"


def test_marks_are_around_the_tokens_of_a_mention() -> None:
    offsets = np.array([[0, 2], [3, 6], [6, 9], [10, 12]])
    ids, kinds = mark_mentions(np.array([10, 11, 12, 13]), offsets, [(10, 12), (4, 8)])
    assert ids.tolist() == [10, UNK, 11, 12, UNK, UNK, 13, UNK]
    assert kinds.tolist() == [-1, 1, -2, -2, 1, 0, -2, 0]


def test_a_mention_without_tokens_has_marks_where_it_was() -> None:
    offsets = np.array([[0, 2], [5, 7]])
    ids, kinds = mark_mentions(np.array([10, 11]), offsets, [(2, 4)])
    assert (ids.tolist(), kinds.tolist()) == ([10, UNK, UNK, 11], [-1, 0, 0, -1])
    nothing = mark_mentions(np.zeros(0, np.int64), np.zeros((0, 2), np.int64), [(0, 1)])
    assert nothing[1].tolist() == [0, 0]


def test_long_texts_keep_what_is_near_mentions() -> None:
    kinds = np.array([-1] * 6 + [0, -2, 0] + [-1] * 6 + [1, -2, 1] + [-1] * 6)
    assert nearest_tokens(kinds, 10).tolist() == [5, 6, 7, 8, 9, 14, 15, 16, 17, 18]
    assert nearest_tokens(kinds, 4).tolist() == [6, 8, 15, 17]
    assert nearest_tokens(kinds, 99).tolist() == list(range(24))
    assert nearest_tokens(np.full(5, -1), 3).tolist() == [0, 1, 2]


def test_marks_tell_the_head_from_the_tail(bert: Path, tmp_path: Path) -> None:
    """The texts of both relations are the same, so that nothing but markers can tell them apart."""
    examples = related()
    out, running = tmp_path / "m", {"settings": QUICK, "threads": 1}
    model = firth.finetune(
        bert, "relation", train=examples[:16], dev=examples[:16], test=examples[16:], out=out, **running
    )
    metrics = command("info", out, "--json").json["metrics"]
    assert metrics["dev"]["micro_f1"] == 1
    assert metrics["test"]["micro_f1"] > 0.9
    assert metrics["test"]["micro_f1_interval"]
    assert metrics["test"]["baseline"]["accuracy"] == 0.5
    inputs = [one[1:] for one in examples]
    assert firth.load(out).predict(inputs) == model.predict(inputs)
    arrays = model.arrays()
    assert arrays["heads.relation.marker_vectors"].shape == (2, 32)


def test_the_vectors_of_marks_are_read_and_trained(bert: Path) -> None:
    from firth.fit.resolve_task import resolve_task
    from firth.tasks.registry import make_task
    from firth.tasks.sequences import SequenceBuilder

    base = firth.load(bert)
    assert isinstance(base, NetModel)
    examples = list(read_items("typing", [(["x", "y"], "anna likes bert .", 0, 4), (["y"], "bert likes anna .", 0, 4)]))
    recipe = resolve_task("typing", base.recipe, examples, None, [])
    assert recipe.form == "multi"
    task = make_task(recipe, base.network.vocabulary)
    builder = SequenceBuilder(recipe.network, base.tokenizer)
    batch = pack([one for each in task.sequences(examples, builder) for one in each], FIRST_WORD)
    assert (batch.ids.flatten()[batch.labels[MARKERS]] == UNK).all()
    assert batch.labels[KINDS].tolist() == [0] * 4
    read = task.rewrite(batch, base.network, None)
    loss = task.loss(base.network, base.network(read, task.positions(read)), read, None)
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert loss.count == 2
    gradient = dict(task.named_parameters())["marker_vectors"].grad
    assert gradient is not None
    assert gradient.abs().max() > 0
    plain = base.network.embedding(batch.ids)
    marked = base.network.embedding(batch.ids, token_vectors=read.token_vectors)
    changed = (plain != marked).any(-1).flatten().nonzero().flatten()
    assert torch.equal(changed, batch.labels[MARKERS].sort().values)


def write(path: Path, *rows: object) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def test_files_of_mentions_are_read(tmp_path: Path) -> None:
    split = {"left": ["He", "met"], "mention": "Anna B", "right": [", too"], "types": ["person", "adult"]}
    found = list(read_task("typing", write(tmp_path / "a.jsonl", split)))
    assert found[0].text == "He met Anna B , too"  # type: ignore[union-attr]
    assert found[0].mentions == ((7, 13),)  # type: ignore[union-attr]
    assert found[0].labels == ("person", "adult")  # type: ignore[union-attr]
    chinese = {"left": "他在", "mention": "北京", "right": "。", "types": ["地点"]}
    one = next(iter(read_task("typing", write(tmp_path / "b.jsonl", chinese))))
    assert isinstance(one, MentionExample)
    assert one.text[slice(*one.mentions[0])] == "北京"
    table = write(tmp_path / "c.tsv", "labels\ttext\tstart\tend", "person, adult\tAnna went\t0\t4")
    assert next(iter(read_task("typing", table))).labels == ("person", "adult")  # type: ignore[union-attr]
    relations = write(tmp_path / "d.tsv", "label\ttext\thead\ttail", "in\tRome is in Italy\t0:4\t11:16")
    assert next(iter(read_task("relation", relations))).mentions == ((0, 4), (11, 16))  # type: ignore[union-attr]
    records = write(tmp_path / "e.jsonl", {"relation": "in", "text": "Rome, Italy", "head": [0, 4], "tail": [6, 11]})
    assert next(iter(read_task("relation", records))).labels == ("in",)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("task", "record", "what"),
    [
        ("typing", {"text": "abc", "start": 1, "end": 9, "labels": ["x"]}, "from 1 to 9 in a text of 3"),
        ("typing", {"text": "abc", "start": "1.5", "end": 2, "labels": ["x"]}, "from -1 to 2"),
        ("typing", {"text": "abc", "start": True, "end": 2, "labels": ["x"]}, "from -1 to 2"),
        ("typing", {"left": "a", "mention": "", "right": "b", "types": ["x"]}, "from 1 to 1"),
        ("typing", {"text": "abc", "labels": ["x"]}, "from -1"),
        ("relation", {"text": "abc", "head": [0, 1], "tail": "1-2", "label": "x"}, "from -1 to -1"),
        ("relation", {"text": "abc", "head": [0, 1], "tail": [1, 2], "label": ["x", "y"]}, "2 labels"),
        ("relation", {"text": "abc", "head": [0, 1], "tail": [1, 2]}, "no label"),
    ],
)
def test_wrong_mentions_are_refused(task: str, record: dict[str, Any], what: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", record)
    with pytest.raises(CorpusError, match=what):
        list(read_task(task, path))
    assert not list(read_items(task, [record], skip_bad=True, labelled=False)) or task == "relation"


def test_a_file_of_another_task_is_refused_on_the_command_line(bert: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "label\ttext_a", "x\tabc")
    refused = command("finetune", bert, "relation", "--train", path, "--dev", path, "-o", tmp_path / "m")
    assert_refused(refused, "classify", code=1)


def test_the_error_page_shows_predictions_of_relations(bert: Path, tmp_path: Path) -> None:
    rows = [f"{label}\t{text}\t{head[0]}:{head[1]}\t{tail[0]}:{tail[1]}" for label, text, head, tail in related()]
    path = write(tmp_path / "r.tsv", "label\ttext\thead\ttail", *rows)
    settings = ["--set", "learning.epochs=1", "--threads", "1"]
    assert (
        command("finetune", bert, "relation", "--train", path, "--dev", path, "-o", tmp_path / "m", *settings).code == 0
    )
    found = command("evaluate", tmp_path / "m", "task", path, "-o", tmp_path / "page.html", "--json")
    assert found.json["examples"] == len(rows)
    assert found.json["micro_f1_interval"]
    assert "liked by" in (tmp_path / "page.html").read_text(encoding="utf-8")
    predicted = command("predict", tmp_path / "m", path, "-o", tmp_path / "out.jsonl")
    assert predicted.code == 0, predicted.err
    builtin = command(
        "finetune", bert, "typing", "--train", "builtin:pydoc", "--dev", "builtin:pydoc", "-o", tmp_path / "n"
    )
    assert_refused(builtin, "no examples of typing", code=1)


def test_metrics_of_types_are_those_of_a_hand_count() -> None:
    gold = [("person", "adult"), ("place",), ("place", "city", "town")]
    predicted = [("person",), ("city",), ("place", "city")]
    found = measure("typing", gold, predicted)
    assert found["micro_f1"] == pytest.approx(2 * 3 / (6 + 4))  # 3 of 4 predicted types are among 6 true ones
    precision, recall = (1 + 0 + 1) / 3, (1 / 2 + 0 + 2 / 3) / 3
    assert found["loose_macro_f1"] == pytest.approx(2 * precision * recall / (precision + recall))
    f1 = {"person": 1, "adult": 0, "place": 2 / 3, "city": 2 / 3, "town": 0}
    assert found["macro_f1"] == pytest.approx(sum(f1.values()) / 5)
    assert found["main"] == "micro_f1"
    assert len(found["loose_macro_f1_interval"]) == 2


def test_f1_of_relations_leaves_out_those_without_one() -> None:
    gold = ["in", "in", "of", "no_relation", "no_relation"]
    predicted = ["in", "no_relation", "in", "no_relation", "of"]
    found = measure("relation", gold, predicted)
    assert found["accuracy"] == pytest.approx(2 / 5)
    assert found["micro_f1"] == pytest.approx(2 * 1 / (3 + 3))
    assert found["macro_f1"] == pytest.approx((2 * 1 / (2 + 2) + 0) / 2)
