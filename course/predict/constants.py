"""The constants of a prediction, each physical; `course/catalog/constants.csv` says of each where it comes from.

They belong to an accelerator and a training program, never to a run. What a benchmark of single operations or of
collectives measured stands in the catalog's own rows and wins over a usual share.
"""

from __future__ import annotations

from dataclasses import dataclass

from course import catalog
from course.problem import Accelerator, Run

FLASH_BACKWARD = 2.5
"""Backward of flash attention over its forward: five matmuls for two, the scores are computed again."""

SCORE_BYTES_FORWARD = 11
"""Memory traffic of one attention score without a fused kernel: write and read scores, mask, softmax, dropout."""

LOSS_BYTES = {"unfused": (38, 18), "fused": (6, 4)}
"""Memory traffic of one logit (forward, backward): fp32 casts, max, exponent, sum, division; fused reads it twice."""

SAVED_LOGIT_BYTES = 4
"""Bytes a logit leaves behind for backward, where the backward of its micro-batch does not follow at once: the fp32
softmax."""

LOGIT_GRADIENT_BYTES = 2
"""Bytes of the gradient of a logit, in 16 bits, which waits where the head's own gradient is made later."""

MARGIN_SHARE, MARGIN_BYTES = 0.01, 1.0e9
"""Memory no tensor gets: what the framework sees less than the driver (1 %), and the process's own context (1 GB)."""


NARROWER = {"fp8": 2, "fp4": 4}
"""How many times its 16-bit peak a device is taken to reach in a narrow precision, where only that peak is known."""


@dataclass(frozen=True)
class Constants:
    """What a prediction takes from outside: shares of peak and of wire, rates in byte/s, times in s.

    `matmul_share` is of the peak of the run's precision; `wide_share` and `attention_share` are of the 16-bit peak, at
    which the output head and attention compute whatever the layers' matrices do. `host_*` are floors of one layer;
    `collective_s` is the least that a waited-for collective takes; `hop_s` and `hop_across_s` are the latency of one
    message in a ring of gradients.
    """

    matmul_share: float
    wide_share: float
    attention_share: float
    memory_share: float
    scale_up_bytes_per_s: float
    scale_out_bytes_per_s: float
    host_forward_s: float
    host_backward_s: float
    host_tensor_s: float
    host_pipeline_s: float
    host_pipeline_rank_s: float
    collective_s: float
    hop_s: float
    hop_across_s: float
    sources: tuple[str, ...]


def constants_for(run: Run) -> Constants:
    """The constants of a run's accelerator, links and program.

    >>> from course.examples import path
    >>> from course.problem import load
    >>> 0.5 < constants_for(load(path("llama-3-8b-8-h100"))).matmul_share < 0.9
    True
    """
    accelerator, fabric = run.cluster.accelerator, run.cluster.fabric
    rows = catalog.constants(run.software.recipe, accelerator.id)
    value = {name: float(row["value"]) for name, row in rows.items()}
    row = rows["matmul_share"]  # measured in training, it wins over a bare kernel's
    own = (row["recipe"], row["accelerators"]) != ("*", "*")
    narrow = value.get(f"matmul_share_{accelerator.precision}")  # of the narrow peak; 16-bit work keeps its own share
    share = value["matmul_share"] if own else accelerator.measured_matmul_share or value["matmul_share"]
    up, out = fabric.scale_up_measured_bytes_per_s, fabric.scale_out_measured_bytes_per_s
    up_rate = value.get("scale_up_bytes_per_s", up or value["link_share"] * fabric.scale_up_bytes_per_s)
    out_rate = out or value["network_share"] * fabric.scale_out_bytes_per_s
    where = "in training" if own else "on this accelerator" if accelerator.measured_matmul_share else ""
    sources = (
        f"matmuls reach {share:.0%} of dense peak "
        + (f"(measured {where})" if where else "(no published figure: the usual share)"),
        f"links inside a node carry {up_rate / 1e9:.0f} GB/s one way "
        + ("(measured)" if up or "scale_up_bytes_per_s" in value else f"({value['link_share']:.0%} of the wire)"),
        "the network carries what a table of collectives by nodes measured"
        if fabric.reduce_bus_by_nodes
        else f"the network carries {out_rate / 1e9:.0f} GB/s one way a device "
        + ("(measured)" if out else f"({value['network_share']:.0%} of the wire)"),
    )
    kept = (
        "memory_share", "host_forward_s", "host_backward_s", "host_tensor_s", "host_pipeline_s",
        "host_pipeline_rank_s", "collective_s",
    )  # fmt: skip
    return Constants(
        matmul_share=narrow or share,
        wide_share=share,
        attention_share=value.get("attention_share", share * value["attention_over_matmul"]),
        scale_up_bytes_per_s=up_rate,
        scale_out_bytes_per_s=out_rate,
        hop_s=value.get("hop_s", fabric.scale_up_latency_s),
        hop_across_s=value.get("hop_across_s", fabric.scale_out_latency_s),
        sources=(*sources, *_taken(accelerator)),
        **{name: value[name] for name in kept},
    )


def wide_peak(accelerator: Accelerator) -> float:
    """Peak in FLOP/s of what computes in 16 bits in every run: attention and the output head.

    >>> from dataclasses import replace
    >>> from course.catalog import accelerator
    >>> chip = accelerator("h100-sxm", "fp8")
    >>> wide_peak(chip) == chip.peak_16_bit_flops_per_s
    True
    >>> chip.peak_flops_per_s / wide_peak(replace(chip, peak_16_bit_flops_per_s=None))
    2.0
    """
    known = accelerator.peak_16_bit_flops_per_s
    return known or accelerator.peak_flops_per_s / NARROWER.get(accelerator.precision, 1)


def _taken(accelerator: Accelerator) -> list[str]:
    """What is taken for granted of an accelerator of which few numbers are known."""
    said = []
    if accelerator.precision in NARROWER and not accelerator.peak_16_bit_flops_per_s:
        part = {2: "half", 4: "a quarter"}[NARROWER[accelerator.precision]]
        said.append(f"attention and the output head compute in 16 bits, at {part} of the {accelerator.precision} peak")
    if accelerator.id == "own":
        said.append(
            "no shares were measured for an accelerator given by numbers: a chip that the catalog knows by name may "
            "have measured ones, and another answer"
        )
    return said
