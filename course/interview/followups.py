"""What an interviewer asks next: what if the links were half as fast; and questions that probe the weakest step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from course.errors import UserError
from course.interview.feedback import layout_words
from course.interview.judge import Result
from course.interview.prompts import searched
from course.interview.study import Study
from course.predict import predict
from course.problem import Goal, Layout, Run

__all__ = ["LESSONS", "PROBES", "RED_FLAGS", "Asked", "probes", "what_ifs"]


@dataclass(frozen=True)
class Asked:
    """A follow-up question and what a good answer holds."""

    question: str
    answer: str


PROBES: dict[str, tuple[Asked, ...]] = {
    "estimate": (
        Asked("Where do the six FLOPs a parameter come from?",
              "2 forward, for a multiplication and an addition; backward makes two such products, by inputs and by "
              "weights."),
        Asked("The team may change the batch. How large may it be?",
              "Up to the critical batch, where twice the tokens an update no longer halve the updates: measure the "
              "gradient noise, or sweep the batch; above it, device time buys little."),
        Asked("Name the bytes of a parameter one by one.",
              "2 weight, 2 or 4 gradient, 4 fp32 master, 4 and 4 moments; 18 with fp32 gradients."),
        Asked("Your two counts differ by a third. Which do you believe?",
              "The one from shapes; then I look for what the other left out: tables, gating, grouped heads, experts."),
    ),
    "constrain": (
        Asked("Which part would you move off the device first, and what does that cost?",
              "The optimizer state: reduce-scatter and all-gather move what the all-reduce moved already."),
        Asked("Does recomputation help here?", "Against activations, at a forward pass; the state it leaves as it is."),
    ),
    "shard": (
        Asked("Take one rank away from an axis. What breaks?", "Either it does not fit any more, or the axis was there "
              "for speed: say which, with the number."),
        Asked("What would you need to say yes?", "One of three numbers moved: more devices or memory, fewer bytes a "
              "parameter (8-bit or bf16 moments, state in the host's memory), or another training (LoRA, a smaller "
              "model). Say a no with its number and with the nearest yes."),
        Asked("Why not ZeRO-3 everywhere?", "It gathers weights for each micro-batch, and once more for "
              "backward; where the state fits otherwise that buys nothing."),
    ),
    "place": (
        Asked("When may tensor parallelism cross nodes?", "Where the fast links do, or where the matmuls outlast the "
              "slower exchange: compare bytes over bandwidth with FLOPs over rate."),
        Asked("400 Gb/s: how many GB a second, for whom?", "50, one way, for each device that has a card to itself."),
    ),
    "batch": (
        Asked("You get twice the devices. What changes in the batch?", "Nothing in the global batch: twice the "
              "replicas accumulate half as much, and the bubble grows."),
        Asked("Why not a larger micro-batch?", "It fills memory and leaves fewer micro-batches for the pipeline; "
              "kernels gain until they are large enough."),
    ),
    "mfu": (
        Asked("Is that MFU or HFU?", "MFU counts what the model needs once; recomputation is in HFU alone."),
        Asked("Step 1 measures 30 % under your claim. What do you do?", "Split the step in a trace: kernels, exposed "
              "communication, bubble, waiting for data; then mend the largest, and tell whoever waits the new days."),
        Asked("How often do you write a checkpoint?", "About every square root of twice the time to write one times "
              "the time between failures; what is lost is half an interval and the restart, and that is the goodput."),
        Asked("What does it cost?", "Accelerator-hours times a price an hour, failures in; then whether a month sooner "
              "is worth what the lost efficiency costs."),
        Asked("What would make you doubt the days?", "A claim above published runs; then goodput; then a count of "
              "FLOPs in another convention."),
    ),
    "overlap": (
        Asked("What hides the gradients when the local batch is one sequence?", "One backward pass; if reducing takes "
              "longer, the rest is exposed."),
        Asked("How would you see exposed time?", "In a trace: communication kernels while no compute kernel runs."),
    ),
    "sweep": (
        Asked("Two runs differ by 2 %. Which layout do you take?", "Neither by that: compare with the spread of the "
              "step time, then take the simpler one."),
        Asked("What would tell you that a layout changed the training?", "Loss and gradient norm of the first steps "
              "against the first layout, same data and seed."),
    ),
}  # fmt: skip
"""Step -> follow-ups that show whether it was understood."""

RED_FLAGS: dict[str, tuple[str, ...]] = {
    "estimate": ("2 bytes a parameter as the whole state", "the peak with sparsity", "never asks, never doubts"),
    "constrain": ("names a layout before saying what does not fit", "counts all of the memory as free"),
    "shard": ("tensor 8 by habit", "ZeRO-3 because it is safe", "no number for what is held"),
    "place": ("both directions of a link as one", "tensor across nodes", "gigabits for gigabytes"),
    "batch": ("the batch grows with the devices", "each device a replica"),
    "mfu": ("peak for rate", "HFU for MFU", "no goodput", "no second route"),
    "overlap": ("all of it overlaps", "all of it adds up", "the bubble is covered"),
    "sweep": ("measures nothing", "measures everything", "different work in each run"),
}
"""Step -> what should make an interviewer write something down."""


LESSONS = {
    "estimate": "01a, 01b", "constrain": "02a to 02d", "shard": "03a to 03e", "place": "04a to 04d",
    "batch": "05a to 05c", "mfu": "06a to 06c", "overlap": "07a to 07d", "sweep": "08a to 08c",
}  # fmt: skip
"""Step -> the lessons that teach it."""

ABOUT = {
    "Where do the six FLOPs a parameter come from?": "flops",
    "Name the bytes of a parameter one by one.": "state_bytes",
    "Your two counts differ by a third. Which do you believe?": "check_parameters",
    "Does recomputation help here?": "first_limit", "Take one rank away from an axis. What breaks?": "near",
    "When may tensor parallelism cross nodes?": "order", "400 Gb/s: how many GB a second, for whom?": "between_rate",
    "You get twice the devices. What changes in the batch?": "accumulation", "Is that MFU or HFU?": "mfu",
    "What would make you doubt the days?": "days", "Why not a larger micro-batch?": "micro_batch",
}  # fmt: skip
"""Question -> the blank it is about: who has filled that in well is not asked again."""


def probes(result: Result) -> list[Asked]:
    """Follow-ups for the weakest step of an interview: first those about its mistakes, none about what was right."""
    step = result.weakest
    right = {mark.name for mark in step.marks if mark.credit == 1}
    wrong = {mark.name for mark in step.marks if mark.credit < 1}
    left = [one for one in PROBES[step.name] if ABOUT.get(one.question) not in right]
    return sorted(left, key=lambda one: ABOUT.get(one.question) not in wrong)[:3] or list(PROBES[step.name][-1:])


def what_ifs(known: Study, layout: Layout) -> list[Asked]:
    """What-ifs with their answers by the library: half the network, half the devices, half the memory.

    Args:
        known: the question.
        layout: the candidate's layout, or the best.
    """
    if not known.feasible:
        return []
    run, cluster = known.run, known.run.cluster
    found = []
    if cluster.devices > cluster.fabric.node_size:
        fabric = dataclasses.replace(
            cluster.fabric, scale_out_bytes_per_s=cluster.fabric.scale_out_bytes_per_s / 2,
            scale_out_measured_bytes_per_s=None, reduce_bus_by_nodes=(), gather_bus_by_nodes=(),
        )  # fmt: skip
        changed = dataclasses.replace(run, cluster=dataclasses.replace(cluster, fabric=fabric))
        found.append(
            Asked("Halve the network between nodes. What happens to your step?", _stays(known, changed, layout))
        )
    if cluster.devices % 2 == 0:
        changed = dataclasses.replace(run, cluster=dataclasses.replace(cluster, devices=cluster.devices // 2))
        found.append(Asked("Half the devices, the same batch. Twice the time? The same hours?", _fewer(known, changed)))
    chip = dataclasses.replace(cluster.accelerator, memory_bytes=cluster.accelerator.memory_bytes / 2)
    changed = dataclasses.replace(run, cluster=dataclasses.replace(cluster, accelerator=chip))
    found.append(Asked("Half the memory. What goes first?", _tighter(changed, layout)))
    return found


def _stays(known: Study, changed: Run, layout: Layout) -> str:
    before = known.predicted(layout)["step"]["time_s"]
    after = predict(dataclasses.replace(changed, layout=layout))["step"]["time_s"]
    if not before or not after:
        return "First a layout that is legal."
    said = (
        f"From {before:.3g} to {after:.3g} s ({after / before - 1:+.0%}): only what was exposed, or becomes so, shows."
    )
    best = _best(changed)
    if best and best[1] != layout and best[0] < 0.97 * after:
        said += f" {layout_words(best[1])} would then take {best[0]:.3g} s."
    return said


def _fewer(known: Study, changed: Run) -> str:
    best = _best(changed)
    if best is None:
        return "Nothing fits on half of them: here more devices are no luxury."
    ratio = best[0] / known.least_time_s
    return (
        f"The best step takes {ratio:.2f} times as long, so {ratio / 2:.2f} times the accelerator-hours: "
        + ("cheaper and slower." if ratio < 1.99 else "no cheaper.")
        + f" ({layout_words(best[1])}.)"
    )


def _tighter(changed: Run, layout: Layout) -> str:
    memory = predict(dataclasses.replace(changed, layout=layout))["memory"]
    if memory["fits"]:
        return f"Yours still fits: {memory['peak_gib']:.0f} of {memory['capacity_gib']:.0f} GiB."
    best = _best(changed)
    if best is None:
        return "Then nothing fits on these devices."
    return f"Yours no longer fits; {layout_words(best[1])} does, at {best[0]:.3g} s a step."


def _best(run: Run) -> tuple[float, Layout] | None:
    try:
        found = searched(dataclasses.replace(run, goal=Goal()))
    except UserError:
        return None
    return (float(found.values["time_s"][0]), found.layout(0)) if found.fitting else None
