"""What explorers offer from the catalog, and how their sentences write numbers."""

from __future__ import annotations

from functools import cache

from course import catalog
from course.estimate import count
from course.explorers.base import GIB
from course.problem import Accelerator, Run, loads

__all__ = [
    "against", "asked", "billions", "billions_of", "device_named", "devices_offered", "gib",
    "models", "powers", "share",
]  # fmt: skip

_ASKED = """
[model]
preset = "{model}"
[training]
tokens = 1e11
sequence_length = 8192
global_batch_sequences = {batch}
[cluster]
accelerator = "h100-sxm"
devices = {devices}
fabric = "h100-ib400"
"""


@cache
def asked(model: str, batch: int, devices: int) -> Run:
    """A question about layouts: a model, a batch of sequences of 8,192 tokens, and so many H100s.

    >>> asked("llama-3-8b", 512, 64).cluster.devices
    64
    """
    return loads(_ASKED.format(model=model, batch=batch, devices=devices))


def powers(largest: int) -> dict[str, int]:
    """Powers of two to choose from, by label, up to the largest.

    >>> powers(4)
    {'1': 1, '2': 2, '4': 4}
    """
    return {f"{2**power:,}": 2**power for power in range(largest.bit_length())}


@cache
def models(dense: bool = False) -> dict[str, str]:
    """The models of the catalog that this step can count."""
    offered = {}
    for name in catalog.names("models"):
        model = catalog.model(name)
        if not model.kv_lora and (model.is_dense or not dense):  # latent attention has a lesson of its own
            offered[name] = name
    return offered


@cache
def device_named(name: str) -> Accelerator:
    """An accelerator with its 16-bit peak: bf16, or fp16 where it knows no bf16."""
    try:
        return catalog.accelerator(name)
    except catalog.NoPeak:
        return catalog.accelerator(name, "fp16")


@cache
def devices_offered() -> dict[str, str]:
    """Every accelerator of the catalog: its name in words to its name there."""
    return {device_named(name).name: name for name in catalog.names("accelerators")}


@cache
def billions_of(model: str) -> float:
    """Parameters of a preset, in billions."""
    return count(catalog.model(model)).total / 1e9


def share(part: float, whole: float) -> str:
    """A part in per cent of the whole.

    >>> share(1, 8), share(2, 2), share(1, 0)
    ('12.5 %', '100 %', '–')
    """
    return f"{part / whole:.1%}".replace(".0%", "%").replace("%", " %") if whole else "–"


def against(need: float, have: float) -> str:
    """A need in words of what there is.

    >>> against(20, 80), against(320, 80)
    ('25 % of', '4 times')
    """
    return f"{need / have:,.3g} times" if need > 2 * have else f"{share(need, have)} of"


def gib(size: float) -> str:
    """Bytes as a number of GiB.

    >>> gib(2.0**30), gib(79.64 * 2**30), gib(6804.2 * 2**30), gib(999.7 * 2**30)
    ('1', '79.6', '6,804', '1,000')
    """
    value = size / GIB
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def billions(value: float) -> str:
    """A count in words.

    >>> billions(124439808), billions(8030261248), billions(1.008e12)
    ('124.4 million', '8.03 billion', '1.008 trillion')
    """
    for size, word in ((1e12, "trillion"), (1e9, "billion")):
        if value >= size:
            return f"{value / size:,.4g} {word}"
    return f"{value / 1e6:,.4g} million"
