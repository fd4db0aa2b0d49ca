"""Whatever is given in place of a trace gets one short answer that says what it is and what to record instead."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.errors import UserError
from course.traces import NotATrace, Trace, read_trace, sample_path

KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0, "args": {"stream": 7}}
HOST = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
WHOLE = json.dumps({"traceEvents": [KERNEL, HOST]}).encode()
PACKED = gzip.compress(WHOLE)
JAX_PROCESS = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}}


def packed(*events: object) -> bytes:
    return json.dumps({"traceEvents": events}).encode()


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b" \n ", "is empty"),
    "empty gzip": (gzip.compress(b""), "is empty"),
    "text": (b"step 1 took 3 s\n", "is not JSON"),
    "binary": (bytes(range(1, 200)), "is not text"),
    "zip": (b"PK\x03\x04rest", "zip archive. Unpack it"),
    "zstd": (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    "sqlite": (b"SQLite format 3\0...", "database"),
    "pickle": (pickle.dumps([1]), "memory snapshot"),
    "cut text": (WHOLE[: len(WHOLE) // 2], "ends in the middle"),
    "cut by one": (WHOLE[:-1], "ends in the middle"),
    "cut in a character": ('{"traceEvents": [{"name": "é'.encode()[:-1], "ends in the middle"),
    "cut gzip": (PACKED[: len(PACKED) // 2], "ends in the middle"),
    "damaged gzip": (PACKED[:20] + bytes(20) + PACKED[40:], "damaged inside its gzip"),
    "broken": (WHOLE.replace(b'"ph":', b'"ph"', 1), "broken JSON at line 1"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "no profiler writes"),
    "long number": (b'{"traceEvents": [' + b"9" * 5000 + b"]}", "no profiler writes"),
    "number": (b"3", "is not JSON"),
    "settings": (b'{"layers": 3}', "JSON without traceEvents"),
    "list of numbers": (b"[1, 2]", "no list of objects"),
    "events no list": (b'{"traceEvents": 3}', "no list of objects"),
    "nothing recorded": (packed(), "without a single timed event"),
    "names alone": (packed(JAX_PROCESS), "without a single timed event"),
    "browser": (packed({**HOST, "cat": "devtools.timeline"}), "of another program"),
    "no category": (packed({"ph": "X", "name": "f", "ts": 0, "dur": 1}), "of another program"),
    "one process on the CPU": (packed(HOST), "operators of the host alone"),
    "NCCL without kernels": (packed(HOST, {**HOST, "name": "c10d::allreduce_"}), "with ProfilerActivity.CUDA"),
    "JAX without work": (packed(JAX_PROCESS, {**HOST, "cat": None}), "no XLA operation ran"),
    "no length": (packed({**KERNEL, "dur": None}), "no ts and dur"),
    "negative": (packed({**KERNEL, "dur": -1}), "no ts and dur"),
    "endless": (b'{"traceEvents": [' + json.dumps(KERNEL).encode().replace(b"2.0", b"1e999") + b"]}", "no ts and dur"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_it_is_and_what_to_do(name: str, tmp_path: Path):
    data, said = BAD[name]
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with pytest.raises(NotATrace, match=said.replace(".", r"\.")) as caught:
        read_trace(path)
    text = str(caught.value)
    assert isinstance(caught.value, UserError)
    assert text.startswith('"trace.json"') and text.endswith(".") and "\n" not in text and len(text) < 420
    assert any(word in text for word in ("record", "Record", "Unpack", "Copy", "Start the trace")), text
    assert str(tmp_path) not in text


def test_paths(tmp_path: Path):
    with pytest.raises(NotATrace, match="There is no file"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(NotATrace, match=r"holds no \.json or \.json\.gz file"):
        read_trace(tmp_path)
    (tmp_path / "vm.xplane.pb").write_bytes(b"\n\x1a\n")
    with pytest.raises(NotATrace, match=r"XPlane protocol buffer\. Give the \.trace\.json\.gz"):
        read_trace(tmp_path / "vm.xplane.pb")


def test_a_folder_with_one_trace_is_read_and_one_with_two_is_not(tmp_path: Path):
    (tmp_path / "rank0.pt.trace.json").write_bytes(WHOLE)
    assert read_trace(tmp_path).source == "rank0.pt.trace.json"
    (tmp_path / "rank1.pt.trace.json.gz").write_bytes(PACKED)
    with pytest.raises(NotATrace, match=r"holds 2 traces .*Give the path of one"):
        read_trace(tmp_path)


def test_of_a_jax_folder_the_newest_recording_is_read(tmp_path: Path):
    for number, day in enumerate(("2026_11_28_09_00_00", "2026_11_29_08_00_00")):
        folder = tmp_path / "plugins" / "profile" / day
        folder.mkdir(parents=True)
        operation = {"ph": "X", "name": "dot.1", "pid": 1, "ts": 0, "dur": 10 + number, "args": {"hlo_op": "dot.1"}}
        (folder / "vm.trace.json.gz").write_bytes(gzip.compress(packed(JAX_PROCESS, operation)))
        (folder / "perfetto_trace.json.gz").write_bytes(b"")
        (folder / "vm.xplane.pb").write_bytes(b"")
    assert read_trace(tmp_path).span_s == pytest.approx(11e-6)


def test_a_bare_list_of_events_and_a_byte_order_mark_are_read(tmp_path: Path):
    path = tmp_path / "trace.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps([KERNEL]).encode())
    assert read_trace(path).compute_s == pytest.approx(2e-6)


@pytest.mark.parametrize("number", [[1], {"a": 1}, None, 1.5, "1"])
def test_a_correlation_that_is_no_number_finds_no_launch(number: object, tmp_path: Path):
    path = tmp_path / "trace.json"
    kernel = {**KERNEL, "args": {"correlation": number, "stream": [7]}}
    path.write_bytes(packed(kernel, {**HOST, "cat": "cuda_runtime", "args": {"correlation": number}}))
    assert read_trace(path).compute_s == pytest.approx(2e-6)


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**20), st.floats(), st.text(max_size=3),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@pytest.fixture(scope="module")
def some_events() -> list[dict]:
    found = json.loads(gzip.decompress(sample_path().read_bytes()))["traceEvents"]
    kinds: dict[object, int] = {}
    for one in found:
        kinds[one.get("cat")] = kinds.get(one.get("cat"), 0) + 1
        one["few"] = kinds[one.get("cat")] <= 6 or "nccl" in one.get("name", "")
    return [{key: value for key, value in one.items() if key != "few"} for one in found if one["few"]]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_an_event_changed_anywhere_is_read_or_refused_in_words(data, some_events, tmp_path_factory):
    events = json.loads(json.dumps(some_events))
    for _ in range(data.draw(st.integers(1, 4))):
        event = events[data.draw(st.integers(0, len(events) - 1))]
        inside = event["args"] if isinstance(event.get("args"), dict) and data.draw(st.booleans()) else event
        if inside:
            key = data.draw(st.sampled_from(sorted(inside)))
            if data.draw(st.booleans()):
                del inside[key]
            else:
                inside[key] = data.draw(ODD)
    path = tmp_path_factory.getbasetemp() / "changed.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    try:
        trace = read_trace(path)
    except NotATrace:
        return
    assert isinstance(trace, Trace)
    assert trace.summary() and trace.span_s >= 0
    assert trace.idle_s + trace.compute_s + trace.exposed_s <= trace.span_s * (1 + 1e-9) + 1e-9
