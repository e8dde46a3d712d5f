"""Settings in use: another memory gives the probabilities of a network built with it, and nothing else can be set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import firth
from firth.abilities import total
from firth.apply.score import open_texts, score_lines
from firth.apply.settings import with_settings
from firth.errors import AbilityError, ArgumentError
from firth.nets.recipe import MemoryRecipe
from tests.nets.small_nets import small_net
from tests.samples import ENGLISH


def small_xl(memory: int = 4) -> Any:
    return small_net("transformer-xl", length=6, memory=MemoryRecipe(length=memory))


def test_a_longer_memory_gives_other_scores_and_enough_gives_those_of_the_whole_text() -> None:
    model = small_xl()
    ids = torch.from_numpy(np.random.default_rng(0).integers(5, len(model.words), (1, 40)))
    longer = with_settings(model, {"memory.length": 40})
    assert longer.recipe.memory.length == 40
    assert model.recipe.memory.length == 4
    assert not torch.allclose(longer.logits(ids), model.logits(ids))
    whole = with_settings(model, {"sequence.length": 40})
    torch.testing.assert_close(longer.logits(ids), whole.logits(ids), rtol=0, atol=1e-5)


def test_scores_of_a_document_do_not_depend_on_how_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces that are read one after the other, as for a document larger than memory."""
    model = small_xl()
    (tmp_path / "t.txt").write_text("\n".join(ENGLISH * 3))
    files = open_texts(model, [tmp_path / "t.txt"], "document")
    whole = total(one for _, one in score_lines(model, files))
    monkeypatch.setattr("firth.lm.pieces._CHARACTERS", 100)
    pieces = model.score_pieces(files.pieces(files))
    assert total(pieces).logprob == pytest.approx(whole.logprob, rel=1e-5)
    by_line = total(one for _, one in score_lines(model, open_texts(model, [tmp_path / "t.txt"])))
    assert by_line.logprob != pytest.approx(whole.logprob, rel=1e-4)


def test_next_tokens_and_scores_agree_over_segments() -> None:
    model = small_xl()
    ids = [7, 8, 9, 3, 10, 11, 12, 13, 3, 6, 7, 8, 9]
    logs = model.logits(torch.tensor([[3, *ids]])).log_softmax(-1)[0]
    for size in (0, 5, 6, 7, 12, 13):
        found = model.next_logprobs(ids[:size])
        known = np.isfinite(found)
        np.testing.assert_allclose(found[known], logs[size].double().numpy()[known], atol=1e-4)


def test_scores_and_generated_texts_may_have_another_memory() -> None:
    """`firth score --set` and `firth generate --set`."""
    model, prompt = small_xl(), " ".join(ENGLISH[:3])
    longer = with_settings(model, {"memory.length": 40})
    scores = [firth.score(one, [prompt], settings=given).logprob for one, given in _ways(model, longer)]
    assert scores[0] == scores[1] != firth.score(model, [prompt]).logprob
    texts = [
        firth.generate(one, prompt, length=20, temperature=0, settings=given) for one, given in _ways(model, longer)
    ]
    assert texts[0] == texts[1] != firth.generate(model, prompt, length=20, temperature=0)


def _ways(model: Any, longer: Any) -> list[tuple[Any, dict[str, int]]]:
    return [(model, {"memory.length": 40}), (longer, {})]


@pytest.mark.parametrize(
    ("setting", "name"),
    [("encoder.layers=1", "encoder.layers"), ("learning.lr=1", "learning.lr"), ("memory.length=0", "memory")],
)
def test_what_training_fixed_is_refused(setting: str, name: str) -> None:
    with pytest.raises(AbilityError, match=name):
        with_settings(small_xl(), [setting])


def test_other_models_have_no_settings() -> None:
    with pytest.raises(AbilityError, match="leave settings out"):
        with_settings(small_net("gpt"), ["memory.length=9"])
    with pytest.raises(ArgumentError, match="memory"):
        with_settings(small_xl(), ["memory.size=9"])
