"""Knowledge masking: units by hand, whole units masked, rates, stages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from firth.errors import RecipeError
from firth.fit.batches import Batches, Cursor
from firth.fit.layouts import staged_batches
from firth.nets.batch import Batch
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.masking import unit_starts
from firth.objectives.masking import Masking
from firth.recipes.knowledge import ernie
from firth.recipes.nets import resize
from firth.recipes.values import override
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.structure import make_columns
from firth.tokens.tokenizer import BOS, EOS, MASK
from firth.tokens.units import is_character
from tests.objectives.small_stores import numbered, small_recipe, store_of

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "new", "york", "##er", "is", "大", "学", "好"]
IDS = [BOS, 5, 6, 7, 8, 9, 10, 11, EOS]
STARTS = [1, 1, 1, 0, 1, 1, 0, 1, 1]


def batch_of(**columns: list[int]) -> Batch:
    batch = Batch(torch.tensor([IDS]), torch.tensor([STARTS]).bool())
    batch.columns = {name: torch.tensor([values], dtype=torch.uint8) for name, values in columns.items()}
    return batch


def test_units_by_hand() -> None:
    """Text: [CLS] new york ##er is 大 学 好 [SEP], where 大学 is a word."""
    characters = is_character(WORDS)

    def units(policy: str, **columns: list[int]) -> list[int]:
        return unit_starts(batch_of(**columns), policy, characters)[0].int().tolist()

    assert units("word") == STARTS
    assert units("basic") == [1, 1, 1, 0, 1, 1, 1, 1, 1], "a Chinese character is a unit, an English word too"
    assert units("phrase", phrases=[0, 1, 2, 2, 0, 0, 0, 0, 0]) == [1, 1, 0, 0, 1, 1, 0, 1, 1]
    assert units("entity", entities=[0, 0, 0, 0, 0, 0, 1, 2, 0]) == [1, 1, 1, 0, 1, 1, 1, 0, 1]
    # A unit begins after a span that ends within a word.
    assert units("entity", entities=[0, 0, 0, 0, 1, 2, 0, 0, 0])[5:7] == [0, 1]
    assert units("phrase") == STARTS, "a text without phrases has words"


@pytest.fixture(scope="module")
def text() -> tuple[NetRecipe, TokenStore, Vocabulary]:
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(60)]
    names = ["San Francisco", "Rio de Janeiro", "New York", "Old Town Hall", "Anna Karenina", "Hong Kong"]
    names += ["Tel Aviv", "Monte Carlo", "Costa Rica", "Puerto Vallarta", "Sri Lanka", "Saudi Arabia"]
    lines = [" ".join([*rng.choice(words, 6), rng.choice(names), *rng.choice(words, 5)]) for _ in range(1500)]
    documents = [lines[begin : begin + 10] for begin in range(0, len(lines), 10)]
    tokenizer, store = open_tokens(
        TokenizerRecipe(model="wordpiece", vocab_size=300, lowercase=True, min_count=1),
        read_corpus(documents),
        columns=make_columns(["phrases", "entities"]),
    )
    recipe = override(resize(ernie(), "tiny"), ["learning.batch=4096", "objectives=mlm+nsp"])
    assert isinstance(recipe, NetRecipe)
    return recipe, store, Vocabulary(tokenizer.vocabulary, np.ones(len(tokenizer), dtype=np.int64))


@pytest.mark.parametrize(("progress", "name"), [(0.0, ""), (1 / 3, "phrases"), (2 / 3, "entities"), (1.0, "entities")])
def test_units_are_masked_whole_at_the_rate(
    progress: float, name: str, text: tuple[NetRecipe, TokenStore, Vocabulary]
) -> None:
    recipe, store, vocabulary = text
    heads = make_heads(recipe, build_network(recipe, vocabulary, 0))
    batches = staged_batches(recipe, store, list(heads.values()), 0).at(progress)
    counts: Counter[str] = Counter()
    cursor = Cursor()
    while cursor.epoch == 0:
        (batch,), cursor = batches.step(cursor)
        mlm = heads["mlm"]
        chosen = torch.zeros(batch.ids.numel(), dtype=torch.bool)
        chosen[mlm.positions(batch)] = True
        counts["chosen"] += int(chosen.sum())
        counts["text"] += batch.tokens
        masked = batch.ids.flatten()[mlm.positions(batch)] == MASK
        counts["masked"] += int(masked.sum())
        for column in ("phrases", "entities"):
            inside = (batch.columns[column] > 0).flatten()
            counts[f"{column} in"] += int(inside.sum())
            for share in mlm.shares(batch).items():
                if share[0] == f"whole {column}":
                    counts[f"{column} touched"] += int(share[1][1])
                    counts[f"{column} whole"] += int(share[1][0])
    assert counts["chosen"] / counts["text"] == pytest.approx(0.15, abs=0.006)
    assert counts["masked"] / counts["chosen"] == pytest.approx(0.8, abs=0.015)
    assert counts["entities in"] > 0.1 * counts["text"]
    if name:
        assert counts[f"{name} touched"] > 100
        assert counts[f"{name} whole"] == counts[f"{name} touched"]
    else:
        assert not any("touched" in key for key in counts)


def test_batches_have_the_columns_of_their_tokens(text: tuple[NetRecipe, TokenStore, Vocabulary]) -> None:
    """Each token of a batch has the value that it has in the store, in packed rows and in streams."""
    recipe, store, _ = text
    for form, objectives in (("segment-pair", "mlm+nsp"), ("doc-sentences", "mlm"), ("stream", "mlm")):
        changed = override(recipe, [f"sequence.format={form}", f"objectives={objectives}"])
        assert isinstance(changed, NetRecipe)
        (batch,), _ = Batches(changed, store, [], 0).step(Cursor())
        ids, values = store.ids.astype(np.int64), store.columns["entities"].astype(np.int64)
        known = {tuple(ids[begin : begin + 6]): values[begin : begin + 6].tolist() for begin in range(ids.size - 5)}
        rows, column = batch.ids.numpy(), batch.columns["entities"].numpy()
        checked = 0
        for row in range(len(rows)):
            for begin in range(rows.shape[1] - 5):
                found = known.get(tuple(rows[row, begin : begin + 6]))
                if found is not None:
                    assert column[row, begin : begin + 6].tolist() == found
                    checked += 1
        assert checked > 1000
        assert not column[(rows == BOS) | (rows == EOS) | (rows == 0)].any()


def test_stages_are_equal_parts() -> None:
    assert ernie().stages == (0.0, 1 / 3, 2 / 3)
    assert ernie().columns == ("phrases", "entities", "turns")
    one = Masking(stages=("word", "entity"))
    assert [one.at(progress).policy for progress in (0, 0.499, 0.5, 1)] == ["word", "word", "entity", "entity"]
    with pytest.raises(RecipeError, match=r"masking\.stages has 'words'"):
        Masking(stages=("words",))


def test_stages_change_the_noise_alone(tmp_path: Path) -> None:
    """The rows of a step are the same in all stages, and recipes without stages have a single source."""
    recipe = small_recipe("mlm", "doc-sentences", stages=("token", "word"))
    store = store_of(numbered([[5, 6], [7, 8], [9, 4]]), tmp_path, every=2)
    heads = make_heads(recipe, build_network(recipe, Vocabulary([str(n) for n in range(60)], np.ones(60, int)), 0))
    source = staged_batches(recipe, store, list(heads.values()), 0)
    assert len(source.sources) == 2
    (first,), after = source.at(0.1).step(Cursor())
    (second,), same = source.at(0.9).step(Cursor())
    assert after == same
    assert torch.equal(_restored(first), _restored(second))
    assert not torch.equal(first.ids, second.ids)
    assert small_recipe("mlm").stages == (0.0,)


def _restored(batch: Batch) -> torch.Tensor:
    ids = batch.ids.flatten().clone()
    ids[batch.labels["mlm.positions"]] = batch.labels["mlm.targets"]
    return ids


def test_knowledge_masks_need_a_packed_text() -> None:
    with pytest.raises(RecipeError, match=r"masks phrases and entities.*embedding\.languages=15"):
        override(ernie(), ["embedding.languages=15"])
