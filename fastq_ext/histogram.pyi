from collections.abc import Sequence

class Histogram:
    """Counts durations by `bounds` (seconds, growing, at most 32) in `cells`: writable memory for len(bounds) + 2 doubles.

    A duration counts in the cell of the first bound that it does not exceed, or in the one behind the last bound; the last cell
    is the sum. Raises ValueError for other numbers of either.
    """

    def __init__(self, cells: memoryview[float], bounds: Sequence[float]) -> None: ...
    def observe(self, seconds: float) -> None:
        """Count a duration."""
