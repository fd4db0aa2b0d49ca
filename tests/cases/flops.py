"""Cases about FLOPs, peaks and utilisation."""

from __future__ import annotations

import dataclasses

import pytest

from cases.book import TERA, case
from course import batch, catalog, estimate, mfu
from course.catalog import UnknownName
from course.errors import UserError
from course.estimate import count, flops_per_token


def _mfu(rate: float, peak: float) -> float:
    return mfu.mfu(model_flops=rate, devices=1, peak_flops_per_s=peak, time=1)


@case("MFU-01", mfu_sparse_peak="mfu")
def _(given):
    peak = catalog.accelerator("H100 SXM").peak_flops_per_s
    return {"peak_dense": peak / TERA, "mfu": _mfu(given["achieved_TFLOPs_per_gpu"] * TERA, peak)}


@case("MFU-03", mfu_sparse_peak="mfu")
def _(given):
    flops = flops_per_token(catalog.model("llama-2-7b"), given["T"])["full_attention"]
    return {"flops_per_token": flops, "mfu": _mfu(flops * given["tokens_per_s_per_gpu"], given["peak_TFLOPs"] * TERA)}


@case("MFU-05", reported="mfu")
def _(given):
    with pytest.raises(UnknownName):  # never a silent default
        catalog.accelerator("an unheard-of accelerator")
    rate = given["reported_mfu"] * given["fallback_peak_TFLOPs"]
    return {"mfu": _mfu(rate, given["true_dense_peak_TFLOPs"])}


@case("MFU-07")
def _(given):
    with pytest.raises(UnknownName):
        catalog.accelerator(given["device"])
    return {"mfu": None, "status": "unknown_peak"}


@case("MFU-09", mfu_sparse="mfu", mfu_sxm="mfu")
def _(given):
    peak = catalog.accelerator(given["variant"]).peak_flops_per_s
    return {"peak": peak / TERA, "mfu": _mfu(given["achieved_TFLOPs"] * TERA, peak)}


@case("MFU-11", mfu_after_wrong_fix="mfu", mfu_tf32_dense="mfu")
def _(given):
    peak = catalog.accelerator("h100-sxm", given["run_dtype"]).peak_flops_per_s
    return {"peak_bf16_dense": peak / TERA, "mfu": _mfu(given["achieved_TFLOPs"] * TERA, peak)}


@case("MFU-13")
def _(given):
    return {"mfu": _mfu(given["achieved_TFLOPs"] * TERA, catalog.accelerator("A100").peak_flops_per_s)}


@case("MFU-15", peak="peak_TFLOPs")
def _(given):
    return {"peak_TFLOPs": catalog.accelerator("mi300x").peak_flops_per_s / TERA}


@case("MFU-17", mfu_mixed="mfu")
def _(given):
    per_token = estimate.palm(
        parameters=given["N"], layers=given["L"], heads=given["H"], head_size=given["Q"], sequence_length=given["T"]
    )
    step = {"flops_per_token": per_token, "peak_flops_per_s": given["peak_TFLOPs"] * TERA, "step_time": given["dt"]}
    accumulated = given["accum_global"] // given["world"]
    shape = {"micro_batch": given["mb"], "sequence_length": given["T"], "accumulation": accumulated}
    one = mfu.step_mfu(**step, devices=1, tokens_per_step=batch.tokens_per_step(data=1, **shape))
    everyone = batch.tokens_per_step(data=given["world"], **shape)
    assert mfu.step_mfu(**step, devices=given["world"], tokens_per_step=everyone) == pytest.approx(one)
    with pytest.raises(UserError, match="FLOPs of all devices over one device's peak"):
        mfu.refuse_above_one(mfu.step_mfu(**step, devices=1, tokens_per_step=everyone))
    return {"mfu": one}


@case("MFU-19", u="utilisation")
def _(given):
    rate, peak = given["kernel_TFLOPs_causal_counted"] * TERA, given["peak_TFLOPs"] * TERA
    core = {"matmul_parameters": 0, "layers": 1, "heads": 1, "head_size": 1, "sequence_length": 16384}
    full = rate * estimate.full_attention(**core) / estimate.causal_attention(**core)
    with pytest.raises(UserError, match="the full attention square under a kernel that skips half of it"):
        mfu.refuse_above_one(_mfu(full, peak))
    return {"utilisation": mfu.refuse_above_one(_mfu(rate, peak)), "utilisation_full_square": _mfu(full, peak)}


@case("MFU-21", ratio="ratio_causal_to_full")
def _(given):
    core = {"matmul_parameters": given["N_matmul"], "layers": given["L"], "heads": 32, "head_size": given["d"] // 32}
    core["sequence_length"] = given["T"]
    return {"ratio_causal_to_full": estimate.causal_attention(**core) / estimate.full_attention(**core)}


@case("MFU-23", untied="head_untied", tied_head="head_tied")
def _(given):
    def head(tied: bool) -> float:
        model = dataclasses.replace(
            catalog.model("llama-3-8b"), hidden=given["h"], vocabulary=given["V"], tied_embeddings=tied
        )
        without = dataclasses.replace(model, vocabulary=1)
        more = count(model).matmul_active - count(without).matmul_active + given["h"]
        return estimate.matmul_flops(rows=1, inner=1, columns=more)

    assert head(True) == estimate.matmul_flops(rows=1, inner=given["h"], columns=given["V"])
    return {"embed": 0, "head_tied": head(True), "head_untied": head(False)}  # looking up multiplies nothing


@case("MFU-25", TFLOP="active_TFLOP")
def _(given):
    model = catalog.model("mixtral-8x7b")
    everyone = dataclasses.replace(model, experts_per_token=given["E"])
    active, dense = (flops_per_token(one, given["T"])["full_attention"] * given["tokens"] for one in (model, everyone))
    return {"active_TFLOP": active / TERA, "all_experts_TFLOP": dense / TERA}


@case("MFU-27", thread_formula="flops", mha="flops")
def _(given):
    query, key = given["heads"] * given["head_dim"], given["groups"] * given["head_dim"]
    widths = ((given["h"], query), (given["h"], key), (given["h"], key), (query, given["h"]))
    return {"flops": sum(estimate.matmul_flops(rows=1, inner=inner, columns=columns) for inner, columns in widths)}


@case("MFU-29", attn="attn_flops_per_token")
def _(given):
    def attention(head_size: float) -> float:
        return estimate.full_attention(
            matmul_parameters=0,
            layers=given["L"],
            heads=given["heads"],
            head_size=head_size,
            sequence_length=given["T"],
        )

    free = attention(
        catalog.model("qwen3-4b").head_size if "qwen3-4b" in catalog.names("models") else given["head_dim"]
    )
    return {"attn_flops_per_token": free, "ratio_to_d_based": free / attention(given["d"] / given["heads"])}


@case("MFU-31")
def _(given):
    layers = {"matmul_parameters": 1e12, "layers": 1, "heads": 1, "head_size": 1, "sequence_length": 1}
    executed = estimate.executed(**layers, hidden=1, vocabulary=1, full_recompute=1, core_recompute=0)
    model = given["logged_TFLOPs"] * estimate.full_attention(**layers) / executed
    return {"mfu": _mfu(model, given["peak_TFLOPs"]), "hfu": _mfu(given["logged_TFLOPs"], given["peak_TFLOPs"])}


@case("MFU-33", small_executed="small", big_executed="big")
def _(given):
    def share(layers: int, h: int) -> float:
        widths = {"heads": 1, "kv_heads": 1, "head_size": h, "ffn": 4 * h, "mlp_matrices": 2}
        whole = estimate.matmul_parameters(layers=layers, hidden=h, vocabulary=given["V"], **widths)
        head = estimate.matmul_flops(rows=1, inner=h, columns=given["V"])
        return head / (estimate.matmul_flops(rows=1, inner=1, columns=whole) - head)

    return {size: share(given[size]["L"], given[size]["h"]) for size in ("small", "big")}


@case("MFU-35", mfu="useful_mfu")
def _(given):
    step = {"devices": 1, "peak_flops_per_s": TERA, "step_time": 1}
    per_token = mfu.step_mfu.solve(
        "flops_per_token", equals=given["logged_mfu"], tokens_per_step=given["tokens_per_s"], **step
    )
    useful = mfu.tokens_per_s(tokens_per_step=given["tokens_per_s"] * given["real_fraction"], step_time=1)
    share = mfu.step_mfu(flops_per_token=per_token.value, tokens_per_step=useful, **step)
    return {"useful_tokens_per_s": useful, "useful_mfu": share}


@case("MFU-37")
def _(given):
    return {"tokens_per_s": mfu.tokens_per_s(tokens_per_step=given["tokens_per_step"], step_time=given["last_step_s"])}


@case("MFU-39")
def _(given):
    # context ranks share a sequence, so they are no data-parallel replicas
    tokens = batch.tokens_per_step(data=1, micro_batch=given["batch"], sequence_length=given["seq"], accumulation=1)
    return {"tokens_per_s": mfu.tokens_per_s(tokens_per_step=tokens, step_time=given["dt"])}


@case("MFU-41")
def _(given):
    shape = {"micro_batch": given["mb"], "sequence_length": given["T"], "accumulation": 1}
    rates = [
        mfu.tokens_per_s(tokens_per_step=batch.tokens_per_step(data=data, **shape), step_time=given["dt"])
        for data in (given["gpus"], 1)
    ]
    return {"total": rates[0], "per_gpu": rates[1]}


@case("MFU-43", bf16="mfu_weighted", arith="mfu_weighted")
def _(given):
    rate = given["achieved_TFLOPs"]
    shares = ((given["share_fp8"], given["peak_fp8"]), (1 - given["share_fp8"], given["peak_bf16"]))
    ideal = sum(
        estimate.operation_time(
            kernel_flops=rate * share, kernel_bytes=0, peak_flops_per_s=peak, efficiency=1, memory_bytes_per_s=1
        )
        for share, peak in shares
    )
    return {"mfu_all_fp8": _mfu(rate, given["peak_fp8"]), "mfu_weighted": ideal}  # ideal time of a second's work


@case("MFU-45", T="T_full_square")
def _(given):
    widths = {"layers": 1, "hidden": given["D"], "heads": 36, "head_size": given["D"] // 36}
    matrices = (
        estimate.matmul_parameters(**widths, kv_heads=36, ffn=given["F"], mlp_matrices=3, vocabulary=1) - given["D"]
    )
    core = {"matmul_parameters": matrices, "layers": 1, "heads": 36, "head_size": given["D"] // 36}

    def crossing(convention) -> float:
        twice = 2 * estimate.six_ps(parameters=matrices)  # scores as much as all matrices
        return convention.solve("sequence_length", equals=twice, **core).value

    return {"T_full_square": crossing(estimate.full_attention), "T_causal": crossing(estimate.causal_attention)}
