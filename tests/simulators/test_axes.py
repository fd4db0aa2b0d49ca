"""Every axis on ranks gives the serial numbers, over random shapes, and sends the bytes its formula says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from course import shard
from course.simulators import axes, latent
from course.simulators.axes import Trial
from course.simulators.latent import LatentShape

FEW = settings(max_examples=25, deadline=None)
small = st.integers(1, 3)
ranks_of = st.sampled_from((1, 2, 3, 4))
FLOAT = 8


def check(trial: Trial, expected: float) -> None:
    assert trial.agrees()
    assert len(set(trial.sent)) == 1
    assert abs(trial.sent[0] - expected) <= 1e-6 * max(expected, 1)


@FEW
@given(ranks=ranks_of, tokens=small, hidden=small, ffn=small, seed=st.integers(0, 99))
def test_tensor_parallelism_with_and_without_sequence_parallelism(ranks, tokens, hidden, ffn, seed):
    shape = {"micro_batch": 1, "sequence_length": ranks * tokens, "hidden": ranks * hidden, "tensor": ranks}
    size = (ranks, ranks * tokens, ranks * hidden, ranks * ffn)
    unit = shard.tensor_unit_bytes(activation_bytes=FLOAT, **shape)
    # an MLP is half a layer: a gather and a scatter forward, and the same backward
    check(axes.tensor_mlp(*size, sequence_parallel=True, seed=seed), sum(shard.tensor_units(0, 0)) / 2 * unit)
    again = axes.tensor_mlp(*size, sequence_parallel=True, gathers_again=True, seed=seed)
    check(again, sum(shard.tensor_units(0, 1)) / 2 * unit)
    whole = shard.tensor_all_reduce_bytes(activation_bytes=FLOAT, **shape)
    check(axes.tensor_mlp(*size, sequence_parallel=False, seed=seed), 2 * whole)


@FEW
@given(ranks=ranks_of, tokens=small, kv=small, group=small, size=small, kept=st.booleans(), seed=st.integers(0, 99))
def test_context_parallelism_by_ring_and_by_gather(ranks, tokens, kv, group, size, kept, seed):
    shape = {"micro_batch": 1, "sequence_length": ranks * tokens, "kv_heads": kv, "head_size": size, "tensor": 1}
    unit = shard.context_unit_bytes(activation_bytes=FLOAT, context=ranks, **shape)
    made = (ranks, ranks * tokens, kv * group, kv, size)
    forward, backward = shard.context_units(not kept)
    check(axes.ring_attention(*made, seed=seed), forward * unit)
    check(axes.whole_keys_attention(*made, kept=kept, seed=seed), (forward + backward) * unit)


@FEW
@given(ranks=ranks_of, tokens=small, kv=small, group=small, size=small, seed=st.integers(0, 99))
def test_context_parallelism_by_exchanging_heads(ranks, tokens, kv, group, size, seed):
    heads = {"heads": ranks * kv * group, "kv_heads": ranks * kv}
    shape = {"micro_batch": 1, "sequence_length": ranks * tokens, "head_size": size, "tensor": 1, "context": ranks}
    trial = axes.head_exchange(ranks, ranks * tokens, *heads.values(), size, seed=seed)
    check(trial, shard.head_exchange_bytes(activation_bytes=FLOAT, **heads, **shape))


widths = st.builds(LatentShape, small, small, small, small, small, small)


@FEW
@given(ranks=ranks_of, tokens=small, shape=widths, kept=st.booleans(), seed=st.integers(0, 99))
def test_context_parallelism_of_latent_attention_by_keys_and_values_or_by_latents(ranks, tokens, shape, kept, seed):
    batch = {"activation_bytes": FLOAT, "micro_batch": 1, "sequence_length": ranks * tokens, "context": ranks,
             "rope_head_size": shape.rope}  # fmt: skip
    units = sum(shard.context_units(not kept))
    trial = latent.latent_context(ranks, ranks * tokens, shape, wide=False, kept=kept, seed=seed)
    check(trial, units * shard.latent_context_bytes(**batch, kv_lora=shape.kv_lora))
    heads = {"heads": shape.heads, "nope_head_size": shape.nope, "v_head_size": shape.value, "tensor": 1}
    trial = latent.latent_context(ranks, ranks * tokens, shape, wide=True, kept=kept, seed=seed)
    check(trial, units * shard.expanded_context_bytes(**batch, **heads))


@FEW
@given(ranks=ranks_of, tokens=small, hidden=small, shape=widths, seed=st.integers(0, 99))
def test_tensor_parallelism_of_latent_attention_gathers_latents(ranks, tokens, hidden, shape, seed):
    many = replace(shape, heads=ranks * shape.heads)
    batch = {"activation_bytes": FLOAT, "micro_batch": 1, "sequence_length": ranks * tokens, "tensor": ranks}
    one = shard.latent_tensor_unit_bytes(
        **batch, q_lora=shape.q_lora, kv_lora=shape.kv_lora, rope_head_size=shape.rope
    )
    hidden_unit = shard.tensor_unit_bytes(**batch, hidden=hidden)
    check(latent.latent_tensor(ranks, ranks * tokens, hidden, many, seed=seed), 2 * one + 2 * hidden_unit)


@FEW
@given(ranks=ranks_of, local=small, copies=small, hidden=small, per_token=st.integers(1, 3), seed=st.integers(0, 99))
def test_expert_parallelism(ranks, local, copies, hidden, per_token, seed):
    experts = ranks * local
    tokens = copies * experts
    trial = axes.mixture(ranks, tokens, hidden, experts, per_token, seed=seed)
    one = shard.expert_transfer_bytes(
        activation_bytes=FLOAT, hidden=hidden, experts_per_token=per_token, micro_batch=1, sequence_length=tokens,
        context=1, tensor=1, sequence_sharded=0, expert=ranks,
    )  # fmt: skip
    check(trial, shard.EXPERT_TRANSFERS * one)


@FEW
@given(stages=st.integers(2, 4), tensor=ranks_of, tokens=small, hidden=small, sharded=st.booleans())
def test_pipeline_parallelism(stages, tensor, tokens, hidden, sharded):
    trial = axes.pipeline(stages, tensor, tensor * tokens, hidden, sharded=sharded)
    assert trial.agrees()
    one = shard.pipeline_send_bytes(
        activation_bytes=FLOAT, hidden=hidden, micro_batch=1, sequence_length=tensor * tokens, tensor=tensor,
        sequence_sharded=float(sharded),
    )  # fmt: skip
    assert trial.sent[-1] == 0
    assert all(abs(sent - one) < 1e-6 for sent in trial.sent[:-1])


def test_a_trial_notices_other_numbers():
    good = axes.ring_attention(2, 4, 2, 1, 3)
    assert not Trial(good.parallel + 1e-6, good.serial, good.sent).agrees()


@FEW
@given(tensor=small, context=small, data=small, expert=small, expert_tensor=small)
def test_experts_fold_into_the_ranks_of_a_stage(tensor, context, data, expert, expert_tensor):
    stage = tensor * context * data
    if stage % (expert * expert_tensor):
        return
    groups = axes.expert_groups(stage, expert, expert_tensor)
    assert sorted(rank for group in groups for rank in group) == list(range(stage))
    copies = shard.expert_data_ranks(
        tensor=tensor, context=context, data=data, expert=expert, expert_tensor=expert_tensor
    )
    assert {len(group) for group in groups} == {copies}


@FEW
@given(copies=small, expert=small, expert_tensor=small, numbers=small, seed=st.integers(0, 99))
def test_gradients_of_experts_are_summed_over_their_copies_alone(copies, expert, expert_tensor, numbers, seed):
    split = expert * expert_tensor
    parameters = copies * split * numbers
    sent = shard.data_parallel_traffic(
        stage_parameters=parameters, tensor=split, reduced_gradient_bytes=FLOAT, ranks=copies
    )
    check(axes.expert_reduction(copies * split, expert, expert_tensor, parameters, seed), sent)


@FEW
@given(groups=small, group=ranks_of, each=small, micro_batches=small, narrow=st.booleans(), seed=st.integers(0, 99))
def test_hybrid_sharding_gathers_in_the_group_and_sums_pieces_between_groups(
    groups, group, each, micro_batches, narrow, seed
):
    parameters = groups * group * each
    width = np.float32 if narrow else np.float64
    sent = shard.hybrid_traffic(
        ranks=groups * group, shard_group=group, stage_parameters=parameters, tensor=1, weight_bytes=FLOAT,
        reduced_gradient_bytes=width().nbytes, reductions=micro_batches,
    )  # fmt: skip
    check(axes.hybrid_step(groups * group, group, parameters, micro_batches, width, seed=seed), sent)
