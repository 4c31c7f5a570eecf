"""An authorizer that lets nobody do anything."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth import Authorizer


class Denying(Authorizer):
    """Says no."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return False
