"""Facts about models, accelerators, links, state recipes and training programs, as rows of data files.

Each row carries its source, the month it was read and a doubt where there is one; another fact is another row, and no
name stands in code. `confidence` is 2 where two sources agree, 1 for one source or a choice between two, and "memory"
for a figure nobody has checked. Rates are one-way and per device, peaks dense; what the vendor prints stands beside.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from course.errors import UserError
from course.fields import fields_of, nearest, show
from course.problem import Accelerator, Fabric, Model, Software, State

__all__ = [
    "KINDS", "BucketRule", "NoPeak", "UnknownName", "accelerator", "bucket_rule", "constant_rows", "constants",
    "fabric", "fabrics_for", "facts", "find", "model", "names", "published_total", "software", "state",
]  # fmt: skip

KINDS = {
    "models": "models.csv",
    "accelerators": "accelerators.csv",
    "fabrics": "presets.csv",
    "links": "fabrics.csv",
    "states": "states.csv",
    "software": "software.csv",
}
CONSTANTS, BUS = "constants.csv", "bus.csv"
DEFAULT_STATE = "bf16-18"

Row = Mapping[str, str]


@dataclass(frozen=True)
class BucketRule:
    """How a program sizes the buckets of gradients it reduces, where a run file does not say.

    `bytes` is the value that stands for the rule; `layer` means a bucket a layer; otherwise a bucket holds `numbers`
    gradients, or `per_rank` for each replica where that is more. `per_rank` of 0 means that `bytes` is all there is.
    """

    bytes: int
    layer: bool = False
    numbers: int = 0
    per_rank: int = 0


class UnknownName(UserError, LookupError):
    """No row of the catalog has that name; the message holds the nearest one."""


class NoPeak(UserError, LookupError):
    """The accelerator has no matrix units for that precision, or nobody published their peak."""


@cache
def _rows(kind: str) -> tuple[Row, ...]:
    if kind not in KINDS:
        raise UnknownName(f"The catalog has no kind {show(kind)}; it has {', '.join(KINDS)}.")
    text = files(__package__).joinpath(KINDS[kind]).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def _table(file: str) -> tuple[Row, ...]:
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def constant_rows() -> tuple[Row, ...]:
    """The whole table of constants, each with its unit, why it is so, where it comes from and what calibrated it.

    >>> constant_rows()[0]["constant"]
    'matmul_share'
    """
    return _table(CONSTANTS)


@cache
def constants(recipe: str, accelerator_name: str) -> Mapping[str, Row]:
    """The constants of a training program on an accelerator, each with its unit and where it comes from.

    The row that names both wins over one that names the program, that over one that names the accelerator, and that
    over one for all. `accelerator_name` is the catalog's own.

    >>> constants("maxtext", "tpu-v5e")["host_forward_s"]["value"]
    '0'
    """
    found: dict[str, tuple[int, Row]] = {}
    for row in _table(CONSTANTS):
        own_program, own_device = row["recipe"] != "*", row["accelerators"] != "*"
        named = row["accelerators"].split("; ")
        if (own_program and row["recipe"] != recipe) or (own_device and accelerator_name not in named):
            continue
        rank = 2 * own_program + own_device
        if rank >= found.get(row["constant"], (-1, row))[0]:
            found[row["constant"]] = rank, row
    return {name: row for name, (_, row) in found.items()}


@cache
def _bus(link: str, collective: str) -> tuple[tuple[int, float], ...]:
    """Measured bus bandwidth over whole nodes: (nodes, byte/s), by number of nodes; empty where none is published."""
    rows = [row for row in _table(BUS) if (row["link"], row["collective"]) == (link, collective)]
    return tuple(sorted((int(row["nodes"]), float(row["busbw_bytes_per_s"])) for row in rows))


@cache
def _index(kind: str) -> dict[str, str]:
    """Every spelling a row answers to, to the row's name."""
    key = "recipe" if kind == "software" else "id"
    index = {_spelling(row[key]): row[key] for row in _rows(kind)}
    for row in _rows(kind):
        for alias in filter(None, row.get("aliases", "").split(";")):
            index.setdefault(_spelling(alias), row[key])
    return index


def _spelling(name: str) -> str:
    return "-".join(name.casefold().replace("_", " ").replace("-", " ").split())


def names(kind: str) -> tuple[str, ...]:
    """The names of one kind, in the order of its file.

    `kind` is one of `KINDS`. Raises `UnknownName`.

    >>> names("states")
    ('bf16-16', 'bf16-18', 'bf16-20', 'fp32-16', 'bf16-8')
    """
    return tuple(dict.fromkeys(row["recipe" if kind == "software" else "id"] for row in _rows(kind)))


def find(kind: str, name: str) -> str:
    """The catalog's own name for a name or an alias; capitals, spaces, `-` and `_` do not matter.

    Raises `UnknownName` with the nearest known name.

    >>> find("accelerators", "H100 SXM")
    'h100-sxm'
    >>> find("accelerators", "h10")
    Traceback (most recent call last):
        ...
    course.catalog.UnknownName: The catalog has no accelerator "h10"; the nearest name is "h100-sxm". \
`course show accelerators` lists them all.
    """
    index = _index(kind)
    found = index.get(_spelling(name)) if isinstance(name, str) else None
    if found is None:
        one = {"software": "software recipe", "states": "state recipe"}.get(kind, kind.removesuffix("s"))
        hint = f'; the nearest name is "{index[nearest(_spelling(name), index)]}"' if isinstance(name, str) else ""
        raise UnknownName(f"The catalog has no {one} {show(name)}{hint}. `course show {kind}` lists them all.")
    return found


def facts(kind: str, name: str) -> tuple[Row, ...]:
    """The rows as written, with sources and doubts: several for a recipe; a fabric's own and those of its two links.

    >>> facts("accelerators", "H100")[0]["scale_up_printed"]
    '900 GB/s two-way'
    """
    found = find(kind, name)
    key = "recipe" if kind == "software" else "id"
    rows = tuple(row for row in _rows(kind) if row[key] == found)
    if kind == "fabrics":
        rows += facts("links", rows[0]["scale_up"]) + facts("links", rows[0]["scale_out"])
    return rows


def _number(text: str) -> float | None:
    return float(text) if text else None


def _needed(row: Row, column: str) -> float:
    value = _number(row[column])
    if value is None:
        raise NoPeak(f"The catalog knows no {column} of {row['id']}; give it in the run file.")
    return value


def _typed(table: str, row: Row) -> dict[str, object]:
    """The columns of `row` that are fields of `table`, in their own types; blank cells are left out."""
    typed: dict[str, object] = {}
    for name, declared in fields_of(table).items():
        text = row.get(name, "")
        if not text or declared.kind == "name":
            continue
        if declared.kind == "yes/no":
            typed[name] = text == "1"
        elif declared.kind == "integer":
            typed[name] = int(text)
        else:
            typed[name] = text
    return typed


def model(name: str) -> Model:
    """The shape of a public model by name or alias.

    Where every layer is a mixture `ffn` repeats the width of one expert, and latent attention's `head_size` is the
    width of a value head. Raises `UnknownName`.

    >>> model("llama-3.1-405b").layers
    126
    """
    row = facts("models", name)[0]
    typed = {"ffn": int(row["expert_ffn"] or 0), "head_size": int(row["v_head_size"] or 0), **_typed("model", row)}
    return Model(name=row["id"], **typed)  # type: ignore[arg-type]  # the types come from the table of fields


def published_total(name: str) -> float:
    """Parameters as published (exact or rounded), for checking a count; nothing is computed with it.

    >>> published_total("llama-2-7b")
    6738415616.0
    """
    return _needed(facts("models", name)[0], "published_total")


def accelerator(name: str, precision: str = "bf16", peak_flops_per_s: float | None = None) -> Accelerator:
    """An accelerator by name or alias, with its dense peak in FLOP/s for `precision`.

    `peak_flops_per_s`, where given, stands in for the catalog's. Raises `UnknownName`, and `NoPeak` where the device
    does not compute in that precision.

    >>> f"{accelerator('H100').peak_flops_per_s:.4g}"
    '9.894e+14'
    >>> accelerator("t4")
    Traceback (most recent call last):
        ...
    course.catalog.NoPeak: The catalog has no bf16 peak for t4; it has fp16. Choose one of these as precision.
    """
    row = facts("accelerators", name)[0]
    peaks = {
        p: float(row[f"peak_{p}_flops_per_s"]) for p in ("bf16", "fp16", "fp8", "fp4") if row[f"peak_{p}_flops_per_s"]
    }
    if precision not in peaks and peak_flops_per_s is None:
        raise NoPeak(
            f"The catalog has no {precision} peak for {row['id']}; it has {', '.join(peaks)}. "
            "Choose one of these as precision."
        )
    measured = _number(row["measured_matmul_bf16_flops_per_s"])
    own_peak = peak_flops_per_s is not None
    return Accelerator(
        id=row["id"],
        name=row["name"],
        memory_bytes=_needed(row, "memory_bytes"),
        memory_bytes_per_s=_needed(row, "memory_bytes_per_s"),
        peak_flops_per_s=peaks[precision] if peak_flops_per_s is None else peak_flops_per_s,
        precision=precision,
        measured_matmul_flops_per_s=measured if precision == "bf16" and not own_peak else None,
        measured_matmul_share=measured / peaks["bf16"] if measured else None,
        peak_16_bit_flops_per_s=None if own_peak else peaks.get("bf16", peaks.get("fp16")),
        vendor=row["vendor"],
        default_recipe=row["default_recipe"],
        source=row["source"],
        confidence=row["confidence"],
    )


def fabric(name: str) -> Fabric:
    """A preset of two tiers of links by name: rates in bytes/s, one way, per device; latencies in seconds.

    A rate measured over several nodes that exceeds the wire's was reached with the help of the fast links, and is not
    handed on. Raises `UnknownName`.

    >>> fabric("h100-ib400").node_size, f"{fabric('h100-ib400').scale_out_bytes_per_s:.0e}"
    (8, '5e+10')
    """
    preset, up, out = facts("fabrics", name)
    wire = _needed(out, "bytes_per_s")
    measured_out = _number(out["measured_busbw_bytes_per_s"])
    return Fabric(
        id=preset["id"],
        name=preset["name"],
        node_size=int(up["devices_joined"]),
        scale_up_bytes_per_s=_needed(up, "bytes_per_s"),
        scale_out_bytes_per_s=wire,
        scale_up_latency_s=_needed(up, "latency_s"),
        scale_out_latency_s=_needed(out, "latency_s"),
        scale_up_measured_bytes_per_s=_number(up["measured_busbw_bytes_per_s"]),
        scale_out_measured_bytes_per_s=measured_out if measured_out and measured_out <= wire else None,
        reduce_bus_by_nodes=_bus(out["id"], "all-reduce"),
        gather_bus_by_nodes=_bus(out["id"], "all-gather"),
        source=f"{up['source']}; {out['source']}",
    )


def fabrics_for(accelerator_name: str) -> tuple[str, ...]:
    """The presets made for an accelerator.

    >>> fabrics_for("h100-sxm")
    ('h100-ib400', 'h100-efa')
    """
    found = find("accelerators", accelerator_name)
    return tuple(row["id"] for row in _rows("fabrics") if found in row["accelerators"].split("; "))


def state(name: str | State) -> State:
    """A model-state recipe by name, bytes a parameter by parts; a recipe already looked up comes back as it is.

    >>> state("bf16-18").total, state("bf16-16").gradients
    (18, 2)
    """
    if isinstance(name, State):
        return name
    row = facts("states", name)[0]
    parts = {part: int(row[part]) for part in ("weights", "gradients", "extra_gradients", "master", "moments")}
    return State(id=row["id"], **parts, used_by=row["used_by"], source=row["source"])


def software(name: str, state_recipe: str | State = DEFAULT_STATE) -> Software:
    """The habits of a training program by name.

    `state_recipe` decides how wide a gradient is on the wire where the program reduces gradients as it accumulates
    them: the extra copy's width where there is one, else the gradient's. Raises `UnknownName`.

    >>> software("megatron").gradient_reduction_bytes, software("megatron", "bf16-16").gradient_reduction_bytes
    (4, 2)
    """
    values = {row["field"]: row["value"] for row in facts("software", name)}
    recipe = state(state_recipe)
    if values["gradient_reduction_bytes"] == "as accumulated":
        values["gradient_reduction_bytes"] = str(recipe.extra_gradients or recipe.gradients)
    if values["weight_gather_bytes"] == "as stored":
        values["weight_gather_bytes"] = str(recipe.weights)
    return Software(
        recipe=find("software", name),
        order=tuple(values["order"].split()),
        source=facts("software", name)[0]["source"],
        **_typed("software", values),  # type: ignore[arg-type]  # the types come from the table of fields
    )


@cache
def bucket_rule(name: str) -> BucketRule:
    """The rule by which a training program sizes its gradient buckets. Raises `UnknownName`.

    >>> bucket_rule("megatron").per_rank, bucket_rule("torch-fsdp").layer, bucket_rule("nanotron-2025").per_rank
    (1000000, True, 0)
    """
    row = next(row for row in facts("software", name) if row["field"] == "bucket_bytes")
    numbers = [int(word) for word in row["rule"].split() if word.isdigit()]
    return BucketRule(int(row["value"]), row["rule"] == "a layer", *numbers)
