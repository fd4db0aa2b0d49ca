"""Brute-force simulators: every formula of the course is held against one of these, and none of them imports a formula.

`engine` runs tasks on resources; `pipeline`, `timeline` and `ring` state their events to it; `shapes` walks over
the tensors of a model; `ranks` lets several ranks with real arrays train together.
"""
