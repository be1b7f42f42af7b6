"""The error for a job that cannot be rehearsed faithfully."""

from launcher.job.finding import Finding


class RehearsalRefused(Exception):
    """The rehearsal would not train the same as the job; holds the findings with the reasons."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = findings
