"""Jobs of PBS. Their script is checked; nobody has run it here."""

from workbench.clusters.profiles.queues import Queue


class Pbs(Queue):
    """Workers that are jobs of PBS."""

    name = "pbs"
    title = "PBS"
    kind = "PBSCluster"
    submit = "qsub"
    log = "-j oe -o {folder}/"
