"""Every kind of trainer and writer as a small command, for `kill.py`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_DOCUMENTS = 24
_EXAMPLES = 24


@dataclass(frozen=True)
class Kind:
    """A command that writes `OUT`; words such as `IN/text.txt` and `IN/bert` name the inputs."""

    name: str
    command: str
    resumes: bool = False
    """Whether it takes --resume."""
    suffix: str = ""
    """Of the file it writes; empty: a folder."""
    forces: bool = False
    """Whether it takes --force to replace a file."""

    def arguments(self, inputs: Path, out: Path) -> list[str]:
        words = self.command.replace("IN/", f"{inputs}/").split()
        return [str(out) if word == "OUT" else word for word in words] + (["--force"] if self.forces else [])

    def repeated(self, inputs: Path, out: Path) -> list[str]:
        """The arguments that continue an interrupted command, or run it again."""
        return self.arguments(inputs, out) + (["--resume"] if self.resumes else [])


_TINY = "--set embedding.width=16 --set encoder.width=16"
_TRANSFORMER = f"{_TINY} --set encoder.ffn_width=32 --set encoder.heads=2 --set encoder.layers=1"
_BRIEF = "--budget 1ktok --set sequence.length=16 --set learning.batch=64"
_NETS = {
    "xu-bigram": "--budget 3ktok",
    "ffnn": "--budget 3ktok --size tiny",
    "lbl": "--budget 3ktok --size tiny",
    "hlbl": "--budget 3ktok --size tiny",
    "senna": "--budget 3ktok --size tiny",
    "rnn": f"--budget 3ktok {_TINY}",
    "lstm": f"--budget 3ktok {_TINY}",
    "sa-lstm": f"--budget 3ktok {_TINY}",
    "ulmfit": f"--budget 2ktok {_TINY} --set encoder.inner_width=24 --set learning.batch=128",
    "context2vec": f"--budget 2ktok {_TINY} --set learning.batch=64",
    "cnn-lm": f"--budget 3ktok {_TINY} --set encoder.layers=2",
    "elmo": f"--budget 1ktok {_TINY} --set encoder.ffn_width=32 --set encoder.layers=1",
    "gpt": f"{_BRIEF} {_TRANSFORMER}",
    "gpt2": f"{_BRIEF} {_TRANSFORMER}",
    "bert": f"{_BRIEF} {_TRANSFORMER}",
    "bert-wwm": f"{_BRIEF} {_TRANSFORMER}",
    "ernie": f"{_BRIEF} {_TRANSFORMER}",
    "ernie2": f"{_BRIEF} {_TRANSFORMER}",
    "roberta": f"{_BRIEF} {_TRANSFORMER}",
    "albert": f"{_BRIEF} {_TRANSFORMER}",
    "spanbert": f"{_BRIEF} {_TRANSFORMER}",
    "electra": f"{_BRIEF} {_TRANSFORMER}",
    "transformer-xl": f"{_BRIEF} {_TRANSFORMER} --set memory.length=16",
    "unilm": f"{_BRIEF} {_TRANSFORMER}",
    "gpt-bert": f"{_BRIEF} {_TRANSFORMER}",
    "firth": f"{_BRIEF} {_TRANSFORMER}",
    "simcse": f"{_BRIEF} {_TRANSFORMER}",
    "skip-thoughts": f"{_BRIEF} {_TINY}",
    "quick-thoughts": f"{_BRIEF} {_TINY}",
    "xlnet": f"{_BRIEF} {_TRANSFORMER} --set memory.length=16",
}
_DECODER = "--set decoder.width=16 --set decoder.ffn_width=32 --set decoder.heads=2 --set decoder.layers=1"
_RESTORING = ("bart", "t5", "t5-1.1", "mass")
_GROUPS = "--set sequence.length=64 --set nli.hidden=8"
_FEW = "--set dimension=10"
_VECTORS = {
    "onehot": "",
    "tfidf": "",
    "lsa": _FEW,
    "brown": "--set clusters=10",
    "ppmi-svd": _FEW,
    "multi-prototype": "--set base.dimension=10 --set base.epochs=8",
    "cbow": f"{_FEW} --set epochs=8",
    "skipgram": f"{_FEW} --set epochs=8",
    "phrases": f"{_FEW} --set epochs=8",
    "glove": f"{_FEW} --set epochs=8",
    "pv-dm": f"{_FEW} --set epochs=8",
    "pv-dm-concat": f"{_FEW} --set epochs=8",
    "pv-dbow": f"{_FEW} --set epochs=8",
    "sif": "--set base.dimension=10 --set base.epochs=8",
    "fasttext": f"{_FEW} --set epochs=8 --set buckets=100",
}
_COUNTS = (
    *("unigram", "good-turing", "katz3", "jelinek-mercer", "bayes", "mkn3", "pitman-yor", "stupid-backoff"),
    *("decaying-cache", "kn5-cache", "mixture", "maxent", "class-ngram"),
)
_TOKENIZERS = ("words", "chars", "wordpiece", "bpe", "pieces", "byte-bpe")
_EXAMPLE_FILES = "--train IN/train.tsv --dev IN/dev.tsv"
_EPOCHS = "--set learning.epochs=2 --threads 1"

_FURTHER = {
    "train transformer": Kind(
        "", f"train transformer IN/pairs.tsv -o OUT --threads 1 {_BRIEF} {_TRANSFORMER} {_DECODER}", resumes=True
    ),
    "train transe": Kind(
        "", "train transe IN/graph.tsv -o OUT --threads 1 --set epochs=30 --set batch=16", resumes=True
    ),
    "train ernie-thu": Kind(
        "",
        f"train ernie-thu IN/text.txt --knowledge IN/transe -o OUT --threads 1 {_BRIEF} {_TRANSFORMER} "
        "--set entities.text_layers=0",
        resumes=True,
    ),
    "train cove": Kind(
        "", f"train cove IN/pairs.tsv -o OUT --threads 1 {_BRIEF} {_TINY} --set decoder.width=16", resumes=True
    ),
    "finetune ulmfit": Kind(
        "",
        f"finetune IN/ulmfit classify {_EXAMPLE_FILES} -o OUT {_EPOCHS} --strategy ulmfit --budget 2ktok "
        "--set learning.batch=2",
        resumes=True,
    ),
    "train xlm": Kind(
        "",
        f"train xlm en=IN/text.txt xx=IN/more.txt IN/languages.tsv -o OUT --threads 1 {_BRIEF} {_TRANSFORMER}",
        resumes=True,
    ),
    "train infersent": Kind(
        "", f"train infersent IN/labelled.tsv -o OUT --threads 1 {_BRIEF} {_TINY} {_GROUPS}", resumes=True
    ),
    "train gensen": Kind(
        "",
        f"train gensen IN/text.txt IN/labelled.tsv IN/languages.tsv -o OUT --threads 1 {_BRIEF} {_TINY} {_GROUPS}",
        resumes=True,
    ),
    "train use-dan": Kind(
        "",
        f"train use-dan IN/text.txt IN/labelled.tsv -o OUT --threads 1 {_BRIEF} {_TINY} {_GROUPS} "
        "--set sentence.bigrams=50",
        resumes=True,
    ),
    "train use-transformer": Kind(
        "",
        f"train use-transformer IN/text.txt IN/labelled.tsv -o OUT --threads 1 {_BRIEF} {_TRANSFORMER} {_GROUPS}",
        resumes=True,
    ),
    "adapt tokenizer": Kind("", "adapt IN/wordpiece IN/more.txt -o OUT --threads 1"),
    "adapt counts": Kind("", "adapt IN/mkn3 --add IN/more.txt -o OUT --threads 1"),
    "adapt vectors": Kind("", "adapt IN/skipgram IN/more.txt --set epochs=8 -o OUT --threads 1"),
    "adapt net": Kind("", "adapt IN/bert IN/more.txt --budget 1ktok -o OUT --threads 1", resumes=True),
    "mix": Kind("", "mix IN/mkn3 IN/kn5-cache --valid IN/more.txt -o OUT"),
    "finetune net": Kind("", f"finetune IN/bert classify {_EXAMPLE_FILES} -o OUT {_EPOCHS}", resumes=True),
    "finetune task text": Kind(
        "", f"finetune IN/bert classify {_EXAMPLE_FILES} -o OUT {_EPOCHS} --task-text --budget 1ktok", resumes=True
    ),
    "finetune seeds": Kind("", f"finetune IN/bert classify {_EXAMPLE_FILES} -o OUT {_EPOCHS} --seeds 2", resumes=True),
    "finetune generate": Kind(
        "", f"finetune IN/gpt generate --train IN/pairs.tsv --dev IN/pairs.tsv -o OUT {_EPOCHS}", resumes=True
    ),
    "finetune many": Kind("", f"finetune IN/bert many --tasks IN/tasks.toml -o OUT {_EPOCHS}", resumes=True),
    "finetune knowledge": Kind(
        "",
        f"finetune IN/bert classify {_EXAMPLE_FILES} -o OUT {_EPOCHS} --knowledge IN/graph.spo --shuffle-graph "
        "--set learning.batch=4",
        resumes=True,
    ),
    "finetune vectors": Kind("", f"finetune IN/skipgram classify {_EXAMPLE_FILES} -o OUT {_EPOCHS}", resumes=True),
    "finetune linear": Kind("", f"finetune IN/mkn3 classify {_EXAMPLE_FILES} -o OUT", resumes=True),
}
_WRITERS = {
    "export arpa": Kind("", "export IN/mkn3 arpa OUT", suffix=".arpa", forces=True),
    "export arpa.gz": Kind("", "export IN/mkn3 arpa OUT", suffix=".arpa.gz", forces=True),
    "export brown": Kind("", "export IN/brown brown OUT", suffix=".txt", forces=True),
    "export word2vec": Kind("", "export IN/skipgram word2vec OUT", suffix=".txt", forces=True),
    "export word2vec.bin": Kind("", "export IN/skipgram word2vec OUT", suffix=".bin", forces=True),
    "export glove": Kind("", "export IN/glove glove OUT", suffix=".txt", forces=True),
    "export fasttext": Kind("", "export IN/fasttext fasttext OUT", suffix=".bin", forces=True),
    "export huggingface": Kind("", "export IN/bert huggingface OUT"),
    "import arpa": Kind("", "import arpa IN/exported.arpa -o OUT"),
    "import brown": Kind("", "import brown IN/exported-brown.txt -o OUT"),
    "import word2vec": Kind("", "import word2vec IN/exported-word2vec.txt -o OUT"),
    "import glove": Kind("", "import glove IN/exported-glove.txt -o OUT"),
    "import fasttext": Kind("", "import fasttext IN/exported-fasttext.bin -o OUT"),
    "import huggingface": Kind("", "import huggingface IN/exported-huggingface -o OUT"),
    "score": Kind("", "score IN/mkn3 IN/text.txt -o OUT --threads 1", suffix=".jsonl", forces=True),
    "score net": Kind("", "score IN/gpt IN/more.txt -o OUT --threads 1", suffix=".jsonl", forces=True),
    "score electra": Kind("", "score IN/electra IN/more.txt -o OUT --threads 1", suffix=".jsonl", forces=True),
    "score pairs": Kind("", "score IN/transformer IN/pairs.tsv -o OUT --threads 1", suffix=".jsonl", forces=True),
    "embed": Kind("", "embed IN/skipgram IN/text.txt -o OUT", suffix=".npy", forces=True),
    "embed net": Kind("", "embed IN/bert IN/more.txt -o OUT", suffix=".npy", forces=True),
    "predict": Kind("", "predict IN/task IN/text.txt -o OUT", suffix=".jsonl", forces=True),
    "evaluate": Kind("", "evaluate IN/task task IN/dev.tsv -o OUT", suffix=".html", forces=True),
    "similar map": Kind("", "similar IN/skipgram --map OUT", suffix=".svg"),
}
_PREPARED = (
    *("train wordpiece", "train mkn3", "train kn5-cache", "train skipgram", "train brown", "train glove"),
    *("train fasttext", "train bert", "train gpt", "train electra", "train transformer", "train ulmfit"),
    "train transe",
)
_EXPORTED = {
    "exported.arpa": "export arpa",
    "exported-brown.txt": "export brown",
    "exported-word2vec.txt": "export word2vec",
    "exported-glove.txt": "export glove",
    "exported-fasttext.bin": "export fasttext",
    "exported-huggingface": "export huggingface",
}


def all_kinds() -> dict[str, Kind]:
    """Every kind by name."""
    found = {}
    for recipe, options in {**dict.fromkeys((*_TOKENIZERS, *_COUNTS), ""), **_VECTORS, **_NETS}.items():
        command = f"train {recipe} IN/text.txt -o OUT --threads 1 {options}"
        found[f"train {recipe}"] = Kind(f"train {recipe}", command, resumes=True)
    for recipe in _RESTORING:
        command = f"train {recipe} IN/text.txt -o OUT --threads 1 {_BRIEF} {_TRANSFORMER} {_DECODER}"
        found[f"train {recipe}"] = Kind(f"train {recipe}", command, resumes=True)
    labelled = f"train fasttext-classifier IN/train.tsv -o OUT --threads 1 {_FEW} --set epochs=30 --set buckets=100"
    found["train fasttext-classifier"] = Kind("train fasttext-classifier", labelled, resumes=True)
    for name, kind in {**_FURTHER, **_WRITERS}.items():
        found[name] = Kind(name, kind.command, kind.resumes, kind.suffix, kind.forces)
    return found


def input_commands(inputs: Path) -> Iterator[list[str]]:
    """The commands that make the models and exports which other commands read."""
    kinds = all_kinds()
    for name in _PREPARED:
        yield kinds[name].arguments(inputs, inputs / name.split()[1])
    yield kinds["finetune linear"].arguments(inputs, inputs / "task")
    for file, name in _EXPORTED.items():
        yield kinds[name].arguments(inputs, inputs / file)


def write_texts(inputs: Path) -> None:
    """Write the texts and labelled examples that commands read."""
    from firth.text.oracle import builtin_documents

    documents = [document.text for document in itertools.islice(builtin_documents("oracle"), 2 * _DOCUMENTS)]
    (inputs / "text.txt").write_text("\n\n".join(documents[:_DOCUMENTS]) + "\n")
    (inputs / "more.txt").write_text("\n\n".join(documents[_DOCUMENTS:][: _DOCUMENTS // 4]) + "\n")
    lines = "\n".join(documents).splitlines()
    rows = [f"{'even' if len(line) % 2 == 0 else 'odd'}\t{line}" for line in lines]
    (inputs / "train.tsv").write_text("\n".join(["label\ttext_a", *rows[:_EXAMPLES]]) + "\n")
    (inputs / "dev.tsv").write_text("\n".join(["label\ttext_a", *rows[_EXAMPLES:][: _EXAMPLES // 2]]) + "\n")
    facts = [f"{line.split()[0]}\tis\t{line.split()[-1]}" for line in lines if len(line.split()) > 1]
    (inputs / "graph.spo").write_text("\n".join(facts) + "\n")
    pairs = [f"{line}\t{' '.join(line.split()[:2])}" for line in lines[: _EXAMPLES // 2]]
    (inputs / "pairs.tsv").write_text("\n".join(["source\ttarget", *pairs]) + "\n")
    (inputs / "languages.tsv").write_text("\n".join(["en\txx", *pairs]) + "\n")
    labels = ("entailment", "neutral", "contradiction")
    labelled = [f"{labels[number % 3]}\t{line}\t{lines[number // 3]}" for number, line in enumerate(lines[:_EXAMPLES])]
    (inputs / "labelled.tsv").write_text("\n".join(["label\ttext_a\ttext_b", *labelled]) + "\n")
    triples = [f"{line.split()[0]}\tbegins\t{line}" for line in lines[:_EXAMPLES]]
    (inputs / "graph.tsv").write_text("\n".join(triples) + "\n")
    tasks = [f'[[task]]\nname = "{name}"\ntask = "classify"\ntrain = "train.tsv"\ndev = "dev.tsv"\n' for name in "ab"]
    (inputs / "tasks.toml").write_text("\n".join(tasks))
