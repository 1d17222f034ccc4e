"""Refuse commands that act as the user to processes that an agent started; commands that only read stay available."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import click

from retinue.cli.options import CommandRefusedError
from retinue.model.errors import ErrorCode, Failure
from retinue.support.run_processes import is_run_process

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
