"""The shape of a run's model: from the row's own columns, over the shape its name is known by.

A name is looked up among the models of the records first, as their sources spell them, then in the catalog; a remark
in parentheses behind the name, such as "(SFT)", is left off. Where neither knows it the row must give the widths.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from course import catalog, records
from course.estimate import count
from course.fields import RunFileError
from course.problem import Model
from course.records.columns import Row, Value

__all__ = ["NoShape", "is_mixture", "known", "model_of"]

_WIDTHS = ("n_layers", "hidden", "n_heads", "n_kv_heads", "ffn_hidden", "vocab", "gated_mlp", "moe_experts", "moe_topk")
_GIVEN = (*_WIDTHS, "head_size", "tied_embeddings", "params_b")
_FIELDS = {
    "n_layers": "layers", "hidden": "hidden", "n_heads": "heads", "n_kv_heads": "kv_heads", "head_size": "head_size",
    "ffn_hidden": "ffn", "vocab": "vocabulary", "gated_mlp": "gated_mlp", "tied_embeddings": "tied_embeddings",
    "moe_experts": "experts", "moe_topk": "experts_per_token",
}  # fmt: skip
_GPT = {"norm_size": 2, "attention_bias": "qkvo", "mlp_bias": True}
"""What a model with an ungated feed-forward has besides, as GPT-3 and its kin: LayerNorm and biases."""


_LATENT = re.compile(r"(q|kv|rope|v)(\d+)")


class NoShape(Exception):
    """The widths of a model are not known; the message says which."""


@cache
def _by_name() -> dict[str, Row]:
    return {str(row["model"]).casefold(): row for row in records.models()}


def _spellings(name: str) -> tuple[str, ...]:
    bare = name.partition(" (")[0].strip()
    return (name, bare) if bare and bare != name else (name,)


@cache
def known(name: str) -> Row | Model | None:
    """The shape a model is known by: a row of the records, or a model of the catalog; None where neither has it.

    >>> known("GPT 1T")["vocab"], known("Llama-2-7B").layers, known("my own")
    (51200, 32, None)
    """
    for spelling in _spellings(name):
        row = _by_name().get(spelling.casefold())
        if row is not None:
            return row
        try:
            return catalog.model(spelling)
        except catalog.UnknownName:
            continue
    return None


def is_mixture(row: Row) -> bool:
    """True where the row, or the model it names, has experts.

    >>> is_mixture({"model": "Mixtral 8x7B"}), is_mixture({"model": "mpt-7b"}), is_mixture({"ep": 8})
    (True, False, True)
    """
    if (row.get("moe_experts") or 0) or int(row.get("ep") or 1) > 1:
        return True
    base = known(str(row.get("model") or ""))
    return bool(base.experts if isinstance(base, Model) else base and base["moe_experts"])


def model_of(row: Row) -> tuple[Model, tuple[str, ...]]:
    """The model of a row and, in words, what had to be assumed of it.

    Raises:
        NoShape: a width is neither in the row nor known by the model's name.
        RunFileError: the widths contradict each other or leave their range.

    >>> own = {"model": "own", "n_layers": 2, "hidden": 64, "n_heads": 4, "vocab": 100, "ffn_hidden": 256}
    >>> model_of(own)[0].gated_mlp, model_of({"model": "GPT 1T", "seq_len": 2048})[0].vocabulary
    (False, 51200)
    """
    given = tuple(row.get(name) for name in _GIVEN)
    return _model_of(str(row.get("model") or ""), given, row.get("seq_len"))


@cache
def _model_of(name: str, given: tuple[Value, ...], sequence: Value) -> tuple[Model, tuple[str, ...]]:
    row = dict(zip(_GIVEN, given, strict=True))
    base = known(name)
    if isinstance(base, Model):
        return _over(base, row, sequence), ()
    assumed: list[str] = []
    if base is not None:
        row = _filled(row, base)
    missing = [width for width in ("n_layers", "hidden", "n_heads", "vocab") if row[width] is None]
    if missing:
        raise NoShape("no shape in the row, and none known by the model's name" if len(missing) > 1 else missing[0])
    hidden, heads = int(row["hidden"] or 0), int(row["n_heads"] or 0)
    if row["head_size"] is None:
        if heads < 1 or hidden % heads:
            raise RunFileError("hidden does not divide by n_heads, and there is no head_size")
        row["head_size"] = hidden // heads
    if row["ffn_hidden"] is None:
        row["ffn_hidden"] = 4 * hidden
        assumed.append("feed-forward 4 x hidden")
    if row["gated_mlp"] is None:
        row["gated_mlp"] = row["ffn_hidden"] != 4 * hidden
        assumed.append("gated feed-forward" if row["gated_mlp"] else "feed-forward without a gate")
    row["n_kv_heads"] = row["n_kv_heads"] or heads
    later = ("tied_embeddings", "moe_experts", "moe_topk")
    fields: dict[str, object] = {field: row[column] for column, field in _FIELDS.items() if column not in later}
    fields |= _mixture(row, base, assumed)
    if not row["gated_mlp"]:
        fields |= _GPT | {"learned_positions": sequence or 0}
    model = Model(name or "own model", **fields)  # type: ignore[arg-type]  # the columns are typed
    return _tied(model, row, assumed), tuple(assumed)


def _mixture(row: dict[str, Value], base: Row | None, assumed: list[str]) -> dict[str, object]:
    """Fields of experts and of latent attention: as known by the model's name, else as the row has them."""
    if not row["moe_experts"]:
        return {}
    more = base or {}
    width = more.get("moe_ffn") or row["ffn_hidden"]
    fields: dict[str, object] = {
        "experts": row["moe_experts"], "expert_ffn": width, "shared_experts": more.get("shared_experts") or 0,
        "dense_layers": more.get("dense_layers") or 0, "experts_per_token": row["moe_topk"] or 1,
    }  # fmt: skip
    if not row["moe_topk"]:
        assumed.append("one expert a token")
    latent = dict(_LATENT.findall(str(more.get("mla") or "")))
    if latent:
        fields |= {"q_lora": int(latent["q"]), "kv_lora": int(latent["kv"]), "rope_head_size": int(latent["rope"])}
        fields |= {"v_head_size": int(latent["v"]), "nope_head_size": more.get("head_dim")}
    return fields


def _over(base: Model, row: dict[str, Value], sequence: Value) -> Model:
    """A model of the catalog with the row's own widths; a learned position table is as long as the sequence."""
    own = {field: row[column] for column, field in _FIELDS.items() if row[column] is not None}
    if base.learned_positions and sequence:
        own["learned_positions"] = sequence
    if not base.experts:
        own["dense_layers"] = 0 if own.get("experts") else own.get("layers", base.layers)
    if base.window_layers == base.layers:
        own["window_layers"] = own.get("layers", base.layers)
    return replace(base, **own)  # type: ignore[arg-type]  # the columns are typed


def _filled(row: dict[str, Value], base: Row) -> dict[str, Value]:
    """The row's widths, and those of the known shape where it gives none."""
    filled = {column: row[column] if row[column] is not None else base.get(column) for column in _WIDTHS}
    own_heads = row["hidden"] is not None or row["n_heads"] is not None
    head = row["head_size"] if row["head_size"] is not None or own_heads else base["head_dim"]
    tied = row["tied_embeddings"] if row["tied_embeddings"] is not None else bool(base["tied"])
    return {**row, **filled, "head_size": head, "tied_embeddings": tied}


def _tied(model: Model, row: dict[str, Value], assumed: list[str]) -> Model:
    """Whether head and input table are one: as given, else as the printed size says, else by the family's habit."""
    if row["tied_embeddings"] is not None:
        return replace(model, tied_embeddings=bool(row["tied_embeddings"]))
    both = [replace(model, tied_embeddings=tied) for tied in (True, False)]
    printed = row["params_b"]
    if not printed:
        assumed.append("untied tables" if model.gated_mlp else "tied tables")
        return both[1] if model.gated_mlp else both[0]
    return min(both, key=lambda one: abs(count(one).total - float(printed) * 1e9))
