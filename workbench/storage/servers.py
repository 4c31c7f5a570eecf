"""Options for fsspec about a URL's server, and the credentials that may go there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from workbench import credentials
from workbench.errors import BadInputError
from workbench.storage import places
from workbench.storage.formats.base import bad
from workbench.storage.places import Options

OPTIONS = ("anon", "endpoint_url", places.TOKEN)
"""Names of a server's options for users."""

_ANONYMOUS: Mapping[str, Options] = {
    **{protocol: {"anon": True} for protocol in ("s3", "s3a", "abfs", "abfss", "az")},
    **{protocol: {"token": "anon"} for protocol in ("gs", "gcs")},
}


_ENDPOINTS = ("s3", "s3a", "gs", "gcs")


def options_of(workload: str, path: str, given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the options for fsspec about a URL's server: anonymous access, endpoint, and the token's variable.

    Raises
    ------
    BadParameterError
        Such a URL can't be read with these options; parameter names begin with `prefix`.
    """
    protocol = path.split("://")[0] if "://" in path else None
    options = {name: given[prefix + name] for name in OPTIONS if given.get(prefix + name)}
    for name, of in zip(OPTIONS, (_ANONYMOUS, _ENDPOINTS, places.TOKENS), strict=True):
        if name in options and protocol not in of:
            urls, key = ", ".join(f"{each}://" for each in of), prefix + name
            raise bad(f"{key} of {workload} is for {urls}, and {path} is none of them. Leave {key} out.", key)
    if options.pop("anon", False) and protocol:
        options |= _ANONYMOUS[protocol]
    else:
        _check_keys(path, options, prefix)
    if places.TOKEN in options:
        options[places.TOKEN_SERVER] = places.server_of(path)
        try:
            places.with_token(path, options)
        except BadInputError as err:
            raise bad(f"{places.TOKEN} of {workload}: {err}", places.TOKEN) from err
        server = os.environ.get("HF_ENDPOINT", "https://huggingface.co") if protocol == "hf" else path
        credentials.check(options[places.TOKEN], credentials.origin(server), places.TOKEN)
    return options


def _check_keys(path: str, options: Mapping[str, Any], prefix: str) -> None:
    """Raise UnconfirmedError if the keys of this environment would go to a server that isn't configured."""
    protocol = path.partition("://")[0]
    endpoint = options.get("endpoint_url")
    if endpoint is not None and credentials.origin(endpoint) not in map(credentials.origin, _configured()):
        credentials.check(f"Your keys for {protocol}", credentials.origin(endpoint), f"{prefix}endpoint_url")
    account = re.fullmatch(r"abfss?://[^@/]*@([^./]+).*", path)
    if account and account[1] != os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") and places.TOKEN not in options:
        credentials.check("Your keys for abfs", credentials.origin(path), "path")
    places.check_protocols(path)


def _configured() -> list[str]:
    """Return the servers of S3 and Google's storage that the environment names."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST")
    return [each for name in names if "://" in (each := os.environ.get(name, ""))]
