"""The constants of a prediction, each physical, with where it comes from. None is fitted to a run it predicts.

They were fixed before any run was compared: matmul and links from published benchmarks of single operations (the
catalog's measured figures), the rest from the papers and programs named below.
"""

from __future__ import annotations

from dataclasses import dataclass

from course.problem import Run

USUAL_MATMUL_SHARE = 0.8
"""Share of dense peak a large matmul reaches where nobody published one: that of the H100 and A100 rows (.80, .87)."""

USUAL_LINK_SHARE = 0.8
"""Share of the one-way wire rate a large collective reaches: .80 for NVLink 4 (nccl-tests on 8 x H200)."""

FLASH_SHARE_OF_MATMUL = 0.45
"""Flash attention's rate (causal FLOPs, forward and backward) over that of a large matmul: about 335 of 795 TFLOP/s on
H100 with FlashAttention-2 (Dao 2023, from memory of the paper). Doubt: the third version reaches more."""

FLASH_BACKWARD = 2.5
"""Backward of flash attention over its forward: five matmuls for two, the scores are computed again."""

SCORE_BYTES_FORWARD = 11
"""Memory traffic of one attention score without a fused kernel: write and read scores, mask, softmax, dropout."""

LOSS_BYTES = {"unfused": (38, 18), "fused": (6, 4)}
"""Memory traffic of one logit (forward, backward): fp32 casts, max, exponent, sum, division; fused reads it twice."""

SAVED_LOGIT_BYTES = 4
"""Bytes a logit leaves behind for backward, where the backward of its micro-batch does not follow at once: the fp32
softmax."""

HOST_FORWARD_S, HOST_BACKWARD_S = 1.0e-3, 1.5e-3
"""Time the host needs to launch one layer from Python, forward and backward: a floor. Zero where a step is compiled."""

MARGIN_SHARE, MARGIN_BYTES = 0.01, 1.0e9
"""Memory no tensor gets: what the framework sees less than the driver (1 %), and the process's own context (1 GB)."""


@dataclass(frozen=True)
class Constants:
    """What a prediction takes from outside: shares of peak and of wire, rates in byte/s, times in s."""

    matmul_share: float
    attention_share: float
    scale_up_bytes_per_s: float
    scale_out_bytes_per_s: float
    host_forward_s: float
    host_backward_s: float
    sources: tuple[str, ...]


def constants_for(run: Run) -> Constants:
    """The constants of a run's accelerator, links and program.

    >>> from course.examples import path
    >>> from course.problem import load
    >>> round(constants_for(load(path("llama-3-8b-8-h100"))).matmul_share, 3)
    0.803
    """
    accelerator, fabric = run.cluster.accelerator, run.cluster.fabric
    share = accelerator.measured_matmul_share
    up, out = fabric.scale_up_measured_bytes_per_s, fabric.scale_out_measured_bytes_per_s
    compiled = run.software.recipe == "maxtext"
    sources = (
        f"matmuls reach {share or USUAL_MATMUL_SHARE:.0%} of dense peak "
        + ("(measured on this accelerator)" if share else "(no published figure: the usual share)"),
        f"links inside a node carry {(up or USUAL_LINK_SHARE * fabric.scale_up_bytes_per_s) / 1e9:.0f} GB/s one way "
        + ("(measured)" if up else f"({USUAL_LINK_SHARE:.0%} of the wire)"),
        f"the network carries {(out or USUAL_LINK_SHARE * fabric.scale_out_bytes_per_s) / 1e9:.0f} GB/s one way "
        "a device " + ("(measured)" if out else f"({USUAL_LINK_SHARE:.0%} of the wire)"),
    )
    return Constants(
        matmul_share=share or USUAL_MATMUL_SHARE,
        attention_share=(share or USUAL_MATMUL_SHARE) * FLASH_SHARE_OF_MATMUL,
        scale_up_bytes_per_s=up or USUAL_LINK_SHARE * fabric.scale_up_bytes_per_s,
        scale_out_bytes_per_s=out or USUAL_LINK_SHARE * fabric.scale_out_bytes_per_s,
        host_forward_s=0.0 if compiled else HOST_FORWARD_S,
        host_backward_s=0.0 if compiled else HOST_BACKWARD_S,
        sources=sources,
    )
