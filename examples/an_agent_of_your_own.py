"""An agent defined in Python, and a continued session: the second run knows the first one's answer."""

import anyio

from retinue import Agent, Retinue

LIBRARIAN = Agent(
    name="librarian",
    description="Knows where the documents are.",
    body="You find documents and say what is in them. Answer with `path:line` evidence.",
    tools=("read", "grep", "find", "ls"),
    readonly=True,
    timeout=120,
)


async def main() -> None:
    async with Retinue(engine="offline", agents=[LIBRARIAN]) as retinue:
        first = await retinue.run("librarian", "Which documents describe events?")
        second = await retinue.run("librarian", "And which describe settings?", session=first.spec.session)
        session = await retinue.session(first.spec.session)
        assert session is not None
        print(second.text)
        print(f"\nsession {session.session[:8]} has {session.runs} runs, the last about: {session.task}")


anyio.run(main)
