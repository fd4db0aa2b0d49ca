"""One layout's prediction as the JSON document others script against."""

from __future__ import annotations

from typing import Any

from course.estimate import Count, count, flops_per_token
from course.legality import RECOMPUTES, SCHEDULES, reasons
from course.mfu import cost, step_mfu, tokens_per_s
from course.predict.columns import Columns, from_layout
from course.predict.constants import Constants, constants_for
from course.predict.evaluate import evaluate
from course.predict.experts import NOTE
from course.predict.memory import PARTS
from course.predict.schedules import SPLIT_NOTE
from course.problem import Run, RunFileError

GIB = 2.0**30
AXES = ("data", "tensor", "pipeline", "context", "expert")
CONVENTIONS = ("six_ps", "palm", "full_attention", "causal_attention")
Counted = tuple[Count, dict[str, dict[str, float]]]
NEARLY_FULL = 0.88
"""Share of capacity from which a prediction warns: 70 GiB of an H100's 79.6, which all ten runs of the playbook that
stalled for want of memory held; no time predicted here contains such a stall."""
_NOT_SPLIT = {"total_s": 0.0, "exposed_s": 0.0, "link": None}


def predict(run: Run, constants: Constants | None = None) -> dict[str, Any]:
    """Predict the layout of a run; the document is that of `course predict --json`.

    Quantities of an illegal layout are null. Times are seconds a step, memory GiB of the fullest stage.

    Raises:
        RunFileError: the run has no layout.

    >>> from course.examples import path
    >>> from course.problem import load
    >>> predict(load(path("llama-3-8b-8-h100")))["legal"]
    True
    """
    if run.layout is None:
        raise RunFileError("There is no [layout] to predict. Add one, or ask `course sweep` for all legal layouts.")
    columns = from_layout(run.layout, run)
    broken = reasons(run, columns)
    constants = constants or constants_for(run)
    values = None if broken else evaluate(run, columns, run.layout.order, constants)
    return document(run, columns, values, 0, broken, constants)


def document(
    run: Run,
    columns: Columns,
    values: Columns | None,
    row: int,
    broken: list[str],
    constants: Constants,
    known: Counted | None = None,
) -> dict[str, Any]:
    """The document of one row of evaluated columns.

    `values` is None where the layout is illegal; `known` is what `counted` gives, so that many rows share it.
    """
    recompute = RECOMPUTES[int(columns["recompute"][row])]
    parameters, per_token = known or counted(run)
    flops = per_token[recompute]

    def get(name: str, scale: float = 1.0) -> float | None:
        return None if values is None else float(values[name][row]) / scale

    time = get("time_s")
    batch = float(run.training.tokens_per_step)
    rate = None if time is None else float(tokens_per_s(tokens_per_step=batch, step_time=time))
    use = {name: _utilisation(run, flops[name], time) for name in (*CONVENTIONS, "executed")}
    return {
        "legal": not broken,
        "reasons": broken,
        "parameters": vars(parameters).copy(),
        "flops_per_token": dict(flops),
        "tokens_per_step": batch,
        "micro_batches": None if values is None else float(columns["micro_batches"][row]),
        "memory": {
            "fits": None if values is None else bool(values["fits"][row]),
            "peak_gib": get("peak_bytes", GIB),
            "capacity_gib": run.cluster.accelerator.memory_bytes / GIB,
            "stage": None if values is None else int(values["stage"][row]),
            "parts_gib": {name: get(f"part_{name}", GIB) for name in PARTS},
        },
        "step": {
            "time_s": time,
            "compute_s": get("compute_s"),
            "bubble_s": get("bubble_s"),
            "other_s": get("other_s"),
            "communication": {axis: _axis(values, row, axis) for axis in AXES},
        },
        "tokens_per_s": rate,
        "tokens_per_s_per_device": None if rate is None else rate / run.cluster.devices,
        "mfu": {name: use[name] for name in CONVENTIONS},
        "hfu": use["executed"],
        "run": _run(run, values, row),
        "assumptions": [
            *run.assumptions, *constants.sources, *_balanced(run), *_split(columns, row), *_left_out(use, time),
            *_nearly_full(run, get("peak_bytes")),
        ],
    }


def counted(run: Run) -> Counted:
    """Parameters, and FLOPs of a token for each recomputation: the same for all layouts of a run."""
    length = run.training.sequence_length
    return count(run.model), {choice: flops_per_token(run.model, length, choice) for choice in RECOMPUTES}


def _axis(values: Columns | None, row: int, axis: str) -> dict[str, Any]:
    if values is None:
        return {"total_s": None, "exposed_s": None, "link": None}
    if values[f"{axis}_total_s"][row] <= 0:
        return dict(_NOT_SPLIT)
    crosses = bool(values[f"{axis}_crosses"][row])
    return {
        "total_s": float(values[f"{axis}_total_s"][row]),
        "exposed_s": float(values[f"{axis}_exposed_s"][row]),
        "link": "between nodes" if crosses else "inside a node",
    }


def _utilisation(run: Run, flops: float, time: float | None) -> float | None:
    """Share of peak by one convention; None where there is no time, or where the convention would exceed the peak."""
    if time is None:
        return None
    value = step_mfu(
        flops_per_token=flops, tokens_per_step=run.training.tokens_per_step, devices=run.cluster.devices,
        peak_flops_per_s=run.cluster.accelerator.peak_flops_per_s, step_time=time,
    )  # fmt: skip
    return float(value) if value <= 1 else None


def _balanced(run: Run) -> list[str]:
    model, notes = run.model, [NOTE] if run.model.experts else []
    if 0 < model.sliding_window < run.training.sequence_length and model.window_layers:
        notes.append(
            f"{model.window_layers} of {model.layers} layers look back {model.sliding_window} tokens; the conventions "
            "count the square of every layer"
        )
    return notes


def _split(columns: Columns, row: int) -> list[str]:
    return [SPLIT_NOTE] if columns["schedule"][row] == SCHEDULES.index("zero-bubble") else []


def _left_out(use: dict[str, float | None], time: float | None) -> list[str]:
    """Why a convention has no number: it counts work that is never done, such as 6P for a large input table."""
    names = [name for name, value in use.items() if value is None and time is not None]
    return [f"no MFU by {name}: it counts more FLOPs than these devices could have executed" for name in names]


def _nearly_full(run: Run, peak: float | None) -> list[str]:
    """What a device with hardly any memory left is known to do, where the peak comes so near."""
    share = 0.0 if peak is None else peak / run.cluster.accelerator.memory_bytes
    if not NEARLY_FULL < share <= 1:
        return []
    return [
        f"the peak is {share:.0%} of capacity: published runs above {NEARLY_FULL:.0%} took 2.7 to 8 times "
        "as long as predicted; leave more free, or measure first"
    ]


def _run(run: Run, values: Columns | None, row: int) -> dict[str, Any]:
    if values is None:
        return {"days": None, "accelerator_hours": None, "cost": None, "meets_goal": None}
    goal = run.goal
    days, hours = float(values["wall_s"][row]) / 86400, float(values["accelerator_hours"][row])
    asked = [
        (days, goal.days),
        (hours, goal.budget_accelerator_hours),
    ]
    limited = [(have, limit) for have, limit in asked if limit is not None]
    met = all(have <= limit for have, limit in limited) if limited else None
    price = goal.price_per_accelerator_hour
    paid = None
    if price is not None:
        time, goodput = float(values["run_s"][row]), run.cluster.goodput
        paid = float(cost(price_per_accelerator_hour=price, devices=run.cluster.devices, time=time, goodput=goodput))
    return {"days": days, "accelerator_hours": hours, "cost": paid, "meets_goal": met}
