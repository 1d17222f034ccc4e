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
        method, path, summary, handle, response, types.get("query", inputs.EmptyQuery), body, status, media
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
            get("/activity", lists.list_activity, "Root conversations with their runs, those that go on first."),
            get("/runs", lists.list_runs, "Runs, last changed first: the latest of every session."),
            get(
                "/facets",
                self._statistics.count_facets,
                "How many sessions match a filter, and how many each of its choices would leave.",
            ),
            get(
                "/statistics",
                self._statistics.load_statistics,
                "Cost, tokens and failures of the last days, by day, agent and model.",
            ),
            get("/runs/{id}", queries.load_run, "Everything about a run but its events."),
            get("/runs/{id}/tree", queries.load_tree, "All runs under the root conversation of a run."),
            get(
                "/runs/{id}/timeline",
                timeline.TimelineQueries(self._retinue, queries).load_timeline,
                "When the runs under the root conversation of a run worked with models and tools.",
            ),
            get("/runs/{id}/events", queries.load_events, "A page of a run's events."),
            get(
                "/runs/{id}/transcript",
                self._open_transcript,
                "What was said and done in a run, as a file.",
                media=files,
            ),
            get("/runs/{id}/result", queries.load_result, "What a run answered, or has said so far."),
            get("/sessions", lists.list_sessions, "Sessions, last changed first."),
            get("/sessions/{id}", queries.load_session, "A session with all its runs."),
            get("/events", self._watch_events, "What happens, as server-sent events.", media=stream),
        ]

    def _command_routes(self) -> list[ApiRoute]:
        commands, info = self._commands, self._installation
        get, post = partial(make_route, "GET"), partial(make_route, "POST")
        return [
            post("/runs", commands.start, "Starts a run; answers when it is recorded.", status=202),
            post(
                "/runs/{id}/cancel",
                commands.cancel,
                "Stops a run, in whatever process it is; answers when it has ended.",
            ),
            post(
                "/runs/{id}/resume",
                commands.resume,
                "Gives the same agent another task in the same session.",
                status=202,
            ),
            post("/runs/{id}/extend", commands.extend, "Gives a live run more time."),
            post("/runs/{id}/steer", commands.steer, "Says something to a live run, where its engine can hear."),
            post("/plans", commands.start_plan, "Starts several tasks, at once or one after the other.", status=202),
            get("/plans", commands.list_plans, "Plans of this server."),
            get("/plans/{id}", commands.find_plan, "How far a plan has come."),
            get("/agents", info.list_agents, "Every agent."),
            get("/agents/{name}", info.find_agent, "One agent, as others may see it."),
            post("/agents/{name}/trust", info.trust_agent, "Accepts a project's agent as it was looked at."),
            get("/engines", info.list_engines, "Every engine."),
            get("/settings", info.show_settings, "The settings of a toolset, with where each comes from."),
            get("/health", self._show_health, "The server itself."),
            post("/links", self._create_link, "A link that opens the dashboard, once."),
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
