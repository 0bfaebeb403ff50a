"""`usv-tui serve`: the screen in a browser of this machine, through textual-serve.

Each browser has a screen of its own. A saved session is opened; a benchmark file is measured once,
without a screen, and every browser watches that session: a page that is opened twice must not
measure twice, and a browser can lock no clock.
"""

import argparse
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from usv_tui.cli.measure import check_file
from usv_tui.cli.options import Parser, positive_int, run_parser
from usv_tui.cli.voice import say
from usv_tui.errors import ExitCode, UsageError
from usv_tui.timesource import NS_PER_S, MonotonicTime

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_BEGINS_S = 60.0
_STEP_NS = NS_PER_S // 10
_LEAVES_S = 20.0
_FOREVER_S = "100000000"
_ENDS = ("--iters", "--max-time", "--until")


def parser() -> Parser:
    """`usv-tui serve`."""
    made = Parser(
        prog="usv-tui serve",
        description="The screen in a browser. A file is measured once, every browser watches it; "
        "what is no option of serve is one of the run.",
    )
    made.add_argument("file", metavar="FILE|FILE.usv")
    made.add_argument("--host", default="127.0.0.1", help="address to listen at (127.0.0.1)")
    made.add_argument("--port", type=positive_int, default=8000, metavar="N", help="port (8000)")
    return made


def run(argv: list[str]) -> int:
    """Serve until Ctrl-C; returns the exit code.

    Raises:
        UsageError: no textual-serve, no such file, or the address cannot be had.
    """
    args, further = parser().parse_known_args(argv)
    run_parser().parse_args([args.file, *further])  # a misspelt option is told now
    server_class = _server_class()
    path = Path(args.file)
    if path.suffix == ".usv":
        from usv_tui.session import journal

        journal.check(path)
        return _serve(server_class, args, "open", path)
    check_file(args.file)
    _check_address(args)
    session = _new_session(path)
    command = [sys.executable, "-m", "usv_tui", "run", str(path), "--headless"]
    limits = [] if any(o.startswith(_ENDS) for o in further) else ["--max-time", _FOREVER_S]
    child = subprocess.Popen([*command, "--save", str(session), *limits, *further])
    try:
        _await(session, child)
        return _serve(server_class, args, "watch", session)
    finally:
        _end(child)


def _server_class() -> Any:
    try:
        from aiohttp import web
        from textual_serve.server import Server
    except ImportError:
        raise UsageError(
            "serving needs textual-serve, which is not installed", "pip install 'usv-tui[web]'"
        ) from None

    class OwnPageServer(Server):  # type: ignore[misc, unused-ignore]
        """Takes keys from its own page only: any page may open a socket to this machine."""

        async def handle_websocket(self, request: Any) -> Any:
            if request.headers.get("Origin") not in _origins(self.host, self.port):
                return web.Response(status=403, text="this socket is for usv-tui's own page")
            return await super().handle_websocket(request)

        async def on_startup(self, _app: Any) -> None:
            say(f"usv-tui: {self.title} at {self.public_url} (Ctrl-C ends it)")

    return OwnPageServer


def _origins(host: str, port: int) -> set[str]:
    hosts = {host, *(("127.0.0.1", "localhost", "[::1]") if host in _LOOPBACK else ())}
    return {f"http://{name}{end}" for name in hosts for end in (f":{port}",)} | (
        {f"http://{name}" for name in hosts} if port == 80 else set()
    )


def _serve(server_class: Any, args: argparse.Namespace, verb: str, session: Path) -> int:
    _check_address(args)
    if args.host not in _LOOPBACK:
        say(f"usv-tui: whoever reaches {args.host}:{args.port} sees this screen and has its keys")
    words = [sys.executable, "-m", "usv_tui.tui.browser", verb, str(session.absolute())]
    server = server_class(
        shlex.join(words), host=args.host, port=args.port, title=Path(args.file).name
    )
    server.initialize_logging = lambda: None  # a line for each request is of no use here
    server.serve()
    return int(ExitCode.OK)


def _check_address(args: argparse.Namespace) -> None:
    import socket

    if args.port > 65535:
        raise UsageError(f"--port {args.port} is no port", "1 to 65535")
    try:
        family = socket.getaddrinfo(args.host, args.port)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((args.host, args.port))
    except OSError as error:
        raise UsageError(
            f"cannot listen at {args.host}:{args.port}: {error.strerror}", "--port takes another"
        ) from None


def _new_session(path: Path) -> Path:
    from usv_tui.session import journal

    now = time.strftime("%Y%m%d-%H%M%S", time.localtime())
    return journal.sessions_dir() / f"{now}-{path.stem}-{os.getpid()}.usv"


def _await(session: Path, child: "subprocess.Popen[bytes]") -> None:
    """Until there is something to watch."""
    clock, never = MonotonicTime(), threading.Event()
    deadline = time.monotonic() + _BEGINS_S
    while not session.exists() or not session.stat().st_size:
        if child.poll() is not None:
            raise UsageError("the run ended before it began", "its reason stands above")
        if time.monotonic() > deadline:
            raise UsageError(f"the run has saved nothing for {_BEGINS_S:.0f} s")
        clock.wait(never, _STEP_NS)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """The run ends in order, with its table."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(_LEAVES_S)
        except subprocess.TimeoutExpired:
            child.kill()
