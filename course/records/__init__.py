"""Published, measured training runs, as their sources printed them; every row names its source.

`runs` are single runs that ran or failed; `groups` say which of them compare; `strong_series` the best run for each
device count; `time_to_train` MLPerf logs; `collectives` measured collectives; `pipelines` the same pipelines with a
whole and a split backward; `models` shapes of the models named.
A blank is None: the source does not say. Read in November 2026.

Of the runs, 1,869 ran and 1,280 failed: crashed or out of memory, which their source does not separate. Whether the
playbook's memory is GB or GiB is unstated. `software` is our reading of which program ran; its shapes are inferred from
the printed sizes. Rows noted ANOMALY: leave their printed utilisation out (a tied table counted twice), their tokens a
second are good.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from types import MappingProxyType

from course.records.columns import Row, typed

__all__ = [
    "Row", "collectives", "duplicate_key", "failed", "groups", "key", "models", "path", "pipelines", "ran", "runs",
    "strong_series", "time_to_train",
]  # fmt: skip


def path(name: str = "runs") -> Path:
    """Where a table lies as a file, for programs that want one. `name` is that of a function here.

    >>> path().name
    'runs.csv'
    """
    with as_file(files(__package__).joinpath(f"{name}.csv")) as file:
        return file


@cache
def _table(name: str) -> tuple[Row, ...]:
    text = files(__package__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return tuple(MappingProxyType(typed(row)) for row in csv.DictReader(io.StringIO(text, newline="")))


def runs() -> tuple[Row, ...]:
    """Every run, in the order of its file; columns as `course.records.columns.RUN_COLUMNS`.

    >>> len(runs()), runs()[0]["model"], runs()[0]["step_time_s"]
    (3149, 'mpt-70b', None)
    """
    return _table("runs")


def groups() -> tuple[Mapping[str, object], ...]:
    """Which runs form a strong-scaling, weak-scaling or layout comparison; `devices` and `row_ids` are tuples.

    >>> groups()[0]["kind"], groups()[0]["row_ids"]
    ('strong', ('mpt-0002', 'mpt-0019'))
    """
    return _groups()


@cache
def _groups() -> tuple[Mapping[str, object], ...]:
    split = (
        row
        | {
            "devices": tuple(int(word) for word in str(row["devices"] or "").split()),
            "row_ids": tuple(str(row["row_ids"] or "").split()),
        }
        for row in map(dict, _table("groups"))
    )
    return tuple(MappingProxyType(row) for row in split)


def strong_series() -> tuple[Row, ...]:
    """Speedup and efficiency of the best run for each device count of a strong-scaling group.

    >>> strong_series()[1]["efficiency"]
    0.9962
    """
    return _table("strong_series")


def time_to_train() -> tuple[Row, ...]:
    """MLPerf logs v3.0 to v4.1; `minutes` to the target. Not strong scaling unless the batch is equal.

    >>> time_to_train()[0]["minutes"]
    442.578
    """
    return _table("time_to_train")


def collectives() -> tuple[Row, ...]:
    """Measured collectives: payload in bytes, time in microseconds, algorithm and bus bandwidth in GB/s.

    >>> collectives()[0]["busbw_GBps"]
    1.44
    """
    return _table("collectives")


def pipelines() -> tuple[Row, ...]:
    """Pipelines on A100, one device a stage, measured under 1F1B and under ZB-1p, a searched relative of ZB-H1.

    Beside them the profiled parts of one micro-batch on a stage in ms, and the bubbles (idle over total) that the
    authors computed from these. Whether memory is GB or GiB is unstated.

    >>> pipelines()[0]["pp"], pipelines()[0]["weight_gradient_ms"], pipelines()[0]["bubble_zb_h1"]
    (8, 9.337, 0.1585)
    """
    return _table("pipelines")


def models() -> tuple[Row, ...]:
    """Shapes of the models that runs only name; the catalog has more of the public ones.

    >>> next(row["n_layers"] for row in models() if row["model"] == "GPT 1T")
    128
    """
    return _table("models")


def key(row: Mapping[str, object]) -> str:
    """The source of a run: what stands before the number in its id.

    >>> key({"id": "usp-0001"}), key({"id": "mlp-v3.0-12"}), key({"id": ""})
    ('usp', 'mlp-v3.0', 'unnamed')
    """
    name = str(row.get("id") or "").strip()
    return name.rpartition("-")[0] or name.rstrip("0123456789") or name or "unnamed"


def failed(row: Mapping[str, object]) -> bool:
    """True for a run that crashed or ran out of memory: its notes start with FAILED.

    >>> failed({"notes": "FAILED: out of memory"}), failed({"notes": None})
    (True, False)
    """
    return str(row.get("notes") or "").startswith("FAILED")


def ran(row: Mapping[str, object]) -> bool:
    """True for a run that did not fail.

    >>> ran({"notes": ""})
    True
    """
    return not failed(row)


_SAME = (
    "model", "accelerator", "dtype", "software", "n_devices", "global_batch_seqs", "seq_len",
    "dp", "tp", "pp", "vpp", "cp", "ep", "micro_batch", "sharding", "shard_group", "recompute",
    "sequence_parallel",
)  # fmt: skip


def duplicate_key(row: Mapping[str, object]) -> tuple[object, ...]:
    """What two runs must share to be the same measurement twice: source, question and whole layout.

    >>> duplicate_key({"id": "a-1", "tp": 2}) == duplicate_key({"id": "a-2", "tp": 2})
    True
    """
    return key(row), failed(row), *(row.get(name) for name in _SAME)
