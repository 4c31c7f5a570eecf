"""Authorizers that let nobody do anything, or nothing but read."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth import Authorizer


class Denying(Authorizer):
    """Says no."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return False


class OnlyReading(Authorizer):
    """Says yes to those who read."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return action == "read"
