"""`hpckit serve MODEL`: a server with OpenAI's API, on one rank or several of a node."""

from __future__ import annotations

import argparse
import http.server
import ipaddress
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.cli.serving.ranks import ANNOUNCED, add_engine, engine_of, on_ranks, recorded
from hpckit.errors import InputError, RankLostError, SetupError
from hpckit.settings.table import Parser, bytes_text

if TYPE_CHECKING:
    from hpckit.serving.engine import Engine

TOKEN = "HPCKIT_TOKEN"
REFUSING_SECONDS = 2.0  # in which a server whose engine has ended answers 503, before it ends


def main(arguments: list[str]) -> int:
    """The verb `serve`; returns when the server has been stopped by Ctrl-C or SIGTERM, and its answers are sent."""
    it = Parser(
        prog="hpckit serve",
        description="Serve a language model: /v1/completions, /v1/chat/completions, /v1/models, /health, /metrics,"
        " /tokenize. Stopped by Ctrl-C or SIGTERM, after the answers that are under way.",
    )
    add_engine(it)
    it.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (127.0.0.1)")
    it.add_argument("--port", type=int, default=8000, metavar="P", help="0: any that is free (8000)")
    it.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME",
        help="of the model, as often as it has names; the first is that of answers (that of its folder)",
    )
    it.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"the token that clients send; else ${TOKEN}, else one is made for addresses beyond this machine",
    )
    it.add_argument("--waiting", type=int, default=256, metavar="N", help="most texts that wait; then 429 (256)")
    it.add_argument("--patience", type=float, default=60.0, metavar="S", help="for answers after SIGTERM (60 s)")
    it.add_argument("--mark", type=Path, help=argparse.SUPPRESS)
    options = it.parse_args(arguments)
    wrong = {
        f"--port {options.port} is not a port: 0 to 65535": not 0 <= options.port < 65536,
        f"--waiting {options.waiting}: at least 1 text must be able to wait": options.waiting < 1,
        f"--patience {options.patience:g} is not a time: 0 s or more": not options.patience >= 0,
    }
    if mistakes := [text for text, is_wrong in wrong.items() if is_wrong]:
        raise InputError("; ".join(mistakes), do="see hpckit serve --help")

    def work(comm: Any) -> int:
        import hpckit.serving.server.http  # what it needs is missed before the weights are read

        assert hpckit.serving.server.http
        listening = _listen(options.host, options.port) if comm is None or comm.rank == 0 else None
        engine = engine_of(options, comm)
        if listening is None:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)  # rank 0 tells when it ends
            try:
                engine.follow()
            except RankLostError:
                time.sleep(2 * REFUSING_SECONDS)  # rank 0 tells the clients, and then ends all ranks
                raise
            return 0
        return _serve(engine, listening, options, comm)

    return on_ranks("serve", arguments, options, work, refuse=_refuse)


def _serve(engine: Engine, listening: socket.socket, options: argparse.Namespace, comm: Any) -> int:
    import uvicorn

    from hpckit.serving.server.http import application
    from hpckit.serving.server.service import Service

    token = _token(options)
    engine.warm()
    service, names = Service(engine, options.waiting), options.name or [options.model.resolve().name]
    config = uvicorn.Config(
        application(service, names, token),
        log_level="warning",
        timeout_graceful_shutdown=max(1, round(options.patience)),
        server_header=False,
    )

    class Server(uvicorn.Server):
        """Says at once that it ends: new requests are refused."""

        def handle_exit(self, sig: int, frame: Any) -> None:
            service.draining = True
            super().handle_exit(sig, frame)

    server = Server(config)

    def end() -> None:
        server.should_exit = True

    def refuse() -> None:
        threading.Timer(REFUSING_SECONDS, end).start()

    service.on_failure = refuse
    host, port = listening.getsockname()[:2]
    matrices = bytes_text(engine.weights.nbytes * engine.team.columns)
    print(
        f"serving {names[0]} on http://{f'[{host}]' if ':' in host else host}:{port}: {engine.weights.kind} weights of"
        f" {matrices}, {engine.blocks.count} blocks of keys and values, {engine.team.size} rank(s)"
        f"{f', {engine.team.replicas} replicas' if engine.team.replicas > 1 else ''}",
        flush=True,
    )
    if options.mark:
        options.mark.write_text(f"{os.getpid()} {host} {port}", encoding="utf-8")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)  # uvicorn sends itself the signal again when it has ended
    with recorded(engine, options, "serve"):
        server.run(sockets=[listening])
    if service.problem is not None and comm is not None and comm.size > 1:
        if not isinstance(service.problem, RankLostError):
            traceback.print_exception(service.problem)
        elif not os.environ.get(ANNOUNCED):  # else the front end says it
            print(service.problem, file=sys.stderr, flush=True)
        code = getattr(service.problem, "exit_code", 1)
        comm.Abort(code)  # the others wait for a step that does not come
        os._exit(code)  # MPICH's Abort may return
    if service.problem is not None:
        raise service.problem
    return 0


def _refuse(where: str, message: str) -> None:
    """Answer 503 for a moment in the place of a server whose ranks are gone, which listened there."""
    _, host, port = where.split()
    body = json.dumps({"error": {"message": message, "type": "unavailable", "param": None, "code": 503}}).encode()

    class Refusing(http.server.BaseHTTPRequestHandler):
        """Every request has the same answer."""

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(503)
            for name, value in {"content-type": "application/json", "retry-after": "5"}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    listening, end = _listen(host, int(port)), time.monotonic() + REFUSING_SECONDS
    with http.server.ThreadingHTTPServer((host, 0), Refusing, bind_and_activate=False) as server:
        server.socket.close()
        server.socket, server.timeout, server.daemon_threads = listening, 0.1, True
        while time.monotonic() < end:
            server.handle_request()


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises `SetupError` where that is not possible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except OSError as problem:
        raise SetupError(
            f"cannot listen on {host}:{port}: {problem.strerror or problem}",
            likely="another server listens there, or the address is not one of this machine",
            do="give another --port, or --port 0 for any that is free",
        ) from None
    return made


def _token(options: argparse.Namespace) -> str:
    """What clients must send; "" for a server of this machine without a token."""
    if options.token_file is not None:
        try:
            found = options.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise InputError(f"{options.token_file} cannot be read: {problem}") from None
        if not found:
            raise InputError(f"{options.token_file} is empty", do="write the token into it")
        return found
    if found := os.environ.get(TOKEN, ""):
        return found
    try:
        is_here = ipaddress.ip_address(options.host).is_loopback
    except ValueError:
        is_here = options.host == "localhost"
    if is_here:
        return ""
    made = secrets.token_urlsafe(24)
    print(f"clients send the token {made}", flush=True)
    return made
