"""The embedded trainer: runs Megatron-LM's command line with megatron-core on this machine, with or without a GPU.

Run as `python -m launcher.rehearse.core --options FILE.json -- MEGATRON_ARGUMENTS`, one process a rank.
`options`, `arguments`, `supported` and `settings` import nothing heavy, so that a planner can use them.
"""
