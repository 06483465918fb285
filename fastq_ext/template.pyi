from collections.abc import Callable, Collection, Sequence

class EncodeError(TypeError):
    """An argument that cannot be encoded, or a message that is too large.

    `path` leads to the value: "order.items[3]". `too_large`: it was the size of the message.
    """

    path: str
    too_large: bool

    def __init__(self, reason: str, path: str = "", too_large: bool = False) -> None: ...

class Template:
    """What all messages of one task with one set of options share.

    `parameters` are the names of the task's parameters in the order of its signature: positional ones, then "*rest"
    (or "*" alone), keyword-only ones, "**extra". They name the argument in an error, and with `rich` they tell how it
    is written: arguments of a parameter in `rich` (names without stars) by `rich_encode(value) -> bytes`; all others
    strictly, so that they come back as they were without an annotation: str, int (-2**63 to 2**64 - 1), float, bool,
    None, bytes, bytearray, memoryview, list, dict (keys: str, int, float, bool, None, bytes), aware datetime;
    subclasses as their base, but for members of an Enum. At most 64 levels deep.

    Times are in milliseconds. `lock_ttl_ms` is written only together with a lock key. A message expires
    `expires_in_ms` after it is due, or after it was enqueued when it is due at once. `extras` is an encoded msgpack
    map or b"". `max_payload` is the most bytes a message may have.

    `check` raises for arguments that the function does not take. `Packer.pack` asks it, but for calls with `least` to `most`
    positional arguments alone, and for those with keywords alone that are in `takes` and have all of `needs`.

    Raises ValueError for an option that does not fit its field.

        >>> resize = Template("resize", parameters=("path", "width"))
        >>> message = resize.encode(("a.png", 800), {}, new_uid(now), now)
    """

    lock_ttl_ms: int
    max_payload: int

    def __init__(
        self,
        task: str,
        *,
        policy: int = 0,
        lock_ttl_ms: int = 0,
        tracked: bool = False,
        retention_ms: int = 0,
        expires_in_ms: int | None = None,
        extras: bytes = b"",
        parameters: Sequence[str] = (),
        rich: Collection[str] = (),
        rich_encode: Callable[[object], bytes] | None = None,
        least: int = 0,
        most: int = 1 << 30,
        takes: Collection[str] = (),
        needs: Collection[str] = (),
        check: Callable[[tuple[object, ...], dict[str, object]], object] | None = None,
        max_payload: int = 1 << 20,
    ) -> None: ...
    def encode(
        self,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        uid: bytes,
        now_ms: int,
        due_ms: int = 0,
        lock_key: bytes = b"",
        job_id: bytes = b"",
    ) -> bytes:
        """One message, enqueued at `now_ms`; a `due_ms` of 0 means at once.

        Raises EncodeError for an argument, ValueError for a uid, lock key or job_id of the wrong form.
        """
