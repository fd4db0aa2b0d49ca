"""What a strong, an acceptable and a weak answer would have said, step by step, with the numbers of this question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from course.answer.words import ZERO, large, listed, number
from course.interview.prompts import Prompt
from course.interview.reference import reference, verdict
from course.interview.sheet import Answers
from course.interview.study import AXES, GIB, Study, study
from course.problem import Layout

LONG = 1.3
"""FLOPs with attention over 6PS from which 6PS alone is no answer."""

__all__ = ["Said", "layout_words", "model_answers"]


@dataclass(frozen=True)
class Said:
    """Three answers to one step."""

    strong: str
    acceptable: str
    weak: str


def model_answers(prompt: Prompt) -> dict[str, Said]:
    """Step -> three answers; steps that are not reached are left out.

    >>> from course.interview.prompts import generate
    >>> "parameters" in model_answers(generate(7))["estimate"].strong
    True
    """
    known, sheet = study(prompt), reference(prompt, whole=True)
    said = {"estimate": _estimate(known, sheet), "constrain": _constrain(known, sheet)}
    if not known.feasible:
        need = known.parameters["total"] * known.run.training.state.total / GIB
        said["shard"] = Said(
            f"It cannot be done here: {need:,.0f} GiB of state on devices that have "
            f"{known.run.cluster.devices * known.capacity / GIB:,.0f} GiB together. It needs "
            f"{sheet['constrain']['least_devices']:.0f} devices for the state alone, or fewer bytes a parameter: "
            "moments in 8 bits or in bf16, state kept in the host's memory and sent over for each update, or adapters "
            "(LoRA) on frozen weights, which is another training.",
            "It will not fit, I think, even with ZeRO-3; I would ask for more devices.",
            f"ZeRO-3 over all {known.run.cluster.devices} with full recomputation, so that it just fits.",
        )
        return said
    makers: dict[str, Callable[[Study, Answers, Layout], Said]] = {
        "shard": _shard, "place": _place, "batch": _batch, "mfu": _mfu, "overlap": _overlap, "sweep": _sweep,
    }  # fmt: skip
    return said | {name: make(known, sheet, known.best) for name, make in makers.items()}


def layout_words(layout: Layout) -> str:
    """A layout as one says it.

    >>> layout_words(Layout(data=4, tensor=8, sharding="zero1"))
    'tensor 8, 4 replicas, ZeRO-1'
    """
    parts = [f"{name} {getattr(layout, name)}" for name in ("tensor", "context", "pipeline", "expert")
             if getattr(layout, name) > 1]  # fmt: skip
    if layout.interleave > 1:
        parts.append(f"{layout.interleave} chunks a stage")
    parts += [f"{layout.data} replica{'s' * (layout.data > 1)}", ZERO[layout.sharding]]
    return ", ".join(parts + (["every layer recomputed"] if layout.recompute == "full" else []))


def _estimate(known: Study, sheet: Answers) -> Said:
    one, run = sheet["estimate"], known.run
    asks = known.prompt.withheld
    first = f"Before I compute: what about the {listed(list(asks))}? " if asks else ""
    if one["doubt"] not in ("nothing", "deadline"):
        first += f"What I was told about the {one['doubt']} cannot be right. "
    elif one["doubt"] == "deadline":
        first += (f"At full peak, failures counted, this takes {known.least_days:.3g} days at least, so the deadline "
                  "cannot hold. ")  # fmt: skip
    mixture = f" of which a token uses {large(known.parameters['active'])}" if run.model.experts else ""
    share = known.flops["full_attention"] / known.flops["six_ps"]
    long = f", and attention makes it {share:.2g} times that at this length" if share > LONG else ""
    return Said(
        f"{first}{large(one['parameters'])} parameters{mixture}; by the widths {large(one['check_parameters'])}, so "
        f"the count holds. {number(one['flops'])} FLOP, attention included, against 6PS of "
        f"{number(known.flops['six_ps'])}. {one['state_bytes']:.0f} bytes a parameter make {one['state']:,.0f} GB of "
        f"state, one sequence leaves {one['activations']:,.0f} GiB. Dense peak: {one['peak']:,.0f} TFLOP/s, half of "
        f"the data sheet.",
        f"6PS is {number(known.flops['six_ps'])} FLOP{long}; 16 to 20 bytes a parameter, some {one['state']:,.0f} GB.",
        f"{run.model.name} has {large(one['parameters'])} parameters, so {2e-9 * one['parameters']:,.0f} GB in bf16, "
        f"and {2 * one['peak']:,.0f} TFLOP/s a device.",
    )


def _constrain(known: Study, sheet: Answers) -> Said:
    one, need = sheet["constrain"], {name: size / GIB for name, size in known.limits.items()}
    fits = [name for name in ("gradients", "weights", "one layer") if need.get(name, 1e9) <= one["capacity"]]
    words = {"gradients": "weights and gradients fit", "weights": "the weights fit", "one layer": "one layer fits"}
    left = listed([words[name] for name in fits]) if fits else "not even one layer fits"
    if one["first_limit"] == "optimizer state":
        strong = (f"A device has {one['capacity']:.3g} GiB. The state, {need['optimizer state']:,.0f} GiB, does not "
                  f"fit; {left}. So at least {one['least_devices']:.0f} devices share it.")  # fmt: skip
    else:
        strong = (f"A device has {one['capacity']:.3g} GiB and the state takes {need['optimizer state']:,.0f} GiB: it "
                  f"fits. A sequence adds {need['activations']:,.0f} GiB; the first limit: {one['first_limit']}."
                  )  # fmt: skip
    return Said(
        strong,
        f"The model does not fit on one device; {one['least_devices']:.0f} or so hold its state.",
        "Such a model needs three-dimensional parallelism, so let me begin with tensor 8.",
    )


def _shard(known: Study, sheet: Answers, best: Layout) -> Said:  # noqa: ARG001
    found = known.predicted(best)
    memory, time = found["memory"], found["step"]["time_s"]
    spare = "" if known.crowded(best) else ", with room for buffers"
    trade = ""
    if time > 1.05 * known.least_time_s:
        trade = (f" The fastest takes {1 - known.least_time_s / time:.0%} less and leans harder on the network or has "
                 "more parts: I would measure both.")  # fmt: skip
    return Said(
        f"{layout_words(best)}. Something fits from tensor x pipeline = {known.smallest[0]}; this holds "
        f"{memory['peak_gib']:.0f} of {memory['capacity_gib']:.0f} GiB{spare}, and at half the network a step of "
        f"{time:.3g} s would take {known.at_half_network(best):.3g}.{trade}",
        "A layout that is legal and fits, some 20 % behind the best, with the reason for each degree.",
        "ZeRO-3 and tensor 8 and pipeline 8, to be safe.",
    )


def _place(known: Study, sheet: Answers, best: Layout) -> Said:  # noqa: ARG001
    one = sheet["place"]
    order = [axis for axis in one["order"] if getattr(best, axis) > 1]
    verb = "leave" if len(one["crosses"]) > 1 else "leaves"
    leave = listed(list(one["crosses"])) if one["crosses"] else "nothing"
    return Said(
        f"Innermost first: {', '.join(order) or 'nothing split'}. {leave[:1].upper()}{leave[1:]} {verb} the node, at "
        f"{one['between_rate']:.3g} GB/s a device against {one['inside_rate']:.0f} inside. Most bytes: "
        f"{one['busiest']}, {number(one['busiest_bytes'])} GB a step.",
        "Tensor inside the node, the rest across; the network is several times slower.",
        f"The links carry {2 * one['inside_rate']:,.0f} GB/s, so placement does not matter.",
    )


def _batch(known: Study, sheet: Answers, best: Layout) -> Said:
    one = sheet["batch"]
    stages = f"The bubble is {one['bubble']:.2g} %." if best.pipeline > 1 else "No stages, no bubble."
    sequences = known.run.training.global_batch_sequences
    return Said(
        f"{one['data']} replicas x {one['micro_batch']} x {one['accumulation']} = {sequences:,} sequences, "
        f"{one['tokens_per_step']:,.0f} tokens a step, as asked. {stages}",
        f"{one['tokens_per_step'] / 1e6:.1f} million tokens a step, kept by accumulating.",
        f"{known.run.cluster.devices:,} devices take a sequence each; whatever batch that makes.",
    )


def _mfu(known: Study, sheet: Answers, best: Layout) -> Said:
    one, found = sheet["mfu"], known.predicted(best)
    share = found["mfu"]["full_attention"]
    above = share > 1.005 * one["mfu"] / 100
    most = (f" The model says {share:.0%}, and the most that was published is {known.highest_mfu:.0%}; "
            f"{one['mfu']:.0f} % is usual, so I plan with that." if above else "")  # fmt: skip
    peak = one["days"] * one["mfu"] / 100
    close = abs(one["check_days"] / one["days"] - 1) < 0.1
    second = ", so they agree" if close else ", the best case: a run decides"
    at_most = known.most(best)
    other = verdict(known, at_most[1], at_most[2])
    flips = "" if other == one["verdict"] else f" At {100 * at_most[0]:.0f} % the answer would be another."
    words = {"met": "That meets what was asked.", "missed": "That misses it: more devices, fewer tokens or more time.",
             "impossible": f"Nothing could: at full peak it takes {known.least_days:.3g} days, failures counted.",
             }  # fmt: skip
    return Said(
        f"{one['mfu']:.0f} %, counting every matmul once.{most} {one['days']:.3g} days with a goodput of "
        f"{known.run.cluster.goodput:g}, {one['hours']:,.0f} accelerator-hours; steps times "
        f"{found['step']['time_s']:.3g} s give {one['check_days']:.3g}{second}. {words[one['verdict']]}{flips}",
        f"MFU around 40 %, so {peak / 0.4:.2g} days or so, failures counted; I would check it against a run.",
        f"{peak * known.run.cluster.goodput / 2:.2g} days: the peak is twice that, and nothing fails.",
    )


def _overlap(known: Study, sheet: Answers, best: Layout) -> Said:
    step = known.predicted(best)["step"]
    parts = []
    for axis in AXES:
        total, exposed = step["communication"][axis]["total_s"], step["communication"][axis]["exposed_s"]
        if total > 0.001 * step["time_s"]:
            parts.append(f"{axis} {exposed:.2g} of {total:.2g} s")
    return Said(
        f"Exposed: {listed(parts) or 'nothing to speak of'}; {sheet['overlap']['exposed']:.2g} % of a step of "
        f"{step['time_s']:.3g} s. Gradients go while backward computes; what the next matmul needs cannot.",
        "Gradients hide behind backward; tensor traffic mostly does not.",
        "NCCL is asynchronous, so it all overlaps.",
    )


def _sweep(known: Study, sheet: Answers, best: Layout) -> Said:  # noqa: ARG001
    grid = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in sheet["sweep"]["grid"].items())
    return Said(
        f"{grid}: same work in each, and from each run memory, tokens/s, MFU, spread, communication and loss. I stop "
        "adding devices when a doubling costs more hours than the time is worth.",
        "A few layouts around mine for a hundred steps each; tokens/s decides.",
        "Launch it, and look at the monitor.",
    )
