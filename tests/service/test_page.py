"""The page in a browser: every panel with real models, two languages, keyboard, phone, contrast and hostile text."""

from __future__ import annotations

import ast
import json
import math
import re
import runpy
import subprocess
import urllib.request
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.service.page_browser import Visit, running_browser, running_server
from tests.service.page_models import train_models

pytestmark = pytest.mark.slow
PANELS = ("surprise", "compare", "next", "generate", "fill", "neighbours", "contexts", "classify", "tag", "answer")
HOSTILE = '<img src=x onerror=alert(1)><script>alert(2)</script> & "it\'s" </textarea>'
AWKWARD = '[MASK] it\'s a "$HOME" \\n `x` 苹果 bank 🙂'
CONTRAST = (Path(__file__).parent / "page_contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def models(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return train_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def address(models: list[Path]) -> Generator[str]:
    with running_server(models) as found:
        yield found


@pytest.fixture
def visit(browser: Any, address: str) -> Generator[Visit]:
    """A tab in English; afterwards nothing went wrong in it, and nothing left this server."""
    found = Visit(browser, address, permissions=["clipboard-read", "clipboard-write"])
    yield found
    found.context.close()
    assert not found.problems


def ask(address: str, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_surprise_of_four_models_side_by_side(visit: Visit, address: str) -> None:
    page = visit.open("surprise")
    text = "The old man walked to the river. 他每天吃一个苹果。"
    page.fill("textarea", text)
    visit.answered()
    assert page.locator("article h3").all_inner_texts() == ["kn", "lstm", "gpt", "bert"]
    for name in ("kn", "lstm", "gpt", "bert"):
        (result,) = ask(address, "/score", {"model": name, "texts": [text], "tokens": True})["results"]
        card = page.locator(f"article[aria-label={name}]")
        shown = [float(bits) for bits in card.locator(".token small").all_inner_texts()]
        assert shown == pytest.approx([-piece["logprob"] / math.log(2) for piece in result["pieces"]], abs=0.051)
        assert float(card.locator(".figure b").inner_text()) == pytest.approx(result["bits_per_byte"], abs=0.0051)
        assert card.locator(".badge").count() == (name == "bert")
        levels = [int(re.search(r"\bs(\d)", one)[1]) for one in _classes(card.locator(".token"))]  # type: ignore[index]
        steps = [sum(bits >= bound for bound in (1, 2, 4, 7, 10, 14)) for bits in shown]
        assert all(
            abs(one - two) <= (bits in (1, 2, 4, 7, 10, 14))
            for one, two, bits in zip(levels, steps, shown, strict=True)
        )
    page.hover("article[aria-label=kn] .token >> nth=1")
    assert page.locator("article[aria-label=bert] .token.linked").count() >= 1
    page.uncheck("text=Show numbers")
    assert not page.locator(".token small").first.is_visible()


def _classes(boxes: Any) -> list[str]:
    return [box.get_attribute("class") for box in boxes.all()]


def test_compare(visit: Visit, address: str) -> None:
    page = visit.open("compare")
    page.select_option("select[name=second]", "gpt")
    page.fill("textarea[name=one]", "The old man walked to the market.")
    page.fill("textarea[name=two]", "market the to walked man old The.")
    visit.run()
    one, two = ask(
        address, "/score", {"model": "kn", "texts": [page.input_value(f"textarea[name={n}]") for n in ("one", "two")]}
    )["results"]
    bits = (one["logprob"] - two["logprob"]) / math.log(2)
    assert bits > 1
    assert f"kn prefers the first by {bits:.1f} bits." in page.inner_text("article[aria-label=kn] .verdict")
    assert page.locator("article").count() == 2


def test_next_word_is_appended(visit: Visit, address: str) -> None:
    page = visit.open("next")
    page.fill("textarea", "The old man walked to")
    visit.answered()
    (best, *_) = ask(address, "/next", {"model": "kn", "history": "The old man walked to", "top": 1})["next"]
    assert page.locator("article[aria-label=kn] .bars .value").first.inner_text() == f"{100 * best['probability']:.0f}%"
    page.click("article[aria-label=kn] button:text-is('the')")
    assert page.input_value("textarea") == "The old man walked to the"


def test_generate_and_stop(visit: Visit, address: str) -> None:
    page = visit.open("generate")
    page.fill("textarea", "The old")
    page.fill("input[name=length]", "12")
    visit.run()
    (text,) = ask(
        address,
        "/generate",
        {"model": "kn", "prompt": "The old", "length": 12, "temperature": 0.8, "top_p": 0.95, "seed": 1},
    )["texts"]
    assert page.locator(".written").inner_text() == text
    page.route("**/generate", lambda route: None)  # an answer that never comes
    page.click("button[type=submit]")
    page.click("button:text-is('Stop')")
    page.wait_for_selector("article .badge:text-is('stopped')")
    assert page.locator("button[type=submit]").is_enabled()


def test_fill(visit: Visit, address: str) -> None:
    page = visit.open("fill")
    page.fill("textarea", "The old  walked.")
    page.evaluate("document.querySelector('textarea').setSelectionRange(8, 8)")
    page.click("text=Insert [MASK]")
    assert page.input_value("textarea") == "The old [MASK] walked."
    visit.run()
    (mask,) = ask(address, "/fill", {"model": "bert", "text": "The old [MASK] walked.", "top": 8})["masks"]
    assert page.locator(".bars button").all_inner_texts() == [one["token"].strip() for one in mask]
    page.locator(".bars button").nth(2).click()
    assert page.inner_text(".filled mark") == mask[2]["token"].strip()


def test_neighbours_and_map(visit: Visit, address: str) -> None:
    page = visit.open("neighbours")
    page.fill("input[name=word]", "man")
    visit.answered()
    found = ask(address, "/similar", {"model": "sg", "word": "man", "count": 30})["neighbours"]
    assert page.locator(".bars button").all_inner_texts() == [one["word"] for one in found[:12]]
    assert page.locator(".map g").count() == len(found) + 1
    page.locator(".bars button").first.click()
    visit.answered()
    assert page.text_content(".map .centre") == found[0]["word"]
    assert page.input_value("input[name=word]") == found[0]["word"]


def test_a_word_in_two_contexts(visit: Visit, address: str) -> None:
    page = visit.open("contexts")
    visit.run()
    static, contextual = page.locator("article[aria-label=sg]"), page.locator("article[aria-label=bert]")
    assert static.locator(".figure b").inner_text() == "1.00"
    one, two = (page.input_value(f"textarea[name={name}]") for name in ("one", "two"))
    near = ask(address, "/similar", {"model": "bert", "word": "bank", "context": one, "sentences": [two], "count": 200})
    (same,) = [row["score"] for row in near["neighbours"] if row["word"] == "bank"]
    assert float(contextual.locator(".figure b").inner_text()) == pytest.approx(same, abs=0.0051)
    assert contextual.locator(".bars").count() == 2


def test_classify_text_and_pair(visit: Visit) -> None:
    page = visit.open("classify")
    page.select_option("select", "topics")
    page.fill("textarea", "The lender cut rates.")
    visit.run()
    assert page.inner_text(".bars .best .name") == "<b>money</b>"  # a label with tags is text like any other
    page.select_option("select", "pairs")
    assert page.locator("textarea").count() == 2
    visit.run()
    assert sorted(page.locator(".bars .name").all_inner_texts()) == ["other", "same"]


def test_tag(visit: Visit) -> None:
    page = visit.open("tag")
    page.fill("textarea", "Mary went to New York.")
    visit.run()
    assert page.locator(".span").all_inner_texts() == ["MaryPER", "New YorkLOC"]
    assert page.inner_text(".passage").replace("PER", "").replace("LOC", "") == "Mary went to New York."


def test_answer_by_span_and_by_choice(visit: Visit, address: str) -> None:
    page = visit.open("answer")
    page.select_option("select", "answers")
    passage = "𝔉irth 生于 Keighley in 1890."
    page.fill("textarea[name=passage]", passage)
    visit.run()
    item = {"passage": passage, "question": page.input_value("input[name=question]")}
    (found,) = ask(address, "/predict", {"model": "answers", "texts": [item]})["results"]
    assert page.inner_text(".passage mark") == found["span"] == passage[found["start"] :][: len(found["span"])]
    page.select_option("select", "choices")
    page.fill("textarea[name=choices]", "Keighley\nParis")
    visit.run()
    assert page.locator(".bars .name").all_inner_texts() == ["Keighley", "Paris"]
    assert page.locator(".bars .best").count() == 1


def test_models_are_listed(visit: Visit, models: list[Path], address: str) -> None:
    page = visit.open("models")
    assert page.locator("tbody th").all_inner_texts() == [path.name for path in models]


def test_an_error_is_the_servers_sentence(visit: Visit) -> None:
    page = visit.open("fill")
    page.fill("textarea", "No mask at all.")
    visit.run()
    assert page.inner_text("[role=alert]") == "there is nothing to fill: write [MASK] where a token is to be found."


def test_one_model_that_cannot_answer_leaves_the_others(visit: Visit) -> None:
    refused = {"error": {"status": 422, "message": "this model scores a target given its source."}}

    def answer(route: Any) -> None:
        if route.request.post_data_json["model"] == "lstm":
            route.fulfill(status=422, json=refused)
        else:
            route.continue_()

    visit.page.route("**/score", answer)
    page = visit.open("surprise")
    visit.answered()
    assert page.locator("article h3").all_inner_texts() == ["kn", "gpt", "bert"]
    assert page.inner_text("[role=alert]") == "lstm: this model scores a target given its source."


@pytest.mark.parametrize("panel", PANELS)
def test_the_code_is_the_request(
    visit: Visit, address: str, panel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = visit.open(panel)
    for field in page.locator("textarea, input[type=text]").all():
        field.fill("bank" if field.get_attribute("name") == "word" else AWKWARD)
    sent = list[Any]()
    page.on("request", lambda request: sent.append((request.url, request.post_data)))
    visit.run()
    curl, python = (page.inner_text(f"figure[data-code={name}] pre") for name in ("curl", "python"))
    words = subprocess.run(["sh", "-c", f'curl() {{ printf "%s\\0" "$@"; }}; {curl}'], capture_output=True, check=True)
    given = words.stdout.decode().rstrip("\0").split("\0")
    body = json.loads(given[-1])
    assert any(url in given and body == json.loads(data) for url, data in sent)
    script = tmp_path / "script.py"
    script.write_text(python, encoding="utf-8")
    capsys.readouterr()
    runpy.run_path(str(script))["client"].close()
    printed = [ast.literal_eval(line) for line in capsys.readouterr().out.splitlines()]
    (path,) = [one.removeprefix(address) for one in given if one.startswith(address)]
    assert printed[-1] == ask(address, path, {name: value for name, value in body.items() if name != "stream"})
    page.click("figure[data-code=python] button")
    page.wait_for_selector("figure[data-code=python] button:text-is('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == python


@pytest.mark.parametrize("panel", PANELS)
def test_hostile_text_is_shown_as_text(visit: Visit, panel: str) -> None:
    page = visit.open(panel)
    page.on("dialog", lambda dialog: visit.problems.append(dialog.message))
    for field in page.locator("textarea, input[type=text]").all():
        name = field.get_attribute("name")
        field.fill(f"{HOSTILE} [MASK] bank" if name != "word" else HOSTILE if panel == "neighbours" else "bank")
    visit.run()
    assert page.locator("main img, main script").count() == 0
    if panel in ("compare", "tag", "answer"):
        assert "onerror=alert(1)><script>alert(2)</script>" in page.inner_text(".results")


def test_languages(browser: Any, address: str) -> None:
    visit = Visit(browser, address, locale="zh-CN")
    page = visit.open()
    assert page.get_attribute("html", "lang") == "zh-Hans"
    assert page.inner_text("section h2") == "每个词有多出人意料？"
    for panel in PANELS:
        page.click(f"nav a[href='#{panel}']")
        page.wait_for_selector(f"section#{panel}")
        visit.run()
        assert not re.search(r"\b(Text|Model|Try|Copy|Working|cosine|bits)\b", page.inner_text("main")), panel
    page.click("button:text-is('English')")
    assert page.inner_text("section h2") == "Ask about a passage"
    assert page.locator(".results > *").count() >= 1  # the answer stays
    page.reload()
    page.wait_for_selector("section")
    assert page.get_attribute("html", "lang") == "en"
    visit.context.close()
    assert not visit.problems


def test_keyboard_alone(visit: Visit) -> None:
    page = visit.open()
    visit.answered()
    keys = page.keyboard
    keys.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(20):
        keys.press("Tab")
        if page.evaluate("document.activeElement.hash") == "#fill":
            break
    keys.press("Enter")
    page.wait_for_selector("section#fill")
    assert page.evaluate("document.activeElement.id") == "main"
    keys.press("Tab")
    assert page.evaluate("document.activeElement.name") == "text"
    keys.press("Control+A")
    keys.type("The [MASK] man.")
    keys.press("Control+Enter")
    visit.answered()
    keys.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page = visit.open("surprise")
    visit.answered()
    page.focus(".token")
    keys.press("ArrowRight")
    assert page.evaluate("document.activeElement.matches('.token:nth-of-type(2)')")
    assert page.locator(".token[tabindex='0']").count() == page.locator(".tokens").count()
    page = visit.open("neighbours")
    page.fill("input[name=word]", "man")
    visit.answered()
    page.focus(".map [tabindex='0']")
    keys.press("ArrowDown")
    chosen = page.evaluate("document.activeElement.textContent")
    keys.press("Enter")
    visit.answered()
    assert page.input_value("input[name=word]") == chosen != "man"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_and_a_phone_without_sideways_scrolling(browser: Any, address: str, theme: str) -> None:
    visit = Visit(browser, address, color_scheme=theme, viewport={"width": 360, "height": 700})
    for panel in (*PANELS, "models"):
        page = visit.open(panel)
        if panel != "models":
            visit.run()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, panel
        assert page.evaluate(CONTRAST) == [], panel
        fields = ("textarea", "input", "select")
        assert all(
            box.evaluate("box => box.labels.length") == 1 for one in fields for box in page.locator(f"main {one}").all()
        )
    visit.context.close()
    assert not visit.problems


def test_the_colour_scale_needs_no_hue(visit: Visit) -> None:
    page = visit.open()
    visit.answered()
    colours = "[...document.querySelectorAll('.legend li > b')].map((box) => getComputedStyle(box).backgroundColor)"
    for theme, direction in (("Light", -1), ("Dark", 1)):
        page.click(f"button:text-is('{theme}')")
        light = [_luminance(one) for one in page.evaluate(colours)[1:]]
        steps = [direction * (two - one) for one, two in pairwise(light)]
        assert min(steps) > 0.008
    page.reload()
    page.wait_for_selector("section")
    assert page.get_attribute("html", "data-theme") == "dark"


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_server_with_a_key(browser: Any, models: list[Path]) -> None:
    with running_server(models[:1], key=b"0123456789abcdef") as address:
        visit = Visit(browser, address)
        page = visit.page
        page.goto(address)
        page.fill("input[type=password]", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("label:has-text('not right')")
        page.fill("input[type=password]", "0123456789abcdef")
        page.keyboard.press("Enter")
        visit.answered()
        assert "$FIRTH_KEY" in page.inner_text("figure[data-code=curl]")
        assert "0123456789abcdef" not in page.content()
        visit.context.close()
        assert not visit.problems


def test_the_page_waits_for_models_that_are_loading(visit: Visit) -> None:
    busy = {"error": {"status": 503, "message": "the models are being loaded: try again soon."}}
    visit.page.route("**/info", lambda route: route.fulfill(status=503, json=busy), times=1)
    visit.page.goto(visit.address)
    visit.page.wait_for_selector("[role=alert]:text-is('the models are being loaded: try again soon.')")
    visit.page.unroute("**/info")
    visit.answered()
