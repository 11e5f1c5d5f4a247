"""Web server of the explorer: it serves one page, and answers the requests of the page with JSON.

The page polls the server once a second (`POST /api/subjects`, `GET /api/bus`) and uses no WebSocket. A slow tab
therefore sends fewer requests, and a hidden tab sends none.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Collection
from importlib.resources import files
from typing import Any

from oz.errors import ConfigurationError, OzError, PermissionDenied, missing_module
from oz.escaping import json_text, printable
from oz.explorer import payload as payloads
from oz.explorer.access import refusal
from oz.explorer.view import BusView
from oz.metrics import format_address, parse_address
from oz.subjects.dialects import DIALECTS

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
except ImportError as error:
    raise missing_module((error.name or "starlette").partition(".")[0], "explorer") from None

MAX_BODY = 1 << 20  # bytes

Publish = Callable[[str, bytes], None]

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_PAGE = {
    "/": ("index.html", "text/html"),
    "/explorer.js": ("explorer.js", "text/javascript"),
    "/explorer.css": ("explorer.css", "text/css"),
}


def make_app(view: BusView, *, publish: Publish | None = None, names: Collection[str] = ()) -> Starlette:
    """Return the ASGI application.

    Args:
        view: samples of the bus that the page shows.
        publish: function that publishes a message of the page's form; None for a page without this form.
        names: names of this host that are accepted in the header `Host`, beside `localhost`.
    """

    async def settings(_request: Request) -> Any:
        return {
            "bus": printable(view.node.bus),
            "node": printable(view.node.name),
            "dialects": list(DIALECTS),
            "forms": payloads.FORMS,
            "publish": publish is not None,
        }

    async def subjects(request: Request) -> Any:
        asked = await _body(request)
        opened, pattern = asked.get("open", []), asked.get("pattern", "")
        dialect, selected = asked.get("dialect") or None, asked.get("selected")
        form = asked.get("form", "auto")
        if not (
            isinstance(opened, list)
            and all(isinstance(path, str) for path in opened)
            and isinstance(pattern, str)
            and (dialect is None or dialect in DIALECTS)
            and (selected is None or isinstance(selected, str))
            and form in payloads.FORMS
        ):
            raise HTTPException(400, "a field has a wrong value")
        return await run_in_threadpool(view.subjects, frozenset(opened), pattern, dialect, selected, form)

    async def bus(_request: Request) -> Any:
        return await run_in_threadpool(view.bus)

    async def send(request: Request) -> Any:
        asked = await _body(request)
        subject, text, form = asked.get("subject"), asked.get("payload"), asked.get("form")
        if not (isinstance(subject, str) and isinstance(text, str) and form in ("msgpack", "text")):
            raise HTTPException(400, "a field has a wrong value")
        assert publish is not None
        await run_in_threadpool(publish, subject, payloads.encode(text, form))
        return {"published": printable(subject)}

    def route(path: str, function: Callable[[Request], Any], method: str = "GET") -> Any:
        async def serve(request: Request) -> Response:
            try:
                _check(request, names)
                found = await function(request)
            except HTTPException as error:
                return _json({"error": error.detail}, error.status_code)
            except PermissionDenied as error:
                return _json({"error": printable(str(error))}, 403)
            except (OzError, ValueError, TypeError) as error:
                return _json({"error": printable(str(error))}, 400)
            return found if isinstance(found, Response) else _json(found)

        return Route(path, serve, methods=[method])

    routes = [
        *(route(path, _file(*of)) for path, of in _PAGE.items()),
        route("/api/settings", settings),
        route("/api/subjects", subjects, "POST"),
        route("/api/bus", bus),
    ]
    if publish is not None:
        routes.append(route("/api/publish", send, "POST"))
    return Starlette(routes=routes)


def _check(request: Request, names: Collection[str]) -> None:
    reason = refusal(request.headers.get("host"), request.headers.get("origin"), names)
    if reason:
        raise HTTPException(403, printable(reason))


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request.

    Only the content type of JSON is accepted: a form of another site can send requests, but not with this type.
    """
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "the content type is not application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise HTTPException(413, f"the request has more than {MAX_BODY:,} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HTTPException(400, "the request is not a JSON object")
    return found


def _file(name: str, kind: str) -> Callable[[Request], Any]:
    content = files("oz.explorer").joinpath("page", name).read_bytes()

    async def send(_request: Request) -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return send


def _json(value: Any, status: int = 200) -> Response:
    return Response(json_text(value).encode(), status, HEADERS, "application/json")


class Server:
    """HTTP server of an explorer. It runs in its own thread.

    Attributes:
        url: URL of the page.
    """

    def __init__(
        self, view: BusView, address: str, *, publish: Publish | None = None, names: Collection[str] = ()
    ) -> None:
        """Bind the address and start the server.

        Args:
            view: samples of the bus that the page shows.
            address: address to bind, as `HOST:PORT`. Port 0 selects a free port.
            publish: function that publishes a message of the page's form; None for a page without this form.
            names: names of this host that are accepted in the header `Host`, beside `localhost`.

        Raises:
            ConfigurationError: the address is malformed, or cannot be bound.
        """
        host, port = parse_address("explorer", address, example="127.0.0.1:8460")
        try:
            self._socket = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
            )
        except OSError as error:
            rule = f"it cannot be bound: {error.strerror or error}"
            raise ConfigurationError("explorer", address, "argument", rule) from None
        self.url = f"http://{format_address(*self._socket.getsockname()[:2])}/"
        config = uvicorn.Config(
            make_app(view, publish=publish, names=names),
            http="h11",
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=100,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="oz explorer", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the server. A second call has no effect."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
