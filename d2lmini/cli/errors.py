"""The error of a command that cannot begin."""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot begin: the message says what is missing or wrong, and what to do."""
