"""How an answer writes numbers and names, so that every sentence does it alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GIB = 2.0**30
ZERO = {"none": "nothing sharded", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
LONGER = "Most published runs took longer than predicted: see `course compare`."
"""What stands beside a verdict on a time goal or a budget that no measured step has corrected."""
_SHORT = {
    "data": "DP", "tensor": "TP", "context": "CP", "pipeline": "PP", "expert": "EP", "expert_tensor": "ETP",
}  # fmt: skip


def number(value: float) -> str:
    """A number as a reader wants it: thousands apart, three or four digits, powers of ten where it is huge.

    >>> number(6803.6), number(0.4712), number(3.7988e25), number(16384)
    ('6,804', '0.471', '3.799e+25', '16,384')
    """
    if value and not 1e-3 <= abs(value) < 1e9:
        return f"{value:.4g}"
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def large(value: float) -> str:
    """A count in words.

    >>> large(405.85e9), large(15.6e12), large(2.5e6)
    ('405.9 billion', '15.6 trillion', '2.5 million')
    """
    for scale, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {word}"
    return f"{value:,.0f}"


def gib(bytes_held: float) -> str:
    """Bytes as GiB."""
    return f"{number(bytes_held / GIB)} GiB"


def percent(share: float) -> str:
    """A share in per cent.

    >>> percent(0.0712), percent(0.5), percent(0.997)
    ('7.1 %', '50 %', '99.7 %')
    """
    if 0.995 <= share < 1:  # almost all is not all
        return f"{min(100 * share, 99.9):.1f} %"
    return f"{100 * share:.2g} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def listed(items: Sequence[str]) -> str:
    """Items with commas, and `and` before the last.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1] if items else ""


def illegal(reasons: Sequence[str], assumptions: Sequence[str]) -> list[str]:
    """The reasons against a layout; beside the one about the devices what the run file left out.

    >>> illegal(["1 must equal the 2 devices"], ["[layout] data was left out, so it is 1"])
    ['1 must equal the 2 devices (data was left out, so it is 1)']
    """
    left = "".join(f" ({line.removeprefix('[layout] ')})" for line in assumptions if line.startswith("[layout] data "))
    return [reason + left if "must equal the" in reason else reason for reason in reasons]


def whole_group(layout: Mapping[str, Any]) -> int:
    """The shard group of a layout that says nothing of it: all of data x context, or 1 where nothing is sharded.

    >>> whole_group({"data": 4, "context": 2, "sharding": "zero1", "shard_group": 4})
    8
    """
    if layout["sharding"] == "none":
        return int(layout["shard_group"])  # whatever stands there, it shards nothing
    return int(layout["data"] * layout["context"])


def layout_name(layout: Mapping[str, Any], usual: Sequence[str] = ()) -> str:
    """A layout in a line, with all that is not at its default; `usual` is the recipe's order of the axes.

    >>> from course.problem import Layout
    >>> import dataclasses
    >>> layout_name(dataclasses.asdict(Layout(data=4, tensor=2, sharding="zero1")))
    'DP 4, TP 2, ZeRO-1, micro-batch 1'
    >>> layout_name(dataclasses.asdict(Layout(data=4, tensor=2, sharding="zero1", shard_group=2, order=("tensor",))))
    'DP 4, TP 2, ZeRO-1 in groups of 2, micro-batch 1'
    """
    parts = [f"{short} {layout[axis]}" for axis, short in _SHORT.items() if layout[axis] > 1]
    if layout["pipeline"] > 1:
        chunks = f" x{layout['interleave']}" if layout["interleave"] > 1 else ""
        parts.append(f"{layout['schedule']}{chunks}")
    if layout["sharding"] != "none":
        groups = "" if layout["shard_group"] == whole_group(layout) else f" in groups of {layout['shard_group']:,}"
        parts.append(f"{ZERO[layout['sharding']]}{groups}")
    parts.append(f"micro-batch {layout['micro_batch']}")
    if layout["recompute"] != "none":
        parts.append(f"{layout['recompute']} recomputation")
    if layout["tensor"] > 1 and not layout["sequence_parallel"]:
        parts.append("no sequence parallelism")
    if usual and tuple(layout["order"]) != tuple(usual):
        parts.append("order " + " ".join(_SHORT[axis] for axis in layout["order"]))
    if layout["stage_layers"] is not None:
        parts.append("stages of its own")
    return ", ".join(parts)
