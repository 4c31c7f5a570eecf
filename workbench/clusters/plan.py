"""Plans: from choices to a spec, by the chosen profile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from workbench.clusters.choices import choosing
from workbench.clusters.profiles import Around, of_cluster
from workbench.clusters.profiles.lookup import look_up, profile as find
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, MissingError
from workbench.hardware import Inventory
from workbench.packages import installed_version
from workbench.redaction import complaint


def consent_to_all(specs: Iterable[ClusterSpec]) -> str | None:
    """Return the warnings to accept for several clusters, each once; None if they are harmless."""
    return " ".join(dict.fromkeys(each.consent for each in specs if each.consent)) or None


def check_agreed(warning: str | None, agreed: bool | Callable[[str], bool]) -> None:
    """Raise BadInputError if there is a warning to accept (see `ClusterSpec`) and the user did not accept it.

    The only place that checks it, for clusters, runs and comparisons. `agreed` may be a function that asks the user.
    """
    if warning is not None and not (agreed(warning) if callable(agreed) else agreed):
        raise BadInputError(f"{warning} Nothing was started. Choose otherwise, or agree (--yes, agreed=True).")


def has_gpus(profile: str, inventory: Inventory) -> bool:
    """Return whether each worker of a profile has a GPU on this machine."""
    return "devices" in find(profile).choices(inventory).model_fields


@choosing
def plan(
    profile: str,
    inventory: Inventory,
    *,
    promised: int = 0,
    held: int = 0,
    version: Callable[[str], str | None] = installed_version,
    **choices: Any,
) -> ClusterSpec:
    """Return the spec of the cluster that matches profile, hardware and choices, with its reasons, code and consent.

    Parameters
    ----------
    profile
        Name of one of `workbench.clusters.profiles`: cpu, gpu, gpus, ucx, address.
    **choices
        As in `AllChoices`.
    promised, held, version
        As in `Around`.

    Raises
    ------
    BadInputError
        An invalid choice: the message names it, the given value and the allowed values.
    MissingError
        The profile isn't available here.
    ConflictError
        No memory was chosen and none is left, or a GPU has too little free memory.
    """
    chosen_profile, values = look_up(profile, choices)
    around = Around(inventory, promised, held, version)
    reason = chosen_profile.unavailable(around)
    if reason is not None:
        raise MissingError(f"The {profile} profile can't be had here. {reason}")
    chosen_profile.refuse_unknown(values, inventory)
    spec = chosen_profile.plan(values, around)
    # Site settings, such as dask-jobqueue's lines of a job script, are stored as well.
    if (why := next(filter(None, map(complaint, spec.options, spec.options.values())), None)) is not None:
        raise BadInputError(why)
    return explained(spec)


def explained(spec: ClusterSpec) -> ClusterSpec:
    """Return the spec with its code, preview and consent. Raises FailedError if its profile fails."""
    # The one that was chosen may have left the plan to another: an address may be that of a gateway.
    profile = of_cluster(spec.profile)
    return spec.model_copy(
        update={
            "summary": "" if spec.is_known else profile.describe(spec),
            "code": profile.code(spec),
            "preview": profile.preview(spec),
            "consent": profile.consent(spec),
        }
    )
