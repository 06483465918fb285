from collections.abc import Sequence

class Refused(Exception):
    """A value that cannot be written. Each level on the way out adds its step: `steps` is innermost first.

    `parameter`: the task's parameter that it was meant for. `annotate`: an annotation of that would help.
    """

    reason: str
    parameter: str
    steps: Sequence[str]
    annotate: bool
    too_large: bool

    def __init__(self, reason: str, *, annotate: bool = False, too_large: bool = False) -> None: ...
