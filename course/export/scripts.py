"""Shell scripts that launch the layouts: one on the nodes at hand, and a Slurm job that runs each in turn."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from textwrap import wrap

from course.export.port import STEPS, Settings
from course.problem import Run

__all__ = ["hosts", "next_steps", "run", "sbatch"]

START_S, SLACK = 900, 3
"""Seconds for an engine to start and compile, and how many times the predicted time a layout may take besides."""

MOST_ON_A_HOST, IN_A_TRAY = 16, 4
"""A host holds a whole node of fast links up to so many devices; where more are joined (a rack) its trays hold four."""


def hosts(run: Run) -> tuple[int, int]:
    """Hosts, and devices on each, that hold the devices of a run.

    >>> from course.examples import path
    >>> from course.problem import load
    >>> hosts(load(path("llama-2-70b-64-a100")))
    (8, 8)
    """
    node, devices = run.cluster.fabric.node_size, run.cluster.devices
    each = math.gcd(node if node <= MOST_ON_A_HOST else IN_A_TRAY, devices)
    return devices // each, each


def run(run: Run, settings: Settings) -> str:
    """`run.sh`: one layout by torchrun, its log in `logs/`. Called on every host, with its number in NODE_RANK."""
    count, each = hosts(run)
    names = " ".join(one.name for one in settings.ported)
    lines = [
        "#!/usr/bin/env bash",
        f"# Measures one layout with {settings.engine}. Written by `course sweep --export`.",
        "#   bash run.sh LAYOUT        on one host; on several, at the same time on each, with NODE_RANK=0, 1, ... and",
        "#                             HEAD=the name of the first",
        f"# LAYOUT is one of: {names}",
        *_needs(settings),
        "set -euf -o pipefail",
        'cd "$(dirname "$0")"',
        "name=${1:?which layout: " + names + "}",
        f': "${{NODES:={count}}}" "${{GPUS_PER_NODE:={each}}}" "${{HEAD:=localhost}}" "${{PORT:=29500}}"',
        ': "${NODE_RANK:=${SLURM_NODEID:-0}}"',
        "mkdir -p logs",
    ]
    if f"{settings.ported[0].name}.args" in settings.files:
        lines += [
            "options=$(grep -v '^#' \"$name.args\")",
            "# Megatron wants one queue on each device, and its FSDP wants more than one",
            "case $options in *--use-megatron-fsdp*) ;; *) export CUDA_DEVICE_MAX_CONNECTIONS=1 ;; esac",
        ]
    else:
        lines.append("export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH}")
    lines += [
        'torchrun --nnodes "$NODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" \\',
        f'  --master-addr "$HEAD" --master-port "$PORT" {settings.launch} \\',
        '  > "logs/$name.$NODE_RANK.log" 2>&1',
    ]
    return "\n".join(lines) + "\n"


def _needs(settings: Settings) -> list[str]:
    return [f"# {line}" for line in wrap(f"Set before: {settings.needs}.", 116, break_on_hyphens=False)]


def limits(settings: Settings) -> list[int]:
    """Seconds each layout may take: the start, and three times the predicted time of its steps."""
    return [START_S + 60 * math.ceil(SLACK * STEPS * one.asked.time_s / 60) for one in settings.ported]


def sbatch(run: Run, settings: Settings) -> str:
    """`sweep.sbatch`: every layout in turn on the same hosts, one line a layout in `logs/done.txt`."""
    count, each = hosts(run)
    longest = limits(settings)
    minutes = math.ceil(sum(longest) / 60) + 5
    pairs = " ".join(f"{one.name}:{limit}" for one, limit in zip(settings.ported, longest, strict=True))
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# Measures {len(settings.ported)} layouts with {settings.engine}, one after the other on the same hosts.",
            "# Add the partition and account of your cluster, and the lines that load your environment.",
            *_needs(settings),
            "#SBATCH --job-name=layouts",
            f"#SBATCH --nodes={count}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --gpus-per-node={each}",
            "#SBATCH --exclusive",
            f"#SBATCH --time={minutes // 60:02d}:{minutes % 60:02d}:00",
            "#SBATCH --output=sweep-%j.out",
            "set -euo pipefail",
            'cd "$SLURM_SUBMIT_DIR"',
            "mkdir -p logs",
            'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")',
            "export HEAD=${hosts%%$'\\n'*}",
            f"for pair in {pairs}; do",
            "  name=${pair%:*} limit=${pair#*:} started=$SECONDS said=done",
            '  srun --kill-on-bad-exit=1 timeout "$limit" bash run.sh "$name" || said="failed with exit code $?"',
            '  echo "$name: $said after $((SECONDS - started)) s" | tee -a logs/done.txt',
            "done",
            "",
        ]
    )


def next_steps(kind: str, folder: Path, settings: Settings) -> str:
    """The exact commands that follow, on the cluster and back here."""
    shown, first = shlex.quote(str(folder)), settings.ported[0].name
    start = "sbatch sweep.sbatch" if kind == "sbatch" else f"bash run.sh {first}"
    more = "" if kind == "sbatch" or len(settings.ported) == 1 else ", then each other layout"
    return "\n".join(
        [
            "Next:",
            f"  on the cluster, in a copy of {shown}:",
            *(f"    {line}" for line in wrap(f"set {settings.needs};", 96, break_on_hyphens=False)),
            f"    {start}{more}",
            "  back here, with logs/ copied into that folder:",
            f"    python -m course.export.logs {shown}",
            f"    course compare {shlex.quote(str(folder / 'results.csv'))}",
        ]
    )
