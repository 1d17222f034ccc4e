"""Completion on the real pi: an agent is done after the follow-ups of extensions, not at its first message."""

from __future__ import annotations

import pytest

from retinue import Agent, Retinue

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

FOLLOW_UP = """\
export default (pi) => {
  let isAsked = false;
  pi.on("%s", () => {
    if (isAsked) return;
    isAsked = true;
    pi.sendUserMessage("Check it again.", { deliverAs: "followUp" });
  });
};
"""


@pytest.fixture
def answer(pi, server, project, tmp_path):
    """Run an agent whose pi has an extension of the user's that asks once more; return its result."""

    async def ask(event: str, delay: float, **agent):
        environ = pi.environ_in(tmp_path / "home", server.url)
        extensions = tmp_path / "home" / "agent" / "extensions"
        extensions.mkdir(parents=True)
        (extensions / "follow_up.js").write_text(FOLLOW_UP % event)

        def decide(request):
            is_second = "Check it again." in request.messages[-1].text
            return {"text": "SECOND ANSWER", "delay": delay} if is_second else {"text": "FIRST ANSWER"}

        server.script = decide
        worker = Agent(name="worker", body="You work.", tools=("read",), **agent)
        async with Retinue(
            cwd=project,
            engine="pi",
            agents=(worker,),
            environ=environ,
            state=tmp_path / "state",
            settings={"model": "local/scripted-1", "allow_write": True},
        ) as retinue:
            return await retinue.run("worker", "Look.")

    return ask


@pytest.mark.parametrize(("event", "delay"), [("agent_end", 1.5), ("agent_end", 2.0), ("turn_end", 4.0)])
async def test_follow_up_of_an_extension_gives_the_answer(answer, event, delay):
    result = await answer(event, delay)
    assert (result.failure, result.text, result.actual.notices) == (None, "SECOND ANSWER", ())


async def test_follow_up_in_a_process_for_one_run_gives_the_answer(answer):
    result = await answer("agent_end", 4.0, extra_args=("--verbose",))
    assert (result.failure, result.text) == (None, "SECOND ANSWER")
