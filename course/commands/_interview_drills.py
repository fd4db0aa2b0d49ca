"""Napkin drills in the terminal: a question, a number, the factor it is off; the clock says when time is up."""

from __future__ import annotations

import sys
import time

from course.errors import UserError
from course.interview.drills import CLOSE, ROUGH, SECONDS, Drill, draw
from course.interview.text import wrapped

__all__ = ["hold"]


def hold(seed: int, count: int = 5) -> int:
    """Ask the drills of a seed; 0 at the end, 130 when left."""
    print(f"Napkin drills, seed {seed}: {count} estimates of {SECONDS // 60} minutes each. Within a factor of "
          f"{CLOSE:g} is close, of {ROUGH:g} the right size.")  # fmt: skip
    points, asked = 0.0, 0
    try:
        for place, drill in enumerate(draw(seed, count), 1):
            print(f"\n{wrapped(drill.text, '   ', f'{place}. ')}")
            points += _one(drill)
            asked += 1
    except (KeyboardInterrupt, EOFError):
        print(f"\nLeft after {asked} of {count}: {points:g} points.")
        return 130
    print(f"\n{points:g} of {count} points.")
    return 0


def _one(drill: Drill) -> float:
    started = time.monotonic()
    while True:
        sys.stdout.flush()
        said = input(f"   [{drill.unit or 'number'}] ").strip()
        if not said:
            print(wrapped(f"Passed. It is {drill.answer:.3g} {drill.unit}".rstrip() + ".", "   "))
            return 0.0
        try:
            scored = drill.score(said)
        except UserError as error:
            print(wrapped(str(error), "   "))
            continue
        took = time.monotonic() - started
        late = f" It took {took:.0f} s." if took > SECONDS else ""
        print(wrapped(scored.message + late, "   "))
        return scored.points
