"""Every symbol of the course once: what it means, its unit, and the range in which it makes sense.

A symbol has two names. The *key* is a Python word (`micro_batch`); it is what formulas take as a keyword and what a run
file calls the field. The *notation* is the letter of the field (`B`); it is what the reader sees.
The two source documents count devices with R and with D: both stand here, and both mean the same things.

>>> print(SYMBOLS["tensor"].symbol, "=", SYMBOLS["tensor"].meaning)
T_p = tensor-parallel degree
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

HUGE = 1e30
"""Upper end of an open range: larger than any quantity of a training run, small enough not to overflow when squared."""


@dataclass(frozen=True)
class Entry:
    """One symbol: `key` and `symbol` name it, `unit` is an expression in the base units, `low`..`high` its range."""

    key: str
    symbol: sp.Symbol
    meaning: str
    unit: str
    low: float
    high: float
    whole: bool


def _entry(key: str, notation: str, unit: str, meaning: str, low: float = 0.0, high: float = HUGE) -> Entry:
    whole = unit.endswith("#")  # '#' marks a count: solved over the integers
    symbol = sp.Symbol(notation, positive=True) if low > 0 else sp.Symbol(notation, nonnegative=True)
    return Entry(key, symbol, meaning, unit.rstrip("#").strip() or "1", low, high, whole)


_TABLE = (
    # shape of the model
    _entry("layers", "L", "#", "layers of the model", 1),
    _entry("hidden", "h", "#", "hidden width: numbers that stand for one token between layers", 1),
    _entry("heads", "a", "#", "attention (query) heads of a layer", 1),
    _entry("kv_heads", "a_kv", "#", "key/value heads of a layer; fewer than heads under grouped-query attention", 1),
    _entry("head_size", "d", "#", "width of one attention head", 1),
    _entry("ffn", "f", "#", "width of the feed-forward (MLP) block", 1),
    _entry("vocabulary", "V", "#", "entries of the vocabulary", 1),
    _entry("mlp_matrices", "n_mlp", "#", "matrices of the MLP: 3 when gated (SwiGLU), else 2", 1, 3),
    _entry(
        "embedding_tables",
        "e",
        "#",
        "stored vocabulary tables: 2, or 1 when input table and output head are tied",
        1,
        2,
    ),
    _entry("layer_vectors", "w_L", "#", "parameters of one layer outside its matrices: norms and biases"),
    _entry("outer_vectors", "w_0", "#", "parameters outside layers and tables: last norm, learned positions"),
    _entry("parameters", "P", "1", "parameters, every tensor once"),
    _entry(
        "matmul_parameters", "N", "1", "parameters that multiply each token: matrices of all layers and the output head"
    ),
    _entry("experts", "E", "#", "routed experts of a mixture layer", 1),
    _entry("experts_per_token", "k_E", "#", "routed experts one token is sent to", 1),
    _entry("shared_experts", "E_s", "#", "experts every token passes, beside the routed ones"),
    _entry("expert_ffn", "f_E", "#", "width of one expert", 1),
    _entry("dense_layers", "L_d", "#", "layers without experts"),
    _entry("q_lora", "r_q", "#", "width of the vector queries are compressed to in latent attention"),
    _entry("kv_lora", "r_kv", "#", "width of the vector keys and values are compressed to in latent attention", 1),
    _entry("rope_head_size", "d_r", "#", "part of a query and key head that carries the position", 1),
    _entry("nope_head_size", "d_n", "#", "part of a query and key head without position", 1),
    _entry("v_head_size", "d_v", "#", "width of a value head in latent attention", 1),
    _entry("query_compressed", "c_q", "1", "1 when latent attention compresses queries as well, else 0", 0, 1),
    _entry("latent_recompute", "r_lat", "1", "1 when Q, K and V are made again from their latents, else 0", 0, 1),
    _entry("sliding_window", "w_a", "token #", "tokens a local attention layer looks back", 1),
    # work
    _entry("tokens", "S", "token", "training tokens of the run"),
    _entry("sequence_length", "T", "token/sequence #", "tokens of one sequence", 1),
    _entry("micro_batch", "B", "sequence #", "local micro-batch: sequences one replica works on at once", 1),
    _entry("global_batch_sequences", "B_g", "sequence #", "global batch: sequences of one optimizer step", 1),
    _entry("accumulation", "G", "#", "micro-batches a replica accumulates in one optimizer step", 1),
    _entry(
        "micro_batches",
        "M",
        "#",
        "micro-batches that pass a pipeline in one step (M = G unless they are split again)",
        1,
    ),
    _entry("reductions", "G_r", "#", "gradient reductions a replica makes in one step", 1),
    _entry("executed_flops", "F_exec", "FLOP", "FLOPs executed, recomputation included"),
    _entry("flops_per_token", "F_t", "FLOP/token", "training FLOPs of one token"),
    _entry("model_flops", "F_model", "FLOP", "FLOPs the model needs for the work that is timed: a step, or a run"),
    _entry("full_recompute", "r_full", "1", "1 when every layer is recomputed in backward, else 0", 0, 1),
    _entry("core_recompute", "r_core", "1", "1 when the attention core is recomputed in backward, else 0", 0, 1),
    # layout
    _entry("data", "D_p", "#", "data-parallel degree: replicas", 1),
    _entry("tensor", "T_p", "#", "tensor-parallel degree", 1),
    _entry("pipeline", "P_p", "#", "pipeline stages", 1),
    _entry("context", "C_p", "#", "context-parallel degree: ranks that share one sequence", 1),
    _entry("expert", "E_p", "#", "expert-parallel degree: ranks the experts of a layer are spread over", 1),
    _entry("expert_tensor", "E_tp", "#", "ranks that share the matrices of one expert", 1),
    _entry("expert_data", "E_dp", "#", "expert data-parallel degree: ranks that hold the same experts", 1),
    _entry("interleave", "v", "#", "chunks of layers one pipeline stage holds", 1),
    _entry("stage", "i", "#", "pipeline stage, counted from 0"),
    _entry("ranks", "n", "#", "ranks of a group", 1),
    _entry("shard_group", "n_g", "#", "ranks that share one copy of the state; other groups hold copies of it", 1),
    _entry("shard_optimizer", "z_1", "1", "1 when optimizer state is sharded (ZeRO-1 and above), else 0", 0, 1),
    _entry("shard_gradients", "z_2", "1", "1 when gradients are sharded (ZeRO-2 and above), else 0", 0, 1),
    _entry("shard_weights", "z_3", "1", "1 when weights are sharded (ZeRO-3, FSDP), else 0", 0, 1),
    _entry(
        "sequence_sharded",
        "s_p",
        "1",
        "1 when sequence parallelism shards what lies around attention and MLP, else 0",
        0,
        1,
    ),
    # devices and cluster
    _entry("devices", "R", "device #", "accelerators", 1),
    _entry("held_devices", "R_held", "device #", "accelerators held, at work or not", 1),
    _entry("baseline_devices", "D_0", "device #", "accelerators of the baseline", 1),
    _entry("scaled_devices", "D", "device #", "accelerators of the run compared with the baseline", 1),
    _entry("peak_flops_per_s", "C", "FLOP/s/device", "dense peak rate of one accelerator", 1),
    _entry("memory_bytes_per_s", "W_mem", "byte/s/device", "memory bandwidth of one accelerator", 1),
    _entry("memory_bytes", "C_mem", "byte/device", "memory of one accelerator", 1),
    _entry(
        "goodput", "gamma", "1", "share of held time that makes progress: no failures, restarts, checkpoints", 1e-6, 1
    ),
    _entry("price_per_accelerator_hour", "p_h", "currency/device/hour", "price of one accelerator for one hour"),
    _entry("mfu", "MFU", "1", "model FLOPs utilization", 1e-9, 1),
    _entry("efficiency", "eta", "1", "share of the dense peak a kernel reaches", 1e-9, 1),
    # links
    _entry("latency", "alpha", "s", "latency of one message"),
    _entry("bandwidth", "beta", "byte/s/device", "one-way bandwidth of one device on a link", 1),
    _entry("scale_up_bytes_per_s", "beta_up", "byte/s/device", "one-way bandwidth of one device inside its node", 1),
    _entry("scale_out_bytes_per_s", "beta_out", "byte/s/device", "one-way network bandwidth of one device", 1),
    _entry("ranks_per_node", "k", "#", "ranks of one group that sit on the same node", 1),
    _entry("payload_bytes", "X", "byte/device", "bytes of the buffer a collective works on, whole, on each rank"),
    _entry("scale_up_latency_s", "alpha_up", "s", "latency of one message inside a node"),
    _entry("scale_out_latency_s", "alpha_out", "s", "latency of one message between nodes"),
    _entry("nodes", "n_N", "#", "nodes a group of ranks spans", 1),
    _entry("levels", "l_t", "#", "levels of a binary tree: it has 2^levels ranks"),
    _entry("torus_axes", "d_t", "#", "axes of a torus a collective uses", 1),
    _entry("torus_side", "s_t", "#", "devices along each axis of a torus", 1),
    _entry("link_bytes_per_s", "beta_l", "byte/s/device", "one-way bandwidth of one link to one neighbour", 1),
    _entry("oversubscription", "o", "1", "what nodes below a leaf switch can send, over what it sends upwards", 1),
    _entry("leaf_nodes", "n_L", "#", "nodes below one leaf switch", 1),
    _entry(
        "tokens_per_device", "tau", "token/device", "tokens of a micro-batch, divided by the devices that share it", 1
    ),
    _entry("tensor_units", "u_T", "#", "tensor-parallel units (gather or scatter) of a layer, forward and backward"),
    # bytes
    _entry("weight_bytes", "b_w", "byte", "bytes of one weight as the matmuls read it"),
    _entry("gradient_bytes", "b_g", "byte", "bytes of one gradient as stored"),
    _entry("optimizer_bytes", "b_o", "byte", "bytes of optimizer state a parameter: master copy and moments"),
    _entry("reduced_gradient_bytes", "g", "byte", "bytes of one gradient on the wire"),
    _entry("activation_bytes", "b_a", "byte", "bytes of one saved activation", 0.5),
    _entry("logit_bytes", "b_V", "byte", "bytes held for one logit at the peak"),
    _entry("stage_parameters", "P_s", "1", "parameters of one pipeline stage before tensor sharding"),
    _entry("layer_parameters", "P_L", "1", "parameters of one layer"),
    _entry("expert_parameters", "P_E", "1", "parameters of the routed experts of one pipeline stage"),
    _entry("stage_layers", "L_s", "#", "layers of one pipeline stage"),
    _entry("token_layer_bytes", "A", "byte/token", "bytes saved for backward by one layer for one token"),
    _entry("input_bytes", "A_in", "byte/token", "bytes of one layer's input for one token"),
    _entry("checkpoint_layers", "k_c", "1", "layers between two saved inputs under recomputation", 1),
    _entry("in_flight", "m", "1", "micro-batches whose activations a stage holds at once"),
    _entry("unfused_attention", "u", "1", "1 when attention stores its score matrix, 0 with flash attention", 0, 1),
    _entry("dropout", "delta", "1", "1 when dropout masks are stored, else 0", 0, 1),
    # matmul and roofline
    _entry("rows", "m_r", "#", "rows of the left matrix of a matmul (tokens)", 1),
    _entry("inner", "k_r", "#", "inner width of a matmul", 1),
    _entry("columns", "n_r", "#", "columns of the right matrix of a matmul", 1),
    _entry("intensity", "I", "FLOP/byte", "arithmetic intensity: FLOPs for each byte moved"),
    _entry("kernel_flops", "F_k", "FLOP/device", "FLOPs of one operation on one device"),
    _entry("kernel_bytes", "Q", "byte/device", "bytes one operation moves to and from memory on one device"),
    # times
    _entry("time", "t", "s", "productive time: that in which a run makes progress"),
    _entry("step_time", "t_step", "s", "time of one optimizer step"),
    _entry("busy_time", "t_busy", "s", "time of a step in which devices compute, averaged over devices"),
    _entry("waiting_time", "t_wait", "s", "time of a step in which devices wait, averaged over devices"),
    _entry("held_time", "t_held", "s", "time for which devices are held"),
    _entry("lost_time", "t_lost", "s", "time one interruption loses"),
    _entry("interruptions", "n_s", "#", "interruptions of a run"),
    _entry("baseline_time", "t_0", "s", "time of the baseline for the same work"),
    _entry("scaled_time", "t_D", "s", "time of the scaled run for the same work", 1e-15),
    _entry("slowest_stage_time", "t_max", "s", "forward and backward time of one micro-batch on the slowest stage"),
    _entry("sum_stage_times", "t_sum", "s", "forward and backward time of one micro-batch, summed over stages"),
    _entry("stage_forward_time", "t_F", "s", "forward time of one micro-batch on one stage"),
    _entry("input_gradient_time", "t_B", "s", "time of the part of backward that makes the gradient of the input"),
    _entry("weight_gradient_time", "t_W", "s", "time of the part of backward that makes the gradients of the weights"),
    _entry("slowest_forward_time", "f_max", "s", "forward time of one micro-batch on the stage slowest in forward"),
    _entry("slowest_backward_time", "b_max", "s", "backward time of one micro-batch on the stage slowest in backward"),
    _entry("send_time", "t_send", "s", "delay of one message from a stage to the next"),
    _entry("compute_per_layer", "c", "s", "compute time of one layer (or bucket) that can cover communication"),
    _entry("forward_per_layer", "c_f", "s", "time of one layer forward that can cover communication"),
    _entry("backward_per_layer", "c_b", "s", "time of one layer backward that can cover communication"),
    _entry("communication_per_layer", "r", "s", "communication time of one layer (or bucket)"),
    _entry("buckets", "K", "#", "layers or buckets of the timeline", 1),
    _entry("device_time", "t_dev", "s", "time the device works on one layer"),
    _entry("host_time", "t_host", "s", "time the host needs to launch one layer"),
    _entry("loader_time", "t_load", "s", "time one loader worker needs to make the input of a step"),
    _entry("loader_workers", "N_load", "#", "loader workers that make inputs side by side", 1),
    _entry("mean_rank_time", "t_mean", "s", "mean time of a rank's step before it waits for others"),
    _entry("fresh_spread", "s_f", "s", "standard deviation of a rank's step time, drawn anew each step"),
    _entry("lasting_spread", "s_l", "s", "standard deviation over ranks of what stays a rank's own step after step"),
    _entry("steps_between_waits", "n_w", "#", "steps from one wait for all ranks to the next", 1),
    _entry("normal_maximum", "m_n", "1", "largest of n standard normal numbers, on average", 0, 40),
    _entry("stall_time", "t_stall", "s", "how long a stall holds one rank up"),
    _entry("stall_chance", "p_stall", "1", "chance that a rank stalls in a step", 0, 0.9999),
    _entry("compute_time", "t_c", "s", "compute time"),
    _entry("communication_time", "t_x", "s", "communication time"),
    _entry("tokens_per_step", "S_step", "token", "tokens of one optimizer step"),
    # scaling: two experiments, the laws, and the price of a larger batch
    _entry("time_on_baseline", "t(D_0)", "s", "time of one work unit of the baseline, on its D_0 devices", 1e-15),
    _entry("time_on_devices", "t(D)", "s", "time of one work unit on D devices", 1e-15),
    _entry("baseline_work", "W_0", "FLOP", "model FLOPs of one work unit of the baseline", 1e-15),
    _entry("scaled_work", "W", "FLOP", "model FLOPs of one work unit on D devices"),
    _entry("fixed_time", "t_fix", "s", "part of the baseline's time that more devices do not change"),
    _entry("divisible_time", "t_div", "s", "part of the baseline's time that D devices share", 1e-15),
    _entry("growing_time", "t_grow", "s", "time that each further D_0 devices add"),
    _entry("fixed_share", "sigma", "1", "share of the baseline's time that more devices do not change", 0, 0.999999),
    _entry("growing_share", "kappa", "1", "time that each further D_0 devices add, over the time of the baseline"),
    _entry("device_ratio", "x", "1", "devices over those of the baseline, more than 1", 1.0001),
    _entry("large_fixed_share", "sigma_D", "1", "share of the time on D devices that is not divisible", 0, 0.999999),
    _entry("least_steps", "n_min", "1", "steps to the target however large the batch", 1e-9),
    _entry("least_sequences", "e_min", "sequence", "sequences to the target however small the batch", 1e-9),
    _entry("critical_batch", "B_c", "sequence", "critical batch: there twice n_min steps, twice e_min sequences", 1e-9),
)

SYMBOLS: dict[str, Entry] = {entry.key: entry for entry in _TABLE}
BY_SYMBOL: dict[sp.Symbol, Entry] = {entry.symbol: entry for entry in _TABLE}


def symbols(*keys: str) -> tuple[sp.Symbol, ...]:
    """The SymPy symbols of the named keys, in order.

    >>> symbols("layers", "hidden")
    (L, h)
    """
    return tuple(SYMBOLS[key].symbol for key in keys)
