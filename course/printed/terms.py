"""The course's words, each in one sentence, with the notebook that first explains it.

Symbols are not here: their meanings stand in `course.symbols`, and the glossary prints both.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TERMS", "Term"]


@dataclass(frozen=True)
class Term:
    """A word, what it means, and the notebook that explains it; `also` are spellings that notebooks use."""

    name: str
    means: str
    notebook: str
    also: tuple[str, ...] = ()


TERMS: tuple[Term, ...] = (
    Term("accelerator", "a chip built to multiply matrices; also device, GPU, TPU. One document counts them with R, "
         "the other with D: the same things", "00_start", ("device",)),
    Term("accelerator-hour", "one accelerator held for one hour, whether it works or waits", "00_start"),
    Term("accumulation", "adding up the gradients of several micro-batches before the weights change", "03a_shard",
         ("accumulated", "accumulates")),
    Term("activation", "what a layer computes in forward and backward still needs", "00_start", ("activations",)),
    Term("all-gather", "a collective after which every rank holds the parts of all", "00_start",
         ("gathers", "gathered", "all-gathers")),
    Term("all-reduce", "a collective after which every rank holds the sum of all ranks' buffers", "00_start"),
    Term("all-to-all", "a collective in which each rank has a part for each other rank", "03b_shard"),
    Term("backward", "the pass from the loss back to the input, which makes gradients; about twice forward's FLOPs",
         "00_start"),
    Term("bubble", "time in which a pipeline stage has nothing to work on", "00_start", ("bubbles",)),
    Term("bucket", "gradients of some layers that are reduced in one message", "07a_overlap", ("buckets",)),
    Term("bus bandwidth", "bytes that each link carried in a collective over its time: what is compared with the "
         "link's rate", "04a_place"),
    Term("checkpoint", "of activations: an input that is kept so that what follows can be computed again; of a run: "
         "its state on disk", "01b_estimate", ("checkpoints",)),
    Term("chunk", "one of several groups of layers that a stage holds under an interleaved schedule", "00_start",
         ("chunks",)),
    Term("collective", "communication in which every rank of a group takes part", "03a_shard", ("collectives",)),
    Term("context parallelism", "ranks share one sequence, also inside attention", "00_start", ("context ranks",)),
    Term("critical batch", "the batch at which a run takes twice the fewest steps and twice the fewest sequences",
         "09c_strong_and_weak"),
    Term("critical path", "the chain of dependent work that decides when a step ends", "07b_overlap"),
    Term("data parallelism", "replicas of the model, each with its own sequences; gradients are reduced over them",
         "00_start", ("data parallel", "replica")),
    Term("expert", "one of the MLPs of a mixture; a token passes only some of them", "01a_estimate", ("experts",)),
    Term("exposed", "of communication: the part that makes the step longer; the rest is hidden", "00_start"),
    Term("FLOP", "one multiplication or one addition; FLOP/s is a rate", "00_start", ("FLOPs",)),
    Term("forward", "the pass from input to loss", "00_start"),
    Term("FSDP", "the name PyTorch gives ZeRO-3", "02a_constrain"),
    Term("global batch", "the sequences of one optimizer step, over all replicas", "05a_batch"),
    Term("goodput", "the share of held time in which the run makes progress: no failures, restarts, checkpoints",
         "00_start"),
    Term("gradient", "how the loss changes with a weight: one number a parameter", "00_start", ("gradients",)),
    Term("GPipe", "the schedule in which all forwards come before all backwards", "05a_batch"),
    Term("HFU", "hardware FLOPs utilization: all FLOPs executed, recomputed ones too, over what the devices could have "
         "done", "00_start"),
    Term("in flight", "of micro-batches: forward is done, backward not yet, so their activations are held",
         "00_start"),
    Term("intensity", "FLOPs of an operation for each byte it moves to and from memory", "01a_estimate"),
    Term("interleaved", "a schedule whose stages hold several chunks of layers each", "00_start", ("interleaving",)),
    Term("latent attention", "attention whose keys and values are made from one narrow vector a token",
         "02c_constrain"),
    Term("leaf switch", "the first switch above the nodes", "04b_place"),
    Term("MFU", "model FLOPs utilization: FLOPs the model needs over what the devices held could have done",
         "00_start"),
    Term("micro-batch", "the sequences a replica works on at once", "00_start"),
    Term("model state", "weights, gradients and optimizer state", "01b_estimate"),
    Term("node", "a server whose devices are joined by fast links", "00_start", ("nodes",)),
    Term("1F1B", "the schedule in which a stage does one forward, one backward in turn, and so holds little",
         "00_start"),
    Term("optimizer state", "what Adam keeps for a parameter: two moments, and an fp32 copy of the weight", "00_start"),
    Term("parameter", "a number the model learns", "00_start", ("parameters",)),
    Term("pipeline parallelism", "stages hold different layers; micro-batches pass them in turn", "00_start",
         ("pipeline",)),
    Term("rank", "one device of a group", "00_start", ("ranks",)),
    Term("recomputation", "activations thrown away in forward and made again in backward", "01a_estimate"),
    Term("reduce-scatter", "a collective after which each rank holds its share of the sum", "00_start",
         ("reduce-scatters", "scattered")),
    Term("ridge point", "the intensity at which memory bandwidth and compute take the same time", "01a_estimate"),
    Term("ring", "ranks in a circle, each sending to the next", "00_start"),
    Term("roofline", "the rate an operation can reach: the lesser of compute peak and intensity times bandwidth",
         "01a_estimate"),
    Term("sequence parallelism", "tensor ranks share also what lies between their matmuls: norms and residual sums",
         "02b_constrain"),
    Term("sharding", "each rank keeps a part of what all would hold", "02a_constrain", ("sharded", "shards")),
    Term("stage", "the layers of one pipeline rank", "00_start", ("stages",)),
    Term("strong scaling", "the same work on more devices", "05a_batch"),
    Term("tensor parallelism", "ranks share the matrices of every layer", "00_start", ("tensor ranks",)),
    Term("token", "a piece of a word", "00_start", ("tokens",)),
    Term("valid work", "steps that moved the model as one optimizer step of the recipe does; skipped and repeated ones "
         "are none", "09c_strong_and_weak"),
    Term("weak scaling", "work that grows with the devices, so that each device keeps a declared amount",
         "05a_batch"),
    Term("work unit", "what is timed when two runs are compared: batch, sequences, model, a valid update",
         "06c_mfu"),
    Term("zero-bubble", "a schedule that delays the gradients of weights into a pipeline's idle time", "05c_batch",
         ("zero bubbles",)),
    Term("ZeRO-1", "replicas share the optimizer state", "00_start"),
    Term("ZeRO-2", "replicas share optimizer state and gradients", "00_start"),
    Term("ZeRO-3", "replicas share weights too, and gather each layer before it is used", "00_start"),
)  # fmt: skip
