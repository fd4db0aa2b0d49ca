"""Step 4, rules: where "tensor inside the node, pipeline across" fails: a pipeline inside, a rack of 72, slow links."""

from __future__ import annotations

from functools import cache

from course import catalog, place
from course.problem import Fabric, Run
from course.questions.draws import picks
from course.questions.kinds import Given, Judgement, LayoutQuestion, Mistake, Question
from course.questions.runs import run_on

__all__ = ["QUESTIONS"]

_pipeline_inside = Judgement(
    id="place.25",
    title="A pipeline inside the node",
    prompt=(
        "On one node of 8 A100 somebody trains a model of 10 billion parameters with 8 tensor ranks, then with 8 "
        "stages, many micro-batches a step. The pipeline is over 30 % faster, though tensor parallelism is what nodes "
        "are recommended for. Is that possible, and why?"
    ),
    choices={"a": "yes, with many micro-batches", "b": "no, something was measured wrongly"},
    reasons={
        "1": "a stage sends less than a tensor rank, and whoever sends less is faster",
        "2": "with many micro-batches stages seldom wait, and what they send is little beside eight collectives a "
        "layer",
        "3": "the links inside the node are the fastest there are, so what uses them most must be fastest",
        "4": "a pipeline needs no communication",
    },
    answer=lambda _: ("a", "2"),
    mistakes=(
        Mistake("rule for another case", lambda _: (None, "3"),
                "Fast links make collectives cheaper, not free. Compute their share of the matmuls."),
        Mistake("rule for another case", lambda _: (None, "4"), "It sends activations and gradients, though few."),
        Mistake("right for another reason", lambda _: (None, "1"),
                "Less traffic is half of it: stages also wait for each other, and may lose more than they save. When "
                "do they not?"),
    ),
    hints=(
        "Work out the share of tensor parallelism: eight collectives a layer, 300 GB/s, h about 4,096.",
        "Against it stands the idle time of a pipeline, about 7 micro-batches' worth in a step, whatever their number.",
        "Which cost shrinks when a step has more micro-batches?",
    ),
    difficulty=2,
    minutes=5,
    source="NVIDIA/Megatron-LM#258",
)  # fmt: skip


def _experts(given: Given) -> tuple[str, str]:
    def ratio(rate: float, together: int) -> float:
        return float(place.expert_ratio(
            activation_bytes=2, ranks=64, ranks_per_node=together, mlp_matrices=3, expert_ffn=given["width"],
            bandwidth=rate * 1e9, peak_flops_per_s=given["peak"] * 1e12))  # fmt: skip

    inside, across = ratio(given["up"], 1) < 1, ratio(given["out"], 8) < 1
    return {(True, False): ("a", "1"), (True, True): ("b", "2"), (False, False): ("c", "3")}[inside, across]


_wide = Judgement(
    id="place.26",
    title="Sixty-four experts",
    prompt=(
        "A mixture with experts of width {width:,} (gated: three matrices) spreads them over 64 devices of {peak:,.0f} "
        "TFLOP/s. Each copy of a token, in bf16, goes out and comes back, in forward and in backward. A rack of 72 "
        "with {up:g} GB/s a device, or nodes of 8 with a card of {out:g} GB/s a device: where do these all-to-alls "
        "take less time than the experts' matmuls?"
    ),
    given={"width": 2048, "peak": 2500.0, "up": 900.0, "out": 50.0},
    draw=picks(width=(1536, 2048, 4096, 14336), peak=(2500.0,), up=(900.0,), out=(50.0,)),
    choices={"a": "only in the rack", "b": "in both", "c": "in neither"},
    reasons={
        "1": "by the ratio of bytes to FLOPs the width is enough for the rack's links and not for a card",
        "2": "by the ratio of bytes to FLOPs the width is enough for either",
        "3": "by the ratio of bytes to FLOPs the width is too small for both",
        "4": "a larger batch brings more FLOPs for the same bytes, so it depends on the batch",
    },
    answer=_experts,
    mistakes=(
        Mistake("rule for another case", lambda _: (None, "4"),
                "Each token brings its own bytes and its own FLOPs: the batch cancels. For FSDP it does not."),
    ),
    hints=(
        "For one copy of one token: which bytes, and which FLOPs?",
        "Four transfers of 2 h bytes; 6 FLOPs for each of 3 h f_E parameters. The hidden width cancels.",
        "The width must exceed 4 C / (9 beta), times the share that uses the link: 63/64 in the rack, 56/64 on cards.",
    ),
    difficulty=3,
    minutes=7,
    source="COM-25; a 72-wide domain is where the rule 'tensor inside' is not what its width is for",
)  # fmt: skip


def _slow(given: Given) -> Run:
    return _slow_run(given["model"], given["batch"])


@cache
def _slow_run(model: str, batch: int) -> Run:
    node = catalog.fabric("h100-ib400")
    pcie = Fabric(
        id="pcie4-8", name="PCIe 4 x16, 8 cards", node_size=8, scale_up_bytes_per_s=31.5e9,
        scale_out_bytes_per_s=node.scale_out_bytes_per_s, scale_up_latency_s=5.7e-6,
        scale_out_latency_s=node.scale_out_latency_s,
    )  # fmt: skip
    return run_on(model, batch, 4096, accelerator=catalog.accelerator("a100-pcie-80gb"), fabric=pcie)


_layout = LayoutQuestion(
    id="place.27",
    title="Slow links inside the node",
    prompt=(
        "Eight A100 in one server without NVLink: 31.5 GB/s one way by PCIe. Lay out `{model}`: sequences of 4,096, "
        "{batch} a step, state bf16-18. Give a dictionary of the degrees above 1, `sharding`, `micro_batch` and, if "
        "needed, `recompute`, `schedule`, `interleave`: for instance "
        '{{"tensor": 8, "sharding": "zero1"}}. It must be legal, fit, and be within a tenth of the best step time.'
    ),
    given={"model": "llama-2-13b", "batch": 128},
    run=_slow,
    within=0.10,
    hints=(
        "What share of the matmuls would the collectives of 8 tensor ranks take at 31.5 GB/s?",
        "They would take longer than the matmuls. Which axes send less?",
        "Compare FSDP's bytes for a micro-batch of 4,096 tokens with what a stage sends: which links would you rather "
        "have?",
    ),
    difficulty=3,
    minutes=10,
    source="the first source document: slow local links can make even within-node sharding expensive",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_pipeline_inside, _wide, _layout)
