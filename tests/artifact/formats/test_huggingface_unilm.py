"""UniLM is exported as BERT, which reads in all four ways by masks of (batch, 1, query, key), and imported again."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.artifact.formats import export_model, import_model
from firth.artifact.formats.huggingface import read_model
from firth.artifact.models import load
from firth.errors import AbilityError
from firth.nets.batch import Batch
from firth.nets.unified import UnifiedNet
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.unilm import UnifiedLMHead
from firth.recipes.unified import unilm
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD
from tests.artifact.formats.small_tasks import EXAMPLES, task_model
from tests.artifact.formats.small_transformers import TEXTS, equal, load_theirs, model_of, put, small, some_ids

ROWS, LENGTH, SECOND = 3, 11, 6  # the second segment begins there
NEVER = [PAD, BOS, MASK]  # tokens that Firth gives the probability 0


@cache
def model() -> UnifiedNet:
    made = model_of(small(unilm()))
    assert isinstance(made, UnifiedNet)
    return made


def read_in(way: int) -> Batch:
    """Pairs as training reads them: from both sides, from the left, from the right, from a source."""
    ids = some_ids(model())
    ids[:, 0], ids[:, SECOND - 1], ids[:, -1] = BOS, EOS, EOS
    segments = (torch.arange(LENGTH) >= SECOND).long().expand_as(ids)
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), segment_ids=segments)
    batch.row_seeds = torch.arange(ROWS)
    batch.labels = {"unilm.ways": torch.full((ROWS,), way), "unilm.labels": torch.full((ROWS,), -1)}
    head = make_heads(model().recipe, model().network)["unilm"]
    assert isinstance(head, UnifiedLMHead)
    head.corrupt(batch, np.random.default_rng(1))
    return batch


def mask_of(way: int) -> Tensor:
    """(1, 1, query, key): 0 where a token attends to another one in that way."""
    query, key = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)[None]
    allowed = {
        0: torch.ones(LENGTH, LENGTH, dtype=torch.bool),
        1: key <= query,
        2: key >= query,
        3: (key < SECOND) | ((key <= query) & (query >= SECOND)),
    }[way]
    return torch.zeros(LENGTH, LENGTH).masked_fill(~allowed, -torch.inf)[None, None]


@pytest.mark.parametrize("way", range(4))
def test_states_and_logits_in_four_ways(way: int, tmp_path: Path) -> None:
    folder = put(model(), tmp_path / "out")
    batch, width = read_in(way), model().recipe.width
    assert batch.segment_ids is not None
    assert sorted(set(batch.segment_ids.flatten().tolist())) == [[0, 1], [2], [3], [4, 5]][way]
    mask = mask_of(way).expand(ROWS, -1, -1, -1)
    given = {"input_ids": batch.ids, "attention_mask": mask, "token_type_ids": batch.segment_ids}
    with torch.no_grad():
        states = model().network(batch).last_hidden_state
        theirs = load_theirs(folder, "BertModel")(**given).last_hidden_state
        torch.testing.assert_close(states.view(ROWS, LENGTH, width), theirs, rtol=0, atol=1e-5)
        logits = model().network.output.logits(states).view(ROWS, LENGTH, -1)
        found = load_theirs(folder, "BertForMaskedLM")(**given).logits
        torch.testing.assert_close(logits, found, rtol=0, atol=1e-5)


def test_bidirectional_reading_needs_no_mask(tmp_path: Path) -> None:
    theirs = load_theirs(put(model(), tmp_path / "out"), "AutoModelForMaskedLM")
    ids = some_ids(model())
    with torch.no_grad():
        torch.testing.assert_close(model().logits(ids), theirs(ids).logits, rtol=0, atol=1e-5)


def test_the_classifier_of_pairs_is_exported(tmp_path: Path) -> None:
    theirs = load_theirs(put(model(), tmp_path / "out"), "BertForPreTraining")
    assert theirs.config.architectures == ["BertForPreTraining"]
    assert theirs.config.type_vocab_size == 6
    heads = {name.rpartition("heads.unilm.")[2]: torch.from_numpy(one) for name, one in model().arrays().items()}
    batch = read_in(0)
    with torch.no_grad():
        first = model().network(batch).last_hidden_state.view(ROWS, LENGTH, -1)[:, 0]
        pooled = torch.tanh(first @ heads["pooler.weight"].T + heads["pooler.bias"])
        mine = pooled @ heads["classifier.weight"].T + heads["classifier.bias"]
        found = theirs(batch.ids, token_type_ids=batch.segment_ids).seq_relationship_logits
    torch.testing.assert_close(mine, found, rtol=0, atol=1e-5)


def test_scores_are_those_of_masks_read_from_left_to_right(tmp_path: Path) -> None:
    """Segment 2, and a mask appended to the tokens before: what `firth score` and `firth generate` do."""
    theirs = load_theirs(put(model(), tmp_path / "out"), "BertForMaskedLM")
    for text in TEXTS:
        ids, total = [BOS, *model().encode([text])[0].tolist(), EOS], 0.0
        for number in range(1, len(ids)):
            given = torch.tensor([[*ids[:number], MASK]])
            mask = torch.full((1, 1, number + 1, number + 1), -torch.inf).triu(1)
            with torch.no_grad():
                types = torch.full_like(given, 2)
                logits = theirs(given, attention_mask=mask, token_type_ids=types).logits[0, -1]
            logits[NEVER] = -torch.inf
            total += float(logits.log_softmax(-1)[ids[number]])
        assert model().score([text])[0].logprob == pytest.approx(total, abs=1e-4)


def test_a_round_trip_changes_nothing(tmp_path: Path) -> None:
    """Also the objective and its classifier, so that it scores, generates and is trained further."""
    back = read_model(put(model(), tmp_path / "out"))
    assert isinstance(back, UnifiedNet)
    assert back.recipe == model().recipe
    assert equal(back, model())
    assert back.score(TEXTS) == model().score(TEXTS)


@pytest.mark.parametrize("task", ["classify", "pair", "tag", "span", "choice"])
def test_a_fine_tuned_model_is_a_fine_tuned_bert(task: Any, tmp_path: Path) -> None:
    """Understanding is bidirectional; what is imported again predicts the same."""
    made = task_model("unilm", task)
    report = export_model(made, "huggingface", tmp_path / "out")
    assert report["architecture"].startswith("BertFor")
    import_model("huggingface", tmp_path / "out", tmp_path / "back")
    back = load(tmp_path / "back")
    assert back.recipe.network.embedding.segments == 6
    assert back.recipe.network.objectives == made.recipe.network.objectives
    assert isinstance(back.base, UnifiedNet)
    mine, other = made.predict(EXAMPLES[task]), back.predict(EXAMPLES[task])
    for one, two in zip(mine, other, strict=True):
        for key in one.keys() & {"probabilities", "score"}:
            assert two[key] == pytest.approx(one[key], abs=1e-5)
        assert {key: one[key] for key in one if key in ("label", "labels", "tags", "answer", "choice")} == {
            key: two[key] for key in two if key in ("label", "labels", "tags", "answer", "choice")
        }


def test_a_model_tuned_for_generation_is_refused(tmp_path: Path) -> None:
    made = task_model("unilm", "generate")
    with pytest.raises(AbilityError, match="bidirectionally and continues it"):
        export_model(made, "huggingface", tmp_path / "out")
