"""The last four steps as they are said: the batch, MFU and cost, what is hidden and what is seen, what to measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course.answer.facts import Facts
from course.answer.published import above_published
from course.answer.steps import Spoken, _removed
from course.answer.words import GIB, LONGER, illegal, layout_name, listed, number, percent
from course.batch import bubble_share, tokens_per_step
from course.mfu import cost, step_mfu, tokens_per_s
from course.overlap import step_lower_bound, step_upper_bound
from course.predict.report import CONVENTIONS
from course.stops import stops
from course.sweep import TIE, proposal

FIRST = (
    "of these the fewest axes come first, replicas not counted, then the smallest model-parallel group, the least "
    "sharding, the fewest chunks a stage, the shortest time"
)
FAR = 2.0
"""Ratio of a measured step to its estimate from which a scaled estimate says little."""
NOTHING = "There is no layout to speak of."
AXES = ("tensor", "context", "expert", "data", "pipeline")


def batch(facts: Facts) -> Spoken:
    """Step 5: the global batch held, micro-batch and accumulation, the bubble."""
    training = facts.run.training
    numbers: dict[str, float | bool | None] = {
        "tokens_per_step": float(training.tokens_per_step),
        "global_batch_sequences": float(training.global_batch_sequences),
        "data": None, "micro_batch_sequences": None, "accumulation_micro_batches": None, "bubble_share": None,
    }  # fmt: skip
    held = f"The global batch stays {training.global_batch_sequences:,} sequences whatever the layout"
    if facts.best is None:
        return numbers, f"{held}. {NOTHING}"
    layout, steps = facts.best["layout"], facts.best["micro_batches"]
    whole = float(
        tokens_per_step(
            data=layout["data"],
            micro_batch=layout["micro_batch"],
            sequence_length=training.sequence_length,
            accumulation=steps,
        )
    )
    share = _idle_share(facts.best)
    numbers |= {
        "data": float(layout["data"]), "micro_batch_sequences": float(layout["micro_batch"]),
        "accumulation_micro_batches": float(steps), "bubble_share": share,
    }  # fmt: skip
    said = [
        f"{held}: D_p B T G = {layout['data']:,} x {layout['micro_batch']} x {training.sequence_length:,} x "
        f"{steps:,.0f} "
        f"= {whole:,.0f} tokens a step."
    ]
    if layout["pipeline"] > 1:
        chunks = f" of {layout['interleave']} chunks each" if layout["interleave"] > 1 else ""
        said.append(
            f"{steps:,.0f} micro-batches pass {layout['pipeline']} stages{chunks} ({layout['schedule']}): "
            f"{'stages' if layout['schedule'] == 'zero-bubble' else 'even stages would'} idle "
            f"{percent(share)} of the time."
        )
    else:
        said.append("There are no stages, so there is no bubble.")
    return numbers, " ".join(said)


def _idle_share(best: Mapping[str, Any]) -> float:
    """Idle over total of the pipeline: of even stages, or under a split backward, whose parts differ, as predicted."""
    layout, step = best["layout"], best["step"]
    if layout["schedule"] != "zero-bubble":
        place = {name: layout[name] for name in ("pipeline", "interleave")}
        return float(bubble_share(**place, micro_batches=best["micro_batches"]))
    waits = sum(step["communication"][axis]["exposed_s"] for axis in ("tensor", "context", "expert"))
    return float(step["bubble_s"] / (step["compute_s"] + step["bubble_s"] + waits))


def mfu(facts: Facts) -> Spoken:
    """Step 6: MFU by named convention, wall time, accelerator-hours, cost; the measured step where there is one."""
    run, goal = facts.run, facts.run.goal
    measured, ratio, time = run.measured.step_time_s, facts.measured_over_estimate, facts.step_time_s
    numbers: dict[str, float | bool | None] = {
        "step_time_s": time, "estimated_step_time_s": facts.best["step"]["time_s"] if facts.best else None,
        "measured_step_time_s": measured, "measured_over_estimate": ratio,
        **{f"mfu_{name}": None for name in CONVENTIONS},
        "hfu": None, "tokens_per_s": None, "tokens_per_s_per_device": None, "goodput": run.cluster.goodput,
        "wall_days": facts.days, "accelerator_hours": facts.hours, "cost": None,
    }  # fmt: skip
    if facts.best is None or time is None:
        return numbers, NOTHING
    cluster, tokens = run.cluster, float(run.training.tokens_per_step)

    def share(flops: float) -> float | None:
        value = step_mfu(
            flops_per_token=flops, tokens_per_step=tokens, devices=cluster.devices,
            peak_flops_per_s=cluster.accelerator.peak_flops_per_s, step_time=time,
        )  # fmt: skip
        return float(value) if value <= 1 else None

    flops = facts.best["flops_per_token"]
    numbers |= {f"mfu_{name}": share(flops[name]) for name in CONVENTIONS} | {"hfu": share(flops["executed"])}
    rate = float(tokens_per_s(tokens_per_step=tokens, step_time=time))
    numbers |= {"tokens_per_s": rate, "tokens_per_s_per_device": rate / cluster.devices}
    if goal.price_per_accelerator_hour is not None:
        numbers["cost"] = float(
            cost(price_per_accelerator_hour=goal.price_per_accelerator_hour, devices=cluster.devices,
                 goodput=cluster.goodput,
                 time=time * run.training.tokens / tokens)
        )  # fmt: skip
    use = numbers["mfu_full_attention"]
    spoken = "MFU by full_attention has no value here" if use is None else f"MFU {use:.3f} (full_attention)"
    spoken += "".join(
        f", {numbers[f'mfu_{name}']:.3f} ({name})" for name in ("six_ps", "causal_attention") if numbers[f"mfu_{name}"]
    )
    priced = "" if numbers["cost"] is None else f", at a cost of {number(numbers['cost'])}"
    said = [
        f"A step takes {time:.4g} s: {spoken}, of {cluster.accelerator.peak_flops_per_s / 1e12:,.1f} dense "
        f"TFLOP/s a device.",
        f"With a goodput of {cluster.goodput:g} the run takes {number(facts.days or 0)} days and "
        f"{number(facts.hours or 0)} accelerator-hours{priced}.",
    ]
    above = above_published(
        cluster.accelerator.id, cluster.accelerator.name, run.training.precision,
        {name: numbers[f"mfu_{name}"] for name in CONVENTIONS},
    )  # fmt: skip
    said += [above] if above else []
    if facts.best["layout"]["recompute"] != "none" and numbers["hfu"]:
        said.append(f"HFU is {numbers['hfu']:.3f}: it counts the recomputation, which the model does not need.")
    if measured is not None:
        said.append(_measured(facts, measured, ratio))
    return numbers, " ".join(said)


def _measured(facts: Facts, measured: float, ratio: float | None) -> str:
    if ratio is None:
        return f"The measured step of {measured:.4g} s is not used: the layout in the file is not legal here."
    estimated = facts.best["step"]["time_s"] if facts.best else 0.0
    said = (
        f"The measured step of {measured:.4g} s is used: for {facts.whose} the estimate is {measured / ratio:.4g} s. "
        f"The numbers of this step and all that is said of the goals are scaled by that ratio of {ratio:.3f}; all "
        f"other times, tables among them, are estimates as they stand ({estimated:.4g} s a step of this layout)."
    )
    if not 1 / FAR <= ratio <= FAR:
        said += " So far apart, something holds up one of the two that the other does not know: find it first."
    return said


def overlap(facts: Facts) -> Spoken:
    """Step 7: of each axis what is hidden and what extends the step; the bounds by sum and by maximum."""
    numbers: dict[str, float | bool | None] = {}
    for axis in AXES:
        numbers |= {f"{axis}_total_s": None, f"{axis}_exposed_s": None, f"{axis}_hidden_s": None}
    rest = ("compute_s", "bubble_s", "other_s", "exposed_share", "lower_bound_s", "upper_bound_s")
    numbers |= dict.fromkeys(rest)
    if facts.best is None:
        return numbers, NOTHING
    step = facts.best["step"]
    hidden, seen = [], []
    for axis in AXES:
        total, exposed = step["communication"][axis]["total_s"], step["communication"][axis]["exposed_s"]
        numbers |= {
            f"{axis}_total_s": total,
            f"{axis}_exposed_s": exposed,
            f"{axis}_hidden_s": max(total - exposed, 0.0),
        }
        if total - exposed > 0.001 * step["time_s"]:
            hidden.append(f"{axis} {total - exposed:.3g} s")
        if exposed > 0.001 * step["time_s"]:
            seen.append(f"{axis} {exposed:.3g} s")
    own = {name: step[name] for name in ("compute_s", "bubble_s", "other_s")}
    moved = sum(step["communication"][axis]["total_s"] for axis in AXES)
    exposed = sum(step["communication"][axis]["exposed_s"] for axis in AXES)
    fixed = own["bubble_s"] + own["other_s"]
    numbers |= own | {
        "exposed_share": exposed / step["time_s"],
        "lower_bound_s": float(step_lower_bound(compute_time=own["compute_s"], communication_time=moved)) + fixed,
        "upper_bound_s": float(step_upper_bound(compute_time=own["compute_s"], communication_time=moved)) + fixed,
    }
    return numbers, (
        f"Of {step['time_s']:.4g} s, {own['compute_s']:.4g} are compute, {own['bubble_s']:.3g} bubble, "
        f"{own['other_s']:.3g} the "
        f"optimizer step. Hidden behind compute: {listed(hidden) or 'nothing'}. Exposed: "
        f"{listed(seen) or 'nothing to speak of'}. "
        f"If nothing overlapped a step would take {numbers['upper_bound_s']:.4g} s, if everything did "
        f"{numbers['lower_bound_s']:.4g} s."
    )


def sweep(facts: Facts) -> Spoken:
    """Step 8: the short grid to measure, what was rejected, when to stop; the file's own layout beside the choice."""
    found, own, when = facts.found, facts.own, stops(facts.run.goal, facts.scaled_counts)
    proposed = proposal(found)
    numbers: dict[str, float | bool | None] = {
        "candidates": float(found.candidates), "legal": float(found.legal), "fitting": float(found.fitting),
        "ties": float(found.ties), "proposed": float(len(proposed)),
        "break_even_devices": _float(when["break_even_devices"]),
        "deadline_devices": _float(when["deadline_devices"]),
        "file_layout_step_time_s": own["step"]["time_s"] if own else None,
        "file_layout_peak_gib": own["memory"]["peak_gib"] if own else None,
        "file_layout_mfu_full_attention": own["mfu"]["full_attention"] if own else None,
    }  # fmt: skip
    said = [f"Of {found.candidates:,} candidates {found.legal:,} are legal and {found.fitting:,} fit."]
    if facts.best is None:
        return numbers, " ".join([*said, f"Nothing is left to measure: {_removed(facts)}"])
    near = f"within {percent(TIE)} of the best, which the ranking counts as equal"
    said += [
        f"No other is {near}." if found.ties == 1 else f"{found.ties:,} are {near}; {FIRST}.",
        f"Measure {len(proposed)} short runs with the same global batch: peak memory, tokens/s, MFU, spread "
        f"of the step time, "
        "communication time, and whether the loss changes.",
        _stop(facts, when),
    ]
    if facts.run.goal.days is not None and facts.run.measured.step_time_s is None:
        said.append(LONGER)
    if own is not None:
        said.append(_beside(facts))
    return numbers, " ".join(part for part in said if part)


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _stop(facts: Facts, when: dict[str, int | None]) -> str:
    said = []
    stop, deadline = when["break_even_devices"], when["deadline_devices"]
    if stop is not None:
        said.append(f"Beyond {stop:,} devices a doubling adds more waiting than it saves compute")
    if deadline is not None:
        said.append(f"{deadline:,} devices meet the time goal, and a further doubling costs more than that is worth")
    elif facts.run.goal.days is not None:
        within = " within the budget" if facts.run.goal.budget_accelerator_hours is not None else ""
        said.append(f"no device count looked at meets the time goal{within}")
    sentence = "; ".join(said)
    return sentence[:1].upper() + sentence[1:] + "." if sentence else ""


def _beside(facts: Facts) -> str:
    own, best, layout = facts.own, facts.best, facts.run.layout
    if own is None or best is None or layout is None:
        return ""
    name = layout_name(vars(layout), facts.run.software.order)
    if not own["legal"]:
        reasons = illegal(own["reasons"], facts.run.assumptions)
        return f"The layout in the file ({name}) is not legal here: {'; '.join(reasons)}."
    time, wins = own["step"]["time_s"], own["step"]["time_s"] / best["step"]["time_s"] - 1
    held, have = own["memory"]["peak_gib"], facts.run.cluster.accelerator.memory_bytes / GIB
    fits = "it fits" if own["memory"]["fits"] else "it does not fit by this estimate"
    if facts.run.measured.peak_memory_gib is not None:
        held, fits = facts.run.measured.peak_memory_gib, "measured: it fits"
    if abs(wins) < 0.0005:
        compared = "as long as the recommended one"
    else:
        compared = f"{percent(abs(wins))} {'longer' if wins > 0 else 'shorter'} than the recommended one"
    use = own["mfu"]["full_attention"]
    return (
        f"The layout in the file ({name}) takes {time:.4g} s a step, {compared}"
        + ("" if use is None else f", MFU {use:.3f} (full_attention)")
        + f"; {held:.1f} of {have:.1f} GiB, {fits}."
    )
