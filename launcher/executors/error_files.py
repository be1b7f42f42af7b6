"""Where torch elastic writes its error files, below a run's `logs`."""

RANKS = "ranks"
AGENT_FILE = "agent.{attempt}.json"
