"""Just enough of the Redis protocol to see where a request or a reply ends."""

AGGREGATES = {b"*": 1, b"~": 1, b">": 1, b"%": 2, b"|": 2}  # elements for each one counted
BLOBS = (b"$", b"!", b"=")


def frame_end(data: bytes | bytearray, start: int = 0) -> int | None:
    """Where the value that begins at `start` ends, None when it is not complete yet. Inline requests are lines."""
    open_values = 1
    position = start
    while open_values:
        line_end = data.find(b"\r\n", position)
        if line_end < 0:
            return None
        kind = bytes(data[position : position + 1])
        position_after = line_end + 2
        open_values -= 1
        if kind in BLOBS:
            length = int(data[position + 1 : line_end])
            if length >= 0:
                position_after += length + 2
        elif kind in AGGREGATES:
            open_values += max(0, int(data[position + 1 : line_end])) * AGGREGATES[kind]
            if kind == b"|":
                open_values += 1  # an attribute stands before the value that it belongs to
        position = position_after
        if position > len(data):
            return None
    return position
