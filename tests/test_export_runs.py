"""What an export writes runs as a shell script, is never laid over other work, and comes back as measurements."""

from __future__ import annotations

import dataclasses
import math
import subprocess
from pathlib import Path

import pytest
from export_readers import (
    SEVERAL,
    document,
    megatron_layout,
    question,
    rows,
    stand_ins,
)  # fmt: skip

from course import cli
from course.compare import run_of
from course.errors import UserError
from course.examples import path
from course.export import engine_of, export, files, logs, request
from course.predict import predict
from course.problem import Layout

# Lines as the engines print them: torchtitan 0.3.0 components/metrics.py, Megatron-LM megatron/training/training.py.
TITAN_LINE = (
    "[titan] 2026-11-29 20:00:00,000 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss:  8.13022  "
    "\x1b[38;2;180;60;0mgrad_norm:  1.2345  \x1b[36mmemory: {gib:5.2f}GiB(64.00%)  \x1b[34mtps: {tps:,}  "
    "\x1b[36mtflops: 398.12  \x1b[35mmfu: 40.25%\x1b[39m"
)


MEGATRON_LINE = (
    " [2026-11-29 20:00:00] iteration {step:8d}/      30 | consumed samples: 1280 | elapsed time per iteration "
    "(ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 1.000000E-04 | global batch size: 128 |"
)


MEGATRON_MEMORY = (
    "[Rank {rank}] (after 5 iterations) memory (MB) | allocated: 1464.33 | max allocated: {mib} | reserved: 70000.0 | "
    "max reserved: 71000.0"
)


def exported(folder: Path, kind: str, *layouts: Layout) -> Path:
    wanted = request(kind, str(folder))
    assert wanted is not None
    export(question("llama-3-8b-8-h100"), document(*layouts), wanted)
    (folder / "logs").mkdir()
    return folder


def test_logs_of_torchtitan_fill_the_table_and_compare_scores_it(tmp_path, capsys):
    folder = exported(
        tmp_path / "out", "torchtitan", Layout(data=8, sharding="zero3"), Layout(data=8), Layout(data=4, tensor=2)
    )
    seen = [
        (5, 61.0, 100),
        (10, 62.0, 3_000),
        (15, 62.0, 9_000),
        (20, 62.5, 9_400),
        (25, 62.0, 9_200),
        (30, 62.0, 8_000),
    ]
    for host, more in ((0, 0.0), (1, 1.5)):
        lines = [TITAN_LINE.format(step=step, gib=gib + more, tps=tps) for step, gib, tps in seen]
        lines.append(lines[-1].replace("step: 30", "validate step: 30").replace("tps: 8,000", "tps: 1"))
        (folder / "logs" / f"layout_1.{host}.log").write_text("\n".join(["starting", *lines]))
    (folder / "logs" / "layout_2.0.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate")
    assert logs.main([str(folder)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert (
        said[0] == "layout_1: tokens_per_s_per_device 9100, peak_mem_gib 64."
    )  # the median of the last four; the fuller
    assert "out of memory" in said[1] and said[2] == "layout_3: no log."
    table = rows((folder / "results.csv").read_text())
    assert (table[0]["tokens_per_s_per_device"], table[0]["peak_mem_gib"], table[0]["step_time_s"]) == (
        9100,
        64.0,
        None,
    )
    assert table[1]["notes"].startswith("FAILED") and table[2]["tokens_per_s_per_device"] is None
    assert cli.main(["compare", str(folder / "results.csv")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 of 3 rows have no measurement and are not scored: fill step_time_s (seconds a step)" in shown
    assert "of 1 runs that failed" in shown
    measured = run_of(table[0])
    error = abs(measured.training.tokens_per_step / 8 / 9100 / predict(measured)["step"]["time_s"] - 1)
    assert f"{100 * error:.1f} %" in shown


def test_logs_of_megatron_fill_times_and_leave_what_is_filled(tmp_path, capsys):
    folder = exported(tmp_path / "out", "megatron", Layout(data=8, sharding="zero1"), Layout(data=4, pipeline=2))
    lines = [
        MEGATRON_LINE.format(step=step, ms=ms)
        for step, ms in ((5, 9e4), (10, 2e4), (15, 1.1e4), (20, 1.2e4), (25, 1e4))
    ]
    lines += [MEGATRON_MEMORY.format(rank=0, mib=61440.0), MEGATRON_MEMORY.format(rank=4, mib=51200.0)]
    (folder / "logs" / "layout_1.0.log").write_text("\n".join(lines))
    (folder / "logs" / "layout_2.0.log").write_text("Traceback (most recent call last):\nValueError: no")
    assert logs.main([str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "layout_1: step_time_s 11, peak_mem_gib 60."
    before = (folder / "results.csv").read_text()
    assert logs.main([str(folder)]) == 0 and (folder / "results.csv").read_text() == before
    first, second = capsys.readouterr().out.splitlines()
    assert first == "layout_1: filled before, left as it is." and second.startswith(
        "layout_2: no step after the first 10"
    )
    table = rows(before)
    assert (table[0]["step_time_s"], table[0]["peak_mem_gib"]) == (11.0, 60.0) and not table[1]["notes"]


def test_a_table_without_measurements_says_what_to_fill(tmp_path, capsys):
    folder = exported(tmp_path / "out", "megatron", Layout(data=8, sharding="zero1"))
    assert cli.main(["compare", str(folder / "results.csv")]) == 2
    said = capsys.readouterr().err
    assert "results.csv has no measurement yet: fill step_time_s (seconds a step) or tokens_per_s_per_device" in said
    assert logs.main([str(tmp_path / "nowhere")]) == 2 and logs.main([]) == 2
    (folder / "results.csv").write_text("id,model\na,b\n")
    assert logs.main([str(folder)]) == 2
    assert "is not the table that --export wrote" in capsys.readouterr().err


def test_the_command_writes_and_says_the_next_steps(tmp_path, capsys):
    folder = tmp_path / "out"
    run_file = str(path("llama-3-8b-8-h100"))
    assert cli.main(["sweep", run_file, "--top", "1", "--export", "sbatch", "--output", str(folder)]) == 0
    shown = capsys.readouterr().out
    names = {"run.sh", "sweep.sbatch", "results.csv", "layout_1.args", ".course-export.json"}
    assert names <= {file.name for file in folder.iterdir()}
    steps = shown.partition("Next:")[2]
    assert "sbatch sweep.sbatch" in steps and f"python -m course.export.logs {folder}" in steps
    assert f"course compare {folder / 'results.csv'}" in steps
    assert "layout_1: data" in shown
    assert cli.main(["sweep", run_file, "--export", "megatorn", "--output", str(folder)]) == 2
    assert "the nearest is megatron" in capsys.readouterr().err
    # the layouts are those of the sweep, in its order, each on all devices
    table = rows((folder / "results.csv").read_text())
    assert all(row["dp"] * row["tp"] * row["pp"] * row["cp"] == 8 for row in table)
    back = [megatron_layout((folder / f"layout_{row['id'][-1]}.args").read_text(), 8) for row in table]
    assert [layout for layout, _ in back] == [run_of(row).layout for row in table]
    assert {batch for _, batch in back} == {128}


def test_nothing_that_is_not_ours_is_overwritten(tmp_path):
    run, folder = question("llama-3-8b-8-h100"), tmp_path / "out"

    def again(*layouts: Layout, kind: str = "megatron") -> list[str]:
        wanted = request(kind, str(folder))
        assert wanted is not None
        return export(run, document(*layouts), wanted)

    assert again(Layout(data=8))[0].startswith("Wrote in")
    again(Layout(data=8, sharding="zero1"))  # our own, unchanged: replaced
    assert "--use-distributed-optimizer" in (folder / "layout_1.args").read_text()
    assert not list(folder.glob(".*.part"))
    table = folder / "results.csv"
    table.write_text(table.read_text().replace(",none,", ",full,"))
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(UserError, match=r"results\.csv .* stays as it is"):
        again(Layout(data=8))
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    (folder / "results.csv").unlink()
    again(Layout(data=8), kind="torchtitan")


@pytest.mark.parametrize(
    ("kind", "folder", "said"),
    [
        ("nanotron", "out", '"nanotron" is no engine: torchtitan, megatron or sbatch'),
        ("megatron", None, "add --output DIR"),
        (None, "out", "add --export"),
        ("megatron", "", "add --output DIR"),
        ("megatron", "a-file", "is a file"),
        ("megatron", "nowhere/out", "no folder"),
        ("megatron", "a\0b", "no folder"),
    ],
)
def test_bad_requests_are_one_sentence(tmp_path, monkeypatch, kind, folder, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("mine")
    with pytest.raises(UserError, match=said.replace(".", r"\.")):
        request(kind, folder)


def test_a_sweep_that_finds_nothing_exports_nothing(tmp_path):
    wanted = request("megatron", str(tmp_path / "out"))
    assert wanted is not None and request(None, None) is None
    said = export(question("llama-3-8b-8-h100"), {"layouts": [], "proposal": []}, wanted)
    assert len(said) == 1 and "no legal layout fits" in said[0] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["torchtitan", "megatron", "sbatch"])
def test_scripts_are_shell(kind):
    found, _ = files(question("llama-3.1-405b-16384-h100"), document(*SEVERAL["llama-3.1-405b-16384-h100"]), kind)
    scripts = {name: text for name, text in found.items() if name in ("run.sh", "sweep.sbatch")}
    assert len(scripts) == 1 + (kind == "sbatch")
    for text in scripts.values():
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_launch_hands_torchrun_the_hosts_and_the_options(tmp_path):
    run = question("llama-3.1-405b-16384-h100")
    found, _ = files(run, document(Layout(tensor=8, pipeline=16, data=128)), "megatron")
    for name, text in found.items():
        (tmp_path / name).write_text(text)
    environment = stand_ins(tmp_path, torchrun='echo "$CUDA_DEVICE_MAX_CONNECTIONS $@"')
    subprocess.run(["bash", "run.sh", "layout_1"], cwd=tmp_path, env={**environment, "NODE_RANK": "3"}, check=True)
    queue, *words = (tmp_path / "logs" / "layout_1.3.log").read_text().split()
    assert queue == "1"
    launcher = dict(zip(words[:10:2], words[1:10:2], strict=True))
    assert launcher == {"--nnodes": "2048", "--nproc-per-node": "8", "--node-rank": "3", "--master-addr": "localhost",
                        "--master-port": "29500"}  # fmt: skip
    assert words[10] == "/src/megatron/pretrain_gpt.py"
    assert megatron_layout("\n".join(words[11:]), 16384)[0] == Layout(tensor=8, pipeline=16, data=128)


def test_a_job_runs_every_layout_and_writes_a_line_for_each(tmp_path):
    run = question("llama-3-8b-8-h100")
    found, _ = files(
        run, document(Layout(data=8), Layout(tensor=2, data=4), Layout(data=8, sharding="zero1")), "sbatch"
    )
    for name, text in found.items():
        (tmp_path / name).write_text(text)
    environment = stand_ins(
        tmp_path,
        srun='shift; exec "$@"',
        scontrol="echo node7; echo node8",
        torchrun='echo "$@"; [[ "$*" != *--tensor-model-parallel-size\\ 2* ]] || exit 9',
    )
    environment |= {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_NODELIST": "node[7-8]"}
    subprocess.run(["bash", "sweep.sbatch"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    lines = (tmp_path / "logs" / "done.txt").read_text().splitlines()
    assert [line.partition(" after ")[0] for line in lines] == [
        "layout_1: done", "layout_2: failed with exit code 9", "layout_3: done"
    ]  # fmt: skip
    assert "--master-addr node7" in (tmp_path / "logs" / "layout_1.0.log").read_text()
    head = found["sweep.sbatch"]
    hours, minutes, _ = map(int, head.partition("--time=")[2].split()[0].split(":"))
    # three layouts of 10, 11 and 12 s a step, 30 steps each, must be able to take thrice as long
    assert 60 * hours + minutes > math.ceil(3 * 30 * (10 + 11 + 12) / 60)


def test_a_job_is_for_the_engine_of_the_software_recipe():
    run = question("llama-3-8b-8-h100")
    fsdp = dataclasses.replace(run, software=dataclasses.replace(run.software, recipe="torch-fsdp"))
    assert (engine_of("sbatch", run), engine_of("sbatch", fsdp)) == ("megatron", "torchtitan")
    assert "-m torchtitan.train" in files(fsdp, document(Layout(data=8)), "sbatch")[0]["run.sh"]


def test_what_is_said_stays_within_a_hundred_columns(tmp_path):
    for kind in ("torchtitan", "megatron"):
        wanted = request(kind, str(tmp_path))
        assert wanted is not None
        said = export(question("llama-3-8b-8-h100"), document(*SEVERAL["llama-3-8b-8-h100"]), wanted)
        lines = "\n".join(said).replace(str(tmp_path), "out").splitlines()
        assert max(map(len, lines)) <= 100
