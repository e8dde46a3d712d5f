"""Language embeddings, and the language of texts of which none is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from firth.errors import AbilityError, RecipeError
from firth.nets.batch import Batch
from firth.nets.languages import LanguageVotes
from firth.nets.model import NetModel
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.clm import CausalLM
from firth.recipes.nets import resize, xlm
from tests.nets.small_nets import small_net, small_net_recipe

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "狗", "の", "собака", "!", "3"]


def recipe_of(*names: str, **changes: Any) -> NetRecipe:
    recipe = small_net_recipe("xlm", len(TOKENS))
    languages = replace(recipe.embedding, languages=len(names))
    objectives = recipe.objectives if names else ()
    return replace(recipe, **{"embedding": languages, "languages": names, "objectives": objectives} | changes)


def build(recipe: NetRecipe) -> Network:
    vocabulary = Vocabulary(TOKENS, np.arange(len(TOKENS), 0, -1))
    return build_network(recipe, vocabulary, seed=1).double().eval()


def batch_of(ids: torch.Tensor, languages: torch.Tensor | None = None) -> Batch:
    batch = Batch(ids, ids >= 5)
    if languages is not None:
        batch.side_ids["languages"] = languages
    return batch


@torch.no_grad()
def states(network: Network, batch: Batch) -> torch.Tensor:
    return network(batch).last_hidden_state.view(*batch.shape, -1)


def test_a_table_of_zeros_is_a_network_without_languages() -> None:
    network = build(recipe_of("en", "zh"))
    plain = build(recipe_of())
    own = {name: one for name, one in network.state_dict().items() if name != "embedding.languages.weight"}
    plain.load_state_dict(own)
    ids = torch.tensor([[3, 5, 6, 3], [3, 7, 7, 3]])
    assert not torch.allclose(states(network, batch_of(ids)), states(plain, batch_of(ids)))
    with torch.no_grad():
        assert network.embedding.languages is not None
        network.embedding.languages.weight.zero_()
    assert torch.equal(states(network, batch_of(ids)), states(plain, batch_of(ids)))


def test_the_vector_of_the_language_of_each_token_is_added() -> None:
    network = build(recipe_of("en", "zh"))
    embedding = network.embedding
    embedding.norm = None
    ids, languages = torch.tensor([[3, 5, 7, 3]]), torch.tensor([[0, 0, 1, 1]])
    assert embedding.languages is not None
    bare = embedding(ids) - embedding.languages.weight[0]  # missing ids mean the first row
    added = embedding(ids, side_ids={"languages": languages}) - bare
    assert torch.allclose(added, embedding.languages.weight[languages])


def test_other_recipes_draw_the_same_initial_weights() -> None:
    """The language table is drawn after those that other recipes have."""
    with_languages = build(recipe_of("en", "zh")).state_dict()
    without = build(recipe_of()).state_dict()
    for name in ("embedding.tokens.weight", "embedding.positions.weight"):
        assert torch.equal(with_languages[name], without[name])


@pytest.mark.parametrize(
    ("languages", "words", "expected"),
    [
        (("en", "zh"), ["the", "dog", "!"], "en"),
        (("en", "zh"), ["狗", "狗", "dog"], "zh"),
        (("zh", "en"), ["!", "3"], "zh"),
        (("en", "zh", "ja"), ["狗", "の"], "ja"),
        (("en", "ja", "zh"), ["狗"], "zh"),
        (("en", "ru"), ["собака"], "ru"),
        (("de", "en"), ["the", "dog"], "de"),
    ],
)
def test_the_script_decides_on_the_language(languages: tuple[str, ...], words: list[str], expected: str) -> None:
    """Or the first one, of several with the same script."""
    ids = torch.tensor([[3, *(TOKENS.index(word) for word in words), 3]])
    chosen = LanguageVotes(languages, TOKENS).choose(ids)
    assert chosen.unique().tolist() == [languages.index(expected)]


def test_packed_sequences_have_their_own_languages() -> None:
    votes = LanguageVotes(("en", "zh"), TOKENS)
    ids = torch.tensor([[3, 5, 6, 3, 7, 7, 0], [3, 7, 3, 5, 5, 0, 0]])
    sequence_ids = torch.tensor([[0, 0, 0, 1, 1, 1, -1], [0, 0, 1, 1, 1, -1, -1]])
    assert votes.choose(ids, sequence_ids).tolist() == [[0, 0, 0, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0, 0]]


def test_decoding_step_by_step_keeps_the_language() -> None:
    recipe = recipe_of("en", "zh", visibility="causal", objectives=(CausalLM(),))
    network = build(recipe)
    ids = torch.tensor([[3, 7, 7, 5, 6, 5, 5, 5], [3, 5, 6, 5, 7, 7, 7, 7]])
    languages = torch.tensor([[1], [0]]).expand_as(ids)
    whole = states(network, batch_of(ids, languages))
    with torch.inference_mode():
        first, cache = network.decode_step(ids[:, :3])
        second, cache = network.decode_step(ids[:, 3:4], cache)
        swapped = cache.select_rows(torch.tensor([1, 0]))
        third, _ = network.decode_step(ids[[1, 0], 4:], swapped)
    torch.testing.assert_close(torch.cat([first, second], 1), whole[:, :4], rtol=0, atol=1e-10)
    torch.testing.assert_close(third, whole[[1, 0], 4:], rtol=0, atol=1e-10)


def small_xlm() -> NetModel:
    tiny = resize(xlm(), "tiny")
    embedding = replace(tiny.embedding, languages=2, width=16, dropout=0.0)
    return small_net("xlm", embedding=embedding, languages=("en", "zh"))


def test_a_model_reads_texts_in_a_language() -> None:
    model = small_xlm()
    english, chinese = "The quick brown fox", "我们喜欢研究语言"
    assert (model.language_of(english), model.language_of(chinese)) == ("en", "zh")
    assert model.in_language("zh").language_of(english) == "zh"
    both = model.embed([english, chinese])
    assert np.array_equal(both[0], model.in_language("en").embed([english])[0])
    assert np.array_equal(both[1], model.in_language("zh").embed([chinese])[0])
    assert not np.allclose(both[0], model.in_language("zh").embed([english])[0])
    own, other = (model.in_language(name).score([english])[0].logprob for name in ("en", "zh"))
    assert model.score([english])[0].logprob == own != other
    assert model.recipe.language == ""


def test_unknown_languages_are_refused() -> None:
    with pytest.raises(AbilityError, match=r"does not know the language 'fr': it knows en, zh\."):
        small_xlm().in_language("fr")
    with pytest.raises(AbilityError, match="it has no language embeddings"):
        small_net("bert").in_language("en")
    with pytest.raises(RecipeError, match="none of the model's languages"):
        recipe_of("en", "zh", language="fr")
    with pytest.raises(RecipeError, match="names one twice"):
        recipe_of("en", "en")
    with pytest.raises(RecipeError, match=r"set embedding\.languages=2"):
        replace(xlm(), languages=("en", "zh"))
    with pytest.raises(RecipeError, match=r"tlm reads texts in two languages, and embedding\.languages=0"):
        replace(xlm(), embedding=replace(xlm().embedding, languages=0))
