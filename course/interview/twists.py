"""The one twist of a question: what is unusual about it, in the run behind it or in what the interviewer says."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from course import catalog
from course.interview.sizes import CLUSTERS, EXPERTS, LONG, ORDINARY, TOO_FEW
from course.problem import Accelerator, Fabric, Model, Run
from course.sweep.search import Search

__all__ = ["ASKABLE", "CLAIMS", "TWISTS", "Draft", "claim", "draft", "withheld"]

TWISTS = ("slow fabric", "long context", "experts", "half the memory", "wrong premise", "under-specified")

ASKABLE = {
    "precision": "in which precision, and with which optimizer", "sequence": "how long a sequence is",
    "deadline": "by when, and for how much", "batch": "how many tokens an update takes",
    "network": "which links join the devices", "goodput": "how much of the time makes progress",
    "shape": "the widths of the model", "device": "what the data sheet says of a device",
}  # fmt: skip
"""Topics a candidate may ask about; the first three are those an under-specified question keeps back."""

CLAIMS = {
    "nothing": "nothing: it is all as said",
    "peak": "the peak: it is not the dense rate of this precision",
    "link": "the links: it is not what one device sends one way",
    "mfu": "the utilisation: no published run on such devices reaches it in useful FLOPs",
    "batch": "the batch: another one is another training",
    "split": "the split: so many ranks are not needed to fit",
    "scaling": "the scaling: more devices at the same batch lose efficiency, so the price does not stay",
    "deadline": "the deadline: the FLOPs alone take longer at peak",
}
"""What a candidate may doubt in what was said."""

SLOW = ((4, 100, "four 100 Gb/s network cards"), (1, 400, "one 400 Gb/s network card"),
        (2, 200, "two 200 Gb/s network cards"))  # fmt: skip
"""Network cards of a node of 8: how many, Gb/s of one, in words."""


@dataclass(frozen=True)
class Draft:
    """The numbers of a question before it is asked."""

    model: str
    shape: Model
    accelerator: Accelerator
    fabric: Fabric
    devices: int
    sequence: int
    batch_millions: float
    billions: float
    goodput: float
    twist_line: str = ""
    too_few: bool = False


def draft(draw: random.Random, level: int, twist: str) -> Draft:
    """Numbers for one question of a level and a twist."""
    too_few = twist == "half the memory" and draw.random() < 0.3
    table = {"long context": LONG, "experts": EXPERTS}.get(twist, TOO_FEW if too_few else ORDINARY)
    size = draw.choice(table[level])
    chips = list(CLUSTERS)
    if level == 3:
        chips = ["h100-sxm", "h200-sxm", "b200-sxm"]
    if too_few:
        chips = ["a100-sxm-80gb", "h100-sxm"]
    chip = draw.choice(chips)
    name = draw.choice(size.models)
    found = Draft(
        name, catalog.model(name), catalog.accelerator(chip), catalog.fabric(CLUSTERS[chip]),
        draw.choice(size.devices), draw.choice(size.sequences), draw.choice(size.batch_millions),
        draw.choice(size.billions), draw.choice((0.8, 0.85, 0.9)), too_few=too_few,
    )  # fmt: skip
    if twist == "slow fabric":
        return _slow(draw, found)
    if twist == "half the memory":
        return _half(found)
    return found


def _slow(draw: random.Random, found: Draft) -> Draft:
    cards, rate, words = draw.choice(SLOW)
    fabric = replace(
        found.fabric, id="slow", name=f"{words} a node of {found.fabric.node_size}",
        scale_out_bytes_per_s=cards * rate / 8 * 1e9 / found.fabric.node_size, scale_out_measured_bytes_per_s=None,
        reduce_bus_by_nodes=(), gather_bus_by_nodes=(),
    )  # fmt: skip
    said = f"Between nodes we have less than usual: {words} for a whole node of {found.fabric.node_size}."
    return replace(found, fabric=fabric, twist_line=said)


def _half(found: Draft) -> Draft:
    chip = found.accelerator
    smaller = replace(chip, memory_bytes=chip.memory_bytes / 2)
    said = "Half of every device's memory belongs to a service that must stay up: plan with the other half."
    return replace(found, accelerator=smaller, twist_line=said)


def withheld(draw: random.Random, level: int) -> tuple[str, ...]:
    """Topics an under-specified question keeps back, more at a higher level."""
    topics = ["precision", "sequence", "deadline"]
    return tuple(sorted(draw.sample(topics, min(3, level)), key=topics.index))


def claim(draw: random.Random, run: Run, found: Search) -> tuple[str, str]:
    """A wrong premise that suits this run: its topic and the sentence; ("", "") where none does."""
    chip, cluster = run.cluster.accelerator, run.cluster
    whole = 2 * chip.peak_flops_per_s * cluster.devices
    doubled = 2 * cluster.fabric.scale_up_bytes_per_s / 1e9
    options = {
        "peak": f"All together that is {whole / 1e18:,.3g} EFLOP/s of dense bf16 to divide by.",
        "link": f"Inside a node a device sends {doubled:,.0f} GB/s one way, so do not worry about tensor traffic.",
        "mfu": f"The team next door reports an MFU of {draw.choice((72, 75, 78))} % on such devices, so plan with it.",
        "batch": "If the replicas grow, let the global batch grow with them; it stays the same training.",
    }
    groups = found.columns["tensor"] * found.columns["pipeline"]
    if found.fitting and groups.min() <= 2 and cluster.devices >= 32:
        options["split"] = "A model of this size needs at least tensor 8 and pipeline 4 to fit, so begin from there."
    options["scaling"] = (
        f"With {2 * cluster.devices:,} of them at the same batch it takes half the time for the same accelerator-hours."
    )
    topic = draw.choice(tuple(options))
    return topic, options[topic]
