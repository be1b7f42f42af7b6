"""Launch plans: pure data between a job and whatever starts it."""

from launcher.plan.plan import LaunchPlan, NodePlan, PlanFile

__all__ = ["LaunchPlan", "NodePlan", "PlanFile"]
