"""The API as a table of routes over what reads, what acts and what there is."""

from __future__ import annotations

import os
import time

from retinue import __version__
from retinue.app import Retinue
from retinue.frontends.http import inputs, installation, outcomes, values
from retinue.frontends.http.access import Access
from retinue.frontends.http.acting import Actor
from retinue.frontends.http.catalog import Catalog
from retinue.frontends.http.hub import Hub
from retinue.frontends.http.lists import Lists
from retinue.frontends.http.reading import Reader
from retinue.frontends.http.routes import Given, Route
from retinue.frontends.http.stream import HEADERS, Feed
from retinue.frontends.http.transcripts import KINDS, transcript


class Api:
    """What every route does."""

    def __init__(
        self,
        retinue: Retinue,
        hub: Hub,
        lists: Lists,
        reader: Reader,
        actor: Actor,
        access: Access,
        address: str,
    ) -> None:
        self._retinue = retinue
        self._hub = hub
        self._lists = lists
        self._reader = reader
        self._actor = actor
        self._access = access
        self._address = address
        self._catalog = Catalog(retinue)
        self._started = time.time()

    def routes(self) -> list[Route]:
        return [*self._reading(), *self._acting(), *self._there_is()]

    def _reading(self) -> list[Route]:
        reader, lists = self._reader, self._lists

        async def events(given: Given) -> values.Events:
            return await reader.events(given.name, given.query)

        async def told(given: Given) -> object:
            return await transcript(self._retinue, reader, given.name, given.query.format)

        return [
            Route(
                method="GET",
                path="/activity",
                about="Root conversations with their runs, those that go on first.",
                query=inputs.WhichGroups,
                gives=values.Activity,
                handle=lambda given: lists.activity(given.query),
            ),
            Route(
                method="GET",
                path="/runs",
                about="Runs, last changed first: the latest of every session.",
                query=inputs.WhichRuns,
                gives=values.Runs,
                handle=lambda given: lists.runs(given.query),
            ),
            Route(
                method="GET",
                path="/runs/{id}",
                about="Everything about a run but its events.",
                gives=values.RunDetail,
                handle=lambda given: reader.run(given.name),
            ),
            Route(
                method="GET",
                path="/runs/{id}/tree",
                about="All runs under the root conversation of a run.",
                gives=values.Tree,
                handle=lambda given: reader.tree(given.name),
            ),
            Route(
                method="GET",
                path="/runs/{id}/events",
                about="A page of a run's events.",
                query=inputs.WhichEvents,
                gives=values.Events,
                handle=events,
            ),
            Route(
                method="GET",
                path="/runs/{id}/transcript",
                about="What was said and done in a run, as a file.",
                query=inputs.WhichForm,
                handle=told,
                media=tuple(kind.partition(";")[0] for kind in KINDS.values()),
            ),
            Route(
                method="GET",
                path="/runs/{id}/result",
                about="What a run answered, or has said so far.",
                gives=values.RunResult,
                handle=lambda given: reader.result(given.name),
            ),
            Route(
                method="GET",
                path="/sessions",
                about="Sessions, last changed first.",
                query=inputs.WhichRuns,
                gives=values.Sessions,
                handle=lambda given: lists.sessions(given.query),
            ),
            Route(
                method="GET",
                path="/sessions/{id}",
                about="A session with all its runs.",
                gives=values.SessionDetail,
                handle=lambda given: reader.session(given.name),
            ),
            Route(
                method="GET",
                path="/events",
                about="What happens, as server-sent events.",
                query=inputs.Watch,
                handle=self._watch,
                media=(HEADERS["content-type"].partition(";")[0],),
            ),
        ]

    def _acting(self) -> list[Route]:
        actor = self._actor

        async def plans(_: Given) -> outcomes.Plans:
            return actor.plans()

        async def plan(given: Given) -> outcomes.PlanState:
            return actor.plan(given.name)

        return [
            Route(
                method="POST",
                path="/runs",
                about="Starts a run; answers when it is recorded.",
                body=inputs.Start,
                gives=outcomes.Begun,
                status=202,
                handle=lambda given: actor.start(given.body),
            ),
            Route(
                method="POST",
                path="/runs/{id}/cancel",
                about="Stops a run, in whatever process it is; answers when it has ended.",
                body=inputs.Nothing,
                gives=outcomes.Stopped,
                handle=lambda given: actor.cancel(given.name),
            ),
            Route(
                method="POST",
                path="/runs/{id}/resume",
                about="Gives the same agent another task in the same session.",
                body=inputs.Resume,
                gives=outcomes.Begun,
                status=202,
                handle=lambda given: actor.resume(given.name, given.body),
            ),
            Route(
                method="POST",
                path="/runs/{id}/extend",
                about="Gives a live run more time.",
                body=inputs.Extend,
                gives=outcomes.Extended,
                handle=lambda given: actor.extend(given.name, given.body),
            ),
            Route(
                method="POST",
                path="/runs/{id}/steer",
                about="Says something to a live run, where its engine can hear.",
                body=inputs.Steer,
                gives=outcomes.Steered,
                handle=lambda given: actor.steer(given.name, given.body),
            ),
            Route(
                method="POST",
                path="/plans",
                about="Starts several tasks, at once or one after the other.",
                body=inputs.StartPlan,
                gives=outcomes.PlanBegun,
                status=202,
                handle=lambda given: actor.start_plan(given.body),
            ),
            Route(method="GET", path="/plans", about="Plans of this server.", gives=outcomes.Plans, handle=plans),
            Route(
                method="GET",
                path="/plans/{id}",
                about="How far a plan has come.",
                gives=outcomes.PlanState,
                handle=plan,
            ),
        ]

    def _there_is(self) -> list[Route]:
        catalog = self._catalog

        async def agents(_: Given) -> installation.Agents:
            return catalog.agents()

        async def agent(given: Given) -> installation.AgentDetail:
            return catalog.agent(given.name)

        async def trust(given: Given) -> installation.AgentRow:
            return catalog.trust(given.name, given.body.digest)

        async def engines(_: Given) -> installation.Engines:
            return catalog.engines()

        async def settings(given: Given) -> installation.SettingsOfSurface:
            return catalog.settings(given.query.surface)

        return [
            Route(method="GET", path="/agents", about="Every agent.", gives=installation.Agents, handle=agents),
            Route(
                method="GET",
                path="/agents/{name}",
                about="One agent, as others may see it.",
                gives=installation.AgentDetail,
                handle=agent,
            ),
            Route(
                method="POST",
                path="/agents/{name}/trust",
                about="Accepts a project's agent as it was looked at.",
                body=inputs.Accept,
                gives=installation.AgentRow,
                handle=trust,
            ),
            Route(method="GET", path="/engines", about="Every engine.", gives=installation.Engines, handle=engines),
            Route(
                method="GET",
                path="/settings",
                about="The settings of a surface, with where each comes from.",
                query=inputs.WhichSurface,
                gives=installation.SettingsOfSurface,
                handle=settings,
            ),
            Route(
                method="GET",
                path="/health",
                about="The server itself.",
                gives=installation.Health,
                handle=self._health,
            ),
            Route(
                method="POST",
                path="/links",
                about="A link that opens the dashboard, once.",
                body=inputs.Nothing,
                gives=installation.Link,
                handle=self._link,
            ),
        ]

    async def _watch(self, given: Given) -> Feed:
        run = (await self._reader.find(given.query.run))[1] if given.query.run else None
        return Feed(self._hub, given.query, run)

    async def _health(self, _: Given) -> installation.Health:
        return installation.Health(
            status="ok",
            version=__version__,
            pid=os.getpid(),
            started=self._started,
            state=str(self._retinue.state),
            cwd=self._retinue.cwd,
            live=len(self._hub.live),
            watchers=self._hub.watchers,
            stream=installation.StreamPlace(cursor=self._hub.cursor),
        )

    async def _link(self, _: Given) -> installation.Link:
        return installation.Link(link=link(self._address, self._access.new_code()))


def link(address: str, code: str) -> str:
    """A link that opens the dashboard, once. What stands behind `#` leaves no browser."""
    return f"{address}/login#{code}"
