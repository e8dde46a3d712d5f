"""Model cards: what a model is, what it was trained on, how well it does and how to use it, written from its manifest.

A card is the same for the same model: it has no times and no names of machines, unless the model was compressed, which
is about its speed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from firth.artifact.manifest import Manifest
from firth.errors import ArgumentError
from firth.recipes.table import find_entry
from firth.recipes.values import flatten

CARD = "card.md"
_NO_LICENCE = "not recorded"
_MAX_METRICS = 40
_MAX_SOURCES = 20
_TEXT_COUNTS = ("documents", "sentences", "words", "tokens", "bytes", "unknown", "examples")
_USES = {
    "score": "firth score MODEL FILE               log-probabilities, bits per byte, perplexity",
    "generate": "firth generate MODEL --prompt TEXT",
    "fill": "firth fill MODEL TEXT                a text with a mask",
    "similar": "firth similar MODEL WORD             the nearest words",
    "embed": "firth embed MODEL FILE -o OUT.npy    a vector for each line",
    "predict": "firth predict MODEL FILE -o OUT",
    "predict-task": "firth predict MODEL FILE --task NAME -o OUT",
}


def make_card(manifest: Manifest, curve: str = "") -> str:
    """The card of an artifact in Markdown; `curve` is the name of the file with the learning curve, if there is one.

    >>> manifest = Manifest(kind="counts", name="mkn3", recipe={"type": "ngram"}, corpus={}, seed=1, metrics={})
    >>> make_card(manifest).splitlines()[0]
    '# mkn3'
    """
    parts = [
        f"# {plain(manifest.name)}",
        _summary(manifest),
        "## Training text",
        _text(manifest.corpus),
        "## Training",
        _training(manifest),
        *([f"![The loss during training]({curve})"] if curve else []),
        "## Metrics",
        _table(_metrics(_without_compression(manifest.metrics))) or "None were measured.",
        *_compression(manifest.metrics.get("compression")),
        "## Use",
        _use(manifest.recipe),
    ]
    return "\n\n".join(parts) + "\n"


def huggingface_card(card: str, architecture: str, pipeline: str) -> str:
    """The README.md of a Hugging Face folder: the card of the artifact, with how to use the folder.

    >>> print(huggingface_card("# small", "BertForMaskedLM", "fill-mask").splitlines()[2])
    pipeline_tag: fill-mask
    """
    head = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {pipeline}",
        *_license_fields(card),
        "tags: [firth]",
        "---",
    ]
    about = card.partition("\n## Use\n")[0].rstrip() or f"# {architecture}"
    lines = [line for line in about.splitlines() if not line.startswith("![")]
    inputs = '**tokenizer("A text.", return_tensors="pt")'
    call = f"outputs = model({inputs})"
    if pipeline == "translation":
        call = f"print(tokenizer.batch_decode(model.generate({inputs}), skip_special_tokens=True)[0])"
    use = [
        *("## Use", "", "```python", f"from transformers import AutoTokenizer, {architecture}", ""),
        f'model, tokenizer = {architecture}.from_pretrained("DIR"), AutoTokenizer.from_pretrained("DIR")',
        *(call, "```"),
    ]
    return "\n".join([*head, "", *lines, "", *use]) + "\n"


def _license_fields(card: str) -> list[str]:
    """The licence of a card as Hugging Face has it: an identifier in lower case, or a name that is none of them.

    >>> _license_fields("| licence | CC-BY-4.0 |")
    ['license: cc-by-4.0']
    >>> _license_fields("| licence | our own licence |")
    ['license: other', 'license_name: "our own licence"']
    """
    found = re.search(r"^\| licence \| (.+) \|$", card, re.MULTILINE)
    if found is None or found[1] == _NO_LICENCE:
        return []
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9.+-]*", found[1]):
        return [f"license: {found[1].lower()}"]
    return ["license: other", f"license_name: {json.dumps(found[1], ensure_ascii=False)}"]


def plain(value: Any) -> str:
    """A value on one line of Markdown, without markup and not too long.

    >>> plain("a|b`c")
    'a b c'
    """
    text = f"{value:,}" if type(value) is int else f"{value:.6g}" if isinstance(value, float) else str(value)
    words = "".join(one if one.isprintable() and one not in "`|<>[]" else " " for one in text).split()
    return " ".join(words)[:200]


def _summary(manifest: Manifest) -> str:
    """What the model is, with its paper if it is a recipe of the table."""
    base, _, task = manifest.name.rpartition("-") if manifest.kind == "tasks" else (manifest.name, "", "")
    what = f"A model of the kind {plain(manifest.kind)}, made by Firth {plain(manifest.versions.get('firth', ''))}."
    if manifest.name == "imported":
        source = plain(manifest.corpus.get("imported", "another program"))
        return f"A model of the kind {plain(manifest.kind)}, imported from `{source}`."
    try:
        entry = find_entry(base)
    except ArgumentError:  # a recipe of the user's own
        return what
    about = f"{entry.about} After {entry.paper} ({entry.year})."
    if isinstance(tasks := manifest.recipe.get("tasks"), dict):
        task = ", ".join(tasks)
    return f"{about} Made by Firth." if not task else f"Fine-tuned for {plain(task)} from {base}. {about}"


def _text(corpus: Mapping[str, Any]) -> str:
    encodings = corpus.get("encodings")
    sources = sorted(encodings) if isinstance(encodings, dict) else []
    rows = [("file", f"`{plain(name)}`") for name in sources[:_MAX_SOURCES]]
    rows += [("further files", plain(len(sources) - _MAX_SOURCES))] if len(sources) > _MAX_SOURCES else []
    rows += [(name, plain(corpus[name])) for name in _TEXT_COUNTS if isinstance(corpus.get(name), int)]
    rows += [("SHA-256", f"`{plain(corpus['digest'])}`")] if isinstance(corpus.get("digest"), str) else []
    licence = plain(corpus.get("licence") or _NO_LICENCE)
    return _table([*rows, ("licence", licence)])


def _training(manifest: Manifest) -> str:
    spent = manifest.budget["spent"]
    rows = [("budget", plain(manifest.budget["asked"] or "none"))]
    rows += [(name, plain(spent[name])) for name in ("tokens", "flops") if isinstance(spent.get(name), int | float)]
    recipe = {name: value for name, value in flatten(manifest.recipe).items() if name != "parts"}
    settings = ", ".join(f"{name}={value}" for name, value in recipe.items())
    shown = "".join(one if one.isprintable() and one != "`" else " " for one in settings)[:4000]
    return _table([*rows, ("seed", plain(manifest.seed))]) + f"\n\nRecipe: `{shown}`"


def _metrics(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The numbers among the metrics, with their intervals, but no times: those differ between equal runs."""
    flat = flatten(dict(metrics))
    rows = []
    for name, value in flat.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or "second" in name:
            continue
        interval = flat.get(f"{name}_interval")
        shown = plain(value)
        if isinstance(interval, list | tuple) and len(interval) == 2:
            shown += f" ({plain(interval[0])} to {plain(interval[1])})"
        rows.append((plain(name), shown))
    tasks = metrics.get("tasks")
    return rows[: _MAX_METRICS * (len(tasks) if isinstance(tasks, dict) else 1)]


def _without_compression(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name != "compression"}


def _compression(found: Any) -> list[str]:
    """What compression has cost: size, speed, memory and quality before and after, as measured on one machine."""
    if not isinstance(found, dict) or not isinstance(found.get("lineage"), list):
        return []
    steps = [f"{plain(one.get('name'))} ({plain(one.get('method'))})" for one in found["lineage"]]
    names = {
        "mb": "MB on disk",
        "ms": "ms for a text",
        "texts_per_second": "texts per second",
        "peak_mb": "MB in memory",
    }
    sides = [found.get(side, {}) for side in ("before", "after")]
    rows = [(shown, *(plain(side.get(name, "")) for side in sides)) for name, shown in names.items()]
    for name, one in found.get("sets", {}).items():
        rows.append((plain(f"{one['metric']}, {name}"), *(_with_interval(one, side) for side in ("before", "after"))))
    lines = ["| | before | after |", "|---|---|---|", *("| " + " | ".join(row) + " |" for row in rows)]
    notes = [f"- {plain(line)}" for line in found.get("notes", [])]
    origin = "Made smaller from: " + ", then ".join(steps) + "."
    return ["## Compression", origin, "\n".join(lines), *(["\n".join(notes)] if notes else [])]


def _with_interval(values: Mapping[str, Any], name: str) -> str:
    low, high = values[f"{name}_interval"]
    return f"{plain(values[name])} ({plain(low)} to {plain(high)})"


_VECTORS = (
    *("bag", "svd", "brown", "word2vec", "glove", "senses", "sif", "static", "paragraph", "graph", "imported-vectors"),
    "quantised-vectors",
)


def _use(recipe: Mapping[str, Any]) -> str:
    kind = recipe.get("type")
    if kind == "tokenizer":
        return "    firth train RECIPE CORPUS -o MODEL --tokenizer THIS"
    verbs: tuple[str, ...] = ("score", "generate")
    if kind in ("task", "linear"):
        verbs = ("predict", "embed") if kind == "task" else ("predict",)
    elif kind == "many":
        verbs = ("predict-task", "similar", "embed")
    elif kind in _VECTORS:
        verbs = ("similar", "embed")
    elif kind == "classifier":
        verbs = ("predict", "similar", "embed")
    elif kind == "nets":
        is_causal = recipe.get("visibility") != "bidirectional"
        verbs = ("score", "generate" if is_causal else "fill", "similar", "embed")
    lines = "\n".join(f"    {_USES[verb]}" for verb in verbs)
    return f'{lines}\n\nFrom Python: `import firth; model = firth.load("MODEL")`.'


def _table(rows: Iterable[tuple[str, str]]) -> str:
    found = [f"| {name} | {value} |" for name, value in rows]
    return "\n".join(["| | |", "|---|---|", *found]) if found else ""
