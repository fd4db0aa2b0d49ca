"""Step 7, batches: what is paid once, and from which local batch on communication is covered."""

from __future__ import annotations

from course import catalog, place
from course.problem import Run
from course.questions.draws import picks
from course.questions.kinds import Given, LayoutQuestion, Mistake, Number, Question
from course.questions.runs import run_on

__all__ = ["QUESTIONS"]

_once = Number(
    id="overlap.7",
    title="Paid once",
    prompt=(
        "On {few} GPUs a replica accumulates {count} micro-batches of {each:g} s; {once:g} s more are paid once a "
        "step, for the reduction that the last backward does not cover, and the update. The same batch on four times "
        "the replicas: what speedup of 4?"
    ),
    given={"few": 8, "count": 32, "each": 0.1, "once": 0.15},
    draw=picks(count=(16, 32), each=(0.1, 0.08), once=(0.15, 0.2)),
    answer=lambda g: (g["count"] * g["each"] + g["once"]) / (g["count"] / 4 * g["each"] + g["once"]),
    unit="1",
    relative=0.005,
    mistakes=(
        Mistake("every rung once", lambda _: 4.0, "What is paid once does not shrink with the micro-batches."),
        Mistake("share for ratio", lambda g: (g["count"] / 4 * g["each"] + g["once"])
                / (g["count"] * g["each"] + g["once"]), "That is the time after over the time before."),
        Mistake("speedup for efficiency", lambda g: (g["count"] * g["each"] + g["once"])
                / (g["count"] / 4 * g["each"] + g["once"]) / 4, "That is the efficiency; the speedup was asked for."),
    ),
    hints=(
        "How many micro-batches does a replica have afterwards?",
        "Write both step times as micro-batches times their time, and what is paid once.",
        "Before over after; only the first part is divided by 4.",
    ),
    difficulty=1,
    minutes=3,
    source="the playbook's 1.34B series from 8 to 256 GPUs; COM-17, NVIDIA/cosmos-framework#161",
)  # fmt: skip


def _fsdp(given: Given) -> float:
    return float(place.fsdp_ratio(
        tokens_per_device=1, ranks=1e9, latency=0, tensor=1, layer_parameters=1e9, weight_bytes=2,
        reduced_gradient_bytes=given["bytes"], peak_flops_per_s=given["rate"] * 1e12,
        bandwidth=given["link"] * 1e9))  # fmt: skip


_edge = Number(
    id="overlap.8",
    title="Where the cover ends",
    prompt=(
        "FSDP with prefetch, weights gathered in bf16, gradients scattered in {bytes} bytes, {link} GB/s a device, "
        "matmuls at {rate} TFLOP/s, very many ranks. From how many tokens of a device's micro-batch on are the "
        "collectives of a layer covered, in both passes?"
    ),
    given={"bytes": 4, "link": 25, "rate": 200},
    draw=picks(link=(25, 50, 100), rate=(200, 400, 600)),
    answer=_fsdp,
    unit="token",
    mistakes=(
        Mistake("rule for another case", lambda g: g["rate"] / g["link"] * 1e3,
                "That covers forward; backward gathers and scatters."),
        Mistake("whole step covers", lambda g: g["rate"] / g["link"] * 1e3 * (4 + g["bytes"]) / 6,
                "Forward is over when backward needs cover; each pass must do for itself."),
        Mistake("both directions counted", lambda g: _fsdp(g) / 2),
    ),
    hints=(
        "Forward: 2 FLOPs a parameter and token, and 2 bytes a parameter. Backward?",
        "Backward computes twice that; count all the bytes it moves for a parameter.",
        "Tokens = bytes / FLOPs x rate / bandwidth, in the pass where that is larger.",
    ),
    difficulty=2,
    minutes=5,
    source="derived in step 4; COM-19, pytorch/pytorch#106395",
)  # fmt: skip


def _line(given: Given) -> tuple[dict[int, float], dict[int, float]]:
    """Seconds of a step on one GPU, and what eight add, by samples a GPU."""
    alone = {size: size / given[f"one_{size}"] for size in (20, 40)}
    return alone, {size: 8 * size / given[f"eight_{size}"] - alone[size] for size in (20, 40)}


def _samples(given: Given) -> float:
    _, added = _line(given)
    return 40 + 20 * added[40] / (added[20] - added[40])


def _as_if_all_covered(given: Given) -> float:
    alone, added = _line(given)
    return 20 + added[20] / ((alone[40] - alone[20]) / 20)


_measured = Number(
    id="overlap.9",
    title="Cover, from four rates",
    prompt=(
        "Samples a second of a network: with 20 samples a GPU {one_20} on one GPU and {eight_20} on eight; with 40, "
        "{one_40} and {eight_40}. Take what eight add to a step as a straight line of the samples a GPU. From how many "
        "samples a GPU on does it add nothing?"
    ),
    given={"one_20": 106, "eight_20": 453, "one_40": 116, "eight_40": 743},
    draw=picks(one_20=(104, 106), eight_20=(440, 453), one_40=(114, 116), eight_40=(730, 743)),
    answer=_samples,
    unit="1",
    mistakes=(
        Mistake("whole step covers", _as_if_all_covered, "A longer forward covers nothing; what did 20 more do?"),
    ),
    hints=(
        "A step on one GPU: samples over rate. On eight: eight times the samples over their rate.",
        "Subtract for 20 and for 40: what do 20 samples more take away?",
        "At that pace, how many more until nothing is left?",
    ),
    difficulty=3,
    minutes=6,
    source="SCA-11, apache/mxnet#2283",
)  # fmt: skip


def _run(given: Given) -> Run:
    return run_on(given["model"], given["batch"], 2048, devices=64, fabric=catalog.fabric("h100-ib400"))


_layout = LayoutQuestion(
    id="overlap.10",
    title="A sequence for each device",
    prompt=(
        "`{model}` on 64 H100, nodes of 8, cards of 400 Gb/s, {batch} sequences of 2,048 tokens a step: with pure data "
        "parallelism one for each device, too few to cover the gradients. Give a dictionary of degrees above 1, "
        '`sharding` and `micro_batch`: for instance {{"data": 64, "sharding": "zero1"}}. It must be legal, fit, and be '
        "within 5 % of the best step time."
    ),
    given={"model": "llama-3-8b", "batch": 64},
    run=_run,
    within=0.05,
    hints=(
        "Which axis lets several devices work on the same tokens, over the fast links of a node?",
        "Two tensor ranks halve what a rank reduces, and share the tokens of two sequences. What do eight cost?",
        "The smallest tensor group that brings gradients under cover, its micro-batch as large as the batch allows.",
    ),
    difficulty=3,
    minutes=10,
    source="SCA-03, allenai/OLMo#845; the first source document: small local batches reduce this overlap",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_once, _edge, _measured, _layout)
