"""Figures between cells: efficiency, curves, shares. What may not be divided is refused with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from course.errors import UserError
from course.lab.report import Report

__all__ = [
    "curve", "efficiency", "efficiency_range", "exposed_range", "exposed_share", "flops_per_step", "median_s",
    "refused", "share_of_wait",
]  # fmt: skip

P10_TO_P90 = 2.56
"""Standard deviations between the 10th and the 90th percentile of a normal distribution."""

OF_MEDIAN = 1.25
"""Standard error of a median over that of a mean, for a normal distribution."""

NINE_OF_TEN = 1.65

Cell = Mapping[str, Any]


def median_s(cell: Cell) -> float:
    """Median step time in s. Raises UserError where the cell has none."""
    time = (cell.get("step_time_s") or {}).get("p50")
    if time is None:
        why = f": {cell['reason']}" if cell.get("reason") else ""
        raise UserError(f"{cell['id']} has no step time ({cell['status']}{why}).")
    return float(time)


def refused(baseline: Cell, scaled: Cell) -> str | None:
    """Why the efficiency of `scaled` against `baseline` means nothing, in one sentence; None where it may be formed.

    >>> one = {"id": "a", "work_unit": "one update of 8 sequences", "devices": 1, "engine": "torch"}
    >>> refused(one, {**one, "id": "b", "work_unit": "one update of 16 sequences"})
    'a does "one update of 8 sequences" and b "one update of 16 sequences": different work units are not divided'
    """
    if baseline.get("work_unit") != scaled.get("work_unit"):
        return (
            f'{baseline["id"]} does "{baseline.get("work_unit")}" and {scaled["id"]} "{scaled.get("work_unit")}": '
            "different work units are not divided"
        )
    if baseline.get("engine") != scaled.get("engine"):
        return f"{baseline['id']} ran on {baseline.get('engine')} and {scaled['id']} on {scaled.get('engine')}"
    places = [cell.get("placement") or {} for cell in (baseline, scaled)]
    kinds = {str(place.get("accelerator")) for place in places}
    kinds |= {str(name) for place in places for name in place.get("accelerators") or ()}
    if len(kinds) > 1:
        return f"the devices differ ({', '.join(sorted(kinds))}): a speedup would mix them with the scaling"
    if (baseline.get("host") or 0) != (scaled.get("host") or 0):
        return f"{baseline['id']} and {scaled['id']} were measured on different hosts"
    for cell, place in zip((baseline, scaled), places, strict=True):
        there = int(place.get("cores") or 0) * int(place.get("hosts") or 1)
        more = bool(there) and int(cell["devices"]) > there  # pinning gives nobody a core that is not there
        if more or (place.get("shared_cores") and not place.get("pinned")):
            return f"the {cell['devices']} ranks of {cell['id']} share {place.get('cores')} cores" + (
                "" if more else " and are not pinned"
            )
    each = [place.get("cores_per_device") for place in places]
    if None not in each and each[0] != each[1]:
        return (
            f"a device of {baseline['id']} had {each[0]:g} cores and one of {scaled['id']} {each[1]:g}: pin the "
            "baseline to one core"
        )
    return None


def efficiency(baseline: Cell, scaled: Cell) -> float:
    """Efficiency of `scaled` against `baseline`: strong, or weak where the work unit is a device's.

    Raises UserError with the sentence of `refused`, and where a cell has no step time.
    """
    why = refused(baseline, scaled)
    if why:
        raise UserError(f"No efficiency: {why}.")
    return _ratio(baseline, scaled, median_s(baseline), median_s(scaled))


def efficiency_range(baseline: Cell, scaled: Cell) -> tuple[float, float] | None:
    """The lowest and the highest efficiency of a single block; None where one launch did not measure both in turns.

    Each block of one cell stands beside a block of the other, a moment apart: what disturbs the machine for longer than
    a block meets both, and leaves their ratio.

    >>> step = {"p50": 1.0}
    >>> one = {"id": "a", "family": "weak", "devices": 1, "engine": "torch", "step_time_s": step,
    ...        "request": {"alternate": "weak"}, "extra": {"block_step_time_s": [1.0, 1.1]}}
    >>> efficiency_range(one, {**one, "id": "b", "devices": 2, "extra": {"block_step_time_s": [1.25, 1.375]}})
    (0.8, 0.8)
    """
    turns = [(cell.get("request") or {}).get("alternate") for cell in (baseline, scaled)]
    blocks = [(cell.get("extra") or {}).get("block_step_time_s") or [] for cell in (baseline, scaled)]
    launches = [(cell.get("extra") or {}).get("launch") for cell in (baseline, scaled)]
    if turns[0] is None or turns[0] != turns[1] or launches[0] != launches[1]:
        return None
    if not blocks[0] or len(blocks[0]) != len(blocks[1]) or not all(blocks[0]) or not all(blocks[1]):
        return None
    if refused(baseline, scaled):
        return None
    found = [_ratio(baseline, scaled, before, after) for before, after in zip(*blocks, strict=True)]
    return min(found), max(found)


def _ratio(baseline: Cell, scaled: Cell, before: float, after: float) -> float:
    if scaled["family"] == "weak" and baseline["family"] == "weak":
        return before / after
    from course.mfu import scaling_efficiency  # with sympy: a launcher needs none of it

    return float(
        scaling_efficiency(
            baseline_time=before,
            scaled_time=after,
            baseline_devices=baseline["devices"],
            scaled_devices=scaled["devices"],
        )
    )


def curve(report: Report, family: str = "strong", engine: str = "torch", host: int = 0) -> list[dict[str, Any]]:
    """The points of the scaling curve: each work unit's cells against the one with fewest devices.

    Returns rows of `work_unit`, `batch`, `devices`, `time_s`, `speedup`, `efficiency`, `range`, `exposed_share`,
    `status`; `efficiency` is None with `refused` the reason, `range` is that of single blocks where there is one. Cells
    with a slowed loader are left out.
    """
    found = [cell for cell in report.of(family, engine) if (cell.get("host") or 0) == host and not loader_s(cell)]
    units: dict[str, list[Cell]] = {}
    for cell in found:
        units.setdefault(str(cell["work_unit"]), []).append(cell)
    rows = []
    for unit, same in units.items():
        ordered = sorted(same, key=lambda cell: int(cell["devices"]))
        for one in ordered:
            why = refused(ordered[0], one)
            value = None if why else efficiency(ordered[0], one)
            rows.append({
                "id": one["id"], "work_unit": unit, "batch": one["global_batch_sequences"],
                "devices": one["devices"], "time_s": median_s(one),
                "speedup": None if why else median_s(ordered[0]) / median_s(one),
                "efficiency": value, "range": efficiency_range(ordered[0], one), "refused": why,
                "exposed_share": exposed_share(one), "status": one["status"],
            })  # fmt: skip
    return sorted(rows, key=lambda row: (row["batch"], row["devices"]))


def loader_s(cell: Cell) -> float:
    """Seconds a slowed loader slept before each step of the cell; 0 where nothing was slowed."""
    return float((cell.get("request") or {}).get("loader_s") or 0.0)


def exposed_share(cell: Cell) -> float | None:
    """Exposed communication over step time, by the difference to steps that do not synchronise; None if not measured.

    Not below 0: what the difference was, and how sure, is `exposed_range`.

    >>> exposed_share({"exposed_communication_s": 0.005, "step_time_s": {"p50": 0.02}})
    0.25
    """
    exposed, time = cell.get("exposed_communication_s"), (cell.get("step_time_s") or {}).get("p50")
    return None if exposed is None or not time else max(0.0, float(exposed)) / float(time)


def exposed_range(cell: Cell) -> tuple[float, float, float] | None:
    """Exposed communication by difference, with its sign, and a range of nine in ten, in s; None if not measured.

    A difference of two medians that both vary may come out negative: then nothing was seen above the variation. The
    range takes steps as independent of each other; whole blocks that were disturbed vary more than it says.

    >>> steps = {"p10": 0.9, "p50": 1.0, "p90": 1.1, "n": 25}
    >>> cell = {"step_time_s": steps, "extra": {"step_without_exchange_s": {**steps, "p50": 1.02}}}
    >>> [round(value, 3) for value in exposed_range(cell)]
    [-0.02, -0.066, 0.026]
    """
    both: list[Any] = [cell.get("step_time_s"), (cell.get("extra") or {}).get("step_without_exchange_s")]
    if any(not time or time.get(key) is None for time in both for key in ("p10", "p50", "p90", "n")):
        return None
    errors = [OF_MEDIAN * (time["p90"] - time["p10"]) / P10_TO_P90 / time["n"] ** 0.5 for time in both if time]
    difference, half = both[0]["p50"] - both[1]["p50"], NINE_OF_TEN * sum(error**2 for error in errors) ** 0.5
    return float(difference), float(difference - half), float(difference + half)


def share_of_wait(cell: Cell) -> float | None:
    """Waiting for input over step time; None if not measured."""
    waited, time = cell.get("input_wait_s"), (cell.get("step_time_s") or {}).get("p50")
    return None if waited is None or not time else float(waited) / float(time)


def peak_matmul(cells: Iterable[Cell], engine: str, precision: str) -> float | None:
    """The best matmul rate one device reached in these cells, FLOP/s: the measured peak."""
    rates = [
        float(cell["matmul_flops_per_s"]) for cell in cells
        if cell["family"] == "matmul" and cell["engine"] == engine and cell["matmul_flops_per_s"]
        and (cell.get("precision") or precision) == precision
    ]  # fmt: skip
    return max(rates, default=None)


def flops_per_step(request: Mapping[str, Any]) -> float:
    """FLOPs of one step by the convention `full_attention`: 6 a matmul parameter and token, attention's full square.

    >>> one = {"model": {"layers": 4, "hidden": 128, "heads": 4, "ffn": 512, "vocabulary": 512},
    ...        "global_batch_sequences": 2, "sequence_length": 64}
    >>> flops_per_step(one) == 128 * (6 * (4 * (4 * 128**2 + 2 * 128 * 512) + 128 * 512) + 12 * 4 * 128 * 64)
    True
    """
    model, length = request["model"], request["sequence_length"]
    weights = model["layers"] * (4 * model["hidden"] ** 2 + 2 * model["hidden"] * model["ffn"])
    weights += model["hidden"] * model["vocabulary"]
    from course.estimate import full_attention

    each = full_attention(
        matmul_parameters=weights, layers=model["layers"], heads=model["heads"],
        head_size=model["hidden"] // model["heads"], sequence_length=length,
    )  # fmt: skip
    return float(each * request["global_batch_sequences"] * length)
