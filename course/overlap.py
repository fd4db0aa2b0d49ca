"""Step 7, overlap: what communication adds to a step when part of it runs beside compute.

One device has two streams: one computes, one communicates. A bucket is sent when its gradients are ready, and the step
ends when both streams are done. That picture, and not an overlap fraction, gives the exposed time.

>>> exposed_reduction(buckets=32, compute_per_layer=2e-3, communication_per_layer=1e-3)  # all but the last one hidden
0.001
>>> round(exposed_reduction(buckets=32, compute_per_layer=1e-3, communication_per_layer=2e-3), 6)
0.033
"""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.symbols import symbols

K, c, c_f, c_b, r, G_r, t_dev, t_host, t_c, t_x = symbols(
    "buckets", "compute_per_layer", "forward_per_layer", "backward_per_layer", "communication_per_layer", "reductions",
    "device_time", "host_time", "compute_time", "communication_time",
)  # fmt: skip

exposed_reduction = Formula(
    "exposed_reduction",
    "t_exp",
    r + (K - 1) * sp.Max(0, r - c),
    "s",
    "time gradient reduction adds to backward: K equal buckets, each sent when its gradients are ready",
    assumptions=(
        "one communication stream, buckets in order, compute not slowed by communication",
        "with ZeRO-3, r is the gather and the reduction of a layer together: then an upper bound, by at most c",
    ),
    derivation=(
        Step("the step ends after all compute and one more bucket, or after the first compute and all buckets; "
             "what exceeds the compute is exposed",
             sp.Max(K * c + r, c + K * r) - K * c),
    ),
)  # fmt: skip

_step_compute = G_r * K * (c_f + c_b)

exposed_every_reduction = Formula(
    "exposed_every_reduction",
    "t_exp",
    r + (K - 1) * sp.Max(0, r - c_b) + (G_r - 1) * K * sp.Max(0, r - c_f - c_b),
    "s",
    "time gradient reduction adds when each of G_r micro-batches reduces all K buckets",
    assumptions=(
        "one communication stream, buckets in order; it also runs beside the next micro-batch's forward",
        "finished buckets may wait for their turn: memory for them is there",
    ),
    derivation=(
        Step("the stream ends after the last bucket it had to wait for: that is the first or the last bucket of the "
             "first or the last micro-batch, whose ready time and remaining buckets are added",
             sp.Max(
                 _step_compute + r,
                 _step_compute - K * c_b + c_b + K * r,
                 K * (c_f + c_b) + ((G_r - 1) * K + 1) * r,
                 K * c_f + c_b + G_r * K * r,
             ) - _step_compute),
    ),
)  # fmt: skip

exposed_gather = Formula(
    "exposed_gather",
    "t_exp",
    r + (K - 1) * sp.Max(0, r - c),
    "s",
    "time weight gathers add to forward: K layers, each gathered while the one before it computes",
    assumptions=("the first gather has nothing to hide behind", "one layer is fetched ahead"),
    derivation=(
        Step("the first gather, for every layer the longer of its compute and the next gather, the last compute",
             r + (K - 1) * sp.Max(c, r) + c - K * c),
    ),
)  # fmt: skip

layer_time = Formula(
    "layer_time",
    "t_L",
    sp.Max(t_dev, t_host),
    "s",
    "time of one layer: the device's, or the host's where it cannot launch fast enough",
    assumptions=("the host runs ahead of the device, so the two do not add",),
)

step_upper_bound = Formula(
    "step_upper_bound",
    "t_hi",
    t_c + t_x,
    "s",
    "longest a step can take: nothing overlaps",
)

step_lower_bound = Formula(
    "step_lower_bound",
    "t_lo",
    sp.Max(t_c, t_x),
    "s",
    "shortest a step can take: everything overlaps",
)
