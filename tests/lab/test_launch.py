"""Whatever happens to a rank: the cell says which and why in one sentence, others go on, nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from lab_ranks import HERE, cell

from course.lab import causes
from course.lab.launch import MARK, left_running
from course.lab.report import load

FAILURES = [
    ("exit", 1, "failed", "rank 1 died with exit code 13, without a message"),
    ("exit", 0, "failed", "rank 0 died with exit code 13, without a message"),
    ("kill", 1, "failed", "rank 1 was killed by SIGKILL (out of memory?)"),
    ("raise", 1, "failed", "rank 1 raised ValueError: the batch is empty"),
    ("memory", 1, "oom", "rank 1 ran out of memory"),
    ("silent", 1, "failed", "rank 1 left without a word (exit code 0) before its work was done"),
]


@pytest.mark.parametrize(("what", "rank", "status", "sentence"), FAILURES)
def test_a_failing_rank_is_named_and_the_sweep_goes_on(fake_measure, what, rank, status, sentence):
    report = fake_measure([cell(2), cell(4, do=what, rank=rank), cell(8)])
    assert [report[f"torch.strong.2.gb{batch}"]["status"] for batch in (2, 4, 8)] == ["ok", status, "ok"]
    assert report["torch.strong.2.gb4"]["reason"] == sentence
    assert report["torch.strong.2.gb4"]["step_time_s"] is None
    assert not left_running()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_hanging_rank_is_named_with_where_it_was_last_heard(fake_measure, ranks):
    last = ranks - 1
    report = fake_measure([cell(4, ranks, do="hang", rank=last, at=2), cell(8, ranks)], silence_s=3.0)
    hung = report[f"torch.strong.{ranks}.gb4"]
    assert hung["status"] == "timeout"
    assert hung["reason"].startswith(f"rank {last} hung: it was last heard in {hung['id']} at step 2, ")
    assert hung["reason"].endswith("rank 0 gave up waiting" if ranks == 2 else "the launch was stopped for silence")
    assert report[f"torch.strong.{ranks}.gb8"]["status"] == "ok"
    assert not left_running()


def test_a_rank_without_a_part_is_not_the_one_that_hangs(tmp_path):
    """Rank 1 waits since before the cell of one device began: rank 0 hangs, though it was heard later."""
    from course.lab.causes import Beat, explain

    heard = {0: Beat(0, "one.gb2", 8, 100.0), 1: Beat(1, "one.gb2", -1, 90.0)}
    found = explain(tmp_path, 2, {}, ["one.gb2", "two.gb2"], "silence", heard, 120.0)
    assert (found.rank, found.cell, found.status) == (0, "one.gb2", "timeout")


def test_workers_that_do_not_start_are_said_once_and_not_tried_for_each_cell(fake_measure, tmp_path):
    from course.lab.launch import Plan

    started = []

    def planner(engine, ranks, config, threads, pin):
        started.append(ranks)
        code = "raise ImportError('no module named engine')"
        return Plan([[sys.executable, "-c", code]] * ranks, [{}] * ranks, torchrun=False)

    report = fake_measure([cell(2), cell(4), cell(8)], planner=planner)
    assert started == [2]
    assert {one["reason"] for one in report} == {"rank 0 died with exit code 1: ImportError: no module named engine"}


def test_an_interrupted_measurement_leaves_nothing_running_and_goes_on_where_it_was(fake_measure, tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from lab_ranks import HERE, cell, planner\nfrom course.lab.measuring import measure\n"
        "measure(sys.argv[1], requests=[cell(2), cell(4, do='hang', rank=1)], here=HERE, planner=planner)\n"
    )
    tests, output = Path(__file__).resolve().parents[1], tmp_path / "lab.json"
    environment = {**os.environ, "PYTHONPATH": str(tests.parent)}
    for name in (signal.SIGINT, signal.SIGKILL):
        output.unlink(missing_ok=True)
        # SIGKILL gives the launcher no chance: the system ends its ranks
        command = [sys.executable, "-c", script, str(output), str(tests)]
        started = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        wait(output.exists)
        workers = psutil.Process(started.pid).children(recursive=True)
        started.send_signal(name)
        started.wait(timeout=30)
        assert len(workers) == 2
        assert not psutil.wait_procs(workers, timeout=10)[1]
    assert [one["id"] for one in load(output)] == ["torch.strong.2.gb2"]
    before = load(output)["torch.strong.2.gb2"]["extra"]["pid"]
    report = fake_measure([cell(2), cell(4)])
    assert [one["status"] for one in report] == ["ok", "ok"]
    assert report["torch.strong.2.gb2"]["extra"]["pid"] == before
    assert report["torch.strong.2.gb4"]["extra"]["pid"] != before


def wait(there, seconds=60.0):
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ranks_in_sessions_of_their_own_are_ended_too(tmp_path):
    """Torchrun gives each worker a session, so that its process group is not the launcher's."""
    from course.lab.launch import _end

    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '60'], start_new_session=True); time.sleep(60)"
    token = "a token of this test"
    agent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, MARK: token}, start_new_session=True)
    wait(lambda: len(left_running(token=token)) == 2)
    _end([agent], token)
    assert not left_running(token=token)
    assert agent.returncode == -signal.SIGKILL


def test_torchrun_closing_words_give_the_exit_codes():
    words = """
  [0]:
  time      : 2026-11-29_10:00:00
  host      : somewhere
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 11)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 11
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_10:00:00
  host      : somewhere
  rank      : 1 (local_rank: 1)
  exitcode  : 13 (pid: 12)
"""
    assert causes.exits_of_torchrun(words) == {0: -15, 1: 13}


GLOO_CLOSED = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:30553"
NCCL_TIMEOUT = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE)"


@pytest.mark.parametrize(
    ("errors", "exits", "stopped", "status", "begins"),
    [
        # the innocent rank complained first
        ({0: (1, "RuntimeError", GLOO_CLOSED), 1: (2, "ValueError", "wrong")}, {0: 1, 1: 1}, None, "failed",
         "rank 1 raised ValueError: wrong"),
        ({0: (1, "RuntimeError", GLOO_CLOSED)}, {0: 1, 1: -9}, None, "failed", "rank 1 was killed by SIGKILL"),
        ({0: (1, "RuntimeError", GLOO_CLOSED)}, {1: -11}, None, "failed", "rank 1 was killed by SIGSEGV (a crash in"),
        ({1: (1, "RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"),
          0: (2, "RuntimeError", GLOO_CLOSED)}, {0: 1, 1: 1}, None, "oom", "rank 1 ran out of memory: DefaultCPU"),
        ({0: (1, "OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB")}, {0: 1, 1: -15}, None, "oom",
         "rank 0 ran out of memory: CUDA out of memory"),
        ({0: (1, "DistBackendError", NCCL_TIMEOUT)}, {0: 1, 1: -15}, None, "timeout", "rank 1 hung: it was last heard"),
        # torchrun ended rank 1, which therefore is not the cause
        ({0: (1, "KeyError", "'heads'")}, {0: 1, 1: -15}, None, "failed", "rank 0 raised KeyError: 'heads'"),
        # JAX's service ends the neighbours of a dead rank
        ({}, {0: -6, 1: -9}, None, "failed", "rank 1 was killed by SIGKILL"),
        ({}, {}, "silence", "timeout", "rank 1 hung: it was last heard in b at step 3"),
    ],
)  # fmt: skip
def test_the_cause_is_the_rank_that_failed(tmp_path, errors, exits, stopped, status, begins):
    for rank, (when, kind, message) in errors.items():
        found = {"time": when, "cell": "b", "type": kind, "message": message}
        (tmp_path / f"error.{rank}.json").write_text(json.dumps(found))
    heard = {0: causes.Beat(0, "b", 4, 90.0), 1: causes.Beat(1, "b", 3, 80.0)}
    failure = causes.explain(tmp_path, 2, exits, ["b", "c"], stopped, heard, 100.0)
    assert (failure.status, failure.cell) == (status, "b")
    assert failure.reason.startswith(begins)
    assert "\n" not in failure.reason


def test_refused_cells_are_not_started(fake_measure):
    report = fake_measure([cell(8, 3), cell(9, 3), cell(4, 2)])
    assert report["torch.strong.3.gb8"]["status"] == "refused"
    assert "8 sequences does not divide" in report["torch.strong.3.gb8"]["reason"]
    shared = report["torch.strong.3.gb9"]
    assert shared["status"] == "ok"
    assert shared["reason"] == "shared-core: 3 ranks on 2 cores, so its times say nothing about scaling"
    assert report["torch.strong.2.gb4"]["reason"] is None
    assert HERE["cores"] == 2
