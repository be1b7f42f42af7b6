"""DualPipeV: two chunks a stage, the second half of the model back through the stages, and a backward in two parts.

Source: DeepSeek's DualPipe repository (README, dualpipev.py: eight phases). MindSpeed's `dualpipev` (mindspeed/core/
pipeline_parallel/dualpipev/dualpipev_schedules.py:310 @26.1.0_core_r0.12.1) and MindSpore's `zero_bubble_v`
(pipeline_transformer/zero_bubble_v.cc, steps 1 to 8) run the same phases.
"""

from collections import deque

FORWARD, BACKWARD, INPUTS, WEIGHTS = range(4)  # as order.Part


def fewest_micro_batches(stages: int) -> int:
    """Return the least number of micro-batches with which no phase has a negative length."""
    return 2 * stages - 1


def order(stages: int, micro_batches: int, stage: int, *, late_weights: bool) -> tuple[tuple[int, int, int], ...]:
    """Return the steps of a stage: part, micro-batch, chunk.

    Where a forward and a backward run together, the backward comes first (zero_bubble_v.cc, steps 4 and 5). With equal
    chunks, forward F, backward B and gradients of weights W of it, stages idle for (p - 1)(2 B - 3 W) and hold 2 p
    chunks' activations; DeepSeek's table has (p - 1)(F + 2 B - 3 W) and 2 p + 1, as both end together there.

    Args:
        late_weights: the last micro-batches compute gradients of weights after those of all inputs.

    Raises:
        ValueError: fewer micro-batches than `fewest_micro_batches`.
    """
    later = stages - stage - 1
    together = micro_batches - 2 * stages + stage + 1
    if micro_batches < fewest_micro_batches(stages):
        raise ValueError(f"{micro_batches} micro-batches are fewer than {fewest_micro_batches(stages)}")
    steps: list[tuple[int, int, int]] = []
    forwards, backwards, waiting = [0, 0], [0, 0], deque[tuple[int, int]]()

    def forward(chunk: int) -> None:
        steps.append((FORWARD, forwards[chunk], chunk))
        forwards[chunk] += 1

    def backward(chunk: int, *, in_two: bool = False) -> None:
        steps.append((INPUTS if in_two else BACKWARD, backwards[chunk], chunk))
        if in_two:
            waiting.append((backwards[chunk], chunk))
        backwards[chunk] += 1

    def weights() -> None:
        steps.append((WEIGHTS, *waiting.popleft()))

    for _ in range(2 * later):
        forward(0)
    for _ in range(stage + 1):
        forward(0)
        forward(1)
    for _ in range(later):
        backward(1, in_two=True)
        weights()
        forward(1)
    for _ in range(together):
        backward(1)
        forward(0)
        backward(0)
        forward(1)
    for _ in range(later):
        backward(1)
        backward(0)
        forward(1)
    for index in range(2 * (stage + 1)):
        # The second half of them leaves its gradients of weights for the end.
        backward((index + 1) % 2, in_two=late_weights and index > stage)
    for _ in range(later):
        if waiting:
            weights()
        backward(0, in_two=late_weights)
    while waiting:
        weights()
    return tuple(steps)
