"""Training in several languages: batches by hand, mixtures, resumed runs, further training, bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import firth
from firth.errors import CorpusError, RecipeError
from firth.fit import trainer as trainers
from firth.fit.batches import Cursor
from firth.fit.languages import LanguageBatches, TranslationBatches, language_mixture
from firth.fit.mixture import ROUND
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.head import ObjectiveHead
from firth.recipes.nets import resize, xlm
from firth.text.multilingual import read_multilingual
from firth.tokens.build import open_store
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import EOS, MASK
from firth.tokens.train import train_tokenizer
from tests.fit.small_languages import SETTINGS, translate, write_texts

PAIRS = [["a b c", "甲 乙"], ["b", "乙"], ["c c a b", "甲 丙 丁 乙 甲"]]


def recipe_of(length: int = 16, **changes: Any) -> NetRecipe:
    tiny = resize(xlm(), "tiny")
    small = replace(
        tiny,
        embedding=replace(tiny.embedding, width=16, languages=2),
        encoder=replace(tiny.encoder, width=16, ffn_width=64),
        sequence=replace(tiny.sequence, length=length),
        learning=replace(tiny.learning, batch=2 * length),
        languages=("en", "zh"),
    )
    return replace(small, **changes)


def heads_of(recipe: NetRecipe, tokens: list[str]) -> dict[str, ObjectiveHead]:
    vocabulary = Vocabulary(tokens, np.ones(len(tokens), dtype=np.int64))
    return make_heads(recipe, build_network(recipe, vocabulary, 0))


def write_pairs(folder: Path, pairs: list[list[str]]) -> str:
    (folder / "p.tsv").write_text("\n".join("\t".join(one) for one in [["en", "zh"], *pairs]) + "\n", encoding="utf-8")
    return str(folder / "p.tsv")


def translations(folder: Path, length: int = 16, corrupted: bool = False) -> tuple[Any, TranslationBatches]:
    """The tokenizer and the batches of the three pairs."""
    corpus = read_multilingual(write_pairs(folder, PAIRS))
    tokenizer = train_tokenizer(TokenizerRecipe(model="words", min_count=1, split="space"), corpus)
    recipe = recipe_of(length)
    heads = [heads_of(recipe, list(tokenizer.vocabulary))["tlm"]] if corrupted else []
    store = open_store(corpus.translations[0].corpus, tokenizer)
    return tokenizer, TranslationBatches(recipe, store, heads, 0, [0, 1])


def test_pairs_are_laid_out_as_published(tmp_path: Path) -> None:
    """`</s> a </s> </s> b </s>`: the positions of b begin at 0 again, and each token has its language."""
    tokenizer, batches = translations(tmp_path)
    (batch,), _ = batches.step(Cursor())
    words = {word: number for number, word in enumerate(tokenizer.vocabulary)}

    def ids(sentence: str) -> list[int]:
        return [EOS, *(words[word] for word in sentence.split()), EOS]

    found = {}
    assert batch.sequence_ids is not None
    assert batch.position_ids is not None
    for row in range(batch.shape[0]):
        for number in range(int(batch.sequence_ids[row].max()) + 1):
            own = batch.sequence_ids[row] == number
            parts = (batch.ids, batch.position_ids, batch.side_ids["languages"])
            found[tuple(parts[0][row, own].tolist())] = [part[row, own].tolist() for part in parts]
    assert len(found) == len(PAIRS)
    for one, two in PAIRS:
        first, second = ids(one), ids(two)
        expected = [first + second, [*range(len(first)), *range(len(second))], [0] * len(first) + [1] * len(second)]
        assert found[tuple(expected[0])] == expected
    assert batch.tokens == sum(len(side.split()) for pair in PAIRS for side in pair)
    assert batch.objectives == frozenset()


def test_both_sides_are_masked_and_special_tokens_never(tmp_path: Path) -> None:
    _, plain = translations(tmp_path)
    _, batches = translations(tmp_path, corrupted=True)
    hit: set[tuple[int, int]] = set()
    for epoch in range(40):
        (before,), _ = plain.step(Cursor(epoch))
        (batch,), _ = batches.step(Cursor(epoch))
        positions, targets = batch.labels["tlm.positions"], batch.labels["tlm.targets"]
        assert torch.equal(before.ids.flatten()[positions], targets)
        assert bool((targets > MASK).all())
        changed = (before.ids != batch.ids).flatten().nonzero()[:, 0]
        assert set(changed.tolist()) <= set(positions.tolist())
        languages = batch.side_ids["languages"].flatten()[positions]
        hit |= set(zip(targets.tolist(), languages.tolist(), strict=True))
        assert batch.objectives == {"tlm"}
    assert {language for _, language in hit} == {0, 1}
    assert len(hit) == 7  # every word of both languages


def test_long_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    _, batches = translations(tmp_path, length=9)
    assert (batches.left_out, batches.split) == (1, 0)
    assert batches.step(Cursor())[0][0].tokens == 7
    with pytest.raises(CorpusError, match="no pair fits into 5 tokens"):
        translations(tmp_path, length=5)[1].step(Cursor())


def mixture(folder: Path, objectives: str = "mlm+tlm") -> Any:
    corpus = read_multilingual(*write_texts(folder))
    tokenizer = train_tokenizer(TokenizerRecipe(model="words", min_count=1), corpus)
    recipe = recipe_of(32)
    recipe = replace(recipe, objectives=tuple(one for one in recipe.objectives if one.name in objectives.split("+")))
    heads = list(heads_of(recipe, list(tokenizer.vocabulary)).values())
    return language_mixture(recipe, corpus, tokenizer, heads, 0, 1)


def test_batches_have_one_language_and_their_objectives(tmp_path: Path) -> None:
    source = mixture(tmp_path)
    kinds = [type(one) for one in source.sources]
    assert kinds == [LanguageBatches, LanguageBatches, TranslationBatches]
    # 120 and 40 sentences: 0.75^0.7 = 0.8176 and 0.25^0.7 = 0.3789 of the half that is not translations.
    assert source.quotas == [round(500 * 0.8176 / 1.1965), round(500 * 0.3789 / 1.1965), 500]
    seen = set()
    for number in range(20):
        parts, _ = source.step(Cursor(*divmod(number * 7, ROUND)))
        for batch in parts:
            languages = tuple(batch.side_ids["languages"].unique().tolist())
            seen.add((languages, tuple(batch.objectives)))
            assert batch.shape == batch.side_ids["languages"].shape
    assert seen == {((0,), ("mlm",)), ((1,), ("mlm",)), ((0, 1), ("tlm",))}


def test_without_translations_the_sides_of_pairs_are_texts(tmp_path: Path) -> None:
    source = mixture(tmp_path, "mlm")
    assert [len(one.languages) for one in source.sources] == [1, 1]
    assert [one.store.info.sentences for one in source.sources] == [240, 160]


def train(folder: Path, *texts: Any, **options: Any) -> Any:
    given = {"settings": SETTINGS, "budget": "2ktok", "threads": 1} | options
    return firth.train("xlm", *texts, out=folder, **given)


class SwitchedOffError(Exception):
    """The machine was switched off."""


@pytest.mark.parametrize("more", [[], ["learning.grad_accumulation=2", "learning.short_phase=0.4"]], ids=["", "short"])
def test_resuming_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    texts = write_texts(tmp_path)
    settings = {"settings": [*SETTINGS, *more], "valid": texts[2]}
    whole = train(tmp_path / "whole", *texts, **settings)
    save, saved = trainers.NetTrainer.save, []

    def saving(self: Any) -> None:
        save(self)
        saved.append(1)
        if len(saved) in (9, 20):
            raise SwitchedOffError

    monkeypatch.setattr(trainers.NetTrainer, "save", saving)
    for resume in (False, True):
        with pytest.raises(SwitchedOffError):
            train(tmp_path / "again", *texts, resume=resume, **settings)
    again = train(tmp_path / "again", *texts, resume=True, **settings)
    mine, other = whole.arrays(), again.arrays()
    assert mine.keys() == other.keys()
    assert all(np.array_equal(mine[name], other[name]) for name in mine)
    record = json.loads((tmp_path / "again" / "metrics.jsonl").read_text().splitlines()[-1])
    assert set(record["valid_losses"]) == {"mlm", "tlm"}


def test_languages_and_their_order_are_those_of_the_text(tmp_path: Path) -> None:
    texts = write_texts(tmp_path)
    model = train(tmp_path / "m", *texts)
    assert model.languages == ("en", "zh")
    assert model.recipe.embedding.languages == 2
    assert tuple(model.network.embedding.languages.weight.shape) == (2, 16)
    more = train(tmp_path / "n", *texts, settings=[*SETTINGS, "languages=de,zh,en", "embedding.languages=3"])
    assert more.languages == ("de", "zh", "en")
    again = train(tmp_path / "m", *texts, resume=True)
    assert again.languages == ("en", "zh")
    again.embed(["w1"])


def test_causal_models_of_several_languages(tmp_path: Path) -> None:
    settings = [*SETTINGS, "objectives=clm", "visibility=causal"]
    model = train(tmp_path / "m", *write_texts(tmp_path), settings=settings)
    chinese = translate("w1 w2 w3")
    scores = [model.in_language(name).score([chinese])[0].logprob for name in ("en", "zh")]
    assert model.score([chinese])[0].logprob == scores[1] != scores[0]
    assert model.generate(chinese, length=3, temperature=0) == model.in_language("zh").generate(
        chinese, length=3, temperature=0
    )


def test_further_training_is_in_the_languages_of_the_model(tmp_path: Path) -> None:
    texts = write_texts(tmp_path)
    train(tmp_path / "m", *texts)
    options = {"budget": "1ktok", "threads": 1}
    adapted = firth.adapt(tmp_path / "m", texts[1], out=tmp_path / "a", **options)
    assert adapted.languages == ("en", "zh")
    assert adapted.recipe.names == ("mlm",)  # there are no translations
    before, after = (firth.load(tmp_path / name).network.embedding.languages.weight.detach() for name in "ma")
    assert not torch.equal(before[1], after[1])
    pairs = firth.adapt(tmp_path / "m", texts[2], out=tmp_path / "b", **options)
    assert pairs.recipe.names == ("mlm", "tlm")
    with pytest.raises(CorpusError, match="the text is in fr, which the model does not know: it has en, zh"):
        firth.adapt(tmp_path / "m", "fr=" + texts[0][3:], out=tmp_path / "c", **options)
    with pytest.raises(CorpusError, match="is not said"):
        firth.adapt(tmp_path / "m", texts[0][3:], out=tmp_path / "d", **options)


def test_fine_tuning_reads_each_text_in_its_language(tmp_path: Path) -> None:
    """Or all in one, if the recipe says so."""
    train(tmp_path / "m", *write_texts(tmp_path))
    examples = [{"text_a": f"w{n % 20} w{n % 3}", "label": "ab"[n % 2]} for n in range(20)]
    tuned = {}
    for name, settings in {"auto": [], "zh": ["network.language=zh"]}.items():
        firth.finetune(
            tmp_path / "m", "classify", train=examples, dev=examples, out=tmp_path / name, threads=1, seed=1,
            settings=["learning.epochs=1", *settings],
        )  # fmt: skip
        tuned[name] = firth.load(tmp_path / name)
    assert tuned["zh"].recipe.network.language == "zh"
    one, two = (firth.predict(tuned[name], ["w1 w2"])[0]["probability"] for name in ("auto", "zh"))
    assert one != two
    assert tuned["auto"].recipe.network.languages == ("en", "zh")


def test_task_text_is_read_by_its_script(tmp_path: Path) -> None:
    train(tmp_path / "m", *write_texts(tmp_path))
    examples = [{"text_a": f"w{n % 20} w{n % 3} w7 w9 w2", "label": "ab"[n % 2]} for n in range(20)]
    firth.finetune(
        tmp_path / "m", "classify", train=examples, dev=examples, out=tmp_path / "t", threads=1, task_text=True,
        budget="500tok", settings=["learning.epochs=1"],
    )  # fmt: skip
    assert firth.load(tmp_path / "t").recipe.network.languages == ("en", "zh")


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        (["en", "zh"], [], "tlm is trained on translations, and there are none: .* or set objectives=mlm"),
        (["en"], ["objectives=mlm"], "en is the only language of the text: name texts of two languages or more"),
        (["en"], ["objectives=tlm"], "en is the only language"),
        (["pairs"], ["languages=en,de", "embedding.languages=2"], "the text is in zh, which the model does not know"),
        (["plain"], [], "the language of .*en.txt is not said"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, texts: list[str], settings: list[str], message: str) -> None:
    names = dict(zip(("en", "zh", "pairs"), write_texts(tmp_path), strict=True))
    names["plain"] = str(tmp_path / "en.txt")
    with pytest.raises((CorpusError, RecipeError), match=message) as error:
        train(tmp_path / "m", *(names[text] for text in texts), settings=[*SETTINGS, *settings])
    assert "\n" not in str(error.value)
