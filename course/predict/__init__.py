"""The steps put together: memory, time and cost of one layout or of a column of them.

`predict(run)` answers for the layout of a run file; `evaluate` does the same arithmetic for columns of layouts.
"""

from __future__ import annotations

from course.predict.evaluate import evaluate
from course.predict.report import predict

__all__ = ["evaluate", "predict"]
