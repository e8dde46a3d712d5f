"""TransE on FB15k-237 beside the training loop of PyKEEN: triples per second and the filtered MRR of both.

    python bench/graphs.py [--epochs 20] [--rounds 1] [--threads 2] [--peer FOLDER] [--triples N] [--dimension 100]

Both train on the same numbered triples with the same dimensions, batches, negatives (Bernoulli sides), loss (Sun et al.
2019), AdaGrad and learning rates, each in a process of its own, one after the other. The time of Firth includes reading
the file and saving the model; that of PyKEEN is `SLCWATrainingLoop.train` alone, without filtering true triples from
the negatives, which would make it slower. The vectors of both are ranked by Firth on the test part. Run it on an idle
machine.

PyKEEN is found in FOLDER, or in the folder that FIRTH_PYKEEN names, made outside of the repository by

    pip install --no-deps --target FOLDER pykeen class-resolver torch-max-mem torch-ppr pystow dataclasses-json \\
        docdata tabulate more-click rexmex marshmallow marshmallow-enum typing-inspect mypy-extensions pandas \\
        python-dateutil pytz tzdata six optuna click-default-group more-itertools scikit-learn joblib threadpoolctl \\
        colorlog alembic sqlalchemy requests urllib3 idna certifi charset-normalizer

so that its torch and NumPy are those of Firth. Without it, Firth alone is measured, and a line says so.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import tempfile
from argparse import SUPPRESS
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from harness import make_parser, peak_kilobytes, run_child, timed
from task_data import data_path

TRAIN, TEST = "knowledge/fb15k237.train.tsv.gz", "knowledge/fb15k237.test.tsv.gz"
BATCH, NEGATIVES, MARGIN, TEMPERATURE, LR = 1024, 32, 6.0, 1.0, 0.1
MIN_LR = 0.01  # as a fraction of the initial rate
TARGET = 3.0  # times the triples per second of the peer
EQUAL = 0.01  # difference of MRR that counts as none
PEER_VARIABLE = "FIRTH_PYKEEN"


def write_train(folder: Path, triples: int) -> Path:
    """The training triples, or the first so many."""
    path = folder / "train.tsv"
    with gzip.open(data_path(TRAIN), "rt", encoding="utf-8") as source, path.open("w", encoding="utf-8") as target:
        target.writelines(islice(source, triples + 1 if triples else None))
    return path


def settings_of(options: Any) -> dict[str, Any]:
    return {
        **{"dimension": options.dimension, "epochs": options.epochs, "batch": BATCH, "negatives": NEGATIVES},
        **{"margin": MARGIN, "temperature": TEMPERATURE, "lr": LR, "loss": "adversarial", "sides": "bernoulli"},
    }


def child_firth(folder: Path, options: Any) -> dict[str, Any]:
    """Train with Firth, compiled before; the numbered triples are written for the peer."""
    import firth
    from firth.artifact.models import load

    few = [("a", "is", "b"), ("b", "is", "c"), ("c", "is", "a")]
    firth.train("transe", few, out=folder / "few", settings={**settings_of(options), "epochs": 1}, threads=2)
    out, path = folder / "transe", folder / "train.tsv"
    run = {"settings": settings_of(options), "threads": options.threads, "reload": False}
    _, seconds = timed(lambda: firth.train("transe", path, out=out, **run))
    model = load(out)
    sizes = {"entities": len(model.entity_rows), "relations": len(model.relations)}
    np.savez(folder / "graph.npz", triples=model.triples, **sizes)
    return {"seconds": seconds, "triples": len(model.triples), "kilobytes": peak_kilobytes()}


def child_pykeen(folder: Path, options: Any) -> dict[str, Any]:
    """Train the same with PyKEEN; the vectors are written."""
    import torch
    from pykeen.losses import NSSALoss
    from pykeen.models import TransE
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory

    torch.set_num_threads(options.threads)
    graph = np.load(folder / "graph.npz")
    triples = torch.from_numpy(graph["triples"].astype(np.int64))
    factory = CoreTriplesFactory(triples, int(graph["entities"]), int(graph["relations"]))
    model = TransE(
        triples_factory=factory,
        embedding_dim=options.dimension,
        scoring_fct_norm=1,
        entity_constrainer=None,
        loss=NSSALoss(margin=MARGIN, adversarial_temperature=TEMPERATURE),
        random_seed=0,
    )
    optimizer = torch.optim.Adagrad(model.get_grad_params(), lr=LR)
    schedule = {"start_factor": 1.0, "end_factor": MIN_LR, "total_iters": options.epochs}
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, **schedule)
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=optimizer,
        lr_scheduler=scheduler,
        negative_sampler="bernoulli",
        negative_sampler_kwargs={"num_negs_per_pos": NEGATIVES},
    )
    _, seconds = timed(lambda: loop.train(factory, num_epochs=options.epochs, batch_size=BATCH, use_tqdm=False))
    entities, relations = (
        part[0](None).detach().numpy() for part in (model.entity_representations, model.relation_representations)
    )
    np.savez(folder / "pykeen.npz", entities=entities, relations=relations)
    return {"seconds": seconds, "triples": len(triples), "kilobytes": peak_kilobytes()}


def mrr_of(folder: Path, vectors: Path | None = None) -> dict[str, Any]:
    """The filtered ranks of the test part by a trained model, or by the vectors of the peer in its place."""
    from firth.artifact.models import load
    from firth.report.links import evaluate_links

    model = load(folder / "transe")
    if vectors is not None:
        found, rows = np.load(vectors), np.array(model.vectors)
        rows[model.entity_rows] = found["entities"]
        model.vectors, model.relations = rows, np.ascontiguousarray(found["relations"])
    return evaluate_links(model, [data_path(TEST)])


def find_peer(given: Path | None) -> Path | None:
    """The folder of PyKEEN, if there is one."""
    named = given or (Path(os.environ[PEER_VARIABLE]) if os.environ.get(PEER_VARIABLE) else None)
    if given is not None and not (given / "pykeen").is_dir():
        raise SystemExit(f"{given} holds no pykeen: install it there as the script's help says, or leave --peer out.")
    return named.resolve() if named is not None and (named / "pykeen").is_dir() else None


def run_program(name: str, folder: Path, options: Any, peer: Path | None) -> dict[str, Any]:
    """The result of a child process, which finds the peer behind all packages of Firth's environment."""
    before = os.environ.get("PYTHONPATH")
    paths = [*([before] if before else []), *([str(peer)] if name == "pykeen" else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    try:
        sizes = {"--epochs": options.epochs, "--threads": options.threads, "--dimension": options.dimension}
        return run_child(__file__, name, folder, *(part for pair in sizes.items() for part in pair))
    finally:
        os.environ["PYTHONPATH"] = before or ""


def measure(name: str, place: Path, options: Any, peer: Path | None) -> dict[str, Any]:
    """Train in a child process, rank the test part, and print a line."""
    found = run_program(name, place, options, peer)
    found["speed"] = options.epochs * found["triples"] / found["seconds"]
    found |= mrr_of(place, place / "pykeen.npz" if name == "pykeen" else None)
    low, high = found["mrr_interval"]
    print(
        f"{name:<8}{found['speed']:>12,.0f} triples/s  {found['seconds']:8.1f} s  {found['kilobytes'] / 1024:6.0f} MB  "
        f"mrr {found['mrr']:.3f} [{low:.3f}, {high:.3f}]  hits@10 {found['hits_at_10']:.3f}",
        flush=True,
    )
    return found


def compare(options: Any, peer: Path | None) -> None:
    """Run the programs in turn and print the ratio of their speeds."""
    names = ("firth", "pykeen") if peer else ("firth",)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            write_train(Path(folder), options.triples)
            for name in names:
                found[name].append(measure(name, Path(folder), options, peer))
    if peer is None:
        print(f"PyKEEN was not found, so that nothing is compared: give --peer, or set {PEER_VARIABLE} (see --help).")
        return
    speeds, scores = (
        {name: statistics.median(one[key] for one in found[name]) for name in names} for key in ("speed", "mrr")
    )
    difference = scores["firth"] - scores["pykeen"]
    verdict = "at least equal" if difference >= -EQUAL else "lower"
    ratio = speeds["firth"] / speeds["pykeen"]
    print(f"{ratio:.1f} times the triples per second (target {TARGET:g}), MRR {verdict} ({difference:+.3f})")


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1, help="runs of each program, in turn; medians are compared")
    parser.add_argument("--dimension", type=int, default=100)
    parser.add_argument("--triples", type=int, default=0, help="use so many training triples; 0: all")
    parser.add_argument("--peer", type=Path, help=f"the folder of PyKEEN; by default that of {PEER_VARIABLE}")
    parser.add_argument("--child", nargs=2, metavar=("NAME", "FOLDER"), help=SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, folder = options.child
        print(json.dumps({"firth": child_firth, "pykeen": child_pykeen}[name](Path(folder), options)))
    else:
        compare(options, find_peer(options.peer))


if __name__ == "__main__":
    main()
