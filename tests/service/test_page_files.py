"""The source of the page: complete in both languages, from this server alone, and never HTML made of strings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "src" / "firth" / "service" / "page"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file())
SCRIPTS = {
    path.relative_to(PAGE).as_posix(): path.read_text(encoding="utf-8") for path in FILES if path.suffix == ".js"
}
PANELS = ("surprise", "compare", "next", "generate", "fill", "neighbours", "contexts", "classify", "tag", "answer")
KEY = re.compile(r'^  (?:"([\w.]+)"|(\w+)): "', re.M)


def texts(language: str) -> list[str]:
    return [quoted or plain for quoted, plain in KEY.findall(SCRIPTS[f"js/text/{language}.js"])]


def placeholders(language: str) -> dict[str, set[str]]:
    lines = [line for line in SCRIPTS[f"js/text/{language}.js"].splitlines() if KEY.match(line)]
    return {(found := KEY.match(line))[1] or found[2]: set(re.findall(r"\{\w+\}", line)) for line in lines}  # type: ignore[index]


def test_both_languages_have_the_same_texts() -> None:
    assert texts("en") == texts("zh")
    assert len(texts("en")) > 100
    assert placeholders("en") == placeholders("zh")


def test_every_text_is_used_and_every_used_text_exists() -> None:
    code = "\n".join(text for name, text in SCRIPTS.items() if "/text/" not in name)
    literal = set(re.findall(r'\bt\("([\w.]+)"', code)) | set(re.findall(r'[?:] "([a-z]+\.[a-z.]+)"', code))
    composed = {f"{panel}.{part}" for panel in PANELS for part in ("nav", "title", "lede", "run", "needs")}
    composed |= {f"generate.{name}" for name in ("length", "temperature", "top_k", "top_p", "seed")}
    composed |= {f"group.{name}" for name in ("language", "vectors", "tasks", "server")}
    composed |= {f"theme.{name}" for name in ("auto", "light", "dark")} | {"compare.first", "compare.second"}
    composed |= {f"about.{name}" for name in ("name", "recipe", "kind", "abilities", "digest")}
    assert literal | composed == set(texts("en"))


@pytest.mark.parametrize(
    "forbidden",
    [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "DOMParser",
        "javascript:",
    ],
)
def test_no_script_makes_html_or_code_of_strings(forbidden: str) -> None:
    assert not [name for name, text in SCRIPTS.items() if forbidden in text]


def test_nothing_comes_from_elsewhere() -> None:
    allowed = "http://www.w3.org/2000/svg"  # a name, which no browser fetches
    for path in FILES:
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w[^\s\"')]*", path.read_text(encoding="utf-8")))
        assert addresses <= {allowed}, path.name


def test_the_html_has_no_inline_script_or_style() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert "<style" not in html
    assert not re.search(r"\s(style|on\w+)=", html)
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == []


def test_imported_and_linked_files_exist() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    linked = re.findall(r'(?:href|src)="/page/([^"]+)"', html)
    assert len(linked) > 5
    assert all((PAGE / name).is_file() for name in linked)
    imported = {PAGE / name for name in linked}
    for name, text in SCRIPTS.items():
        found = [(PAGE / name).parent / one for one in re.findall(r'from "(\.[^"]+)"', text)]
        assert all(one.is_file() for one in found), name
        imported |= {one.resolve() for one in found}
    unused = {path for path in FILES if path.name != "index.html"} - {one.resolve() for one in imported}
    assert not unused


def test_files_are_short() -> None:
    assert not [path.name for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > 400]
