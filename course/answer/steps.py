"""The first four steps as they are said: what it needs, what does not fit, what is split, and where it goes."""

from __future__ import annotations

import math
from typing import Any

from course.answer.facts import AXES, Facts, smallest_group
from course.answer.goals import goal_limits, impossible, verdicts
from course.answer.words import GIB, ZERO, gib, large, listed, number, percent
from course.constrain import Limit, activation_memory, limits
from course.estimate import (
    LOGIT_BYTES,
    count,
    flops_per_token,
    layer_input_bytes,
    logits_bytes,
    shape,
    six_ps_error,
    six_ps_run,
    state_bytes,
)
from course.estimate import pick as only
from course.place import ring_all_gather_time
from course.predict.layers import routed
from course.shard import expert_state_per_device, state_per_device
from course.sweep import TIE
from course.sweep.why import more

Spoken = tuple[dict[str, float | bool | None], str]
"""Numbers by name, and the reason in sentences."""

NAMES = {
    "optimizer state": "weights, gradients and optimizer state together", "gradients": "weights and gradients",
    "weights": "the weights alone", "one layer": "one layer with its gradients and activations",
    "activations": "the activations of one sequence through all layers",
}  # fmt: skip


def estimate(facts: Facts) -> Spoken:
    """Step 1: parameters, FLOPs, model state, activations; measured memory where there is one."""
    run = facts.run
    model, training, state = run.model, run.training, run.training.state
    counted = count(model)
    widths = shape(model)
    total = counted.total
    parts = {"weight_bytes": state.weights, "gradient_bytes": state.all_gradients, "optimizer_bytes": state.optimizer}
    held = float(state_bytes(parameters=total, **parts))
    per_token = flops_per_token(model, training.sequence_length)
    sequence = {"micro_batch": 1, "sequence_length": training.sequence_length}
    whole = next(limit.need for limit in limits(run) if limit.name == "activations")
    inputs = layer_input_bytes(hidden=model.hidden, activation_bytes=2, sequence_sharded=0, tensor=1)
    recomputed = activation_memory(token_layer_bytes=inputs, stage_layers=model.layers, in_flight=1, **sequence)
    one_logit = LOGIT_BYTES["fused" if run.software.fused_loss else "unfused"]
    logits = logits_bytes(logit_bytes=one_logit, vocabulary=model.vocabulary, tensor=1, **sequence)
    error = float(
        six_ps_error(
            **only(six_ps_error, widths, parameters=counted.active, matmul_parameters=counted.matmul_active, **sequence)
        )
    )
    of = facts.own or facts.best
    short = float(six_ps_run(parameters=counted.active, tokens=training.tokens))
    counted_flops = per_token["full_attention"]
    numbers: dict[str, float | bool | None] = {
        "parameters": total,
        "matmul_parameters": counted.matmul_active,
        "run_flops_six_ps": short,
        "run_flops_full_attention": counted_flops * training.tokens,
        "six_ps_error_share": error,
        "state_bytes_per_parameter": float(state.total),
        "state_gib": held / GIB,
        "activations_gib_per_sequence": whole / GIB,
        "recomputed_activations_gib_per_sequence": float(recomputed) / GIB,
        "logits_gib_per_sequence": float(logits) / GIB,
        "estimated_peak_gib": of["memory"]["peak_gib"] if of else None,
        "measured_peak_gib": run.measured.peak_memory_gib,
    }
    side = "low" if error < 0 else "high"
    reason = (
        f"{large(total)} parameters, counted from the shapes. 6PS gives {number(short)} FLOP for the run; "
        f"counted matmul by "
        f"matmul it is {number(counted_flops * training.tokens)}, so 6PS is {percent(abs(error))} too {side}. At "
        f"{state.total} bytes a "
        f"parameter ({state.id}) the model state is {gib(held)}. One sequence of "
        f"{training.sequence_length:,} tokens leaves "
        f"{gib(whole)} of activations in all layers, {gib(float(recomputed))} where only layer inputs are kept."
    )
    if run.measured.peak_memory_gib is not None:
        estimated = numbers["estimated_peak_gib"]
        beside = "no estimate stands beside it" if estimated is None else f"the estimate is {estimated:.1f} GiB"
        reason += (
            f" Measured peak memory, taken for {facts.whose}: {run.measured.peak_memory_gib:.1f} GiB of "
            f"{gib(run.cluster.accelerator.memory_bytes)}; {beside}."
        )
    return numbers, reason


def constrain(facts: Facts) -> Spoken:
    """Step 2: what is impossible, then what does not fit, in the order of the questions; its remedy and its price."""
    run = facts.run
    memory, goals = limits(run), goal_limits(facts)
    numbers: dict[str, float | bool | None] = {"capacity_gib": run.cluster.accelerator.memory_bytes / GIB}
    for limit in memory:
        numbers[f"{limit.name.replace(' ', '_')}_need_gib"] = limit.need / GIB
    numbers |= {
        "time_need_days": facts.days,
        "time_goal_days": run.goal.days,
        "need_accelerator_hours": facts.hours,
        "budget_accelerator_hours": run.goal.budget_accelerator_hours,
    }
    have = gib(run.cluster.accelerator.memory_bytes)
    failing, fitting = [limit for limit in memory if not limit.fits], [limit for limit in memory if limit.fits]
    if failing:
        first = failing[0]
        said = [
            f"The first limit is {_article(first.name)}: {NAMES[first.name]} need {gib(first.need)} and a "
            f"device has {have}.",
            f"Remedy: {first.remedy}. Price: {first.cost}.",
        ]
        if failing[1:]:
            rest = listed([f"{NAMES[limit.name]} ({gib(limit.need)})" for limit in failing[1:]])
            said.append(f"Nor would these fit on one device: {rest}." if len(failing) > 2 else f"Nor would {rest} fit.")
        if fitting:
            said.append(f"What fits: {listed([f'{NAMES[limit.name]} ({gib(limit.need)})' for limit in fitting])}.")
        layer = next(limit for limit in memory if limit.name == "one layer")
        if layer.fits:
            said.append("One layer fits, so memory alone does not ask for tensor parallelism.")
    else:
        said = [f"Memory is no limit: state, one layer and the activations of a sequence each fit in {have}."]
    peak = run.measured.peak_memory_gib
    if peak is not None and (facts.own or facts.best):
        said.append(f"Measured, {facts.whose} holds {peak:.1f} GiB of {have}: it fits.")
    return numbers, " ".join([*impossible(run), *said, *_goals(facts, goals)])


def _article(name: str) -> str:
    return name if name == "one layer" else f"the {name}"


def _goals(facts: Facts, goals: list[Limit]) -> list[str]:
    if facts.best is None:
        devices = facts.run.cluster.devices
        return [f"No layout is left on {devices:,} device{'s' if devices > 1 else ''}: {_removed(facts)}"]
    return verdicts(facts, goals)


def _removed(facts: Facts) -> str:
    """Which constraint removed the last candidate, in a sentence."""
    last = facts.found.last_constraint
    many = f"{facts.found.rejected[last]:,} of {facts.found.candidates:,} candidates" if last else "all"
    if last == "memory":
        least = min(best.peak_bytes for best in facts.found.best["sharding"].values())
        have = facts.run.cluster.accelerator.memory_bytes
        return (
            f"memory removed the last ones ({many}); the smallest legal layout needs {least / GIB:,.1f} of {gib(have)}."
        )
    return f"the rule `{last}` removed the last ones ({many}); `course show rejections {last}` says what it asks."


def shard(facts: Facts) -> Spoken:
    """Step 3: the smallest group that resolves the limit, what the recommended layout splits, the bytes that adds."""
    run, found = facts.run, facts.found
    total, state = count(run.model).total, run.training.state
    least = max(1, math.ceil(total * state.total / run.cluster.accelerator.memory_bytes))
    smallest = smallest_group(found)
    numbers: dict[str, float | bool | None] = {
        "least_devices_for_state": float(least),
        "smallest_model_parallel_devices": float(smallest[0]) if smallest else None,
        "data": None, "tensor": None, "pipeline": None, "context": None, "expert": None, "shard_group": None,
        "state_gib_per_device": None, **{f"{axis}_sent_gb_per_step": None for axis in reversed(AXES)},
    }  # fmt: skip
    if facts.best is None or smallest is None:
        return numbers, f"By the state alone {least:,} devices would do, but no layout is left: {_removed(facts)}"
    layout, row = facts.best["layout"], facts.row
    group = layout["tensor"] * layout["pipeline"]
    parts = {"weight_bytes": state.weights, "gradient_bytes": state.all_gradients, "optimizer_bytes": state.optimizer}
    flags = {name: float(row[name][0]) for name in ("shard_optimizer", "shard_gradients", "shard_weights")}
    experts = routed(run)
    held = state_per_device(
        stage_parameters=(total - experts) / layout["pipeline"],
        tensor=layout["tensor"],
        ranks=layout["shard_group"],
        **parts,
        **flags,
    )
    if experts:
        fold = {name: float(row[name][0]) for name in ("expert", "expert_tensor")}
        held = held + expert_state_per_device(
            expert_parameters=experts / layout["pipeline"], expert_data=float(row["expert_shards"][0]), **fold, **parts,
            **flags,
        )  # fmt: skip
    degrees = ("data", "tensor", "pipeline", "context", "expert", "shard_group")
    numbers |= {name: float(layout[name]) for name in degrees}
    numbers["state_gib_per_device"] = float(held) / GIB
    numbers |= {f"{axis}_sent_gb_per_step": sent / 1e9 for axis, sent in facts.sent_bytes().items()}
    time = facts.best["step"]["time_s"]
    said = [f"By the state alone at least {least:,} device{'s are' if least > 1 else ' is'} needed."]
    if group == 1:
        how = "whole on every device" if layout["sharding"] == "none" else "spread over the replicas"
        said.append(f"No tensor and no pipeline parallelism: the model fits with its state {how}.")
    elif smallest[0] == group:
        said.append(
            f"The smallest tensor x pipeline group with which anything fits is {group}; it is the one recommended."
        )
    else:
        said.append(
            f"The smallest tensor x pipeline group with which anything fits is {smallest[0]}, at "
            f"{smallest[1]:.4g} s a step; "
            f"the recommended {group} take {time:.4g} s."
            if smallest[1] > time
            else f"The smallest tensor x pipeline group with which anything fits is {smallest[0]}; the "
            f"recommended is {group}."
        )
    why = facts.best["why"]
    said += [
        f"{axis.capitalize()} {layout[axis]}: {_clause(why[axis])}."
        for axis in ("tensor", "pipeline", "context", "expert") if axis in why
    ]  # fmt: skip
    if "sharding" in why:
        said.append(f"{ZERO[layout['sharding']]} over {layout['shard_group']:,} ranks: {_clause(why['sharding'])}.")
    if "recompute" in why:
        said.append(f"Recomputation ({layout['recompute']}): {_clause(why['recompute'])}.")
    said.append(_zero3(facts, time))
    return numbers, " ".join(part for part in said if part)


def _clause(why: str) -> str:
    kind, _, rest = why.partition(": ")
    return {"fit": f"for fit, {rest}", "speed": f"for speed, {rest}", "legality": f"by the rules, {rest}"}.get(
        kind, f"no gain of its own, {rest}"
    )


def _zero3(facts: Facts, time: float) -> str:
    """Why weights are not gathered: what the best layout that gathers them takes."""
    gathered = facts.found.best["sharding"].get(3)
    if gathered is None or facts.best is None or facts.best["layout"]["sharding"] == "zero3":
        return ""
    if math.isinf(gathered.time_s):
        return "With ZeRO-3 nothing fits."
    same = abs(gathered.time_s - time) < 0.005 * time
    equal = f"less, but within the {percent(TIE)} that count as equal"
    than = "no gain" if same else more(gathered.time_s, time) if gathered.time_s > time else equal
    return (
        f"ZeRO-3 would gather weights for every micro-batch; its best layout takes {gathered.time_s:.4g} "
        f"s a step: {than}."
    )


def place(facts: Facts) -> Spoken:
    """Step 4: which axis on which links, the rate each group sees and the bytes it sends."""
    run = facts.run
    fabric = run.cluster.fabric
    numbers: dict[str, float | bool | None] = {"node_size_devices": float(fabric.node_size)}
    for axis in AXES:
        numbers |= {f"{axis}_link_gb_per_s": None, f"{axis}_crosses_nodes": None}
    numbers |= {"bytes_inside_node_share": None, "tensor_gather_ms": None}
    if facts.best is None:
        return numbers, "There is no layout to place."
    layout, sent, found = facts.best["layout"], facts.sent_bytes(), facts.links()
    order = [*facts.found.order]
    order.insert(order.index("data"), "expert")  # what is left of expert ranks after the axes inside data are replicas
    placed = [axis for axis in order if layout[axis] > 1]
    used = [axis for axis in order if sent[axis] > 0]  # context ranks reduce gradients where there is one replica, too
    for axis in used:
        numbers[f"{axis}_link_gb_per_s"] = float(facts.link(axis).bytes_per_s[0]) / 1e9
        numbers[f"{axis}_crosses_nodes"] = bool(found[axis].crosses[0])
    whole = sum(sent.values())
    inside = sum(sent[axis] for axis in used if not facts.crosses(axis))
    numbers["bytes_inside_node_share"] = inside / whole if whole else None
    if layout["tensor"] > 1:
        payload = 2.0 * run.model.hidden * layout["micro_batch"] * run.training.sequence_length
        link = found["tensor"]
        unit = ring_all_gather_time(
            ranks=layout["tensor"],
            payload_bytes=payload,
            latency=float(link.latency_s[0]),
            bandwidth=float(link.bytes_per_s[0]),
        )
        numbers["tensor_gather_ms"] = float(unit) * 1e3
    if not used:
        return numbers, "One device: nothing is sent."
    said = [f"Innermost first: {listed(placed)}."] if placed else []
    for axis in used:
        where = "across nodes" if facts.crosses(axis) else "inside a node"
        rate = float(facts.link(axis).bytes_per_s[0]) / 1e9
        said.append(
            f"{axis.capitalize()} ({facts.ranks(axis):,} ranks{_counting(layout, axis)}) runs {where} at "
            f"{number(rate)} GB/s a device and sends {number(sent[axis] / 1e9)} GB a step{_habit(facts, axis)}."
        )
    said.append(f"In short: {listed([_short(facts, axis) for axis in used])}.")
    if "tensor" in used and facts.crosses("tensor"):
        said.append(
            f"The tensor group is wider than the {fabric.node_size} devices of a node: its collectives pay for that."
        )
    return numbers, " ".join(said)


def _counting(layout: dict[str, Any], axis: str) -> str:
    """Which other ranks are among those that exchange the bytes of an axis."""
    other = {"data": "context", "expert": "expert_tensor"}.get(axis)
    return f", the {other.replace('_', '-')} ranks among them" if other and layout[other] > 1 else ""


def _short(facts: Facts, axis: str) -> str:
    return f"{axis} {'across nodes' if facts.crosses(axis) else 'inside the node'}"


def _habit(facts: Facts, axis: str) -> str:
    """What is sent and whether this program lets compute cover it."""
    software = facts.run.software
    if axis == "tensor":
        return ", in collectives " + (
            "cut into pieces that run beside the matmuls" if software.overlap_tensor else "that every layer waits for"
        )
    if axis == "context":
        return ", keys and values " + (
            "in a ring beside the attention" if software.overlap_context else "that attention waits for"
        )
    if axis == "expert":
        return ", tokens to their experts and back, " + (
            "beside other compute" if software.overlap_expert else "which every such layer waits for"
        )
    if axis == "pipeline":
        return ", from stage to stage only"
    covered = {"backward": software.overlap_gradients, "forward": software.overlap_parameters}
    sharded = facts.best is not None and facts.best["layout"]["sharding"] != "none"
    what = "gradients and weights" if sharded else "gradients"
    passes = [name for name, overlaps in covered.items() if overlaps and (sharded or name == "backward")]
    return f", {what} that " + (f"{' and '.join(passes)} can cover" if passes else "this program waits for")
