"""Step 2, splitting: what pipelines do to the first stage, chunks, and the matrices of latent attention."""

from __future__ import annotations

import random
from typing import Any

from course import batch, constrain, estimate
from course.questions.draws import picks
from course.questions.kinds import Expression, Function, Given, Judgement, Mistake, Number, Question
from course.symbols import symbols

__all__ = ["QUESTIONS"]

GIB = 2**30
h, a, r_q, r_kv, d_r, d_n, d_v = symbols(
    "hidden", "heads", "q_lora", "kv_lora", "rope_head_size", "nope_head_size", "v_head_size"
)


# ---------------------------------------------------------------- the first stage
def _stage(given: Given, in_flight: float) -> float:
    return float(
        constrain.activation_memory(
            token_layer_bytes=given["bytes"], micro_batch=1, sequence_length=given["length"],
            stage_layers=given["layers"] / given["stages"], in_flight=in_flight,
        ) / GIB
    )  # fmt: skip


_first_stage = Number(
    id="constrain.12",
    title="The first stage",
    prompt=(
        "{layers} layers keep {bytes:,} bytes a token each; a micro-batch is one sequence of {length:,} tokens. Under "
        "1F1B a pipeline of {stages} equal stages works through {batches} micro-batches a step. How much do the "
        "activations of the first stage take at their peak?"
    ),
    given={"layers": 80, "bytes": 34304, "length": 8192, "stages": 8, "batches": 32},
    draw=picks(stages=(4, 8, 16), batches=(32, 64), length=(4096, 8192)),
    answer=lambda g: _stage(g, g["stages"]),
    unit="GiB",
    mistakes=(
        Mistake("divided by the stages", lambda g: _stage(g, 1)),
        Mistake("all micro-batches kept", lambda g: _stage(g, g["batches"])),
    ),
    hints=(
        "How many layers has the stage, and for how many micro-batches does it keep them?",
        "The stages divide the layers and multiply the micro-batches.",
        "Layers over stages, times stages in flight, times tokens, times bytes; over 2^30.",
    ),
    difficulty=2,
    minutes=5,
    source="MEM-15 and design of 1F1B: the first stage holds the activations of all layers",
)

_doubling = Judgement(
    id="constrain.13",
    title="More stages",
    prompt=(
        "Activations fill the first of 8 pipeline stages, which has 8 micro-batches in flight; a step has 64. You "
        "change to 16 stages on twice the devices, with 16 in flight. What happens to the activations on the first "
        "stage, and why?"
    ),
    choices={"a": "they are halved", "b": "they stay as they are", "c": "they double"},
    reasons={
        "1": "the stage has half the layers",
        "2": "the stage has half the layers, for twice the micro-batches",
        "3": "twice the micro-batches are kept",
        "4": "the next stage keeps them",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("divided by the stages", lambda _: ("a", "1")),
        Mistake(
            "all micro-batches kept",
            lambda _: ("c", "3"),
            "That is true of the micro-batches; the layers changed as well.",
        ),
        Mistake(
            "rule for another case",
            lambda _: (None, "4"),
            "A stage keeps what its own backward reads; the next one keeps its own.",
        ),
    ),
    hints=(
        "Two numbers change. Which?",
        "Layers of a stage, and micro-batches in flight.",
        "Multiply them before and after.",
    ),
    difficulty=1,
    minutes=4,
    source="the first source document lists pipelines among what saves activations; they save state",
)


# ---------------------------------------------------------------- chunks
def _more(given: Given) -> float:
    place = {"pipeline": given["stages"], "micro_batches": 8 * given["stages"], "stage": 0}
    chunked = batch.interleaved_in_flight(**place, interleave=given["chunks"])
    return float(chunked / batch.one_f_one_b_in_flight(**place))


_chunks = Number(
    id="constrain.14",
    title="The price of chunks",
    prompt=(
        "A pipeline has {stages} stages with {chunks} chunks of layers each, interleaved, and many micro-batches a "
        "step. By what factor are the activations of the first stage, at their peak, larger than under 1F1B with one "
        "chunk a stage?"
    ),
    given={"stages": 4, "chunks": 2},
    draw=picks(stages=(4, 8, 16), chunks=(2, 4)),
    answer=_more,
    unit="1",
    mistakes=(
        Mistake(
            "rule for another case",
            lambda _: 1.0,
            "Interleaving shortens the idle time; what does it hold meanwhile?",
        ),
        Mistake(
            "share for ratio",
            lambda g: _more(g) * g["chunks"],
            "Chunks were compared with stages; a chunk has only a part of a stage's layers.",
        ),
    ),
    hints=(
        "How many chunks does the first stage run forward before its first backward?",
        "v P_p, and P_p less one more, count the chunks with the one at work. A chunk is a v-th of a stage.",
        "Chunks in flight over (chunks a stage times stages).",
    ),
    difficulty=2,
    minutes=6,
    source="MEM-15, NVIDIA/Megatron-LM#675",
)


# ---------------------------------------------------------------- a function
def _case(source: random.Random) -> dict[str, Any]:
    stages = source.choice((1, 2, 4, 8, 16))
    return {
        "token_layer_bytes": source.choice((34304, 65024, 139264)), "layers": stages * source.randint(1, 10),
        "stages": stages, "micro_batches": source.choice((1, 2, 3, 8, 24, 64)),
        "sequence_length": source.choice((2048, 4096, 8192)),
    }  # fmt: skip


def _held(token_layer_bytes: float, layers: int, stages: int, micro_batches: int, sequence_length: int) -> float:
    flight = batch.one_f_one_b_in_flight(pipeline=stages, micro_batches=micro_batches, stage=0)
    return float(
        constrain.activation_memory(
            token_layer_bytes=token_layer_bytes, micro_batch=1, sequence_length=sequence_length,
            stage_layers=layers / stages, in_flight=flight,
        )
    )  # fmt: skip


_function = Function(
    id="constrain.15",
    title="Activations of the first stage",
    prompt=(
        "Write `first_stage(token_layer_bytes, layers, stages, micro_batches, sequence_length)`: bytes of "
        "activations on the first of `stages` equal pipeline stages under 1F1B, at their peak. A micro-batch is one "
        "sequence. A step has `micro_batches` of them, which may be fewer than the stages."
    ),
    arguments=("token_layer_bytes", "layers", "stages", "micro_batches", "sequence_length"),
    case=_case,
    edges=(
        {"token_layer_bytes": 1000, "layers": 8, "stages": 8, "micro_batches": 2, "sequence_length": 10},
        {"token_layer_bytes": 1000, "layers": 8, "stages": 2, "micro_batches": 64, "sequence_length": 10},
    ),
    answer=_held,
    unit="byte",
    mistakes=(
        Mistake(
            "divided by the stages",
            lambda _: (
                lambda token_layer_bytes, layers, stages, micro_batches, sequence_length: (
                    token_layer_bytes * layers / stages * sequence_length + 0 * micro_batches
                )
            ),
        ),
        Mistake(
            "all micro-batches kept",
            lambda _: (
                lambda token_layer_bytes, layers, stages, micro_batches, sequence_length: (
                    token_layer_bytes * layers / stages * sequence_length * micro_batches
                )
            ),
        ),
        Mistake(
            "rule for another case",
            lambda _: (
                lambda token_layer_bytes, layers, stages, micro_batches, sequence_length: (
                    token_layer_bytes * layers * sequence_length + 0 * micro_batches * stages
                )
            ),
            "That holds while there are micro-batches enough to fill the pipeline.",
        ),
    ),
    hints=(
        "Layers of the stage, times micro-batches in flight, times tokens, times bytes.",
        "In flight is the smaller of two numbers.",
        "token_layer_bytes * layers / stages * min(stages, micro_batches) * sequence_length",
    ),
    difficulty=2,
    minutes=8,
    source="MEM-15; planners that divide the first stage's activations by the stages",
)


# ---------------------------------------------------------------- latent attention
_query = a * (d_n + d_r)
_latent = Expression(
    id="constrain.19",
    title="Latent attention",
    prompt=(
        "Queries go from the hidden width h to a latent of r_q, and from there to a heads of d_n + d_r numbers. Keys "
        "and values go from h to a latent of r_kv, and from there to a heads of d_n (keys) and d_v (values). One "
        "rotated key of d_r numbers, made from h, serves all heads. A last matrix goes from all values back to h. How "
        "many parameters have the matrices?"
    ),
    symbols=("hidden", "heads", "q_lora", "kv_lora", "rope_head_size", "nope_head_size", "v_head_size"),
    answer=lambda _: h * r_q + r_q * _query + h * (r_kv + d_r) + r_kv * a * (d_n + d_v) + a * d_v * h,
    mistakes=(
        Mistake(
            "one projection shrunk",
            lambda _: h * r_q + r_q * _query + h * (r_kv + a * d_r) + r_kv * a * (d_n + d_v) + a * d_v * h,
            "The rotated key was made once for each head; all heads share one.",
        ),
        Mistake(
            "output head forgotten",
            lambda _: h * r_q + r_q * _query + h * (r_kv + d_r) + r_kv * a * (d_n + d_v),
            "The matrix that leads back to the hidden width is missing.",
        ),
        Mistake(
            "one projection shrunk",
            lambda _: h * _query + h * (r_kv + d_r) + r_kv * a * (d_n + d_v) + a * d_v * h,
            "The queries pass a latent too: two matrices in place of one.",
        ),
    ),
    hints=(
        "List the matrices: what goes in, what comes out.",
        "Queries down and up; keys and values down, with the rotated key beside; keys and values up; back.",
        "h r_q, r_q a (d_n + d_r), h (r_kv + d_r), r_kv a (d_n + d_v), a d_v h.",
    ),
    difficulty=2,
    minutes=7,
    source="NVIDIA/Megatron-LM#1475: formulas that did not know latent attention; the shapes of DeepSeek-V3",
)


def _kept(given: Given, again: float) -> float:
    widths = {"heads": 128, "rope_head_size": 64, "nope_head_size": 128, "v_head_size": 128}
    ranks = {"q_lora": given["query"], "kv_lora": given["key"]}
    return float(estimate.latent_attention_saved(**widths, **ranks, activation_bytes=2, latent_recompute=again) / 1000)


_remade = Number(
    id="constrain.20",
    title="Made again",
    prompt=(
        "Latent attention with latents of {query} (queries) and {key} (keys and values), 128 heads of 128 + 64 numbers "
        "for queries and keys and of 128 for values, bf16. Each latent is kept before and after its norm, the "
        "attention output is kept, and one rotated key of 64. Queries, keys and values are made again in backward. How "
        "many kB (1,000 bytes) does one layer's attention keep of a token?"
    ),
    given={"query": 1536, "key": 512},
    draw=picks(query=(768, 1024, 1536, 2048), key=(256, 512, 1024)),
    answer=lambda g: _kept(g, 1),
    unit="kB",
    mistakes=(
        Mistake("rule for another case", lambda g: _kept(g, 0), "The wide queries, keys and values were kept as well."),
        Mistake(
            "one operand counted",
            lambda g: _kept(g, 1) - 2 * (g["query"] + g["key"]) / 1000,
            "Each latent is kept twice: the norm reads its input, the matrix behind it the norm's output.",
        ),
        Mistake(
            "one operand counted",
            lambda g: _kept(g, 1) - 2 * 128 * 128 / 1000,
            "The attention output is missing; the last matrix reads it.",
        ),
    ),
    hints=(
        "What does backward read that it cannot make again?",
        "Two latents, twice each; the attention output, heads times 128; the rotated key.",
        "2 (2 r_q + 2 r_kv + 128 · 128 + 64) bytes.",
    ),
    difficulty=3,
    minutes=7,
    source="DeepSeek-V3 report (2024), section 3.2.3: the up-projections are recomputed in backward",
)


# ---------------------------------------------------------------- recomputation inside a pipeline
def _again(given: Given, inputs: float = 1, whole: float = 1, shard_inputs: bool = True) -> float:
    """GiB of the first stage; `inputs` and `whole` scale the two terms."""
    tensor, alone = given["tensor"], 2 * given["hidden"]
    held = constrain.checkpointed_memory(
        input_bytes=inputs * (alone / tensor if shard_inputs else alone),
        token_layer_bytes=whole * given["whole"] / tensor, micro_batch=1, sequence_length=given["length"],
        stage_layers=given["layers"] / given["stages"], in_flight=given["stages"], checkpoint_layers=1,
    )  # fmt: skip
    return float(held / GIB)


_recomputed_stage = Number(
    id="constrain.23",
    title="Recomputation in a pipeline",
    prompt=(
        "{layers} layers on {stages} equal stages, each layer on {tensor} tensor ranks with sequence parallelism. "
        "Every layer is recomputed: it keeps its input, h = {hidden:,} numbers of 2 bytes a token, of which a rank has "
        "its share; the layer at work keeps {whole:,} bytes a token over all ranks. A micro-batch is one sequence of "
        "{length:,} tokens, and a step of 1F1B has more micro-batches than stages. How many GiB of activations does a "
        "device of the first stage hold at its fullest?"
    ),
    given={"layers": 96, "stages": 8, "tensor": 8, "hidden": 12288, "whole": 417792, "length": 2048},
    draw=picks(stages=(4, 8, 16), tensor=(2, 4, 8), length=(2048, 4096, 8192)),
    answer=_again,
    unit="GiB",
    mistakes=(
        Mistake(
            "wrong group", lambda g: _again(g, shard_inputs=False), "Sequence parallelism cuts the inputs as well."
        ),
        Mistake(
            "divided by the stages",
            lambda g: _again(g, inputs=1 / g["stages"]),
            "The inputs of one micro-batch were counted; others are in flight.",
        ),
        Mistake(
            "all micro-batches kept",
            lambda g: _again(g, whole=g["stages"]),
            "A layer was made again for every micro-batch in flight; it is made again for one at a time.",
        ),
        Mistake("layer at work forgotten", lambda g: _again(g, whole=0)),
    ),
    hints=(
        "What lies there when the first backward begins? And what comes on top while a layer goes backward?",
        "An input for each layer of the stage and each micro-batch in flight; one layer, once.",
        "(layers/stages times stages in flight times 2h/t, plus whole/t), times tokens; over 2^30.",
    ),
    difficulty=3,
    minutes=8,
    source="MEM-15, what the first stage has in flight; with recomputation an input for each, one layer at work",
)

QUESTIONS: tuple[Question, ...] = (_first_stage, _doubling, _chunks, _function, _latent, _remade, _recomputed_stage)
