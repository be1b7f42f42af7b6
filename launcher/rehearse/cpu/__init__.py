"""Makes megatron-core run without an accelerator; imported only in child processes that train.

Order in a child process: `torch_cuda.install()`, then `import megatron.core`, then `megatron_core.apply_fixes()` and
`modules.install()`. Importing this package imports nothing heavy.
"""
