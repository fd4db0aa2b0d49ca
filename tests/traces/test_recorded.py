"""Traces recorded here and now by PyTorch with gloo and by JAX, against what was programmed and compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from course.traces import Trace, read_trace
from course.traces.intervals import intersection, length, rows
from tests.traces.record_gloo import LATE_S, NUMBERS
from tests.traces.record_jax import MICRO_BATCHES, STEPS

HERE = Path(__file__).resolve().parent


def record(script: str, folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def within(trace: Trace, number: int) -> dict[str, float]:
    """Seconds of a step that are hidden, exposed and computed."""
    step = trace.steps[number]
    window = rows([(step.start_s, step.start_s + step.seconds)])
    names = ("hidden", "exposed", "compute", "communication")
    return {name: length(intersection(getattr(trace, name), window)) for name in names}


@pytest.fixture(scope="module")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Trace]:
    pytest.importorskip("torch", reason="PyTorch is not installed, so nothing can be recorded with it")
    folder = tmp_path_factory.mktemp("gloo")
    record("record_gloo.py", folder)
    return {rank: read_trace(folder / f"rank{rank}.json") for rank in range(2)}


@pytest.mark.parametrize("rank", [0, 1])
def test_gloo_calls_are_those_of_the_program(gloo: dict[int, Trace], rank: int):
    trace = gloo[rank]
    assert [step.name for step in trace.steps] == ["lab_step#0", "lab_step#1", "lab_step#2"]
    assert (trace.rank, trace.world_size, trace.device) == (rank, 2, "CPU")
    assert Counter(one.kind for one in trace.collectives) == {
        "all-reduce": 2, "all-gather": 1, "broadcast": 1, "send and receive": 1,
    }  # fmt: skip
    assert {one.payload_bytes for one in trace.collectives} == {4 * NUMBERS}


def test_waiting_for_a_late_rank_is_exposed_communication_unless_it_computes(gloo: dict[int, Trace]):
    waiting, computing = within(gloo[0], 0), within(gloo[0], 1)
    assert waiting["exposed"] > 0.8 * LATE_S > 0.3 * LATE_S > waiting["hidden"]
    assert computing["hidden"] > 0.5 * LATE_S and computing["compute"] > 0.5 * LATE_S
    assert computing["communication"] > 0.8 * LATE_S
    late = within(gloo[1], 0)  # nobody makes the late rank wait
    assert late["communication"] < 0.5 * LATE_S


def test_xla_operations_are_those_that_were_compiled(tmp_path: Path):
    pytest.importorskip("jax", reason="JAX is not installed, so nothing can be recorded with it")
    compiled = json.loads(record("record_jax.py", tmp_path).splitlines()[-1])
    assert compiled == {"all-reduce": 1, "loops": 1}
    for device in ("0", "1"):
        trace = read_trace(tmp_path, device=device)
        assert trace.devices == ("0", "1")
        assert [step.name for step in trace.steps] == [f"lab_step {number}" for number in range(STEPS)]
        assert Counter(one.kind for one in trace.collectives) == {"all-reduce": STEPS * MICRO_BATCHES}
        assert 0 < trace.communication_s < trace.span_s and 0 < trace.compute_s < trace.span_s
        # A device does one after the other here; were the loop counted as work, all communication would be hidden.
        assert trace.exposed_s > 0.9 * trace.communication_s
