"""Names of entities in tokens: longest match in both languages, priors, and a plain twin of the kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from firth.errors import CorpusError
from firth.text.corpus import read_corpus
from firth.tokens import gazetteer as module
from firth.tokens.annotations import AnnotatedText, EntitySpan, read_annotations
from firth.tokens.build import open_tokens
from firth.tokens.gazetteer import Gazetteer, NameTable, WordBounds
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.units import LinkColumn

LINES = ["He left York, for New York.", "Yorkshire is not New York city", "北京大学在北京市，不在东京。"]
NAMES = {"York": 1, "New York": 2, "New York city": 3, "北京": 4, "北京大学": 5, "东京": 6, "nowhere": 7}


def gazetteer_of(names: dict[str, int]) -> Gazetteer:
    return Gazetteer(tuple(names), "names", np.array(list(names.values()), dtype=np.int32))


def linked(model: str, names: dict[str, int], **settings: object) -> list[list[tuple[str, int]]]:
    """The token and the entity of each link in each line."""
    recipe = TokenizerRecipe(model=model, vocab_size=400, min_count=1, **settings)  # type: ignore[arg-type]
    corpus = read_corpus([[line] for line in LINES] * 3, layout="lines")
    tokenizer, store = open_tokens(recipe, corpus, 1, [LinkColumn(gazetteer_of(names))])
    found = []
    for line in range(3):
        own = slice(int(store.sentences[line]), int(store.sentences[line + 1]))
        tokens = [tokenizer.vocabulary[one].strip("▁Ġ#") for one in store.ids[own]]
        pairs = zip(tokens, store.columns["links"][own].tolist(), strict=True)
        found.append([(token, number) for token, number in pairs if number])
    return found


@pytest.mark.parametrize("model", ["words", "wordpiece", "chars"])
def test_the_longest_name_is_linked_in_both_languages(model: str) -> None:
    found = linked(model, NAMES)
    assert [[number for _, number in line] for line in found[:2]] == [[1, 2], [3]]
    chinese = [number for _, number in found[2]]
    assert chinese == ([5, 4, 6] if model != "words" else chinese)
    assert model == "words" or [token for token, _ in found[2]] == ["北", "北", "东"]


@pytest.mark.parametrize("model", ["bpe", "byte-bpe", "pieces"])
def test_names_within_english_sentences_are_linked_where_spaces_are_parts_of_tokens(model: str) -> None:
    assert [[number for _, number in line] for line in linked(model, NAMES)[:2]] == [[1, 2], [3]]


def test_of_names_that_are_encoded_alike_the_first_one_counts() -> None:
    upper, lower = {"New York": 8, "new york": 9}, {"new york": 9, "New York": 8}
    assert linked("wordpiece", upper, lowercase=True)[0] == [("new", 8)]
    assert linked("wordpiece", lower, lowercase=True)[0] == [("new", 9)]


def naive_links(ids: list[int], starts: list[bool], names: dict[tuple[int, ...], int]) -> list[int]:
    """Longest match from left to right, by comparing slices."""
    found, position, bounds = [0] * len(ids), 0, [*starts, True]
    while position < len(ids):
        lengths = [
            size for size in range(1, len(ids) - position + 1)
            if tuple(ids[position : position + size]) in names and bounds[position] and bounds[position + size]
        ]  # fmt: skip
        if lengths:
            found[position] = names[tuple(ids[position : position + max(lengths)])]
        position += max(lengths, default=1)
    return found


def test_links_are_those_of_a_plain_search() -> None:
    rng = np.random.default_rng(1)
    names = {tuple(rng.integers(5, 9, rng.integers(1, 5)).tolist()): number for number in range(1, 30)}
    keys = {int(module.kernels.word_key(np.array(name), 0, len(name))): name for name in names}
    longest = np.zeros(9, dtype=np.int64)
    for name in names:
        longest[name[0]] = max(longest[name[0]], len(name))
    ordered = sorted(keys)
    table = NameTable(
        np.array(ordered, dtype=np.uint64), np.array([names[keys[one]] for one in ordered], dtype=np.int32), longest
    )
    for _ in range(50):
        ids, starts = rng.integers(5, 9, 20), rng.random(20) < 0.7
        links = np.zeros(20, dtype=np.int32)
        table.mark(ids, starts, np.array([0, 12, 20]), np.zeros(9, dtype=np.bool_), links=links)
        expected = [
            *naive_links(ids[:12].tolist(), starts[:12].tolist(), names),
            *naive_links(ids[12:].tolist(), starts[12:].tolist(), names),
        ]
        assert links.tolist() == expected


def small_tokenizer() -> Tokenizer:
    recipe = TokenizerRecipe(model="wordpiece", vocab_size=300, min_count=1)
    return open_tokens(recipe, read_corpus([LINES]), 1)[0]


def test_tables_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, names = small_tokenizer(), gazetteer_of(NAMES | {f"New York {n}": 10 + n for n in range(40)})
    whole = names.table(tokenizer)
    monkeypatch.setattr(module, "_CHUNK", 7)
    for one, two in zip(whole, names.table(tokenizer), strict=True):
        assert np.array_equal(one, two)


def test_names_with_unknown_tokens_are_not_found() -> None:
    tokenizer = small_tokenizer()
    assert gazetteer_of({"ж": 1, "New York": 2}).table(tokenizer).numbers.tolist() == [2]


def test_bounds_of_words_are_those_of_the_store_in_english() -> None:
    for model in ("words", "wordpiece", "byte-bpe", "pieces", "bpe"):
        recipe = TokenizerRecipe(model=model, vocab_size=400, min_count=1)  # type: ignore[arg-type]
        tokenizer, store = open_tokens(recipe, read_corpus([LINES[:2]], layout="lines"), 1)
        for line in range(2):
            own = slice(int(store.sentences[line]), int(store.sentences[line + 1]))
            starts = WordBounds(tokenizer.vocabulary).starts(store.ids[own])
            is_space = np.array([tokenizer.vocabulary[one] == "▁" for one in store.ids[own]])
            after_space = np.concatenate([[False], is_space[:-1]])  # a name may begin after a space, too
            assert (starts & ~after_space).tolist() == store.word_starts[own].tolist(), model


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_annotations_replace_the_links_of_their_documents(tmp_path: Path) -> None:
    text = "\n".join(LINES[:2])
    start = text.index("Yorkshire")
    given = AnnotatedText(text, (EntitySpan(0, 2, 8), EntitySpan(start, start + 9, 9)))
    column = LinkColumn(gazetteer_of(NAMES), (given,))
    corpus = read_corpus([LINES[:2], ["New York is New York"]], layout="lines")
    recipe = TokenizerRecipe(model="wordpiece", vocab_size=400, min_count=1)
    tokenizer, store = open_tokens(recipe, corpus, 1, [column])
    links = store.columns["links"]
    by_document = [links[int(store.sentences[a]) : int(store.sentences[b])] for a, b in ((0, 2), (2, 3))]
    assert by_document[0][by_document[0] > 0].tolist() == [8, 9]
    assert by_document[1][by_document[1] > 0].tolist() == [2, 2]
    first = int(np.flatnonzero(links == 9)[0])
    assert tokenizer.vocabulary[store.ids[first]].startswith("Y")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"text": "abc", "spans": [{"start": 1, "end": 9, "entity": "x"}]}', "from 1 to 9 in a text of 3"),
        ('{"text": "abc", "spans": [{"start": 2, "end": 2, "entity": "x"}]}', "from 2 to 2"),
        ('{"text": "abc", "spans": [{"start": "1", "end": 2, "entity": "x"}]}', "give start, end and entity"),
        ('{"text": "abc", "spans": [[0, 1]]}', "give start, end and entity"),
        ('{"text": "abc"}', "no object with a text"),
        ("not json", "line 1 of"),
        ('{"text": "abc", "spans": []}', "annotates no entity"),
        ('{"text": "abc", "spans": [{"start": 0, "end": 2, "entity": "unknown"}]}', "annotates no entity"),
    ],
)
def test_wrong_annotations_are_refused(line: str, what: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", line + "\n")
    with pytest.raises(CorpusError, match=what):
        read_annotations(path, {"x": 1}.get)


def test_annotations_of_another_text_are_refused() -> None:
    given = AnnotatedText("another text", (EntitySpan(0, 7, 1),))
    with pytest.raises(CorpusError, match="no annotated document occurs"):
        open_tokens(TokenizerRecipe(model="words", min_count=1), read_corpus([LINES]), 1, [LinkColumn(None, (given,))])
