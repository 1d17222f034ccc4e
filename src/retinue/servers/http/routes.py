"""The routes of the API in one table, from which the OpenAPI document is built too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from retinue import __version__
from retinue.client import Retinue
from retinue.servers.http import details, inputs, installation, schemas, timeline
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
    response: Any = None
    """The type of the response value; None if it is not JSON."""
    query: type[Struct] = inputs.EmptyQuery
    body: type[Struct] | None = None
    status: int = 200
    media: tuple[str, ...] = ("application/json",)


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
        self._commands = commands
        self._authenticator = authenticator
        self._address = address
        self._installation = installation.InstallationInfo(retinue)
        self._started = time.time()

    def routes(self) -> list[ApiRoute]:
        return [
            *self._run_routes(),
            *self._session_routes(),
            *self._command_routes(),
            *self._installation_routes(),
        ]

    def _run_routes(self) -> list[ApiRoute]:
        queries, lists = self._queries, self._lists
        return [
            ApiRoute(
                "GET",
                "/activity",
                "Root conversations with their runs, those that go on first.",
                lists.list_activity,
                schemas.ActivityPage,
                query=inputs.GroupQuery,
            ),
            ApiRoute(
                "GET",
                "/runs",
                "Runs, last changed first: the latest of every session.",
                lists.list_runs,
                schemas.RunPage,
                query=inputs.RunQuery,
            ),
            ApiRoute(
                "GET", "/runs/{id}", "Everything about a run but its events.", queries.load_run, schemas.RunDetail
            ),
            ApiRoute(
                "GET",
                "/runs/{id}/tree",
                "All runs under the root conversation of a run.",
                queries.load_tree,
                schemas.RunTree,
            ),
            ApiRoute(
                "GET",
                "/runs/{id}/timeline",
                "When the runs under the root conversation of a run worked with models and tools.",
                timeline.TimelineQueries(self._retinue, queries).load_timeline,
                schemas.RunTimeline,
            ),
            ApiRoute(
                "GET",
                "/runs/{id}/events",
                "A page of a run's events.",
                queries.load_events,
                schemas.EventPage,
                query=inputs.EventQuery,
            ),
            ApiRoute(
                "GET",
                "/runs/{id}/transcript",
                "What was said and done in a run, as a file.",
                self._open_transcript,
                query=inputs.TranscriptQuery,
                media=tuple(kind.partition(";")[0] for kind in CONTENT_TYPES.values()),
            ),
            ApiRoute(
                "GET",
                "/runs/{id}/result",
                "What a run answered, or has said so far.",
                queries.load_result,
                schemas.ResultText,
            ),
        ]

    def _session_routes(self) -> list[ApiRoute]:
        queries, lists = self._queries, self._lists
        return [
            ApiRoute(
                "GET",
                "/sessions",
                "Sessions, last changed first.",
                lists.list_sessions,
                schemas.SessionPage,
                query=inputs.RunQuery,
            ),
            ApiRoute(
                "GET", "/sessions/{id}", "A session with all its runs.", queries.load_session, schemas.SessionDetail
            ),
            ApiRoute(
                "GET",
                "/events",
                "What happens, as server-sent events.",
                self._watch_events,
                query=inputs.WatchQuery,
                media=(STREAM_HEADERS["content-type"].partition(";")[0],),
            ),
        ]

    def _command_routes(self) -> list[ApiRoute]:
        commands = self._commands
        return [
            ApiRoute(
                "POST",
                "/runs",
                "Starts a run; answers when it is recorded.",
                commands.start,
                details.StartResponse,
                body=inputs.StartRunBody,
                status=202,
            ),
            ApiRoute(
                "POST",
                "/runs/{id}/cancel",
                "Stops a run, in whatever process it is; answers when it has ended.",
                commands.cancel,
                details.StopResponse,
                body=inputs.EmptyBody,
            ),
            ApiRoute(
                "POST",
                "/runs/{id}/resume",
                "Gives the same agent another task in the same session.",
                commands.resume,
                details.StartResponse,
                body=inputs.ResumeBody,
                status=202,
            ),
            ApiRoute(
                "POST",
                "/runs/{id}/extend",
                "Gives a live run more time.",
                commands.extend,
                details.ExtendResponse,
                body=inputs.ExtendBody,
            ),
            ApiRoute(
                "POST",
                "/runs/{id}/steer",
                "Says something to a live run, where its engine can hear.",
                commands.steer,
                details.SteerResponse,
                body=inputs.SteerBody,
            ),
            ApiRoute(
                "POST",
                "/plans",
                "Starts several tasks, at once or one after the other.",
                commands.start_plan,
                details.StartPlanResponse,
                body=inputs.StartPlanBody,
                status=202,
            ),
            ApiRoute("GET", "/plans", "Plans of this server.", commands.list_plans, details.PlanList),
            ApiRoute("GET", "/plans/{id}", "How far a plan has come.", commands.find_plan, details.PlanState),
        ]

    def _installation_routes(self) -> list[ApiRoute]:
        info = self._installation
        return [
            ApiRoute("GET", "/agents", "Every agent.", info.list_agents, installation.AgentList),
            ApiRoute(
                "GET", "/agents/{name}", "One agent, as others may see it.", info.find_agent, installation.AgentDetail
            ),
            ApiRoute(
                "POST",
                "/agents/{name}/trust",
                "Accepts a project's agent as it was looked at.",
                info.trust_agent,
                installation.AgentRow,
                body=inputs.TrustBody,
            ),
            ApiRoute("GET", "/engines", "Every engine.", info.list_engines, installation.EngineList),
            ApiRoute(
                "GET",
                "/settings",
                "The settings of a toolset, with where each comes from.",
                info.show_settings,
                installation.ToolsetSettings,
                query=inputs.ToolsetQuery,
            ),
            ApiRoute("GET", "/health", "The server itself.", self._show_health, installation.HealthStatus),
            ApiRoute(
                "POST",
                "/links",
                "A link that opens the dashboard, once.",
                self._create_link,
                installation.LoginLink,
                body=inputs.EmptyBody,
            ),
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
