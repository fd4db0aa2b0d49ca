"""From a row of measured runs to the question it answers: a Run, or the reason why it cannot be predicted.

Blank cells are filled by the habits of the program that ran, and every filling is said in the run's `assumptions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from course import catalog
from course.compare.shapes import NoShape, model_of
from course.compare.words import CONVENTIONS, anomalous, notes_say, spelt, unknown
from course.fields import RunFileError, show
from course.formula import FormulaError
from course.legality import RECOMPUTES, SCHEDULES
from course.legality import SHARDINGS as KNOWN_SHARDINGS
from course.problem import Accelerator, Cluster, Fabric, Layout, Model, Run, Software, Training
from course.records.columns import Row, Value

__all__ = ["PRECISIONS", "Skipped", "precision_of", "run_of"]

PRECISIONS = {"mxfp8": "fp8", "fp8-cs": "fp8", "fp8-mx": "fp8", "nvfp4": "fp4"}
"""Other names of a precision."""

MEASURED = (
    "step_time_s", "tokens_per_s_per_device", "tflops_per_device", "mfu_reported", "hfu_reported", "peak_mem_gib",
)  # fmt: skip
"""What a row may have measured."""

ABOVE_ONE = "utilisation above 1"
DOUBTED = "noted ANOMALY: its time is in no score"
OUT_OF_RANGE = "the numbers of the row leave the range a formula takes"

STATES = {
    "megatron": "bf16-18", "megatron-2021": "bf16-16", "nanotron-2025": "bf16-20", "torch-fsdp": "fp32-16",
    "maxtext": "fp32-16",
}  # fmt: skip
"""Bytes a parameter by program, where the row does not say: as the catalog's state recipes name their users."""

SHARDINGS = {"megatron": "zero1", "nanotron-2025": "zero1", "torch-fsdp": "zero3", "maxtext": "zero3"}
"""What a program usually shards where the row does not say."""


FABRICS = {("nanotron-2025", "h100-sxm"): "h100-efa"}
"""The links of a program's published runs, where they say them: the playbook's collectives were measured on EFA."""


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be predicted, and why: `reason` in full, `kind` the few words that rows like it share."""

    reason: str
    kind: str = ""

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", self.reason)


def precision_of(row: Row) -> str:
    """The precision a row computes in; blank is bf16.

    >>> precision_of({"dtype": "mxfp8"}), precision_of({"dtype": None})
    ('fp8', 'bf16')
    """
    name = str(row.get("dtype") or "bf16").casefold()
    return PRECISIONS.get(name, name)


def run_of(row: Row) -> Run | Skipped:
    """The question that a row of measured runs answers, its layout included.

    Args:
        row: values by the columns of `records/runs.csv`, None where blank; `fabric`, `node_size`, `head_size`,
            `tied_embeddings`, `sequence_parallel`, `schedule`, `order` and `state` are read where they are there.

    Returns:
        Run, with what was filled in as `assumptions`; or Skipped, with a kind that many rows share.
        Words are read as `course.compare.words` lists: "ZeRO-2", "DDP" and "NeMo" are known.

    >>> row = {"id": "a-1", "model": "mpt-7b", "accelerator": "A100-80GB", "n_devices": 8, "dp": 8, "seq_len": 2048,
    ...        "global_batch_seqs": 64, "micro_batch": 2, "software": "torch-fsdp", "sharding": "zero3"}
    >>> run_of(row).layout.sharding, run_of({**row, "mfu_convention_code": "lora"}).reason
    ('zero3', 'LoRA trains a part of the weights: not predicted')
    """
    row = spelt(row)
    reason = _not_yet(row) or _blank(row)
    if reason:
        return Skipped(reason)
    impossible = _impossible(row)
    if impossible:
        return impossible
    try:
        return _run(row)
    except NoShape as error:
        return Skipped(f"shape missing: {error}", "shape missing")
    except catalog.NoPeak:
        reason = f"no peak known for {precision_of(row)} on {row['accelerator']}"
        return Skipped(reason, "no peak known for the precision")
    except FormulaError:
        return Skipped(OUT_OF_RANGE)
    except RunFileError as error:
        return Skipped(f"no valid run: {error}", "no valid run")


def _not_yet(row: Row) -> str | None:
    """What the prediction does not reach yet."""
    if row.get("unfit"):
        return str(row["unfit"])
    notes, name = notes_say(row.get("notes")), notes_say(row.get("model"))
    if row.get("mfu_convention_code") == "lora" or "lora" in notes | name:
        return "LoRA trains a part of the weights: not predicted"
    if "offload" in notes:
        return "offloading to the host is not predicted"
    return None


def _impossible(row: Row) -> Skipped | None:
    """A measured cell that cannot be, or a word that nobody knows."""
    for column in MEASURED:
        value = row.get(column)
        if value is None:
            continue
        if float(value) < 0:
            return Skipped(f"measured value below zero: {column} = {show(value)}", "measured value below zero")
        if column in ("mfu_reported", "hfu_reported") and float(value) > 1:
            return Skipped(f"{ABOVE_ONE}: {column} = {show(value)}; give a share of peak: 50 % is 0.5", ABOVE_ONE)
    for column, known in (
        ("mfu_convention_code", CONVENTIONS), ("sharding", KNOWN_SHARDINGS), ("recompute", RECOMPUTES),
    ):  # fmt: skip
        value = row.get(column)
        if value is not None and value not in known:
            return Skipped(f"no valid run: unknown {column} {unknown(value, known)}", f"unknown {column}")
    return None


def _blank(row: Row) -> str | None:
    """A cell without which nothing can be predicted."""
    for column, what in (
        ("accelerator", "accelerator"), ("n_devices", "device count"), ("seq_len", "sequence length"),
        ("global_batch_seqs", "global batch"),
    ):  # fmt: skip
        if row.get(column) is None:
            return f"{what} missing"
    if all(row.get(column) is None for column in ("dp", "tp", "pp", "sharding")):
        return "layout missing"
    return None


def _run(row: Row) -> Run | Skipped:
    accelerator = _accelerator(str(row["accelerator"]), precision_of(row))
    if isinstance(accelerator, Skipped):
        return accelerator
    if float(row.get("tflops_per_device") or 0) * 1e12 > accelerator.peak_flops_per_s:
        peak = f"{accelerator.peak_flops_per_s / 1e12:,.0f} of the {accelerator.precision} peak"
        said_rate = f"tflops_per_device = {show(row['tflops_per_device'])}"
        return Skipped(f"{ABOVE_ONE}: {said_rate} against {peak}", ABOVE_ONE)
    said: list[str] = [DOUBTED] if anomalous(row) else []
    recipe = _recipe(row, accelerator, said)
    if isinstance(recipe, Skipped):
        return recipe
    links = row.get("fabric") or FABRICS.get((recipe, accelerator.id))
    fabric = _fabric(accelerator.id, links, row.get("node_size"), row["n_devices"], said)
    if isinstance(fabric, Skipped):
        return fabric
    state = row.get("state") or STATES.get(recipe, catalog.DEFAULT_STATE)
    try:
        software = _software(recipe, str(state), "pure" in notes_say(row.get("notes")))
    except catalog.UnknownName:
        return _not_known("state", str(state), catalog.names("states"))
    model, assumed = model_of(row)
    said += assumed
    training = _training(row["seq_len"], row["global_batch_seqs"], accelerator.precision, str(state))
    devices: int = row["n_devices"]  # type: ignore[assignment]  # the column is whole
    cluster = Cluster(accelerator, fabric, devices)
    layout = _layout(row, recipe, software.order, fabric.node_size, said)
    layout = _uneven(layout, model, recipe, said)
    if layout.schedule not in SCHEDULES:
        return Skipped(f"the schedule {show(layout.schedule)} is not predicted yet", "schedule not predicted yet")
    name = str(row.get("id") or "a measured run")
    return Run(name, model, training, software, cluster, layout=layout, assumptions=tuple(said))


@cache
def _accelerator(name: str, precision: str) -> Accelerator | Skipped:
    try:
        catalog.find("accelerators", name)
    except catalog.UnknownName:
        return _not_known("accelerator", name, catalog.names("accelerators"))
    precisions = ("bf16", "fp16", "fp8", "fp4")
    if precision not in precisions:
        return _not_known("precision", precision, precisions)
    return catalog.accelerator(name, precision)


def _not_known(what: str, name: str, known: Iterable[str]) -> Skipped:
    return Skipped(f"unknown {what} {unknown(name, known)}", f"unknown {what}")


def _fabric(accelerator: str, name: Value, node_size: Value, devices: Value, said: list[str]) -> Fabric | Skipped:
    """The links of a row. Devices that do not fill the domains of fast links they need are taken as spread evenly."""
    if name is None:
        presets = catalog.fabrics_for(accelerator)
        if not presets:
            return Skipped(
                f"no links known for {accelerator}: give a column fabric", "no links known: give a column fabric"
            )
        name = presets[0]
        said.append(f"links {name}")
    try:
        found = catalog.fabric(str(name))
    except catalog.UnknownName:
        return _not_known("fabric", str(name), catalog.names("fabrics"))
    if node_size is not None:
        return replace(found, node_size=int(node_size))
    held = int(devices or 0)
    domains = -(-held // found.node_size)
    if domains > 1 and held % found.node_size and held % domains == 0:
        said.append(f"{held // domains} devices in each domain of fast links")
        return replace(found, node_size=held // domains)
    return found


def _recipe(row: Row, accelerator: Accelerator, said: list[str]) -> str | Skipped:
    """The program's recipe: as the row names it, else by what it shards and on what it runs."""
    given = row.get("software")
    if given is not None:
        try:
            return catalog.find("software", str(given))
        except catalog.UnknownName:
            return _not_known("software", str(given), catalog.names("software"))
    fully = row.get("sharding") in ("zero2", "zero3") and accelerator.default_recipe != "maxtext"
    recipe = "torch-fsdp" if fully else accelerator.default_recipe
    said.append(f"software {recipe}")
    return recipe


@cache
def _software(recipe: str, state: str, pure: bool) -> Software:
    """A recipe; under llm-foundry's PURE policy gradients are reduced in bf16."""
    software = catalog.software(recipe, state)
    return replace(software, gradient_reduction_bytes=2) if pure else software


@cache
def _training(sequence: int, batch: int, precision: str, state: str) -> Training:
    """One step is all that is compared: its tokens are the run's."""
    return Training(float(sequence) * batch, sequence, batch, precision, catalog.state(state))


def _layout(row: Row, recipe: str, order: tuple[str, ...], node_size: int, said: list[str]) -> Layout:
    tensor, pipeline, context = (1 if (n := row.get(name)) is None else int(n) for name in ("tp", "pp", "cp"))
    devices, batch = int(row["n_devices"] or 0), int(row["global_batch_seqs"] or 0)
    data = row.get("dp")
    if data is None:
        said.append("data-parallel degree")
        # where the degrees do not divide the devices the rule `devices` will say so
        data = max(devices // max(tensor * pipeline * context, 1), 1)
    micro_batch = row.get("micro_batch")
    if micro_batch is None:
        micro_batch = max(batch // max(int(data), 1), 1) if recipe == "maxtext" and pipeline == 1 else 1
        said.append("micro-batch")
    sharding = row.get("sharding")
    if sharding is None:
        sharding = SHARDINGS.get(recipe, "none") if int(data) * context > 1 else "none"
        said.append(f"sharding {sharding}")
    recompute = row.get("recompute")
    if recompute is None:
        recompute = "none"
        said.append("no recomputation")
    group = row.get("shard_group")
    pod = node_size // max(tensor * context, 1)
    if group is None and recipe == "maxtext" and sharding != "none" and 0 < pod < int(data) and not int(data) % pod:
        group = pod  # weights are sharded inside a pod, and replicas of it stand in the others
        said.append("state sharded inside a pod")
    interleave = int(row.get("vpp") or 1) if pipeline > 1 else 1
    return Layout(
        data=data, tensor=tensor, pipeline=pipeline, context=context, sharding=str(sharding),  # type: ignore[arg-type]
        expert=int(row.get("ep") or 1), expert_tensor=int(row.get("etp") or 1),
        shard_group=group,  # type: ignore[arg-type]
        micro_batch=micro_batch, recompute=str(recompute), interleave=interleave,  # type: ignore[arg-type]
        schedule=str(row.get("schedule") or ("interleaved" if interleave > 1 else "1f1b")),
        sequence_parallel=_sequence_parallel(row, recipe, tensor, str(recompute)),
        order=_order(row.get("order"), order),
    )  # fmt: skip


def _uneven(layout: Layout, model: Model, recipe: str, said: list[str]) -> Layout:
    """Megatron takes a list of stages where layers do not divide; printed runs of mixtures used one and do not say it.

    Embedding and head take a layer's place, and the chunks are as even as they can be.
    """
    parts = layout.pipeline * layout.interleave
    divides = 0 in (model.layers % parts, (model.layers + 2) % parts)
    if recipe != "megatron" or not model.experts or divides:
        return layout
    base, extra = divmod(model.layers + 2, parts)
    sizes = [base + (part < extra) for part in range(parts)]
    sizes[0] -= 1
    sizes[-1] -= 1
    if min(sizes) < 0:
        return layout
    said.append("layers of each stage")
    stages = tuple(sum(sizes[stage :: layout.pipeline]) for stage in range(layout.pipeline))
    return replace(layout, stage_layers=stages)


def _sequence_parallel(row: Row, recipe: str, tensor: int, recompute: str) -> bool | None:
    """As given; Megatron brought it in 2022, together with selective recomputation."""
    given = row.get("sequence_parallel")
    if isinstance(given, bool):
        return given and tensor > 1
    if "no sequence parallelism" in notes_say(row.get("notes")):
        return False
    if recipe == "megatron-2021":
        return tensor > 1 and recompute == "selective"
    return None


def _order(given: Value, usual: tuple[str, ...]) -> tuple[str, ...]:
    named = tuple(str(given).split()) if given else ()
    return (*named, *(axis for axis in usual if axis not in named))
