"""One MCP server of a run: start it, list its tools, call them, and notice its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct

from retinue.mcp_client.results import InvalidToolError, Redact, ServerTool, convert_result, parse_tool
from retinue.model.mcp import McpServer
from retinue.model.runs import ServerAnswer
from retinue.model.sandbox import DEFAULT_PORTS, SandboxPolicy, is_allowed, parse_host_patterns
from retinue.output.untrusted_text import to_one_line

if TYPE_CHECKING:
    from retinue.engines.process.child import ChildProcess
    from retinue.engines.process.supervisor import ProcessSupervisor
    from retinue.mcp_client.sdk import HttpFailures, ServerSession

START_TIMEOUT = 30.0
"""Seconds a server has to start and to list its tools, as in Claude Code."""
CALL_TIMEOUT = 600.0
"""Seconds of one call, where the server's definition has no other; the limits of the run hold as well."""
EXIT_GRACE = 1.0
"""Seconds a program has to exit once its input is closed, before it is ended."""
STOP_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""
MAX_TOOLS = 256
"""Tools of one server; the others are left out and reported."""
MAX_PAGES = 64
"""Pages of a list of tools: no server needs more, and an endless list ends here."""
MAX_REASON_CHARS = 300
MAX_STDERR_CHARS = 200
UNAUTHORIZED = (401, 403)
NEEDS_LOGIN = (
    "it requires a login (HTTP {}), and OAuth is not supported: give it a token in headers, such as "
    "Authorization: Bearer ${{TOKEN}}"
)


class ServerPlace(Struct, frozen=True, kw_only=True):
    """Where the servers of one run are started."""

    cwd: str
    environ: Mapping[str, str]
    """What their programs get besides their own variables."""
    sandbox: SandboxPolicy
    limits: Mapping[str, int]
    open_supervisor: Callable[[], Awaitable[ProcessSupervisor]]
    redact: Redact


class RunningServer:
    """A server from its start to its end, through which `serve` takes it. A fault of it is a reason, no exception."""

    def __init__(self, server: McpServer, place: ServerPlace, report: Callable[[McpServer, str], None]) -> None:
        self.server = server
        self.tools: tuple[ServerTool, ...] = ()
        """Its usable tools, once it is ready."""
        self.end_reason = ""
        """Why it cannot be called any more; empty before its end."""
        self.ready = anyio.Event()
        """Set once its tools are known, or it has failed."""
        self._ended = anyio.Event()
        self._stopping = anyio.Event()
        self._stopped = anyio.Event()
        self._start_scope = anyio.CancelScope()
        self._place = place
        self._report = report
        self._session: ServerSession | None = None

    async def serve(self) -> None:
        """Start the server, keep it until it ends or this is cancelled, and stop it."""
        try:
            await self._serve()
        except Exception as error:  # noqa: BLE001 - a server, and the SDK on what it sends, must not end the run
            self._end(self._explain(error))
        finally:
            self._end("the run has ended", is_reported=False)
            self._stopped.set()

    async def stop(self) -> None:
        """Let the server exit by itself, as its protocol wants it, and wait until it has; cancelling is faster."""
        self._stopping.set()
        if not self.ready.is_set():
            self._start_scope.cancel()
        await self._stopped.wait()

    async def call(self, tool: str, arguments: dict[str, Any]) -> ServerAnswer:
        """Call a tool by the server's own name; every failure is an answer."""
        if self._session is None or self.end_reason:
            return self._error(f"does not run: {self.end_reason}")
        timeout = self.server.call_timeout or CALL_TIMEOUT
        try:
            with anyio.fail_after(timeout):
                result = await self._session.request("tools/call", {"name": tool, "arguments": arguments})
            return convert_result(self.server.name, result, self._place.redact)
        except TimeoutError:
            return self._error(f"did not answer within {timeout:g} seconds")
        except Exception as error:  # noqa: BLE001 - as above
            from retinue.mcp_client.sdk import ConnectionClosedError

            if isinstance(error, ConnectionClosedError):
                # The end of its program has a reason, which is noticed a moment later.
                with anyio.move_on_after(EXIT_GRACE):
                    await self._ended.wait()
            return self._error(f"failed: {self._explain_end() or self._explain(error)}")

    # -- its life ------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        timeout = self.server.start_timeout or START_TIMEOUT
        self._start_scope.deadline = anyio.current_time() + timeout
        with self._start_scope as scope:
            async with AsyncExitStack() as stack:
                child = await stack.enter_async_context(self._open_process())
                from retinue.mcp_client.sdk import import_sdk, open_session

                await import_sdk()
                failures = _make_failures()
                streams = await stack.enter_async_context(self._open_streams(child, failures))
                try:
                    self._session = await stack.enter_async_context(open_session(streams))
                    self.tools = await self._list_tools(self._session)
                except Exception as error:
                    if failures.status in UNAUTHORIZED:
                        raise _FailedServerError(NEEDS_LOGIN.format(failures.status)) from error
                    if child:
                        raise await self._explain_exit(child, error) from error
                    raise
                scope.deadline = float("inf")
                self.ready.set()
                if child:
                    await self._wait_exit(child)
                else:
                    await self._stopping.wait()
        if scope.cancelled_caught and not self._stopping.is_set():
            self._end(f"it did not list its tools within {timeout:g} seconds")

    async def _wait_exit(self, child: ChildProcess) -> None:
        """Wait until its program exits, by itself or because its input is closed at the end of the run."""
        async with anyio.create_task_group() as group:

            async def close_when_stopping() -> None:
                await self._stopping.wait()
                child.close_stdin()
                await anyio.sleep(EXIT_GRACE)
                group.cancel_scope.cancel()

            group.start_soon(close_when_stopping)
            end = await child.wait()
            if not self._stopping.is_set():
                self._end(f"its program {end.describe()}{self._quote_stderr(child)}")
            group.cancel_scope.cancel()

    @asynccontextmanager
    async def _open_process(self) -> AsyncIterator[ChildProcess | None]:
        """Start its program in the sandbox of the run, and stop it; None for a server at an address."""
        if self.server.transport != "stdio":
            self._check_host()
            yield None
            return
        from retinue.engines.process.child import open_child
        from retinue.engines.process.command import ChildCommand, StdinMode
        from retinue.engines.sandbox.access import find_installation, list_private
        from retinue.engines.sandbox.launch import SandboxNeeds, open_sandbox

        place, server = self._place, self.server
        own = {name: secret.reveal() for name, secret in server.environment}
        environ = {**place.environ, **own}
        command = ChildCommand(
            argv=(server.command, *server.args),
            cwd=str(Path(place.cwd, server.cwd)),
            environ=environ,
            stdin=StdinMode.PIPE,
            private_streams=True,
            limits=place.limits,
        )
        private = list_private(place.sandbox, place.cwd, place.environ)
        needs = SandboxNeeds(
            read=find_installation(server.command, environ.get("PATH", ""), private),
            cwd=place.cwd,
            environ=place.environ,
        )
        async with (
            open_sandbox(command, place.sandbox, needs) as sandboxed,
            open_child(sandboxed.command, await place.open_supervisor(), grace=STOP_GRACE) as child,
        ):
            try:
                yield child
            finally:
                child.answered = True

    @asynccontextmanager
    async def _open_streams(self, child: ChildProcess | None, failures: HttpFailures) -> AsyncIterator[Any]:
        from retinue.mcp_client.sdk import open_http, open_stdio

        if child:
            async with open_stdio(
                child.receive, child.send, lambda error: self._end(self._explain(error))
            ) as streams:
                yield streams
            return
        headers = {name: secret.reveal() for name, secret in self.server.headers}
        is_sse = self.server.transport == "sse"
        async with open_http(self.server.url, headers, failures, is_sse=is_sse) as streams:
            yield streams

    def _check_host(self) -> None:
        """Check that the sandbox of the run lets it reach the server's address.

        Raises:
            _FailedServerError: it does not.
        """
        from urllib.parse import urlsplit

        if not self._place.sandbox.is_strict:
            return
        parts = urlsplit(self.server.url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
        if not is_allowed(parts.hostname or "", port, parse_host_patterns(self._place.sandbox.hosts)):
            raise _FailedServerError(f"the sandbox of the run does not reach {parts.hostname} (sandbox_hosts)")

    # -- its tools -----------------------------------------------------------------------------------

    async def _list_tools(self, session: ServerSession) -> tuple[ServerTool, ...]:
        tools: dict[str, ServerTool] = {}
        unusable: list[str] = []
        cursor: object = None
        left_out = 0
        for _ in range(MAX_PAGES):
            page = await session.request("tools/list", {"cursor": cursor} if cursor else {})
            listed = page.get("tools")
            for given in listed if isinstance(listed, list) else []:
                if len(tools) + len(unusable) >= MAX_TOOLS:
                    left_out += 1
                    continue
                try:
                    tool = parse_tool(given, self._place.redact)
                except InvalidToolError as error:
                    unusable.append(str(error))
                else:
                    tools.setdefault(tool.name, tool)
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or left_out:
                break
        if left_out or cursor:
            self._report(
                self.server, f"lists more than {MAX_TOOLS} tools or {MAX_PAGES} pages; the others are left out"
            )
        for reason in unusable:
            self._report(self.server, f"has a tool that is left out: {reason}")
        return tuple(tool for tool in tools.values() if self.server.offers(tool.name))

    # -- its end -------------------------------------------------------------------------------------

    def _end(self, reason: str, *, is_reported: bool = True) -> None:
        if not self.end_reason:
            was_ready = self.ready.is_set()
            self.end_reason = reason
            if is_reported:
                done = "ended during the run" if was_ready else "could not be started, and its tools are left out"
                self._report(self.server, f"{done}: {reason}")
        self.ready.set()
        self._ended.set()

    def _explain_end(self) -> str:
        return self.end_reason

    def _error(self, text: str) -> ServerAnswer:
        return ServerAnswer(f"The MCP server {self.server.name} {text}. Work without it.", is_error=True)

    async def _explain_exit(self, child: ChildProcess, error: Exception) -> _FailedServerError:
        """Return the error of a program that ended before it had listed its tools; else that of its answer."""
        with anyio.move_on_after(EXIT_GRACE):
            end = await child.wait()
            return _FailedServerError(f"its program {end.describe()}{self._quote_stderr(child)}")
        return _FailedServerError(self._explain(error))

    def _explain(self, error: BaseException) -> str:
        """Return the reason of a failure in one line, without secrets."""
        from retinue.engines.base import EngineError
        from retinue.mcp_client.sdk import MAX_MESSAGE_BYTES, MessageTooLongError

        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, MessageTooLongError):
            return f"it sent a message of more than {MAX_MESSAGE_BYTES} bytes"
        text = error.failure.message if isinstance(error, EngineError) else str(error) or type(error).__name__
        return to_one_line(self._place.redact(text), MAX_REASON_CHARS).rstrip(".")

    def _quote_stderr(self, child: ChildProcess) -> str:
        """Return the last line of what a program wrote to stderr: cut after its secrets are masked."""
        lines = self._place.redact(child.stderr_tail.decode("utf-8", "replace")).strip().splitlines()
        return f" ({to_one_line(lines[-1], MAX_STDERR_CHARS)})" if lines else ""


class _FailedServerError(Exception):
    """A server cannot be used; the message has the reason."""


def _make_failures() -> HttpFailures:
    from retinue.mcp_client.sdk import HttpFailures

    return HttpFailures()
