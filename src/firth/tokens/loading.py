"""Reading a tokenizer.json of unknown origin: which parts it may have, and how large they may be.

The library builds whatever a file describes: a chain of replacements that doubles the text at every step, a pattern
that takes for ever, padding to a billion tokens. So the parts are checked before the library reads them; and a file
from elsewhere is tried out first, in a process with limits of time and memory (`try_tokenizer`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import tokenizers

from firth.errors import ArtifactError, TokenizerError, reading
from firth.files import digest_bytes

_PARTS = {
    "normalizer": "Sequence BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip "
    "StripAccents",
    "pre_tokenizer": "Sequence BertPreTokenizer ByteLevel CharDelimiterSplit Digits Metaspace Punctuation Split "
    "UnicodeScripts Whitespace WhitespaceSplit",
    "post_processor": "Sequence BertProcessing ByteLevel RobertaProcessing TemplateProcessing",
    "decoder": "Sequence BPEDecoder ByteFallback ByteLevel Fuse Metaspace Replace Strip WordPiece",
    "model": "BPE Unigram WordLevel WordPiece",
}
"""The types that each part of a tokenizer.json may have."""
_KEYS = {*_PARTS, "version", "truncation", "padding", "added_tokens"}
_INNER = ("normalizers", "pretokenizers", "processors", "decoders")  # the steps of a Sequence
_MAX_STEPS, _MAX_DEPTH = 32, 4
_MAX_GROWTH = 64  # characters that the replacements may make of one
_MAX_TEXT = 4000  # characters of a pattern, a replacement or an added token
_MAX_PREFIX = 64  # characters of other settings
_MAX_WORD = 100_000  # characters of a word that a model may look at
_UNPREDICTABLE = {"Precompiled", "Prepend", "Replace", "Split"}
_TRIAL = Path(__file__).with_name("_trial.py")
_TRIAL_SECONDS, _SECONDS_PER_MB = 10, 2  # of time, and for each MB of the file
_TRIAL_MB, _MB_PER_MB = 1024, 60  # of memory, and for each MB of the file
_tried: set[str] = set()  # digests of the files that have passed their trial in this process


def load_backend(data: bytes) -> tokenizers.Tokenizer:
    """The library's tokenizer of a `tokenizer.json`, whose parts are checked before they are used.

    The parts are taken from what the library has read, because parsing a large vocabulary twice takes twice as long.
    """
    try:
        with reading("tokenizer.json"):
            backend = tokenizers.Tokenizer.from_str(data.decode())
    except ArtifactError as error:
        raise TokenizerError(f"{str(error).removesuffix('.')}, with firth train.") from error
    check_parts(_parts_of(backend))
    return backend


def _parts_of(backend: tokenizers.Tokenizer) -> dict[str, Any]:
    """The parts of a tokenizer as in its file, without the vocabulary."""
    model = backend.model
    names = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix", "max_input_chars_per_word")
    content: dict[str, Any] = {"model": {name: getattr(model, name, None) for name in names}}
    content["model"]["type"] = type(model).__name__
    for part in _PARTS.keys() - {"model"}:
        found = getattr(backend, part)
        content[part] = None if found is None else json.loads(found.__getstate__())
    added = [{"content": token.content} for token in backend.get_added_tokens_decoder().values()]
    return content | {"truncation": backend.truncation, "padding": backend.padding, "added_tokens": added}


def parse_tokenizer(data: bytes) -> dict[str, Any]:
    """The JSON object of a `tokenizer.json`."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"tokenizer.json is not valid JSON ({error}): copy it again, or make it again.") from error
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise TokenizerError("tokenizer.json is no tokenizer (it has no model): copy it again, or make it again.")
    return content


def check_parts(content: dict[str, Any]) -> None:
    """Raise `TokenizerError` for parts that Firth does not know, and for settings that no tokenizer needs.

    >>> check_parts({"model": {"type": "BPE", "vocab": {}}, "normalizer": {"type": "Shell"}})
    Traceback (most recent call last):
    ...
    firth.errors.TokenizerError: tokenizer.json has a normalizer of type 'Shell': use a tokenizer of a standard type.
    """
    with reading("tokenizer.json", "use a tokenizer of a standard type"):
        if unknown := sorted(content.keys() - _KEYS):
            _refuse(f"an unknown part {unknown[0]!r:.80}")
        if content.get("truncation") is not None or content.get("padding") is not None:
            _refuse("truncation or padding")
        for part, types in _PARTS.items():
            steps = list(_steps(content.get(part), part, 0))
            if len(steps) > _MAX_STEPS:
                _refuse(f"{len(steps)} steps in its {part}")
            for step in steps:
                if step.get("type") not in types.split():
                    _refuse(f"a {part} of type {step.get('type')!r:.80}")
                _check_step({name: value for name, value in step.items() if name not in ("vocab", "merges")}, part)
            if _growth(steps) > _MAX_GROWTH:
                _refuse(f"replacements in its {part} that make more than {_MAX_GROWTH} characters of one")
        for token in content.get("added_tokens") or ():
            if not isinstance(token.get("content"), str) or not 0 < len(token["content"]) <= _MAX_TEXT:
                _refuse("an added token that is empty or too long")


def _refuse(what: str) -> NoReturn:
    raise TokenizerError(f"tokenizer.json has {what}: use a tokenizer of a standard type.")


def _steps(part: Any, name: str, depth: int) -> Iterator[dict[str, Any]]:
    """The steps of a part, those of sequences one by one."""
    if part is None:
        return
    if not isinstance(part, dict) or depth > _MAX_DEPTH:
        _refuse(f"a {name} that is no object, or nested too deeply")
    yield part
    for key in _INNER:
        for step in part.get(key) or ():
            yield from _steps(step, name, depth + 1)


def _check_step(step: dict[str, Any], part: str) -> None:
    """Refuse a step with a long text or a large number, except the tables of a precompiled normaliser."""
    for name, value in step.items():
        if name in (*_INNER, "precompiled_charsmap", "special_tokens"):
            continue
        pattern = next(iter(value.values()), "") if isinstance(value, dict) and name == "pattern" else value
        longest = _MAX_TEXT if name in ("pattern", "content") else _MAX_PREFIX
        if isinstance(pattern, str | list) and len(pattern) > longest:
            _refuse(f"a {name!r:.80} of {len(pattern)} characters or items in its {part}")
        if isinstance(value, int | float) and abs(value) > _MAX_WORD:
            _refuse(f"a {name!r:.80} of {value!r:.80} in its {part}")


def _growth(steps: list[dict[str, Any]]) -> float:
    """The characters that a chain of replacements can make of one."""
    total = 1.0
    for step in steps:
        if step.get("type") == "Replace":
            pattern = step.get("pattern") or {}
            replaced = len(pattern.get("String", " ")) if isinstance(pattern, dict) else 1
            added = len(str(step.get("content", "")))
            total *= max(1.0, added / replaced if replaced else 1.0 + added)
    return total


def try_tokenizer(data: bytes) -> None:
    """Raise `TokenizerError` unless a `tokenizer.json` encodes some lines in a process with little time and memory.

    What patterns and replacements do to a text cannot be seen in their description: a short one can take for ever.
    Tokenizers without them need no trial.
    """
    content = parse_tokenizer(data)
    types = {step.get("type") for part in _PARTS for step in _steps(content.get(part), part, 0)}
    digest = digest_bytes(data)
    if not types & _UNPREDICTABLE or digest in _tried:
        return
    size = len(data) >> 20
    seconds, megabytes = _TRIAL_SECONDS + _SECONDS_PER_MB * size, _TRIAL_MB + _MB_PER_MB * size
    command = [sys.executable, "-P", str(_TRIAL), str(seconds), str(megabytes)]
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    try:
        tried = subprocess.run(command, input=data, env=environment, capture_output=True, timeout=2 * seconds)
    except subprocess.TimeoutExpired:
        tried = subprocess.CompletedProcess(command, -1)
    if tried.returncode < 0:
        raise TokenizerError(
            f"tokenizer.json takes more than {seconds} s or {megabytes} MB for a few lines of text: use the tokenizer "
            "that belongs to the model."
        )
    if tried.returncode:
        lines = [line for line in tried.stderr.decode(errors="replace").splitlines() if line.strip()]
        cause = "".join(one if one.isprintable() else " " for one in lines[-1]) if lines else "the library failed"
        raise TokenizerError(
            f"tokenizer.json cannot be used ({cause:.200}): use the tokenizer that belongs to the model."
        )
    _tried.add(digest)
