"""The report's page."""

from __future__ import annotations

import copy
import json
import math
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from firth.report.page import render_page

_VOID = {"meta", "br"}


def run(name: str, bits: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "recipe": "unigram",
        "family": "counts",
        "tokenizer": "words",
        "bits_per_byte": bits,
        "perplexity": 900.0 * bits,
        "word_perplexity": 900.0 * bits,
        "oov": 12,
        "tokens": 1000,
        "bytes": 5000,
        "vocabulary": 4000,
        "budget": {"asked": None, "spent": {"seconds": 1.5, "tokens": 20_000}},
        "size": 123_456,
        "digest": "0123456789abcdef" * 4,
        "settings": {"delta": 0.5},
        "samples": ["of the array", "语言模型"],
        **more,
    }


REPORT: dict[str, Any] = {
    "title": "Firth demo",
    "subtitle": "From raw text to models",
    "command": "firth demo -o demo-report",
    "seconds": 123.4,
    "versions": {"firth": "0.1.0"},
    "machine": {"cores": 2, "system": "Linux"},
    "corpus": {
        "name": "builtin:pydoc",
        "documents": 28_000,
        "sentences": 140_000,
        "words": 1_400_000,
        "characters": 8_000_000,
        "bytes": 8_100_000,
        "encodings": {"a.txt": "utf-8", "b.txt": "utf-8", "c.txt": "gb18030"},
        "scripts": {"latin": 0.8, "space": 0.2},
        "languages": {"en": 1.0},
        "lengths": {"words_per_sentence": {"mean": 11.25, "p5": 2, "p50": 9, "p95": 28, "max": 400}},
        "duplicates": 0.04,
        "near_duplicates": 0.0,
        "problems": [{"what": "exact-duplicates", "message": "4 % repeat: keep one copy.", "count": 9}],
        "split": {"train": 25_000, "valid": 1500, "test": 1500},
    },
    "runs": [run("slow", 2.5), run("quick", 2.25), run("gpt", 2.0, family="nets", tokenizer="bpe", oov=0)],
    "oracle": {
        "corpus": "builtin:oracle",
        "entropy_per_byte": 1.25,
        "note": "One sentence at a time.",
        "runs": [{"name": "slow", "bits_per_byte": 1.75}, {"name": "quick", "bits_per_byte": 1.5}],
    },
    "tokenizers": [
        {
            "name": "wordpiece",
            "vocabulary": 4000,
            "bytes_per_token": 3.75,
            "tokens_per_word": 1.25,
            "unknown_share": 0.01,
            "examples": [{"text": "unlikely", "tokens": ["un", "##likely"], "word_starts": [True, False]}],
        }
    ],
}
NEEDS = {
    "bits": "runs",
    "runs": "runs",
    "oracle": "oracle",
    "samples": "runs",
    "tokenizers": "tokenizers",
    "corpus": "corpus",
}


class Page(HTMLParser):
    """A parsed page: sections, text, attributes, and tags that were not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "section":
            self.sections.append(dict(attrs)["id"] or "")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def section(html: str, name: str) -> str:
    return re.search(rf'<section id="{name}">.*?</section>', html, re.DOTALL)[0]  # type: ignore[index]


@pytest.fixture(scope="module")
def html() -> str:
    return render_page(REPORT)


def test_sections_are_ordered_and_linked(html: str) -> None:
    page = Page(html)
    assert page.sections == [*NEEDS, "provenance"]
    assert [value for tag, name, value in page.attributes if name == "href"] == [f"#{name}" for name in page.sections]
    assert page.open == []


@pytest.mark.parametrize("key", ["corpus", "runs", "oracle", "tokenizers"])
def test_a_section_is_there_only_with_its_key(key: str) -> None:
    without = Page(render_page({name: value for name, value in REPORT.items() if name != key}))
    assert without.sections == [*(name for name, need in NEEDS.items() if need != key), "provenance"]
    alone = Page(render_page({"title": "x", key: REPORT[key]}))
    expected = [name for name, need in NEEDS.items() if need == key] + ["provenance"] * (key == "runs")
    assert alone.sections == expected


def test_a_bare_title_makes_a_page() -> None:
    page = Page(render_page({"title": "Nothing yet"}))
    assert page.sections == []
    assert "Nothing yet" in page.text
    assert Page(render_page({"title": "x", "runs": [], "tokenizers": [], "corpus": {}, "oracle": {}})).sections == []
    assert Page(render_page({"title": "x", "machine": {"cores": 2}})).sections == ["provenance"]


@pytest.mark.parametrize("key", ["subtitle", "command"])
def test_the_header_shows_what_there_is(key: str, html: str) -> None:
    assert REPORT[key] in html
    assert f'class="{key}"' not in render_page({"title": "x"})


def test_runs_with_nothing_but_a_name_and_a_score() -> None:
    page = render_page({"title": "x", "runs": [{"name": "only", "bits_per_byte": 2.0}]})
    assert Page(page).sections == ["bits", "runs"]
    assert "25.0\u00a0% of its size" in page


def test_runs_without_a_score_are_not_in_the_chart() -> None:
    page = render_page({"title": "x", "runs": [{"name": "vectors", "vocabulary": 7}]})
    assert Page(page).sections == ["runs"]
    assert "<td>7</td>" in page


def test_nothing_is_loaded_from_anywhere(html: str) -> None:
    page = Page(html)
    assert not {tag for tag, _, _ in page.attributes} & {"script", "link", "img", "iframe", "object", "image", "use"}
    for _, name, value in page.attributes:
        assert name not in ("src", "srcset", "action", "data", "xlink:href", "background")
        assert not name.startswith("on")
        assert name != "href" or value.startswith("#")
    assert set(re.findall(r"https?://[^\"' ]*", html)) <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "url(" not in html
    assert "@import" not in html


def poison(value: Any) -> Any:
    """The same report with markup in every text and key that comes from data."""
    evil = "<script>alert('x')</script>\""
    if isinstance(value, str):
        return value + evil
    if isinstance(value, list):
        return [poison(item) for item in value]
    if isinstance(value, dict):
        return {key: poison(item) for key, item in value.items()}
    return value


def test_all_text_is_escaped() -> None:
    report = poison(REPORT)
    corpus = report["corpus"]
    for name in ("scripts", "languages", "lengths", "split", "encodings"):
        corpus[name] = {f"{key}<script>\"'": value for key, value in corpus[name].items()}
    report["versions"] = report["runs"][0]["settings"] = {"<script>\"'": "<script>\"'"}
    html = render_page(report)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") > 40
    assert Page(html).open == []
    assert not [name for _, name, _ in Page(html).attributes if name.startswith(("alert", "on"))]


def test_text_that_utf8_cannot_hold_is_replaced() -> None:
    report = {"title": "a\ud800", "runs": [run("b\udfff\x00", 2.0, samples=["c\ud800\x1b"])]}
    render_page(report).encode("utf-8")


def test_the_same_report_gives_the_same_bytes_and_is_not_changed(html: str) -> None:
    report = copy.deepcopy(REPORT)
    assert render_page(report) == html
    assert report == REPORT
    assert render_page(json.loads(json.dumps(REPORT))) == html


def test_bars_and_rows_are_sorted_best_first(html: str) -> None:
    charts = re.findall("<svg.*?</svg>", section(html, "bits"), re.DOTALL)
    assert len(charts) == 2
    for chart in charts:
        drawn = [element.text for element in ElementTree.fromstring(chart).iter("{http://www.w3.org/2000/svg}text")]
        assert [text for text in drawn if text in ("gpt", "quick", "slow")] == ["gpt", "quick", "slow"]
    assert re.findall(r'<th scope="row">(\w+)', section(html, "runs")) == ["gpt", "quick", "slow"]


def test_the_best_is_bold_only_where_runs_compare() -> None:
    mixed = section(render_page(REPORT), "runs")
    assert re.findall(r"<td><b>([^<]*)</b>", mixed) == ["2.000", "0"]  # perplexities do not compare here
    alike = section(render_page({"title": "x", "runs": [run("a", 2.0), run("b", 3.0)]}), "runs")
    assert re.findall(r"<td><b>([^<]*)</b>", alike) == ["2.000", "1,800.0", "1,800.0"]
    alone = section(render_page({"title": "x", "runs": [run("a", 2.0)]}), "runs")
    assert "<td><b>" not in alone


def test_families_have_a_legend(html: str) -> None:
    assert re.findall(r'dot c(\d)"></i>(\w+)</li>', section(html, "bits")) == [("0", "counts"), ("2", "nets")]


def test_the_gap_to_the_entropy_is_shown() -> None:
    text = Page(render_page({"title": "x", "oracle": REPORT["oracle"]})).text
    assert "1.250 bits per byte" in text
    assert "The closest is quick , 0.250 bits above it." in text
    assert "entropy 1.250" in text
    lucky = {**REPORT["oracle"], "runs": [{"name": "lucky", "bits_per_byte": 1.0}]}
    assert "The closest is lucky , 0.250 bits below it." in Page(render_page({"title": "x", "oracle": lucky})).text


def test_numbers_that_are_not_finite_are_shown_as_signs() -> None:
    bad = run("endless", math.inf, perplexity=math.nan, word_perplexity=math.inf, size=math.nan)
    worse = run("unknown", math.nan, budget={"asked": "20s", "spent": {"seconds": math.nan}})
    corpus = {**REPORT["corpus"], "duplicates": math.nan, "scripts": {"latin": math.nan}}
    oracle = {"entropy_per_byte": math.nan, "runs": [{"name": "x", "bits_per_byte": math.nan}]}
    page = Page(render_page({**REPORT, "runs": [bad, worse], "corpus": corpus, "oracle": oracle, "seconds": math.nan}))
    assert not re.search(r"\b([Nn]a[Nn]|[Ii]nf(inity)?|None)\b", page.text)
    assert "∞" in page.text


def test_samples_are_quoted_with_their_language_and_many_are_folded(html: str) -> None:
    samples = section(html, "samples")
    assert samples.count("<blockquote>of the array</blockquote>") == 3
    assert samples.count('<blockquote lang="zh">语言模型</blockquote>') == 3
    assert "<details>" not in samples
    many = section(render_page({"title": "x", "runs": [run(f"r{i}", 1 + i / 9) for i in range(40)]}), "samples")
    shown, folded = many.split("<details>")
    assert (shown.count("<h3>"), folded.count("<h3>")) == (8, 32)
    assert "32 more" in folded


def test_provenance_of_runs(html: str) -> None:
    origins = section(html, "provenance")
    assert f'<code title="{"0123456789abcdef" * 4}">0123456789ab</code>' in origins
    for shown in ("delta=0.5", "no limit", "1.5 s", "20,000", "<b>0.1.0</b>", "<b>Linux</b>"):
        assert shown in origins


def test_the_corpus_is_described() -> None:
    text = Page(render_page({"title": "x", "corpus": REPORT["corpus"]})).text.replace("\u00a0", " ")
    for shown in ("1,400,000", "8.1 MB", "utf-8 2 files", "gb18030 1 file", "latin 80.0 %", "Words per sentence 11.2"):
        assert shown in text
    assert "exact duplicates 4 % repeat: keep one copy." in text
    clean = {**REPORT["corpus"], "problems": []}
    assert "Problems found None." in Page(render_page({"title": "x", "corpus": clean})).text


def test_examples_of_all_tokenizers_are_grouped_by_text() -> None:
    first = REPORT["tokenizers"][0]
    other = {**first, "name": "chars", "examples": [{"text": "unlikely", "tokens": list("unlikely")}]}
    html = section(render_page({"title": "x", "tokenizers": [first, other]}), "tokenizers")
    assert html.count("<p>unlikely</p>") == 1
    assert re.findall(r"<h3>(\w+) <small>(\d)</small>", html) == [("wordpiece", "2"), ("chars", "8")]
