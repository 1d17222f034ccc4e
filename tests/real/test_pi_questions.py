"""Extensions of pi that ask while a session starts, when pi reads no answer yet."""

from __future__ import annotations

import json

import pytest
from tests.real.programs import pi_program, worker
from tests.support.model_server import script64

from retinue import Retinue

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(120)]

ASKING = """
import { writeFileSync } from "node:fs";

const DIALOGS = {
  confirm: (ui) => ui.confirm("May I?", "Please"),
  select: (ui) => ui.select("Which one?", ["first", "second"]),
  input: (ui) => ui.input("How many?", "three"),
  editor: (ui) => ui.editor("What?", "nothing"),
};

export default function (pi) {
  pi.on("session_start", async (_event, { ui }) => {
    const answers = {};
    for (const name of DIALOG_NAMES) answers[name] = (await DIALOGS[name](ui)) ?? null;
    writeFileSync(ANSWERS, JSON.stringify(answers));
  });
}
"""
TITLES = {"confirm": "May I?", "select": "Which one?", "input": "How many?", "editor": "What?"}
ANSWERS_OF_PRINT_MODE = {"confirm": False, "select": None, "input": None, "editor": None}
UNANSWERED = "An extension of pi asked a question that was not answered, because pi runs without a terminal: "
ANSWER = script64([{"text": "Done."}])


@pytest.fixture
def ask(pi, server, project, tmp_path):
    """Return a Retinue whose pi has an extension that opens these dialogs, and the file of their answers."""

    def build(*dialogs: str):
        home = tmp_path / "home"
        program = pi_program(pi, home, server.url)
        answers = tmp_path / "answers.json"
        constants = f"const DIALOG_NAMES = {json.dumps(dialogs)}; const ANSWERS = {json.dumps(str(answers))};"
        extension = home / "agent" / "extensions" / "asking.js"
        extension.parent.mkdir(parents=True, exist_ok=True)
        extension.write_text(f"{constants}\n{ASKING}")
        environ = {**program.environ, "RETINUE_STATE": str(tmp_path / "state"), "RETINUE_MODEL": program.model}
        return Retinue(engine="pi", cwd=project, agents=[worker()], environ=environ), answers

    return build


@pytest.mark.parametrize("dialog", TITLES)
async def test_question_at_the_start_of_a_session_is_answered_as_in_print_mode(ask, dialog):
    retinue, answers = ask(dialog)
    async with retinue:
        for _ in ("a new process", "a reused process"):
            result = await retinue.run("worker", ANSWER)
            assert (result.failure, result.text) == (None, "Done.")
            assert json.loads(answers.read_text()) == {dialog: ANSWERS_OF_PRINT_MODE[dialog]}
            assert f"{UNANSWERED}{TITLES[dialog]}" in result.actual.notices
            answers.unlink()


async def test_several_questions_at_the_start_of_a_session_are_answered(ask):
    retinue, answers = ask(*TITLES)
    async with retinue:
        result = await retinue.run("worker", ANSWER)
    assert result.text == "Done."
    assert json.loads(answers.read_text()) == ANSWERS_OF_PRINT_MODE
