"""UniLM from the first step to fine-tuned models: resuming and the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import firth
from firth.fit.train import train
from firth.objectives.registry import parse_objectives
from firth.tasks.generate import GenerateTask, generation_segments
from firth.tasks.sequences import SequenceBuilder
from tests.command import firth as command
from tests.fit.small_nets import make_run, masked, open_small, parameters, same, sentences, trained
from tests.fit.test_resume_nets import BUDGET, interrupted

SMALL = [
    *("tokenizer=words", "tokenizer.min_count=1", "embedding.width=16", "encoder.width=16", "encoder.ffn_width=32"),
    *("encoder.layers=2", "encoder.heads=2", "sequence.length=24", "learning.batch=192"),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / "cache"))


def test_resuming_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    base = masked(grad_accumulation=2)
    recipe = replace(base, embedding=replace(base.embedding, segments=6), objectives=parse_objectives("unilm"))
    whole = trained(open_small(recipe, make_run(budget=BUDGET)))
    again = interrupted(recipe, tmp_path / "m", [5, 1, 9])
    assert same(parameters(again), parameters(whole))
    assert {"unilm", "nsp"} == set(whole.state.records[-1]["losses"])


def test_understanding_and_generation_from_one_artifact(tmp_path: Path) -> None:
    """score, generate, fill, embed; classes, and targets in segments 4 and 5."""
    corpus = tmp_path / "text.txt"
    corpus.write_text("\n".join(sentences()) + "\n", encoding="utf-8")
    out = tmp_path / "m"
    model = train("unilm", str(corpus), out=out, settings=SMALL, budget="6ktok", threads=1, layout="lines")
    assert command("score", out, corpus, "--json").json["kind"] == "causal"
    assert command("generate", out, "--prompt", "w1", "--length", "5").out.startswith("w1")
    assert len(command("fill", out, "w1 [MASK] w2", "--json").json["masks"]) == 1
    assert command("embed", out, corpus, "-o", tmp_path / "v.npy").code == 0
    examples = [f"{line}\t{'even' if int(line.split()[0][1:]) % 2 == 0 else 'odd'}" for line in sentences(60)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *examples]) + "\n", encoding="utf-8")
    pairs = [f"{line}\t{line.split()[0]}" for line in sentences(40)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["source\ttarget", *pairs]) + "\n", encoding="utf-8")
    for task, data in (("classify", "train.tsv"), ("generate", "pairs.tsv")):
        made = command(
            *("finetune", out, task, "--train", tmp_path / data, "--dev", tmp_path / data, "-o", tmp_path / task),
            *("--threads", "1", "--set", "learning.epochs=2"),
        )
        assert made.code == 0, made.err
    tuned = firth.load(tmp_path / "generate")
    assert generation_segments(tuned.recipe.network) == (4, 5)
    builder = SequenceBuilder(tuned.recipe.network, model.tokenizer)
    assert isinstance(tuned.head, GenerateTask)
    source, target = builder.encode(["w1", "w3"])
    built = tuned.head.build(source, target, builder)
    assert built.segment_ids is not None
    assert built.segment_ids.tolist() == [4, 4, 4, 5, 5, 5]  # [CLS] w1 [SEP] w3, and two masks
    assert firth.load(tmp_path / "classify").recipe.head.pooling == "first"
