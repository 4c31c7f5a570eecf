"""Secrets in texts and values: refused as input, and hidden where a record is written, read or shown.

A secret is stored by the name of a variable, a file or a Kubernetes secret, never by its value.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "…"
"""Replacement of a secret."""

_WORDS = r"password|passwd|pwd|secret|token|api_?key|authorization|(?:access|secret|account|private|sas)_?key"
_NAME = re.compile(rf"(?i)(?:.*[_.-])?(?:{_WORDS})")
_USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)([^\s/?#]+)@")
_LOGIN = re.compile(rf"(?<![\w/:.@-])(?!mailto:)([\w.-]+:)([^\s:@/{HIDDEN}]+)@(?=[\w\[])(?!sha\d+:)")
"""User and password before a host, as in SSH; digests of images don't match."""
_PROOFS = r"(?:[\w-]+[_-])?(?:signature|token|secret)|sig|auth|jwt|hmac|passphrase|code|key"
"""Parameters of a URL's query that prove access, in addition to `_WORDS`."""
_QUERY = re.compile(rf"(?i)([?&;](?:{_PROOFS}|{_WORDS})=)([^&\s\"'#]+)")
_ASSIGNED = re.compile(rf"(?i)(?<!\w)((?:\w*_)?(?:{_WORDS})=[\"']?)([^\s\"'$;,()\[\]…]+)(?=[\s\"';,]|$)")
_PAIR = re.compile(rf"(?i)([\"'](?:\w*[_.-])?(?:{_WORDS})[\"']\s*:\s*([\"']))((?:(?!\2)[^\n])+)(?=\2)")
_HEADER = re.compile(r"(?i)\b(authorization[\"']?\s*[:=]\s*[\"']?(?:\w+\s+)?|bearer\s+)([\w.~+/=-]{8,})")
_REFERENCE = re.compile(r"\$\w+|secret/[^/\s]+/[^/\s]+")
_VARIABLES = ("env", "environment")
_OFFERED = "cluster_options"
"""Choices with variables of pods and similar, and the field for a gateway's own options, which may be anything."""
_SUSPECT = re.compile(
    rf"(?i)[/\w]:[^\s:@]+@|{_WORDS}|[?&;](?:{_PROOFS})=|bearer|\"(?:{'|'.join((*_VARIABLES, _OFFERED))})\""
)
_WEB = ("http://", "https://", "ftp://", "ftps://")
_STORES = {
    "x-amz-": ", or give s3://BUCKET/KEY and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
    "x-goog-": ", or give gs://BUCKET/KEY and set GOOGLE_APPLICATION_CREDENTIALS in the environment",
    "sig=": ", or give abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH and, as token_variable, the name of a "
    "variable of the environment that holds what stands behind the question mark",
    "signature=": "",
}
"""Alternative to a presigned URL, by the name of its signature."""
_STORED = "which would be stored with clusters and runs"


def is_reference(value: object) -> bool:
    """Return whether a value names the source of a secret: a variable, '$NAME', or in Kubernetes, 'secret/NAME/KEY'."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value.strip()) is not None


def _is_user(match: re.Match[str]) -> bool:
    """Return whether the part before a URL's host is a secret: for SSH, for example, a user name alone is not."""
    return match[2] != HIDDEN and (":" in match[2] or match[1].lower() in _WEB)


def redact(text: str) -> str:
    """Return a text with its secrets hidden: passwords and signatures in URLs, values of variables such as X_TOKEN."""
    if _SUSPECT.search(text) is None:
        return text
    text = _USER.sub(lambda match: f"{match[1]}{HIDDEN}@" if _is_user(match) else match[0], text)
    text = _HEADER.sub(rf"\1{HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", text))
    text = _PAIR.sub(lambda match: match[0] if is_reference(match[3]) else f"{match[1]}{HIDDEN}", text)
    return _ASSIGNED.sub(rf"\1{HIDDEN}", _QUERY.sub(rf"\1{HIDDEN}", text))


def redacted(value: Any, name: str = "") -> Any:
    """Return a JSON value with its secrets hidden, detected by the content of texts and by the names of fields."""
    if isinstance(value, str):
        hide = value and _NAME.fullmatch(name) and not is_reference(value)
        return HIDDEN if hide else redact(value)
    if isinstance(value, Mapping):
        is_choice = name == "options" or "profile" in value
        return {
            key: hide_variables(each)
            if (is_choice and key in _VARIABLES) or (name == _OFFERED and isinstance(each, Mapping))
            else redacted(each, str(key))
            for key, each in value.items()
        }
    return [redacted(each, name) for each in value] if isinstance(value, list | tuple) else value


def hide_variables(value: Any) -> Any:
    """Return variables of an environment without their values, unless these name the source of a value."""
    value = _parsed(value) if isinstance(value, str) else value
    if not isinstance(value, Mapping):
        return HIDDEN if value else value
    return {name: each if is_reference(each) else HIDDEN for name, each in value.items()}


def _parsed(text: str) -> Any:
    """Return the names and values, or the list, in a text from a form or a terminal; other text unchanged."""
    import yaml

    with contextlib.suppress(yaml.YAMLError, ValueError, RecursionError):
        return yaml.safe_load(text)
    return text


def redact_json(text: str | bytes) -> str:
    """Return a JSON text with its secrets hidden, as `redacted` does; other text unchanged."""
    plain = text if isinstance(text, str) else text.decode(errors="replace")
    if _SUSPECT.search(plain) is None:
        return plain
    try:
        return json.dumps(redacted(json.loads(plain)))
    except (ValueError, RecursionError):
        return plain


def complaint(name: str, value: Any) -> str | None:
    """Return a message if a value holds a secret that would be stored, else None."""
    if isinstance(value, Mapping):
        return next(filter(None, (complaint(f"{name}.{key}", each) for key, each in value.items())), None)
    if isinstance(value, list | tuple):
        return next(filter(None, (complaint(name, each) for each in value)), None)
    if not isinstance(value, str) or not value.strip() or is_reference(value):
        return None
    if value.lstrip()[0] in "{[" and _SUSPECT.search(value):
        inside = _parsed(value)
        if not isinstance(inside, str) and (why := complaint(name, inside)) is not None:
            return why
    if any(map(_is_user, _USER.finditer(value))):
        return (
            f"{name} has a user name or password in a URL, {_STORED}. Leave it out. For data behind http:// or "
            "https://, set a variable of the environment, for a password to 'Basic ' and user:password in base64, and "
            "give its name as token_variable."
        )
    if _LOGIN.search(value):
        return (
            f"{name} has a password before the name of a host, {_STORED}. Leave it out. SSH takes a key from your "
            "agent, from ~/.ssh, or from the file that you give as key."
        )
    if signed := _QUERY.search(value):
        store = next((text for start, text in _STORES.items() if signed[1][1:].lower().startswith(start)), None)
        if store is not None:
            return (
                f"{name} is a presigned URL. Its signature is a secret, {_STORED}. Download the file first and give "
                f"its path{store}."
            )
        return (
            f"{name} has a token or signature in a URL, {_STORED}. Leave it out, and set the keys in the environment, "
            "or a token in a variable whose name you give as token_variable."
        )
    if _NAME.fullmatch(name) or _ASSIGNED.search(value):
        return (
            f"{name} is or sets a secret, {_STORED}. Set it in the environment or in a file that only you can read, "
            "and refer to that, such as $NAME or $(cat FILE)."
        )
    return None
