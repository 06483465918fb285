def pack_command(parts: tuple[bytes | str | int | float, ...]) -> bytes:
    r"""A command as Redis takes it. Raises TypeError for a part that is none of these, and for a lone surrogate.

    >>> pack_command((b"GET", "k", 1))
    b'*3\r\n$3\r\nGET\r\n$1\r\nk\r\n$1\r\n1\r\n'
    """

class Command:
    r"""A command of which all but the last `open` parts are always the same. Raises TypeError as `pack_command` does.

    >>> Command((b"GET",), 1).pack(b"k")
    b'*2\r\n$3\r\nGET\r\n$1\r\nk\r\n'
    """

    def __init__(self, parts: tuple[bytes | str | int | float, ...], open: int) -> None: ...
    def pack(self, *rest: bytes | str | int | float) -> bytes:
        """The whole command. Raises ValueError for another number of parts."""
