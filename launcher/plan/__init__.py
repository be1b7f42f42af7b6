"""Launch plans: pure data passed from a job to its executor."""

from launcher.plan.node import NodePlan
from launcher.plan.plan import LaunchPlan, PlanFile
from launcher.plan.start import Start, Watch

__all__ = ["LaunchPlan", "NodePlan", "PlanFile", "Start", "Watch"]
