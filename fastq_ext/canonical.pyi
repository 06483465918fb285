"""The digest of a call: what makes two calls "the same" for a unique job. See docs/canonical.md."""

from collections.abc import Callable, Iterable
from typing import Final, Literal, final

Kind = Literal["positional", "positional_or_keyword", "var_positional", "keyword", "var_keyword"]

def canonical(value: object) -> bytes: ...
def digest_named(arguments: dict[str, object]) -> bytes: ...
def digest_text(text: str) -> bytes: ...
@final
class Signature:
    REQUIRED: Final[object]
    def __init__(self, parameters: Iterable[tuple[str, Kind, object]]) -> None: ...
    def bind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]: ...
    def digest(
        self, args: tuple[object, ...], kwargs: dict[str, object], only: tuple[str, ...] | None = None
    ) -> bytes: ...

@final
class DigestKey:
    """Makes lock keys out of calls: a prefix and the digest of all arguments, or of those in `only`.

    `error(problem)` gives what is raised for a TypeError or ValueError of the digest.
    """

    def __init__(
        self, signature: Signature, prefix: bytes, only: tuple[str, ...] | None, error: Callable[[Exception], Exception]
    ) -> None: ...
    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bytes: ...
