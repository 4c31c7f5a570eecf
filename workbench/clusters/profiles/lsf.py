"""Jobs of LSF. Their script is checked; nobody has run it here."""

from workbench.clusters.profiles.queues import Queue


class Lsf(Queue):
    """Workers that are jobs of LSF."""

    name = "lsf"
    title = "LSF"
    kind = "LSFCluster"
    submit = "bsub"
    account = "project"
    log = "-o {folder}/job-%J.log"

    def clock(self, seconds: int) -> str:
        """Return hours and minutes, which is all that LSF reads."""
        return super().clock(seconds)[:-3]
