"""The frozen data: what they refuse, what they fill in, and what they never do twice."""

from __future__ import annotations

import dataclasses
import math

import pytest

from course import catalog
from course.fields import FIELDS, LAYOUT_FIELDS, SYNONYMS, TABLES, checked, fields_of, nearest, show
from course.problem import (
    Accelerator,
    Cluster,
    Fabric,
    Goal,
    Layout,
    Measured,
    Model,
    RunFileError,
    Software,
    State,
    Training,
)

TINY = {"layers": 2, "hidden": 8, "heads": 4, "kv_heads": 2, "head_size": 2, "ffn": 16, "vocabulary": 10}


@pytest.mark.parametrize("field", sorted(TINY))
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "8", 1.5, 10**30])
def test_a_model_refuses_a_wrong_width(field: str, value: object) -> None:
    with pytest.raises(RunFileError, match=rf"\[model\] {field} = .* must be"):
        Model("tiny", **{**TINY, field: value})  # type: ignore[arg-type]


def test_key_value_heads_divide_the_query_heads() -> None:
    with pytest.raises(RunFileError, match="heads = 4 and kv_heads = 3"):
        Model("tiny", **{**TINY, "kv_heads": 3})


def test_dense_layers_are_all_layers_of_a_dense_model() -> None:
    assert Model("tiny", **TINY).dense_layers == 2
    assert Model("tiny", **TINY, experts=4, experts_per_token=2, expert_ffn=8).dense_layers == 0


def test_whole_floats_are_integers_and_stay_so() -> None:
    model = Model("tiny", **{**TINY, "hidden": 8.0})  # type: ignore[arg-type]
    assert model.hidden == 8
    assert isinstance(model.hidden, int)
    assert Layout(pipeline=2, stage_layers=(1.0, 2)).stage_layers == (1, 2)  # type: ignore[arg-type]
    assert all(isinstance(layers, int) for layers in Layout(stage_layers=(3.0,)).stage_layers or ())  # type: ignore[arg-type]


@pytest.mark.parametrize("thing", [Layout(), Goal(), Model("tiny", **TINY), catalog.state("bf16-18")])
def test_nothing_can_be_changed(thing: object) -> None:
    field = dataclasses.fields(thing)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, field, 1)


def test_a_layout_fills_in_what_follows_from_the_degrees() -> None:
    plain = Layout(data=4)
    assert (plain.sequence_parallel, plain.shard_group, plain.devices) == (False, 4, 4)
    split = Layout(data=4, tensor=2, pipeline=3, context=2)
    assert (split.sequence_parallel, split.shard_group, split.devices) == (True, 8, 48)
    assert Layout(tensor=2, sequence_parallel=False).sequence_parallel is False
    assert Layout(data=8, shard_group=2).shard_group == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [("sharding", "zero4"), ("recompute", "some"), ("schedule", "2f2b"), ("order", ("tensor", "tensor")),
     ("order", ("tensor", "depth")), ("order", ()), ("stage_layers", (1, -1)), ("stage_layers", 3),
     ("sequence_parallel", 1), ("micro_batch", 0), ("interleave", 0)],
)  # fmt: skip
def test_a_layout_refuses_what_no_layout_is(field: str, value: object) -> None:
    with pytest.raises(RunFileError, match=rf"\[layout\] {field}"):
        Layout(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Training(0, 1, 1, "bf16", State("s", 2, 2, 0, 4, 8)),
        lambda: Training(1, 1, 1, "int8", State("s", 2, 2, 0, 4, 8)),
        lambda: Accelerator("a", "a", 1, 1, -1),
        lambda: Fabric("f", "f", 0, 1, 1, 0, 0),
        lambda: Fabric("f", "f", 1, 1, 1, -1, 0),
        lambda: Goal(days=-1),
        lambda: Measured(step_time_s=math.nan),
        lambda: Cluster(catalog.accelerator("h100-sxm"), catalog.fabric("h100-ib400"), 8, goodput=1.01),
        lambda: dataclasses.replace(catalog.software("megatron"), bucket_bytes=0),
    ],
)
def test_every_part_checks_its_numbers(make: object) -> None:
    with pytest.raises(RunFileError, match=r"^\[\w+\] \w+ = .* must be"):
        make()  # type: ignore[operator]


def test_a_free_price_and_a_link_without_latency_are_fine() -> None:
    assert Goal(price_per_accelerator_hour=0).price_per_accelerator_hour == 0
    assert Fabric("f", "f", 1, 1, 1, 0, 0).scale_up_latency_s == 0


def test_every_field_of_the_table_is_an_attribute_and_has_words() -> None:
    owners = {
        "model": (Model,), "training": (Training,), "software": (Software,), "goal": (Goal,), "measured": (Measured,),
        "layout": (Layout,), "cluster": (Cluster, Accelerator, Fabric),
    }  # fmt: skip
    assert set(owners) == set(TABLES)
    for (table, name), declared in FIELDS.items():
        known = {field.name for owner in owners[table] for field in dataclasses.fields(owner)}
        assert name in known | {"preset"}, name
        assert declared.meaning, name
        if declared.kind in ("integer", "number", "integers"):
            assert declared.unit, name
            assert math.isfinite(declared.low), name
            assert math.isfinite(declared.high), name


def test_the_fields_that_fix_may_name_are_those_of_a_layout() -> None:
    assert set(LAYOUT_FIELDS) == {field.name for field in dataclasses.fields(Layout)}
    assert LAYOUT_FIELDS["micro_batch"].unit == "sequences"


def test_every_declared_default_is_the_one_taken() -> None:
    for name, declared in fields_of("layout").items():
        if declared.default in ("1", "none", "1f1b"):
            assert str(getattr(Layout(), name)) == declared.default, name
    for name, declared in fields_of("model").items():
        if declared.default in ("true", "false"):
            assert getattr(Model("tiny", **TINY), name) is (declared.default == "true"), name


def test_values_are_shown_as_the_file_writes_them_and_never_at_length() -> None:
    assert show("a\nb") == r'"a\nb"'
    assert show(0x10 ** (10**4)) == "a number of over 300 digits"
    assert len(show("x" * 10**6)) <= 60
    assert show({"a": 1}) == "a table"
    assert show([1] * 100).endswith("…")


def test_the_nearest_name_is_the_one_a_typist_meant() -> None:
    assert nearest("sequence_lenght", fields_of("training")) == "sequence_length"
    assert nearest("x" * 10**6, fields_of("training"))


def test_the_names_of_other_programs_lead_to_the_field() -> None:
    # the keys of a Llama configuration at Hugging Face, and the flags of a launcher
    config = {"hidden_size": "hidden", "intermediate_size": "ffn", "num_hidden_layers": "layers", "vocab_size":
              "vocabulary", "num_attention_heads": "heads", "num_key_value_heads": "kv_heads", "head_dim": "head_size",
              "tie_word_embeddings": "tied_embeddings"}  # fmt: skip
    assert {name: nearest(name, fields_of("model")) for name in config} == config
    flags = {"tp": "tensor", "PP": "pipeline", "dp": "data", "cp": "context", "ep": "expert", "micro-batch-size":
             "micro_batch"}  # fmt: skip
    assert {name: nearest(name, fields_of("layout")) for name in flags} == flags
    assert nearest("gpus", fields_of("cluster")) == nearest("world_size", fields_of("cluster")) == "devices"
    names = {name for _, name in FIELDS}
    assert set(SYNONYMS.values()) <= names and not names & set(SYNONYMS)


def test_a_value_on_the_edge_is_allowed() -> None:
    for declared in FIELDS.values():
        if declared.kind in ("integer", "number"):
            assert checked(declared, declared.high) == declared.high
            if not declared.open_low:
                assert checked(declared, declared.low) == declared.low
