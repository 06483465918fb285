from fastq_ext.packer import Packer as Packer
from fastq_ext.packer import PackResult as PackResult
from fastq_ext.template import EncodeError as EncodeError
from fastq_ext.template import Template as Template
from fastq_ext.uid import new_uid as new_uid

class Message:
    """One message, read where it lies; nothing is copied or decoded before it is asked for.

    A message of another version than 1 can be told by its fixed part only: it has no names and no optional fields,
    and all behind the fixed part is payload. Times are in milliseconds since 1970, spans in milliseconds; a field
    that the message does not have is None.

    Message(raw) raises ValueError when `raw` is not exactly one sound message.
    """

    def __init__(self, raw: bytes) -> None: ...
    @property
    def raw(self) -> bytes: ...
    @property
    def version(self) -> int: ...
    @property
    def flags(self) -> int: ...
    @property
    def crashes(self) -> int: ...
    @property
    def policy(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def uid(self) -> bytes: ...
    @property
    def enqueued_at(self) -> int: ...
    @property
    def lock_ttl_ms(self) -> int:
        """0 without a lock."""
    @property
    def task(self) -> str: ...
    @property
    def lock_key(self) -> bytes:
        """The suffix of the lock's Redis key; b"" without a lock."""
    @property
    def job_id(self) -> str:
        """Empty without one."""
    @property
    def due_ms(self) -> int | None: ...
    @property
    def expires_ms(self) -> int | None: ...
    @property
    def retention_ms(self) -> int | None: ...
    @property
    def extras(self) -> dict[str, object]:
        """Decoded anew at each call. Raises ValueError when it is not a msgpack map with str keys."""
    @property
    def tracked(self) -> bool: ...
    @property
    def payload(self) -> bytes: ...
    def replace(
        self,
        *,
        attempt: int | None = None,
        crashes: int | None = None,
        due_ms: int | None = None,
        extras: bytes | None = None,
        payload: bytes | None = None,
    ) -> bytes:
        """The bytes of a copy with these fields changed, all others byte for byte as they are.

        None leaves a field alone; `due_ms=0` and `extras=b""` remove it. Raises ValueError for a number that does not
        fit its field (attempt: 65535, crashes: 255) and for a message of another version.

            >>> again = message.replace(attempt=message.attempt + 1, due_ms=now + 2000)
        """

class Frame:
    """One stream entry, split as far as it is sound; hostile bytes end up in `rest`, they raise nothing.

        >>> frame = Frame(first + second)
        >>> len(frame), frame.rest, frame[0].task
        (2, b'', 'resize')
    """

    def __init__(self, data: bytes) -> None: ...
    @property
    def data(self) -> bytes: ...
    @property
    def count(self) -> int: ...
    @property
    def rest(self) -> bytes:
        """What stands behind the last sound message; b"" when all are sound."""
    def __len__(self) -> int: ...
    def __getitem__(self, i: int) -> Message:
        """Raises IndexError beyond the last message; a negative index counts from it."""
    def message_bytes(self, i: int) -> bytes:
        """Message i as it is. Raises IndexError like frame[i]."""
