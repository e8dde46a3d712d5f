"""`firth` commands run by forks of one process that has imported everything, instead of a new interpreter each.

    python tests/fork_server.py SOCKET      serves until standard input is closed

`write_client` writes the `firth` that a shell script finds on its path: it passes arguments, folder, environment and
standard streams to the server and exits with the code of the command.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import traceback
from pathlib import Path

CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
server.sendall(request)
sys.exit(int(server.makefile().read()))
"""


def write_client(path: Path, address: Path) -> None:
    """Write an executable `firth` that sends its command to the server at a socket."""
    path.write_text(CLIENT.format(python=sys.executable, address=str(address)), encoding="utf-8")
    path.chmod(0o755)


def serve(address: str) -> None:
    """Run each command that a client sends in a fork of this process."""
    import numba  # noqa: F401  what commands would import themselves
    import sklearn.linear_model  # noqa: F401
    import torch  # noqa: F401

    import firth.cli.main  # noqa: F401

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        size, streams, _, _ = socket.recv_fds(connection, 8, 3)
        arguments, folder, environment = json.loads(_receive(connection, int.from_bytes(size, "big")))
        child = os.fork()
        if child == 0:
            _run(arguments, folder, environment, streams)
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        connection.close()


def _exit_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def _run(arguments: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> None:
    """The command itself; never returns."""
    code: object = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["firth", *arguments]
        from firth.cli.main import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    serve(sys.argv[1])
