"""What a command tells its user instead of a traceback."""


class CommandError(RuntimeError):
    """One line: what is wrong, and what to do about it."""
