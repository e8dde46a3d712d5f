"""gensim and fastText load files of Firth and find the same neighbours, and Firth loads theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gensim.models.fasttext
import numpy as np
import pytest

from firth.artifact.formats import export_model, import_model
from firth.artifact.formats.fasttext import read_fasttext, write_fasttext
from firth.artifact.models import load
from firth.errors import ArtifactError
from firth.vectors.subwords import ngram_buckets
from tests.artifact.formats.small_vectors import SPECIALS, plain_model, subword_model
from tests.command import firth

WORDS = [f"{start}{end}" for start in ("cat", "dog", "naïve", "我们", "é") for end in ("", "s", "ing", "喜欢", "😀")]
UNSEEN = ["unseen", "catlike", "我", "éé", "x😀y"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # gensim leaves a file without a header open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("style", "name", "binary"),
    [
        ("word2vec", "m.bin", True),
        ("word2vec", "m.bin.gz", True),
        ("word2vec", "m.txt", False),
        ("word2vec", "m.txt.gz", False),
        ("glove", "glove.txt", False),
        ("fasttext", "m.vec", False),
    ],
)
def test_gensim_loads_tables(style: str, name: str, binary: bool, tmp_path: Path) -> None:
    model = plain_model(np.random.default_rng(6).normal(size=(len(WORDS), 20)), WORDS)
    export_model(model, style, tmp_path / name)
    found = gensim.models.KeyedVectors.load_word2vec_format(
        str(tmp_path / name), binary=binary, no_header=style == "glove"
    )
    assert found.index_to_key == WORDS
    assert np.array_equal(found.vectors, model.vectors[len(SPECIALS) :])
    for word in WORDS:
        assert [near for near, _ in found.most_similar(word)] == [near for near, _ in model.similar(word)]


@pytest.mark.parametrize("binary", [False, True])
def test_firth_loads_gensims_tables(binary: bool, tmp_path: Path) -> None:
    theirs = gensim.models.KeyedVectors(20)
    theirs.add_vectors(WORDS, np.random.default_rng(7).normal(size=(len(WORDS), 20)).astype(np.float32))
    theirs.save_word2vec_format(str(tmp_path / "m"), binary=binary)
    import_model("word2vec", tmp_path / "m", tmp_path / "model")
    model = load(tmp_path / "model")
    assert model.words[len(SPECIALS) :] == WORDS
    assert np.array_equal(model.vectors[len(SPECIALS) :], theirs.vectors)


def test_gensim_loads_models(tmp_path: Path) -> None:
    model = subword_model(WORDS, buckets=200)
    export_model(model, "fasttext", tmp_path / "m.bin")
    found = gensim.models.fasttext.load_facebook_vectors(str(tmp_path / "m.bin"))
    for word in [*WORDS, *UNSEEN]:
        assert np.allclose(found[word], model.vector(word), atol=1e-6), word
    whole = gensim.models.fasttext.load_facebook_model(str(tmp_path / "m.bin"))
    assert np.array_equal(whole.syn1neg, model.outputs[len(SPECIALS) :])
    plain = plain_model(np.random.default_rng(8).normal(size=(len(WORDS), 20)), WORDS)
    export_model(plain, "fasttext", tmp_path / "plain.bin")
    found = gensim.models.fasttext.load_facebook_vectors(str(tmp_path / "plain.bin"))
    assert all(np.array_equal(found[word], plain.vector(word)) for word in WORDS)


def test_firth_loads_gensims_models(tmp_path: Path) -> None:
    theirs = gensim.models.FastText(
        vector_size=8, min_count=1, bucket=100, min_n=2, max_n=3, epochs=1, seed=1, workers=1
    )
    theirs.build_vocab([WORDS, WORDS[:10]])
    theirs.train([WORDS, WORDS[:10]], total_examples=2, epochs=1)
    gensim.models.fasttext.save_facebook_model(theirs, str(tmp_path / "m.bin"))
    import_model("fasttext", tmp_path / "m.bin", tmp_path / "model")
    model = load(tmp_path / "model")
    for word in [*WORDS, *UNSEEN]:
        assert np.allclose(model.vector(word), theirs.wv[word], atol=1e-6), word


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some lines of text, with labels."""
    random = np.random.default_rng(9)
    lines = [f"__label__{number % 3} " + " ".join(random.choice(WORDS, size=8)) for number in range(200)]
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def loaded(path: Path) -> Any:
    """fastText's model of a file, without its warning on standard error."""
    fasttext = pytest.importorskip("fasttext")
    fasttext.FastText.eprint = lambda *arguments: None
    return fasttext.load_model(str(path))


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "skipgram"},
        {"model": "cbow", "minn": 1, "maxn": 3},
        {"model": "skipgram", "minn": 0, "maxn": 2, "loss": "hs"},
        {"model": "skipgram", "maxn": 0, "loss": "softmax"},
    ],
    ids=str,
)
def test_a_round_trip_of_fasttext_models(settings: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    fasttext = pytest.importorskip("fasttext")
    fixed = {"dim": 10, "minCount": 1, "bucket": 300, "epoch": 1, "thread": 1, "verbose": 0}
    theirs = fasttext.train_unsupervised(str(corpus), **fixed, **settings)
    theirs.save_model(str(tmp_path / "theirs.bin"))
    assert import_model("fasttext", tmp_path / "theirs.bin", tmp_path / "model")["left_out"] == ["</s>"]
    model = load(tmp_path / "model")
    assert model.words[len(SPECIALS) :] == [word for word in theirs.words if word != "</s>"]
    export_model(model, "fasttext", tmp_path / "ours.bin")
    ours = loaded(tmp_path / "ours.bin")
    unseen = UNSEEN if settings.get("maxn", 6) else []
    for word in [*model.words[len(SPECIALS) :], *unseen]:
        known = word in model.rows or len(theirs.get_subwords(word)[0]) > 0
        if not known:
            continue
        assert np.allclose(model.vector(word), theirs.get_word_vector(word), atol=1e-6), word
        assert np.allclose(ours.get_word_vector(word), theirs.get_word_vector(word), atol=1e-6), word


def test_a_round_trip_of_classifiers(corpus: Path, tmp_path: Path) -> None:
    fasttext = pytest.importorskip("fasttext")
    theirs = fasttext.train_supervised(
        str(corpus), dim=10, wordNgrams=2, bucket=300, minn=2, maxn=3, epoch=3, thread=1, verbose=0
    )
    theirs.save_model(str(tmp_path / "theirs.bin"))
    content = read_fasttext(tmp_path / "theirs.bin")
    assert (content.args.model, content.labels) == ("supervised", theirs.labels)
    assert np.array_equal(content.output, theirs.get_output_matrix())
    write_fasttext(tmp_path / "ours.bin", content)
    assert (tmp_path / "ours.bin").read_bytes() == (tmp_path / "theirs.bin").read_bytes()
    line = " ".join(WORDS[:5]) + "\n"
    assert loaded(tmp_path / "ours.bin").f.predict(line, 3, 0.0, "strict") == theirs.f.predict(line, 3, 0.0, "strict")


def test_quantised_models_are_refused(corpus: Path, tmp_path: Path) -> None:
    fasttext = pytest.importorskip("fasttext")
    theirs = fasttext.train_supervised(str(corpus), dim=10, bucket=300, minn=2, maxn=3, epoch=1, thread=1, verbose=0)
    theirs.quantize()
    theirs.save_model(str(tmp_path / "m.ftz"))
    with pytest.raises(ArtifactError, match=r"this is a quantised model \(\.ftz\)"):
        import_model("fasttext", tmp_path / "m.ftz", tmp_path / "m")


@pytest.mark.parametrize("kind", ["skipgram", "supervised"])
def test_fasttexts_ngrams(kind: str, corpus: Path, tmp_path: Path) -> None:
    fasttext = pytest.importorskip("fasttext")
    train = fasttext.train_unsupervised if kind == "skipgram" else fasttext.train_supervised
    theirs = train(str(corpus), dim=2, minCount=1, bucket=1000, minn=1, maxn=5, epoch=1, thread=1, verbose=0)
    words = len(theirs.words)
    for word in [*WORDS, *UNSEEN, "a", "</s>"]:
        _, rows = ngram_buckets([word], 1, 5, 1000)
        assert [row - words for row in theirs.get_subwords(word)[1] if row >= words] == rows.tolist(), word


def test_fasttext_loads_models_of_firth(corpus: Path, tmp_path: Path) -> None:
    changes = ["dimension=8", "buckets=300", "epochs=1", "tokenizer.min_count=1", "min_n=2", "max_n=4"]
    settings = [part for change in changes for part in ("--set", change)]
    assert firth("train", "fasttext", corpus, "-o", tmp_path / "model", *settings).code == 0
    assert firth("export", tmp_path / "model", "fasttext", tmp_path / "m.bin").code == 0
    model, theirs = load(tmp_path / "model"), loaded(tmp_path / "m.bin")
    assert theirs.words == model.words[len(SPECIALS) :]
    for word in [*theirs.words, *UNSEEN]:
        assert np.allclose(theirs.get_word_vector(word), model.vector(word), atol=1e-6), word
