"""Keys of one cluster: made for it, saved next to its record with mode 0600, removed when it ends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.clusters import records
from workbench.clusters.profiles import of_cluster
from workbench.clusters.reachability import KEYS, Place, key_files, know
from workbench.clusters.records import ClusterRecord
from workbench.errors import MissingError
from workbench.threads import load as load_modules

if TYPE_CHECKING:
    from distributed.security import Security


def make(name: str) -> Security:
    """Make new keys for scheduler, workers and clients, saved in the cluster's folder for its clients."""
    from distributed.security import Security

    try:
        security = Security.temporary()
    except ImportError as err:
        raise MissingError(
            "Encryption needs the package cryptography: pip install cryptography. Or start with encrypt=False."
        ) from err
    keep(records.folder(name), {field: getattr(security, field) for field in KEYS.values()})
    return security


def keep(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Save keys in the folder of a cluster for its clients; return the paths of CA, certificate and key."""
    (folder / "tls").mkdir(mode=0o700, exist_ok=True)
    for field, path in zip(KEYS.values(), key_files(folder), strict=True):
        with open(path, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(texts[field])
    return key_files(folder)


def load(record: ClusterRecord) -> Security | None:
    """Return the keys for talking to the cluster, None if it isn't encrypted.

    Raises MissingError if an encrypted cluster's keys are gone.
    """
    if not record.spec.encrypt:
        return None
    know(record.contact or "")
    if of_cluster(record.spec.profile).attaches and not (records.folder(record.name) / "tls").exists():
        return Place.of(record.spec.options).security
    keys = load_keys(records.folder(record.name))
    if keys is None:
        raise MissingError(
            f"The keys of {record.name} are gone, so nobody can talk to it. Stop it: workbench down {record.name}"
        )
    return keys


def load_keys(folder: Path) -> Security | None:
    """Return the keys of the cluster in `folder` as paths, for scheduler, workers and clients; None if missing."""
    return paths(folder) if all(Path(path).exists() for path in key_files(folder)) else None


def paths(folder: Path) -> Security:
    """Return the keys as paths, for scheduler, workers and clients, without checking that they exist."""
    load_modules("distributed")
    from distributed.security import Security

    ca, cert, key = key_files(folder)
    roles = ("scheduler", "worker", "client")
    each = {f"tls_{role}_{kind}": path for role in roles for kind, path in (("cert", cert), ("key", key))}
    return Security(require_encryption=True, tls_ca_file=ca, **each)
