"""Jobs of a Grid Engine. Their script is checked; nobody has run it here."""

from workbench.clusters.profiles.queues import Queue


class Sge(Queue):
    """Workers that are jobs of a Grid Engine."""

    name = "sge"
    title = "Grid Engine"
    kind = "SGECluster"
    submit = "qsub"
    account = "project"
    log = "-o {folder}/"
