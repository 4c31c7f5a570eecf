"""Folders of tests that are trusted, as their user's own."""

from __future__ import annotations

from workbench import named_choices


def trust_here() -> None:
    """Trust what the working folder defines."""
    waiting = named_choices.untrusted()
    if waiting is not None:
        named_choices.trust_folder(waiting.folder, waiting.sha)
