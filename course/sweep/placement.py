"""Where the ranks of a layout lie: which axis crosses nodes, and how many ranks share one copy of the state.

Neither changes what a layout computes, so a layout is not two for being placed in two ways: each is tried in every
placement that could be the fastest and keeps that one. A plain placement (the recipe's order, one shard group) gives
way only to one that is faster by more than `NOTICED`.
"""

from __future__ import annotations

import itertools

import numpy as np

from course.predict.columns import Columns
from course.predict.constants import Constants
from course.predict.evaluate import evaluate
from course.predict.traffic import links
from course.problem import Run
from course.sweep.axes import Axes, runs

ORDERS = tuple(itertools.permutations(("tensor", "context", "data", "pipeline")))
"""Every order of the axes, innermost first; the column `order` counts in it."""

NOTICED = 0.005
"""Smaller differences of time are no reason for anything."""


def orders_to_try(run: Run, axes: Axes) -> list[int]:
    """The orders a sweep may choose from, the recipe's first.

    Tensor ranks stay neighbours, for every layer waits for them twice; the others change places. A held order is the
    only one.
    """
    if "order" in axes.held:
        return [ORDERS.index(tuple(axes.held["order"]))]
    usual = ORDERS.index(tuple(run.software.order))
    inside = [place for place, order in enumerate(ORDERS) if order[0] == "tensor"]
    return [usual, *(place for place in inside if place != usual)]


def useful(run: Run, columns: Columns, orders: list[int], constants: Constants) -> np.ndarray:
    """For each row (first axis) and order (second axis): could it be the fastest?

    It could not where another order gives every axis a link as good, and comes before it or gives one a better link.
    """
    if len(orders) == 1:
        return np.ones((len(columns["data"]), 1), bool)
    names = ("tensor", "context", "data", "pipeline", "expert", "expert_tensor", "shard_group")
    first, place = runs(columns, names)
    rows = {name: column[first] for name, column in columns.items()}
    costs = np.stack([_costs(run, rows, ORDERS[order], constants) for order in orders])
    keep = np.ones((len(orders), len(first)), bool)
    for this, other in itertools.permutations(range(len(orders)), 2):
        no_worse = (costs[other] <= costs[this]).all(axis=0)
        keep[this] &= ~(no_worse & (other < this or (costs[other] < costs[this]).any(axis=0)))
    return np.asarray(keep.T[place])


def _costs(run: Run, rows: Columns, order: tuple[str, ...], constants: Constants) -> np.ndarray:
    """What an order does to each group of ranks, less is better: seconds a byte and a message, ranks off the node."""
    found = links(run, rows, constants, order)
    groups = [found[name] for name in sorted(found)]  # as they come, they stand in the order of the axes
    return np.stack([cost for link in groups for cost in (1 / link.bytes_per_s, link.latency_s, -link.on_node)])


def evaluate_placed(run: Run, columns: Columns, constants: Constants, held: bool = True) -> Columns:
    """`evaluate`, each row by its own `order`; with memory where `held`."""
    placed: Columns = {}
    for order in np.unique(columns["order"]):
        rows = np.flatnonzero(columns["order"] == order)
        part = {name: column[rows] for name, column in columns.items()}
        values = evaluate(run, part, ORDERS[int(order)], constants, held)
        for name, column in values.items():
            if name not in placed:
                placed[name] = np.empty(len(columns["order"]), column.dtype)
            placed[name][rows] = column
    return placed


def fastest(layout: np.ndarray, plain: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Of rows that are placements of the same `layout` (a number), the fastest: row numbers, by layout.

    >>> fastest(np.array([0, 0, 1, 1]), np.array([True, False, True, False]), np.array([1.0, 0.999, 2.0, 1.0])).tolist()
    [0, 3]
    """
    if not len(layout):
        return np.arange(0)
    ranked = np.lexsort((np.where(plain, time, time * (1 + NOTICED)), layout))
    sorted_layouts = layout[ranked]
    return np.asarray(ranked[np.append(True, sorted_layouts[1:] != sorted_layouts[:-1])])
