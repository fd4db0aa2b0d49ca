"""Real traces: the figures of HolisticTraceAnalysis, counted again here from the JSON with loops, and by what rule."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from course.errors import UserError
from course.traces import Trace, read_trace, reference, sample
from course.traces import sample_path as sample_file

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "traces"
FILES = {
    "nccl_data": "hta_nccl_data_a100x2_ddp.json.gz",
    "sampled_rank0": "hta_sampled_rank0_of128.json.gz",
    "mi300x_resnet": "tracelens_mi300x8_resnet_ddp_rank0.json.gz",
}
POINTS = 0.05
COPIES = ("gpu_memcpy", "gpu_memset")


def file(name: str) -> Path:
    if name == "sampled_rank0":
        return sample_file()
    found = SHARED / FILES[name]
    if not found.is_file():
        pytest.skip(f"{FILES[name]} is not beside the checkout, in shared/traces; it is too large to ship")
    return found


def events(name: str) -> list[dict]:
    return [one for one in json.loads(gzip.decompress(file(name).read_bytes()))["traceEvents"] if one["ph"] == "X"]


def sums(kernels: list[dict]) -> dict[str, float]:
    """Shares by walking through the ends of all kernels once, in whole nanoseconds: no arrays, no sets of time."""
    ends = []
    for kernel in kernels:
        what = "copy" if kernel["cat"] in COPIES else "comm" if "nccl" in kernel["name"].lower() else "compute"
        start = round(1000 * kernel["ts"])
        ends += [(start, 1, what), (start + round(1000 * kernel["dur"]), -1, what)]
    ends.sort(key=lambda end: end[0])
    running, spent = Counter(), Counter()
    for (at, change, what), following in zip(ends, [*ends[1:], ends[-1]], strict=True):
        running[what] += change
        on = frozenset(key for key, count in running.items() if count)
        spent[on] += following[0] - at
    span = ends[-1][0] - ends[0][0]
    comm = sum(time for on, time in spent.items() if "comm" in on)
    return {
        "overlap_percent": 100 * sum(time for on, time in spent.items() if {"comm", "compute"} <= on) / comm,
        "idle_percent": 100 * spent[frozenset()] / span,
        "compute_percent": 100 * sum(time for on, time in spent.items() if "compute" in on) / span,
        "span_us": span / 1000,
    }


def figures(trace: Trace) -> dict[str, float]:
    assert trace.overlap_share is not None
    return {
        "overlap_percent": 100 * trace.overlap_share,
        "idle_percent": 100 * trace.idle_share,
        "compute_percent": 100 * trace.compute_share,
        "non_compute_percent": 100 * (1 - trace.idle_share - trace.compute_share),
        "span_us": 1e6 * trace.span_s,
    }


@pytest.mark.parametrize("name", ["nccl_data", "sampled_rank0"])
def test_figures_are_the_reference_s(name: str):
    ours, theirs = figures(read_trace(file(name))), reference(name)
    for key in ("overlap_percent", "idle_percent", "compute_percent", "non_compute_percent"):
        assert ours[key] == pytest.approx(theirs[key], abs=POINTS), key
    assert ours["span_us"] == pytest.approx(theirs["span_us"], abs=0.01)


def test_the_sample_is_that_of_the_reference():
    assert hashlib.sha256(sample_file().read_bytes()).hexdigest().startswith("71b98c30a2751cc5")
    assert sample().rank == 0 and sample().world_size == 128


def test_the_licence_lies_beside_the_sample():
    text = next(sample_file().parent.glob("LICENSE*")).read_text(encoding="utf-8")
    assert "MIT License" in text and "Meta Platforms" in text


@pytest.mark.parametrize("name", FILES)
def test_parts_of_the_span_add_up(name: str):
    trace = read_trace(file(name))
    rest = trace.span_s - trace.compute_s - trace.exposed_s - trace.idle_s
    assert -1e-9 <= rest <= trace.copies_s + 1e-9
    assert trace.hidden_s + trace.exposed_s == pytest.approx(trace.communication_s)
    assert sum(gap.seconds for gap in trace.gaps()) == pytest.approx(trace.idle_s)
    assert max(stream.busy_s for stream in trace.streams) <= trace.span_s - trace.idle_s + 1e-9


def test_on_the_mi300x_the_rules_differ_and_each_is_counted():
    """HTA takes a mark of the device (gpu_user_annotation) for the last step. It lies after every launch, so its cut
    drops only the kernels without a launch; ours, by the host's mark, drops those of the last step too."""
    every = events("mi300x_resnet")
    kernels = [one for one in every if one["cat"] in ("kernel", *COPIES)]
    launches = {one["args"]["correlation"]: one["ts"] for one in every if one["cat"] == "cuda_runtime"}
    marks = [one for one in every if one["name"].startswith("ProfilerStep")]
    host = [one["ts"] for one in marks if one["cat"] == "user_annotation"]
    device = [one["ts"] for one in marks if one["cat"] == "gpu_user_annotation"]
    known = [one for one in kernels if one["args"]["correlation"] in launches]
    theirs = [one for one in known if launches[one["args"]["correlation"]] < max(host + device)]
    ours = [one for one in known if min(host) <= launches[one["args"]["correlation"]] < max(host)]
    assert len(kernels) == 3653 and theirs == known and len(theirs) == 2685 and len(ours) == 1790

    counted, published = sums(theirs), reference("mi300x_resnet")
    for key in ("overlap_percent", "idle_percent", "compute_percent"):
        assert counted[key] == pytest.approx(published[key], abs=POINTS), key
    trace = read_trace(file("mi300x_resnet"))
    assert "1790 of 3653" in trace.rule
    counted, read = sums(ours), figures(trace)
    for key in counted:
        assert read[key] == pytest.approx(counted[key], rel=1e-4), key  # the file has thousandths of a microsecond
    difference = {key: round(read[key] - published[key], 2) for key in ("overlap_percent", "idle_percent")}
    assert difference == {"overlap_percent": -0.28, "idle_percent": -0.04}


@pytest.mark.parametrize("name", FILES)
def test_kinds_payloads_and_groups_are_what_the_host_recorded(name: str):
    trace = read_trace(file(name))
    found = Counter(one.kind for one in trace.collectives)
    kinds = {
        "nccl_data": {"all-reduce": 10, "broadcast": 4},
        "sampled_rank0": {"all-to-all": 2, "all-reduce": 2, "all-gather": 1},
        "mi300x_resnet": {"all-reduce": 4, "broadcast": 4},
    }
    assert found == kinds[name]
    sizes = {one.group_size for one in trace.collectives}
    assert sizes == {{"nccl_data": 2, "mi300x_resnet": 8, "sampled_rank0": None}[name]}
    some = [one.payload_bytes for one in trace.collectives if one.kind == "all-reduce"]
    if name == "mi300x_resnet":  # two buckets of bfloat16 a step
        assert some == [2 * 2873320, 2 * 8816192] * 2
    elif name == "nccl_data":  # five buckets of float32 a step
        assert sorted(some) == sorted(4 * count for count in (2049000, 7875584, 6563840, 6637568, 2431040) * 2)
    else:
        assert set(some) <= {4 * count for count in (19618307, 26258430, 5716654, 26955536)}


def test_a_kernel_s_own_name_misleads_and_is_not_followed():
    """NCCL called every collective of the sample SendRecv; the host's notes say what they were."""
    names = {one["name"].split("(")[0] for one in events("sampled_rank0") if "nccl" in one["name"] and "dur" in one
             and one["cat"] == "kernel"}  # fmt: skip
    assert names == {"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"}
    assert "send and receive" not in {total.kind for total in sample().by_kind()}


def test_an_unknown_reference_is_refused_in_one_sentence():
    with pytest.raises(UserError, match="one of mi300x_resnet, nccl_data, sampled_rank0"):
        reference("h100")
