"""The picture that carries each step, at the shape of a projector: the explorers' own pictures, with their sentence.

A page is 16:9. Letters are at least a fortieth of its height, which is what the back row of a room reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from course.explorers.base import Static
from course.pictures import BLUE
from course.printed.pages import POINTS, digest, save, wrapped
from course.printed.spine import STEPS

__all__ = ["SLIDES", "holds", "slide", "slides", "write"]

SHAPE = 16 / 9
SMALLEST = 1 / 40
EDGE = 0.25
BESIDE = 2.0
SIZE = 11.0


def _roofline() -> Static:
    from course.explorers import estimate

    return estimate.roofline(intensity=8, bandwidth=50).static()


def _state() -> Static:
    from course.explorers import constrain

    return constrain.memory(model="llama-2-70b", divided="zero3", devices=64, checkpoints=1).static()


def _ladder() -> Static:
    from course.explorers import shard

    return shard.ladder(model="llama-3-8b", ranks=64, micro_batches=8).static()


def _bounds() -> Static:
    from course.explorers import place

    return place.bounds().static()


def _schedule(kind: str, **more: Any) -> Callable[[], Static]:
    def made() -> Static:
        from course.explorers import batch

        return batch.schedule(kind=kind, stages=4, micro_batches=8, **more).static()

    return made


def _losses() -> Static:
    from course.explorers import mfu

    return mfu.losses().static()


def _buckets() -> Static:
    from course.explorers import overlap

    return overlap.buckets().static()


def _cover() -> Static:
    from course.explorers import overlap

    return overlap.cover().static()


def _devices() -> Static:
    from course.explorers import sweep

    return sweep.devices().static()


def _strong() -> Static:
    from course.explorers import scaling

    return scaling.strong().static()


SLIDES: Sequence[tuple[str, Callable[[], Static]]] = (
    ("estimate", _roofline), ("constrain", _state), ("shard", _ladder), ("place", _bounds),
    ("batch", _schedule("1f1b")), ("batch", _schedule("interleaved", chunks=2)), ("mfu", _losses),
    ("overlap", _buckets), ("overlap", _cover), ("sweep", _devices), ("scaling", _strong),
)  # fmt: skip
"""The step that a page belongs to, and what makes its picture."""


def slides() -> list[Figure]:
    """The pages, in the order of the steps."""
    return [slide(step, make()) for step, make in SLIDES]


def holds() -> str:
    """The digest of all pictures: what each explorer says, in its sentence and its table."""
    return digest([(step, str(make())) for step, make in SLIDES])


def slide(step: str, static: Static) -> Figure:
    """A 16:9 page: the picture at the left, the step and the sentence beside it."""
    figure: Any = static.figure
    across, down = figure.get_size_inches()
    page_down = max(down + 2 * EDGE, (across + BESIDE + 3 * EDGE) / SHAPE)
    page_across = page_down * SHAPE
    smallest = SMALLEST * page_down * POINTS
    for text in figure.findobj(Text):
        text.set_fontsize(max(text.get_fontsize(), smallest))
    room = (page_across - across - 3 * EDGE) * POINTS
    x, y = (across + EDGE) / across, 1.0
    figure.text(x, y, STEPS[step], fontsize=15, fontweight="bold", color=BLUE, va="top")
    figure.text(x, y - 0.45 / down, "\n".join(wrapped(static.sentence, SIZE, room)), fontsize=SIZE, va="top",
                linespacing=1.35)  # fmt: skip
    below = (page_down - down) / 2
    figure.page = Bbox.from_bounds(-EDGE, -below, page_across, page_down)
    return static.figure


def write(path: Path) -> None:
    """Write the pages as a PDF."""
    save(slides(), path, "Strong scaling: the pictures of the eight steps", holds())
