"""The embedded trainer: Megatron-LM's command line, trained by megatron-core itself on whatever this machine has.

Run as `python -m launcher.rehearse.core --options FILE.json -- MEGATRON_ARGUMENTS`, one process a rank.
`options`, `arguments`, `honoured` and `settings` import nothing heavy, so that a planner can use them.
"""
