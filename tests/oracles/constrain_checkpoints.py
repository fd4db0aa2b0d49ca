"""Oracle of checkpointing: a forward and a backward over a list of layers, counting what lies in memory."""

from __future__ import annotations

from course.simulators.saved import Execution, saved_in_layer
from course.simulators.shapes import total_bytes
from oracles.checking import Answers, Check, agrees
from oracles.shapes import plain, random_shapes


def fullest_moment_of_backward() -> Answers:
    """Forward keeps the input of each group; backward runs a group forward again, keeping all, then frees it."""
    for number, shape in enumerate(random_shapes(6, seed=41)):
        sequences, length = 1 + number % 3, 3 + number
        full = total_bytes(saved_in_layer(plain(shape), sequences, length))
        alone = total_bytes(saved_in_layer(plain(shape), sequences, length, Execution(recompute="full")))
        for layers, group in ((12, 1), (12, 2), (12, 4), (6, 6), (20, 5)):
            checkpoints = [alone for layer in range(layers) if layer % group == 0]
            peak = sum(checkpoints)
            for _ in range(layers // group):
                made_again: list[int] = []
                for _ in range(group):
                    made_again.append(full)
                    peak = max(peak, sum(checkpoints) + sum(made_again))
                checkpoints.pop()  # the group's input goes with it
            yield (
                {
                    "token_layer_bytes": full / (sequences * length), "input_bytes": alone / (sequences * length),
                    "micro_batch": sequences, "sequence_length": length, "layers": layers, "checkpoint_layers": group,
                },
                peak,
            )  # fmt: skip


ORACLES: dict[str, list[Check]] = {"constrain.checkpointed_memory": [agrees(fullest_moment_of_backward)]}
