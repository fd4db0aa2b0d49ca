"""Cases about bytes, links and bandwidths."""

from __future__ import annotations

from cases.book import GIGA, case
from course import catalog, mfu, overlap, place, shard


@case("COM-01")
def _(given):
    measured = {"payload_bytes": given["bytes"], "communication_time": given["us"] * 1e-6}
    return {
        "algbw": place.algorithm_bandwidth(**measured) / GIGA,
        "busbw": place.all_reduce_bus_bandwidth(ranks=given["n"], **measured) / GIGA,
    }


@case("COM-03", busbw2="busbw")
def _(given):
    measured = {"payload_bytes": given["n"] * given["per_rank"], "communication_time": given["ms"] * 1e-3}
    return {
        "algbw": place.algorithm_bandwidth(**measured) / GIGA,
        "busbw": place.all_gather_bus_bandwidth(ranks=given["n"], **measured) / GIGA,
    }


@case("COM-05", dir="dir")
def _(given):
    one_way = [given["links"]["V100"] * given["per_link_dir"]]  # no fabric of the catalog is that old
    for name in ("A100", "H100"):
        fabric = catalog.fabric(catalog.fabrics_for(catalog.find("accelerators", name))[0])
        assert fabric.scale_up_bytes_per_s == given["links"][name] * given["per_link_dir"] * GIGA
        one_way.append(fabric.scale_up_bytes_per_s / GIGA)
    return {"dir": one_way, "both": [2 * rate for rate in one_way]}


@case("COM-07")
def _(given):
    line = catalog.fabric("h100-ib400").scale_up_bytes_per_s
    both, one = (
        place.algorithm_bandwidth(payload_bytes=rate * GIGA, communication_time=1) / line
        for rate in (given["bidir"] / 2, given["uni"])
    )
    return {"eff_bidir": both, "eff_uni": one}


@case("COM-09")
def _(given):
    card = given["Gbps"] / 8
    line = place.group_bandwidth(
        scale_up_bytes_per_s=450e9, scale_out_bytes_per_s=card * GIGA, ranks_per_node=given["nics"]
    )
    got = given["got_Gbps"] / 8
    return {"line_GBs": line / GIGA, "got_GBs": got, "efficiency": got * GIGA / line}


@case("COM-15", GB="GB")
def _(given):
    def sent(ranks: float) -> float:
        return shard.data_parallel_traffic(
            ranks=ranks, stage_parameters=given["P"], tensor=1, reduced_gradient_bytes=given["bytes"]
        ) / GIGA  # fmt: skip

    return {"GB": sent(given["N"]), "limit_GB": sent(1e12)}


@case("COM-17")
def _(given):
    four = 4 * given["batch"]
    rates = [
        mfu.tokens_per_s(tokens_per_step=size, step_time=t)
        for size, t in ((given["batch"], given["t1"]), (four, given["t4"]))
    ]
    saved = 1 - 1 / mfu.speedup(baseline_time=1 / rates[0], scaled_time=1 / rates[1])
    return {"r1": rates[0], "r4": rates[1], "saved_share": saved}


@case("COM-19")
def _(given):
    def sent(gradient: float) -> float:
        one = {"stage_parameters": 1, "tensor": 1, "ranks": 1e12, "reductions": 1, "weight_bytes": 2}
        return shard.zero3_traffic(reduced_gradient_bytes=gradient, **one)

    return {"bf16_reduce": sent(2), "fp32_reduce": sent(4), "ratio": sent(4) / sent(2)}


@case("COM-21", step="not one of ours")
def _(given):
    times = {"compute_time": given["compute"], "communication_time": given["comm"]}
    assert overlap.step_upper_bound(**times) == 130  # what adding both would say
    hidden = overlap.step_upper_bound(**times) - given["union"]
    return {"overlap": hidden, "exposed": given["comm"] - hidden, "share": hidden / given["comm"]}


@case("COM-23", ms="exact_ms")
def _(given):
    message = {"latency": 0, "payload_bytes": given["B"], "bandwidth": given["W"]}
    exact = place.ring_all_gather_time(ranks=given["N"], **message)
    return {"exact_ms": exact * 1e3, "approx_ms": place.point_to_point_time(**message) * 1e3}


@case("COM-25", GB="GB")
def _(given):
    one = {
        "activation_bytes": given["bytes"], "hidden": given["h"], "micro_batch": 1, "sequence_length": given["tokens"],
        "context": 1, "tensor": 1, "sequence_sharded": 0, "expert": given["ep"],
    }  # fmt: skip
    copies, merged = (
        shard.EXPERT_TRANSFERS * shard.expert_transfer_bytes(**one, experts_per_token=count) / GIGA
        for count in (given["k"], 1)
    )
    return {"GB": copies, "lower_GB": merged}


@case("COM-11", expect="not one of ours")
def _(given):
    def card(ranks: str) -> float:
        """Rate of one card from the time, over two nodes, the links inside as fast as one likes."""
        solved = place.hierarchical_all_reduce_time.solve(
            "scale_out_bytes_per_s", equals=given["t"][ranks], ranks_per_node=int(ranks) // 2, nodes=2,
            payload_bytes=given["GB"] * GIGA, scale_up_bytes_per_s=1e30, scale_up_latency_s=0, scale_out_latency_s=0,
        )  # fmt: skip
        return solved.value / GIGA

    return {f"rate_{ranks}": card(ranks) for ranks in given["t"]}


@case("COM-13", node_egress="node_egress_GBs")
def _(given):
    ranks = given["nodes"] * given["gpus"]
    measured = {"payload_bytes": given["algbw"] * GIGA, "communication_time": 1}
    at_home = place.on_node({"expert": ranks}, ("expert",), "expert", given["gpus"]) / ranks
    return {
        "busbw": place.all_gather_bus_bandwidth(ranks=ranks, **measured) / GIGA,
        "node_egress_GBs": given["gpus"] * given["algbw"] * (1 - at_home),
    }
