"""All cases."""

from tools.bench.faults import clusters, conditions, signals

CASES = (*signals.CASES, *conditions.CASES, *clusters.CASES)
