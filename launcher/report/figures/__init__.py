"""Charts of jobs as plain data: what plotly.js draws, a sentence for screen readers, and the figures as a table.

Nothing here imports plotly: a chart is a tree of dicts and lists, so that a report, the web planner and a test read it.
"""

from launcher.report.figures.chart import Chart
from launcher.report.figures.comparison import peak_chart, step_chart
from launcher.report.figures.devices import devices_chart
from launcher.report.figures.memory import memory_chart
from launcher.report.figures.pareto import pareto_chart
from launcher.report.figures.timeline import timeline_chart

__all__ = ["Chart", "devices_chart", "memory_chart", "pareto_chart", "peak_chart", "step_chart", "timeline_chart"]
