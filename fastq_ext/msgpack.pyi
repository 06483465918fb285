class Refused(Exception):
    """A value that cannot be written; `steps` lead from it to the outermost value, innermost first."""

    reason: str
    steps: list[str]
    annotate: bool
    too_large: bool

    def __init__(self, reason: str, *, annotate: bool = False, too_large: bool = False) -> None: ...
