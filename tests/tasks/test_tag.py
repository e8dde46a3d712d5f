"""Words of sentences among their tokens: one by one, or several in a token where no spaces are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.folder import open_artifact
from firth.artifact.formats.huggingface_tasks import head_class_of
from firth.artifact.models import load
from firth.errors import AbilityError, RecipeError
from firth.fit.finetune import finetune
from firth.fit.train import train
from firth.nets.network import Vocabulary
from firth.recipes.nets import gpt, gpt2
from firth.tasks.examples import TagExample
from firth.tasks.recipe import TaskRecipe
from firth.tasks.sequences import POSITIONS, SequenceBuilder
from firth.tasks.tag import WORD_IN_TOKEN, WORDS, TagTask, align, find_words_per_token
from firth.tokens.tokenizer import Tokenizer

SENTENCES = ("我们在北京工作", "他们在上海工作", "我们喜欢上海", "他们喜欢北京")
SEVERAL = "我们在北京工作"
CITIES = ("北京", "上海")


def characters(text: str) -> TagExample:
    """The characters of a sentence, those of a city tagged."""
    tags = ["O"] * len(text)
    for city in CITIES:
        if city in text:
            begin = text.index(city)
            tags[begin : begin + 2] = ["B-CITY", "I-CITY"]
    return TagExample(tuple(text), tuple(tags), spaced=False)


def item(text: str) -> dict[str, Any]:
    one = characters(text)
    return {"words": list(one.words), "tags": list(one.tags or ()), "spaced": False}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("models")
    small = ["embedding.width=16", "encoder.width=16", "encoder.ffn_width=64", "encoder.layers=1", "encoder.heads=2"]
    settings = {
        "skipgram": ["tokenizer.min_count=1", "dimension=16", "epochs=1"],
        "gpt": ["tokenizer=words", "tokenizer.min_count=1", *small],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        for name, own in settings.items():
            budget = None if name == "skipgram" else "3ktok"
            text = [list(SENTENCES)] * 20
            train(name, text, out=folder / name, settings=own, budget=budget, threads=1, reload=False)
        yield {name: folder / name for name in settings}


@pytest.fixture(scope="module")
def tokenizer(models: dict[str, Path]) -> Tokenizer:
    found: Tokenizer = load(models["gpt"]).tokenizer
    return found


def builder(tokenizer: Tokenizer, length: int = 64) -> SequenceBuilder:
    recipe = gpt().with_tokenizer(tokenizer.recipe)
    return SequenceBuilder(replace(recipe, sequence=replace(recipe.sequence, length=length)), tokenizer)


def test_characters_are_aligned_to_tokens(tokenizer: Tokenizer) -> None:
    laid = align(characters(SEVERAL), builder(tokenizer), whole=True)
    assert [tokenizer.vocabulary[one] for one in laid.ids.tolist()] == ["我们", "在", "北京", "工作"]
    assert laid.first_tokens.tolist() == [0, 0, 1, 2, 2, 3, 3]
    assert laid.ranks.tolist() == [0, 1, 0, 0, 1, 0, 1]


def test_words_one_by_one_have_tokens_of_their_own(tokenizer: Tokenizer) -> None:
    laid = align(TagExample(("我们", "在", "\u3000", "北京"), spaced=False), builder(tokenizer), whole=False)
    assert laid.first_tokens.tolist() == [0, 1, 2, 3]
    assert not laid.ranks.any()
    assert laid.ids.size == 4


def test_only_what_is_smaller_than_tokens_is_read_as_a_whole(tokenizer: Tokenizer) -> None:
    every = [characters(one) for one in SENTENCES]
    assert find_words_per_token(every, builder(tokenizer)) == 2
    words = [TagExample(("我们", "在", "北京", "工作"), spaced=False)]
    assert find_words_per_token(words, builder(tokenizer)) == 1
    assert find_words_per_token([TagExample(tuple("ab cd"))], builder(tokenizer)) == 1
    assert find_words_per_token([TagExample((), spaced=False)], builder(tokenizer)) == 1


@pytest.mark.parametrize("length", [4, 5, 8, 64])
def test_each_character_is_labelled_once_whatever_the_length(tokenizer: Tokenizer, length: int) -> None:
    text = "".join(SENTENCES)
    cut = builder(tokenizer, length)
    recipe = TaskRecipe(
        task="tag", network=cut.recipe, labels=("B-CITY", "I-CITY", "O"), spaced=False, words_per_token=2
    )
    task = TagTask(recipe, Vocabulary(tokenizer.vocabulary, np.ones(len(tokenizer), dtype=np.int64)))
    laid = align(characters(text), cut, whole=True)
    labelled: list[int] = []
    for row in task.sequences([characters(text)], cut)[0]:
        assert row.ids.size <= length
        words = row.labels[WORDS]
        assert np.array_equal(row.ids[row.labels[POSITIONS]], laid.ids[laid.first_tokens[words]])
        assert np.array_equal(row.labels[WORD_IN_TOKEN], laid.ranks[words])
        labelled += words.tolist()
    assert labelled == list(range(len(text)))


@pytest.mark.parametrize("name", ["skipgram", "gpt"])
def test_characters_in_one_token_have_tags_of_their_own(name: str, models: dict[str, Path], tmp_path: Path) -> None:
    given = [item(one) for one in SENTENCES]
    settings = ["head.encoder=none", "head.dropout=0", "learning.epochs=150", "learning.batch=4", "learning.lr=0.01"]
    tuned = finetune(models[name], "tag", train=given, dev=given, out=tmp_path / "m", settings=settings, threads=1)
    manifest = open_artifact(tmp_path / "m").manifest
    assert manifest.recipe["words_per_token"] == 2
    assert manifest.metrics["dev"]["entity_f1"] == 1.0
    asked = [list(SEVERAL), list(SENTENCES[3])]
    found = load(tmp_path / "m").predict(asked)
    assert found == tuned.predict(asked)
    assert [one["tags"] for one in found] == [list(characters("".join(one)).tags or ()) for one in asked]


def test_what_others_have_no_class_for_is_not_exported() -> None:
    with pytest.raises(AbilityError, match=r"settings={'words_per_token': 1}"):
        head_class_of(TaskRecipe(task="tag", network=gpt2(), words_per_token=2))
    assert head_class_of(TaskRecipe(task="tag", network=gpt2())).architecture == "GPT2ForTokenClassification"


def test_a_token_holds_at_least_one_word() -> None:
    with pytest.raises(RecipeError, match="words_per_token=0 must be from 1 to 100"):
        TaskRecipe(task="tag", words_per_token=0)
