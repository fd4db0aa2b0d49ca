"""What every field of a run file means: one table (`fields.csv`), read by the checks, the error texts and the help.

A field has a kind, a meaning, a unit, a range and, where it may be left out, the default in words. A field or a value
that predictions do not cover yet carries `later`, and a run file that asks for it is refused.
"""

from __future__ import annotations

import csv
import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from course.errors import UserError

__all__ = [
    "FIELDS",
    "LAYOUT_FIELDS",
    "SYNONYMS",
    "TABLES",
    "Field",
    "NotYet",
    "RunFileError",
    "checked",
    "describe",
    "fields_of",
    "show",
]


class RunFileError(UserError):
    """The run file, or a value meant for one, is wrong; the message says what to change."""


class NotYet(RunFileError):
    """The run file asks for something whose chapter has not been written yet."""


@dataclass(frozen=True)
class Field:
    """One field: its table, name, kind, meaning, unit, range and default.

    `kind` is "integer", "number", "yes/no", "choice" (one of `choices`), "axes" (a list of `choices`), "integers"
    (a list) or "name" (looked up in the catalog). `default` is words, or "" where the field has none. `later` names
    what is missing; `later_values` does so for single choices.

    >>> FIELDS["training", "tokens"].unit
    'tokens'
    """

    table: str
    name: str
    kind: str
    meaning: str
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    choices: tuple[str, ...] = ()
    default: str = ""
    example: str = ""
    later: str = ""
    later_values: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """How messages name the field: `[table] name`."""
        return f"[{self.table}] {self.name}"


TABLES = MappingProxyType(
    {
        "model": "the shape of the model, or a preset by name",
        "training": "tokens, sequence length, global batch, precision, model state",
        "software": "how the training program behaves",
        "cluster": "the accelerators and the links between them",
        "goal": "what the run must reach (optional)",
        "measured": "what code has shown (optional)",
        "layout": "how the work is split",
    }
)


def _read() -> dict[tuple[str, str], Field]:
    text = files(__package__).joinpath("fields.csv").read_text(encoding="utf-8")
    return {(row["table"], row["name"]): _field(row) for row in csv.DictReader(text.splitlines())}


def _field(row: dict[str, str]) -> Field:
    value, _, chapter = row["later"].rpartition(": ")
    return Field(
        table=row["table"],
        name=row["name"],
        kind=row["kind"],
        meaning=row["meaning"],
        unit=row["unit"],
        low=float(row["low"] or "-inf"),
        high=float(row["high"] or "inf"),
        open_low=row["above_low"] == "1",
        choices=tuple(row["choices"].split()),
        default=row["default"],
        example=row["example"],
        later="" if value else chapter,
        later_values={value: chapter} if value else {},
    )


FIELDS: Mapping[tuple[str, str], Field] = MappingProxyType(_read())
LAYOUT_FIELDS: Mapping[str, Field] = MappingProxyType({f.name: f for f in FIELDS.values() if f.table == "layout"})
"""The fields that `--fix` may name, each with its meaning and unit."""


def fields_of(table: str) -> dict[str, Field]:
    """The fields of one table by name.

    >>> list(fields_of("goal"))
    ['days', 'budget_accelerator_hours', 'price_per_accelerator_hour']
    """
    return {f.name: f for f in FIELDS.values() if f.table == table}


def describe(declared: Field) -> str:
    """Meaning and unit in one clause, for messages.

    >>> describe(FIELDS["training", "sequence_length"])
    'length of one sequence, in tokens'
    """
    return declared.meaning + (f", in {declared.unit}" if declared.unit else "")


_SYNONYMS = {
    # model: the names of a configuration at Hugging Face, and of papers
    "hidden": "hidden_size d_model n_embd embedding_dim",
    "ffn": "intermediate_size ffn_hidden_size d_ff mlp_size",
    "layers": "num_hidden_layers num_layers n_layers n_layer",
    "heads": "num_attention_heads num_heads n_heads n_head",
    "kv_heads": "num_key_value_heads num_query_groups n_kv_heads",
    "vocabulary": "vocab_size vocab n_vocab",
    "head_size": "head_dim d_head kv_channels",
    "tied_embeddings": "tie_word_embeddings tie_embeddings",
    "experts": "num_experts num_local_experts n_routed_experts",
    "experts_per_token": "num_experts_per_tok top_k moe_router_topk",
    "expert_ffn": "moe_intermediate_size",
    # training
    "tokens": "train_tokens n_tokens",
    "sequence_length": "seq_len seq_length seqlen max_seq_len",
    "global_batch_sequences": "global_batch_size global_batch gbs batch_size train_batch_size",
    "precision": "dtype torch_dtype",
    # cluster
    "devices": "gpus n_gpus num_gpus world_size n_devices num_devices",
    "accelerator": "gpu gpu_type device",
    "node_size": "gpus_per_node devices_per_node",
    # layout
    "tensor": "tp tp_size tensor_parallel tensor_model_parallel_size",
    "pipeline": "pp pp_size pipeline_parallel pipeline_model_parallel_size",
    "data": "dp dp_size data_parallel",
    "context": "cp cp_size context_parallel context_parallel_size",
    "expert": "ep ep_size expert_parallel expert_model_parallel_size",
    "expert_tensor": "etp expert_tensor_parallel_size",
    "sharding": "zero zero_stage fsdp",
    "micro_batch": "micro_batch_size mbs per_device_train_batch_size",
    "recompute": "activation_checkpointing gradient_checkpointing recompute_granularity",
    "interleave": "vpp virtual_pipeline",
    "sequence_parallel": "sp",
}
SYNONYMS: Mapping[str, str] = MappingProxyType(
    {other: name for name, others in _SYNONYMS.items() for other in others.split()}
)
"""What other programs call a field of the run file: their name to ours."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that means the same as `name` in another program, else the one most like it.

    >>> nearest("tensors", ["data", "tensor", "pipeline"]), nearest("tp", ["data", "tensor", "pipeline"])
    ('tensor', 'tensor')
    """
    names = list(known)
    meant = SYNONYMS.get(name[:80].lower().replace("-", "_"))
    return meant if meant in names else difflib.get_close_matches(name[:80], names, n=1, cutoff=0.0)[0]


def show(value: object) -> str:
    """The value as TOML would write it, cut short, for messages.

    >>> show(True), show("a"), show(10**30), show([1, 2])
    ('true', '"a"', '1e+30', '[1, 2]')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = json.dumps(value[:80])
    elif isinstance(value, int) and abs(value) >= 10**12:
        return f"{value:.4g}" if abs(value) < 10**300 else "a number of over 300 digits"
    elif isinstance(value, list):
        text = "[" + ", ".join(show(item) for item in value[:20]) + (", …]" if len(value) > 20 else "]")
    elif isinstance(value, dict):
        return "a table"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def checked(declared: Field, value: Any) -> Any:
    """Return `value` in its field's own type, or raise.

    `declared` is the field; `value` what was given. Returns an int for integers, a float for numbers, a bool, a str,
    or a tuple for lists. Raises `RunFileError` for a wrong type, a value that is not finite, or one out of range.

    >>> checked(FIELDS["cluster", "devices"], 1.6384e4)
    16384
    """
    if declared.kind in ("integer", "number"):
        return _checked_number(declared, value)
    if declared.kind == "yes/no":
        if not isinstance(value, bool):
            raise _wrong(declared, value, "must be true or false")
        return value
    if declared.kind == "choice":
        if not isinstance(value, str) or value not in declared.choices:
            raise _wrong(
                declared,
                value,
                f"must be one of {', '.join(c for c in declared.choices if c not in declared.later_values)}",
            )
        return value
    if declared.kind == "name":
        return value
    return _checked_list(declared, value)


def _checked_number(declared: Field, value: Any) -> int | float:
    whole = declared.kind != "number"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(declared, value, f"must be {'a whole number' if whole else 'a number'}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(declared, value, "must be a finite number")
    if whole and isinstance(value, float) and not value.is_integer():
        raise _wrong(declared, value, "must be a whole number")
    if value < declared.low or (declared.open_low and value <= declared.low):
        bound = "more than" if declared.open_low else "at least"
        raise _wrong(declared, value, f"must be {bound} {declared.low:g}")
    if value > declared.high:
        raise _wrong(declared, value, f"must be at most {_plain(declared.high)}")
    return int(value) if whole else float(value)


def _plain(bound: float) -> str:
    return f"{bound:,.0f}" if 1e3 <= bound < 1e10 else f"{bound:g}"


def _checked_list(declared: Field, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise _wrong(declared, value, "must be a list with at least one entry")
    if declared.kind == "axes":
        for axis in value:
            if axis not in declared.choices:
                raise _wrong(declared, value, f"may name only {', '.join(declared.choices)}")
        if len(set(value)) != len(value):
            raise _wrong(declared, value, "names an axis twice")
        return tuple(value)
    return tuple(_checked_number(declared, item) for item in value)


def _wrong(declared: Field, value: Any, what: str) -> RunFileError:
    return RunFileError(f"{declared.key} = {show(value)} {what} ({describe(declared)}).")
