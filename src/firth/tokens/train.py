"""Training a tokenizer on a corpus, and extending its vocabulary with that of another."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import models, pre_tokenizers

from firth.errors import TokenizerError
from firth.progress import progress
from firth.text.corpus import Corpus
from firth.text.readers import whole_lines
from firth.text.segment import Segmenter, make_segmenter
from firth.tokens import _kernels
from firth.tokens.encoder import ChunkTable, unsplittable_regex
from firth.tokens.merges import extend_merges, learn_merges
from firth.tokens.pieces import learn_pieces
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import UNK, Tokenizer, WordSplitter, add_specials, make_backend
from firth.tokens.workers import JobConfig, Message, run_job, with_progress

_SAMPLE = 2000  # sentences from which is decided whether words end at punctuation


def train_tokenizer(recipe: TokenizerRecipe, corpus: Corpus, threads: int | None = None) -> Tokenizer:
    """A tokenizer whose vocabulary is trained on `corpus`; the same text gives the same bytes on any machine."""
    recipe = resolve_recipe(recipe, corpus)
    return train_from_chunks(recipe, count_chunks(corpus, recipe, recipe.dictionary_path, threads))


def resolve_recipe(recipe: TokenizerRecipe, corpus: Corpus) -> TokenizerRecipe:
    """The recipe with `split="auto"` resolved from the text; a bad dictionary raises before any work."""
    make_segmenter(recipe.segmenter, recipe.dictionary_path)
    if recipe.model == "words" and recipe.split == "auto":
        return replace(recipe, split="space" if is_pretokenised(corpus.sentences()) else "punctuation")
    return recipe


def train_from_chunks(recipe: TokenizerRecipe, chunks: Mapping[str, int]) -> Tokenizer:
    return tokenizer_from_words(recipe, count_words(recipe, chunks))


def tokenizer_from_words(
    recipe: TokenizerRecipe, words: Mapping[str, int], dictionary: Path | None = None
) -> Tokenizer:
    """A tokenizer whose vocabulary is trained on word counts; `dictionary` overrides the recipe's."""
    dictionary = dictionary or recipe.dictionary_path
    if recipe.model in ("words", "chars"):
        vocabulary = [*recipe.specials, *most_frequent(words, recipe), *recipe.sentinel_tokens]
        data = _word_level_json(recipe, vocabulary)
        return Tokenizer(data.encode(), recipe, dictionary, vocabulary=vocabulary)
    data = _to_json(_train_model(recipe, words), recipe)
    return Tokenizer(data.encode(), recipe, dictionary)


def extend_tokenizer(tokenizer: Tokenizer, corpus: Corpus, vocab_size: int, threads: int | None = None) -> Tokenizer:
    """The tokenizer with new tokens from `corpus`, up to `vocab_size` in all; old ids are unchanged.

    Words and characters are added by frequency, WordPiece tokens and pieces from a vocabulary trained on the corpus.
    Byte-pair encodings continue merging.
    """
    capacity = vocab_size - len(tokenizer)
    if tokenizer.recipe.sentinels:
        raise TokenizerError("the sentinels are the last tokens, so the vocabulary cannot grow: adapt it as it is.")
    if capacity <= 0:
        raise TokenizerError(
            f"the vocabulary has {len(tokenizer)} tokens already: ask for more than that with --set vocab_size=N."
        )
    content = json.loads(tokenizer.backend.to_str())
    recipe = replace(tokenizer.recipe, vocab_size=vocab_size)
    words = count_words(recipe, count_chunks(corpus, recipe, tokenizer.dictionary, threads))
    if recipe.model in ("bpe", "byte-bpe"):
        added = _add_merges(content["model"], tokenizer, words, vocab_size)
    elif recipe.model == "pieces":
        added = _append_scored(content["model"]["vocab"], learn_pieces(words, vocab_size), capacity)
    else:
        if recipe.model == "wordpiece":
            tokens, _ = learn_merges(words, vocab_size - len(recipe.specials), prefix="##", min_count=recipe.min_count)
        else:
            tokens = most_frequent(words, replace(recipe, vocab_size=None))
        added = _append(content["model"]["vocab"], tokens, capacity)
    if added == 0:
        raise TokenizerError("the text holds no token that the vocabulary lacks: there is nothing to add.")
    return Tokenizer(json.dumps(content, ensure_ascii=False, indent=1).encode(), recipe, tokenizer.dictionary)


def add_words(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """A tokenizer of words with further ones; old ids are unchanged."""
    content = json.loads(tokenizer.backend.to_str())
    _append(content["model"]["vocab"], words, len(words))
    size = None if tokenizer.recipe.vocab_size is None else len(content["model"]["vocab"])
    recipe = replace(tokenizer.recipe, vocab_size=size)
    return Tokenizer(json.dumps(content, ensure_ascii=False, indent=1).encode(), recipe, tokenizer.dictionary)


def _append(vocabulary: dict[str, int], tokens: Iterable[str], capacity: int) -> int:
    """Append at most `capacity` tokens missing from the vocabulary; returns how many were added."""
    before = len(vocabulary)
    for token in tokens:
        if len(vocabulary) - before == capacity:
            break
        vocabulary.setdefault(token, len(vocabulary))
    return len(vocabulary) - before


def _append_scored(vocabulary: list[list[Any]], pieces: list[tuple[str, float]], capacity: int) -> int:
    """Append pieces with their log-probabilities, shifted to the scale of the pieces known to both."""
    known = dict(map(tuple, vocabulary))
    common = [(known[piece], score) for piece, score in pieces if piece in known and known[piece] < 0]
    shift = sum(old - new for old, new in common) / len(common) if common else 0.0
    new = [[piece, round(min(score + shift, 0.0), 6)] for piece, score in pieces if piece not in known][:capacity]
    vocabulary.extend(new)
    return len(new)


def _add_merges(model: dict[str, Any], tokenizer: Tokenizer, words: Mapping[str, int], size: int) -> int:
    specials = list(tokenizer.recipe.specials)
    before = len(model["vocab"])
    tokens, merges = extend_merges(
        words,
        tokenizer.vocabulary[len(specials) :],
        [(left, right) for left, right in model["merges"]],
        size - len(specials),
        min_count=tokenizer.recipe.min_count,
        new_characters=tokenizer.recipe.model == "bpe",
    )
    model["vocab"] = _vocabulary([*specials, *tokens])
    model["merges"] = [list(pair) for pair in merges]
    return len(model["vocab"]) - before


_GLUED = re.compile(r"\w(?:[,;:!?，、；：！？。](?!\d)|\.$)")


def is_pretokenised(sentences: Iterable[str]) -> bool:
    """Whether punctuation is separated from words already, as in the Penn Treebank.

    >>> is_pretokenised(["no , it was n't black monday", "but while the new york stock exchange did n't fall"])
    True
    >>> is_pretokenised(["No, it wasn't Black Monday.", "But the exchange, alas, fell."])
    False
    >>> is_pretokenised(["the barns burn.", "两座木屋着火。"])
    False
    """
    glued = words = 0
    for _, sentence in zip(range(_SAMPLE), sentences, strict=False):
        glued += len(_GLUED.findall(sentence))
        words += sentence.count(" ") + 1
    return glued <= 0.005 * words


def count_words(recipe: TokenizerRecipe, chunks: Mapping[str, int]) -> dict[str, int]:
    """Word -> count, where words are the character runs that no token crosses."""
    splitter = WordSplitter(recipe)
    counts = {chunk: count for chunk, count in chunks.items() if splitter.is_plain(chunk)}
    for chunk in [chunk for chunk in chunks if chunk not in counts]:
        for word in splitter.words(chunk):
            counts[word] = counts.get(word, 0) + chunks[chunk]
    return counts


def most_frequent(counts: Mapping[str, int], recipe: TokenizerRecipe) -> list[str]:
    """The words of the vocabulary by descending count, then alphabetically."""
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for word, count in counts.items():
        groups[count].append(word)
    kept = [
        word for count in sorted(groups, reverse=True) if count >= recipe.min_count for word in sorted(groups[count])
    ]
    if not kept:
        raise TokenizerError(
            f"no {recipe.model} occur at least {recipe.min_count} times: lower min_count or give more text."
        )
    return kept if recipe.vocab_size is None else kept[: recipe.vocab_size - len(recipe.specials)]


def _train_model(recipe: TokenizerRecipe, words: Mapping[str, int]) -> Any:
    unknown = recipe.specials[1]
    assert recipe.vocab_size is not None  # checked by the recipe
    size = recipe.vocab_size - len(recipe.specials)
    if recipe.model != "byte-bpe":  # a byte is never rare
        words = without_rare_characters(words, recipe.coverage)
    if recipe.model == "pieces":
        pieces = learn_pieces(words, size)
        return models.Unigram([(token, 0.0) for token in recipe.specials] + pieces, unk_id=UNK)
    alphabet = pre_tokenizers.ByteLevel.alphabet() if recipe.model == "byte-bpe" else ()
    prefix = "##" if recipe.model == "wordpiece" else ""
    tokens, merges = learn_merges(words, size, alphabet=alphabet, prefix=prefix, min_count=recipe.min_count)
    vocabulary = _vocabulary([*recipe.specials, *tokens])
    if recipe.model == "wordpiece":
        return models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=100)
    return models.BPE(vocabulary, merges, unk_token=None if recipe.model == "byte-bpe" else unknown)


def _to_json(model: Any, recipe: TokenizerRecipe) -> str:
    backend = make_backend(model, recipe)
    add_specials(backend, recipe)
    return json.dumps(json.loads(backend.to_str()), ensure_ascii=False, indent=1) + "\n"


def _word_level_json(recipe: TokenizerRecipe, vocabulary: list[str]) -> str:
    """The `tokenizer.json` of a word-level model, equal to that of `_to_json` but faster: the library is bypassed."""
    specials = list(recipe.specials)
    if recipe.sentinels:
        return _to_json(models.WordLevel(_vocabulary(vocabulary), unk_token=specials[1]), recipe)
    data = _to_json(models.WordLevel(_vocabulary(specials), unk_token=specials[1]), recipe)
    begin, _, end = data.partition(json_lines(specials))
    return begin + json_lines(vocabulary) + end


def json_lines(vocabulary: list[str]) -> str:
    """The lines of tokens and their ids in a `tokenizer.json`.

    >>> json_lines(["a", '"'])
    '   "a": 0,\\n   "\\\\"": 1'
    """
    return ",\n".join([f"   {encode_basestring(token)}: {index}" for index, token in enumerate(vocabulary)])


def without_rare_characters(words: Mapping[str, int], coverage: float) -> dict[str, int]:
    """The words without characters beyond the coverage, which would fill the vocabulary with thousands of rare ones.

    >>> without_rare_characters({"aab": 50, "añb": 1}, 0.99)
    {'aab': 50}
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    left = coverage * counts.total()
    rare = set()
    for character in sorted(counts, key=lambda character: (-counts[character], character)):
        if left <= 0:
            rare.add(character)
        left -= counts[character]
    return {word: count for word, count in words.items() if rare.isdisjoint(word)}


def _vocabulary(tokens: list[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


class TextStats:
    """The size of a text and a digest of its sentences and document starts, whatever file they were read from."""

    def __init__(self) -> None:
        self.bytes = 0
        self.words = 0
        """As `firth check` counts them, whatever the tokenizer."""
        self._sentences = 0
        self._text, self._documents = hashlib.sha256(), hashlib.sha256()
        self._at_document_end = True

    def add(self, message: Message) -> npt.NDArray[np.bool_]:
        """Add the sentences of the next block; returns which of them start a document."""
        text = message.arrays[0]
        starts_document = np.array(np.frombuffer(message.arrays[1], dtype=np.bool_))
        if starts_document.size:
            starts_document[0] |= self._at_document_end
            self._at_document_end = False
        self._at_document_end |= message.facts["ends_document"]
        self._text.update(text)
        self._documents.update((self._sentences + np.flatnonzero(starts_document)).astype(np.uint64).data)
        self._sentences += starts_document.size
        self.bytes += len(text) - starts_document.size
        self.words += message.facts["words"]
        return starts_document

    @property
    def digest(self) -> str:
        return hashlib.sha256(self._text.digest() + self._documents.digest()).hexdigest()


class ChunkCounter:
    """The distinct chunks of a text and their counts, merged from workers that number chunks independently."""

    def __init__(self, recipe: TokenizerRecipe) -> None:
        self._unsplittable = unsplittable_regex(recipe) if recipe.separable else None
        self._table = ChunkTable()
        self._counts = np.zeros(0, dtype=np.int64)
        self._numbers: dict[int, npt.NDArray[np.int32]] = {}  # by worker, of its chunks

    def __len__(self) -> int:
        return len(self._table)

    def add(self, message: Message) -> npt.NDArray[np.int32]:
        """Count the chunks of the next block; returns their numbers here, and -1 at each newline."""
        chunks = np.frombuffer(message.arrays[2], dtype=np.int32)
        chunks.flags.writeable = False
        worker = message.facts["worker"]
        known = self._numbers.get(worker, np.zeros(0, dtype=np.int32))
        numbers = np.concatenate([known[: message.facts["first"]], self._table.look_up_lines(message.arrays[3])])
        self._numbers[worker] = numbers
        new = len(self._table) - self._counts.size
        if new:
            self._counts = np.concatenate([self._counts, np.zeros(new, dtype=np.int64)])
        out = np.empty(chunks.size, dtype=np.int32)
        _kernels.renumber(chunks, numbers, self._counts, out)
        return out

    @cached_property
    def texts(self) -> list[str]:
        return self._table.texts()

    def blocks(self, size: int) -> Iterator[bytes]:
        """The chunks by number, one per line, in blocks of about `size` bytes."""
        lines = self._table.lines()
        return whole_lines((lines[begin : begin + size].tobytes() for begin in range(0, lines.size, size)), size)

    def counts(self, segmenter: Segmenter) -> dict[str, int]:
        """Chunk -> count; unsplittable lines get their word breaks here."""
        texts = self.texts
        if self._unsplittable is not None:
            texts = [segmenter.mark(text) if self._unsplittable.search(text) else text for text in texts]
        return dict(zip(texts, self._counts.tolist(), strict=True))


def chunk_corpus(
    corpus: Corpus, recipe: TokenizerRecipe, dictionary: Path | None, threads: int | None
) -> Iterator[Message]:
    """The chunks of each block of the corpus, in order: see `chunk_job`."""
    config = JobConfig("cut", recipe, corpus.layout, dictionary=dictionary)
    with progress("counting words", corpus.size()) as advance:
        yield from run_job(config, with_progress(corpus.blocks(), advance), threads)


def count_chunks(
    corpus: Corpus, recipe: TokenizerRecipe, dictionary: Path | None = None, threads: int | None = None
) -> dict[str, int]:
    """Chunk -> count, over all sentences of the corpus, segmented where words are not separated by spaces."""
    counter = ChunkCounter(recipe)
    for message in chunk_corpus(corpus, recipe, dictionary, threads):
        counter.add(message)
    return counter.counts(make_segmenter(recipe.segmenter, dictionary))
