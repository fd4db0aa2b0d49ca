"""The question as frozen data: a model, its training, the cluster, the program, the goal, the layout.

Every object checks its own numbers when it is made, so no later step meets a negative width or a NaN.
`load` and `loads` read one from a run file (TOML); the reading itself stands in `course.runfile`.
Field names are those of the run file; `course.fields` says of each what it means and in which unit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from course.fields import FIELDS, NotYet, RunFileError, checked

__all__ = [
    "Accelerator", "Cluster", "Fabric", "Goal", "Layout", "Measured", "Model", "NotYet", "Run", "RunFileError",
    "Software", "State", "Training", "load", "loads",
]  # fmt: skip


class _Checked:
    """Checks every declared field of a frozen dataclass against the table in `course.fields`."""

    _table: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            declared = FIELDS.get((self._table, field.name))
            value = getattr(self, field.name)
            if declared is None or value is None:
                continue
            object.__setattr__(self, field.name, checked(declared, value))


@dataclass(frozen=True)
class Model(_Checked):
    """The shape of a decoder-only transformer.

    `norm_size` is how many numbers a norm holds per width: 1 RMSNorm, 2 LayerNorm with bias, 0 none. `norms_per_layer`
    leaves out the norms of query and key, which `qk_norm` names: "none", "head" (one a head size) or "width" (one over
    the full width). The fields from `experts` on are zero in a dense model with plain attention.

    >>> tiny = Model("tiny", layers=2, hidden=8, heads=2, kv_heads=1, head_size=4, ffn=16, vocabulary=10)
    >>> tiny.gated_mlp, tiny.is_dense
    (True, True)
    """

    _table = "model"
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocabulary: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    attention_bias: str = "none"
    mlp_bias: bool = False
    norm_size: int = 1
    norms_per_layer: int = 2
    qk_norm: str = "none"
    final_norm: bool = True
    embedding_norm: bool = False
    learned_positions: int = 0
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    expert_ffn: int = 0
    dense_layers: int | None = None
    router_bias: bool = False
    expert_bias: bool = False
    q_lora: int = 0
    kv_lora: int = 0
    rope_head_size: int = 0
    nope_head_size: int = 0
    v_head_size: int = 0
    sliding_window: int = 0
    window_layers: int | None = None
    attention_sinks: bool = False
    parallel_block: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads % self.kv_heads:
            raise RunFileError(
                f"[model] heads = {self.heads} and kv_heads = {self.kv_heads} contradict each other: "
                "each key/value head serves a whole number of query heads, so kv_heads must divide heads."
            )
        if self.dense_layers is None:
            object.__setattr__(self, "dense_layers", 0 if self.experts else self.layers)
        if self.window_layers is None:
            object.__setattr__(self, "window_layers", self.layers if self.sliding_window else 0)

    @property
    def is_dense(self) -> bool:
        """True when no layer has experts and attention is not latent."""
        return self.experts == 0 and self.kv_lora == 0


@dataclass(frozen=True)
class State:
    """A model-state recipe: bytes a parameter by visible parts, before any sharding.

    `gradients` is the gradient the backward pass writes or accumulates; `extra_gradients` a second copy kept beside
    it (fp32 beside bf16). `moments` are both of Adam.

    >>> State("bf16-18", weights=2, gradients=4, extra_gradients=0, master=4, moments=8).total
    18
    """

    id: str
    weights: int
    gradients: int
    extra_gradients: int
    master: int
    moments: int
    used_by: str = ""
    source: str = ""

    @property
    def total(self) -> int:
        """Sum of the parts, in bytes a parameter."""
        return self.weights + self.gradients + self.extra_gradients + self.master + self.moments

    @property
    def optimizer(self) -> int:
        """What ZeRO-1 shards: master weights and moments, in bytes a parameter."""
        return self.master + self.moments

    @property
    def all_gradients(self) -> int:
        """What ZeRO-2 shards besides: every copy of the gradients, in bytes a parameter."""
        return self.gradients + self.extra_gradients


@dataclass(frozen=True)
class Training(_Checked):
    """What is trained: tokens of the whole run, the batch of one optimizer step, the numbers' precision.

    >>> recipe = State("bf16-18", 2, 4, 0, 4, 8)
    >>> Training(15.6e12, 8192, 2048, "bf16", recipe).tokens_per_step
    16777216
    """

    _table = "training"
    tokens: float
    sequence_length: int
    global_batch_sequences: int
    precision: str
    state: State

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step: sequences times their length."""
        return self.global_batch_sequences * self.sequence_length


@dataclass(frozen=True)
class Software(_Checked):
    """How the training program behaves. `course.fields` says of each field what it means and why it matters.

    `bucket_bytes` of 1e12 means one bucket: more than any device holds. `bucket_given` says that a run file asked for
    it, so that the recipe's own rule, which may grow with the replicas, does not hold.
    """

    _table = "software"
    recipe: str
    flash_attention: bool
    eager_kernels: bool
    fused_loss: bool
    dropout: bool
    overlap_gradients: bool
    overlap_unsharded: bool
    scatter_gradients: bool
    overlap_parameters: bool
    overlap_tensor: bool
    overlap_tensor_backward: bool
    overlap_pipeline: bool
    overlap_context: bool
    overlap_expert: bool
    regather_in_backward: bool
    tensor_regather: bool
    bucket_bytes: int
    stage_rule: str
    gradient_reduction_bytes: int
    weight_gather_bytes: int
    order: tuple[str, ...]
    interleave_needs_divisible: bool
    pipeline_minimum_micro_batches: str
    split_backward: bool
    source: str = ""
    bucket_given: bool = False


@dataclass(frozen=True)
class Accelerator(_Checked):
    """One device. `peak_flops_per_s` is dense and for the precision asked.

    `measured_matmul_flops_per_s` is the best bf16 matrix product found by sweeping shapes (None where nobody published
    one, and for other precisions); `measured_matmul_share` the same over the bf16 peak. `peak_16_bit_flops_per_s` is
    the peak of what runs in 16 bits even where matmuls do not; None where it is not known apart.
    """

    _table = "cluster"
    id: str
    name: str
    memory_bytes: float
    memory_bytes_per_s: float
    peak_flops_per_s: float
    precision: str = "bf16"
    measured_matmul_flops_per_s: float | None = None
    measured_matmul_share: float | None = None
    peak_16_bit_flops_per_s: float | None = None
    vendor: str = ""
    default_recipe: str = "megatron"
    source: str = ""
    confidence: str = ""


@dataclass(frozen=True)
class Fabric(_Checked):
    """The two tiers of links. Rates are one-way, per device, in bytes a second; latencies per message, in seconds.

    `node_size` counts the devices the fast links join (a node, a rack, a pod). The measured rates are bus bandwidths
    of large collectives; None where none was published. `*_bus_by_nodes` is what all-reduces and all-gathers over that
    many whole nodes reached, (nodes, bytes a second), in the order of the nodes.
    """

    _table = "cluster"
    id: str
    name: str
    node_size: int
    scale_up_bytes_per_s: float
    scale_out_bytes_per_s: float
    scale_up_latency_s: float
    scale_out_latency_s: float
    scale_up_measured_bytes_per_s: float | None = None
    scale_out_measured_bytes_per_s: float | None = None
    reduce_bus_by_nodes: tuple[tuple[int, float], ...] = ()
    gather_bus_by_nodes: tuple[tuple[int, float], ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Cluster(_Checked):
    """The devices, what joins them, and the share of wall time that trains (`goodput`)."""

    _table = "cluster"
    accelerator: Accelerator
    fabric: Fabric
    devices: int
    goodput: float = 1.0


@dataclass(frozen=True)
class Goal(_Checked):
    """What the run must reach; all optional. Days, accelerator-hours, and a price in your currency."""

    _table = "goal"
    days: float | None = None
    budget_accelerator_hours: float | None = None
    price_per_accelerator_hour: float | None = None


@dataclass(frozen=True)
class Measured(_Checked):
    """What code has shown; all optional."""

    _table = "measured"
    peak_memory_gib: float | None = None
    step_time_s: float | None = None


@dataclass(frozen=True)
class Layout(_Checked):
    """How the work is split. Whether it is *legal* on a cluster is decided in the step `shard`, not here.

    `sequence_parallel` left at None becomes true where tensor > 1; `shard_group` left at None becomes data x context.
    `order` lists the axes from the innermost (neighbouring devices) to the outermost.

    >>> Layout(data=128, tensor=8, pipeline=16, sharding="zero2").shard_group
    128
    >>> Layout(data=-1)
    Traceback (most recent call last):
        ...
    course.fields.RunFileError: [layout] data = -1 must be at least 1 (replicas that each take part of the batch, \
in devices).
    """

    _table = "layout"
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1
    sharding: str = "none"
    shard_group: int | None = None
    micro_batch: int = 1
    recompute: str = "none"
    schedule: str = "1f1b"
    interleave: int = 1
    sequence_parallel: bool | None = None
    order: tuple[str, ...] = ("tensor", "context", "data", "pipeline")
    stage_layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sequence_parallel is None:
            object.__setattr__(self, "sequence_parallel", self.tensor > 1)
        if self.shard_group is None:
            object.__setattr__(self, "shard_group", self.data * self.context)

    @property
    def devices(self) -> int:
        """Product of the degrees that multiply to the device count; expert ranks fold into these."""
        return self.data * self.tensor * self.pipeline * self.context


@dataclass(frozen=True)
class Run:
    """One question about one training run. `assumptions` says in words which defaults were taken."""

    name: str
    model: Model
    training: Training
    software: Software
    cluster: Cluster
    goal: Goal = Goal()
    measured: Measured = Measured()
    layout: Layout | None = None
    assumptions: tuple[str, ...] = ()


def load(path: str | Path) -> Run:
    """Read a run file.

    `path` names a TOML file. Returns the `Run`. Raises `RunFileError` with one or two sentences that say what to
    change, whatever is wrong with the file, and `NotYet` for a field whose chapter has not come.

    >>> load("no such file.toml")
    Traceback (most recent call last):
        ...
    course.fields.RunFileError: There is no file "no such file.toml". Check the path.
    """
    from course import runfile

    return runfile.load(path)


def loads(text: str, name: str = "run file") -> Run:
    """Read a run file from its text; `name` is what the run is called. Raises as `load` does.

    >>> loads("")
    Traceback (most recent call last):
        ...
    course.fields.RunFileError: run file: the file is empty. A run file needs the tables [model], [training] and \
[cluster]; the files in course/examples show how.
    """
    from course import runfile

    return runfile.loads(text, name)
