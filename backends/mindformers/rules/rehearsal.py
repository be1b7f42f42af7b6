"""What keeps a native rehearsal of MindFormers from running on CPU."""

from launcher.rules.diagnostics import declare_diagnostic

declare_diagnostic(
    "REHEARSE-MINDFORMERS-CPU",
    "error",
    "Part of the job needs operators that MindSpore has on Ascend only: its own entry point cannot train it on CPU.",
    "rehearse.entry=core, which trains the same job with megatron-core",
    "mindspore 2.7.0",
)
