"""The server under clients that are slow, wrong, hostile, many or gone; keys, reloads and stops."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import string
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import firth
from firth.artifact.models import load
from firth.errors import ArgumentError, ArtifactError
from firth.service import models
from firth.service.client import Client, ServiceError
from firth.service.guard import KeyCheck, read_key
from firth.service.limits import Limits
from firth.service.registry import model_names
from firth.service.server import is_loopback
from tests.service.running import RunningServer, ServerProcess, read_all

JSON = "content-type: application/json\r\n"
POST = f"POST /score HTTP/1.1\r\nhost: localhost\r\n{JSON}"


SLOW = {"model": "bert", "texts": ["anna has a red ball . " * 60] * 8}
"""A request that takes a second or so: each token is masked in turn."""


def statuses(data: bytes) -> list[int]:
    return [int(one) for one in re.findall(rb"HTTP/1\.1 (\d+)", data)]


def assert_refused(found: tuple[int, Any], status: int, words: str) -> None:
    assert found[0] == status, found
    error = found[1]["error"]
    assert set(error) == {"status", "type", "message", "param"}
    assert error["status"] == status
    assert words in error["message"], error


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/score", {"model": "knn", "texts": ["a"]}, 404, "did you mean 'kn'?"),
        ("/score", {"model": "../kn", "texts": ["a"]}, 404, "there is no model"),
        ("/score", {"model": "/etc/passwd", "texts": ["a"]}, 404, "there is no model"),
        ("/score", {"model": "kn"}, 422, "'texts' is missing"),
        ("/score", {"model": "kn", "texts": "a"}, 422, "texts"),
        ("/score", {"model": "kn", "texts": []}, 422, "texts"),
        ("/score", {"model": "kn", "texts": [1]}, 422, "texts.0"),
        ("/score", {"model": "kn", "texts": ["\ud800"]}, 422, "surrogate"),
        ("/score", {"model": "kn", "texts": ["a"], "tokenss": True}, 422, "did you mean 'tokens'?"),
        ("/score", {"model": "kn", "texts": ["a"], "whole_words": True}, 422, "leave whole_words out"),
        ("/score", {"model": "kn", "texts": [["a", "b"]]}, 422, "not pairs"),
        ("/score", {"model": "seq2seq", "texts": ["a"]}, 422, "[source, target]"),
        ("/score", {"model": "kn", "texts": ["a"] * 300}, 413, "at most 256"),
        ("/score", {"model": "kn", "texts": ["a " * 70_000]}, 413, "tokens are too many"),
        ("/score", [], 422, "JSON object"),
        ("/score", b"{", 400, "not JSON"),
        ("/score", b'{"model": "kn", "texts": ["\xff"]}', 400, "UTF-8"),
        ("/score", b"[" * 100_000, 400, ""),
        ("/score", b"x" * (3 << 20), 413, "at most 2,097,152 bytes"),
        ("/score", b"", 422, "JSON object"),
        ("/next", {"model": "kn", "history": "a", "top": 0}, 422, "top"),
        ("/next", {"model": "sg", "history": "a"}, 422, "cannot predict the next token"),
        ("/fill", {"model": "bert", "text": "no mask"}, 422, "nothing to fill"),
        ("/similar", {"model": "sg", "word": "zzz"}, 422, "zzz"),
        ("/similar", {"model": "sg", "word": "ball", "method": "div"}, 422, "method"),
        ("/embed", {"model": "sg", "texts": ["a"], "layer": 1}, 422, "no layers"),
        ("/embed", {"model": "bert", "texts": ["a"], "layer": 99}, 422, "no layer 99"),
        ("/embed", {"model": "bert", "texts": ["a"], "pooling": "median"}, 422, "pooling"),
        ("/embed", {"model": "bert", "texts": ["a"], "language": "de"}, 422, "language"),
        ("/generate", {"model": "gpt", "prompt": "a", "length": 100_000}, 422, "length"),
        ("/generate", {"model": "gpt", "prompt": "a", "length": 4000}, 413, "at most 2,048"),
        ("/generate", {"model": "kn", "prompt": "a", "beams": 2}, 422, "no beam search"),
        ("/generate", {"model": "gpt", "temperature": -1}, 422, "temperature"),
        ("/generate", b'{"model": "gpt", "temperature": NaN}', 422, "temperature"),
        ("/generate", {"model": "seq2seq", "prompt": "a", "count": 2}, 422, "beam search"),
        ("/predict", {"model": "spans", "texts": ["a"]}, 422, ""),
        ("/predict", {"model": "tagger", "texts": [{"lstm": []}]}, 422, ""),
        ("/predict", {"model": "classifier", "texts": ["a"], "task": "x"}, 422, "leave task out"),
        ("/nowhere", {}, 404, "no such address"),
        ("/health", {}, 405, "another method"),
    ],
)
def test_refusals(path: str, body: Any, status: int, words: str, server: RunningServer) -> None:
    assert_refused(server.post(path, body), status, words)


def test_other_content_types_are_refused(server: RunningServer) -> None:
    """A page of another site can send these without asking."""
    body = json.dumps({"model": "kn", "texts": ["a"]}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert_refused(server.post("/score", body, {"content-type": kind}), 422, "content-type")


def test_other_hosts_are_refused(server: RunningServer) -> None:
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example"):
        assert_refused(server.get("/info", {"host": host}), 400, "not this machine")
    assert server.get("/info", {"host": f"localhost:{server.port}"})[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        f"{POST}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        f"{POST}content-length: 4\r\ncontent-length: 5\r\n\r\nabcde",
        f"{POST}content-length: -4\r\n\r\n",
        f"{POST}content-length: +4\r\n\r\nabcd",
        f"{POST}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost: localhost\r\nhost: evil\r\n\r\n",
        "GET /health HTTP/1.1\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost: localhost\r\nname : value\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost: localhost\r\n folded: value\r\n\r\n",
        "GET /health HTTP/9.9\r\nhost: localhost\r\n\r\n",
        "GET /hea\0lth HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "\x16\x03\x01 hello\r\n\r\n",
        f"GET /health HTTP/1.1\r\nhost: localhost\r\nlong: {'x' * 40_000}\r\n\r\n",
    ],
)
def test_odd_headers_are_refused(head: str, server: RunningServer) -> None:
    """No second request can be hidden in the first."""
    smuggled = "GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n"
    found = statuses(server.raw((head + smuggled).encode("latin-1"), seconds=3))
    assert found
    assert found[0] in (400, 404, 413, 501)
    assert 200 not in found


def test_a_chunked_body_that_is_too_large_is_cut_off(server: RunningServer) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        head = f"{POST}transfer-encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        try:
            for _ in range(600):
                connection.sendall(chunk)
        except ConnectionError:
            pass
        data = read_all(connection)
    assert not data or statuses(data) == [413]


@pytest.mark.parametrize("sent", [b"", b"POST /score HT", b"POST /score HTTP/1.1\r\nhost: localhost\r\nx: "])
def test_slow_headers_end_the_connection(sent: bytes, server: RunningServer) -> None:
    begun = time.monotonic()
    data = server.raw(sent, seconds=15)
    assert time.monotonic() - begun < 10
    assert statuses(data) == ([408] if sent else [])


def test_a_slow_body_ends_the_connection(server: RunningServer) -> None:
    begun = time.monotonic()
    head = f"{POST}content-length: 100\r\n\r\n{{"
    assert statuses(server.raw(head.encode(), seconds=15)) == [408]
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    "path",
    ["/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "//etc/passwd", "/page//etc/passwd", "/page/"],
)
def test_no_path_leads_out_of_the_page(path: str, server: RunningServer) -> None:
    data = server.raw(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
    assert statuses(data) == [404]


def test_static_pages_and_their_policy(server: RunningServer) -> None:
    head = "GET {} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    front = server.raw(head.format("/").encode()).decode()
    assert statuses(front.encode()) == [200]
    assert "content-security-policy: default-src 'none'" in front
    assert "'unsafe-inline'" not in front
    page = server.raw(head.format("/docs").encode()).decode()
    assert "/v1/embeddings" in page
    assert not re.search(r"(src|href)=['\"]?(https?:)?//", page), "the page needs no network"
    assert "<script" not in page
    document = server.get("/openapi.json")[1]
    assert {"/score", "/next", "/fill", "/generate", "/similar", "/embed", "/predict", "/tokenize"} <= set(
        document["paths"]
    )


def test_a_thousand_connections(server: RunningServer) -> None:
    connections = []
    try:
        for _ in range(1000):
            connections.append(socket.create_connection(("127.0.0.1", server.port), timeout=20))
        body = json.dumps({"model": "kn", "texts": ["anna has a ball ."]})
        head = f"{POST}connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        for connection in connections:
            connection.sendall((head + body).encode())
        found = [statuses(read_all(connection)) for connection in connections]
    finally:
        for connection in connections:
            connection.close()
    assert found == [[200]] * 1000


def test_work_of_clients_that_have_gone_is_dropped(model_folder: Path) -> None:
    with RunningServer([model_folder / "bert"], Limits(waiting=1000.0), threads=1) as server:
        body = json.dumps(SLOW)
        gone = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(30)]
        for connection in gone:
            connection.sendall(f"{POST}content-length: {len(body)}\r\n\r\n{body}".encode())
        _wait_for(lambda: server.state.workers.queue.tokens)
        for connection in gone:
            connection.close()
        server.client.score("bert", ["anna has"])
        assert server.state.workers.queue.tokens == 0
        text = server.get("/metrics")[1]
        computed = int(re.search(r'firth_items_total\{model="bert",operation="score"\} (\d+)', text)[1])  # type: ignore[index]
        assert computed < 30 * len(SLOW["texts"]) / 2


def test_a_full_queue_and_a_deadline_are_too_busy(model_folder: Path) -> None:
    with RunningServer([model_folder / "bert"], Limits(waiting=0.0, deadline=0.5), threads=1) as server:
        found: list[tuple[int, Any]] = []
        server.post("/score", {"model": "bert", "texts": ["anna"]})  # measures how long a token takes
        threads = [threading.Thread(target=lambda: found.append(server.post("/score", SLOW))) for _ in range(6)]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        refused = [one for one in found if one[0] == 429]
        assert refused
        assert any("too busy" in one[1]["error"]["message"] for one in refused)
        begun = time.monotonic()
        while server.post("/score", {"model": "bert", "texts": ["anna"]})[0] != 200:
            assert time.monotonic() - begun < 30
            time.sleep(0.05)


def test_keys(model_folder: Path) -> None:
    key = "k" * 20
    with RunningServer([model_folder / "kn"], Limits(), key=key) as server:
        body = {"model": "kn", "texts": ["a"]}
        assert server.post("/score", body, {"authorization": f"Bearer {key}"})[0] == 200
        wrong = ["", f"Bearer {key}x", f"Bearer {key[:-1]}", f"Basic {key}", key, "Bearer", f"Bearer {key} {key}"]
        for header in wrong:
            assert_refused(server.post("/score", body, {"authorization": header}), 401, "Authorization: Bearer KEY")
        for path in ("/info", "/v1/models", "/metrics"):
            assert_refused(server.get(path), 401, "the key")
        for path in ("/health", "/ready", "/", "/docs", "/openapi.json"):
            assert server.get(path)[0] == 200
        client = Client(f"http://127.0.0.1:{server.port}", key="wrong" * 5)
        with client, pytest.raises(ServiceError, match="the key is missing or wrong"):
            client.info()


def test_keys_are_compared_by_digest_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr("hmac.compare_digest", lambda one, two: compared.append((len(one), len(two))) or one == two)
    check = KeyCheck(b"x" * 30)
    assert check.accepts(b"Bearer " + b"x" * 30)
    assert not check.accepts(b"Bearer y")
    assert compared == [(32, 32)] * 2


def test_key_files(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("a" * 32 + "\n")
    assert read_key(good).accepts(b"bearer " + b"a" * 32)
    for content in ("", "short", "two words of it all", "é" * 20):
        bad.write_text(content)
        with pytest.raises(ArgumentError, match="has no key"):
            read_key(bad)
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_key(tmp_path / "none")


def test_other_addresses_need_a_key(model_folder: Path) -> None:
    assert [is_loopback(one) for one in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1", "example.org")] == [
        *(True, True, True, False, False, False)
    ]
    command = [sys.executable, "-m", "firth", "serve", str(model_folder / "kn"), "--host", "0.0.0.0", "--port", "0"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "give a key with --key-file" in run.stderr


def test_equal_names_and_missing_folders(model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="are both named 'kn'"):
        model_names([model_folder / "kn", tmp_path / "kn"])
    command = [sys.executable, "-m", "firth", "serve", str(model_folder / "knn"), "--port", "0"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "did you mean 'kn'?" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_damaged_model_is_not_served(model_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(model_folder / "kn", tmp_path / "kn")
    weights = tmp_path / "kn" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with (
        pytest.raises(ArtifactError, match="was changed after it was saved"),
        RunningServer([tmp_path / "kn"], Limits()),
    ):
        pass


def test_the_digest_is_that_of_the_model_that_was_loaded(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is replaced while it is loaded is loaded again."""
    for name, source in (("kn", "kn"), ("other", "sg")):
        shutil.copytree(model_folder / source, tmp_path / name)

    def replacing(folder: Path, verify: bool) -> Any:
        if (tmp_path / "other").exists():
            shutil.rmtree(tmp_path / "kn")
            (tmp_path / "other").rename(tmp_path / "kn")
        return load(folder, verify=verify)

    monkeypatch.setattr(models, "load", replacing)
    served = models.load_served(tmp_path / "kn", "kn")
    expected = models.load_served(model_folder / "sg", "sg")
    assert (served.digest, served.manifest, served.abilities) == (
        expected.digest,
        expected.manifest,
        expected.abilities,
    )


def test_reload_and_stop_of_a_process(model_folder: Path, tmp_path: Path) -> None:
    """SIGHUP replaces a model under load, a bad folder changes nothing, SIGTERM finishes what was accepted."""
    for name in ("kn", "bert"):
        shutil.copytree(model_folder / name, tmp_path / name)
    other = tmp_path / "other"
    firth.train("kn3", [["a cat sat .", "a dog sat ."]], out=other, settings=["tokenizer.min_count=1"])
    digests = {firth.info(folder)["files"]["model.safetensors"]["sha256"] for folder in (tmp_path / "kn", other)}
    assert len(digests) == 2
    with ServerProcess(tmp_path / "kn", tmp_path / "bert") as served:
        client = served.client(retries=0)
        before = client.wait(60)
        stop, answers = threading.Event(), list[dict[str, Any]]()

        def ask() -> None:
            while not stop.is_set():
                answers.append(client.score("kn", ["a dog sat ."]))

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask) for _ in range(4)]
            (tmp_path / "kn").rename(tmp_path / "old")
            other.rename(tmp_path / "kn")
            served.process.send_signal(signal.SIGHUP)
            _wait_for(lambda: client.wait()["kn"] != before["kn"])
            (tmp_path / "kn" / "manifest.json").write_text("{}")
            served.process.send_signal(signal.SIGHUP)
            _wait_for(lambda: any("stay as they were" in line for line in served.lines))
            time.sleep(0.3)
            stop.set()
            for one in asking:
                one.result()
        after = client.wait()
        assert after["kn"] != before["kn"]
        assert after["bert"] == before["bert"]
        scores = {one["digest"]: one["results"][0]["logprob"] for one in answers}
        assert set(scores) == {before["kn"], after["kn"]}
        assert all(one["results"][0]["logprob"] == scores[one["digest"]] for one in answers)
        assert scores[before["kn"]] == firth.load(tmp_path / "old").score(["a dog sat ."])[0].logprob
        with ThreadPoolExecutor(8) as pool:
            accepted = [pool.submit(client.score, "bert", SLOW["texts"]) for _ in range(6)]
            _wait_for(lambda: _active(served.port) >= 3)
            assert served.stop() == 0
            done = [one.exception() or len(one.result()["results"]) for one in accepted]
            assert done.count(8) >= 3
            assert all(one == 8 or "no answer" in str(one) for one in done), "accepted work was lost"
        client.close()
    log = "".join(served.lines)
    assert "stopped" in log
    assert "a dog sat" not in log
    assert "Traceback" not in log


def _metrics(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        return read_all(connection)


def _active(port: int) -> float:
    found = re.search(rb"firth_active_requests ([\d.]+)", _metrics(port))
    return float(found[1]) - 1 if found else 0.0


def _wait_for(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.text(max_size=5), max_size=3),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_request_makes_the_server_fail(data: st.DataObject, server: RunningServer) -> None:
    """Requests made of the fields of the schemas, with right and wrong values: never 500, always the one shape."""
    document = server.get("/openapi.json")[1]
    posts = [path for path, methods in document["paths"].items() if "post" in methods]
    path = data.draw(st.sampled_from(posts))
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]
    models = st.one_of(st.sampled_from(server.client.models()), st.text(string.printable, max_size=5))
    likely: dict[str, Any] = {
        "model": models,
        "texts": st.lists(st.one_of(st.text(max_size=30), VALUES), min_size=1, max_size=3),
        "text": st.text(max_size=20).map(lambda text: f"{text} [MASK]"),
        "word": st.sampled_from(["ball", "anna", "has", "zzz"]),
        "length": st.integers(1, 20),
        "count": st.integers(1, 3),
        "top": st.integers(1, 5),
        "stream": st.just(False),
    }
    body = {}
    for name in fields:
        if name in ("model", "texts", "text", "word", "history", "input", "stream") or data.draw(st.booleans()):
            body[name] = data.draw(st.one_of(likely.get(name, VALUES), VALUES) if name != "stream" else st.just(False))
    status, found = server.post(path, json.dumps(body).encode())
    assert status in (200, 400, 404, 413, 422, 429), (path, body, found)
    assert status == 200 or set(found) == {"error"}
