"""Fuzz targets: readers of text, of labelled and evaluation files, of token stores and of the cache."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from firth.errors import CorpusError
from firth.fit.knowledge import NameFile, make_gazetteer
from firth.fit.labelled_pairs import count_labels, open_labelled_pairs, read_pair_labels
from firth.fit.mixed_corpus import kind_of
from firth.report.suite_files import read_contexts, read_labelled, read_pairs, read_questions, read_senses
from firth.tasks.knowledge import branch_text, graph_array, graph_from_array, read_graph
from firth.tasks.readers.reader import read_task
from firth.tasks.task_file import read_tasks
from firth.text.corpus import read_corpus
from firth.text.files import find_files
from firth.text.multilingual import read_multilingual
from firth.text.parallel import read_parallel
from firth.text.readers import read_lines
from firth.text.segment import make_segmenter
from firth.tokens.annotations import read_annotations
from firth.tokens.build import build_store, open_tokens
from firth.tokens.gazetteer import read_gazetteer
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import train_tokenizer
from tests.fuzz.fuzzing import FuzzReader
from tests.fuzz.mutators import mutate_bytes, mutate_path
from tests.samples import CHINESE, ENGLISH

TEXT = "\n".join([*ENGLISH, "", *CHINESE, "", *ENGLISH]) + "\n"
WORDS = TokenizerRecipe(model="words", min_count=1)


def zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.compress(data)


def unzstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdDecompressor().decompress(data)


COMPRESSORS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (partial(gzip.compress, mtime=0), gzip.decompress),
    ".bz2": (bz2.compress, bz2.decompress),
    ".xz": (lzma.compress, lzma.decompress),
    ".zst": (zstd, unzstd),
}


def write(files: dict[str, str | bytes], folder: Path) -> list[Path]:
    """Write files of these names and contents."""
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return [folder / name for name in files]


def records(*items: object) -> str:
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)


RECORDS = records(*({"text": one, "id": 3} for one in ENGLISH + CHINESE))
DICTIONARY = "研究自然 100000 n\n自然语言处理 100\n语言\n"


def text_samples(folder: Path) -> list[Path]:
    codes = ("utf-8", "utf-8-sig", "utf-16", "gb18030", "big5", "cp1252")
    contents = {
        "cp1252": "\n".join(ENGLISH[:2]) + "\nCafé naïve résumé\n" * 5,
        "gb18030": "\n".join([*CHINESE[:2], "", *CHINESE[:2]]) + "\n",
        "big5": "語言很有意思。\n我們研究語言。\n" * 5,
    }
    files: dict[str, str | bytes] = {f"{code}.txt": contents.get(code, TEXT).encode(code) for code in codes}
    return write(files | {"long.md": "word " * 3000 + "\n", "crlf.text": TEXT.replace("\n", "\r\n")}, folder)


def parquet_samples(folder: Path) -> list[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = []
    for kind in ("none", "snappy", "gzip", "zstd"):
        paths.append(folder / f"{kind}.parquet")
        pq.write_table(pa.table({"text": [*ENGLISH, *CHINESE] * 3, "id": list(range(18))}), paths[-1], compression=kind)
    return paths


def compressed_samples(folder: Path) -> list[Path]:
    return write({f"a.txt{suffix}": pack(TEXT.encode()) for suffix, (pack, _) in COMPRESSORS.items()}, folder)


def mutate_compressed(path: Path, rng: random.Random) -> None:
    """Change the compressed bytes, or the text inside them."""
    pack, unpack = COMPRESSORS[path.suffix]
    if rng.random() < 0.8:
        mutate_path(path, rng)
    else:
        path.write_bytes(pack(mutate_bytes(unpack(path.read_bytes()), rng)))


def read_whole(path: Path) -> None:
    """Read a corpus in every way that training and checking do."""
    corpus = read_corpus(path)
    assert sum(1 for _ in corpus) >= 0
    assert sum(len(block.data) for block in corpus.blocks()) >= 0
    corpus.key()


def read_all_lines(path: Path) -> None:
    for source in find_files([path]):
        assert all(isinstance(line, str) for _, line in read_lines(source))


QUESTION = {"id": "q1", "question": "who?", "answers": [{"text": "cat", "answer_start": 4}]}
PARAGRAPH = {"context": "the cat saw a cat", "qas": [QUESTION]}
LABELLED: dict[str, dict[str, str | bytes]] = {
    "classify": {
        "a.tsv": "label\ttext_a\ngood\ta fine film\nbad\ta dull one\n",
        "a.txt": "__label__good a fine film\n__label__bad __label__sad a dull one\n",
        "a.jsonl": records({"label": "good", "text": "a fine film"}, {"labels": ["bad", "sad"], "text": "好"}),
    },
    "pair": {
        "a.tsv": "label\ttext_a\ttext_b\n1\ta cat\ta dog\n0\ta cat\tcats\n",
        "a.jsonl": records({"label": 3.5, "text_a": "a", "text_b": "b"}, {"label": 1, "text_a": "x", "text_b": "y"}),
    },
    "typing": {
        "a.jsonl": records({"left": ["in"], "mention": "New York", "right": ["."], "types": ["city", "place"]}),
        "a.tsv": "labels\ttext\tstart\tend\ncity, place\tin New York\t3\t11\nriver\tRhine\t0\t5\n",
    },
    "relation": {
        "a.jsonl": records({"label": "in", "text": "Rome, Italy", "head": [0, 4], "tail": [6, 11]}),
        "a.tsv": "label\ttext\thead\ttail\nin\tRome is in Italy\t0:4\t11:16\nof\tItaly\t0:1\t1:5\n",
    },
    "tag": {
        "a.txt": "EU B-ORG\nrejects O\nGerman B-MISC\ncall O\n\nPeter B-PER\nBlack I-PER\n",
        "a.conllu": "# text = cats ran\n1\tcats\tcat\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n"
        "2\tran\trun\tVERB\tVBD\t_\t0\troot\t_\t_\n\n",
        "slashed.txt": "迈向/v 充满/v 希望/n\nwe/PRP saw/VBD it/PRP\n",
        "a.jsonl": records({"words": ["we", "saw"], "tags": ["O", "O"]}, {"tokens": ["a"], "tags": ["B-X"]}),
    },
    "span": {
        "a.json": json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [PARAGRAPH]}]}),
        "a.jsonl": records(
            {"context": "the cat saw", "question": "who?", "answers": {"text": ["cat"], "answer_start": [4]}}
        ),
    },
    "choice": {
        "a.jsonl": records({"context": "it rained", "question": "so?", "choices": ["wet", "dry"], "label": 0}),
    },
    "generate": {
        "a.tsv": "source\ttarget\na long text\tshort\n好的\tgood\n",
        "a.jsonl": records({"source": "a long text", "target": "short"}),
    },
}


def read_labelled_task(task: str, path: Path) -> None:
    """Read examples with labels, without them, and with invalid ones skipped; all must be writable as UTF-8."""
    skipping = read_task(task, path, skip_bad=True)
    for reader in (read_task(task, path, labelled=False), skipping, read_task(task, path)):
        with suppress(CorpusError):
            json.dumps([asdict(example) for example in reader], ensure_ascii=False).encode()
    skipping.notes()
    list(read_task(task, path))


SUITES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "word-pairs": (read_pairs, "word1\tword2\tscore\ntiger\tcat\t7.35\ncar automobile 9\n"),
    "analogies": (read_questions, ": capitals\nAthens Greece Oslo Norway\nRome Italy Paris France\n"),
    "contexts": (
        read_contexts,
        "1\tbank\tn\tmoney\tn\ton the <b> bank </b>\tthe <b>money</b> ran\t3.5\n2\ta\tn\tb\tn\tx\ty\t1\n",
    ),
    "senses": (
        read_senses,
        "label\tword\tpos\tindex_a\tindex_b\ttext_a\ttext_b\nT\tbank\tN\t1\t0\tthe bank\tbank notes\n",
    ),
    "labelled-texts": (read_labelled, "label\ttext_a\ngood\ta fine film\nbad\ta dull one\n"),
}


@cache
def words() -> Tokenizer:
    return train_tokenizer(WORDS, read_corpus([ENGLISH, CHINESE]))


def store_samples(folder: Path) -> list[Path]:
    store = build_store(read_corpus([ENGLISH, CHINESE] * 2), words(), folder, threads=1)
    return [store.folder]


def read_store(path: Path) -> None:
    """Open a store as it is found in the cache, and follow all its offsets."""
    store = TokenStore(path)
    store.verify()
    assert int(store.ids.max()) < len(words())
    assert sum(sentence.size for index in range(store.info.documents) for sentence in store.document(index)) == len(
        store
    )


def use_cache(folder: Path) -> tuple[bytes, str]:
    before = os.environ.get("FIRTH_CACHE")
    os.environ["FIRTH_CACHE"] = str(folder)
    try:
        tokenizer, store = open_tokens(WORDS, read_corpus([ENGLISH, CHINESE]), threads=1)
        store.verify()
        return tokenizer.data, store.digest
    finally:
        if before is None:
            del os.environ["FIRTH_CACHE"]
        else:
            os.environ["FIRTH_CACHE"] = before


def cache_samples(folder: Path) -> list[Path]:
    assert use_cache(folder / "cache") == expected_tokens()
    return [folder / "cache"]


@cache
def expected_tokens() -> tuple[bytes, str]:
    with TemporaryDirectory() as folder:
        return use_cache(Path(folder))


def read_cache(path: Path) -> None:
    """Whatever the cache contains, the same tokens come out of it."""
    with redirect_stderr(io.StringIO()):  # of notes
        assert use_cache(path) == expected_tokens()


ANNOTATED = records({"text": "in New York", "spans": [{"start": 3, "end": 11, "entity": "new york"}]})
NAMES = "entity\tname\tprior\nnew york\tBig Apple\t1\nrome\t罗马\t\n"


def read_names(path: Path) -> None:
    make_gazetteer(NameFile(path, lambda name: 1 + len(name) % 3, np.ones(3)).read(), "names")


def read_dictionary(path: Path) -> None:
    make_segmenter("rjieba", path).mark(CHINESE[0])


TASK_FILE = """mixing = "sqrt"

[[task]]
name = "one"
task = "classify"
train = "a.tsv"
dev = "builtin:pydoc"
weight = 0.5
columns = { text_a = "review" }

[[task]]
name = "two"
task = "tag"
train = "b.txt"
dev = "b.txt"
set = { "head.crf" = true, head.dropout = 0.3 }
"""

PAIRS = list(zip(ENGLISH, CHINESE, strict=True))


def read_table_pairs(path: Path) -> None:
    """Read a table of pairs as training and scoring do, also with the columns named in the other order."""
    for pair in ("zh,en", None):
        with suppress(CorpusError):
            list(read_parallel(path, pair=pair).pairs())
    corpus = read_parallel(path)
    json.dumps(list(corpus.pairs()), ensure_ascii=False).encode()
    corpus.key()
    with TemporaryDirectory() as folder:
        build_store(corpus, words(), Path(folder), threads=1).verify()


def read_labelled_pairs(path: Path) -> None:
    """Read labelled pairs as training does, with the labels of the documents of their store."""
    kind_of(path)
    corpus = open_labelled_pairs([path])
    count_labels(corpus)
    corpus.key()
    with TemporaryDirectory() as folder:
        store = build_store(corpus, words(), Path(folder), threads=1)
        labels = read_pair_labels(corpus, store, words(), ("entailment", "neutral"), complete=False)
        assert len(labels) == store.info.documents


def line_pairs(folder: Path) -> list[Path]:
    """A folder with two files whose lines correspond."""
    for name, lines in (("a.en", ENGLISH), ("a.zh", CHINESE)):
        write({name: "\n".join(lines) + "\n"}, _made(folder / "lines"))
    return [folder / "lines"]


def read_line_pairs(path: Path) -> None:
    corpus = read_parallel(pair=f"{path / 'a.en'},{path / 'a.zh'}")
    json.dumps(list(corpus.pairs()), ensure_ascii=False).encode()
    corpus.key()


def language_samples(folder: Path) -> list[Path]:
    """A folder with texts of two languages, and their translations."""
    table = "\n".join(["en\tzh", *("\t".join(pair) for pair in PAIRS)]) + "\n"
    files: dict[str, str | bytes] = {"en.txt": "\n".join(ENGLISH), "zh.txt": "\n".join(CHINESE) * 3, "pairs.tsv": table}
    write(files, _made(folder / "texts"))
    return [folder / "texts"]


def read_languages(path: Path) -> None:
    """Read texts of several languages as training does."""
    corpus = read_multilingual(f"en={path / 'en.txt'}", f"zh={path / 'zh.txt'}", str(path / "pairs.tsv"), alpha=0.5)
    assert sum(1 for _ in corpus) >= 0
    assert sum(1 for text in corpus.monolingual(with_sides=True) for _ in text.corpus) >= 0
    assert sum(1 for _ in corpus.vocabulary_sample()) >= 0
    corpus.key()


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def read_facts(path: Path) -> None:
    """A graph is read, shuffled and saved; its names are found in texts."""
    graph = read_graph(path).shuffled(1).first(2)
    assert graph_from_array(graph_array(graph), graph.digest).triples == graph.triples
    for text in ENGLISH + CHINESE:
        assert all(text[begin:end] in graph.facts for begin, end in graph.find(text))
    for triple in graph.triples:
        assert branch_text(triple, True)


READERS: Sequence[FuzzReader] = (
    FuzzReader("text", text_samples, read_whole),
    FuzzReader("lines", text_samples, read_all_lines),
    FuzzReader(
        "jsonl",
        partial(write, {"a.jsonl": records(*({"text": one, "id": 3} for one in ENGLISH + CHINESE))}),
        read_whole,
    ),
    FuzzReader("parquet", parquet_samples, read_whole),
    FuzzReader("compressed", compressed_samples, read_whole, mutate_compressed),
    FuzzReader("dictionary", partial(write, {"words.txt": DICTIONARY}), read_dictionary, short=3),
    FuzzReader(
        "gazetteer",
        partial(write, {"a.txt": "New York\n北京\n", "a.spo": "巴黎\t首都\t法国\nIre\tis\tland\n"}),
        read_gazetteer,
    ),
    FuzzReader("annotations", partial(write, {"a.jsonl": ANNOTATED}), lambda path: read_annotations(path, len)),
    FuzzReader("names", partial(write, {"a.tsv": NAMES, "b.tsv": "York\tnew york\t3\n"}), read_names),
    FuzzReader(
        "facts", partial(write, {"a.spo": "语言\t首都\t法国\n语言\t是\tb\nbrown fox\tis in\tUSA\n"}), read_facts
    ),
    *(
        FuzzReader(task, partial(write, samples), partial(read_labelled_task, task))
        for task, samples in LABELLED.items()
    ),
    *(FuzzReader(name, partial(write, {"a.txt": sample}), read) for name, (read, sample) in SUITES.items()),
    FuzzReader(
        "parallel",
        partial(
            write,
            {
                "a.tsv": "\n".join(["en\tzh\tid", *(f"{one}\t{two}\t1" for one, two in PAIRS)]) + "\n",
                "a.jsonl": records(*({"en": one, "zh": two, "id": "1"} for one, two in PAIRS)),
            },
        ),
        read_table_pairs,
    ),
    FuzzReader(
        "labelled-pairs",
        partial(
            write,
            {
                "a.tsv": "\n".join(["label\ttext_a\ttext_b", *(f"neutral\t{one}\t{two}" for one, two in PAIRS)]) + "\n",
                "a.jsonl": records(*({"gold_label": "-", "sentence1": one, "sentence2": two} for one, two in PAIRS)),
            },
        ),
        read_labelled_pairs,
    ),
    FuzzReader("parallel-lines", line_pairs, read_line_pairs),
    FuzzReader("multilingual", language_samples, read_languages),
    FuzzReader("task-file", partial(write, {"tasks.toml": TASK_FILE}), read_tasks),
    FuzzReader("store", store_samples, read_store),
    FuzzReader("cache", cache_samples, read_cache, short=20),
)
