def new_uid(now_ms: int) -> bytes:
    """The next uid of this process: 16 bytes, a UUIDv7 (RFC 9562) made at `now_ms` (milliseconds since 1970).

    Uids of one process grow strictly, also when the clock stands still or steps back a little: then the last time is
    kept and the random part, drawn anew for each millisecond, counts up. A clock that was set back by more than 10 s
    is followed, since a job's age is read from its uid. A forked child draws its own random part.

    Raises ValueError for a time beyond 48 bits, OverflowError for one below zero.

        >>> uuid.UUID(bytes=new_uid(1_700_000_000_000)).version
        7
    """
