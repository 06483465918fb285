"""Opens connections: redis-py finds the server, connects, encrypts and logs in; what is spoken afterwards is ours (`wire`).

The client library's own retries are off: whether a call may be repeated is known to `broker` alone.
"""

import ssl
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from fastq.config import Config, Endpoint
from fastq.errors import ConfigError

CONNECT_TIMEOUT = 5.0
ANY_NUMBER = 2**63
OLDEST_REDIS = (7, 0)
OLDEST_VALKEY = (7, 2)

# Settings of redis-py that would take from us what is ours: decoding, the protocol, retries, pools.
_OURS = frozenset({"decode_responses", "encoding", "encoding_errors", "protocol", "retry", "retry_on_timeout", "retry_on_error",
                   "max_connections", "connection_pool", "single_connection_client", "health_check_interval"})  # fmt: skip


class Opener:
    """Makes connected redis-py connections for one configuration; the URL is read at first use."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._endpoint: Endpoint | None = None
        self._sync_pool: Any = None
        self._embedded: Any = None  # our hold on the embedded server, which lives while somebody holds it

    @property
    def shown(self) -> str:
        """The server's URL without its password, for messages."""
        return self._where().shown

    def open(self) -> Any:
        """A connected `redis.Connection`. Raises redis.RedisError or OSError."""
        if self._sync_pool is None or self._embedded is not None:
            self._sync_pool = self._pool(asynchronous=False)
        connection = _make(self._sync_pool)
        connection.connect()
        return connection

    async def aopen(self) -> Any:
        """A connected `redis.asyncio.Connection`. Raises redis.RedisError or OSError."""
        # A Sentinel pool keeps clients that belong to one event loop, so it is made anew for each connection.
        pool = self._pool(asynchronous=True)  # kept while it connects: by way of Sentinels it is known by a weak reference only
        connection = _make(pool)
        try:
            await connection.connect()
        except BaseException:  # cancelled half way, it would be left open
            await connection.disconnect(nowait=True)
            raise
        return connection

    def close(self) -> None:
        """Let go of the embedded server, if it is one; the next connection takes hold of it again."""
        held, self._embedded = self._embedded, None
        if held is not None:
            held.close()

    def _where(self) -> Endpoint:
        if self._endpoint is None:
            self._endpoint = self._config.endpoint()
        return self._endpoint

    def _pool(self, *, asynchronous: bool) -> Any:
        where = self._where()
        options: dict[str, Any] = {
            "socket_connect_timeout": CONNECT_TIMEOUT,
            "socket_timeout": CONNECT_TIMEOUT,
            "client_name": "fastq",
            "health_check_interval": 0,
            **{name: value for name, value in self._config.redis_options.items() if name not in _OURS},
        }
        fixed = {"protocol": 2, "retry": (AsyncRetry if asynchronous else Retry)(NoBackoff(), 0)}
        if where.kind == "sentinel":
            return _sentinel_pool(where, {**options, **fixed}, asynchronous=asynchronous)
        if where.kind != "unix" and where.kind != "embedded":
            options.setdefault("socket_keepalive", True)
        url = self._embedded_url() if where.kind == "embedded" else where.url
        kind: Any = redis.asyncio.ConnectionPool if asynchronous else redis.ConnectionPool
        try:
            pool = kind.from_url(url, **options)
        except (TypeError, ssl.SSLError) as error:
            raise ConfigError(f"redis_options: {error}") from error
        # What stands in a URL has the last word in redis-py, but not about these.
        for name in _OURS:
            pool.connection_kwargs.pop(name, None)
        pool.connection_kwargs.update(fixed)
        return pool

    def _embedded_url(self) -> str:
        """Where the embedded server is; it is started if it does not run."""
        from fastq.embedded import open_embedded  # most programs never need it

        before, self._embedded = self._embedded, open_embedded(self._where().url)
        if before is not None:
            before.close()
        return str(self._embedded.url)


def _make(pool: Any) -> Any:
    pool.max_connections = ANY_NUMBER  # it counts those that it has ever made, and would make no more at some point
    try:
        return pool.make_connection()
    except TypeError as error:
        raise ConfigError(f"redis_options: {error}") from error


def _sentinel_pool(where: Endpoint, options: dict[str, Any], *, asynchronous: bool) -> Any:
    library: Any = redis.asyncio.sentinel if asynchronous else redis.sentinel
    login = {"username": where.username, "password": where.password, "db": where.database}
    impatient = {"socket_connect_timeout": 1.0, "socket_timeout": 1.0}
    finder = library.Sentinel(list(where.hosts), sentinel_kwargs=impatient, **options)
    return library.SentinelConnectionPool(where.service, finder, **{**options, **login})


def check_version(info: bytes) -> str | None:
    """What is wrong with the server's version, by its `INFO server`; None if nothing is."""
    fields = dict(line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
    name, oldest = ("valkey", OLDEST_VALKEY) if "valkey_version" in fields else ("redis", OLDEST_REDIS)
    version = fields.get(f"{name}_version", "")
    try:
        found = tuple(int(part) for part in version.split(".")[:2])
    except ValueError:
        return None  # a server that does not tell its version is given the benefit of the doubt
    if not version or found >= oldest:
        return None
    return f"this server is {name.capitalize()} {version}; fastq needs at least Redis 7.0 or Valkey 7.2"


def socket_of(connection: Any) -> Any:
    """The socket of a connected `redis.Connection`, which from now on is ours."""
    return connection._sock


def take_over(connection: Any) -> tuple[Any, Any]:
    """The streams (to be kept alive) and the transport of a connected `redis.asyncio.Connection`, which lets go of them.

    Raises ConnectionError if the server has closed it meanwhile: the streams were told, and nobody will be told again.
    """
    reader, writer = connection._reader, connection._writer
    connection._reader = connection._writer = None
    if reader.at_eof() or reader.exception() is not None or writer.transport.is_closing():
        writer.transport.abort()
        raise ConnectionError("the server closed the connection")
    return (reader, writer), writer.transport
