"""An example of a package that brings a profile: one file, and in its pyproject.toml

[project.entry-points."workbench.profiles"]
tea = "somebodys_profile:Tea"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from distributed import LocalCluster
from distributed.security import Security
from pydantic import BaseModel, ConfigDict, Field

from workbench.clusters.profiles import Around, Profile
from workbench.clusters.profiles.local import LocalEngine
from workbench.clusters.spec import ClusterSpec


class TeaChoices(BaseModel):
    """Choices for the user."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_workers: int = Field(1, title="Cups", ge=1, le=2)
    kind: Literal["green", "black"] = Field("green", title="Tea", description="Green or black.")


class Tea(Profile):
    """One or two workers of one thread."""

    name = "tea"
    title = "Tea"
    line = "Workers by the cup."
    model = TeaChoices
    options = ("kind",)

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return the spec of so many cups."""
        chosen = self.checked(given, TeaChoices)
        return ClusterSpec(
            profile=self.name,
            n_workers=chosen.n_workers,
            threads_per_worker=1,
            memory_limit=512 * 2**20,
            protocol="tcp",
            options={"kind": chosen.kind},
            why=(f"Tea is {chosen.kind}, as chosen.",),
        )

    def code(self, spec: ClusterSpec) -> str:
        """Return the code that does the same without workbench."""
        return f"from dask.distributed import LocalCluster\n\ncluster = LocalCluster(n_workers={spec.n_workers})\n"

    def engine(
        self, spec: ClusterSpec, security: Security | None, folder: Path, changed: Callable[[], None]
    ) -> LocalEngine:
        """Return the engine of Dask's own class."""

        async def start() -> LocalCluster:
            return await LocalCluster(
                n_workers=0,
                threads_per_worker=1,
                memory_limit=spec.memory_limit,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                asynchronous=True,
            )

        return LocalEngine(start, spec, security, folder, changed)
