"""The documentation site: a complete navigation, a reference of what exists, nothing from the network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import firth
from firth.cli.main import app
from tests.contracts.test_glossary import is_defined
from tools.check_site import network_addresses
from tools.site_hooks import ROOT_PAGES, public_names

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
CHINESE = {"index.md", "getting-started.md", "commands.md", "tasks.md"}


def pages_of(navigation: Any) -> Iterator[str]:
    """The pages that a part of the navigation lists."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for item in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from pages_of(item)


def made_pages() -> set[str]:
    """The pages that the build makes from other files."""
    notebooks = {f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.ipynb")}
    return notebooks | {name.lower() for name in ROOT_PAGES}


def test_the_navigation_lists_every_page_once() -> None:
    listed = list(pages_of(SITE["nav"]))
    assert len(set(listed)) == len(listed)
    assert set(listed) == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | made_pages()


@pytest.mark.parametrize("page", sorted((DOCS / "reference").glob("*.md")), ids=lambda page: page.stem)
def test_the_reference_names_what_exists(page: Path) -> None:
    names = re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert names or page.stem == "index"
    assert not [name for name in names if not is_defined(name)]


def test_the_reference_lists_what_the_package_offers() -> None:
    assert {name for name, _ in public_names()} == set(firth.__all__)


@pytest.mark.parametrize("page", ["commands.md", "zh/commands.md"])
def test_every_verb_is_listed(page: str) -> None:
    verbs = {command.name for command in app.registered_commands}
    listed = set(re.findall(r"^\| `(\w+)` \|", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE))
    assert verbs <= listed


def test_the_main_pages_are_in_chinese_too() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "zh").glob("*.md")}
    assert pages.keys() >= CHINESE
    for text in pages.values():
        assert len(re.findall(r"[\u4e00-\u9fff]", text)) > 300
    terms = "".join(pages.values())
    assert all(term in terms for term in ("语言模型", "困惑度", "注意力掩码", "微调"))


def test_a_page_that_loads_from_the_network_is_found(tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text('<a href="https://a.example/">a</a><script src="own.js"></script>')
    assert not network_addresses(tmp_path)
    (tmp_path / "bad.html").write_text('<link rel="stylesheet" href="https://fonts.example/a.css">')
    (tmp_path / "bad.css").write_text('@font-face { src: url("//fonts.example/a.woff2") }')
    assert len(network_addresses(tmp_path)) == 2
