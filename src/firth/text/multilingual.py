"""Texts of several languages: `en=wiki_en.txt`, and parallel text, whose header names its languages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from firth.errors import CorpusError
from firth.text.corpus import Corpus, Input, read_corpus
from firth.text.files import find_files
from firth.text.layout import RawDocument
from firth.text.oracle import PREFIX
from firth.text.parallel import ParallelCorpus, ParallelInput, read_parallel

_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,19})=(.+)", re.DOTALL)
_PAIRS = (".tsv", ".csv", ".jsonl", ".ndjson")


class LanguageText(NamedTuple):
    """A text of one language, or a parallel text of two."""

    corpus: Corpus
    languages: tuple[str, ...]


@dataclass(frozen=True)
class SideInput(Input):
    """One side of parallel text: each text of it is a document."""

    source: ParallelInput
    side: int

    def title(self) -> str:
        return f"{self.source.title()} ({self.source.languages[self.side]})"

    def documents(self) -> Iterator[RawDocument]:
        for pair in self.source.pairs():
            yield RawDocument(pair[self.side], pair.where)

    def encodings(self) -> dict[str, str]:
        return self.source.encodings()

    def digest(self) -> str:
        return f"{self.source.digest()} side {self.side}"

    def size(self) -> int:
        return self.source.size() // 2


@dataclass(frozen=True)
class SampledInput(Input):
    """A fraction of the lines of a source, chosen by a hash of each."""

    source: Input
    fraction: float

    def title(self) -> str:
        return self.source.title()

    def documents(self) -> Iterator[RawDocument]:
        for document in self.source.documents():
            lines = [line for line in document.text.split("\n") if _uniform(line) < self.fraction]
            if lines:
                yield replace(document, text="\n".join(lines))

    def encodings(self) -> dict[str, str]:
        return self.source.encodings()

    def digest(self) -> str:
        return f"{self.source.digest()} sampled {self.fraction!r}"

    def size(self) -> int:
        return round(self.source.size() * self.fraction)


@dataclass(frozen=True, repr=False)
class MultilingualCorpus(Corpus):
    """A corpus of several texts, each with its language or, of parallel text, its two languages."""

    texts: tuple[LanguageText, ...] = ()
    alpha: float = 1.0
    """The exponent of `vocabulary_sample`."""

    @property
    def languages(self) -> tuple[str, ...]:
        """All languages, in the order in which they were named."""
        return tuple(dict.fromkeys(language for text in self.texts for language in text.languages))

    @property
    def translations(self) -> list[LanguageText]:
        """The parallel texts."""
        return [text for text in self.texts if len(text.languages) == 2]

    def monolingual(self, *, with_sides: bool) -> list[LanguageText]:
        """A text for each language: its own, with those sides of parallel text that are in it.

        Unless `with_sides`, such sides are taken only where there is no other text of the language.
        """
        found = []
        for language in self.languages:
            own = [text.corpus for text in self.texts if text.languages == (language,)]
            sides = self._sides(language) if with_sides or not own else []
            first = own[0] if own else replace(sides[0], inputs=())
            inputs = tuple(one for corpus in [*own, *sides] for one in corpus.inputs)
            found.append(LanguageText(replace(first, inputs=inputs), (language,)))
        return found

    def vocabulary_sample(self) -> Corpus:
        """A corpus in which each language has a share proportional to p^alpha, p being its fraction of all lines.

        Nothing is repeated: of the language that should become most frequent all text is taken, of others a part.
        """
        texts = self.monolingual(with_sides=True)
        lines = [max(1, _count_lines(text.corpus)) for text in texts]
        factors = [float(count) ** (self.alpha - 1) for count in lines]
        fractions = [factor / max(factors) for factor in factors]
        inputs = [
            one if fraction == 1 else SampledInput(one, fraction)
            for text, fraction in zip(texts, fractions, strict=True)
            for one in text.corpus.inputs
        ]
        return Corpus(tuple(inputs), self.layout, segmenter=self.segmenter)

    def key(self) -> str:
        return f"{super().key()} {' '.join('-'.join(text.languages) for text in self.texts)}"

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"languages": list(self.languages)}

    def _sides(self, language: str) -> list[Corpus]:
        """The sides of parallel texts that are in a language."""
        return [
            Corpus(
                tuple(
                    SideInput(one, text.languages.index(language))
                    for one in text.corpus.inputs
                    if isinstance(one, ParallelInput)
                ),
                "lines",
                segmenter=self.segmenter,
            )
            for text in self.translations
            if language in text.languages
        ]


def read_multilingual(
    *texts: Any,
    field: str = "text",
    encoding: str | None = None,
    layout: str = "auto",
    alpha: float = 1.0,
    language: str = "",
) -> MultilingualCorpus:
    """The corpus of texts `LANGUAGE=FILE`, of mappings from languages to texts, and of files of pairs.

    Other texts are taken for `language`, if it is given.

    >>> corpus = read_multilingual({"en": [["a dog"]], "zh": [["一只狗"]]})
    >>> corpus.languages, [document.sentences for document in corpus]
    (('en', 'zh'), [('a dog',), ('一只狗',)])
    """
    found: list[LanguageText] = []
    pairs: dict[tuple[str, ...], list[str]] = {}
    for text in texts:
        for name, content in _named(text, language):
            if name is not None:
                if any(one.languages == (name,) for one in found):
                    raise CorpusError(
                        f"{name} is given twice: name one text for each language, a folder or a glob if it has "
                        f"several files ({name}='news/*.txt')."
                    )
                found.append(LanguageText(_read(content, field, encoding, layout), (name,)))
            elif isinstance(content, ParallelCorpus):
                found.append(LanguageText(content, _languages(content)))
            else:
                corpus = read_parallel(content, encoding=encoding)
                pairs.setdefault(_languages(corpus), []).append(content)
    found += [LanguageText(read_parallel(*files, encoding=encoding), names) for names, files in pairs.items()]
    if not found:
        raise CorpusError("no corpus was given: name texts as en=FILE, or files of pairs.")
    inputs = tuple(one for text in found for one in text.corpus.inputs)
    chosen = found[0].corpus.layout
    return MultilingualCorpus(inputs, chosen, segmenter=found[0].corpus.segmenter, texts=tuple(found), alpha=alpha)


def _read(content: Any, field: str, encoding: str | None, layout: str) -> Corpus:
    return (
        content if isinstance(content, Corpus) else read_corpus(content, field=field, encoding=encoding, layout=layout)
    )


def _named(text: Any, default: str) -> Iterable[tuple[str | None, Any]]:
    """(language, text) for each text that is given; no language for parallel text."""
    if isinstance(text, Mapping):
        return [(str(name), content) for name, content in text.items()]
    if isinstance(text, MultilingualCorpus):
        return [(one.languages[0] if len(one.languages) == 1 else None, one.corpus) for one in text.texts]
    if isinstance(text, ParallelCorpus):
        return [(None, text)]
    if isinstance(text, str) and (match := _NAMED.fullmatch(text)):
        return [(match[1], match[2])]
    if isinstance(text, str | Path) and _is_table(str(text)):
        return [(None, str(text))]
    if default:
        return [(default, text)]
    name = str(text) if isinstance(text, str | Path) else "a text"
    raise CorpusError(
        f"the language of {name} is not said: write it before the file, such as en={Path(name).name}; only files of "
        "pairs name their languages themselves, in the header."
    )


def _is_table(name: str) -> bool:
    """Whether a name is that of a file of pairs, by its suffix."""
    if name == "-" or name.startswith(PREFIX):
        return False
    files = find_files([name])
    suffixes = [Path(file.path.stem if file.compression else file.path.name).suffix for file in files]
    return bool(suffixes) and all(suffix in _PAIRS for suffix in suffixes)


def _languages(corpus: ParallelCorpus) -> tuple[str, str]:
    if corpus.languages[0] == corpus.languages[1]:
        raise CorpusError(
            f"both columns of {corpus.inputs[0].title()} are called {corpus.languages[0]}: name two languages in the "
            "header, such as en and zh."
        )
    return corpus.languages


def _count_lines(corpus: Corpus) -> int:
    return sum(bool(line.strip()) for document in corpus.raw_documents() for line in document.text.split("\n"))


def _uniform(line: str) -> float:
    number = hashlib.blake2b(line.encode(errors="replace"), digest_size=8, person=b"firth-sample").digest()
    return int.from_bytes(number, "big") / 2**64
