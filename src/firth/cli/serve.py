"""firth serve: models over HTTP."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from firth.cli.console import checking_arguments, verb
from firth.errors import ArgumentError, OutputError


@verb
def serve(
    models: Annotated[list[Path], Argument(help="Folders of trained models; a model's name is its folder's.")],
    host: Annotated[
        str, Option("--host", help="Address to listen on; any but this machine needs --key-file.")
    ] = "127.0.0.1",
    port: Annotated[int, Option("--port", min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8080,
    key_file: Annotated[
        Path | None, Option("--key-file", help="File with the key that requests must have (Bearer).")
    ] = None,
    threads: Annotated[int | None, Option("--threads", min=1, help="Number of threads; default: all cores.")] = None,
    deadline: Annotated[float, Option("--deadline", min=0.1, help="Seconds after which a request is given up.")] = 30.0,
    log: Annotated[bool, Option("--log", help="Print a line for each request, without its content.")] = False,
) -> None:
    """Serve models over HTTP, with a page for people: SIGHUP reloads, SIGTERM stops.

    Example: firth serve bert kn gpt --port 8080
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise OutputError('serving needs two more packages: run `pip install "firth[serve]"`.')
    with checking_arguments():
        from firth.service.registry import model_names

        model_names(models)
        if deadline != deadline or deadline > 86_400:
            raise ArgumentError("--deadline is too long: give at most 86400 seconds.")
    from firth.service.limits import Limits
    from firth.service.server import serve as run

    run(models, host=host, port=port, key_file=key_file, limits=Limits(deadline=deadline), threads=threads, log=log)
