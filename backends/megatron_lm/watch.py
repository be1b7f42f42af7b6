"""How Megatron-LM reports its progress: its log lines and the trackers of its checkpoints."""

from launcher.plan.start import NUMBER, Watch

# megatron/training/training.py, training_log; utils.py, report_memory; checkpointing.py,
# get_checkpoint_tracker_filename; megatron/core/utils.py, StragglerDetector.report @core_v0.16.1
WATCH = Watch(
    # training.py, checkpoint_and_decide_exit; MindSpeed-LLM 26.1.0 mindspeed_llm/training/training.py:814
    saves_on_signal=True,
    iteration_line=r"iteration +[0-9]+/ *[0-9]+ \|",
    trackers=(("", "latest_checkpointed_iteration.txt"),),
    figures=(
        ("iteration", rf"iteration +({NUMBER})/", 1.0),
        ("iterations", rf"iteration +[0-9]+/ *({NUMBER})", 1.0),
        ("loss", rf"\| (?:lm )?loss: ({NUMBER})", 1.0),
        ("step_s", rf"elapsed time per iteration \(ms\): ({NUMBER})", 1e-3),
        ("tflops_per_device", rf"throughput per GPU \(TFLOP/s/GPU\): ({NUMBER})", 1.0),
        ("grad_norm", rf"grad norm: ({NUMBER})", 1.0),
        ("skipped", rf"number of skipped iterations: +({NUMBER})", 1.0),
        ("memory_gib", rf"max reserved: ({NUMBER})", 1 / 1024),
        ("slowest_rank", rf"MxRtt/Rnk: [0-9.]+[a-z]*/({NUMBER})", 1.0),
    ),
)
