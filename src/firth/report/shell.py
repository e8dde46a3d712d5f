"""What all pages have around their sections: the head, the motto, links and style, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from firth.report.charts import escape
from firth.report.style import STYLE

_MOTTO = "<p class='motto'>You shall know a word by the company it keeps.<br><small>J. R. Firth, 1957</small></p>"


def draw_page(title: str, header: str, sections: Iterable[tuple[str, str, str]], style: str = "") -> str:
    """The whole page: `header` stands below the motto; of sections (name, title, content) those without content go.

    >>> page = draw_page("Tea & biscuits", "<h1>Tea</h1>", [("a", "Assam", "strong"), ("b", "Bohea", "")])
    >>> "<title>Tea &amp; biscuits</title>" in page, '<section id="a">' in page, "Bohea" in page
    (True, True, False)
    """
    present = [section for section in sections if section[2]]
    links = "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in present)
    body = "".join(
        f'<section id="{name}"><h2>{heading}</h2><div>{content}</div></section>\n' for name, heading, content in present
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
        f"<style>{STYLE}{style}</style></head>\n<body><header>{_MOTTO}<div>{header}</div></header>"
        f"{f'<nav><ul>{links}</ul></nav>' if links else ''}<main>\n{body}</main></body></html>\n"
    )
