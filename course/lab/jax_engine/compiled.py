"""What the compiler made of a step, without running it: collectives by kind, FLOPs and bytes of one device.

These figures are exact and the same on every run of the same versions, which no time is. The reader of a program's
text needs no JAX; `compile_cells` asks a child process for them.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from course.errors import UserError

__all__ = ["COLLECTIVES", "collective_bytes", "collective_counts", "compile_cells", "figures", "recorded"]

COLLECTIVES = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
    "collective-broadcast",
)  # fmt: skip
QUICK = "--xla_backend_optimization_level=0"
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = ")
_OPAQUE = re.compile(r'custom_call_target="__(?:cublas|cudnn|triton)')
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")


def collective_counts(text: str) -> dict[str, int]:
    """Count the collectives in a compiled program's text, by kind; one that carries many arrays counts once.

    An asynchronous pair (start, done) is one collective. What is inside a loop is counted once, however often the
    loop turns.

    >>> collective_counts('''
    ...   %all-reduce.3 = (f32[8]{0}, /*index=1*/f32[4,2]{1,0}) all-reduce(%a, %b), channel_id=1, to_apply=%sum
    ...   %first = f32[8]{0} get-tuple-element(%all-reduce.3), index=0
    ...   %all-gather-start.1 = (f32[4]{0}, f32[8]{0}) all-gather-start(%c), dimensions={0}
    ...   ROOT %all-gather-done.1 = f32[8]{0} all-gather-done(%all-gather-start.1)
    ... ''')
    {'all-gather': 1, 'all-reduce': 1}
    """
    counts: dict[str, int] = {}
    for kind, _ in _collectives(text):
        counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items()))


def collective_bytes(text: str) -> dict[str, int]:
    """Add up the bytes of what each kind of collective returns on one device.

    >>> collective_bytes("%x = (f32[8]{0}, bf16[4,2]{1,0}) all-reduce(%a, %b), to_apply=%sum")
    {'all-reduce': 48}
    """
    totals: dict[str, int] = {}
    for kind, size in _collectives(text):
        totals[kind] = totals.get(kind, 0) + size
    return dict(sorted(totals.items()))


def _collectives(text: str) -> Iterator[tuple[str, int]]:
    """Kind and result bytes of each collective. A result may be a tuple, whose type holds spaces and comments."""
    for line in text.splitlines():
        begin = _INSTRUCTION.match(line)
        if begin is None:
            continue
        rest = line[begin.end() :]
        end = _tuple_end(rest) if rest.startswith("(") else rest.find(" ")
        result, operation = rest[:end], rest[end:].lstrip().split("(")[0]
        kind = operation.removesuffix("-start")
        if kind in COLLECTIVES:
            arrays = [_size(*found) for found in _ARRAY.findall(result)]
            # A start returns what goes in beside what comes out, but for all-reduce, which returns in place.
            both = operation.endswith("-start") and kind != "all-reduce"
            yield kind, arrays[1] if both and len(arrays) > 1 else sum(arrays)


def _tuple_end(text: str) -> int:
    depth = 0
    for position, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return position + 1
    return len(text)


def _size(name: str, bits: str, dimensions: str) -> int:
    count = math.prod(int(part) for part in dimensions.split(",") if part)
    return count * (8 if name == "pred" else int(bits)) // 8


def figures(program: Any) -> dict[str, Any]:
    """Read the figures of one device off a compiled program (what `jax.jit(f).lower(...).compile()` returns).

    Returns flops_per_device (null where a loop hides how often its body runs, and where a vendor's matmul hides what it
    does), collectives and collective_bytes by
    kind, argument_bytes (what the step is handed: parameters and batch), output_bytes, aliased_bytes (outputs that take
    an argument's place), temporary_bytes (all that lives only within the step), loops.
    """
    text = program.as_text()
    cost, memory = program.cost_analysis(), program.memory_analysis()
    cost = cost[0] if isinstance(cost, list) else cost or {}
    loops = len(re.findall(r"\bwhile\(", text))
    flops = None if loops or _OPAQUE.search(text) else cost.get("flops")
    return {
        "flops_per_device": None if flops is None else int(flops),
        "collectives": collective_counts(text),
        "collective_bytes": collective_bytes(text),
        "argument_bytes": None if memory is None else int(memory.argument_size_in_bytes),
        "output_bytes": None if memory is None else int(memory.output_size_in_bytes),
        "aliased_bytes": None if memory is None else int(memory.alias_size_in_bytes),
        "temporary_bytes": None if memory is None else int(memory.temp_size_in_bytes),
        "loops": loops,
    }


def compile_cells(cells: Sequence[Mapping[str, Any]], timeout_s: float = 120.0) -> list[dict[str, Any]]:
    """Compile the steps of some cells on simulated devices, in a process of its own; time nothing.

    Arguments: cells are requests as the worker takes them (id, model, layout, devices, …). Returns one record for each,
    in order, with the compiler's figures under "extra" and the loss after `loss_steps` updates. Raises `UserError`
    where JAX is missing, where the worker fails, and after timeout_s seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = {"engine": "jax", "folder": folder, "cells": [{**cell, "warmup": 0, "steps": 0} for cell in cells]}
        path = Path(folder, "config.json")
        path.write_text(json.dumps(config), encoding="utf-8")
        command = [sys.executable, "-m", "course.lab.jax_engine", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s, env=_alone())
        except subprocess.TimeoutExpired:
            raise UserError(f"Compiling {len(cells)} cells took more than {timeout_s:g} s: ask for fewer.") from None
        if done.returncode:
            why = done.stderr.strip().removeprefix("UserError: ") or "the worker died without a word."
            raise UserError(f"The programs could not be compiled: {why}")
        lines = Path(folder, "cells.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _alone() -> dict[str, str]:
    """This environment for a worker that is alone and simulates its devices, whatever else the machine has.

    Nothing is timed, so the machine code need not be good: the program that is counted is ready before it is written.
    """
    ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {key: value for key, value in os.environ.items() if key not in ranks}
    flags = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()
    return kept | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}


def recorded() -> dict[str, Any]:
    """Return the figures that were recorded once, for readers without JAX; "machine" names versions and hardware.

    >>> sorted(recorded())
    ['cells', 'machine']
    """
    text = (files("course.lab") / "recorded" / "jax_compiled.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
