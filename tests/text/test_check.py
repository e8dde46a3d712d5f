"""The figures of a check on corpora made by hand, and each problem it can find."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
import rjieba
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.errors import CorpusError
from firth.text import check
from firth.text.check import CheckReport, check_corpus
from firth.text.duplicates import HashSet64, NearDuplicateIndex
from firth.text.layout import Document


class Texts:
    """Documents in memory, in the role of a corpus."""

    def __init__(
        self,
        documents: Iterable[Document | Sequence[str]],
        words: Callable[[str], list[str]] = str.split,
        encodings: dict[str, str] | None = None,
    ) -> None:
        self.documents = [d if isinstance(d, Document) else Document(tuple(d), "f.txt") for d in documents]
        self.words = words
        self._encodings = encodings or {"f.txt": "utf-8"}

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def encodings(self) -> dict[str, str]:
        return self._encodings


def sentence(rng: random.Random, length: int = 12) -> str:
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 8))) for _ in range(length)]
    return " ".join(words) + " ."


def article(rng: random.Random, sentences: int = 10) -> list[str]:
    return [sentence(rng) for _ in range(sentences)]


@pytest.fixture(scope="module")
def articles() -> list[list[str]]:
    """A clean corpus: 100 documents of 10 sentences of 13 words, nothing repeated."""
    rng = random.Random(1957)
    return [article(rng) for _ in range(100)]


def problems(report: CheckReport) -> dict[str, int]:
    return {problem.what: problem.count for problem in report.problems}


def test_every_figure_of_a_small_corpus() -> None:
    corpus = Texts(
        [
            Document(("the cat sat .", "the dog sat ."), "a.txt"),
            Document(("我 爱 你",), "b.txt"),
            Document(("the  cat sat .", "the dog sat ."), "a.txt"),
            Document(("yes",), "b.txt"),
        ],
        encodings={"a.txt": "utf-8", "b.txt": "utf-8"},
    )
    report = check_corpus(corpus).to_json()
    letters = 4 * 9 + 3 + 3
    characters = 13 * 3 + 14 + 5 + 3
    assert report.pop("scripts") == {
        "han": 3 / characters,
        "latin": (4 * 9 + 3) / characters,
        "punctuation": 4 / characters,
        "space": (3 * 3 + 4 + 2) / characters,
    }
    assert report.pop("languages") == {"en": pytest.approx(39 / letters), "zh-hans": pytest.approx(3 / letters)}
    assert [problem["what"] for problem in report.pop("problems")] == [
        "tiny-corpus",
        "exact-duplicates",
        "repeated-sentences",
    ]
    assert report == {
        "documents": 4,
        "sentences": 6,
        "words": 4 * 4 + 3 + 1,
        "characters": characters,
        "bytes": characters + 2 * 3,  # three for each Chinese character
        "encodings": {"a.txt": "utf-8", "b.txt": "utf-8"},
        "lengths": {
            "words_per_sentence": {"mean": 20 / 6, "p5": 1, "p50": 4, "p95": 4, "max": 4},
            "sentences_per_document": {"mean": 1.5, "p5": 1, "p50": 1, "p95": 2, "max": 2},
        },
        "distinct_words": 9,
        "duplicates": 0.25,
        "near_duplicates": 0.0,
        "duplicate_sentences": 2 / 6,
        "dialogues": 0.0,
        "control_characters": 0,
        "replacement_characters": 0,
        "longest_line": {"source": "a.txt", "characters": 14},
        "overlap": None,
        "capped": [],
    }


def test_dialogues_are_counted() -> None:
    """Lines of speakers; not a list of fields, nor a document with a colon here and there."""
    texts = [["A: hi", "B: hello", "A: bye"], ["name: anna", "age: five", "city: rome"], ["note: one", "two", "three"]]
    assert check_corpus(Texts(texts)).dialogues == 1 / 3


def test_a_clean_corpus_has_no_problems(articles: list[list[str]]) -> None:
    report = check_corpus(Texts(articles))
    assert report.problems == ()
    assert (report.documents, report.sentences, report.words) == (100, 1000, 13_000)
    assert (report.duplicates, report.near_duplicates, report.duplicate_sentences) == (0, 0, 0)


def test_the_report_is_json_and_each_message_a_sentence(articles: list[list[str]]) -> None:
    report = check_corpus(Texts(articles[:2] + articles[:2]), against=Texts(articles[:1]))
    assert json.loads(json.dumps(report.to_json())) == report.to_json()
    assert len(report.problems) >= 4
    for problem in report.problems:
        assert problem.message.endswith(".")
        assert problem.message.count(": ") == 1  # what was found: what to do


def test_no_text_is_an_error() -> None:
    with pytest.raises(CorpusError, match="no text"):
        check_corpus(Texts([]))
    with pytest.raises(CorpusError, match="no text"):
        check_corpus(Texts([[], []]))
    with pytest.raises(CorpusError, match="no text"):
        check_corpus(Texts([["a"]]), against=Texts([]))


# Repetition.


def test_exact_and_near_duplicates_are_distinguished(articles: list[list[str]]) -> None:
    spaced = [text.replace(" ", "  ") for text in articles[0]]
    edited = [articles[1][0] + " edited", *articles[1][1:]]
    report = check_corpus(Texts([*articles, articles[0], spaced, edited, edited[:5]]))
    assert report.documents == 104
    assert report.duplicates == 2 / 104
    assert report.near_duplicates == 1 / 104  # half of an article is not nearly the article
    assert report.duplicate_sentences == (10 + 10 + 9 + 5) / 1035
    assert problems(report) == {"exact-duplicates": 2}


def test_near_duplicates_are_a_problem(articles: list[list[str]]) -> None:
    edited = [["A new title .", *text] for text in articles[:5]]
    report = check_corpus(Texts(articles + edited))
    assert report.near_duplicates == 5 / 105
    assert problems(report) == {"near-duplicates": 5}


def test_a_single_document_counts_repeated_sentences(articles: list[list[str]]) -> None:
    sentences = [text for text in articles for text in text]
    report = check_corpus(Texts([[*sentences, *sentences[:250]]]))
    assert report.duplicates == report.duplicate_sentences == 250 / 1250
    assert problems(report) == {"no-document-bounds": 1, "repeated-sentences": 250}


def test_boilerplate_is_a_problem(articles: list[list[str]]) -> None:
    report = check_corpus(Texts([[*text, "All rights reserved .", "Share this page .", "Next"] for text in articles]))
    assert report.duplicate_sentences == 3 * 99 / 1300
    assert problems(report) == {"repeated-sentences": 297}


def test_pieces_of_a_long_document_are_one_document(articles: list[list[str]]) -> None:
    whole = [Document(tuple(articles[0] + articles[1])), *(Document(tuple(text)) for text in articles)]
    pieces = [
        *whole[1:],
        Document(tuple(articles[0])),
        Document(tuple(articles[1]), continues=True),
        Document(tuple(articles[2])),
    ]
    report = check_corpus(Texts(whole + pieces))
    assert report.documents == 1 + 100 + 100 + 2
    assert report.duplicates == (100 + 1 + 1) / 203
    assert report.lengths["sentences_per_document"]["max"] == 20


def test_batches_do_not_change_the_figures(articles: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document(tuple(text), continues=i % 7 == 3) for i, text in enumerate(articles + articles[:9])]
    expected = check_corpus(Texts(documents), against=documents[95:])
    for size in (1, 1000):
        monkeypatch.setattr(check, "_BATCH", size)
        assert check_corpus(Texts(documents), against=documents[95:]) == expected


# Damage, structure, mixture.


@pytest.mark.parametrize(
    ("line", "what", "count"),
    [
        ("a\x00b c\x1b[0m d e", "control-characters", 2),
        ("this \ufffd\ufffd and \ufffd that", "replacement-characters", 3),
        ("la cafÃ© de lâ€™angle", "mojibake", 1),
        ("锟斤拷 and 烫烫烫烫", "mojibake", 1),
        ("fish &amp; chips <br> and peas", "markup", 1),
    ],
)
def test_damage_is_found(articles: list[list[str]], line: str, what: str, count: int) -> None:
    report = check_corpus(Texts([*articles[:90], [line]]))
    assert problems(report) == {what: count}
    assert report.control_characters == line.count("\x00") + line.count("\x1b")
    assert report.replacement_characters == line.count("\ufffd")


def test_paragraphs_read_as_sentences_are_found(articles: list[list[str]]) -> None:
    report = check_corpus(Texts([[" ".join(text)] for text in articles]))
    assert problems(report) == {"overlong-sentences": 100}
    assert "--layout prose" in report.problems[0].message
    assert report.longest_line["characters"] == max(len(" ".join(text)) for text in articles)


def test_a_few_long_sentences_are_no_problem(articles: list[list[str]]) -> None:
    assert problems(check_corpus(Texts([*articles, [" ".join(articles[0])[:-1]]]))) == {}


def test_one_word_a_line_is_found(articles: list[list[str]]) -> None:
    rng = random.Random(0)
    report = check_corpus(Texts([[word for text in texts for word in text.split()] for texts in articles]))
    assert problems(report)["one-word-sentences"] == 13_000
    half = [[*text[:5], *(sentence(rng, 1)[:-2] + str(i) for i in range(4))] for text in articles * 2]
    assert "one-word-sentences" not in problems(check_corpus(Texts(half)))


def test_a_tiny_corpus_is_found(articles: list[list[str]]) -> None:
    assert problems(check_corpus(Texts(articles[:76]))) == {"tiny-corpus": 9880}
    assert problems(check_corpus(Texts(articles[:77]))) == {}


def test_different_encodings_are_found(articles: list[list[str]]) -> None:
    report = check_corpus(Texts(articles, encodings={"a": "utf-8", "b": "gb18030", "c": "utf-8"}))
    assert problems(report) == {"mixed-encodings": 2}


def chinese(rng: random.Random, forms: str) -> list[str]:
    characters = "一是不了人我在有他上地到大子中那要下自之年" + forms
    return [" ".join(rng.choices(characters, k=20)) for _ in range(20)]


def test_simplified_and_traditional_together_are_found() -> None:
    rng = random.Random(3)
    simplified = [chinese(rng, "这个们来国时说") for _ in range(90)]
    traditional = [chinese(rng, "這個們來國時說") for _ in range(10)]
    assert problems(check_corpus(Texts(simplified))) == {}
    report = check_corpus(Texts(simplified + traditional))
    assert report.languages["zh-hans"] == pytest.approx(0.9, abs=0.02)
    assert report.languages["zh-hant"] == pytest.approx(0.1, abs=0.02)
    assert list(problems(report)) == ["mixed-chinese"]
    japanese = [chinese(rng, "国会時說のはをにがでとものはをにがで") for _ in range(50)]
    assert problems(check_corpus(Texts(japanese))) == {}


def test_different_scripts_together_are_found(articles: list[list[str]]) -> None:
    rng = random.Random(4)
    russian = [[sentence(rng).translate({ord("a") + i: ord("а") + i for i in range(26)})] for _ in range(400)]
    assert list(problems(check_corpus(Texts(articles + russian)))) == ["mixed-scripts"]
    assert problems(check_corpus(Texts(articles + russian[:100]))) == {}


# Leakage.


def test_leakage_is_known_exactly(articles: list[list[str]]) -> None:
    rng = random.Random(5)
    test = [
        articles[7],  # a document of the corpus: 10 sentences, 60 n-grams
        ["A title .", *articles[8]],  # nearly one: 10 of 11 sentences, all 60 n-grams (the title has none)
        [*articles[9][:2], *article(rng, 8)],  # 2 of 10 sentences, 12 of 60 n-grams
        article(rng),  # new
        ["short one ."],  # no n-grams
    ]
    report = check_corpus(Texts(articles), against=Texts(test))
    assert report.overlap == {"sentences": 22 / 42, "documents": 2 / 5, "ngrams": 132 / 240}
    assert problems(report) == {"leaked-sentences": 22, "leaked-documents": 2, "leaked-ngrams": 132}
    # A text contains itself; two that share nothing do not leak.
    own = check_corpus(Texts(articles), against=Texts(articles))
    assert own.overlap == {"sentences": 1, "documents": 1, "ngrams": 1}
    clean = check_corpus(Texts(articles), against=[Document(tuple(article(rng)))])
    assert clean.overlap == {"sentences": 0, "documents": 0, "ngrams": 0}
    assert clean.problems == ()


def test_leakage_of_chinese(articles: list[list[str]]) -> None:
    rng = random.Random(6)
    lines = ["".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(20)) for _ in range(4)]
    corpus = Texts([*articles, lines[:2]])
    report = check_corpus(corpus, against=[Document((lines[0][1:], lines[3]))])
    # 19 characters have 4 runs of 16, all in the corpus; 20 new ones have 5.
    assert report.overlap == {"sentences": 0, "documents": 0, "ngrams": 4 / 9}


def test_the_copies_of_a_leaked_document_all_count(articles: list[list[str]]) -> None:
    report = check_corpus(Texts(articles), against=Texts([articles[3]] * 3 + [["Title .", *articles[3]]]))
    assert report.overlap is not None
    assert report.overlap["documents"] == 1


# Bounds and properties.


def test_figures_beyond_the_caps_are_named(articles: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_MAX_DISTINCT_WORDS", 50)
    monkeypatch.setattr(check, "HashSet64", lambda limit=80: HashSet64(limit))
    monkeypatch.setattr(check, "NearDuplicateIndex", lambda: NearDuplicateIndex(capacity=60))
    report = check_corpus(Texts(articles + articles), against=Texts(articles[70:71]))
    assert report.distinct_words == 50
    assert report.overlap == {"sentences": 1, "documents": 1, "ngrams": 1}  # exact repeats are found regardless
    assert report.duplicates == 80 / 200  # the last 20 articles were never stored
    assert report.capped == ("distinct_words", "duplicates", "near_duplicates", "duplicate_sentences", "overlap")


SENTENCES = st.text(alphabet="ab 国é<\x00\ufffd.", min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(SENTENCES, min_size=1, max_size=5), min_size=1, max_size=8))
def test_the_figures_agree_with_plain_counting(documents: list[list[str]]) -> None:
    report = check_corpus(Texts(documents))
    sentences = [text for document in documents for text in document]
    folded = [[" ".join(text.split()) for text in document] for document in documents]
    words = [word for text in sentences for word in text.split()]
    assert report.documents == len(documents)
    assert report.sentences == len(sentences)
    assert report.words == len(words)
    assert report.distinct_words == len(set(words))
    assert report.characters == sum(map(len, sentences))
    assert report.longest_line["characters"] == max(map(len, sentences))
    assert report.control_characters == "".join(sentences).count("\0")
    assert report.replacement_characters == "".join(sentences).count("\ufffd")
    repeated = len(sentences) - len({text for document in folded for text in document})
    assert report.duplicate_sentences == repeated / len(sentences)
    if len(documents) > 1:
        assert report.duplicates == pytest.approx(1 - len(set(map(tuple, folded))) / len(documents))
    assert sum(report.scripts.values()) == pytest.approx(1)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=50))
def test_the_summary_of_lengths_agrees_with_sorting(lengths: list[int]) -> None:
    summary = check.summarise_lengths({length: lengths.count(length) for length in lengths})
    ordered = sorted(lengths)
    for percent in (5, 50, 95):
        assert summary[f"p{percent}"] == ordered[-(-len(ordered) * percent // 100) - 1]
    assert summary["mean"] == pytest.approx(sum(lengths) / len(lengths))
    assert summary["max"] == max(lengths)


# Real text.


def real_articles(path: Path, count: int) -> list[Document]:
    """The first articles of a file; sentences end with a full stop before a space, or with a Chinese one."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        text = file.read(16_000_000)
    documents = []
    for number, body in enumerate(text.split("\n\n")[:count]):
        lines = body.replace("。", "。\n").replace(". ", ".\n").splitlines()
        documents.append(Document(tuple(line for line in lines if line.strip()), f"{number}"))
    return documents


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "language", "script", "per_sentence"),
    [("wiki_en", "en", "latin", (10, 25)), ("wiki_zh", "zh-hans", "han", (10, 25))],
)
def test_real_articles_are_nearly_clean(
    shared_data: Path, name: str, language: str, script: str, per_sentence: tuple[int, int]
) -> None:
    documents = real_articles(shared_data / "lm" / f"{name}.txt.gz", 2100)
    words: Callable[[str], list[str]] = str.split if name == "wiki_en" else rjieba.cut
    held_out = [*documents[2000:], *documents[:5]]
    report = check_corpus(Texts(documents[:2000], words), against=held_out)
    assert report.documents == 2000
    assert report.languages[language] > 0.9
    assert next(iter(sorted(report.scripts, key=report.scripts.__getitem__, reverse=True))) == script
    assert per_sentence[0] < report.lengths["words_per_sentence"]["mean"] < per_sentence[1]
    assert report.duplicates == 0
    assert report.near_duplicates < 0.005
    assert 0.01 < report.duplicate_sentences < 0.12  # headings
    assert (report.control_characters, report.replacement_characters) == (0, 0)
    assert report.overlap is not None
    assert report.overlap["documents"] == 5 / 105
    assert report.overlap["ngrams"] < 0.2
    assert {what.split("-")[0] for what in problems(report)} == {"leaked"}


@pytest.mark.shared
def test_real_paragraphs_taken_for_sentences_are_found(shared_data: Path) -> None:
    articles = real_articles(shared_data / "lm" / "wiki_en.txt.gz", 500)
    assert "overlong-sentences" in problems(check_corpus(Texts([" ".join(a.sentences)] for a in articles)))
