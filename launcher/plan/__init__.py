"""Launch plans: pure data between a job and whatever starts it."""

from launcher.plan.plan import LaunchPlan, NodePlan, PlanFile
from launcher.plan.start import Start, Watch

__all__ = ["LaunchPlan", "NodePlan", "PlanFile", "Start", "Watch"]
