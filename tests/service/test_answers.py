"""Answers of the server are those of the library, bit for bit, for every family."""

from __future__ import annotations

import base64
import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.service import answers
from firth.service.client import ServiceError
from tests.contracts.test_tasks import COLOURS, NAMES, THINGS, make_examples
from tests.service.conftest import TASKS
from tests.service.running import RunningServer

TEXTS = [
    "anna has a red ball .",
    "carl has a ship .",
    "dora has a white zebra , and bert has a lamp .",
    "ball",
    "",
    "苹果 has a 球 .",
]
NETWORKS = ("lstm", "gpt", "bert", "classifier")


@pytest.fixture(scope="module")
def models(model_folder: Path) -> dict[str, Any]:
    return {folder.name: firth.load(folder) for folder in model_folder.iterdir()}


def pretrained(model: Any) -> Any:
    return getattr(model, "pretrained", model)


@pytest.mark.parametrize("name", ["kn", "lstm", "gpt", "bert", "classifier"])
def test_scores(name: str, server: RunningServer, models: dict[str, Any]) -> None:
    model = pretrained(models[name])
    answer = server.client.score(name, TEXTS, tokens=True)
    assert answer["kind"] == model.score_kind
    for text, found in zip(TEXTS, answer["results"], strict=True):
        (expected,) = model.score([text])
        assert {key: found[key] for key in expected._fields} == expected._asdict()
        assert sum(piece["logprob"] for piece in found["pieces"]) == pytest.approx(expected.logprob, abs=1e-5)
        for piece in found["pieces"]:
            if piece["start"] is not None and not piece["unknown"]:
                assert text[piece["start"] : piece["end"]] == piece["token"]
    assert server.client.score(name, TEXTS[:1])["results"][0]["logprob"] == answer["results"][0]["logprob"]
    assert answer["results"][2]["unknown"] >= 1
    server_digest = server.client.info(name)["models"][0]["digest"]
    assert answer["digest"] == server_digest


def test_scores_of_pairs(server: RunningServer, models: dict[str, Any]) -> None:
    pairs = [["anna has a red ball .", ". llab"], ["carl", "lrac"]]
    found = server.client.score("seq2seq", pairs)["results"]
    for pair, one in zip(pairs, found, strict=True):
        (expected,) = models["seq2seq"].score_pairs([tuple(pair)])
        assert {key: one[key] for key in expected._fields} == expected._asdict()


@pytest.mark.parametrize("name", ["sg", "lstm", "gpt", "bert", "tagger", "topics", "seq2seq"])
def test_vectors(name: str, server: RunningServer, models: dict[str, Any]) -> None:
    model = pretrained(models[name])
    expected = np.concatenate([np.asarray(model.embed([text]), dtype=np.float32) for text in TEXTS])
    found = server.client.embed(name, TEXTS)
    assert found["dimension"] == expected.shape[1]
    rows = np.array([one["embedding"] for one in found["results"]], dtype=np.float32)
    assert rows.tobytes() == expected.tobytes()
    assert [one["embedding"] for one in found["results"]] == expected.astype(np.float64).tolist()
    packed = server.client.embed(name, TEXTS, encoding_format="base64")["results"]
    assert b"".join(base64.b64decode(one["embedding"]) for one in packed) == expected.astype("<f4").tobytes()
    assert found["results"][4]["empty"] or name in ("topics", "seq2seq")


@pytest.mark.parametrize(
    "options", [{"layer": 0}, {"layer": "mix", "pooling": "max"}, {"pooling": "first", "unit": True}]
)
def test_layers_and_pooling(options: dict[str, Any], server: RunningServer, models: dict[str, Any]) -> None:
    expected = np.concatenate([firth.embed(models["bert"], [text], **options) for text in TEXTS])
    found = server.client.embed("bert", TEXTS, **options)["results"]
    assert np.array([one["embedding"] for one in found], dtype=np.float32).tobytes() == expected.tobytes()


def test_truncation_and_windows_are_said(server: RunningServer) -> None:
    text = "anna has a red ball . " * 100
    (found,) = server.client.embed("bert", [text], pooling="first")["results"]
    assert found["truncated"]
    assert not found["windowed"]
    (found,) = server.client.embed("bert", [text], pooling="mean")["results"]
    assert found["windowed"]
    assert not found["truncated"]
    (found,) = server.client.predict("classifier", [text])["results"]
    assert found["truncated"]
    assert server.client.fill("bert", f"{text} [MASK]")["truncated"]
    assert server.client.next("gpt", text)["truncated"]


@pytest.mark.parametrize("name", TASKS)
def test_predictions(name: str, server: RunningServer, models: dict[str, Any]) -> None:
    task = TASKS[name]
    items = [_item(task, example) for example in make_examples(task)]
    answer = server.client.predict(name, items)
    assert answer["task"] == task
    for item, found in zip(items, answer["results"], strict=True):
        (expected,) = models[name].predict([item])
        assert found == json.loads(json.dumps(expected)) | {"truncated": False}


def _item(task: str, example: Any) -> Any:
    if isinstance(example, dict):
        return {key: value for key, value in example.items() if key in ("passage", "question", "context", "choices")}
    return {"classify": example[1], "pair": list(example[1:]), "tag": example[0]}[task]


def test_labels_of_a_classifier(server: RunningServer, models: dict[str, Any]) -> None:
    found = server.client.predict("topics", TEXTS)["results"]
    for text, one in zip(TEXTS, found, strict=True):
        (expected,) = firth.predict(models["topics"], [text])
        assert one == expected | {"truncated": False}


def test_masks(server: RunningServer, models: dict[str, Any]) -> None:
    for text in ("anna has a [MASK] ball .", "[MASK] has a [MASK] lamp ."):
        expected = [[one._asdict() for one in mask] for mask in models["bert"].fill(text, 3)]
        assert server.client.fill("bert", text, top=3)["masks"] == expected


@pytest.mark.parametrize("name", ["kn", "lstm", "gpt"])
def test_next_tokens(name: str, server: RunningServer, models: dict[str, Any]) -> None:
    expected = models[name].next("anna has a", 4)
    found = server.client.next(name, "anna has a", top=4)["next"]
    assert [(one["token"], one["probability"]) for one in found] == expected


@pytest.mark.parametrize("name", ["kn", "lstm", "gpt"])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "seed": 5}, {"top_k": 3}, {"temperature": 0.0}])
def test_texts_and_streams(name: str, options: dict[str, Any], server: RunningServer, models: dict[str, Any]) -> None:
    expected = models[name].generate("anna has", length=12, **options)
    assert server.client.generate(name, "anna has", length=12, **options)["texts"] == expected
    *parts, last = server.client.stream(name, "anna has", length=12, **options)
    assert last["texts"] == expected
    assert all(expected[0].startswith(part["text"]) or part["text"] for part in parts)
    several = models[name].generate("anna", count=3, length=5, **options)
    assert server.client.generate(name, "anna", count=3, length=5, **options)["texts"] == several


def test_beams_and_translations(server: RunningServer, models: dict[str, Any]) -> None:
    expected = models["gpt"].generate("anna has", length=6, beams=3)
    assert server.client.generate("gpt", "anna has", length=6, beams=3)["texts"] == expected
    (made,) = models["seq2seq"].translate(["anna has a red ball ."], beams=4, length=8)
    found = server.client.generate("seq2seq", "anna has a red ball .", length=8)
    assert (found["texts"], found["logprob"], found["finished"]) == ([made.text], made.logprob, made.finished)


def test_neighbours(server: RunningServer, models: dict[str, Any]) -> None:
    for name in ("sg", "bert", "lstm"):
        expected = pretrained(models[name]).similar("ball", 4)
        found = server.client.similar(name, "ball", count=4, vectors=True)
        assert [(one["word"], one["score"]) for one in found["neighbours"]] == expected
        assert found["vector"] == models[name].vector("ball").tolist()
    expected = models["sg"].analogy(["ball", "red"], ["blue"], 3)
    found = server.client.similar("sg", "ball", plus=["red"], minus=["blue"], count=3)
    assert [(one["word"], one["score"]) for one in found["neighbours"]] == expected
    context = "anna has a red ball ."
    expected = models["bert"].similar("ball", 3, context=context)
    found = server.client.similar("bert", "ball", context=context, count=3)
    assert [(one["word"], one["score"]) for one in found["neighbours"]] == expected


def test_tokens(server: RunningServer, models: dict[str, Any]) -> None:
    for name in ("tokens", "bert", "seq2seq", "kn"):
        text = "anna has a red ball ."
        (found,) = server.client.tokenize(name, [text])["results"]
        tokenizer = models[name].tokenizer
        assert found["tokens"] == tokenizer.tokenize(text)
        assert found["ids"] == tokenizer.encode(text).ids
    (found,) = server.client.tokenize("tokens", ["anna has 球"])["results"]
    assert found["unknown"] == 1
    assert found["offsets"] == [[0, 4], [5, 8], [9, 10]]


def test_answers_are_the_same_alone_and_in_a_busy_server(server: RunningServer, models: dict[str, Any]) -> None:
    """Many clients at once, so that texts of several requests are computed together."""
    rng = random.Random(0)
    sentences = [
        " ".join(rng.choice([*NAMES, *COLOURS, *THINGS, "has", "a", "."]) for _ in range(rng.randint(1, 24)))
        for _ in range(120)
    ]
    names = ("bert", "gpt", "sg", "lstm")
    expected = {name: [pretrained(models[name]).embed([one])[0] for one in sentences] for name in names}
    scores = {name: [models[name].score([one])[0].logprob for one in sentences] for name in ("kn", "gpt")}

    def ask(number: int) -> None:
        own = random.Random(number)
        chosen = [own.randrange(len(sentences)) for _ in range(own.randint(1, 6))]
        texts = [sentences[one] for one in chosen]
        name = own.choice(names)
        for index, one in zip(chosen, server.client.embed(name, texts)["results"], strict=True):
            assert np.float32(one["embedding"]).tobytes() == expected[name][index].tobytes()
        name = own.choice(list(scores))
        found = server.client.score(name, texts)["results"]
        assert [one["logprob"] for one in found] == [scores[name][index] for index in chosen]

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(150)))
    sizes = server.get("/metrics")[1]
    lines = [line for line in sizes.splitlines() if 'firth_batch_items_bucket{model="bert",operation="embed"' in line]
    assert int(lines[0].split()[-1]) < int(lines[-1].split()[-1]), "no batch had several texts"


def test_openai_shape(server: RunningServer, models: dict[str, Any]) -> None:
    status, found = server.post("/v1/embeddings", {"model": "sg", "input": TEXTS[:2], "encoding_format": "float"})
    assert status == 200
    expected = models["sg"].embed(TEXTS[:2]).astype(np.float64).tolist()
    assert [one["embedding"] for one in found["data"]] == expected
    assert [one["index"] for one in found["data"]] == [0, 1]
    assert found["usage"] == {"prompt_tokens": 11, "total_tokens": 11}
    status, found = server.post("/v1/embeddings", {"model": "sg", "input": [5, 6]})
    assert status == 422
    status, found = server.post("/v1/embeddings", {"model": "sg", "input": "a ball", "dimensions": 5})
    assert (status, found["error"]["param"]) == (422, "dimensions")
    status, found = server.get("/v1/models")
    assert {one["id"] for one in found["data"]} == set(models)
    assert server.get("/v1/models/kn")[1]["id"] == "kn"
    assert server.get("/v1/models/knn")[0] == 404


def test_info(server: RunningServer, models: dict[str, Any]) -> None:
    found = {one["name"]: one for one in server.client.info()["models"]}
    assert set(found) == set(models)
    assert found["bert"]["abilities"] == ["score", "fill", "similar", "embed", "tokenize"]
    assert found["kn"]["abilities"] == ["score", "next", "generate", "tokenize"]
    assert found["tokens"]["abilities"] == ["tokenize"]
    assert found["tagger"]["tasks"] == {"": "tag"}
    assert found["bert"]["mask"] == models["bert"].tokenizer.vocabulary[4]
    details = server.client.info("kn")["models"][0]
    assert details["manifest"]["name"] == "kn3"
    assert details["card"].startswith("#") or "kn3" in details["card"]


def test_answers_fit_their_schemas(server: RunningServer) -> None:
    """The OpenAPI document is right about the answers."""
    asked: list[tuple[str, dict[str, Any], Any]] = [
        ("/score", {"model": "kn", "texts": TEXTS, "tokens": True}, answers.ScoreAnswer),
        ("/next", {"model": "kn", "history": "anna"}, answers.NextAnswer),
        ("/fill", {"model": "bert", "text": "[MASK] has"}, answers.FillAnswer),
        ("/similar", {"model": "sg", "word": "ball"}, answers.SimilarAnswer),
        ("/embed", {"model": "sg", "texts": TEXTS}, answers.EmbedAnswer),
        ("/predict", {"model": "tagger", "texts": TEXTS[:2]}, answers.PredictAnswer),
        ("/tokenize", {"model": "kn", "texts": TEXTS}, answers.TokenizeAnswer),
        ("/generate", {"model": "seq2seq", "prompt": "anna", "length": 4}, answers.GenerateAnswer),
        ("/v1/embeddings", {"model": "sg", "input": "a ball"}, answers.OpenAIEmbeddings),
    ]
    for path, body, schema in asked:
        status, found = server.post(path, body)
        assert status == 200, found
        schema.model_validate(found)


def test_a_model_without_the_ability_is_named(server: RunningServer) -> None:
    with pytest.raises(ServiceError, match="'kn' cannot fill masks: it can score, next, generate, tokenize"):
        server.client.fill("kn", "[MASK]")
