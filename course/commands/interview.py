"""A timed mock interview in eight steps, graded by the library. Ctrl-C saves; the same seed goes on."""

from __future__ import annotations

import argparse
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from course.errors import UserError

if TYPE_CHECKING:
    from course.interview.judge import Result
    from course.interview.session import Session
    from course.interview.sheet import Field, Step

INTERRUPTED = 130
SEEDS = 10**6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `course interview`."""
    parser.add_argument("--seed", type=_whole, metavar="N", help="the same number asks the same question")
    parser.add_argument("--level", type=int, choices=(1, 2, 3), help="1 a few nodes, 2 hundreds of devices, 3 the rest")
    parser.add_argument(
        "--pair", action="store_true", help="print the interviewer's copy instead: reference and probes"
    )
    parser.add_argument("--drills", action="store_true", help="two-minute estimates instead of an interview")
    parser.add_argument("--file", metavar="FILE", help="where to save; default interview-N.json in this folder")


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0, such as 7, not {text[:30]!r}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Hold the interview; 0 when it was held, 130 when it was left and saved."""
    from course.interview import text
    from course.interview.prompts import generate
    from course.interview.session import resume, start

    if arguments.drills and arguments.pair:
        raise UserError("--drills and --pair are two things: name one of them.")
    seed = secrets.randbelow(SEEDS) if arguments.seed is None else arguments.seed
    if arguments.drills:
        from course.commands._interview_drills import hold

        return hold(seed)
    if arguments.pair:
        from course.interview.pair import copy
        from course.interview.text import wrapped

        for line in copy(generate(seed, arguments.level)).splitlines():
            indent = " " * (len(line) - len(line.lstrip()))
            print(wrapped(line.strip(), indent + "  ", indent))
        return 0
    path = Path(arguments.file or f"interview-{seed}.json")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent} to save the interview in. Name a --file in another.")
    session = None
    if path.exists():
        session = resume(path)
        if (session.prompt.seed, arguments.level or session.prompt.level) != (
            seed if arguments.seed is not None else session.prompt.seed, session.prompt.level,
        ):  # fmt: skip
            raise UserError(f"{path.name} holds the interview of seed {session.prompt.seed} at level "
                            f"{session.prompt.level}. Name another --file, or no --seed and --level.")  # fmt: skip
        if session.current is None:
            print(f"The interview in {path} is finished; this is its verdict. Name another --file to hold another.")
            print(text.verdict(session, session.grade()))
            return 0
    taken_up = session is not None
    session = session or start(seed, arguments.level)
    return _hold(session, path, taken_up)


def _hold(session: Session, path: Path, taken_up: bool) -> int:
    from course.interview import text

    print(text.opening(session))
    if taken_up:
        print(f"\nTaken up from {path.name}, after {text.clock(session)}.")
    session.tick()
    try:
        _fill(session, path)
    except (KeyboardInterrupt, EOFError, _Leave):
        session.tick()
        session.save(path)
        print(f"\nSaved in {path}. `course interview --file {path}` goes on.")
        return INTERRUPTED
    session.tick()
    session.save(path)
    result, ask = session.grade(), sys.stdin.isatty()
    print(text.verdict(session, result, reveal=not ask))
    if ask and result.weakest.score < 1:
        _followed(result)
    print(f"\nYour sheet is in {path}; `course interview --seed {session.prompt.seed} --level {session.prompt.level} "
          "--pair` prints the interviewer's copy.")  # fmt: skip
    return 0


def _followed(result: Result) -> None:
    """Say the follow-ups one by one; each answer is shown after Enter."""
    from course.interview import text
    from course.interview.followups import probes

    with suppress(KeyboardInterrupt, EOFError):
        for one in probes(result):
            input(f"\n{text.wrapped(one.question, '  ', '? ')}\n  Answer aloud, then Enter. ")
            print(text.wrapped(one.answer, "  "))


class _Leave(Exception):
    """The candidate leaves."""


def _fill(session: Session, path: Path) -> None:
    """Every blank in order, until the last or `done`."""
    from course.interview import text
    from course.interview.sheet import SHEET

    names, last = [step.name for step in SHEET], ""
    while (here := session.current) is not None:
        step, blank = here
        if step.name != last:
            print(text.step_head(1 + names.index(step.name), step, session))
            last = step.name
        if not _blank(session, step, blank):
            session.place = len(session.blanks())
        session.tick()
        session.save(path)


def _blank(session: Session, step: Step, blank: Field) -> bool:
    """One blank; False at `done`."""
    from course.interview import text
    from course.interview.values import read, shown

    options = session.choices(step, blank)
    old = session.answers[step.name].get(blank.name)
    held = f" now {shown(blank, old)}" if old is not None else ""
    unit = f" [{blank.unit}]" if blank.unit else ""
    print(text.wrapped(f"{blank.asks}{unit}{held}", "     ", "  > "))
    if blank.kind in ("choice", "several", "reasons") and options:
        print(text.choices(options))
    if blank.kind in HINTS:
        print(f"     {HINTS[blank.kind]}")
    while True:
        sys.stdout.flush()
        said = input("    ").strip()
        word, _, rest = said.partition(" ")
        word = word.lower()
        if word in ("quit", "save", "exit"):
            raise _Leave
        if said.lower() == "done":
            return False
        if said.lower() == "back":
            session.tick()
            session.place = max(0, session.place - 1)
            return True
        if word == "ask" or said.startswith("?") or word in ("clock", "help", "question"):
            _aside(session, word, rest)
            continue
        try:
            value = read(blank, said, options)
        except UserError as error:
            print(text.wrapped(str(error), "    "))
            continue
        session.tick()
        if value is not None:
            session.write(step.name, blank.name, value)
        session.place += 1
        return True


HINTS = {
    "fates": "hidden (adds less than 3 % of the step), partly, exposed, none; such as: tensor exposed, data hidden",
    "grid": "such as: tensor 4 8; micro_batch 1 2; recompute none full",
    "order": "such as: tensor data pipeline (axes of 1 may be left out)",
    "several": "letters, such as: a c; `none` for none of them",
    "reasons": "one or two letters, such as: a c",
}
"""How to write a blank that is no single number or letter."""


def _aside(session: Session, word: str, rest: str) -> None:
    """A command that fills in nothing."""
    from course.interview import text

    if word == "ask":
        try:
            print(text.wrapped(session.ask(rest), "    "))
        except UserError as error:
            print(text.wrapped(str(error), "    "))
    elif word == "clock":
        session.tick()
        print(f"    {text.clock(session)}")
    elif word == "question":
        print(text.opening(session))
    else:
        print(text.HELP)
