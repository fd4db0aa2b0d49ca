"""The known mistakes by name, shared over all steps: one line each that says what went wrong.

A question names a mistake, computes the wrong number it leads to, and adds a sentence of its own. The names are stable:
`course grade` counts them over a group.

>>> explain("sparse peak")[:44]
'A vendor prints the peak of 2:4 sparse matri'
"""

from __future__ import annotations

__all__ = ["MISTAKES", "explain"]

MISTAKES: dict[str, str] = {
    # peaks and rates
    "sparse peak": "A vendor prints the peak of 2:4 sparse matrices, twice the dense one; training runs dense.",
    "peak of another precision": (
        "The peak of another number format was used; take the one the matmuls really execute in."
    ),
    "peak of another device": "The peak of another accelerator, or of another variant of it, was used.",
    "sum of the two roofs": (
        "Compute and memory were added or multiplied; the roofline is the lower of two roofs, a minimum."
    ),
    "above the roof": "The rate memory could feed was given although the compute peak caps it first.",
    "compute roof alone": "The compute peak was given although memory cannot feed it at this intensity.",
    "roofline upside down": "Bytes were divided by FLOPs; intensity is FLOPs for each byte.",
    "one operand counted": "Only one of the arrays that move was counted; every read and every write costs bytes.",
    "both directions counted": "The two directions of a link were added; a bandwidth is one-way, per device.",
    # units
    "bits for bytes": "Bits and bytes were mixed: network cards are sold in bits a second, memory is counted in bytes.",
    "GiB for GB": "Binary and decimal prefixes were mixed: 1 GiB is 2^30 bytes, 1 GB is 10^9.",
    "wrong prefix": "The digits are right but the prefix is another one: kilo, mega, giga, tera, peta.",
    "wrong power of ten": "The digits are right, the power of ten is not.",
    "percent for share": "A percentage was given for a share of 1, or the other way round.",
    "other unit of time": "The number is right in another unit of time: seconds, hours, days.",
    "other quantity": "The unit written beside the number measures another quantity than the one asked for.",
    "sign": "The sign is the other one.",
    # FLOPs
    "multiply-add counted once": "A multiplication and its addition are two FLOPs, not one.",
    "backward forgotten": "Only the forward pass was counted; backward makes two matmuls of each one of forward.",
    "forward counted twice": "Backward was counted as costly as forward; it is twice as costly.",
    "recomputation as useful work": "FLOPs that are repeated to save memory were counted as work of the model.",
    "attention left out": "The scores and weighted values of attention were left out; at long sequences they matter.",
    "causal half": (
        "Half the attention square was counted where the convention counts the whole, or the other way round."
    ),
    "one of two attention matmuls": (
        "Attention has two matmuls beside its weights: the scores, and the weighted values."
    ),
    "input table multiplied": "The input table was counted as a matmul; looking up a row costs none.",
    "output head forgotten": "The output head was left out; it multiplies every token.",
    "head size inferred": "The head size was taken as hidden width over heads; it is a free parameter.",
    "one projection shrunk": "Grouped-query attention shrinks keys and values both, not one of them.",
    "grouped heads ignored": "Keys and values were given as many heads as the queries have.",
    "two matrices for a gated MLP": "A gated MLP has three matrices: gate, up and down.",
    "three matrices for a plain MLP": "An MLP that is not gated has two matrices.",
    "tied tables counted twice": "Input table and output head are one tensor when they are tied.",
    "untied tables counted once": "Input table and output head are two tensors unless they are tied.",
    "all experts counted": "All experts were counted; a token passes only the few it is sent to.",
    "active for total": "The active parameters were counted where every expert must be stored.",
    # memory
    "weights alone": "Only the weights were counted; gradients and optimizer state stay in memory as well.",
    "another state recipe": "The bytes a parameter belong to another recipe of precisions.",
    "optimizer forgotten": "The optimizer's state was left out: its moments and its fp32 copy of the weights.",
    "everything sharded": "Parts were divided over the ranks that this stage of sharding keeps whole.",
    "nothing sharded": "Nothing was divided over the ranks although the optimizer is sharded.",
    "one copy of the logits": "The logits were counted once; the loss keeps copies of them beside the first.",
    "fused for unfused": "The bytes of a fused loss were used where the loss is not fused, or the other way round.",
    "one layer for all": "The bytes of a single layer were given for the whole model.",
    "one token for all": "The bytes of a single token were given for the whole micro-batch.",
    "scores kept": "The attention scores were counted as kept; flash attention never stores them.",
    "margin forgotten": "No memory was left for what the framework and the process take.",
    "logits forgotten": "The logits were left out; with a large vocabulary they outweigh what layers keep.",
    "layer at work forgotten": "Under recomputation one layer at a time is whole again; it was left out.",
    "divided by the stages": "Activations were divided by the stages; the first has that many micro-batches in flight.",
    "all micro-batches kept": "Every micro-batch of the step was counted as kept; this schedule frees the early ones.",
    "average for fullest": "An average was given; the fullest device decides whether it fits.",
    "wrong group": "The state was divided over another group of devices than the one that shares it.",
    "rounded down": "Rounded the wrong way it does not fit: devices are rounded up, sequences down.",
    # what is counted
    "one device's peak for many": "The work of all devices was divided by the peak of one.",
    "per device for total": "The figure of one device was given for all of them.",
    "total for per device": "The figure of all devices was given for one of them.",
    "accumulation forgotten": "Gradient accumulation was left out: a step is several micro-batches a replica.",
    "sharded parameter count": "The parameters of one rank's shard were taken for those of the model.",
    "padding counted": "Padding tokens were counted; nothing is learnt from them.",
    "goodput forgotten": "Failures, checkpoints and restarts were left out: held time is longer than useful time.",
    "goodput upside down": "Time was multiplied by goodput; lost time makes a run longer, so it is divided.",
    "share for ratio": "A share of the whole was given for a ratio between two parts.",
    "convention mixed": "Two conventions for FLOPs were mixed: the count of one and the rate of another.",
    # links and collectives
    "algorithm bandwidth": "Buffer over time was given; what a link carries depends on the collective and the ranks.",
    "another collective": "The bytes of another collective were counted.",
    "share for whole buffer": "The share of one rank was taken for the whole buffer, or the other way round.",
    "latency forgotten": "The bytes were counted and the latencies left out; there is one for every step.",
    "bytes forgotten": "The latencies were counted and the bytes left out.",
    "another link": "The rate of another link was used than the one this group must cross.",
    "cards not shared": "A group was given network cards that other groups of the node use at the same time.",
    "one card for all": "A group was given one network card although all its ranks on the node bring theirs.",
    "another order": "The axes were numbered in another order: the first one named is the innermost.",
    "gathered once": "Weights were gathered once for each micro-batch; backward gathers them again.",
    # thinking
    "rule for another case": "The rule belongs to another case than the one described.",
    "right for another reason": "The choice holds, but not for the reason given.",
    "half a test": "The test looks where the fault does not show.",
    # sharding and traffic
    "gradients not divided": "The gradients of the ranks were summed, and the sum was taken for the mean.",
    "gradients not reduced": "Every rank used its own gradient; the copies of the weights drift apart.",
    "reduced twice": "A gradient was reduced twice: it grows by the number of ranks, and its bytes are sent again.",
    "weights not gathered": "Each rank renewed its own piece of the weights; the others never received it.",
    "all-reduce for reduce-scatter": "Every rank was sent the whole sum although it keeps one piece of it.",
    "backward gather forgotten": "Weights were gathered once a micro-batch; backward needs them whole once more.",
    "every rung once": "The traffic was counted once a step; this rung pays it for every micro-batch.",
    "own share counted": "What a rank keeps for itself was counted as sent: one n-th never moves.",
    "grows with the ranks": "The buffer was multiplied by the ranks; in a ring a rank sends each chunk at most twice.",
    "half an all-reduce": "One of the two halves of an all-reduce was left out.",
    "all traffic scaled": "The wider gradient was applied to weights too; it changes one of several collectives.",
    "one pass of four": "One transfer was counted; tokens go out and come back, forward and backward.",
    "copies merged": "One copy of a token was sent whatever the number of its experts.",
    "experts multiplied in": "Expert ranks were counted beside the others; they are folded into them.",
    "query heads alone": "The query heads divide; the key/value heads must as well.",
    "replicas for shards": "Sharding ranks were left out of the replicas; each takes its own part of the batch.",
    "query heads for keys": "Keys and values were counted with the query heads, of which there are more.",
    "latent cut by heads": "A latent belongs to no head: tensor ranks divide heads, and each passes all of the latent.",
    "heads for latent": "Keys and values of all heads were counted; the latent they are made from is what travels.",
    "another global batch": "The plans were compared with different global batches; one of them does less work a step.",
    "sequence left whole": "Sequence parallelism ends at attention, where each device sees all tokens for its heads.",
    "whole block for piece": "A device's share was taken for that of the whole group, or the other way round.",
    # batches and schedules
    "other bubble": "Two figures are called bubble: idle time over all the time, and idle time over the time of work.",
    "work for bubble": "The share of the time that is work was given; the bubble is the rest.",
    "chunks forgotten": "Interleaving was left out: with v chunks a stage waits for shorter pieces.",
    "stages for gaps": "A stage waits for the others, of which there is one fewer than there are stages.",
    "another schedule": "This belongs to another schedule than the one asked for.",
    "even stages assumed": "The stages were taken as equally fast; the slowest sets the pace.",
    "sends forgotten": "What messages take from stage to stage was left out.",
    "micro-batch forgotten": "Sequences were taken for micro-batches, or the other way round.",
    "devices for replicas": "Devices were counted as replicas; tensor ranks and stages share one.",
    "no whole number": "The batch does not divide: with whole micro-batches another batch is trained.",
    "mean of means": "Means of micro-batches with different numbers of tokens were averaged with equal weights.",
    "one after the other": "Each micro-batch ran through all stages before the next began; the stages never overlap.",
    "drain forgotten": "The way in was counted and the way out forgotten, or the other way round.",
    "dependency ignored": "Work was started before what it needs was made.",
    # scaling
    "speedup for efficiency": "The speedup was given; efficiency divides it by the ratio of the devices.",
    "baseline of one device": "The speedup was divided by all devices, as if the baseline had one.",
    "hours for efficiency": "The ratio of the device-hours was given; efficiency is one over it.",
    "hours for MFU": "Accelerator-hours were taken for MFU; they also follow from what a token costs.",
    "price of running": "The price of an hour of running was given, not that of an hour saved.",
    "faster for cheaper": "The fastest was chosen; what it costs in device-hours was left out.",
    "another work unit": "Times of different work were divided; say first what one unit of work is.",
    "weak for strong": "Each device kept its work, so the time was to stay; no speedup of fixed work follows.",
    "bases mixed": "The rate of one local batch was divided by the baseline of another.",
    "batch for free": "Steps were divided by the batch; beyond the critical batch they hardly get fewer.",
    "steps for work": "Steps were counted that were skipped or repeated; only valid updates are work.",
    "tokens for arithmetic": "As many tokens were taken for as much arithmetic; attention grows with the sequence.",
    "share of another size": "A share of the time on one number of devices was used as a share on another.",
    "law for another question": "Gustafson's law grows the work, Amdahl's keeps it; they answer different questions.",
    # streams, paths, ranks and traces
    "all added": "All communication was added to compute; what runs beside it does not make the step longer.",
    "all hidden": "All communication was taken for hidden; on a link that cannot keep up it is not.",
    "last bucket forgotten": "The last bucket, or the first gather, has nothing to hide behind; it was left out.",
    "equal buckets assumed": "Means were taken of buckets and layers that differ; each bucket waits for its own.",
    "prefetch forgotten": "Each gather was taken for exposed; one asked for ahead runs beside the layer before.",
    "whole step covers": "All of the step was taken for cover; only work that runs after the gradients are there is.",
    "exposed halved": "The exposed time was halved; a shorter collective ends earlier by a part of all its length.",
    "cut for gain": "What was cut was taken for what is gained; beyond some point another chain decides.",
    "host added": "Host and device time were added; the host runs ahead, so the longer of the two counts.",
    "mean rank": "The mean rank was taken; all wait for the slowest.",
    "rule of thumb": "The limit for endlessly many ranks was used, the root of 2 ln n; too large for any real number.",
    "baseline without tail": "The smaller group waits for its slowest rank too; that was left out.",
    "sum over ranks": "The losses of all ranks were added; ranks that stall in the same step cost no more than one.",
    "averaged before waiting": "Times were averaged over steps first; ranks wait for the slowest of every step.",
    "another base": "The share was taken of another whole than the one named.",
    "exposed for hidden": "The exposed part was given for the hidden one, or the other way round.",
    "counted twice": "What ran twice at once was counted twice; a time is the length of a set of time.",
    "wait for transfer": "A collective lasts from a rank's arrival: on all ranks but the last that contains a wait.",
    # choosing
    "three axes first": "Axes were added that solve no problem of fit or speed; each costs communication or idle time.",
    "wall time alone": "Only the clock was looked at; devices times time is what the run costs.",
    "past the break-even": "Devices were added beyond the count whose doubling is slower; they buy nothing.",
    "tie taken for a win": "Two figures within the model's error were ordered; below it the order is chance.",
    "peak for rate": "Peaks were compared; what a device does is its peak times its utilisation.",
    "one trial for all": "One layout was counted where several are tried.",
    # the lab
    "cores shared": "Ranks that share a core were taken for devices, or one device had more cores than another.",
    "warm-up counted": "Steps were counted in which buffers are made and programs compiled.",
    "fixed part scaled": "A part of the step that every device pays was divided by the devices.",
    "not split": "Each device was given the whole batch; it takes its part.",
    "norms cut too": "Norms were divided; every tensor rank holds them whole.",
    "gradients left out": "The gradients were left out; each weight has one.",
    "gathered twice": "Each tensor was gathered twice; here it is kept after the first time.",
    "ends forgotten": "What stands outside of the layers was forgotten: embedding, head, last norm.",
    "one a layer": "A layer was counted as one; it has several tensors.",
    "count for measurement": "A count was taken for a measurement; it is the same on every run.",
    "all of it the bubble": "All idle time was ascribed to what the formula explains only in part.",
    "one host for a cluster": "One host was taken for a cluster; no network between hosts was measured.",
    "drawn beyond the data": "A fit was used where nothing was measured.",
    "throughput for quality": "Rates were taken to say how well a model trains.",
    "fit for test": "What was fitted was taken for tested; a test is measured afterwards, and could have failed.",
    # layouts
    "illegal layout": "The layout breaks a rule of divisibility or uses another number of devices.",
    "does not fit": "The fullest device needs more memory than it has.",
    "far from the best": "The layout runs, but another one is clearly faster.",
}
"""Name -> what went wrong, in one line."""


def explain(name: str) -> str:
    """Return the line of a mistake.

    Raises:
        KeyError: no mistake has this name.
    """
    return MISTAKES[name]
