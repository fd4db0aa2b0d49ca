"""Controls on the left, a picture that follows: every explorer asks the library and computes nothing itself.

>>> from course.explorers import estimate
>>> print(estimate.roofline(intensity=8, bandwidth=50).static().sentence)
At 8 FLOP/byte and 50 GB/s an operation reaches 400 GFLOP/s, 40 % of the compute cap: bound by memory bandwidth.
"""

from __future__ import annotations

from course.explorers import estimate
from course.explorers.base import Choice, Explorer, Flag, Number, Static, View

__all__ = ["Choice", "Explorer", "Flag", "Number", "Static", "View", "estimate"]
