from collections.abc import Callable, Iterator

from fastq_ext.template import Template

class PackResult:
    """What one call of `Packer.pack` did.

    `frames`: (frame, number of messages) each. `locks`: with `key_of`, for each frame its (values, keys): the lock values, 17
    bytes a job (uid and b"W"), end to end, and the list of whole lock keys; else empty. `count`: items packed. `ended`: the
    iterator is exhausted. `has_foreign`: an item that is neither an exact tuple nor an exact dict with str keys is handed back as
    `foreign`. `error`: what an item, or the iterator, raised; the item is lost, everything before it is packed. None of these
    three: the chunk is full.
    """

    @property
    def frames(self) -> list[tuple[bytes, int]]: ...
    @property
    def locks(self) -> list[tuple[bytes, list[bytes]]]: ...
    @property
    def count(self) -> int: ...
    @property
    def ended(self) -> bool: ...
    @property
    def has_foreign(self) -> bool: ...
    @property
    def foreign(self) -> object: ...
    @property
    def error(self) -> BaseException | None: ...

class Packer:
    """Packs messages into frames of at most `max_jobs` (1 to 64) and `max_bytes`; a larger message has its own.

    For one thread at a time.
    """

    def __init__(self, max_jobs: int = 64, max_bytes: int = 65536) -> None: ...
    def add(self, message: bytes) -> None:
        """Take in a message that is ready: `take()`, or the next `pack()` without `key_of`, hands it out."""

    def take(self) -> list[tuple[bytes, int]]:
        """All that was added since the last take() or pack(), as (frame, number of messages)."""

    def pack(
        self,
        template: Template,
        items: Iterator[object],
        now_ms: int,
        jobs: int,
        size: int,
        key_of: Callable[[tuple[object, ...], dict[str, object]], bytes] | None = None,
        uids: bytearray | None = None,
        key_prefix: bytes = b"",
    ) -> PackResult:
        """Encode items (tuples of positional, dicts of keyword arguments) until `jobs` jobs or `size` bytes are packed.

        The last message may go beyond `size`. `key_of(args, kwargs)` gives an item's lock key, as it stands in the message;
        `key_prefix` + key is the whole Redis key. The jobs' uids are appended to `uids`, 16 bytes each. Never raises for an
        item: see PackResult.

            >>> result = Packer().pack(resize, iter([("a.png",), {"path": "b.png"}]), now, 1000, 1 << 20)
            >>> result.count, result.ended, [count for _, count in result.frames]
            (2, True, [2])
        """
