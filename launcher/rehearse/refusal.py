"""A job that cannot be rehearsed truthfully."""

from launcher.job.finding import Finding


class RehearsalRefused(Exception):
    """The rehearsal would train something else than the job; carries the findings that say why."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = findings
