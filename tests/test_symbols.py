"""The table of symbols: one meaning, one letter, one unit and a range that can be used."""

from __future__ import annotations

import keyword
import math

import pytest
from formulas import FORMULAS

from course.fields import FIELDS
from course.symbols import BY_SYMBOL, HUGE, SYMBOLS, symbols
from course.units import LITERALS, parse_unit

ENTRIES = pytest.mark.parametrize("entry", SYMBOLS.values(), ids=SYMBOLS)


@ENTRIES
def test_entry_is_whole(entry):
    assert entry.key.isidentifier() and not keyword.iskeyword(entry.key) and entry.key == entry.key.lower()
    assert entry.meaning and entry.meaning[0].islower() | entry.meaning[0].isdigit() | entry.meaning.startswith("FLOP")
    parse_unit(entry.unit)
    assert 0 <= entry.low < entry.high <= HUGE
    assert entry.symbol.is_nonnegative and (entry.symbol.is_positive or entry.low == 0)


def test_no_letter_stands_for_two_things():
    assert len(BY_SYMBOL) == len(SYMBOLS) == len({str(entry.symbol) for entry in SYMBOLS.values()})
    assert len({entry.meaning for entry in SYMBOLS.values()}) == len(SYMBOLS)
    assert not BY_SYMBOL.keys() & LITERALS.keys()


def test_huge_is_beyond_every_run_and_does_not_overflow_when_squared():
    assert math.isfinite(HUGE * HUGE) and HUGE > 6 * 1e13 * 1e15


def test_symbols_come_in_the_order_asked_for():
    assert [str(one) for one in symbols("tensor", "layers", "hidden")] == ["T_p", "L", "h"]
    with pytest.raises(KeyError):
        symbols("no_such_symbol")


def test_the_notation_is_that_of_the_field():
    field = {
        "parameters": "P",
        "tokens": "S",
        "model_flops": "F_model",
        "devices": "R",
        "peak_flops_per_s": "C",
        "time": "t",
        "data": "D_p",
        "tensor": "T_p",
        "pipeline": "P_p",
        "micro_batch": "B",
        "sequence_length": "T",
        "accumulation": "G",
        "micro_batches": "M",
        "interleave": "v",
        "baseline_devices": "D_0",
        "scaled_devices": "D",
        "latency": "alpha",
        "bandwidth": "beta",
        "layers": "L",
        "hidden": "h",
        "heads": "a",
        "head_size": "d",
        "ffn": "f",
        "vocabulary": "V",
    }
    assert {key: str(SYMBOLS[key].symbol) for key in field} == field


def test_every_symbol_is_used_by_a_formula_or_is_a_field_of_the_run_file():
    used = {entry.key for formula in FORMULAS.values() for entry in formula.inputs}
    assert sorted(SYMBOLS.keys() - used - FIELD_NAMES) == []


FIELD_NAMES = {name for _, name in FIELDS}
