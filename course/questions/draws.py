"""Fresh numbers: drawn from lists of plausible values, so that what is asked stays what somebody would ask.

>>> pick("x", (1, 2))(random.Random(0))["x"] in (1, 2)
True
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from course.questions.kinds import Draw

__all__ = ["pick", "picks"]


def pick(name: str, values: Sequence[Any]) -> Draw:
    """Draw one number from a list."""
    return picks(**{name: values})


def picks(**lists: Sequence[Any]) -> Draw:
    """Draw each number from its own list.

    >>> sorted(picks(a=(1,), b=(2,))(random.Random(0)).items())
    [('a', 1), ('b', 2)]
    """

    def draw(source: random.Random) -> dict[str, Any]:
        return {name: source.choice(list(values)) for name, values in lists.items()}

    return draw
