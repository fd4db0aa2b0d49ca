"""How a row's words are read: capitals do not matter, and common spellings of other programs are known.

Beside the catalog's own names a row may say

- software: nemo, megatron-lm, megatron-core, mcore, megatron-bridge (megatron); fsdp, fsdp2, pytorch, torchtitan,
  llm-foundry, composer (torch-fsdp); nanotron (nanotron-2025); jax (maxtext);
- sharding: no, off, ddp, dp, zero0 (none); distributed-optimizer (zero1); shard-grad-op (zero2); fsdp, fsdp2,
  full-shard (zero3); a stage as zero-2, "ZeRO stage 2" or 2;
- recompute: no, off, false (none); all, yes, true (full);
- schedule: "interleaved 1f1b" (interleaved); zb-h1 (zero-bubble);
- axes of `order`: dp, tp, pp, cp, or the full words.

Notes say a status: a first word FAILED is a run that crashed; ANOMALY, in capitals or before a colon, is a doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from course import catalog
from course.fields import nearest, show
from course.legality import RECOMPUTES, SCHEDULES, SHARDINGS
from course.records.columns import Row, Value

__all__ = ["CONVENTIONS", "SPELT", "anomalous", "doubted", "failed", "notes_say", "spelt", "unknown", "word"]

CONVENTIONS = ("six_ps", "palm", "full_attention", "causal_attention", "executed", "lora")
"""What `mfu_convention_code` may say, or blank."""

_OTHERS: dict[str, dict[str, str]] = {
    "software": dict.fromkeys(("nemo", "megatronlm", "megatroncore", "mcore", "megatronbridge"), "megatron")
    | dict.fromkeys(("fsdp", "fsdp2", "pytorch", "torchtitan", "llmfoundry", "composer"), "torch-fsdp")
    | {"nanotron": "nanotron-2025", "jax": "maxtext"},
    "sharding": dict.fromkeys(("no", "off", "ddp", "dp", "zero0", "zerostage0", "stage0", "0"), "none")
    | {"distributedoptimizer": "zero1", "shardgradop": "zero2"}
    | dict.fromkeys(("fsdp", "fsdp2", "fullshard"), "zero3")
    | {spelling: f"zero{stage}" for stage in "123" for spelling in (f"zerostage{stage}", f"stage{stage}", stage)},
    "recompute": dict.fromkeys(("no", "off", "false"), "none") | dict.fromkeys(("all", "yes", "true"), "full"),
    "schedule": {"interleaved1f1b": "interleaved", "zbh1": "zero-bubble"},
    "mfu_convention_code": {},
}
_KNOWN: dict[str, tuple[str, ...]] = {
    "software": (), "sharding": SHARDINGS, "recompute": RECOMPUTES, "schedule": SCHEDULES,
    "mfu_convention_code": CONVENTIONS,
}  # fmt: skip
SPELT = tuple(_OTHERS)
"""Columns whose words have several spellings."""

_AXES = {"dp": "data", "tp": "tensor", "pp": "pipeline", "cp": "context"}
_SIGNS = {
    "failed": re.compile(r"\A\s*failed\b", re.IGNORECASE),
    "anomaly": re.compile(r"\bANOMALY\b|\b[Aa]nomaly:"),
    "doubted figure": re.compile(
        r"\banomaly:?\s*(the |printed |tokens/s and )*(mfu|hfu|utili[sz]ation)\b", re.IGNORECASE
    ),
    "lora": re.compile(r"\blora\b", re.IGNORECASE),
    "offload": re.compile(r"(?<!no )\boffload", re.IGNORECASE),
    "pure": re.compile("MP PURE"),
    "no sequence parallelism": re.compile("no sequence parallelism"),
}


@lru_cache(100_000)
def notes_say(notes: Value) -> frozenset[str]:
    """What of it matters here the notes of a row say.

    >>> sorted(notes_say("Failed: nan loss")), sorted(notes_say("anomaly: slow")), sorted(notes_say("no anomaly"))
    (['failed'], ['anomaly'], [])
    """
    text = str(notes or "")
    return frozenset(sign for sign, pattern in _SIGNS.items() if pattern.search(text)) if text else frozenset()


def failed(row: Row) -> bool:
    """True for a run that crashed or ran out of memory: the first word of its notes is FAILED, in any case.

    >>> failed({"notes": "failed: nan loss"}), failed({"notes": "restarted once, nothing failed"})
    (True, False)
    """
    return "failed" in notes_say(row.get("notes"))


def doubted(row: Row) -> bool:
    """True where the notes hold an ANOMALY of any kind: no time is worked out from the printed utilisation.

    >>> doubted({"notes": "ANOMALY: MFU counts a table twice"}), doubted({"notes": None})
    (True, False)
    """
    return "anomaly" in notes_say(row.get("notes"))


def anomalous(row: Row) -> bool:
    """True where an ANOMALY is the run's: its time is in no score. One that begins with MFU doubts that figure alone.

    >>> anomalous({"notes": "ANOMALY: slow"}), anomalous({"notes": "ANOMALY: MFU counts a table twice"})
    (True, False)
    """
    said = notes_say(row.get("notes"))
    return "anomaly" in said and "doubted figure" not in said


def spelt(row: Row) -> Row:
    """The row with the words of `SPELT` and `order` as the catalog spells them; what nobody knows stays as it is.

    >>> spelt({"sharding": "ZeRO-2", "software": "NeMo", "order": "TP dp"})
    {'sharding': 'zero2', 'software': 'megatron', 'order': 'tensor data'}
    """
    own: dict[str, Value] = {}
    for column in SPELT:
        value = row.get(column)
        if value is not None and (known := word(column, value)) != value:
            own[column] = known
    if row.get("order") is not None:
        own["order"] = " ".join(_AXES.get(axis, axis) for axis in str(row["order"]).casefold().split())
    return {**row, **own} if own else row


@lru_cache(10_000)
def word(column: str, value: Value) -> Value:
    """A word of a column of `SPELT` as the catalog spells it, else as it is.

    >>> word("sharding", "DDP"), word("sharding", "zero9"), word("sharding", None)
    ('none', 'zero9', None)
    """
    if value is None:
        return None
    text = re.sub(r"[\s_./-]+", "", str(value).casefold())
    if column == "software":
        try:
            return catalog.find("software", str(value))
        except catalog.UnknownName:
            return _OTHERS[column].get(text, value)
    same = {name.replace("_", "").replace("-", ""): name for name in _KNOWN[column]}
    return same.get(text) or _OTHERS[column].get(text, value)


def unknown(value: object, known: Iterable[str]) -> str:
    """A word nobody knows, with the nearest that is known.

    >>> unknown("zero9", ("none", "zero3"))
    '"zero9"; the nearest is "zero3"'
    """
    return f"{show(value)}; the nearest is {show(nearest(str(value).casefold(), known))}"
