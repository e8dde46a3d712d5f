"""Texts sampled from the grammars written here, and the exact score of a perfect model of them.

A document draws its topic, all alike likely; its sentences are then independent draws from that topic's
grammar. So there are two floors, and both are exact:

    entropy_given_topic_bits   of a sentence whose topic is known: what a perfect model of long documents nears
    entropy_per_sentence_bits  of a sentence by itself: what a perfect model of single sentences scores

The entropy of a document of n sentences lies between n times the first and that plus log2(number of topics).
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
from firth.text.document import RawDocument
from firth.text.grammar import Alternative, Grammar, choose, posterior_bits, surface

_Choice = TypeVar("_Choice")

MARKOV_WORDS = ("ba", "di", "ko", "lu", "me", "ni", "po", "ta")


@dataclass(frozen=True, slots=True)
class OracleSentence:
    """A sampled sentence with what is known of it: its words, end mark included, and the sense of each."""

    text: str
    words: tuple[str, ...]
    senses: tuple[str | None, ...]
    topic: str


@dataclass(frozen=True, eq=False)
class OracleSource:
    """Grammars of equally likely topics, all with the same rules, which must be unambiguous.

    `classes` names the words of each class; `swaps` gives for a word the forms that break the agreement it takes
    part in, and `bridges` the words that stand between the two ends of an agreement.

    >>> source = oracle_source("markov1")
    >>> next(source.sample(0, 1, 1)).text
    'ko ba ba ta ta ta ta ta ba ta ta di ta ba.'
    >>> round(source.entropy_per_word_bits, 3)
    2.425
    """

    name: str
    grammars: Mapping[str, Grammar]
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    swaps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bridges: frozenset[str] = frozenset()

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics."""
        return tuple(self.grammars)

    @cached_property
    def senses(self) -> dict[str, tuple[str, ...]]:
        """The senses of every ambiguous word: the classes that it, or its object, belongs to."""
        found: dict[str, set[str]] = defaultdict(set)
        for grammar in self.grammars.values():
            for terminal in grammar.terminals:
                word, marked, sense = terminal.strip().partition("|")
                if marked:
                    found[word].add(sense)
        return {word: tuple(sorted(found[word])) for word in sorted(found)}

    def sample(self, seed: int, sentences_per_document: int, documents: int) -> Iterator[RawDocument]:
        """Documents of one sentence a line; the same for the same arguments on every machine."""
        for index in range(documents):
            sentences = self.sample_document(seed, index, sentences_per_document)
            yield RawDocument("\n".join(s.text for s in sentences), f"{self.name}:{index}")

    def sample_document(self, seed: int, index: int, sentences: int) -> tuple[OracleSentence, ...]:
        """The labelled sentences of document number `index`, made without making those before it."""
        rng = random.Random(f"{self.name} {seed} {index}")
        topic = _draw(self.topics, rng)
        return tuple(_label(self.grammars[topic].sample(rng), topic) for _ in range(sentences))

    def log_probability(self, sentence: str) -> float:
        """The exact log-probability of a sentence by itself, in nats; -inf if the source cannot make it."""
        return self.document_log_probability((sentence,))

    def document_log_probability(self, sentences: Sequence[str]) -> float:
        """The exact log-probability of the sentences of a document, whose unknown topic they share, in nats."""
        given = [math.fsum(map(grammar.log_probability, sentences)) for grammar in self.grammars.values()]
        best = max(given)
        if best == -math.inf:
            return best
        return best + math.log(math.fsum(math.exp(g - best) for g in given) / len(given))

    def minimal_pairs(self, seed: int, n: int) -> list[tuple[str, str]]:
        """Pairs of a sentence and its twin with one word changed, which breaks an agreement: it is impossible.

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
            places = [i for i, t in enumerate(good) if t.strip() in self.swaps]
            if places and any(t.strip() in self.bridges for t in good):
                place = _draw(places, rng)
                word = good[place].strip()
                bad = [*good[:place], good[place].replace(word, _draw(self.swaps[word], rng)), *good[place + 1 :]]
                yield "".join(map(surface, good)), "".join(map(surface, bad))

    @cached_property
    def entropy_given_topic_bits(self) -> float:
        """The exact entropy of a sentence when the topic of its document is known."""
        return self._mean(lambda grammar: grammar.entropy_bits)

    @cached_property
    def entropy_per_sentence_bits(self) -> float:
        """The exact entropy of a sentence by itself: H(X) = H(X|T) + H(T) - H(T|X)."""
        unknown = math.log2(len(self.topics)) - posterior_bits(list(self.grammars.values()))
        return self.entropy_given_topic_bits + unknown

    @property
    def entropy_per_word_bits(self) -> float:
        """Bits of a sentence by itself for each of its words, its end (the full stop) counted as a word."""
        return self.entropy_per_sentence_bits / self.expected_words

    @property
    def entropy_per_byte_bits(self) -> float:
        """Bits of a sentence by itself for each of its UTF-8 bytes, the line break not counted."""
        return self.entropy_per_sentence_bits / self.expected_bytes

    @cached_property
    def expected_words(self) -> float:
        """The expected number of words of a sentence, its end (the full stop) counted as a word."""
        return self._mean(lambda grammar: grammar.expected(lambda word: 1.0))

    @cached_property
    def expected_bytes(self) -> float:
        """The expected number of UTF-8 bytes of a sentence, the line break not counted."""
        return self._mean(lambda grammar: grammar.expected(lambda word: len(word.encode())))

    def _mean(self, measure: Callable[[Grammar], float]) -> float:
        return math.fsum(map(measure, self.grammars.values())) / len(self.grammars)


def oracle_names() -> tuple[str, ...]:
    """The names of the oracle sources."""
    return ("english", "chinese", "markov1", "markov2")


@cache
def oracle_source(name: str) -> OracleSource:
    """The source of that name."""
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
    """The documents of an oracle corpus; with the defaults those of `builtin:oracle`."""
    return oracle_source(name).sample(seed, sentences_per_document, documents)


def markov_grammar(order: int) -> Grammar:
    """A word-level Markov chain with sentence end: a grammar with one symbol per history of up to `order` words."""
    words = MARKOV_WORDS
    histories = [h for n in range(order + 1) for h in product(range(len(words)), repeat=n)]
    names = {h: "S" if not h else "AFTER " + " ".join(words[i] for i in h) for h in histories}
    rules = {}
    for history in histories:
        space = " " if history else ""
        # Any fixed skewed weights will do; these differ between histories and never vanish.
        key = sum((3 + 2 * place) * (word + 1) for place, word in enumerate(reversed(history)))
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
    return (*plain, *(word for word, homes in senses.items() if kind in homes))


def _draw(choices: Sequence[_Choice], rng: random.Random) -> _Choice:
    return choices[int(rng.random() * len(choices))]


def _label(terminals: list[str], topic: str) -> OracleSentence:
    return OracleSentence(
        text="".join(map(surface, terminals)),
        words=tuple(surface(t).strip() for t in terminals),
        senses=tuple(t.partition("|")[2] or None for t in terminals),
        topic=topic,
    )
