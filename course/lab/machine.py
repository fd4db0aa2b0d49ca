"""What is there to measure on: cores, memory, accelerators, versions. A host is a number in a report, never a name."""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from course.errors import UserError

__all__ = ["ENGINES", "catalog_peak", "device_count", "devices", "engines", "require"]

ENGINES = ("torch", "jax")
ASK = {
    "torch": """
import json, torch
found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
names = []
if found is not None and found.type != "mps":
    module = getattr(torch, found.type)
    for place in range(torch.accelerator.device_count()):
        about = module.get_device_properties(place)
        names.append({"name": about.name, "memory_bytes": int(about.total_memory)})
print(json.dumps({"type": found.type if names else None, "gpus": names}))
""",
    "jax": """
import json, jax
names = []
for device in jax.local_devices():
    if device.platform != "cpu":
        held = (device.memory_stats() or {}).get("bytes_limit")
        names.append({"name": device.device_kind, "memory_bytes": held})
print(json.dumps({"type": jax.default_backend() if names else None, "gpus": names}))
""",
}  # asked in a child process: this one loads neither engine


def engines() -> list[str]:
    """The engines that are installed, Torch first.

    >>> set(engines()) <= set(ENGINES)
    True
    """
    return [name for name in ENGINES if find_spec(name) is not None]


def require(engine: str) -> None:
    """Raise UserError, with the line that installs it, where the engine is unknown or not there."""
    if engine not in ENGINES:
        raise UserError(f"There is no engine {engine!r}. The engines are {' and '.join(ENGINES)}.")
    if find_spec(engine) is None:
        raise UserError(
            f"{engine} is not installed, so nothing can be measured with it: type `python -m pip install "
            "'strong-scaling-course[lab]'`, or '.[lab]' in a checkout. Recorded reports can be read without it."
        )


@functools.cache
def _found() -> str:
    return json.dumps(_look())


def devices() -> dict[str, Any]:
    """What this host has, as the `machine` of a report.

    Returns `kind` ("gpu" where an engine finds one, else "cpu"), `accelerator` (its name, or the processor's),
    `node_size` (devices of this host), `cores` (that this process may use), `memory_bytes`, `gpus`, `versions`,
    `topology`, `hosts` (1) and `host` (0: hosts are numbered, not named).

    >>> found = devices()
    >>> found["hosts"], found["cores"] >= 1, platform.node() in json.dumps(found) and len(platform.node()) > 3
    (1, True, False)
    """
    found: dict[str, Any] = json.loads(_found())
    return found


def _look() -> dict[str, Any]:
    asked = _accelerators()
    gpus = asked["gpus"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processor = _processor()
    return {
        "kind": "gpu" if gpus else "cpu",
        "accelerator": gpus[0]["name"] if gpus else processor,
        "device_type": asked["type"] or "cpu",
        "node_size": len(gpus) or cores,
        "hosts": 1,
        "host": 0,
        "cores": cores,
        "physical_cores": psutil.cpu_count(logical=False),
        "processor": processor,
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": gpus,
        "topology": _topology(bool(gpus), cores),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in (*ENGINES, "numpy")},
    }


def device_count(machine: dict[str, Any]) -> int:
    """Devices that can each be measured alone: GPUs, or cores.

    >>> device_count({"kind": "cpu", "cores": 2, "gpus": []})
    2
    """
    return len(machine.get("gpus") or []) if machine.get("kind") == "gpu" else int(machine.get("cores") or 1)


def catalog_peak(machine: dict[str, Any], precision: str) -> float | None:
    """The peak of the catalog for this accelerator, FLOP/s; None for one it does not know (processors).

    >>> catalog_peak({"kind": "gpu", "accelerator": "NVIDIA H100 80GB HBM3"}, "bf16") in (None, 989.4e12, 989e12)
    True
    """
    from course import catalog

    if machine.get("kind") != "gpu":
        return None
    name = str(machine.get("accelerator"))
    for spelt in (name, name.removeprefix("NVIDIA ").removeprefix("AMD ")):
        try:
            return float(catalog.accelerator(spelt, precision).peak_flops_per_s)
        except (UserError, ValueError, KeyError):
            continue
    return None


def _accelerators() -> dict[str, Any]:
    nothing: dict[str, Any] = {"type": None, "gpus": []}
    if not _hints():
        return nothing
    for engine in engines():
        try:
            asked = subprocess.run(
                [sys.executable, "-c", ASK[engine]], capture_output=True, text=True, timeout=120, check=True
            )
            found: dict[str, Any] = json.loads(asked.stdout.splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            continue
        if found["gpus"]:
            return found
    return nothing


def _hints() -> bool:
    """Whether looking for accelerators is worth the seconds it takes to import an engine."""
    places = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/accel0", "/dev/dri/renderD128", "/dev/vfio/0")
    return shutil.which("nvidia-smi") is not None or any(Path(place).exists() for place in places)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("model name", "Model")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _topology(gpus: bool, cores: int) -> str:
    """How the devices hang together, in words; for GPUs the matrix of nvidia-smi where it is there."""
    if gpus and shutil.which("nvidia-smi"):
        try:
            asked = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=20, check=True)
            return asked.stdout.split("\n\n")[0].strip()
        except (OSError, subprocess.SubprocessError):
            pass
    return "accelerators of one host" if gpus else f"{cores} cores of one host, through its memory"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
