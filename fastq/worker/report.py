"""What one settle call carries: the ends of a batch of jobs, in the order of lua/settle.lua."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

Outcome: TypeAlias = tuple[Any, ...]

# What an outcome tuple begins with, and the sections it goes to:
#   ("end", final state, tried, message up to its payload)    a success with a record, dropped, cancelled, expired
#   ("retry", due ms, message) · ("dead", message, why) · ("back", jobs, frame) · ("result", uid, ms to keep, value)
_SECTIONS = ("end", "retry", "dead", "back", "result")


@dataclass(frozen=True, slots=True)
class Report:
    """One call's worth of ends. `finished` are the entries that it ends for good."""

    handed_out: int = 0
    done: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
    finished: list[bytes] = field(default_factory=list)
    progress: list[bytes] = field(default_factory=list)
    uids: bytes = b""
    locks: list[bytes] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    jobs: int = 0  # whose turns it ends

    def arguments(self) -> list[Any]:
        """The arguments of the settle call behind its number."""
        args: list[Any] = [self.handed_out]
        for ids in self.done:
            args += (len(ids), *ids)
        args += (len(self.progress) // 2, *self.progress)
        args += (len(self.locks), self.uids, *self.locks) if self.locks else (0,)
        args.append(len(self.counters))
        for counter in self.counters.items():
            args += counter
        for section in _SECTIONS:
            outcomes = [outcome for outcome in self.outcomes if outcome[0] == section]
            args.append(len(outcomes))
            for outcome in outcomes:
                args += outcome[1:]
        return args

    def halves(self) -> tuple[Report, Report]:
        """Two reports that do the same together: first some outcomes, then the rest with all acknowledgements."""
        middle = (len(self.outcomes) + 1) // 2
        return Report(outcomes=self.outcomes[:middle]), replace(self, outcomes=self.outcomes[middle:])
