"""What the interviewer says: the facts of a run in sentences, with a vendor's printed figures as vendors print them.

The candidate converts: a data sheet's peak may count zeros that are skipped, its links count both directions, network
cards are sold in bits.
"""

from __future__ import annotations

from course import catalog
from course.problem import Model, Run

__all__ = ["lines_of", "said_goal"]


def said_goal(run: Run) -> str:
    """The deadline and the budget as the opening names them."""
    goal = run.goal
    days = "" if goal.days is None else f" within {goal.days:g} days"
    if goal.budget_accelerator_hours is not None:
        days += f" and {goal.budget_accelerator_hours:,.0f} accelerator-hours"
    return days


def lines_of(run: Run, level: int, twist: str, claim: str, claimed: str) -> dict[str, str]:
    """Sentence by topic, in the order in which they are said."""
    training, cluster = run.training, run.cluster
    tokens = training.tokens_per_step
    said = {
        "shape": _shape(run.model),
        "sequence": f"Sequences are {training.sequence_length:,} tokens long.",
        "batch": f"An update takes {tokens:,} tokens ({tokens / 2**20:g} x 2^20), and that is to stay.",
        "precision": (
            "Matmuls run in bf16; Adam, with fp32 master weights and moments; gradients are accumulated in fp32."
        ),
        "device": _device(run, level),
        "network": _network(run, bool(twist) and "Between nodes" in twist),
    }
    if twist:
        said["twist"] = twist
    said["goodput"] = (
        f"Failures, checkpoints and restarts take about {1 - cluster.goodput:.0%} of the wall time on this cluster."
    )
    goal = said_goal(run).removeprefix(" ")
    said["deadline"] = f"It must be done {goal}." if goal else "There is no deadline."
    if claim:
        said["claim"] = claimed
    return said


def _shape(model: Model) -> str:
    said = (
        f"{model.name}: {model.layers} layers, width {model.hidden:,}, {model.heads} heads of {model.head_size} with "
        f"{model.kv_heads} key/value heads, "
    )
    if model.experts:
        said += (
            f"{model.experts} experts of width {model.expert_ffn:,} of which a token passes {model.experts_per_token}"
            + (f" and {model.shared_experts} shared" if model.shared_experts else "")
            + (f" ({model.dense_layers} layers have none but one MLP of {model.ffn:,})" if model.dense_layers else "")
            + ", "
        )
    else:
        said += f"a {'gated ' if model.gated_mlp else 'plain '}MLP of {model.ffn:,}, "
    tied = "tied" if model.tied_embeddings else "untied"
    return said + f"a vocabulary of {model.vocabulary:,}, {tied} tables."


def _device(run: Run, level: int) -> str:
    chip = run.cluster.accelerator
    row = catalog.facts("accelerators", chip.id)[0]
    sparse, both = (" with sparsity", " both ways together") if level == 1 else ("", "")  # the rest know data sheets
    return (
        f"Its data sheet, as the vendor prints it: {row['memory_printed'].split(' (')[0]} of memory, up to "
        f"{2 * chip.peak_flops_per_s / 1e12:,.0f} TFLOP/s in bf16{sparse}, links of "
        f"{2 * run.cluster.fabric.scale_up_bytes_per_s / 1e9:,.0f} GB/s{both}, "
        f"{run.cluster.fabric.node_size} devices a node."
    )


def _network(run: Run, slow: bool) -> str:
    fabric = run.cluster.fabric
    if slow:
        return "The network between nodes is InfiniBand."
    return f"Each device has a network card of {fabric.scale_out_bytes_per_s * 8 / 1e9:,.0f} Gb/s."
