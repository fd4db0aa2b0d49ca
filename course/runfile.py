"""Reading a run file: TOML to the frozen objects of `course.problem`, with one clear sentence for whatever is wrong.

The order is: is it a file, is it text, is it TOML; are tables and fields known; has each value the right type and
range; has its chapter come; is anything missing; do two given values contradict each other.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from course import catalog
from course.contradictions import check
from course.fields import (
    FIELDS,
    SYNONYMS,
    TABLES,
    Field,
    NotYet,
    RunFileError,
    checked,
    describe,
    fields_of,
    nearest,
    show,
)
from course.files import read_text
from course.problem import Accelerator, Cluster, Fabric, Goal, Layout, Measured, Model, Run, Software, Training

__all__ = ["load", "loads"]

_REQUIRED_TABLES = ("model", "training", "cluster")
_SHAPE = ("layers", "hidden", "heads", "ffn", "vocabulary")
# NCCL's own model constants per ring step (src/graph/tuning.cc): NVLink, and a network with large messages.
_LATENCIES = {"scale_up_latency_s": 3.4e-6, "scale_out_latency_s": 9.6e-6}

Given = Mapping[str, Mapping[str, Any]]
_Found = TypeVar("_Found")


def load(path: str | Path) -> Run:
    """Read the run file at `path`. Returns the `Run`; raises `RunFileError` as `course.problem.load` says.

    >>> load(".")
    Traceback (most recent call last):
        ...
    course.fields.RunFileError: "." is a folder, not a run file. Give the path of a TOML file.
    """
    instead = ": a run file is TOML in UTF-8. Is it the right file?"
    text = read_text(path, "run file", "a TOML file", instead, RunFileError)
    return loads(text, Path(path).stem)


def loads(text: str, name: str = "run file") -> Run:
    """Read a run file from its text. Returns the `Run`; raises `RunFileError`.

    >>> loads("[modle]")
    Traceback (most recent call last):
        ...
    course.fields.RunFileError: There is no table [modle]; the nearest name is [model]. The tables are model, \
training, software, cluster, goal, measured, layout.
    """
    if not text.strip():
        raise RunFileError(
            f"{name}: the file is empty. A run file needs the tables [model], [training] and [cluster]; "
            "the files in course/examples show how."
        )
    if "\0" in text:
        raise RunFileError(f"{name} is not text: a run file is TOML in UTF-8. Is it the right file?")
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: not TOML, or a number of thousands of digits
        reason = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a value is too deep or too long"
        raise RunFileError(f"{name} is not TOML: {reason[:120]}. Mend that line.") from None
    given = _given(tables)
    return _Reader(given).run(name)


def _given(tables: Mapping[str, Any]) -> Given:
    """Every given value, checked for its own type and range; names are left for the catalog."""
    for table, content in tables.items():
        if not isinstance(content, dict):
            raise _stray(table)
        if table not in TABLES:
            raise RunFileError(
                f"There is no table {_bracket(table)}; the nearest name is [{nearest(table, TABLES)}]. "
                f"The tables are {', '.join(TABLES)}."
            )
    missing = [table for table in _REQUIRED_TABLES if table not in tables]
    if missing:
        raise RunFileError(f"The table [{missing[0]}] is missing: {TABLES[missing[0]]}.")
    return {table: _given_fields(table, content) for table, content in tables.items()}


def _given_fields(table: str, content: Mapping[str, Any]) -> dict[str, Any]:
    known = fields_of(table)
    values = {}
    for name, value in content.items():
        if name not in known:
            raise _unknown(table, name)
        if known[name].kind == "name" and not isinstance(value, str):
            what = f"must be a name in quotes ({describe(known[name])})"
            raise RunFileError(f"{known[name].key} = {show(value)} {what}.")
        values[name] = checked(known[name], value)
        _refuse_later(known[name], values[name])
    return values


def _bracket(table: str) -> str:
    return f"[{show(table)[1:-1]}]"


def _stray(name: str) -> RunFileError:
    """A value before any table, or a table written as a value."""
    if name in TABLES:
        return RunFileError(f"{name} must be a table: write [{name}] on its own line, and its fields below.")
    owners = [table for table, field in FIELDS if field == name]
    if owners:
        return RunFileError(f"{show(name)[1:-1]} stands above the tables; it belongs below [{owners[0]}].")
    near = nearest(name, (field for _, field in FIELDS))
    return RunFileError(
        f"{show(name)[1:-1]} is no field of a run file, and stands above the tables; the nearest name is {near}."
    )


def _unknown(table: str, name: str) -> RunFileError:
    shown = show(name)[1:-1]
    owners = [owner for owner, field in FIELDS if field == name]
    if owners:
        return RunFileError(f"[{table}] has no field {shown}; it belongs below [{owners[0]}].")
    meant = SYNONYMS.get(name)
    if meant is not None and (homes := [owner for owner, field in FIELDS if field == meant]):
        return RunFileError(f"[{table}] has no field {shown}; the field is called {meant} and stands in [{homes[0]}].")
    known = fields_of(table)
    near = known[nearest(name, known)]
    return RunFileError(f"[{table}] has no field {shown}; the nearest name is {near.name} ({describe(near)}).")


def _refuse_later(declared: Field, value: Any) -> None:
    neutral = 1 if declared.table == "layout" else 0
    if declared.later and value != neutral:
        left = "false" if declared.kind == "yes/no" else str(neutral)
        raise NotYet(
            f"{declared.key} = {show(value)}: predictions do not cover {declared.later} yet; "
            f"set {declared.name} = {left} or leave it out."
        )
    if isinstance(value, str) and value in declared.later_values:
        raise NotYet(
            f"{declared.key} = {show(value)}: predictions do not cover {declared.later_values[value]} yet; "
            f"choose {' or '.join(c for c in declared.choices if c not in declared.later_values)}."
        )


def _missing(table: str, name: str) -> RunFileError:
    declared = FIELDS[table, name]
    example = f" Add for example {name} = {declared.example}." if declared.example else ""
    return RunFileError(f"{declared.key} is missing: {describe(declared)}.{example}")


def _named(declared: Field, look_up: Callable[[], _Found]) -> _Found:
    try:
        return look_up()
    except catalog.UnknownName as error:
        raise RunFileError(f"{declared.key}: {_lower(error)}") from None
    except catalog.NoPeak as error:
        raise RunFileError(f"{FIELDS['training', 'precision'].key}: {_lower(error)}") from None


def _lower(error: Exception) -> str:
    said = str(error)
    return said[:1].lower() + said[1:]


class _Reader:
    """Builds the parts of a run from the given values, noting which defaults it took."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.assumptions: list[str] = []

    def run(self, name: str) -> Run:
        """The whole run, after the contradictions between given values have been looked for."""
        model = self._model()
        training = self._training()
        cluster = self._cluster(training.precision)
        software = self._software(training, cluster.accelerator)
        layout = self._layout(software) if "layout" in self.given else None
        if layout is not None:
            self._note_data(layout, cluster.devices)
        run = Run(
            name=name,
            model=model,
            training=training,
            software=software,
            cluster=cluster,
            goal=Goal(**self.given.get("goal", {})),
            measured=Measured(**self.given.get("measured", {})),
            layout=layout,
            assumptions=tuple(self.assumptions),
        )
        check(self.given, run)
        return run

    def _need(self, table: str, name: str) -> Any:
        try:
            return self.given[table][name]
        except KeyError:
            raise _missing(table, name) from None

    def _or_default(self, table: str, name: str, default: Any, why: str = "the default") -> Any:
        if name in self.given.get(table, {}):
            return self.given[table][name]
        self.assumptions.append(f"[{table}] {name} = {show(default)} ({why})")
        return default

    def _model(self) -> Model:
        own = dict(self.given["model"])
        preset = own.pop("preset", None)
        if preset is None:
            return self._own_model(own)
        declared = FIELDS["model", "preset"]
        base = _named(declared, lambda: catalog.model(preset))
        if not base.experts:
            own.setdefault("dense_layers", 0 if own.get("experts") else own.get("layers", base.layers))
        if base.window_layers == base.layers and "layers" in own:
            own.setdefault("window_layers", own["layers"])
        elif own.get("sliding_window") and not base.sliding_window:
            own.setdefault("window_layers", own.get("layers", base.layers))
        elif own.get("sliding_window") == 0:
            own.setdefault("window_layers", 0)
        changed = any(getattr(base, name) != value for name, value in own.items())
        model = replace(base, **own, name=f"a shape from {base.name}" if changed else base.name)
        for name, value in fields_of("model").items():
            if value.later and getattr(model, name):
                raise NotYet(
                    f"{declared.key} = {show(preset)}: this model has {name} = {show(getattr(model, name))}, and "
                    f"predictions do not cover {value.later} yet; choose another model."
                )
        return model

    def _own_model(self, own: dict[str, Any]) -> Model:
        if not any(name in own for name in _SHAPE):
            raise RunFileError(
                f"[model] preset is missing: {describe(FIELDS['model', 'preset'])}. "
                f'Add for example preset = "llama-3.1-405b", or give {", ".join(_SHAPE)}.'
            )
        for name in _SHAPE:
            self._need("model", name)
        own["kv_heads"] = self._or_default("model", "kv_heads", own["heads"], "as many as heads")
        if "head_size" not in own:
            if own["hidden"] % own["heads"]:
                raise RunFileError(
                    f"[model] head_size is missing ({describe(FIELDS['model', 'head_size'])}), and its default needs "
                    f"hidden = {own['hidden']} to divide by heads = {own['heads']}. Give head_size."
                )
            own["head_size"] = self._or_default("model", "head_size", own["hidden"] // own["heads"], "hidden / heads")
        return Model(name="own model", **own)

    def _training(self) -> Training:
        state = self._or_default("training", "state", catalog.DEFAULT_STATE)
        return Training(
            tokens=self._need("training", "tokens"),
            sequence_length=self._need("training", "sequence_length"),
            global_batch_sequences=self._need("training", "global_batch_sequences"),
            precision=self._or_default("training", "precision", "bf16"),
            state=_named(FIELDS["training", "state"], lambda: catalog.state(state)),
        )

    def _cluster(self, precision: str) -> Cluster:
        return Cluster(
            accelerator=self._accelerator(precision),
            fabric=self._fabric(),
            devices=self._need("cluster", "devices"),
            goodput=self._or_default("cluster", "goodput", 1.0),
        )

    def _accelerator(self, precision: str) -> Accelerator:
        raw = ("peak_flops_per_s", "memory_bytes", "memory_bytes_per_s")
        own = {name: self.given["cluster"][name] for name in raw if name in self.given["cluster"]}
        if "accelerator" in self.given["cluster"]:
            name = self.given["cluster"]["accelerator"]
            peak = own.get("peak_flops_per_s")
            declared = FIELDS["cluster", "accelerator"]
            return replace(_named(declared, lambda: catalog.accelerator(name, precision, peak)), **own)
        if not own:
            raise _missing("cluster", "accelerator")
        for field in raw:
            self._need("cluster", field)
        return Accelerator(id="own", name="an accelerator given in the run file", precision=precision, **own)

    def _fabric(self) -> Fabric:
        cluster = self.given["cluster"]
        raw = ("node_size", "scale_up_bytes_per_s", "scale_out_bytes_per_s")
        own = {name: cluster[name] for name in (*raw, *_LATENCIES) if name in cluster}
        if "fabric" in cluster:
            base = _named(FIELDS["cluster", "fabric"], lambda: catalog.fabric(cluster["fabric"]))
            if not all(name in own for name in raw):
                self._check_fabric(base)
            for tier in ("scale_up", "scale_out"):
                if f"{tier}_bytes_per_s" in own:  # a rate measured on other links says nothing about these
                    own[f"{tier}_measured_bytes_per_s"] = None
            return replace(base, **own)
        if not any(name in own for name in raw):
            raise self._missing_fabric()
        for name in raw:
            self._need("cluster", name)
        for name, seconds in _LATENCIES.items():
            own[name] = self._or_default("cluster", name, seconds, "a model constant of NCCL")
        return Fabric(id="own", name="links given in the run file", **own)

    def _check_fabric(self, fabric: Fabric) -> None:
        """Links made for another accelerator are refused, unless none in the catalog is made for this one."""
        accelerator = self.given["cluster"].get("accelerator")
        fitting = catalog.fabrics_for(accelerator) if accelerator else ()
        if fitting and fabric.id not in fitting:
            raise RunFileError(
                f"[cluster] fabric = {show(fabric.id)} is not made for accelerator = {show(accelerator)}: choose "
                f"{' or '.join(show(name) for name in fitting)}, or give node_size (devices), scale_up_bytes_per_s "
                "and scale_out_bytes_per_s (bytes/s, one way, a device) in its place."
            )

    def _missing_fabric(self) -> RunFileError:
        accelerator = self.given["cluster"].get("accelerator")
        fitting = catalog.fabrics_for(accelerator) if accelerator else ()
        if fitting:
            choice = f"Presets for {accelerator}: {', '.join(fitting)}"
        else:
            choice = f"Presets: {', '.join(catalog.names('fabrics'))}"
        return RunFileError(
            f"[cluster] fabric is missing: the links inside a node and between nodes. {choice}; "
            "or give node_size (devices), scale_up_bytes_per_s and scale_out_bytes_per_s (bytes/s, one way, a device)."
        )

    def _software(self, training: Training, accelerator: Accelerator) -> Software:
        own = dict(self.given.get("software", {}))
        recipe = self._or_default("software", "recipe", accelerator.default_recipe)
        own.pop("recipe", None)
        base = _named(FIELDS["software", "recipe"], lambda: catalog.software(recipe, training.state))
        return replace(base, **own, bucket_given="bucket_bytes" in own)

    def _note_data(self, layout: Layout, devices: int) -> None:
        """Where data is left out and the other axes do not fill the cluster, note what would fill it."""
        group = layout.tensor * layout.pipeline * layout.context
        if "data" not in self.given["layout"] and group != devices:
            fitting = f"; data = {devices // group} would do" if devices % group == 0 else ""
            self.assumptions.append(f"[layout] data was left out, so it is 1{fitting}")

    def _layout(self, software: Software) -> Layout:
        own = dict(self.given["layout"])
        order = own.pop("order", software.order)
        rest = tuple(axis for axis in software.order if axis not in order)
        for axis in rest:
            if own.get(axis, 1) > 1:
                raise RunFileError(
                    f"[layout] order leaves out {axis}, and {axis} = {own[axis]} contradicts that. "
                    f"Name {axis} in order ({describe(FIELDS['layout', 'order'])})."
                )
        return Layout(order=(*order, *rest), **own)
