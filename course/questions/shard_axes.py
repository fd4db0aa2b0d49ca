"""Step 3, the axes: what tensor, sequence, context and expert parallelism split, and what that moves."""

from __future__ import annotations

from course import shard
from course.questions.draws import picks
from course.questions.kinds import Given, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]


def _tensor(given: Given, units: float) -> float:
    """GB a device sends in a step, all layers and micro-batches, for so many units of a layer."""
    unit = shard.tensor_unit_bytes(
        activation_bytes=2, hidden=given["hidden"], micro_batch=1, sequence_length=given["length"],
        tensor=given["tensor"],
    )  # fmt: skip
    return float(units * unit * given["layers"] * given["micro_batches"] / 1e9)


_UNITS = sum(shard.tensor_units(0, 0))

_tensor_step = Number(
    id="shard.9",
    title="Tensor traffic of a step",
    prompt=(
        "{layers} layers of width {hidden:,}, sequences of {length:,} tokens, one a micro-batch, {micro_batches} "
        "micro-batches a step, bf16 activations, {tensor} tensor ranks with sequence parallelism, nothing recomputed "
        "and nothing gathered twice. How many GB does a device send in a step?"
    ),
    given={"layers": 80, "hidden": 8192, "length": 4096, "micro_batches": 16, "tensor": 8},
    draw=picks(layers=(32, 80), hidden=(4096, 8192), length=(4096, 8192), micro_batches=(8, 16), tensor=(4, 8)),
    answer=lambda x: _tensor(x, _UNITS),
    unit="GB",
    mistakes=(
        Mistake("backward forgotten", lambda x: _tensor(x, _UNITS / 2),
                "Half of the units were counted: backward has as many as forward, or an all-reduce is two units."),
        Mistake("one layer for all", lambda x: _tensor(x, _UNITS) / x["layers"]),
        Mistake("accumulation forgotten", lambda x: _tensor(x, _UNITS) / x["micro_batches"]),
        Mistake("own share counted", lambda x: _tensor(x, _UNITS) * x["tensor"] / (x["tensor"] - 1)),
    ),
    hints=(
        "How many gathers and scatters does one layer make, forward and backward?",
        "Attention and MLP each gather before and scatter after: 4 forward, and 4 backward.",
        "A unit is 2 h T (t - 1)/t bytes; times 8, times layers, times micro-batches.",
    ),
    difficulty=2,
    minutes=6,
    source="Korthikanti et al. 2022; mlsysim before its repair of 2026-09-15 counted the collectives wrongly",
)  # fmt: skip

_long = Judgement(
    id="shard.10",
    title="A sequence too long",
    prompt=(
        "8 key/value heads that may not be copied, 8 tensor ranks with sequence parallelism, one sequence of "
        "1,048,576 tokens, every layer recomputed. What one layer holds while it works does not fit: each device has "
        "an eighth of the heads, and for them the queries, keys and values of all tokens. The state fits. What helps?"
    ),
    choices={
        "a": "sequence parallelism over more ranks",
        "b": "context parallelism",
        "c": "pipeline parallelism",
        "d": "a higher rung of ZeRO",
    },
    reasons={
        "1": "it divides norms and residuals, which every device holds whole",
        "2": "it divides the tokens inside attention; what else divides there is heads, and those are used up",
        "3": "it puts fewer layers on a device",
        "4": "the state is what is too large",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("sequence left whole", lambda _: ("a", None)),
        Mistake("rule for another case", lambda _: ("c", None), "One layer alone does not fit; fewer do not help."),
    ),
    hints=(
        "Which tensors does one device hold inside attention, and by what are they divided already?",
        "Sequence parallelism ends where attention begins: there every device sees all tokens for its heads.",
        "Which axis keeps the tokens divided inside attention?",
    ),
    difficulty=2,
    minutes=4,
    source="the first seed: sequence parallelism around attention, context parallelism in attention",
)

_short = Judgement(
    id="shard.11",
    title="A sequence short enough",
    prompt=(
        "8 tensor ranks without sequence parallelism, sequences of 4,096 tokens, one at a time, nothing recomputed. "
        "Activations are a little too large: norms, residuals and the inputs of the matrices are whole on every "
        "device. The number of devices and the global batch must stay. What first?"
    ),
    choices={
        "a": "context parallelism over 2 ranks",
        "b": "sequence parallelism over the 8 tensor ranks",
        "c": "16 tensor ranks",
        "d": "a micro-batch of 2",
    },
    reasons={
        "1": "it divides what lies around attention and MLP, and an all-reduce becomes a scatter and a gather of the "
        "same bytes",
        "2": "it divides the sequence inside attention, where most of the memory is",
        "3": "more ranks divide every activation",
        "4": "larger matrices run faster",
    },
    answer=lambda _: ("b", "1"),
    mistakes=(
        Mistake("sequence left whole", lambda _: ("a", None),
                "It would take a rank from the replicas and send keys and values, to halve what another axis divides "
                "by 8 with the ranks that are there."),
        Mistake("rule for another case", lambda _: ("c", None), "Tensor ranks alone leave norms and residuals whole."),
    ),
    hints=(
        "Which of the tensors named are divided by tensor parallelism alone?",
        "None of those named. Which axis divides them, and what does it send that was not sent before?",
        "An all-reduce is a reduce-scatter and an all-gather.",
    ),
    difficulty=2,
    minutes=4,
    source="Korthikanti et al. 2022, section 4.2: sequence parallelism at no extra communication",
)  # fmt: skip


def _ring(given: Given, heads: float) -> float:
    unit = shard.context_unit_bytes(
        activation_bytes=2, kv_heads=heads, head_size=128, tensor=1, micro_batch=1,
        sequence_length=given["thousands"] * 1024, context=given["context"],
    )  # fmt: skip
    return float(sum(shard.context_units()) * unit * given["layers"] / 1e9)


_keys = Number(
    id="shard.12",
    title="Keys and values round a ring",
    prompt=(
        "{layers} layers with 32 query heads and 8 key/value heads of size 128, one sequence of {thousands} x 1024 "
        "tokens on {context} context ranks, bf16. Keys and values go round forward and again backward, and their "
        "gradients go round once, in bf16 too. How many GB does a device send for the sequence?"
    ),
    given={"layers": 32, "thousands": 128, "context": 8},
    draw=picks(layers=(32, 48, 80), thousands=(64, 128, 256), context=(8, 16)),
    answer=lambda x: _ring(x, 8),
    unit="GB",
    mistakes=(
        Mistake("query heads for keys", lambda x: _ring(x, 32)),
        Mistake("backward forgotten", lambda x: _ring(x, 8) / 3),
        Mistake("half an all-reduce", lambda x: _ring(x, 8) / 2,
                "Keys alone were counted, or values alone; both go round."),
        Mistake("one layer for all", lambda x: _ring(x, 8) / x["layers"]),
        Mistake("grows with the ranks", lambda x: _ring(x, 8) * x["context"],
                "Each hop was counted as the whole sequence; a block is one share of the tokens."),
    ),
    hints=(
        "What is the block a rank passes on, and how often does it?",
        "A block: keys and values of T/c tokens, 8 heads of 128. It makes c - 1 hops, in each of three rounds.",
        "3 rounds x 2 tensors x 2 bytes x 8 x 128 x T x (c - 1)/c, times the layers.",
    ),
    difficulty=2,
    minutes=7,
    source="hahnyuan/LLM-Viewer#12: key/value traffic counted with the query heads",
)  # fmt: skip


def _expert(given: Given, copies: float, ranks: float | None = None) -> float:
    one = shard.expert_transfer_bytes(
        activation_bytes=2, hidden=given["hidden"], experts_per_token=copies, micro_batch=1,
        sequence_length=given["tokens"], context=1, tensor=1, sequence_sharded=0, expert=ranks or given["expert"],
    )  # fmt: skip
    return float(shard.EXPERT_TRANSFERS * one / 1e9)


_all_to_all = Number(
    id="shard.13",
    title="Tokens to their experts",
    prompt=(
        "A device holds {tokens:,} tokens of width {hidden:,} in bf16; each goes to {copies} experts, which are spread "
        "over {expert} ranks and equally busy. Every copy is sent. How many GB does the device send in one layer, "
        "forward and backward?"
    ),
    given={"tokens": 8192, "hidden": 8192, "copies": 2, "expert": 8},
    draw=picks(tokens=(4096, 8192, 16384), hidden=(4096, 7168, 8192), copies=(2, 6, 8), expert=(8, 16)),
    answer=lambda x: _expert(x, x["copies"]),
    unit="GB",
    mistakes=(
        Mistake("copies merged", lambda x: _expert(x, 1)),
        Mistake("one pass of four", lambda x: _expert(x, x["copies"]) / 4),
        Mistake("own share counted", lambda x: _expert(x, x["copies"]) * x["expert"] / (x["expert"] - 1)),
    ),
    hints=(
        "How often do tokens travel in a layer, counting the way back and the backward pass?",
        "Four all-to-alls: out and back, forward and backward. What share of the copies stays at home?",
        "Four times the share that leaves home, times tokens, copies, width and the 2 bytes of a number.",
    ),
    difficulty=2,
    minutes=5,
    source="COM-25, arganzheng/arganzheng.github.com#80; NVIDIA/Megatron-LM#2692 on merged copies",
)

_copies = Number(
    id="shard.14",
    title="How many ranks hold the same experts",
    prompt=(
        "A stage has {tensor} tensor x {context} context x {data} data ranks. Its experts are spread over {expert} "
        "ranks, each expert whole on its rank. How many ranks hold the same experts and share their optimizer state?"
    ),
    given={"tensor": 2, "context": 1, "data": 64, "expert": 16},
    draw=picks(tensor=(2, 4), context=(1, 2), data=(64, 128), expert=(16, 32)),
    answer=lambda x: shard.expert_data_ranks(
        tensor=x["tensor"], context=x["context"], data=x["data"], expert=x["expert"], expert_tensor=1),
    unit="1",
    mistakes=(
        Mistake("experts multiplied in", lambda x: x["data"]),
        Mistake("rule for another case", lambda x: x["data"] / x["expert"],
                "The experts were folded into the data ranks alone; tensor and context ranks hold experts too."),
    ),
    hints=(
        "Experts take no ranks of their own. Which ranks are there?",
        "All ranks of a stage hold experts; so many of them together hold each expert once.",
        "T_p C_p D_p over E_p, since E_tp is 1.",
    ),
    difficulty=2,
    minutes=4,
    source="LAY-17, NVIDIA-NeMo/Speech#14838; the guide whose product has the experts in it",
)  # fmt: skip


def _state(given: Given, ranks: float, share: float | None = None) -> float:
    held = shard.expert_state_per_device(
        expert_parameters=given["billions"] * 1e9, expert=share or given["expert"], expert_tensor=1,
        expert_data=ranks, weight_bytes=2, gradient_bytes=4, optimizer_bytes=12, shard_optimizer=1, shard_gradients=0,
        shard_weights=0,
    )  # fmt: skip
    return float(held / 1e9)


_expert_state = Number(
    id="shard.18",
    title="State of the experts",
    prompt=(
        "{billions:g} billion parameters in experts, on {data} data ranks (no tensor, context or pipeline ranks), "
        "spread over {expert} of them. ZeRO-1, 2 bytes of weight, 4 of gradient, 12 of optimizer state. How many GB "
        "of the experts' state does a device hold?"
    ),
    given={"billions": 45.1, "data": 32, "expert": 8},
    draw=picks(billions=(22.5, 45.1, 90.2), data=(32, 64), expert=(8, 16)),
    answer=lambda x: _state(x, x["data"] / x["expert"]),
    unit="GB",
    mistakes=(
        Mistake("rule for another case", lambda x: _state(x, x["data"]),
                "The optimizer state was shared with ranks that hold other experts."),
        Mistake("all experts counted", lambda x: _state(x, x["data"], 1),
                "Every device was given all experts; it holds its share of them."),
        Mistake("everything sharded", lambda x: x["billions"] * 18 / x["data"]),
    ),
    hints=(
        "Which ranks hold the same experts as this one? Only they can share its state.",
        "A device holds 1/E_p of the experts; their weights and gradients whole, their optimizer state over E_dp.",
        "Parameters over E_p, times 2 + 4 + 12/E_dp, with E_dp the data ranks over E_p.",
    ),
    difficulty=3,
    minutes=7,
    source="expert state shards over the expert data-parallel group; LAY-17",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_tensor_step, _long, _short, _keys, _all_to_all, _copies, _expert_state)
