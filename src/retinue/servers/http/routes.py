"""The routes of the API in one table, from which the OpenAPI document is built too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, get_type_hints

from msgspec import Struct

from retinue import __version__
from retinue.client import Retinue
from retinue.servers.http import inputs, installation, statistics, timeline
from retinue.servers.http.auth import Authenticator
from retinue.servers.http.commands import RunCommands
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.queries import CONTENT_TYPES, RunQueries, open_transcript
from retinue.servers.http.responses import FileDownload
from retinue.servers.http.run_list import RunLists
from retinue.servers.http.sse import STREAM_HEADERS, EventStream

API_BASE = "/api/v1"


class ApiRoute(Struct, frozen=True):
    """One operation of the API."""

    method: str
    path: str
    """Below the base; at most one part is variable, as in `{id}`."""
    summary: str
    handle: Callable[..., Any]
    """Takes the variable part of the path, the query and the body, as far as the route has them. Returns the response
    value, or an awaitable of it."""
    response: Any
    """The type of the response value; None if it is not JSON."""
    query: type[Struct]
    body: type[Struct] | None
    status: int
    media: tuple[str, ...]
    takes_idempotency_key: bool = False


def make_route(
    method: str,
    path: str,
    handle: Callable[..., Any],
    summary: str,
    *,
    status: int = 200,
    media: tuple[str, ...] = ("application/json",),
) -> ApiRoute:
    """Return a route with the types of query, body and response that the handler names; any other POST is empty."""
    types = get_type_hints(handle)
    response = types["return"] if issubclass(types["return"], Struct) else None
    body = types.get("body") or (inputs.EmptyBody if method == "POST" else None)
    return ApiRoute(
        method,
        path,
        summary,
        handle,
        response,
        types.get("query", inputs.EmptyQuery),
        body,
        status,
        media,
        "idempotency_key" in types,
    )


class ApiHandlers:
    """The handlers of all routes."""

    def __init__(
        self,
        retinue: Retinue,
        feed: EventFeed,
        lists: RunLists,
        queries: RunQueries,
        commands: RunCommands,
        authenticator: Authenticator,
        address: str,
    ) -> None:
        self._retinue = retinue
        self._feed = feed
        self._lists = lists
        self._queries = queries
        self._statistics = statistics.RunStatistics(lists.cache)
        self._commands = commands
        self._authenticator = authenticator
        self._address = address
        self._installation = installation.InstallationInfo(retinue)
        self._started = time.time()

    def routes(self) -> list[ApiRoute]:
        return [*self._run_routes(), *self._command_routes()]

    def _run_routes(self) -> list[ApiRoute]:
        lists, queries = self._lists, self._queries
        files = tuple(kind.partition(";")[0] for kind in CONTENT_TYPES.values())
        stream = (STREAM_HEADERS["content-type"].partition(";")[0],)
        get = partial(make_route, "GET")
        return [
            get("/activity", lists.list_activity, "List root conversations with their runs, active ones first."),
            get("/runs", lists.list_runs, "List the latest run of every session, last changed first."),
            get(
                "/facets",
                self._statistics.count_facets,
                "Count the sessions that match a filter, in total and for each value of each field.",
            ),
            get(
                "/statistics",
                self._statistics.load_statistics,
                "Get cost, tokens and failures of the last days, by day, agent and model.",
            ),
            get("/runs/{id}", queries.load_run, "Get a run with all details except its events."),
            get("/runs/{id}/tree", queries.load_tree, "Get all runs of the root conversation of a run."),
            get(
                "/runs/{id}/timeline",
                timeline.TimelineQueries(self._retinue, queries).load_timeline,
                "Get the model calls and tool calls of all runs of a root conversation, with their times.",
            ),
            get("/runs/{id}/events", queries.load_events, "Get a page of a run's events."),
            get(
                "/runs/{id}/transcript", self._open_transcript, "Get the transcript of a run as a file.", media=files
            ),
            get("/runs/{id}/result", queries.load_result, "Get the answer of a run, or its output so far."),
            get("/sessions", lists.list_sessions, "List sessions, last changed first."),
            get("/sessions/{id}", queries.load_session, "Get a session with all its runs."),
            get("/events", self._watch_events, "Stream events as server-sent events.", media=stream),
        ]

    def _command_routes(self) -> list[ApiRoute]:
        commands, info = self._commands, self._installation
        get, post = partial(make_route, "GET"), partial(make_route, "POST")
        return [
            post("/runs", commands.start, "Start a run; responds when the run is recorded.", status=202),
            post(
                "/runs/{id}/cancel", commands.cancel, "Cancel a run of any process; responds when the run has ended."
            ),
            post(
                "/runs/{id}/resume",
                commands.resume,
                "Resume a session: give the same agent another task.",
                status=202,
            ),
            post("/runs/{id}/extend", commands.extend, "Extend the timeout of an active run."),
            post(
                "/runs/{id}/steer", commands.steer, "Send a message to an active run whose engine supports steering."
            ),
            post("/plans", commands.start_plan, "Start several tasks, in parallel or one after another.", status=202),
            get("/plans", commands.list_plans, "List the plans of this server."),
            get("/plans/{id}", commands.find_plan, "Get the progress of a plan."),
            get("/agents", info.list_agents, "Every agent."),
            get("/agents/{name}", info.find_agent, "Get one agent, without secrets."),
            post(
                "/agents/{name}/trust",
                info.trust_agent,
                "Approve a project's agent in the version that was reviewed.",
            ),
            get("/engines", info.list_engines, "Every engine."),
            get("/settings", info.show_settings, "Get the settings of a toolset with the source of each."),
            get("/health", self._show_health, "Get information about the server."),
            post("/links", self._create_link, "Create a link that opens the dashboard once."),
        ]

    async def _open_transcript(self, name: str, query: inputs.TranscriptQuery) -> FileDownload:
        return await open_transcript(self._retinue, self._queries, name, query.format)

    async def _watch_events(self, query: inputs.WatchQuery) -> EventStream:
        run = (await self._queries.find_run(query.run))[1] if query.run else None
        return EventStream(self._feed, query, run)

    def _show_health(self) -> installation.HealthStatus:
        return installation.HealthStatus(
            status="ok",
            version=__version__,
            pid=os.getpid(),
            started=self._started,
            state=str(self._retinue.state),
            cwd=self._retinue.cwd,
            live=len(self._feed.live),
            watchers=self._feed.watchers,
            stream=installation.StreamCursor(cursor=self._feed.cursor),
        )

    def _create_link(self) -> installation.LoginLink:
        return installation.LoginLink(link=login_url(self._address, self._authenticator.create_code()))


def login_url(address: str, code: str) -> str:
    """Return a link that opens the dashboard once. Browsers send nothing that follows `#` to a server."""
    return f"{address}/login#{code}"
