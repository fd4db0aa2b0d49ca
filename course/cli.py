"""The `course` command: finds the module of a subcommand, imports only that one, and turns errors into sentences.

A subcommand NAME is the module `course/commands/NAME.py` with two functions: `add_arguments(parser)` declares its
arguments and `run(arguments)` does the work and returns the exit code: 0 done, 1 the answer is no. A wrong input is a
`UserError` (exit code 2). A subcommand whose module is not there is not offered.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NoReturn

from course import __version__
from course.errors import UserError

__all__ = ["COMMANDS", "available", "main"]

DONE, NO, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

COMMANDS = {
    "open": "copy the notebooks and exercises to a folder and start JupyterLab there",
    "answer": "answer a run file in the eight steps",
    "predict": "what the layout of a run file needs, costs and reaches",
    "sweep": "all legal layouts of a run file, ranked; why the others fell out",
    "compare": "measured runs beside predictions",
    "grade": "score the notebooks of one learner or many",
    "lab": "measure scaling on the devices that are there",
    "interview": "a timed mock interview",
    "show": "the catalog with its sources; a formula with its derivation",
    "doctor": "is this machine ready for the course",
    "build": "make the notebooks from their text sources",
}


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are a sentence and a pointer to the help, not the whole usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_INPUT, f"{self.prog}: {message[:1].upper()}{message[1:]}. See `{self.prog} --help`.\n")


def available() -> list[str]:
    """Return the names of the subcommands whose module is there, in the order of the help.

    >>> "open" in available()
    True
    """
    return [name for name in COMMANDS if find_spec(f"course.commands.{name}") is not None]


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {COMMANDS[name]}" for name in available()]
    return "\n".join(["commands (`course COMMAND --help` tells more):", *lines])


def _complain(program: str, sentence: str) -> None:
    print(f"{program}: {sentence}", file=sys.stderr)


def _dispatch(name: str, rest: Sequence[str]) -> int:
    module = import_module(f"course.commands.{name}")
    parser = _Parser(prog=f"course {name}", description=module.__doc__, allow_abbrev=False)
    module.add_arguments(parser)
    arguments = parser.parse_args(rest)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal that lacks a letter of a file's name shows a question mark
        sys.stdout.reconfigure(errors="replace")
    code: int = module.run(arguments)
    if sys.stdout is not None:  # None: the caller closed it
        sys.stdout.flush()
    return code


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that the end of the process does not complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `course` command and return its exit code.

    Arguments: argv, the words after `course`; those of this process when it is None.
    Returns 0 done, 1 the answer is no, 2 the input is wrong. Raises SystemExit, as argparse does, after `--help`,
    `--version` and a wrong argument.

    >>> import io, contextlib
    >>> with contextlib.redirect_stdout(io.StringIO()) as shown:
    ...     code = main([])
    >>> code, "doctor" in shown.getvalue()
    (0, True)
    """
    parser = _Parser(
        prog="course",
        description="Strong scaling in eight steps.",
        epilog=_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.usage = "course COMMAND [...]"
    arguments = parser.parse_args(argv)
    name = arguments.command
    if name is None:
        parser.print_help()
        return DONE
    if name not in available():
        parser.error(f"there is no command {name!r}; the commands are {', '.join(available())}")
    try:
        return _dispatch(name, arguments.rest)
    except UserError as error:
        _complain(f"course {name}", str(error))
        return WRONG_INPUT
    except BrokenPipeError:
        # The reader of our output is gone (`course sweep … | head`): nothing is left to say, on any stream.
        _drop_output()
        return DONE
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None:
            _drop_output()
            _complain(f"course {name}", f"the output cannot be written: {error.strerror}.")
            return WRONG_INPUT
        if error.filename is None:
            raise
        _complain(f"course {name}", f"{error.filename}: {error.strerror}.")
        return WRONG_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
