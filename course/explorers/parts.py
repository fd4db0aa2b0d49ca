"""The terms of a formula, grouped by the symbols they hold: what a stacked bar shows adds up to the formula itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import sympy as sp

from course.estimate import pick
from course.formula import Formula
from course.symbols import SYMBOLS

__all__ = ["ACTIVATIONS", "FLOPS", "PARAMETERS", "parts"]

Groups = tuple[tuple[str, tuple[str, ...]], ...]

PARAMETERS: Groups = (
    ("attention", ("heads", "kv_heads")), ("experts", ("expert_ffn",)), ("MLP", ("ffn",)), ("router", ("experts",)),
    ("tables", ("vocabulary",)), ("norms, biases", ()),
)  # fmt: skip
FLOPS: Groups = (
    ("recomputation", ("full_recompute", "core_recompute")), ("attention scores", ("sequence_length",)),
    ("matrices", ()),
)  # fmt: skip
ACTIVATIONS: Groups = (
    ("scores", ("sequence_length",)), ("dropout masks", ("dropout",)), ("MLP", ("ffn",)), ("K, V", ("kv_heads",)),
    ("Q, attention output", ("heads",)), ("norm and matmul inputs", ()),
)  # fmt: skip


def parts(formula: Formula, groups: Groups, values: Mapping[str, Any]) -> dict[str, float]:
    """The value of each group of terms; together they are the value of the formula.

    Args:
        formula: a sum of terms.
        groups: name of each part and the keys of symbols; a term belongs to the first group one of whose symbols it
            holds, and to a group without symbols when no other took it.
        values: arguments of the formula by key; others are ignored.

    Raises:
        FormulaError: an argument is missing or out of range.

    >>> from course.estimate import palm
    >>> one = {"parameters": 8e9, "layers": 32, "heads": 32, "head_size": 128, "sequence_length": 8192}
    >>> {name: f"{value:.2e}" for name, value in parts(palm, FLOPS, one).items()}
    {'attention scores': '1.29e+10', 'matrices': '4.80e+10'}
    """
    given = dict(values)
    formula(**pick(formula, given))  # so that a wrong argument is told in the formula's own name
    return {name: float(part(**pick(part, given))) for name, part in _split(formula, groups).items()}


@cache
def _split(formula: Formula, groups: Groups) -> dict[str, Formula]:
    found: dict[str, list[sp.Expr]] = {name: [] for name, _ in groups}
    wanted = [(name, {SYMBOLS[key].symbol for key in keys}) for name, keys in groups]
    for term in sp.Add.make_args(sp.expand(formula.expression)):
        name = next(name for name, symbols in wanted if not symbols or symbols & term.free_symbols)
        found[name].append(term)
    return {
        name: Formula(f"{formula.name}: {name}", formula.result, sp.Add(*terms), formula.unit, formula.meaning)
        for name, terms in found.items()
        if terms
    }
