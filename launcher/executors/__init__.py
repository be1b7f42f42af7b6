"""Executors receive a launch plan and do not depend on jobs or backends. Only this package starts processes."""
