"""Step 1, estimate: parameters, FLOPs, model state, activations and the roofline, all counted from shapes.

A layer is a short list of matrices. Everything here follows from that list.

>>> round(parameters(layers=32, hidden=4096, heads=32, kv_heads=32, head_size=128, ffn=11008, vocabulary=32000,
...                  mlp_matrices=3, embedding_tables=2, layer_vectors=8192, outer_vectors=4096))
6738415616
>>> six_ps_run(parameters=70e9, tokens=15e12)
6.3e+24
"""

from __future__ import annotations

from course.estimate.flops import (
    causal_attention,
    executed,
    full_attention,
    matmul_flops,
    palm,
    six_ps,
    six_ps_error,
    six_ps_run,
)
from course.estimate.latent import latent_attention_parameters, latent_attention_saved
from course.estimate.memory import LOGIT_BYTES, layer_input_bytes, logits_bytes, state_bytes, token_layer_bytes
from course.estimate.model import Count, count, flops_per_token, pick, shape
from course.estimate.parameters import (
    attention_parameters,
    expert_parameters,
    matmul_parameters,
    mixture_active_parameters,
    mixture_parameters,
    parameters,
)
from course.estimate.roofline import attainable, matmul_intensity, operation_time

__all__ = [
    "LOGIT_BYTES", "Count", "attainable", "attention_parameters", "causal_attention", "count", "executed",
    "expert_parameters", "flops_per_token", "full_attention", "latent_attention_parameters", "latent_attention_saved",
    "layer_input_bytes", "logits_bytes", "matmul_flops", "matmul_intensity", "matmul_parameters",
    "mixture_active_parameters", "mixture_parameters", "operation_time", "palm", "parameters", "pick", "shape",
    "six_ps", "six_ps_error", "six_ps_run", "state_bytes", "token_layer_bytes",
]  # fmt: skip
