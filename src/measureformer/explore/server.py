"""The server of the apps: one process, on this machine only, and nothing of marimo but what a running app needs.

marimo is an editor too, which can run any code, install packages and talk to language models. Here apps are served to
be used: requests for anything else are answered with "not found", whatever marimo would say, and so are requests that
a page of another site makes in the reader's browser. Other users of this machine are kept out by a token, which is in
the address that the command prints, and then in a cookie.
"""

from __future__ import annotations

import re
import secrets
import socket
import webbrowser
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from measureformer.errors import OptionError, need
from measureformer.explore.catalogue import App, catalogue, find
from measureformer.explore.page import index

HERE = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that no other can reach."""

# what a browser asks for while an app is used: the page, its files, what widgets are made of, and their values
NEEDED = re.compile(
    r"/|/(?:assets|@file)/[\w@.,/+-]+|/[\w-]+\.(?:ico|png|json|webmanifest|css|js)|/ws|/health"
    r"|/api/kernel/(?:set_ui_element_value|set_model_value|function_call|instantiate)"
)
# files of marimo itself, which a browser fetches without a cookie
PUBLIC = re.compile(r"/assets/[\w@.,/+-]+|/[\w-]+\.(?:ico|png|json|webmanifest|css|js)")
OFF: dict[str, Any] = {
    "ai": {"enabled": False, "allow_provider_config": False},
    "completion": {"copilot": False, "activate_on_typing": False},
    "mcp": {"mcpServers": {}, "presets": []},
    "display": {"theme": "light"},
    "runtime": {"on_cell_change": "autorun", "auto_instantiate": True, "auto_reload": "off", "show_tracebacks": False},
    "sharing": {"html": False, "wasm": False},
}
"""Settings of marimo that hold whatever the reader's own file of settings says."""

# marimo's own menu offers exports, which are off
HEAD = '<style>[data-testid="notebook-actions-dropdown"] { display: none; }</style>'


def serve(name: str | None, *, host: str, port: int, ready: Callable[[str], None], browser: bool) -> None:
    """Serve all apps until Ctrl-C; `ready` is called with the address of the one that was asked for."""
    require()
    chosen = None if name is None else find(name)
    import uvicorn

    with _listening(host, port) as listening:
        number = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        token = secrets.token_urlsafe(24)
        address = f"http://{shown}:{number}/" + (f"{chosen.name}/" if chosen else "") + f"?token={token}"

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                ready(address)
                if browser:
                    webbrowser.open(address)

        settings = uvicorn.Config(
            application(host, number, token), log_level="error", lifespan="off", ws="websockets-sansio"
        )
        Server(settings).run(sockets=[listening])


def require() -> None:
    """Refuse to go on where marimo or anywidget is not installed."""
    for name in ("marimo", "anywidget"):
        need(name, "explore")


def application(host: str, port: int, token: str) -> Any:
    """The ASGI application: the index, the apps below their names, and the guard in front of both."""
    import marimo
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    apps = catalogue()
    # all apps load marimo's files from one address: a browser then keeps them from app to app
    assets = f"/{apps[0].name}"
    builder = marimo.create_asgi_app(quiet=True, include_code=False, html_head=HEAD, asset_url=assets)
    for app in apps:
        builder = builder.with_app(path=f"/{app.name}", root=str(app.path))
    served: Any = builder.build()
    for route in served.routes:
        state = getattr(getattr(route, "app", None), "state", None)
        if state is not None:
            state.config_manager = state.config_manager.with_overrides(OFF)
            state.session_manager._config_manager = state.config_manager
    page = index(apps)

    async def front(_: Any) -> Any:
        return HTMLResponse(page)

    served.router.routes.insert(0, Route("/", front))
    return Guard(served, apps, host, port, token)


class Guard:
    """Lets through what a running app needs, asked for by a page of this server; everything else is not found.

    A request with the token in its address gets a cookie; without either it is refused.
    """

    def __init__(self, inner: Any, apps: tuple[App, ...], host: str, port: int, token: str) -> None:
        self.inner, self.token = inner, token
        # cookies do not tell the ports of a machine apart
        self.cookie = f"measureformer-{port}"
        self.names = "|".join(app.name for app in apps)
        # a name that resolves to this machine in somebody else's hands is not ours: only these are
        self.hosts = {f"{'[::1]' if name == '::1' else name}:{port}" for name in HERE} if host in HERE else None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.inner(scope, receive, send)
            return
        path, headers = scope["path"], dict(scope["headers"])
        allowed = self.allows(path, headers)
        if allowed and self.knows(path, headers):
            await self.inner(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif allowed and self._is_token(parse_qs(scope["query_string"]).get(b"token", [b""])[0]):
            cookie = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(send, 303, b"", (b"location", path.encode()), (b"set-cookie", cookie.encode()))
        elif allowed:
            await _answer(send, 403, b"Open the address that the command has printed, with its token.")
        else:
            await _answer(send, 404, b"not found")

    def allows(self, path: str, headers: dict[bytes, bytes]) -> bool:
        host, origin = (headers.get(name, b"").decode("latin-1") for name in (b"host", b"origin"))
        if (self.hosts is not None and host not in self.hosts) or (origin and origin != f"http://{host}"):
            return False
        match = None if ".." in path else re.fullmatch(rf"/({self.names})(/.*)?", path)
        return path == "/" or (match is not None and NEEDED.fullmatch(match[2] or "/") is not None)

    def knows(self, path: str, headers: dict[bytes, bytes]) -> bool:
        """Whether the request carries the cookie, or asks for files that need none."""
        if PUBLIC.fullmatch(re.sub(rf"^/(?:{self.names})", "", path)):
            return True
        pairs = (part.strip().partition(b"=") for part in headers.get(b"cookie", b"").split(b";"))
        return any(name == self.cookie.encode() and self._is_token(value) for name, _, value in pairs)

    def _is_token(self, given: bytes) -> bool:
        return secrets.compare_digest(given, self.token.encode())


async def _answer(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    about = [(b"content-type", b"text/plain"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": body})


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one."""
    if not 0 <= port <= 65535:
        raise OptionError(got=f"port {port}", need="a number from 0 to 65535", do="0 takes any free port.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise OptionError(
            got=f"host {host[:60]!r}, which is no address", need="a name or address of this machine", do="Leave it out."
        ) from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise OptionError(
            got=f"{host}:{port}, which cannot be opened ({error.strerror or error})",
            need="a free port of this machine",
            do="Another explorer may be running. Try --port 0, which takes any free one.",
        ) from None
    return listening
