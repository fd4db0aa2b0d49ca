"""Run files: nothing but a sentence, whatever text or values they hold."""

from __future__ import annotations

import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from course.fields import FIELDS, TABLES
from course.problem import RunFileError, loads
from tests.test_run_files import write

KEYS = sorted({name for _, name in FIELDS} | {"tokenz", "x"})
VALUES = st.one_of(
    st.integers(-(10**31), 10**31).map(str),
    st.floats().map(str),
    st.sampled_from(["true", "false", '"h100-sxm"', '"zero2"', '"interleaved"', "[1, 2]", "[]", "{}", "nan", "1e999",
                     '["tensor", "data"]', "1979-05-27", "8", "1", "2", "0"]),
    st.text(max_size=12).map(lambda text: '"' + text.encode("unicode_escape").decode().replace('"', "") + '"'),
)  # fmt: skip


def never_but_a_sentence(text: str) -> None:
    try:
        loads(text)
    except RunFileError as error:
        said = str(error)
    else:
        return
    assert 0 < len(said) < 600
    assert "\n" not in said


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet='[]="\n.#\\ \t0123456789abcdeflmnorstx_-{},', max_size=80))
def test_noise_raises_nothing_else(text: str) -> None:
    never_but_a_sentence(text)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([*TABLES, "modle"]), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4)))
def test_random_tables_raise_nothing_else(tables: dict[str, dict[str, str]]) -> None:
    never_but_a_sentence(write(**tables))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(FIELDS)), VALUES)
def test_one_changed_field_raises_nothing_else(key: tuple[str, str], value: str) -> None:
    never_but_a_sentence(write(f"{key[0]}.{key[1]} = {value}"))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(FIELDS)), st.sampled_from(["1", "2", "8", "64", "true", '"full"', '"gpipe"', "0.5"]))
def test_what_loads_holds_the_value_that_was_given(key: tuple[str, str], value: str) -> None:
    """A value that is accepted is the one that is used: nothing is dropped on the way."""
    table, name = key
    try:
        run = loads(write(f"{table}.{name} = {value}"))
    except RunFileError:
        return
    owners = [getattr(run, table)]
    if table == "cluster":
        owners += [run.cluster.accelerator, run.cluster.fabric]
    found = [getattr(owner, name) for owner in owners if hasattr(owner, name)]
    assert tomllib.loads(f"x = {value}")["x"] in found
