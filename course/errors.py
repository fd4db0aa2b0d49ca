"""The one kind of error that is the user's to mend: the command shows its sentence and never a traceback."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(ValueError):
    """A wrong input, told in one or two sentences that say what to change.

    The command prints the message on stderr and exits with 2.

    >>> raise UserError("devices must be a whole number above 0, not -8.")
    Traceback (most recent call last):
        ...
    course.errors.UserError: devices must be a whole number above 0, not -8.
    """
