"""Folders of tests that are trusted, as their user's own."""

from __future__ import annotations

from workbench import kept


def trust_here() -> None:
    """Trust what the working folder defines."""
    waiting = kept.untrusted()
    if waiting is not None:
        kept.trust_folder(waiting.folder, waiting.sha)
