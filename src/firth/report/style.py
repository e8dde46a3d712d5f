"""The style sheet of the report."""

from __future__ import annotations

STYLE = """
:root { --paper: #fff; --ink: #1c2026; --muted: #69707a; --rule: #dfe3e8; --wash: #f5f6f8; --mark: #1f5fa8;
  --start: #cfe0f4; --rest: #eaf1fa;
  --c0: #2f6db3; --c1: #2a8f6d; --c2: #cf6a2c; --c3: #8a5cb8; --c4: #b8476b; --c5: #7b7f3a;
  --zh: "Songti SC", "Noto Serif CJK SC", "Source Han Serif SC", SimSun;
  --serif: Charter, "Bitstream Charter", "Source Serif 4", "Noto Serif", "Sitka Text", Cambria, var(--zh),
    Georgia, serif;
  --sans: -apple-system, "Segoe UI", Roboto, Inter, Ubuntu, Cantarell, "Noto Sans", "Liberation Sans", "Helvetica Neue",
    "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif;
  --mono: "SF Mono", "Cascadia Mono", Consolas, "Noto Sans Mono", "Liberation Mono", "DejaVu Sans Mono", monospace; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e4e7eb; --muted: #98a1ad;
  --rule: #2e343c; --wash: #1c2026; --mark: #86b6ee; --start: #28486d; --rest: #1e2f45;
  --c0: #6ba3e0; --c1: #4fbb95; --c2: #e8935a; --c3: #b492de; --c4: #e0829f; --c5: #b3b765; } }
* { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink); font: 17px/1.55 var(--serif); -webkit-text-size-adjust: 100%; }
body { max-width: 70rem; margin: 0 auto; padding: 4rem 2rem 5rem; }
header, section { display: grid; grid-template-columns: 11rem minmax(0, 1fr); column-gap: 3rem; }
header > div { max-width: 44rem; }
.motto { font-style: italic; font-size: .92rem; line-height: 1.4; color: var(--muted); margin-top: .9rem; }
.motto small { font-style: normal; }
h1 { font-size: 2.6rem; line-height: 1.1; letter-spacing: -.015em; margin: 0; }
.subtitle { font-size: 1.2rem; line-height: 1.4; color: var(--muted); margin: .6rem 0 0; }
.lede { margin: 1.6rem 0 0; }
.command { font: .82rem/1.5 var(--mono); margin: 1.6rem 0 0; padding: .7rem 1rem; background: var(--wash);
  border-left: 3px solid var(--mark); white-space: pre-wrap; overflow-wrap: anywhere; }
.command::before { content: "$ "; color: var(--muted); }
nav { margin: 2rem 0 0 14rem; }
nav ul, .legend { font: .82rem/1.6 var(--sans); list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.3rem;
  margin: 0; padding: 0; }
a { color: var(--mark); text-decoration: none; }
a:hover { text-decoration: underline; }
section { border-top: 1px solid var(--rule); margin-top: 3rem; padding-top: 1.4rem; }
section > div { min-width: 0; }
h2 { font-size: 1.25rem; line-height: 1.25; margin: 0; position: sticky; top: 1.4rem; align-self: start; }
h3 { font: 600 .82rem/1.5 var(--sans); margin: 1.8rem 0 .5rem; }
p { margin: 0 0 1rem; max-width: 44rem; text-wrap: pretty; }
b { font-weight: 650; }
small { font-size: .85em; font-weight: 400; color: var(--muted); }
code { font: .92em var(--mono); }
.aside { margin-top: 1rem; color: var(--muted); font-size: .92rem; }
.legend { color: var(--muted); margin-bottom: .8rem; }
.legend b { color: var(--ink); font-weight: 600; }
.dot { display: inline-block; width: .65em; height: .65em; border-radius: 50%; margin-right: .45em; }
.c0 { background: var(--c0); } .c1 { background: var(--c1); } .c2 { background: var(--c2); }
.c3 { background: var(--c3); } .c4 { background: var(--c4); } .c5 { background: var(--c5); }
.chart { margin: 0; }
.chart svg { display: block; width: 100%; height: auto; font-family: var(--sans); font-variant-numeric: tabular-nums; }
.narrow { display: none; max-width: 34rem; }
.scroll { overflow-x: auto; margin: 0 0 1.2rem; }
table { border-collapse: collapse; font: .82rem/1.4 var(--sans); font-variant-numeric: tabular-nums;
  min-width: 100%; }
.brief { min-width: min(100%, 44rem); }
th, td { padding: .4rem 0 .4rem 1.1rem; text-align: left; font-weight: 400; vertical-align: baseline; }
th:first-child { padding-left: 0; }
thead th { color: var(--muted); border-bottom: 1px solid var(--ink); vertical-align: bottom; }
tbody tr { border-bottom: 1px solid var(--rule); }
.numbers :is(th, td):not(:first-child) { text-align: right; }
.numbers td { white-space: nowrap; }
dl { font: .82rem/1.5 var(--sans); margin: 0; }
dd { margin: 0; }
dt { color: var(--muted); }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .9rem 1.5rem; }
.facts dd { font-size: 1.05rem; font-variant-numeric: tabular-nums; }
.notes { columns: 2 20rem; column-gap: 2rem; }
.notes div { break-inside: avoid; margin-bottom: .5rem; }
.notes dt { display: inline; color: var(--ink); font-weight: 600; }
.notes dd { display: inline; color: var(--muted); margin-left: .4em; }
.problems div, .row { display: grid; grid-template-columns: 10.5rem minmax(0, 1fr); gap: 0 1.5rem; padding: .6rem 0;
  border-bottom: 1px solid var(--rule); }
.row h3 { margin: 0; padding-top: .15rem; overflow-wrap: anywhere; }
.row h3 small { margin-left: .3em; }
blockquote { margin: 0 0 .5rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .97rem;
  text-indent: -.45em; }
blockquote::before { content: open-quote; color: var(--muted); }
blockquote::after { content: close-quote; color: var(--muted); }
:is(blockquote, p):lang(zh) { font-family: var(--zh), var(--serif); }
details { margin-top: .8rem; }
summary { font: .82rem var(--sans); color: var(--mark); cursor: pointer; }
.shares { display: flex; gap: 2px; height: 10px; margin-bottom: .5rem; }
.shares i { min-width: 2px; }
.example { margin-top: 1.6rem; }
.example > p { font-size: 1.05rem; margin-bottom: .3rem; }
.tokens { font: .82rem/1.5 var(--sans); display: flex; flex-wrap: wrap; gap: .3rem .4rem; }
.tokens span { display: inline-flex; flex-wrap: wrap; gap: 1px; border-radius: 3px; overflow: hidden; }
.tokens i { font-style: normal; padding: 0 .32em; background: var(--rest); overflow-wrap: anywhere; }
.tokens i:first-child { background: var(--start); }
@media (max-width: 60rem) {
  body { padding: 2rem 1.2rem 3rem; }
  header, section { display: block; }
  .motto { display: none; } nav { margin-left: 0; }
  h1 { font-size: 2rem; }
  h2 { position: static; font-size: 1.35rem; margin-bottom: .8rem; }
}
@media (max-width: 44rem) {
  html { font-size: 16px; }
  .wide { display: none; }
  .narrow { display: block; }
  .row, .problems div { display: block; }
  .row h3 { margin-bottom: .3rem; }
  tbody th:first-child { position: sticky; left: 0; background: var(--paper); }
}
@media print {
  html { font-size: 10pt; } body { max-width: none; padding: 0; } nav { display: none; }
  header, section { display: block; } h2 { position: static; margin-bottom: .6rem; }
  tr, .row, blockquote, figure { break-inside: avoid; } h2, h3 { break-after: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
