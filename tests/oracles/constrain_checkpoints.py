"""Oracle of checkpointing: a forward and a backward over a list of layers, counting what lies in memory."""

from __future__ import annotations

from course.simulators.pipeline import FORWARD, gpipe, one_forward_one_backward
from course.simulators.saved import Execution, saved_in_layer
from course.simulators.shapes import total_bytes
from oracles.checking import Answers, Check, agrees
from oracles.shapes import plain, random_shapes


def fullest_moment_of_the_first_stage() -> Answers:
    """Forward keeps the input of each group; backward runs a group forward again, keeping all, then frees it.

    The first stage of a pipeline does so in the order of its schedule, with the inputs of other micro-batches beside.
    """
    cases = ((12, 1), (12, 2), (12, 4), (6, 6), (20, 5))
    schedules = (one_forward_one_backward(1, 3), one_forward_one_backward(4, 6), gpipe(2, 3))
    for number, shape in enumerate(random_shapes(6, seed=41)):
        sequences, length = 1 + number % 3, 3 + number
        full = total_bytes(saved_in_layer(plain(shape), sequences, length))
        alone = total_bytes(saved_in_layer(plain(shape), sequences, length, Execution(recompute="full")))
        for (layers, group), order in ((case, orders[0]) for case in cases for orders in schedules):
            checkpoints: dict[int, list[int]] = {}
            peak = most = 0
            for work in order:
                if work.kind == FORWARD:
                    checkpoints[work.micro_batch] = [alone for layer in range(layers) if layer % group == 0]
                    most = max(most, len(checkpoints))
                    peak = max(peak, sum(map(sum, checkpoints.values())))
                    continue
                for _ in range(layers // group):
                    made_again: list[int] = []
                    for _ in range(group):
                        made_again.append(full)
                        peak = max(peak, sum(map(sum, checkpoints.values())) + sum(made_again))
                    checkpoints[work.micro_batch].pop()  # the group's input goes with it
                del checkpoints[work.micro_batch]
            yield (
                {
                    "token_layer_bytes": full / (sequences * length), "input_bytes": alone / (sequences * length),
                    "micro_batch": sequences, "sequence_length": length, "stage_layers": layers, "in_flight": most,
                    "checkpoint_layers": group,
                },
                peak,
            )  # fmt: skip


ORACLES: dict[str, list[Check]] = {"constrain.checkpointed_memory": [agrees(fullest_moment_of_the_first_stage)]}
