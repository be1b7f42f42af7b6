"""Executors receive a launch plan and do not depend on backends. Only this package starts processes."""

# The executors that ship with the launcher, looked up without importlib.metadata, whose scan of all installed
# packages costs more than a whole translation. Each is a package with a module `executor`.
BUILT_IN = ("local", "environment", "ssh", "slurm", "kubernetes")
