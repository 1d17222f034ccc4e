"""The options shared by commands that run agents, the types of their values, and input from files and stdin.

Commands that act as the user are refused to processes that an agent started; those that only read stay available.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
import msgspec
from msgspec import Struct

from retinue.cli.commands.completion import complete_engines
from retinue.model.errors import ErrorCode, Failure
from retinue.model.providers import THINKING_LEVELS
from retinue.model.results import REFUSED_EXIT_CODE
from retinue.model.tasks import Task
from retinue.support.formatting import parse_duration
from retinue.support.processes import is_run_process
from retinue.support.safe_files import FileTooLargeError, NotRegularFileError, read_regular_file

if TYPE_CHECKING:
    from retinue.client import Retinue


MAX_JSON_BYTES = 32 * 2**20
"""Limit of a JSON document: sixteen tasks of the usual limit, and some more."""
TERMINAL_PROMPT = "Reading the text from the terminal: Ctrl-D on a line of its own ends it."
NO_TASK = "No task given, and stdin is empty. Pass the task as an argument, on stdin or as @FILE."
TRUNCATED_JSON = "Input data was truncated"
"""Message of msgspec for JSON that ends too early."""
_JSON_ERROR = re.compile(r"JSON is malformed: (?P<problem>.*) \(byte (?P<byte>\d+)\)")
"""Message of msgspec for other invalid JSON."""
AT_SIGN_HINT = "Write @@… for a text that starts with @."


class CommandRefusedError(click.ClickException):
    """Refusal of a command before anything was done, with its failure and hints."""

    exit_code = REFUSED_EXIT_CODE

    def __init__(self, failure: Failure, *hints: str, task: Task | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.hints = hints
        self.task = task
        """The task of a command that starts one run."""


class InvalidInputError(CommandRefusedError):
    """Input that cannot be used; the message has the reason and what to do."""

    def __init__(self, message: str, *hints: str) -> None:
        super().__init__(Failure(ErrorCode.INVALID_INPUT, message), *hints)


def read_text_argument(value: str, *, limit: int) -> str:
    """Return the text of an argument: the text itself, of stdin for `-`, or of a file for `@FILE`.

    Raises:
        InvalidInputError: it cannot be read, has more than `limit` bytes, or is not text.
    """
    if value == "-":
        return _decode_text(_read_stdin(limit), "stdin")
    if value.startswith("@@"):
        value = value[1:]
    elif value.startswith("@"):
        return _decode_text(_read_file(value[1:], limit, unless=AT_SIGN_HINT), value[1:])
    return to_utf8(value)


def read_task(value: str | None, retinue: Retinue, toolset: str) -> str:
    """Return the text of a task argument, or of stdin without one, within the limit of the toolset.

    Raises:
        InvalidInputError: it cannot be read, or there is no task.
    """
    text = read_text_argument(
        "-" if value is None else value, limit=retinue.settings(toolset).settings.max_task_bytes
    )
    if value is None and not text.strip():
        raise InvalidInputError(NO_TASK, f"`{click.get_current_context().command_path} --help` shows examples.")
    return text


def read_text_file(path: str, *, limit: int) -> str:
    """Return the text of a file, or of stdin for `-`.

    Raises:
        InvalidInputError: it cannot be read, has more than `limit` bytes, or is not text.
    """
    return _decode_text(_read_stdin(limit), "stdin") if path == "-" else _decode_text(_read_file(path, limit), path)


def decode_json(text: str) -> Any:
    """Return the value of a JSON document.

    Raises:
        msgspec.DecodeError: it is none, or one of its objects has a key twice: only one of the two would count.
        RecursionError: it is nested too deeply.
    """
    import json

    value = msgspec.json.decode(text)
    json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    return value


def describe_json_error(text: str, error: Exception) -> str:
    """Return what is wrong with a JSON document, with the position if it is no JSON at all."""
    if str(error) == TRUNCATED_JSON:
        line = text.count("\n") + 1
        return f"invalid JSON, unexpected end of file (line {line})"
    if not (match := _JSON_ERROR.fullmatch(str(error))):
        return str(error)
    before = text.encode()[: int(match["byte"])].decode(errors="ignore")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"invalid JSON, {match['problem']} (line {line}, column {column})"


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise msgspec.DecodeError(f"it has the key {key!r} twice")
        keys.add(key)


def to_utf8(value: str) -> str:
    """Decode typed text as UTF-8, even if the locale decoded its bytes differently.

    Raises:
        InvalidInputError: it is not text in either encoding.
    """
    try:
        return os.fsencode(value).decode()
    except UnicodeError:
        pass
    try:
        value.encode()
    except UnicodeEncodeError:
        message = "The text is not valid UTF-8. Put the text into a file and pass it as @FILE."
        raise InvalidInputError(message) from None
    return value


def _read_stdin(limit: int) -> bytes:
    if sys.stdin is None:
        raise InvalidInputError("stdin is closed, so `-` cannot be read.")
    if sys.stdin.isatty():
        print(TERMINAL_PROMPT, file=sys.stderr)  # noqa: T201 - printed before anything else
    try:
        content = sys.stdin.buffer.read(limit + 1)
    except OSError as error:
        raise InvalidInputError(f"stdin cannot be read: {error.strerror}.") from error
    if len(content) > limit:
        raise _too_long_error("stdin", None, limit)
    return content


def _read_file(path: str, limit: int, *, unless: str = "") -> bytes:
    """Return the bytes of a file; `unless` is the hint for a user who did not mean a file."""
    if not path:
        raise InvalidInputError(f"The name of the file is missing. {unless}".rstrip())
    try:
        return read_regular_file(path, limit)
    except NotRegularFileError as error:
        raise InvalidInputError(f"{path} is {error.kind}, not a file; pass `-` to read from a pipe.") from error
    except FileTooLargeError as error:
        raise _too_long_error(path, error.size_bytes, limit) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"{path} cannot be read: {reason}. {unless}".rstrip()) from error


def _decode_text(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{name} is not valid UTF-8 (byte {error.start}). Convert the file first.") from error
    if "\0" in text:
        raise InvalidInputError(
            f"{name} contains a NUL byte, so it is not text. Remove the byte, or name the file in the task."
        )
    return text.removesuffix("\n").removesuffix("\r")


def _too_long_error(name: str, size: int | None, limit: int) -> InvalidInputError:
    has = f"has {size} bytes" if size is not None else "is longer"
    return InvalidInputError(
        f"{name} {has}; the limit is {limit} bytes. Put long texts into a file and name the file in the task."
    )


class RunOptions(Struct, frozen=True, kw_only=True):
    """The common options; None if not given."""

    engine: str | None = None
    model: str | None = None
    effort: str | None = None
    cwd: str | None = None
    timeout: float | None = None
    max_depth: int | None = None
    max_concurrency: int | None = None
    max_turns: int | None = None
    max_cost: float | None = None
    allow_write: bool | None = None
    isolation: str | None = None
    project_agents: str | None = None
    sandbox: str | None = None
    policy: bool | None = None
    as_json: bool = False
    quiet: bool = False

    def settings(self) -> dict[str, Any]:
        """Return the options that are settings, by name."""
        names = (name for name in self.__struct_fields__ if name not in {"cwd", "as_json", "quiet"})
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class TextType(click.ParamType[str]):
    """A name or an id: any text that is not blank."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip():
            self.fail("The value is empty.", param, ctx)
        try:
            return to_utf8(value)
        except InvalidInputError:
            return str(value)  # a name that is not text is only printed


TEXT = TextType()


class HostIdType(click.ParamType[str]):
    """An id of another program: any printable text."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip() or not value.isprintable():
            self.fail("The value is empty or not printable.", param, ctx)
        return str(value)


HOST_ID = HostIdType()


class DurationType(click.ParamType[float]):
    """A duration: `90`, `90s`, `15m`, `2h`, `30d`, `4w`."""

    name = "time"

    def __init__(self, low: float, high: float = 7 * 86400.0) -> None:
        self._low = low
        self._high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = parse_duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a duration: write 90, 90s, 15m, 2h or 30d.", param, ctx)
        if not self._low <= seconds <= self._high:
            self.fail(f"{value!r} is out of range: {self._low:g} to {self._high:g} seconds.", param, ctx)
        return seconds


class WholeNumberType(click.IntRange):
    """A whole number in a range, which the help and errors describe in words."""

    def _describe_range(self) -> str:
        return _describe_range(self.min, self.max)


class AmountType(click.FloatRange):
    """A number above a limit, which the help and errors describe in words."""

    def _describe_range(self) -> str:
        return f"above {self.min:g}" if self.min_open else _describe_range(self.min, self.max)


def _describe_range(low: float | None, high: float | None) -> str:
    return f"{low:g} or more" if high is None else f"{low or 0} to {high}"


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print only answers, ignored settings and errors.")
cwd_option = click.option(
    "--cwd", type=click.Path(exists=True, file_okay=False), help="Working directory.  [default: current directory]"
)


_RUN_OPTIONS = (
    click.option(
        "--engine",
        type=TEXT,
        metavar="ENGINE",
        shell_complete=complete_engines,
        help="Engine that executes the runs: auto, offline, …; `retinue doctor` lists the engines.",
    ),
    click.option("--model", type=TEXT, metavar="MODEL", help="Model to use, as provider/model."),
    click.option("--effort", type=click.Choice(THINKING_LEVELS), help="Reasoning effort of the model."),
    cwd_option,
    click.option("--timeout", type=DurationType(1), metavar="TIME", help="Timeout of a run: 90, 15m, 2h."),
    click.option(
        "--max-depth",
        type=WholeNumberType(0, 64),
        metavar="N",
        help="Maximum levels of runs; agents can delegate if it is 2 or more.",
    ),
    click.option(
        "--max-concurrency", type=WholeNumberType(1), metavar="N", help="Maximum runs in parallel; others are queued."
    ),
    click.option("--max-turns", type=WholeNumberType(1), metavar="N", help="Maximum assistant messages of a run."),
    click.option(
        "--max-cost", type=AmountType(0, min_open=True), metavar="USD", help="Maximum cost of a run in US dollars."
    ),
    click.option("--allow-write/--no-allow-write", default=None, help="Allow agents tools that write or execute."),
    click.option(
        "--isolation",
        type=click.Choice(["none", "worktree"]),
        help="Where runs work: in your files, or each in a git worktree of its own.",
    ),
    click.option(
        "--project-agents",
        type=click.Choice(["ask", "allow", "deny"]),
        help="Whether a project's agents run before you approve them.",
    ),
    click.option(
        "--sandbox",
        type=click.Choice(["off", "workspace", "strict"]),
        help="How far the processes and tools of the runs are confined.",
    ),
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the common flags to a command, which builds its `RunOptions` from them."""
    return _add_options(command, (*_RUN_OPTIONS, json_option, quiet_option))


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the common flags to a command that prints no answer and serves a host with a model of its own."""
    policy = click.option(
        "--policy/--no-policy",
        default=None,
        help="Give the host's model a hint when to delegate and to which agents: `retinue tools --policy`.",
    )
    return _add_options(command, (policy, *_RUN_OPTIONS))


def _add_options(command: Callable[..., None], options: Sequence[Callable[..., Any]]) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


EXIT_CODES = (
    "Exit codes: 0 completed, 1 failed, 2 refused (nothing was started), 124 timed out (no other failure), 130 "
    "cancelled."
)


IN_RUN_REASON = "in_run"
MARK = "is_for_users_only"
"""Attribute of a command's function that shows that it is refused in a run."""

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")


def for_users_only(command: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """Return a command that is refused in a process of a run, whatever its environment is."""

    @wraps(command)
    def checked(*arguments: Parameters.args, **options: Parameters.kwargs) -> Value:
        if is_run_process(os.getpid()):
            name = click.get_current_context().command_path
            message = (
                f"`{name}` acts as the user, and an agent started this process. Nothing was changed. Run the command "
                "in your own terminal; an agent that may delegate has tools for that."
            )
            raise CommandRefusedError(Failure(ErrorCode.UNSUPPORTED, message, IN_RUN_REASON))
        return command(*arguments, **options)

    checked.__dict__[MARK] = True  # copied by the decorators above it
    return checked
