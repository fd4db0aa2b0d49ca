"""`course lab`: what it prints, what it writes, what it refuses; and `course compare` on a report of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lab_ranks import HERE, cell

from course.cli import main
from course.errors import UserError
from course.lab import jobs
from course.lab.figures import efficiency
from course.lab.report import Report, load, write


def lab(*words: str) -> int:
    return main(["lab", *words])


@pytest.fixture
def report(fake_measure) -> Report:
    made: Report = fake_measure([cell(2, 1), cell(2, 2, time_s=0.006), cell(4, 2, do="kill", rank=1), cell(8, 3)])
    return made


def test_devices_says_what_is_there_and_no_cluster(capsys):
    assert lab("devices") == 0
    shown = capsys.readouterr().out
    assert "One host is no cluster" in shown and "Curves have 1" in shown
    assert lab("devices", "--json") == 0
    assert json.loads(capsys.readouterr().out)["hosts"] == 1


def test_show_prints_tables_and_what_failed(report, tmp_path, capsys):
    picture = tmp_path / "lab.png"
    assert lab("show", str(tmp_path / "lab.json"), "--plot", str(picture)) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.replace(str(tmp_path), "").splitlines())) <= 100
    assert "failed  torch.strong.2.gb4: rank 1 was killed by SIGKILL (out of memory?)" in shown
    assert "refused  torch.strong.3.gb8: a global batch of 8 sequences does not divide" in shown
    assert re.search(r"\n +2 +2 +6\.00 ms .* 1\.67 +0\.83 ", shown)  # 10 ms over 6 ms, on 2 devices
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert lab("show", str(tmp_path / "lab.json"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["cells"] == report.cells


def test_merge_joins_files(report, tmp_path, capsys):
    write(tmp_path / "other.json", report)
    target = tmp_path / "both.json"
    assert lab("merge", str(tmp_path / "lab.json"), str(tmp_path / "other.json"), "--output", str(target)) == 0
    assert load(target).machine["hosts"] == 2
    assert len(load(target).cells) == 2 * len(report.cells)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "none.json"], 'There is no file "none.json"'),
        (["measure", "--output", "nowhere/lab.json"], "nowhere/lab.json has no folder nowhere"),
        (["measure", "--output", "lab.txt"], "lab.txt must end in .json"),
        (["job", "sbatch", "--nodes", "0"], "--nodes must be a whole number above 0"),
        (["job", "sbatch", "--output", "nowhere"], "There is no folder nowhere"),
    ],
)
def test_wrong_input_is_told_in_a_sentence(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert lab(*words) == 2
    assert said in capsys.readouterr().err


def test_compare_reads_a_report_of_the_lab(report, tmp_path, capsys):
    assert main(["compare", str(tmp_path / "lab.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found["skipped"].values()) + found["overall"]["predicted"] == len(report.cells)


def test_compare_predicts_a_report_from_an_accelerator_of_the_catalog(fake_measure, tmp_path, capsys):
    """The lab's cells carry all that a prediction asks for: only the processor is unknown to the catalog."""
    machine = {**HERE, "kind": "gpu", "accelerator": "H100 SXM", "gpus": [{"name": "H100 SXM"}] * 2}
    from course.lab.protocol import training

    asked = [training(machine, "torch", "strong", devices, 8) for devices in (1, 2)]
    fake_measure([{**one, "fake": {"time_s": 0.5}} for one in asked], here=machine)
    assert main(["compare", str(tmp_path / "lab.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["skipped"] == {}
    assert found["overall"]["predicted"] == 2
    assert main(["compare", str(tmp_path / "lab.json")]) == 0


JOBS = [("torchrun", 1, 2), ("torchrun", 4, 8), ("sbatch", 2, 8)]


@pytest.mark.parametrize(("kind", "nodes", "each"), JOBS)
def test_a_job_starts_one_worker_a_device_with_one_argument(kind, nodes, each, tmp_path, capsys):
    assert lab("job", kind, "--nodes", str(nodes), "--devices-per-node", str(each), "--output", str(tmp_path)) == 0
    script = tmp_path / ("lab-job.sbatch" if kind == "sbatch" else "lab-job.sh")
    text = script.read_text()
    checked = subprocess.run([shutil.which("bash") or "sh", "-n", str(script)], capture_output=True, check=False)
    assert checked.returncode == 0
    started = re.search(r"^(?:srun .*)?torchrun (?:.*\\\n)*.*$", text, re.MULTILINE)
    assert started and f"--nproc-per-node {each}" in started[0]
    assert started[0].strip().endswith("-m course.lab.torch_engine lab-config.json")
    assert (nodes == 1) == ("--standalone" in text)
    assert nodes == 1 or (f"--nnodes {nodes}" in text and "--rdzv-backend c10d" in text)
    # torchrun takes abbreviations of its own options anywhere on the line
    assert not re.search(r"lab-config\.json +-", text)
    config = json.loads((tmp_path / "lab-config.json").read_text())
    cells = config["cells"]
    assert max(one["devices"] for one in cells) == nodes * each
    for one in cells:  # baselines: the same batches on one node and on one device, where they fit
        if one["devices"] < nodes * each:
            assert one["family"] == "strong" and one["devices"] in (1, each) and one["micro_batch"] <= 16
            assert f"torch.strong.{nodes * each}.gb{one['global_batch_sequences']}" in {other["id"] for other in cells}
    assert any(one["devices"] == each for one in cells) and (nodes * each > 16 or cells[0]["devices"] == 1)
    assert not Path(config["folder"]).is_absolute()


def test_slurm_gives_jax_ranks_the_names_a_worker_reads(tmp_path):
    """The script, run with a srun that starts one task: the worker finds all five names and one argument."""
    text = jobs.job("sbatch", 2, 4, engine="jax")
    assert "--ntasks-per-node=4" in text and "torchrun" not in text
    tools = {
        "scontrol": "echo node-1; echo node-2",
        "srun": 'shift; SLURM_PROCID=5 SLURM_LOCALID=1 exec "$@"',
        "python": "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $@",
    }
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job").write_text(text)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_NTASKS": "8",
                   "SLURM_JOB_ID": "34217"}  # fmt: skip
    done = subprocess.run(["bash", "job"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["5", "1", "8", "node-1", "24217", "-m", "course.lab.jax_engine", "lab-config.json"]
    with pytest.raises(UserError, match="Give sbatch for JAX"):
        jobs.job("torchrun", 2, 4, engine="jax")


def test_what_a_job_left_becomes_a_report(tmp_path):
    assert lab("job", "torchrun", "--nodes", "2", "--devices-per-node", "4", "--output", str(tmp_path)) == 0
    cells = json.loads((tmp_path / "lab-config.json").read_text())["cells"]
    alone, first = cells[0], next(one for one in cells if one["id"] == "torch.strong.8.gb8")
    results = tmp_path / "lab-results"
    results.mkdir()
    rows = [{"rank": rank, "host": rank // 4, "device": f"cuda:{rank % 4}", "name": "H100"} for rank in range(8)]
    lines = [
        {"id": alone["id"], "step_time_s": {"p50": 4e-3}, "placement": rows[:1], "loss": 5.0},
        {"id": first["id"], "step_time_s": {"p50": 1e-3}, "placement": rows, "loss": 5.0},
    ]
    (results / "cells.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert lab("merge", str(results), "--output", str(tmp_path / "lab.json")) == 0
    found = load(tmp_path / "lab.json")
    assert [one["id"] for one in found] == [alone["id"], first["id"]]
    assert found.cells[1]["devices"] == 8 and found.cells[1]["status"] == "ok"
    assert found.machine["accelerator"] == "H100"
    assert found.machine["hosts"] == found.cells[1]["placement"]["hosts"] == 2
    assert found.cells[1]["loss_difference"] == 0  # against the job's own step on one device
    assert efficiency(*found.cells) == 0.5
    with pytest.raises(UserError, match="give a job's lab-results"):
        jobs.collect(tmp_path)
