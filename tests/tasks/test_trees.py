"""Sentence trees: the example of the paper worked out by hand, gradients, packing, room, and words in tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from firth.nets.network import Network, Vocabulary
from firth.tasks.classify import ClassifyTask, PairTask
from firth.tasks.examples import TagExample, TextExample
from firth.tasks.knowledge import KnowledgeGraph
from firth.tasks.recipe import HeadRecipe, KnowledgeRecipe, TaskRecipe
from firth.tasks.sequences import POSITIONS, InputSequence, SequenceBuilder, pack
from firth.tasks.tag import WORDS, TagTask, align
from firth.tasks.trees import HeadWord, grow
from firth.text.corpus import read_corpus
from firth.text.triples import Triple
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from tests.fit.small_nets import masked
from tests.samples import CHINESE, ENGLISH, KINDS, small_recipe

SENTENCE = "Tim Cook is currently visiting Beijing now"
FACTS = (
    Triple("Tim Cook", "CEO", "Apple"),
    Triple("Beijing", "capital", "China"),
    Triple("Beijing", "is_a", "City"),
)
GRAPH = KnowledgeGraph(FACTS)
WITH_FACTS = "Tim Cook CEO Apple is currently visiting Beijing capital China is_a City now"
WITH_OBJECTS = "Tim Cook Apple is currently visiting Beijing China City now"
TREE = WITH_FACTS.split()
SOFT = [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 7, 8, 7, 8]
# 0 [CLS] (<s>), 1-2 Tim Cook, 3-4 CEO Apple, 5-7 is currently visiting, 8 Beijing, 9-10 capital China, 11-12 is_a City,
# 13 now, 14 [SEP] (</s>)
TRUNK = {0, 1, 2, 5, 6, 7, 8, 13, 14}
SEEN = {
    **dict.fromkeys((0, 5, 6, 7, 13, 14), TRUNK),
    **{token: TRUNK | {3, 4} for token in (1, 2)},
    **{token: {1, 2, 3, 4} for token in (3, 4)},
    8: TRUNK | {9, 10, 11, 12},
    **{token: {8, 9, 10} for token in (9, 10)},
    **{token: {8, 11, 12} for token in (11, 12)},
}


def tokenizer_of(*lines: str, recipe: TokenizerRecipe | None = None) -> Tokenizer:
    recipe = recipe or TokenizerRecipe(model="words", min_count=1, lowercase=False)
    return open_tokens(recipe, read_corpus([list(lines)], layout="lines"))[0]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizer_of(SENTENCE, WITH_FACTS)


def builder(
    tokenizer: Tokenizer, length: int = 32, graph: KnowledgeGraph = GRAPH, **knowledge: bool
) -> SequenceBuilder:
    recipe = masked().with_tokenizer(tokenizer.recipe)
    recipe = replace(recipe, sequence=replace(recipe.sequence, length=length))
    return SequenceBuilder(recipe, tokenizer, KnowledgeRecipe(**knowledge), graph)


def one_sequence(made: SequenceBuilder, text: str = SENTENCE) -> InputSequence:
    recipe = TaskRecipe(network=made.recipe, labels=("a", "b"))
    return ClassifyTask(recipe, vocabulary(made.tokenizer)).sequences([TextExample(text)], made)[0][0]


def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer.vocabulary, np.ones(len(tokenizer), dtype=np.int64))


def words(tokenizer: Tokenizer, sequence: InputSequence) -> list[str]:
    return [tokenizer.vocabulary[index] for index in sequence.ids.tolist()]


def matrix() -> torch.Tensor:
    return torch.tensor([[key in SEEN[query] for key in range(15)] for query in range(15)])


def test_the_example_of_the_paper(tokenizer: Tokenizer) -> None:
    sequence = one_sequence(builder(tokenizer))
    assert words(tokenizer, sequence) == ["<s>", *TREE, "</s>"]
    assert sequence.position_ids is not None
    assert sequence.position_ids.tolist() == SOFT
    assert sequence.tree is not None
    assert torch.equal(torch.from_numpy(sequence.tree.visible()), matrix())


def test_objects_alone_are_shorter_branches(tokenizer: Tokenizer) -> None:
    sequence = one_sequence(builder(tokenizer, predicate=False))
    assert words(tokenizer, sequence)[1:-1] == WITH_OBJECTS.split()
    assert sequence.position_ids is not None
    assert sequence.position_ids.tolist() == [0, 1, 2, 3, 3, 4, 5, 6, 7, 7, 7, 8]


def network_of(tokenizer: Tokenizer, layers: int, norm: bool = False) -> Network:
    recipe = masked()
    embedding = replace(recipe.embedding, norm=norm)
    output = replace(recipe.output, kind="none")
    encoder = replace(recipe.encoder, layers=layers)
    recipe = replace(recipe, embedding=embedding, encoder=encoder, output=output, objectives=())
    torch.manual_seed(0)
    return Network(recipe, vocabulary(tokenizer)).double().eval()


@pytest.mark.parametrize("packed", [False, True])
def test_gradients_are_zero_exactly_where_the_matrix_says_so(tokenizer: Tokenizer, packed: bool) -> None:
    """In one layer a state depends on the tokens it attends to, and on no others."""
    network = network_of(tokenizer, 1)
    sequence = one_sequence(builder(tokenizer))
    other = one_sequence(builder(tokenizer), "is Beijing visiting")
    batch = pack([sequence, other] if packed else [sequence], FIRST_WORD)
    if packed:  # the shorter one is beside nothing, or in another row: only its own tokens count
        assert batch.visible is not None
        assert batch.visible.shape == (*batch.shape, batch.shape[1])
    kept: list[torch.Tensor] = []
    network.embedding.register_forward_hook(lambda module, given, output: kept.append(output.retain_grad() or output))
    states = network(batch).last_hidden_state.view(*batch.shape, -1)
    for query in range(15):
        (gradient,) = torch.autograd.grad(states[0, query].square().sum(), kept[-1], retain_graph=True)
        depends = gradient.abs().sum(-1) > 0
        assert torch.equal(depends[0, :15], matrix()[query] | (torch.arange(15) == query))
        assert not depends[0, 15:].any()
        assert not depends[1:].any()


def test_packing_changes_nothing(tokenizer: Tokenizer) -> None:
    network = network_of(tokenizer, 3)
    texts = [SENTENCE, "Tim Cook now", "is now", "Beijing Beijing"]
    sequences = [one_sequence(builder(tokenizer), text) for text in texts]
    batch = pack(sequences, FIRST_WORD)
    assert batch.shape[0] < len(texts)
    together = network(batch).last_hidden_state.view(*batch.shape, -1)
    for sequence in sequences:
        alone = network(pack([sequence], FIRST_WORD)).last_hidden_state.view(sequence.ids.size, -1)
        assert any(
            torch.allclose(together[row, begin : begin + sequence.ids.size], alone, atol=1e-12)
            for row in range(batch.shape[0])
            for begin in range(batch.shape[1] - sequence.ids.size + 1)
        )


def test_text_without_names_is_a_plain_sequence(tokenizer: Tokenizer) -> None:
    sequence = one_sequence(builder(tokenizer), "is now visiting")
    assert sequence.tree is None
    assert sequence.position_ids is None
    assert pack([sequence], FIRST_WORD).visible is None


@pytest.mark.parametrize(
    ("length", "kept", "dropped"),
    [(15, TREE, 0), (14, TREE[:10] + TREE[12:], 1), (12, TREE[:8] + TREE[12:], 2), (9, SENTENCE.split(), 3)],
)
def test_branches_are_dropped_before_text(tokenizer: Tokenizer, length: int, kept: list[str], dropped: int) -> None:
    sequence = one_sequence(builder(tokenizer, length))
    assert words(tokenizer, sequence)[1:-1] == kept
    assert (sequence.dropped, sequence.truncated) == (dropped, False)


def test_names_in_text_that_was_cut_off_have_no_branches(tokenizer: Tokenizer) -> None:
    sequence = one_sequence(builder(tokenizer, 6))
    assert words(tokenizer, sequence)[1:-1] == SENTENCE.split()[:4]
    assert sequence.truncated


def test_pairs_have_the_segment_of_the_head_word(tokenizer: Tokenizer) -> None:
    made = builder(tokenizer)
    task = PairTask(TaskRecipe(task="pair", network=made.recipe, labels=("a", "b")), vocabulary(tokenizer))
    (sequence,) = task.sequences([TextExample("Tim Cook is", "Beijing now", ("a",))], made)[0]
    assert " ".join(words(tokenizer, sequence)) == (
        "<s> Tim Cook CEO Apple is </s> Beijing capital China is_a City now </s>"
    )
    assert sequence.segment_ids is not None
    assert sequence.segment_ids.tolist() == [0] * 7 + [1] * 7
    assert sequence.position_ids is not None
    assert sequence.position_ids.tolist() == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 6, 7, 6, 7]


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_facts_are_not_pooled(tokenizer: Tokenizer, pooling: str) -> None:
    made = builder(tokenizer)
    head = HeadRecipe(pooling=pooling)  # type: ignore[arg-type]
    task = ClassifyTask(TaskRecipe(network=made.recipe, labels=("a", "b"), head=head), vocabulary(tokenizer))
    (sequence,) = task.sequences([TextExample(SENTENCE)], made)[0]
    assert [words(tokenizer, sequence)[index] for index in sequence.labels[POSITIONS]] == SENTENCE.split()


@pytest.mark.parametrize("length", [32, 9])
def test_only_words_of_the_text_are_tagged(tokenizer: Tokenizer, length: int) -> None:
    made = builder(tokenizer, length, predicate=False)
    task = TagTask(TaskRecipe(task="tag", network=made.recipe, labels=("O", "X")), vocabulary(tokenizer))
    text = SENTENCE.split() * 2
    windows = task.sequences([TagExample(tuple(text), ("O",) * len(text))], made)[0]
    assert len(windows) == (1 if length == 32 else 4)
    tagged = [words(tokenizer, one)[index] for one in windows for index in one.labels[POSITIONS]]
    assert tagged == text
    assert np.concatenate([one.labels[WORDS] for one in windows]).tolist() == list(range(len(text)))
    assert any(one.tree is not None for one in windows)
    assert all(one.ids.size <= length for one in windows)


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_found_in_tokens_of_any_kind(kind: str) -> None:
    """The tokens of a head word are those with a character of it; the text has the tokens that it has without facts."""
    made_of = tokenizer_of(*ENGLISH, *CHINESE, recipe=small_recipe(kind))
    graph = KnowledgeGraph(
        (Triple("brown fox", "is", "dog"), Triple("自然语言", "类别", "语言"), Triple("iPhone", "a", "b"))
    )
    made = builder(made_of, 128, graph)
    for text in (ENGLISH[0], CHINESE[0], CHINESE[2], "no name\nhere"):
        (heads,) = made.heads([text])
        (plain,) = made.encode([text])
        (with_offsets,) = made.encode_with_offsets([text])
        assert plain.tolist() == with_offsets[0].tolist()
        spans = list(graph.find(text))
        assert len(heads) == len(spans)
        for head, (begin, end) in zip(heads, spans, strict=True):
            inside = with_offsets[1][head.begin : head.end]
            assert inside[0, 0] <= begin < inside[0, 1]
            assert inside[-1, 0] < end <= inside[-1, 1]
        if kind in ("chars", "wordpiece") and heads:
            decoded = made_of.decode(plain[heads[0].begin : heads[0].end].tolist()).replace(" ", "")
            assert decoded == text[slice(*spans[0])].replace(" ", "")


def test_characters_of_a_sentence_tokenized_as_a_whole() -> None:
    made_of = tokenizer_of("患有 慢性胃炎 的 病人", "疾病")
    graph = KnowledgeGraph((Triple("胃炎", "类别", "疾病"),))
    made = builder(made_of, graph=graph)
    example = TagExample(tuple("患有慢性胃炎"), spaced=False)
    for whole in (True, False):
        aligned = align(example, made, whole=whole)
        assert aligned.offsets.shape == (aligned.ids.size, 2)
        (head,) = made.heads_at("患有慢性胃炎", aligned.offsets)
        assert aligned.offsets[head.begin, 0] <= 4
        assert aligned.offsets[head.end - 1, 1] == 6


@given(st.data())
def test_trees_keep_their_text(data: st.DataObject) -> None:
    """The text of a tree has its ids, order and positions; every branch begins after its head word."""
    size = data.draw(st.integers(1, 12))
    cuts = sorted(data.draw(st.sets(st.integers(0, size), max_size=6)))
    branch = st.lists(st.integers(5, 9), min_size=1, max_size=3).map(np.array)
    heads = [
        HeadWord(begin, end, tuple(data.draw(st.lists(branch, min_size=1, max_size=3))))
        for begin, end in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    ids = np.arange(size) + 100
    grown = grow(ids, heads)
    assert grown.ids[grown.trunk].tolist() == ids.tolist()
    assert grown.position_ids[grown.trunk].tolist() == list(range(size))
    assert (grown.tree.branches[grown.trunk] == -1).all()
    visible = grown.tree.visible()
    assert np.array_equal(visible, visible.T)
    assert visible[np.ix_(grown.trunk, grown.trunk)].all()
    assert visible.diagonal().all()
    inserted = [branch for head in heads for branch in head.branches]
    assert grown.tree.branches.max(initial=-1) + 1 == len(inserted)
    for number, branch_ids in enumerate(inserted):
        own = np.flatnonzero(grown.tree.branches == number)
        head = next(one for one in heads if any(branch_ids is each for each in one.branches))
        assert grown.ids[own].tolist() == branch_ids.tolist()
        assert grown.position_ids[own].tolist() == list(range(head.end, head.end + own.size))
        expected = {*own.tolist(), *grown.trunk[head.begin : head.end].tolist()}
        assert set(np.flatnonzero(visible[own[0]]).tolist()) == expected
