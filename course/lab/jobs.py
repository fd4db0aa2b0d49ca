"""The same measurement on a cluster: launch files that start the same workers with torchrun or Slurm.

A worker reads RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT and one configuration, so that only the
starting differs. The launcher's care (one launch after a failure, repeats of noisy cells) is for one host; a job
measures its cells once, and `course lab merge` reads what it left. The scripts were run with stand-ins for Slurm, on
no cluster.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from course.errors import UserError
from course.lab.finish import finished, rated, serial
from course.lab.legality import refusal
from course.lab.protocol import BATCHES, Request, cells, training
from course.lab.report import Cell, Report

__all__ = ["KINDS", "collect", "configuration", "job"]

HOST_CORES = 4
"""Cores of a host asked for each accelerator: the rank's own thread, the backward pass's, the network library's."""

MOST_SEQUENCES = BATCHES[-1] // 2
"""Sequences of a step that a device is given: those of one of two devices at the protocol's largest batch."""

CONFIGURATION = "lab-config.json"
KINDS = ("torchrun", "sbatch")


def configuration(
    nodes: int, devices_per_node: int, kind: str = "gpu", engine: str = "torch", quick: bool = False
) -> dict[str, Any]:
    """The worker's configuration for a cluster: collectives, the strong curve and a few layouts on all of its devices.

    By Torch the same batches also on one device and on one node, where a device has memory for its part: the curve's
    baselines.

    Args:
        nodes: hosts; devices_per_node: accelerators (or cores) each of them gives.
        kind: "gpu" or "cpu", which chooses the model.

    Raises UserError where a number makes no sense.

    >>> made = configuration(2, 8)
    >>> sorted({cell["devices"] for cell in made["cells"]}), made["folder"]
    ([1, 8, 16], 'lab-results')
    """
    for name, value in (("--nodes", nodes), ("--devices-per-node", devices_per_node)):
        if value < 1:
            raise UserError(f"{name} must be a whole number above 0, not {value}.")
    devices = nodes * devices_per_node
    gpus = [{"name": None}] * (devices if kind == "gpu" else 0)
    machine = {"kind": kind, "cores": devices, "gpus": gpus}
    # the cells of two devices, grown: JAX's quick protocol has none, and a job of one device a curve all the same
    two = {**machine, "cores": 2, "gpus": [{"name": None}] * 2 if kind == "gpu" else []}
    sample = cells(two, quick and engine == "torch", engine)
    counts = sorted({1, devices_per_node, devices} if engine == "torch" else {devices})
    strong = [cell for cell in sample if cell["family"] == "strong" and cell["devices"] == 2 and not cell["loader_s"]]
    found: list[Request] = []
    for count in counts:  # one device first: the others must repeat its losses
        for cell in strong:
            batch = _batch(int(cell["global_batch_sequences"]), devices)
            if batch % count == 0 and batch // count <= MOST_SEQUENCES:
                found.append(training(
                    machine, engine, "strong", count, batch, alternate=f"strong.gb{batch}",
                    measure_exposed=cell["measure_exposed"] and count > 1, steps=cell["steps"],
                ))  # fmt: skip
    found += [
        _collective(cell, devices, machine) for cell in sample
        if cell["family"] == "collective" and cell["devices"] == 2
    ]  # fmt: skip
    found += [
        training(machine, engine, "layout", devices, _batch(32, devices), name=name, layout=layout)
        for name, layout in _layouts(nodes, devices_per_node)
    ]
    legal = [cell for cell in found if refusal(cell, machine) is None]
    if not legal:
        raise UserError(f"No cell of the protocol can be cut over {devices} devices. Use a power of two.")
    return {
        "engine": engine,
        "folder": "lab-results",
        "collective_timeout_s": 120,
        "seed": 0,
        "threads": 1,
        "nodes": nodes,
        "devices_per_node": devices_per_node,
        "kind": kind,
        "cells": legal,
    }


def job(
    kind: str, nodes: int, devices_per_node: int, config: str = CONFIGURATION, engine: str = "torch",
    device: str = "gpu",
) -> str:  # fmt: skip
    """The launch file: a torchrun line for each node, or a Slurm script.

    Torch ranks stand below torchrun, one of it a node. JAX needs nothing but the names: Slurm starts each rank.

    Args:
        kind: "torchrun" or "sbatch".
        config: the worker's configuration, as `configuration` makes it, on a file system that all nodes see.
        device: "gpu" or "cpu", what Slurm is asked for.

    Raises UserError for another kind, and for JAX under torchrun, which holds the port that JAX would take.

    >>> print(job("torchrun", 1, 2).splitlines()[-1])
    torchrun --standalone --nproc-per-node 2 -m course.lab.torch_engine lab-config.json
    """
    if kind not in KINDS:
        raise UserError(f"There is no job {kind!r}. The kinds are {' and '.join(KINDS)}.")
    worker = f"-m course.lab.{engine}_engine {shlex.quote(config)}"
    if kind == "torchrun":
        if engine != "torch":
            raise UserError("torchrun starts the workers of Torch. Give sbatch for JAX, or set the names by hand.")
        return _torchrun(nodes, devices_per_node, worker)
    return _sbatch(nodes, devices_per_node, worker, engine, device)


def collect(folder: str | Path) -> Report:
    """The report of a job: the lines that its workers left, read with the configuration they were given.

    Args:
        folder: where the workers wrote; the configuration lies beside it, as `course lab job` put it there.

    Raises UserError where either is missing.
    """
    lines, config = _lines(Path(folder, "cells.jsonl")), Path(folder).resolve().parent / CONFIGURATION
    read = _lines(config, whole=True)
    if not lines or not read:
        missing = Path(folder, "cells.jsonl") if not lines else config
        raise UserError(f"There is nothing to read in {missing.name} of {Path(folder).name}: give a job's lab-results.")
    asked = read[0]
    cells = {cell["id"]: cell for cell in asked["cells"]}
    machine = _machine(asked, lines)
    found: list[Cell] = []
    for line in {line.get("id"): line for line in lines}.values():  # of a job submitted twice the later line counts
        request = cells.get(line.get("id"))
        if request is not None:
            found.append(finished(request, line, machine, serial(found, request)))
    return Report(machine, rated(found, machine))


def _lines(file: Path, whole: bool = False) -> list[dict[str, Any]]:
    try:
        text = file.read_text(encoding="utf-8")
        found = [json.loads(text)] if whole else [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError):
        return []
    return [line for line in found if isinstance(line, dict)]


def _machine(config: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the workers say they ran on."""
    place = next((line["placement"] for line in lines if line.get("placement")), None)
    rows = place if isinstance(place, list) else []
    kinds = place.get("accelerators") or place.get("device_kinds") if isinstance(place, dict) else None
    name = rows[0].get("name") if rows else kinds[0] if kinds else None
    nodes, each = int(config["nodes"]), int(config["devices_per_node"])
    gpu = config["kind"] == "gpu"
    versions = next(((line.get("extra") or {}).get("versions") for line in lines), None)
    return {
        "kind": config["kind"], "accelerator": name, "node_size": each, "hosts": nodes, "host": 0,
        "cores": None if gpu else each, "gpus": [{"name": name}] * each if gpu else [], "versions": versions or {},
    }  # fmt: skip


def _collective(cell: Mapping[str, Any], devices: int, machine: Mapping[str, Any]) -> Request:
    name = f"{cell['operation']}-{cell['payload_bytes']}"
    more = {key: cell[key] for key in ("operation", "payload_bytes", "steps", "blocks")}
    return training(machine, cell["engine"], "collective", devices, devices, name=name, **more)


def _batch(batch: int, devices: int) -> int:
    """The batch grown with the devices beyond two: the same sequences a device as on one host."""
    return max(1, batch // 2) * devices


def _layouts(nodes: int, each: int) -> Sequence[tuple[str, dict[str, Any]]]:
    devices = nodes * each
    found: list[tuple[str, dict[str, Any]]] = [(f"dp{devices}-zero3", {"data": devices, "sharding": "zero3"})]
    if each > 1:
        found.append((f"tp{each}-dp{nodes}", {"tensor": each, "data": nodes}))
    if nodes > 1:
        found.append((f"tp{nodes}-across-dp{each}", {"tensor": nodes, "data": each}))
    return found


def _torchrun(nodes: int, each: int, worker: str) -> str:
    head = [
        "#!/bin/sh",
        "# One training-like measurement on every device; the workers write lab-results/cells.jsonl.",
        "set -e",
        "export OMP_NUM_THREADS=1",
        "mkdir -p lab-results",
    ]
    if nodes == 1:
        return "\n".join([*head, f"torchrun --standalone --nproc-per-node {each} {worker}"]) + "\n"
    return "\n".join([
        *head,
        f"# Run this file on each of the {nodes} nodes, HEAD being the same node's name everywhere:",
        "#   HEAD=node-1 sh lab-job.sh     (PORT=... before it, the same everywhere, where 29500 is taken)",
        ': "${HEAD:?set HEAD to the name of one of the nodes, the same on all of them}"',
        f"torchrun --nnodes {nodes} --nproc-per-node {each} --rdzv-backend c10d --rdzv-id course-lab \\",
        f'  --rdzv-endpoint "$HEAD:${{PORT:-29500}}" {worker}',
    ]) + "\n"  # fmt: skip


def _sbatch(nodes: int, each: int, worker: str, engine: str, device: str) -> str:
    tasks, rank = (1, each) if engine == "torch" else (each, 1)
    head = [
        "#!/bin/bash",
        "# Submit it from the folder that holds it and lab-config.json, one that all nodes see: the job runs there.",
        "#SBATCH --job-name=course-lab",
        "##SBATCH --account=NAME",
        "##SBATCH --partition=NAME",
        f"#SBATCH --nodes={nodes}",
        f"#SBATCH --ntasks-per-node={tasks}",
        *([f"#SBATCH --gpus-per-node={each}"] if device == "gpu" else []),
        f"#SBATCH --cpus-per-task={rank * (HOST_CORES if device == 'gpu' else 1)}",
        "#SBATCH --exclusive",
        "#SBATCH --mem=0",
        "#SBATCH --time=00:30:00",
        "#SBATCH --output=lab-%j.txt",
        "# Activate the environment that holds the course and its engine here, as on the login node:",
        "#   source PATH/bin/activate",
        "set -euo pipefail",
        'export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"  # srun does not take it over by itself',
        "export OMP_NUM_THREADS=1",
        'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)',
        'PORT=$((20000 + ${SLURM_JOB_ID:-0} % 10000))  # two jobs on one node take two',
        "mkdir -p lab-results",
    ]
    if engine == "torch":
        start = [
            "# One task a node; torchrun starts a rank for each of its devices.",
            "srun --kill-on-bad-exit=1 torchrun \\",
            f'  --nnodes {nodes} --nproc-per-node {each} --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" \\',
            f'  --rdzv-endpoint "$HEAD:$PORT" {worker}',
        ]
    else:
        start = [
            "# One task a device.",
            'export MASTER_ADDR="$HEAD" MASTER_PORT="$PORT" WORLD_SIZE="$SLURM_NTASKS"',
            "srun --kill-on-bad-exit=1 bash -c \\",
            f"  'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec python {worker}'",
        ]
    return "\n".join([*head, *start]) + "\n"
