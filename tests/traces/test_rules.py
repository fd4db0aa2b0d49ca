"""The step rule and the readers, on traces of a few events whose figures can be told by looking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course.traces import NotATrace, Trace, read_trace
from course.traces.naming import UNKNOWN, kind_of, payload_bytes

HOST, DEVICE = {"pid": 1, "tid": 1}, {"pid": 0, "tid": 7}
PROCESS = {"ph": "M", "name": "process_name"}
THREAD = {"ph": "M", "name": "thread_name"}


def event(cat: str, name: str, ts: float, dur: float, **more: object) -> dict[str, object]:
    where = DEVICE if cat in ("kernel", "gpu_memcpy") else HOST
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **where, **more}


def launched(name: str, at: float, start: float, dur: float, number: int, stream: int = 7, **args) -> list[dict]:
    cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    return [
        event("cuda_runtime", "cudaLaunchKernel", at, 1, args={"correlation": number}),
        event(cat, name, start, dur, args={"correlation": number, "stream": stream, "device": 0, **args}),
    ]


def written(folder: Path, events: list[dict], **about: object) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps({**about, "traceEvents": events}), encoding="utf-8")
    return read_trace(path)


STEP = [
    *launched("gemm", 101, 110, 40, 1),
    *launched("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)", 102, 130, 60, 2, stream=20),
    *launched("Memcpy DtoH", 103, 185, 10, 3),
    *launched("gemm", 104, 200, 10, 4),
]


def test_without_a_mark_the_whole_span_is_counted(tmp_path: Path):
    trace = written(tmp_path, STEP)
    assert "no step is marked" in trace.rule and trace.steps == ()
    micro = [trace.span_s, trace.compute_s, trace.communication_s, trace.hidden_s, trace.exposed_s, trace.idle_s]
    assert [round(1e6 * one) for one in micro] == [100, 50, 60, 20, 40, 5]
    assert trace.overlap_share == pytest.approx(20 / 60)
    assert [(round(1e6 * gap.start_s), round(1e6 * gap.seconds)) for gap in trace.gaps()] == [(85, 5)]
    streams = {one.name: [round(1e6 * x) for x in (one.communication_s, one.compute_s, one.copies_s, one.busy_s)]
               for one in trace.streams}  # fmt: skip
    assert streams == {"stream 7": [0, 50, 10, 60], "stream 20": [60, 0, 0, 60]}


def test_a_kernel_belongs_to_the_step_that_launched_it_and_the_last_step_is_left_out(tmp_path: Path):
    marks = [event("user_annotation", f"ProfilerStep#{n}", 100 * n, 90) for n in (1, 2)]
    late = launched("gemm", 150, 260, 5, 5)  # runs while step 2 is on, launched by step 1
    next_step = launched("ncclDevKernel_AllGather_RING_LL", 205, 270, 50, 6)
    orphan = launched("gemm", 0, 90, 5, 7)[1:]  # launched before the recording began
    trace = written(tmp_path, [*marks, *STEP, *late, *next_step, *orphan])
    assert [step.name for step in trace.steps] == ["ProfilerStep#1"]
    assert "5 of 7" in trace.rule and "ProfilerStep#1 to ProfilerStep#2" in trace.rule
    assert round(1e6 * trace.span_s) == 155 and round(1e6 * trace.compute_s) == 55
    assert [one.kind for one in trace.collectives] == ["all-reduce"]


def test_a_single_step_is_kept(tmp_path: Path):
    trace = written(tmp_path, [event("user_annotation", "ProfilerStep#9", 100, 50), *STEP])
    assert len(trace.steps) == 1 and "launched within it; 4 of 4" in trace.rule


def test_the_profiler_s_steps_go_before_the_user_s_and_those_before_the_span(tmp_path: Path):
    own = [event("user_annotation", name, 90 + 60 * n, 50) for n, name in enumerate(("train step 1", "train step 2"))]
    noise = [event("user_annotation", "Optimizer.step#SGD.step", 95, 5)]
    assert [step.name for step in written(tmp_path, [*own, *noise, *STEP]).steps] == ["train step 1"]
    theirs = [event("user_annotation", "ProfilerStep#3", 100, 50)]
    assert [step.name for step in written(tmp_path, [*own, *theirs, *STEP]).steps] == ["ProfilerStep#3"]
    assert written(tmp_path, [*noise, *STEP]).steps == ()


def test_marks_without_launches_leave_the_whole_span(tmp_path: Path):
    kernels = [one for one in STEP if one["cat"] != "cuda_runtime"]
    trace = written(tmp_path, [event("user_annotation", "ProfilerStep#1", 0, 50), *kernels])
    assert "no launch is recorded" in trace.rule and round(1e6 * trace.span_s) == 100


def test_a_device_without_collectives_still_has_gaps(tmp_path: Path):
    trace = written(tmp_path, [one for one in STEP if "nccl" not in one["name"]])
    assert trace.overlap_share is None and trace.communication_s == 0 and round(1e6 * trace.idle_s) == 40
    assert "No collective ran." in trace.summary()


def test_a_device_is_chosen_by_name(tmp_path: Path):
    other = launched("gemm", 105, 300, 30, 8)
    other[1]["args"]["device"] = 1
    trace = written(tmp_path, [*STEP, *other])
    assert trace.device == "0" and trace.devices == ("0", "1") and round(1e6 * trace.compute_s) == 50
    assert round(1e6 * read_trace(tmp_path / "trace.json", device="1").compute_s) == 30
    with pytest.raises(NotATrace, match='device "2" is not in the trace, which has 0, 1'):
        read_trace(tmp_path / "trace.json", device="2")


def test_arguments_go_before_the_host_s_notes_and_those_before_the_name(tmp_path: Path):
    note = event("cpu_op", "record_param_comms", 100, 10,
                 args={"Collective name": "_reduce_scatter_base", "In msg nelems": 64, "Out msg nelems": 8,
                       "dtype": "Half", "Group size": 8})  # fmt: skip
    told = {"Collective name": "all_gather_into_tensor_coalesced", "In msg nelems": 2, "Out msg nelems": 16,
            "dtype": "Float", "Group size": 4}  # fmt: skip
    trace = written(
        tmp_path,
        [
            note,
            *launched("ncclDevKernel_Generic(...)", 101, 200, 10, 1),
            *launched("ncclDevKernel_Generic(...)", 102, 220, 10, 2, **told),
            *launched("ncclDevKernel_Generic(...)", 150, 240, 10, 3),
            *launched("ncclDevKernel_Broadcast_RING_LL(...)", 151, 260, 10, 4),
        ],
    )
    found = [(one.kind, one.payload_bytes, one.group_size) for one in trace.collectives]
    assert found[:2] == [("reduce-scatter", 128, 8), ("all-gather", 64, 4)]
    assert found[2:] == [(UNKNOWN, None, None), ("broadcast", None, None)]
    assert [total.payload_bytes for total in trace.by_kind() if total.kind == UNKNOWN] == [None]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "all-reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce-scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send and receive"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(...)", "reduce"),
        ("_allgather_base", "all-gather"), ("all_to_allv", "all-to-all"), ("reduce_scatter_tensor", "reduce-scatter"),
        ("collective-permute-start.3", "send and receive"), ("ragged-all-to-all.1", "all-to-all"),
        ("coalesced", UNKNOWN), ("ncclDevKernel_Generic_4(...)", UNKNOWN),
    ],
)  # fmt: skip
def test_names_of_every_recorder(name: str, kind: str):
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    "arguments",
    [
        {"In msg nelems": 5, "Out msg nelems": 5, "dtype": "Quaternion"}, {"In msg nelems": 5, "dtype": "Float"},
        {"Input Dims": [[2], [3]], "Input type": ["float"]}, {"Input Dims": [[[2]]], "Input type": ["TensorList"]},
        {"Input Dims": 3, "Input type": "float"},
    ],
)  # fmt: skip
def test_what_is_not_told_is_not_guessed(arguments: dict):
    assert payload_bytes(arguments) is None


def test_operators_on_the_host_compute_while_they_do_not_wait(tmp_path: Path):
    worker = {"tid": 2}
    trace = written(
        tmp_path,
        [
            event("user_annotation", "lab_step#0", 0, 100),
            event("cpu_op", "aten::linear", 10, 60),  # calls mm, waits for a collective, and ends
            event("cpu_op", "aten::mm", 12, 8),
            event("cpu_op", "_c10d_functional::wait_tensor", 30, 30),
            event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 0, 100),
            event("user_annotation", "gloo:all_reduce", 25, 34, **worker),
            event("cpu_op", "aten::copy_", 40, 5, **worker),  # inside the collective, on its thread
            event("user_annotation", "gloo:barrier", 80, 15, **worker),
        ],
    )
    micro = [trace.compute_s, trace.communication_s, trace.hidden_s, trace.exposed_s, trace.idle_s, trace.span_s]
    assert [round(1e6 * one) for one in micro] == [30, 34, 5, 29, 41, 100]
    assert {one.stream for one in trace.collectives} == {"thread 2"} and len(trace.collectives) == 1


def xla(name: str, ts: float, dur: float, device: int, **more: object) -> dict[str, object]:
    told = {"hlo_op": name, "device_ordinal": str(device)}
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "args": told, "pid": 1, "tid": 5, **more}


def test_xla_on_cpus_is_told_apart_by_device_and_a_loop_is_no_work(tmp_path: Path):
    events = [
        {**PROCESS, "pid": 1, "args": {"name": "/host:CPU"}},
        {**THREAD, "pid": 1, "tid": 5, "args": {"name": "tf_XLAEigen/-1"}},
        {"ph": "X", "pid": 1, "tid": 9, "name": "lab_step", "ts": 0, "dur": 100, "args": {"step_num": "4"}},
        {"ph": "X", "pid": 1, "tid": 5, "name": "Rendezvous", "ts": 41, "dur": 18},
        xla("while.8", 5, 80, 0), xla("dot.1", 10, 20, 0), xla("all-reduce.2", 25, 40, 0), xla("copy.4", 70, 5, 0),
        xla("dot.1", 0, 60, 1), xla("all-reduce.2", 60, 10, 1), {},
    ]  # fmt: skip
    trace = written(tmp_path, events)
    assert trace.devices == ("0", "1") and [step.name for step in trace.steps] == ["lab_step 4"]
    micro = [trace.compute_s, trace.communication_s, trace.hidden_s, trace.copies_s, trace.idle_s, trace.span_s]
    assert [round(1e6 * one) for one in micro] == [20, 40, 5, 5, 40, 100]
    second = read_trace(tmp_path / "trace.json", device="1")
    assert round(1e6 * second.exposed_s) == 10 and len(second.collectives) == 1


def test_xla_on_accelerators_is_read_from_its_streams(tmp_path: Path):
    gpu = {"pid": 3}
    events = [
        {**PROCESS, "pid": 1, "args": {"name": "/host:CPU"}},
        {**PROCESS, "pid": 3, "args": {"name": "/device:GPU:0"}},
        {**THREAD, "pid": 3, "tid": 1, "args": {"name": "Stream #13(Compute)"}},
        {**THREAD, "pid": 3, "tid": 2, "args": {"name": "Stream #21(Compute)"}},
        {**THREAD, "pid": 3, "tid": 3, "args": {"name": "XLA Ops"}},  # the same kernels under their HLO names
        xla("loop_fusion", 0, 50, 0, **gpu, tid=1), xla("loop_fusion", 0, 90, 0, **gpu, tid=3),
        {"ph": "X", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)", "ts": 40, "dur": 20, **gpu, "tid": 2,
         "args": {"hlo_op": "all-reduce-start.1"}},
    ]  # fmt: skip
    trace = written(tmp_path, events)
    assert trace.device == "/device:GPU:0" and len(trace.streams) == 2
    assert round(1e6 * trace.exposed_s) == 10 and trace.by_kind()[0].kind == "all-reduce"
    assert "no step is marked" in trace.rule
