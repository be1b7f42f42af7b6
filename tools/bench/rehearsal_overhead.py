"""How much slower than a hand-written megatron-core loop is the embedded trainer? One table; the goal is 1.05 at most.

    python tools/bench/rehearsal_overhead.py [--iterations 40]

Both loops train the same model in the same process, in turns; the ratio is that of the median CPU times of a step (one
rank waits for nobody, and other load on the machine does not count). The hand-written loop reads the same text and
writes one line a step.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SIZES = {
    "tiny (4 x 64, seq 64)": (4, 64, 64),
    "small (6 x 128, seq 128)": (6, 128, 128),
}


def arguments_of(layers: int, hidden: int, seq: int) -> list[str]:
    """Write the Megatron-LM command line of a size."""
    text = (
        f"--num-layers {layers} --hidden-size {hidden} --ffn-hidden-size {2 * hidden} --num-attention-heads 4 "
        f"--seq-length {seq} --max-position-embeddings {seq} --swiglu --normalization RMSNorm "
        "--position-embedding-type rope "
        "--disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 "
        "--micro-batch-size 4 --global-batch-size 8 --train-iters 100000 --lr 1e-3 --log-interval 1 "
        "--vocab-size 320 --make-vocab-size-divisible-by 64"
    )
    return text.split()


def our_step(argv: list[str], output_dir: str) -> Callable[[], None]:
    """Build the embedded trainer and return its iteration, reporting included."""
    from launcher.rehearse.core.arguments import parse
    from launcher.rehearse.core.data import batches, tokenizer
    from launcher.rehearse.core.model import build
    from launcher.rehearse.core.options import TrainerOptions
    from launcher.rehearse.core.report import Progress
    from launcher.rehearse.core.settings import resolve
    from launcher.rehearse.core.step import build_stepper
    from launcher.rehearse.core.trainer import History, Trainer

    settings = resolve(parse(argv), 1)
    options = TrainerOptions(output_dir=output_dir, progress=False)
    trainer = Trainer(settings, options, ())
    model = build(settings, vocab_size=320, padded_vocab_size=320, layer_impl="local")
    stepper = build_stepper(settings, model)
    data = batches.build(settings, options.data, tokenizer.load(None), vocab_size=320)
    history, iterators = History(first_iteration=0, weights="random"), trainer.iterators(data.train, 0)
    progress = Progress(
        Path(output_dir), iterations=settings.train_iters, show=False, tensorboard_dir=None, first_iteration=0
    )
    return lambda: (trainer.iterate(stepper, iterators, history, progress), None)[1]


def plain_step(layers: int, hidden: int, seq: int, log: Path) -> Callable[[], None]:
    """Build the same model by hand and return the step of a plain loop."""
    import torch
    import torch.nn.functional as F
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
        num_layers=layers,
        hidden_size=hidden,
        ffn_hidden_size=2 * hidden,
        num_attention_heads=4,
        gated_linear_unit=True,
        activation_func=F.silu,
        normalization="RMSNorm",
        add_bias_linear=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        bias_activation_fusion=False,
        deallocate_pipeline_outputs=True,
    )
    gpt = GPTModel(
        config,
        get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=320,
        max_sequence_length=seq,
        position_embedding_type="rope",
    )
    model = DistributedDataParallel(config, DistributedDataParallelConfig(check_for_nan_in_grad=True), gpt)
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(OptimizerConfig(lr=1e-3, min_lr=1e-3), [model], use_gloo_process_groups=False)
    run = get_forward_backward_func()
    text = (Path(__file__).parents[2] / "launcher/rehearse/assets/moby_dick.txt").read_bytes()
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    positions, mask, file = torch.arange(seq).expand(4, -1).contiguous(), torch.ones(4, seq), log.open("w")

    def micro_batches() -> Any:
        while True:
            starts = torch.randint(0, len(tokens) - seq - 1, (4,)).tolist()
            window = torch.stack([tokens[start : start + seq + 1] for start in starts])
            yield window[:, :-1].contiguous(), window[:, 1:].contiguous()

    def loss_of(output: Any) -> Any:
        loss = (output.float().view(-1) * mask.view(-1)).sum() / mask.sum()
        return loss, loss.detach()

    def forward(batches: Any, module: Any) -> Any:
        inputs, labels = next(batches)
        return module(inputs, positions, None, labels=labels), partial(loss_of)

    data = micro_batches()

    def step() -> None:
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = run(
            forward_step_func=forward,
            data_iterator=data,
            model=[model],
            num_microbatches=2,
            seq_length=seq,
            micro_batch_size=4,
            forward_only=False,
        )
        _done, norm, _zeros = optimizer.step()
        print(f"loss {sum(loss.item() for loss in losses) / 2:.4f} grad norm {norm:.3f}", file=file)

    return step


def measure(name: str, iterations: int) -> tuple[float, float]:
    """Return the median CPU times of a step in milliseconds: ours, and the plain loop's."""
    layers, hidden, seq = SIZES[name]
    with tempfile.TemporaryDirectory() as folder:
        ours = our_step(arguments_of(layers, hidden, seq), folder)
        plain = plain_step(layers, hidden, seq, Path(folder) / "plain.txt")
        times: dict[bool, list[float]] = {True: [], False: []}
        for index in range(2 * iterations + 10):
            mine = index % 2 == 0
            started = time.process_time()
            (ours if mine else plain)()
            times[mine].append((time.process_time() - started) * 1e3)
    return statistics.median(times[True][5:]), statistics.median(times[False][5:])


def main() -> int:
    """Measure every size, print the table, and fail where the goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--limit", type=float, default=1.05, help="highest ratio that passes")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from launcher.rehearse.core import environment
    from launcher.rehearse.core.arguments import parse
    from launcher.rehearse.core.settings import resolve

    environment.import_megatron()
    environment.start(resolve(parse(arguments_of(*SIZES["tiny (4 x 64, seq 64)"])), 1))
    print(f"{'model':26} {'trainer ms':>11} {'plain loop ms':>14} {'ratio':>6}")
    worst = 0.0
    for name in SIZES:
        ours, plain = measure(name, options.iterations)
        worst = max(worst, ours / plain)
        print(f"{name:26} {ours:11.2f} {plain:14.2f} {ours / plain:6.3f}", flush=True)
    environment.stop()
    return 0 if worst <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
