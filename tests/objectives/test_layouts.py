"""Objectives with sequences of their own: labels by hand and by definition, roles, losses, mixtures, lacking text."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from firth.errors import RecipeError
from firth.fit.batches import Batches, Cursor
from firth.fit.layouts import LaidOutBatches, ObjectiveMixture, staged_batches, stored_text, with_material
from firth.nets.batch import Batch
from firth.nets.embedding import TASKS
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives._layout_kernels import shuffled_order
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.layouts import LaidOutHead, truncate
from firth.objectives.heads.token_labels import TokenLabelHead
from firth.objectives.sequences import Sequences, StoredText
from firth.recipes.knowledge import ernie, ernie2
from firth.recipes.nets import resize
from firth.recipes.values import override
from firth.text.corpus import read_corpus
from firth.text.discourse import RELATIONS
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.structure import make_columns
from firth.tokens.tokenizer import Tokenizer
from tests.contracts.test_masks import assert_sees, embedded

Text = tuple[NetRecipe, TokenStore, Tokenizer]


def documents(count: int = 60) -> list[list[str]]:
    """Documents with a headline, markers and names."""
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(80)]
    openings = ["", "However, ", "Therefore, ", "for example ", "Later "]
    found = []
    for number in range(count):
        lines = [f"headline of Text {number}"]
        for _ in range(int(rng.integers(3, 12))):
            lines.append(rng.choice(openings) + " ".join(rng.choice(words, int(rng.integers(3, 9)))) + " .")
        found.append(lines)
    return found


def dialogues(count: int = 40) -> list[list[str]]:
    rng = np.random.default_rng(1)
    words = [f"w{number}" for number in range(80)]
    found = []
    for _ in range(count):
        speakers = ["A", "B", *rng.choice(["A", "B"], int(rng.integers(2, 9))).tolist(), "B", "A"]
        found.append([f"{one}: " + " ".join(rng.choice(words, int(rng.integers(2, 7)))) for one in speakers])
    return found


def opened(recipe: NetRecipe, text: list[list[str]], *settings: str) -> Text:
    recipe = resize(recipe, "tiny")
    tokenizer, store = open_tokens(
        TokenizerRecipe(model="wordpiece", vocab_size=300, lowercase=True, min_count=1),
        read_corpus(text),
        columns=make_columns(recipe.columns),
    )
    sized = override(recipe, ["sequence.length=64", "learning.batch=512", *settings])
    assert isinstance(sized, NetRecipe)
    return sized, store, tokenizer


@pytest.fixture(scope="module")
def second() -> Text:
    return opened(ernie2(), documents())


@pytest.fixture(scope="module")
def first() -> Text:
    return opened(ernie(), dialogues())


def heads_of(text: Text) -> dict[str, torch.nn.Module]:
    recipe, _, tokenizer = text
    vocabulary = Vocabulary(tokenizer.vocabulary, np.ones(len(tokenizer), dtype=np.int64))
    return dict(make_heads(recipe, build_network(recipe, vocabulary, 0)))


def laid_out(text: Text, name: str, seed: int = 0, limit: int = 40) -> tuple[Sequences, StoredText]:
    head, stored = heads_of(text)[name], stored_text(text[1])
    assert isinstance(head, LaidOutHead)
    rng = np.random.default_rng(seed)
    made = head.lay_out(head.find(stored), stored, limit, rng)
    lengths = (made.ends - made.starts).sum(1)
    assert (made.ends >= made.starts).all()
    assert lengths.max() <= limit
    assert len(made.labels[f"{name}.labels"]) == len(made.starts) > 50
    again = head.lay_out(head.find(stored), stored, limit, np.random.default_rng(seed))
    assert np.array_equal(made.starts, again.starts)
    return made, stored


def test_ranks_of_orders() -> None:
    """Every order has its place in the sorted list of all."""
    every = sorted(itertools.permutations(range(3)))
    order, seen = np.zeros(3, dtype=np.int64), Counter[int]()
    for seed in range(600):
        rank = shuffled_order(3, np.uint64(seed), order)
        assert tuple(order.tolist()) == every[rank]
        seen[rank] += 1
    assert all(60 < seen[rank] < 140 for rank in range(6))


@pytest.mark.parametrize("seed", range(3))
def test_a_class_tells_the_order_of_segments(second: Text, seed: int) -> None:
    made, text = laid_out(second, "reordering", seed)
    counts = Counter[int]()
    for starts, ends, label in zip(made.starts, made.ends, made.labels["reordering.labels"], strict=True):
        used = [(one, two) for one, two in zip(starts.tolist(), ends.tolist(), strict=True) if one < two]
        counts[len(used)] += 1
        parts = len(used)
        before = {1: 0, 2: 1, 3: 3}[parts]
        order = sorted(itertools.permutations(range(parts)))[label - before]
        restored = [used[order.index(number)] for number in range(parts)]
        assert all(one[1] == two[0] for one, two in itertools.pairwise(restored)), "segments are contiguous again"
        assert {one for one, _ in used} <= set(text.sentences.tolist())
    assert counts.keys() == {1, 2, 3}
    covered = np.concatenate([np.arange(a, b) for a, b in zip(made.starts.ravel(), made.ends.ravel(), strict=True)])
    assert np.array_equal(np.sort(covered), np.arange(text.ids.size)), "every token is in one paragraph"


def test_distances_are_what_they_say(second: Text) -> None:
    made, text = laid_out(second, "distance")
    sentence = np.searchsorted(text.sentences, made.starts, side="right") - 1
    document = np.searchsorted(text.documents, sentence, side="right") - 1
    labels = made.labels["distance.labels"]
    same = document[:, 0] == document[:, 1]
    adjacent = same & (sentence[:, 1] == sentence[:, 0] + 1)
    assert np.array_equal(labels == 0, adjacent)
    assert np.array_equal(labels == 2, ~same)
    assert (np.abs(np.diff(sentence, axis=1))[labels == 1] > 1).all()
    assert np.bincount(labels).min() > 0.25 * len(labels)


def test_a_single_document_has_no_distant_sentences() -> None:
    text = opened(ernie2(), documents(1) + documents(1)[:0])
    head, stored = heads_of(text)["distance"], stored_text(text[1])
    assert isinstance(head, LaidOutHead)
    made = head.lay_out(head.find(stored), stored, 40, np.random.default_rng(0))
    assert 2 not in made.labels["distance.labels"]


def test_discourse_markers_are_removed(second: Text) -> None:
    made, text = laid_out(second, "discourse")
    tokenizer = second[2]
    known = {"however,": "contrast", "therefore,": "result", "for example": "example", "later": "time"}
    for starts, ends, label in zip(made.starts, made.ends, made.labels["discourse.labels"], strict=True):
        index = int(np.searchsorted(text.sentences, starts[1], side="right")) - 1
        marker = tokenizer.decode(text.ids[text.sentences[index] : starts[1]].tolist())
        assert RELATIONS[label] == known[marker]
        assert starts[0] == text.sentences[index - 1]
        assert ends[0] <= text.sentences[index] < starts[1] < ends[1]


def test_relevance_of_bodies(second: Text) -> None:
    made, text = laid_out(second, "relevance")
    sentence = np.searchsorted(text.sentences, made.starts, side="right") - 1
    document = np.searchsorted(text.documents, sentence, side="right") - 1
    labels = made.labels["relevance.labels"]
    assert np.array_equal(sentence[:, 0], text.documents[document[:, 0]]), "the first segment is a headline"
    assert np.array_equal(labels == 2, document[:, 0] != document[:, 1])
    own = labels < 2
    assert np.array_equal((sentence[:, 1] == sentence[:, 0] + 1)[own], labels[own] == 0)
    assert np.bincount(labels).min() > 0.25 * len(labels)


def test_dialogues_have_roles_and_replaced_turns(first: Text) -> None:
    made, text = laid_out(first, "dlm")
    sentence = np.searchsorted(text.sentences, made.starts, side="right") - 1
    document = np.searchsorted(text.documents, sentence, side="right") - 1
    speaker = text.columns["turns"][text.sentences[sentence]].astype(int)
    labels, roles = made.labels["dlm.labels"], made.labels["dlm.roles"]
    is_real = (document == document[:, :1]).all(1)
    assert np.array_equal(labels == 0, is_real)
    assert 0.35 < labels.mean() < 0.55
    real = np.flatnonzero(is_real)
    assert (np.diff(sentence[real], axis=1) == 1).all(), "three turns one after another"
    expected = 2 * (speaker[real, 1] != speaker[real, 0]) + (speaker[real, 2] != speaker[real, 0])
    assert np.array_equal(roles[real], expected)
    assert set(roles.tolist()) == {1, 2, 3}, "QQR, QRQ and QRR"
    changed = (document != np.median(document, axis=1)[:, None].astype(int)).sum(1)
    assert (changed[~is_real] == 1).all(), "one turn is replaced"
    opening = text.columns["turns"][made.starts]
    assert not opening.any(), "speakers are removed"


def test_a_turn_of_the_same_dialogue_is_no_replacement() -> None:
    """Among few dialogues some partners are of the same one: such sequences stay as they are, and real."""
    text = opened(ernie(), dialogues(2))
    head, stored = heads_of(text)["dlm"], stored_text(text[1])
    assert isinstance(head, LaidOutHead)
    for seed in range(20):
        made = head.lay_out(head.find(stored), stored, 60, np.random.default_rng(seed))
        sentence = np.searchsorted(stored.sentences, made.starts, side="right") - 1
        document = np.searchsorted(stored.documents, sentence, side="right") - 1
        real = (document == document[:, :1]).all(1)
        assert np.array_equal(made.labels["dlm.labels"] == 0, real)
        assert (np.diff(sentence[real], axis=1) == 1).all()


def test_roles_replace_segments(first: Text) -> None:
    """[CLS] a [SEP] b [SEP] c [SEP] twice in a row: QRQ and QQR."""
    head = heads_of(first)["dlm"]
    batch = Batch(torch.full((1, 16), 9), torch.ones(1, 16, dtype=torch.bool))
    batch.sequence_ids = torch.tensor([[0] * 7 + [1] * 8 + [-1]])
    batch.position_ids = torch.tensor([[*range(7), *range(8), 0]])
    batch.segment_ids = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 2, 2, 0]])
    batch.labels = {"dlm.roles": torch.tensor([2, 1]), "dlm.labels": torch.tensor([0, 1])}
    head.corrupt(batch, np.random.default_rng(0))  # type: ignore[operator]
    assert batch.segment_ids[0, :15].tolist() == [2, 2, 2, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3]


def test_batches_of_dialogues_have_roles(first: Text) -> None:
    recipe, store, _ = first
    heads = list(heads_of(first).values())
    mixture = staged_batches(recipe, store, heads, 0).at(0.0)  # type: ignore[arg-type]
    assert isinstance(mixture, ObjectiveMixture)
    texts, own = mixture.sources
    assert isinstance(own, LaidOutBatches)
    (batch,), _ = own.step(Cursor())
    assert batch.objectives == {"dlm", "mlm"}
    assert batch.segment_ids is not None
    assert set(batch.segment_ids.unique().tolist()) == {2, 3}
    (plain,), _ = texts.step(Cursor())
    assert plain.objectives == {"mlm", "nsp"}
    assert plain.segment_ids is not None
    assert set(plain.segment_ids.unique().tolist()) == {0, 1}


def test_segments_are_cut_fairly() -> None:
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 100, (200, 3))
    lengths = rng.integers(0, 30, (200, 3))
    ends = truncate(starts, starts + lengths, 40)
    kept = ends - starts
    over = lengths.sum(1) > 40
    assert np.array_equal(kept[~over], lengths[~over])
    assert (kept.sum(1) <= 40).all()
    assert (kept.sum(1)[over] >= 38).all()
    short = lengths <= 13
    assert np.array_equal(kept[short], lengths[short]), "a short segment is not cut"


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.6, 0.8, 1.0])
def test_stages_add_tasks(second: Text, progress: float) -> None:
    """Each kind of sequences has a share of the steps by the root of its size, its own task and objectives."""
    recipe, store, _ = second
    heads = heads_of(second)
    source = staged_batches(recipe, store, list(heads.values()), 0).at(progress)  # type: ignore[arg-type]
    assert isinstance(source, ObjectiveMixture)
    expected = ["", *(["reordering", "distance"] if progress >= 0.5 else [])]
    expected += ["discourse", "relevance"] if progress >= 0.75 else []
    cursor, counts = Cursor(), Counter[int]()
    tasks = {"": 0, "reordering": 1, "distance": 2, "discourse": 3, "relevance": 4}
    for _ in range(100):
        chosen, number = source.source_at(cursor)
        assert number == cursor.row
        counts[chosen] += 1
        batches, cursor = source.step(cursor)
        name = expected[chosen]
        for batch in batches:
            assert batch.objectives == {"mlm", "capitals", "elsewhere", *([name] if name else [])}
            assert batch.side_ids[TASKS].unique().tolist() == [tasks[name]]
            assert (f"{name}.labels" in batch.labels) == bool(name)
    sizes = np.array([one.tokens for one in source.sources], dtype=float)
    shares = 100 * sizes**0.5 / (sizes**0.5).sum()
    assert all(abs(counts[one] - shares[one]) <= 1.5 for one in range(len(expected)))


def test_labels_of_tokens_and_their_loss_by_hand() -> None:
    """Words w1 W2 ##x, the second capitalised: two predictions."""
    recipe = resize(ernie2(), "tiny")
    vocabulary = Vocabulary([f"w{number}" for number in range(20)], np.ones(20, dtype=np.int64))
    network = build_network(recipe, vocabulary, 0).eval()
    head = make_heads(recipe, network)["capitals"]
    assert isinstance(head, TokenLabelHead)
    batch = Batch(torch.tensor([[2, 7, 8, 9, 3]]), torch.tensor([[1, 1, 1, 0, 1]]).bool())
    batch.columns = {"capitals": torch.tensor([[0, 0, 1, 1, 0]], dtype=torch.uint8)}
    head.corrupt(batch, np.random.default_rng(0))
    assert head.positions(batch).tolist() == [1, 2]
    with torch.no_grad():
        head.classifier.weight.zero_()
        head.classifier.bias.fill_(1.0)
        loss = head.loss(network, network(batch, head.positions(batch)), batch, None)
    assert loss.count == 2
    assert loss.total.item() == pytest.approx(np.log1p(np.e) + np.log1p(np.exp(-1)), abs=1e-6)


def test_objectives_without_examples_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    recipe, store, _ = opened(ernie2(), [["one two three .", "four five ."], ["six seven .", "eight nine ."]])
    kept = with_material(recipe, store)
    assert kept.names == ("mlm", "elsewhere", "reordering", "distance"), "the full stop is repeated"
    said = capsys.readouterr().err
    assert "the text has no, or hardly any, capital letters: capitals is not trained" in said
    assert "discourse marker" in said
    assert "headline" in said
    recipe, store, _ = opened(ernie(), [["one two three .", "four five ."]])
    kept = with_material(recipe, store)
    assert (kept.names, kept.embedding.segments) == (("mlm", "nsp"), 2)
    assert with_material(recipe, store, ["embedding.segments=4"]).embedding.segments == 4
    assert with_material(recipe, store, further=True).embedding.segments == 4
    rich, store, _ = opened(ernie2(), documents())
    assert with_material(rich, store) is rich


def test_a_single_dialogue_in_a_long_text_is_chance() -> None:
    short = [["A: w1 w2", "B: w2", "A: w3"]]
    recipe, store, _ = opened(ernie(), [*short, *documents(60)])
    assert "dlm" not in with_material(recipe, store).names
    recipe, store, _ = opened(ernie(), [*short, *documents(5)])
    assert "dlm" in with_material(recipe, store).names
    head, text = heads_of((recipe, store, _))["dlm"], stored_text(store)
    assert isinstance(head, LaidOutHead)
    for seed in range(9):  # wherever its triples begin
        assert len(head.lay_out(head.find(text), text, 40, np.random.default_rng(seed)).starts) == 1


def test_contradictions_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"embedding\.segments=2"):
        override(ernie(), ["embedding.segments=2"])
    with pytest.raises(RecipeError, match=r"embedding\.tasks=3 is too few"):
        override(ernie2(), ["embedding.tasks=3"])
    with pytest.raises(RecipeError, match=r"reordering\.segments=9"):
        override(ernie2(), ["reordering.segments=9"])
    with pytest.raises(RecipeError, match="makes sequences of its own"):
        replace(ernie2(), sequence=replace(ernie2().sequence, format="parallel"))
    assert ernie2().stages == (0.0, 1 / 3, 0.5, 2 / 3, 0.75)


def test_plain_batches_have_no_labels_of_layouts(second: Text) -> None:
    recipe, store, _ = second
    heads = make_heads(recipe, build_network(recipe, Vocabulary([str(n) for n in range(300)], np.ones(300, int)), 0))
    (batch,), _ = Batches(recipe, store, list(heads.values()), 0).step(Cursor())
    assert [len(heads[name].positions(batch)) for name in ("reordering", "distance", "discourse")] == [0, 0, 0]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["reordering", "distance", "discourse", "relevance"])
def test_states_depend_on_their_own_sequence_alone(second: Text, name: str) -> None:
    """By gradients: packed sequences of several segments, in both directions."""
    recipe, store, tokenizer = second
    recipe = replace(
        recipe,
        embedding=replace(recipe.embedding, width=16, dropout=0.0),
        encoder=replace(recipe.encoder, width=16, ffn_width=24, dropout=0.0, attention_dropout=0.0),
        learning=replace(recipe.learning, batch=128),
    )
    vocabulary = Vocabulary(tokenizer.vocabulary, np.ones(len(tokenizer), dtype=np.int64))
    network = build_network(recipe, vocabulary, 0).double().eval()
    mixture = staged_batches(recipe, store, list(make_heads(recipe, network).values()), 0).last
    assert isinstance(mixture, ObjectiveMixture)
    source = next(one for one in mixture.sources if isinstance(one, LaidOutBatches) and one.layout.name == name)
    several = (batch for step in range(30) for batch in source.step(Cursor(0, 2 * step))[0])
    batch = next(one for one in several if one.sequence_ids is not None and int(one.sequence_ids.max()) > 0)
    with embedded(network) as inputs:
        states = network(batch).last_hidden_state.view(*batch.shape, -1)
    assert_sees(network, states, inputs[0], batch.sequence_ids)
