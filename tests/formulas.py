"""Every formula of the course by its full name, such as `shard.zero3_traffic`, for tests over all of them."""

from __future__ import annotations

from course.formula import Formula
from course.formulas import formulas

FORMULAS: dict[str, Formula] = formulas()
