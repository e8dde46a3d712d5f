"""The built-in corpora, none of them stored in the package; and oracles, whose perfect model's score is known exactly.

The topic of an oracle's document is uniformly distributed; its sentences are independent samples of that topic's
grammar. The entropy of a document of n sentences lies between n times `entropy_given_topic_bits`, the limit of a
perfect model on long documents, and that plus log2(number of topics). A single sentence has
`entropy_per_sentence_bits`.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import count, islice, product
from typing import TypeVar

from firth.errors import CorpusError, near_miss
from firth.text import oracle_grammars as grammars
from firth.text.grammar import Alternative, Grammar, choose, posterior_bits, surface
from firth.text.layout import RawDocument
from firth.text.pydoc import pydoc_documents

_Choice = TypeVar("_Choice")

PREFIX = "builtin:"
_ORACLES = {"oracle": "english"} | {f"oracle-{name}": name for name in ("chinese", "markov1", "markov2")}
MARKOV_WORDS = ("ba", "di", "ko", "lu", "me", "ni", "po", "ta")


@dataclass(frozen=True, slots=True)
class OracleSentence:
    """A sampled sentence with its words, final punctuation included, and the sense of each."""

    text: str
    words: tuple[str, ...]
    senses: tuple[str | None, ...]
    topic: str


@dataclass(frozen=True, eq=False)
class OracleSource:
    """Grammars of equally likely topics, all with the same rules, which must be unambiguous.

    >>> source = oracle_source("markov1")
    >>> next(source.sample(0, 1, 1)).text
    'ko ba ba ta ta ta ta ta ba ta ta di ta ba.'
    >>> round(source.entropy_per_word_bits, 3)
    2.425
    """

    name: str
    grammars: Mapping[str, Grammar]
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the words of each class
    swaps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # word -> forms that break its agreement
    bridges: frozenset[str] = frozenset()  # words that occur between agreeing words

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self.grammars)

    @cached_property
    def senses(self) -> dict[str, tuple[str, ...]]:
        """The senses of every ambiguous word: its possible classes, or those of its object."""
        found: dict[str, set[str]] = defaultdict(set)
        for grammar in self.grammars.values():
            for terminal in grammar.terminals:
                word, marked, sense = terminal.strip().partition("|")
                if marked:
                    found[word].add(sense)
        return {word: tuple(sorted(found[word])) for word in sorted(found)}

    def sample(self, seed: int, sentences_per_document: int, documents: int) -> Iterator[RawDocument]:
        """Documents with one sentence per line; the same arguments give the same documents on every machine."""
        for index in range(documents):
            sentences = self.sample_document(seed, index, sentences_per_document)
            yield RawDocument("\n".join(s.text for s in sentences), f"{self.name}:{index}")

    def sample_document(self, seed: int, index: int, sentences: int) -> tuple[OracleSentence, ...]:
        """The labelled sentences of document number `index`, independent of earlier documents."""
        rng = random.Random(f"{self.name} {seed} {index}")
        topic = _draw(self.topics, rng)
        return tuple(_label(self.grammars[topic].sample(rng), topic) for _ in range(sentences))

    def log_probability(self, sentence: str) -> float:
        """The exact log-probability (nats) of a single sentence; -inf if the source cannot generate it."""
        return self.document_log_probability((sentence,))

    def document_log_probability(self, sentences: Sequence[str]) -> float:
        """The exact log-probability (nats) of the sentences of a document with unknown topic."""
        given = [math.fsum(map(grammar.log_probability, sentences)) for grammar in self.grammars.values()]
        best = max(given)
        if best == -math.inf:
            return best
        return best + math.log(math.fsum(math.exp(g - best) for g in given) / len(given))

    def minimal_pairs(self, seed: int, n: int) -> list[tuple[str, str]]:
        """Pairs of a sentence and its copy with one word changed, which breaks an agreement and has probability 0.

        >>> oracle_source("english").minimal_pairs(0, 5)[4]
        ('the mushrooms near the clearing rot here.', 'the mushrooms near the clearing rots here.')
        """
        if not self.swaps:
            raise CorpusError(f"the source {self.name!r} has no agreement to break: choose english or chinese.")
        return list(islice(self._pairs(seed), n))

    def _pairs(self, seed: int) -> Iterator[tuple[str, str]]:
        for index in count():
            rng = random.Random(f"{self.name} pair {seed} {index}")
            good = self.grammars[self.topics[index % len(self.topics)]].sample(rng)
            candidates = [i for i, t in enumerate(good) if t.strip() in self.swaps]
            if candidates and any(t.strip() in self.bridges for t in good):
                position = _draw(candidates, rng)
                word = good[position].strip()
                bad = list(good)
                bad[position] = bad[position].replace(word, _draw(self.swaps[word], rng))
                yield "".join(map(surface, good)), "".join(map(surface, bad))

    @cached_property
    def entropy_given_topic_bits(self) -> float:
        return self._mean(lambda grammar: grammar.entropy_bits)

    @cached_property
    def entropy_per_sentence_bits(self) -> float:
        """The exact entropy of a single sentence: H(X) = H(X|T) + H(T) - H(T|X)."""
        unknown = math.log2(len(self.topics)) - posterior_bits(list(self.grammars.values()))
        return self.entropy_given_topic_bits + unknown

    @property
    def entropy_per_word_bits(self) -> float:
        return self.entropy_per_sentence_bits / self.expected_words

    @property
    def entropy_per_byte_bits(self) -> float:
        return self.entropy_per_sentence_bits / self.expected_bytes

    @cached_property
    def expected_words(self) -> float:
        """The expected number of words of a sentence; the full stop is a word."""
        return self._mean(lambda grammar: grammar.expected(lambda word: 1.0))

    @cached_property
    def expected_bytes(self) -> float:
        """The expected number of UTF-8 bytes of a sentence, without the newline."""
        return self._mean(lambda grammar: grammar.expected(lambda word: len(word.encode())))

    def _mean(self, measure: Callable[[Grammar], float]) -> float:
        return math.fsum(map(measure, self.grammars.values())) / len(self.grammars)


def oracle_names() -> tuple[str, ...]:
    return tuple(_ORACLES.values())


@cache
def oracle_source(name: str) -> OracleSource:
    if name == "english":
        return _english()
    if name == "chinese":
        return _chinese()
    if name in ("markov1", "markov2"):
        return OracleSource(name, {"any": markov_grammar(int(name[-1]))})
    raise CorpusError(f"no oracle source is called {name!r}: {near_miss(name, oracle_names())}")


def oracle_documents(
    name: str = "english", *, seed: int = 0, sentences_per_document: int = 10, documents: int = 2000
) -> Iterator[RawDocument]:
    return oracle_source(name).sample(seed, sentences_per_document, documents)


def markov_grammar(order: int) -> Grammar:
    """A word-level Markov chain with sentence end, as a grammar with one symbol per history of up to `order` words."""
    words = MARKOV_WORDS
    histories = [h for n in range(order + 1) for h in product(range(len(words)), repeat=n)]
    names = {h: "S" if not h else "AFTER " + " ".join(words[i] for i in h) for h in histories}
    rules = {}
    for history in histories:
        space = " " if history else ""
        # Arbitrary skewed weights that differ between histories and are never 0.
        key = sum((3 + 2 * position) * (word + 1) for position, word in enumerate(reversed(history)))
        rule: list[Alternative] = [
            (2.0 ** ((key * (i + 2) + 5 * i) % 7), (space + word, names[(*history, i)[-order:]]))
            for i, word in enumerate(words)
        ]
        if history:
            rule.append((0.12 * sum(weight for weight, _ in rule), (".",)))
        rules[names[history]] = choose(*rule)
    return Grammar(rules)


def _english() -> OracleSource:
    classes = {kind: _members(kind, grammars.ENGLISH_NOUNS, grammars.ENGLISH_SENSES) for kind in grammars.ENGLISH_NOUNS}
    verbs = [v for group in grammars.ENGLISH_VERBS.values() for words in group.values() for v in words.split()]
    swaps = {v: (grammars.add_s(v),) for v in verbs} | {grammars.add_s(v): (v,) for v in verbs}
    return OracleSource(
        "english",
        {topic: grammars.english_grammar(topic) for topic in grammars.ENGLISH_NOUNS["animals"]},
        {kind: tuple(form for w in words for form in (w, grammars.add_s(w))) for kind, words in classes.items()},
        swaps,
        frozenset(grammars.PREPOSITIONS),
    )


def _chinese() -> OracleSource:
    classifiers = tuple(grammars.CHINESE_CLASSIFIERS.values())
    return OracleSource(
        "chinese",
        {topic: grammars.chinese_grammar(topic) for topic in grammars.CHINESE_NOUNS["animals"]},
        {kind: _members(kind, grammars.CHINESE_NOUNS, grammars.CHINESE_SENSES) for kind in grammars.CHINESE_NOUNS},
        {word: tuple(other for other in classifiers if other != word) for word in classifiers},
        frozenset({"的"}),
    )


def _members(kind: str, nouns: Mapping[str, grammars.Words], senses: Mapping[str, grammars.Words]) -> tuple[str, ...]:
    plain = [word for words in nouns[kind].values() for word in words.split()]
    return (*plain, *(word for word, topics in senses.items() if kind in topics))


def _draw(choices: Sequence[_Choice], rng: random.Random) -> _Choice:
    return choices[int(rng.random() * len(choices))]


def _label(terminals: list[str], topic: str) -> OracleSentence:
    words = tuple(surface(t).strip() for t in terminals)
    senses = tuple(t.partition("|")[2] or None for t in terminals)
    return OracleSentence("".join(map(surface, terminals)), words, senses, topic)


def builtin_names() -> tuple[str, ...]:
    """The names of all built-in corpora, without `builtin:`.

    >>> builtin_names()
    ('pydoc', 'oracle', 'oracle-chinese', 'oracle-markov1', 'oracle-markov2')
    """
    return ("pydoc", *_ORACLES)


def builtin_documents(name: str) -> Iterator[RawDocument]:
    """The documents of a built-in corpus, always the same; the name may start with `builtin:`.

    >>> next(builtin_documents("builtin:oracle-chinese")).text.splitlines()[0]
    '两座木屋着火。'
    """
    name = _known(name)
    return pydoc_documents() if name == "pydoc" else oracle_documents(_ORACLES[name])


def entropy_of(name: str) -> dict[str, float] | None:
    """The exact entropy in bits of single sentences and (`_given_topic`) of long documents, or None if unknown.

    >>> round((entropy_of("oracle") or {})["bits_per_byte"], 4)
    0.6225
    """
    name = _known(name)
    if name == "pydoc":
        return None
    source = oracle_source(_ORACLES[name])
    single, given_topic = source.entropy_per_sentence_bits, source.entropy_given_topic_bits
    units = {"sentence": 1.0, "word": source.expected_words, "byte": source.expected_bytes}
    return {f"bits_per_{unit}": single / size for unit, size in units.items()} | {
        f"bits_per_{unit}_given_topic": given_topic / size for unit, size in units.items()
    }


def _known(name: str) -> str:
    bare = name.removeprefix(PREFIX)
    if bare not in builtin_names():
        full = [PREFIX + known for known in builtin_names()]
        raise CorpusError(f"no built-in corpus is called {bare!r}: {near_miss(PREFIX + bare, full)}")
    return bare
