"""A layout carried over to an engine: what was asked, what the engine runs in its place, and what it cannot do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

from course.problem import Layout, Run

__all__ = [
    "LOG_EVERY",
    "STEPS",
    "WARMED_UP",
    "Asked",
    "Ported",
    "Settings",
    "asked_of",
    "chunk_layers",
    "distinct",
    "inner_to_outer",
    "told",
    "words",
]

STEPS = 30
"""Steps a layout is measured for."""

WARMED_UP = 10
"""Steps that do not count: kernels are compiled, buffers allocated, data read for the first time."""

LOG_EVERY = 5
"""Steps between two lines of the log."""


@dataclass(frozen=True)
class Asked:
    """A proposed layout with its name in the files, its predicted step time in s and its predicted peak in GiB."""

    name: str
    layout: Layout
    time_s: float
    peak_gib: float


@dataclass(frozen=True)
class Ported:
    """A layout as an engine runs it. `columns` are cells of its row of results that do not follow from the layout."""

    asked: Asked
    layout: Layout
    cannot: tuple[str, ...]
    columns: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The layout's name in the files: `layout_1` and so on, best first."""
        return self.asked.name


@dataclass(frozen=True)
class Settings:
    """Settings of one engine: its files, the layouts as it runs them, and what holds for all of them.

    `engine` is its name and version, `recipe` the software recipe that stands for it, `launch` what follows `torchrun`
    and its options in a shell in which `name` is a layout, `needs` what must be set before, in words.
    """

    engine: str
    recipe: str
    files: Mapping[str, str]
    ported: tuple[Ported, ...]
    launch: str
    needs: str
    said: tuple[str, ...] = ()

    def with_said(self, more: Sequence[str]) -> Settings:
        """The same settings with more said of them."""
        return replace(self, said=(*self.said, *more))

    def sentences(self) -> list[str]:
        """What was said of all layouts, then a line for every layout with what the engine cannot do of it."""
        lines = [f"{one.name}: {words(one.asked.layout)}. {' '.join(one.cannot)}".rstrip() for one in self.ported]
        return [*self.said, *lines]


def asked_of(run: Run, document: Mapping[str, Any]) -> tuple[Asked, ...]:
    """The layouts that a sweep proposes to measure, best first."""
    held = run.layout.stage_layers if run.layout is not None else None
    found = []
    for number, place in enumerate(document["proposal"], 1):
        described = document["layouts"][place]
        layout = Layout(**described["layout"])
        if layout.stage_layers is None and held is not None and len(held) == layout.pipeline:
            layout = replace(layout, stage_layers=held)
        found.append(Asked(f"layout_{number}", layout, described["step"]["time_s"], described["memory"]["peak_gib"]))
    return tuple(found)


def distinct(ported: Sequence[Ported]) -> tuple[tuple[Ported, ...], tuple[str, ...]]:
    """The layouts that differ as the engine runs them, and a sentence for each that is another one again."""
    kept: dict[Layout, Ported] = {}
    said = []
    for one in ported:
        first = kept.setdefault(one.layout, one)
        if first is not one:
            why = one.cannot or first.cannot
            said.append(
                f"{one.name} ({words(one.asked.layout)}) is not written, as it would run as {first.name}: "
                f"{' '.join(why)}"
            )
    return tuple(kept.values()), tuple(said)


def told(one: Ported, indent: str) -> list[str]:
    """What the head of a layout's settings says: what was asked and predicted, and what the engine cannot do of it."""
    asked = f"{words(one.asked.layout)}: predicted {one.asked.time_s:.4g} s a step, {one.asked.peak_gib:.1f} GiB."
    return [line for text in (asked, *one.cannot) for line in wrap(text, 116 - len(indent), break_on_hyphens=False)]


def words(layout: Layout) -> str:
    """A layout in a few words, degrees of 1 left out.

    >>> words(Layout(data=4, tensor=2, sharding="zero1", micro_batch=2))
    'data 4, tensor 2, zero1, micro-batch 2'
    """
    degrees = ("data", "tensor", "pipeline", "context", "expert", "interleave")
    parts = [f"{name} {getattr(layout, name)}" for name in degrees if getattr(layout, name) > 1]
    parts += [layout.sharding] if layout.sharding != "none" else []
    parts += [f"{layout.recompute} recomputation"] if layout.recompute != "none" else []
    return ", ".join([*parts, f"micro-batch {layout.micro_batch}"])


def chunk_layers(run: Run, layout: Layout) -> tuple[int, ...]:
    """Layers of each chunk of a pipeline, in the order in which a token passes them; chunk k stands on stage k mod P_p.

    As predicted: even where layers divide by the chunks; one layer fewer at both ends where layers + 2 do; under the
    rule `first-extra` the first take the rest; `stage_layers` as given.

    >>> from course.examples import path
    >>> from course.problem import load
    >>> chunk_layers(load(path("llama-3.1-405b-16384-h100")), Layout(pipeline=16, interleave=1))[:3]
    (7, 8, 8)
    """
    chunks, total = layout.pipeline * layout.interleave, run.model.layers
    if layout.stage_layers is not None:
        rows = [_spread(layers, layout.interleave) for layers in layout.stage_layers]
        return tuple(row[chunk] for chunk in range(layout.interleave) for row in rows)
    rule = run.software.stage_rule
    fewer = layout.pipeline > 1 and (total + 2) % chunks == 0 and rule != "first-extra"
    if fewer and (total % chunks or rule == "ends-one-fewer"):
        each = (total + 2) // chunks
        return (each - 1, *[each] * (chunks - 2), each - 1)
    return _spread(total, chunks)


def _spread(total: int, parts: int) -> tuple[int, ...]:
    base, extra = divmod(total, parts)
    return tuple(base + (place < extra) for place in range(parts))


def inner_to_outer(layout: Layout) -> tuple[str, ...]:
    """The axes above 1 from neighbouring devices outwards: all of an order that can be told from outside."""
    return tuple(axis for axis in layout.order if getattr(layout, axis) > 1)
