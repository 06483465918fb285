def pack_command(parts: tuple[bytes | str | int | float, ...]) -> bytes:
    r"""A command as Redis takes it. Raises TypeError for a part that is none of these, and for a lone surrogate.

    >>> pack_command((b"GET", "k", 1))
    b'*3\r\n$3\r\nGET\r\n$1\r\nk\r\n$1\r\n1\r\n'
    """
