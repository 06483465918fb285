class Exchange:
    """What goes out of a connected blocking socket, and what comes in, without the way through Python's socket.

    It looks for an answer for `look_out` seconds before it lets the thread sleep: to be woken takes longer than most answers do.
    Where one does not come so soon (a server far away, a busy machine), the next fifty are slept for at once. Never on one
    core, where the server could not work meanwhile.
    """

    def __init__(self, fd: int, *, look_out: float = 0.0002) -> None: ...
    def send(self, data: bytes) -> None:
        """Send all of it. Raises OSError; BlockingIOError after the socket's SO_SNDTIMEO."""
    def receive(self) -> bytes:
        """What comes next, b"" at the end. Raises OSError; BlockingIOError after the socket's SO_RCVTIMEO."""
    def ended(self) -> bool:
        """Whether there is anything to receive, be it the end."""
