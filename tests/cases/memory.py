"""Cases about what a device must hold."""

from __future__ import annotations

from cases.book import GIGA, case
from cases.runs import run_with
from course import batch, catalog, constrain, estimate, shard
from course.predict import predict
from course.predict.columns import from_layout
from course.predict.stages import stages


def _state(parameters: float, ranks: float, stage: int, weights: float, gradients: float, optimizer: float) -> float:
    """GB of model state on one device."""
    flags = list(shard.STAGE_FLAGS.values())[stage]
    return (
        shard.state_per_device(
            stage_parameters=parameters, tensor=1, ranks=ranks, weight_bytes=weights, gradient_bytes=gradients,
            optimizer_bytes=optimizer, **flags,
        ) / GIGA
    )  # fmt: skip


@case("MEM-01", zero2_like="dist_opt_GB", sixteen="plain_GB")
def _(given):
    recipe = catalog.state("bf16-18")
    parts = (recipe.weights, recipe.all_gradients, recipe.optimizer)
    return {
        "plain_GB": _state(given["params_per_gpu"], given["dp"], 0, *parts),
        "dist_opt_GB": _state(given["params_per_gpu"], given["dp"], 1, *parts),
    }


@case("MEM-03")
def _(given):
    return {f"z{stage}": _state(given["P"], given["N"], stage, 2, 2, 12) for stage in range(4)}


@case("MEM-05", GB="with_fp32_grad_GB")
def _(given):
    held = [
        estimate.state_bytes(parameters=given["P"], weight_bytes=4, gradient_bytes=gradient, optimizer_bytes=8) / GIGA
        for gradient in (0, 4)
    ]
    return {"persistent_GB": held[0], "with_fp32_grad_GB": held[1], "fits": held[1] < given["total_GB"]}


@case("MEM-07")
def _(given):
    return {
        "mixed_GB": _state(given["P"], given["N"], 3, 4, 4, 8),
        "true_bf16_GB": _state(given["P"], given["N"], 3, 2, 2, 4),
    }


@case("MEM-09")
def _(given):
    run = run_with(layers=sum(given["layers"]), devices=4, layout=f"pipeline = 4\nstage_layers = {given['layers']}")
    found = stages(run, from_layout(run.layout, run))
    held = found.layers * given["per_layer"] + found.has_input * given["embed"] + found.has_head * given["head"]
    average = (held * found.stands_for).sum() / found.stands_for.sum()
    return {"heaviest": held.max(), "average": average, "under": 1 - average / held.max()}


@case("MEM-11")
def _(given):
    one = estimate.layer_input_bytes(hidden=given["h"], activation_bytes=2, sequence_sharded=0, tensor=1)
    held = {
        norms: constrain.activation_memory(
            token_layer_bytes=one * norms,
            micro_batch=given["b"],
            sequence_length=given["s"],
            stage_layers=1,
            in_flight=1,
        )
        / 1e6
        for norms in (1, catalog.model("llama-2-7b").norms_per_layer)
    }
    return {"one_MB": held[1], "two_MB": held[2]}


@case("MEM-13")
def _(given):
    def layer(unfused: int, core: int) -> float:
        h, a = given["h"], given["a"]
        per_token = estimate.token_layer_bytes(
            hidden=h, heads=a, kv_heads=a, head_size=h // a, ffn=4 * h, mlp_matrices=2, sequence_length=given["s"],
            activation_bytes=2, dropout=1, unfused_attention=unfused, core_recompute=core, sequence_sharded=0, tensor=1,
        )  # fmt: skip
        return per_token * given["s"] * given["b"] / GIGA

    return {
        "saved_naive_GB": layer(1, 0) - layer(1, 1),
        "saved_share": 1 - layer(1, 1) / layer(1, 0),
        "saved_with_fused_GB": layer(0, 0) - layer(0, 1),
    }


@case("MEM-15")
def _(given):
    first = {"pipeline": given["p"], "micro_batches": given["M"], "stage": 0}
    held = batch.interleaved_in_flight(**first, interleave=given["v"])
    return {"chunks": held * given["v"], "ratio": held / batch.one_f_one_b_in_flight(**first)}


@case("MEM-17")
def _(given):
    found = estimate.logits_bytes.solve(
        "sequence_length", equals=given["GiB"] * 2**30, micro_batch=1, vocabulary=given["cols"], tensor=1,
        logit_bytes=given["bytes"],
    )  # fmt: skip
    return {"tokens": found.value, "times_limit": found.value / given["token_limit"]}


@case("MEM-19", GiB="GiB_pow2")
def _(given):
    def logits(words: int) -> float:
        shape = {"micro_batch": 1, "sequence_length": given["T"], "tensor": 1}
        return estimate.logits_bytes(logit_bytes=2, vocabulary=words, **shape) / 2**30

    assert catalog.model("llama-3-8b").vocabulary == given["V_llama3"]
    return {"GiB_pow2": logits(given["V_pow2"]), "GiB_llama3": logits(given["V_llama3"])}


@case("MEM-21")
def _(given):
    device = catalog.accelerator("h100-sxm")
    assert device.memory_bytes == given["MiB"] * 2**20
    memory = predict(run_with(layers=8, devices=1, layout="data = 1"))["memory"]
    plan = (given["plan_GB"] + given["margin_GB"]) * GIGA
    return {
        "capacity_GB": device.memory_bytes / GIGA,
        "capacity_GiB": memory["capacity_gib"],
        "fits": plan <= memory["capacity_gib"] * 2**30,
    }


@case("MEM-25")
def _(given):
    parts = (given["P"], given["world"], 3, 2, 2, 12)
    return {"fsdp_GB": _state(*parts), "hsdp_GB": _state(given["P"], given["group"], *parts[2:])}


@case("MEM-27", total="tp_attention")
def _(given):
    def kept(sharded: int) -> float:
        one = {"hidden": 1, "activation_bytes": 1, "tensor": given["tp"], "sequence_sharded": sharded}
        return given["T"] * estimate.layer_input_bytes(**one)

    # attention works on whole sequences: its heads are what is split
    scores = {
        tensor: estimate.full_attention(
            matmul_parameters=0, layers=1, heads=64 // tensor, head_size=1, sequence_length=given["T"]
        ) for tensor in (1, given["tp"])
    }  # fmt: skip
    length = given["T"] * scores[given["tp"]] * given["tp"] / scores[1]
    # a context rank holds its share of every sequence, in attention too: activations over those of one token
    run = run_with(given["cp"], f"context = {given['cp']}", sequence_length=given["T"])
    one = estimate.token_layer_bytes(
        **estimate.pick(estimate.token_layer_bytes, estimate.shape(run.model)), sequence_length=given["T"],
        activation_bytes=2, tensor=1, sequence_sharded=0, core_recompute=0, unfused_attention=0, dropout=0,
    )  # fmt: skip
    held = predict(run)["memory"]["parts_gib"]["activations"] * 2**30 / (one * run.model.layers)
    return {
        "tp_attention": length, "between_blocks_no_sp": kept(0), "between_blocks_sp": kept(1), "cp_rank": held,
    }  # fmt: skip
