"""The API as a table of routes over what reads, what acts and what there is."""

from __future__ import annotations

import os
import time

from retinue import __version__
from retinue.client import Retinue
from retinue.servers.http import details as outcomes
from retinue.servers.http import inputs, installation
from retinue.servers.http import schemas as values
from retinue.servers.http.auth import Authenticator
from retinue.servers.http.catalog import InstallationInfo
from retinue.servers.http.commands import RunCommands
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.queries import RunQueries
from retinue.servers.http.routes import ApiRequest, ApiRoute
from retinue.servers.http.run_list import RunLists
from retinue.servers.http.sse import STREAM_HEADERS, EventStream
from retinue.servers.http.transcripts import CONTENT_TYPES, open_transcript


class ApiHandlers:
    """What every route does."""

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
        self._installation = InstallationInfo(retinue)
        self._started = time.time()

    def routes(self) -> list[ApiRoute]:
        return [*self._query_routes(), *self._command_routes(), *self._installation_routes()]

    def _query_routes(self) -> list[ApiRoute]:
        queries, lists = self._queries, self._lists

        async def list_events(request: ApiRequest) -> values.EventPage:
            return await queries.load_events(request.name, request.query)

        async def render_transcript(request: ApiRequest) -> object:
            return await open_transcript(self._retinue, queries, request.name, request.query.format)

        return [
            ApiRoute(
                method="GET",
                path="/activity",
                summary="Root conversations with their runs, those that go on first.",
                query=inputs.GroupQuery,
                response=values.ActivityPage,
                handle=lambda given: lists.list_activity(given.query),
            ),
            ApiRoute(
                method="GET",
                path="/runs",
                summary="Runs, last changed first: the latest of every session.",
                query=inputs.RunQuery,
                response=values.RunPage,
                handle=lambda given: lists.list_runs(given.query),
            ),
            ApiRoute(
                method="GET",
                path="/runs/{id}",
                summary="Everything about a run but its events.",
                response=values.RunDetail,
                handle=lambda given: queries.load_run(given.name),
            ),
            ApiRoute(
                method="GET",
                path="/runs/{id}/tree",
                summary="All runs under the root conversation of a run.",
                response=values.RunTree,
                handle=lambda given: queries.load_tree(given.name),
            ),
            ApiRoute(
                method="GET",
                path="/runs/{id}/events",
                summary="A page of a run's events.",
                query=inputs.EventQuery,
                response=values.EventPage,
                handle=list_events,
            ),
            ApiRoute(
                method="GET",
                path="/runs/{id}/transcript",
                summary="What was said and done in a run, as a file.",
                query=inputs.TranscriptQuery,
                handle=render_transcript,
                media=tuple(kind.partition(";")[0] for kind in CONTENT_TYPES.values()),
            ),
            ApiRoute(
                method="GET",
                path="/runs/{id}/result",
                summary="What a run answered, or has said so far.",
                response=values.ResultText,
                handle=lambda given: queries.load_result(given.name),
            ),
            ApiRoute(
                method="GET",
                path="/sessions",
                summary="Sessions, last changed first.",
                query=inputs.RunQuery,
                response=values.SessionPage,
                handle=lambda given: lists.list_sessions(given.query),
            ),
            ApiRoute(
                method="GET",
                path="/sessions/{id}",
                summary="A session with all its runs.",
                response=values.SessionDetail,
                handle=lambda given: queries.load_session(given.name),
            ),
            ApiRoute(
                method="GET",
                path="/events",
                summary="What happens, as server-sent events.",
                query=inputs.WatchQuery,
                handle=self._watch_events,
                media=(STREAM_HEADERS["content-type"].partition(";")[0],),
            ),
        ]

    def _command_routes(self) -> list[ApiRoute]:
        commands = self._commands

        async def list_plans(_: ApiRequest) -> outcomes.PlanList:
            return commands.list_plans()

        async def find_plan(request: ApiRequest) -> outcomes.PlanState:
            return commands.find_plan(request.name)

        return [
            ApiRoute(
                method="POST",
                path="/runs",
                summary="Starts a run; answers when it is recorded.",
                body=inputs.StartRunBody,
                response=outcomes.StartResponse,
                status=202,
                handle=lambda given: commands.start(given.body),
            ),
            ApiRoute(
                method="POST",
                path="/runs/{id}/cancel",
                summary="Stops a run, in whatever process it is; answers when it has ended.",
                body=inputs.EmptyBody,
                response=outcomes.StopResponse,
                handle=lambda given: commands.cancel(given.name),
            ),
            ApiRoute(
                method="POST",
                path="/runs/{id}/resume",
                summary="Gives the same agent another task in the same session.",
                body=inputs.ResumeBody,
                response=outcomes.StartResponse,
                status=202,
                handle=lambda given: commands.resume(given.name, given.body),
            ),
            ApiRoute(
                method="POST",
                path="/runs/{id}/extend",
                summary="Gives a live run more time.",
                body=inputs.ExtendBody,
                response=outcomes.ExtendResponse,
                handle=lambda given: commands.extend(given.name, given.body),
            ),
            ApiRoute(
                method="POST",
                path="/runs/{id}/steer",
                summary="Says something to a live run, where its engine can hear.",
                body=inputs.SteerBody,
                response=outcomes.SteerResponse,
                handle=lambda given: commands.steer(given.name, given.body),
            ),
            ApiRoute(
                method="POST",
                path="/plans",
                summary="Starts several tasks, at once or one after the other.",
                body=inputs.StartPlanBody,
                response=outcomes.StartPlanResponse,
                status=202,
                handle=lambda given: commands.start_plan(given.body),
            ),
            ApiRoute(
                method="GET",
                path="/plans",
                summary="Plans of this server.",
                response=outcomes.PlanList,
                handle=list_plans,
            ),
            ApiRoute(
                method="GET",
                path="/plans/{id}",
                summary="How far a plan has come.",
                response=outcomes.PlanState,
                handle=find_plan,
            ),
        ]

    def _installation_routes(self) -> list[ApiRoute]:
        installation_info = self._installation

        async def list_agents(_: ApiRequest) -> installation.AgentList:
            return installation_info.list_agents()

        async def find_agent(request: ApiRequest) -> installation.AgentDetail:
            return installation_info.find_agent(request.name)

        async def trust_agent(request: ApiRequest) -> installation.AgentRow:
            return installation_info.trust_agent(request.name, request.body.digest)

        async def list_engines(_: ApiRequest) -> installation.EngineList:
            return installation_info.list_engines()

        async def show_settings(request: ApiRequest) -> installation.ToolsetSettings:
            return installation_info.show_settings(request.query.surface)

        return [
            ApiRoute(
                method="GET",
                path="/agents",
                summary="Every agent.",
                response=installation.AgentList,
                handle=list_agents,
            ),
            ApiRoute(
                method="GET",
                path="/agents/{name}",
                summary="One agent, as others may see it.",
                response=installation.AgentDetail,
                handle=find_agent,
            ),
            ApiRoute(
                method="POST",
                path="/agents/{name}/trust",
                summary="Accepts a project's agent as it was looked at.",
                body=inputs.TrustBody,
                response=installation.AgentRow,
                handle=trust_agent,
            ),
            ApiRoute(
                method="GET",
                path="/engines",
                summary="Every engine.",
                response=installation.EngineList,
                handle=list_engines,
            ),
            ApiRoute(
                method="GET",
                path="/settings",
                summary="The settings of a surface, with where each comes from.",
                query=inputs.ToolsetQuery,
                response=installation.ToolsetSettings,
                handle=show_settings,
            ),
            ApiRoute(
                method="GET",
                path="/health",
                summary="The server itself.",
                response=installation.HealthStatus,
                handle=self._show_health,
            ),
            ApiRoute(
                method="POST",
                path="/links",
                summary="A link that opens the dashboard, once.",
                body=inputs.EmptyBody,
                response=installation.LoginLink,
                handle=self._create_link,
            ),
        ]

    async def _watch_events(self, request: ApiRequest) -> EventStream:
        run = (await self._queries.find_run(request.query.run))[1] if request.query.run else None
        return EventStream(self._feed, request.query, run)

    async def _show_health(self, _: ApiRequest) -> installation.HealthStatus:
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

    async def _create_link(self, _: ApiRequest) -> installation.LoginLink:
        return installation.LoginLink(link=login_url(self._address, self._authenticator.create_code()))


def login_url(address: str, code: str) -> str:
    """A link that opens the dashboard, once. What stands behind `#` leaves no browser."""
    return f"{address}/login#{code}"
