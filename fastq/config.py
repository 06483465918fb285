"""What a program says about its fastq, checked where it is written: names, durations and the URL of the server."""
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from fastq.errors import ConfigError

DEFAULT_URL = "redis://localhost:6379/0"
DEFAULT_QUEUE = "default"
MAX_SECONDS = 100 * 365 * 86400.0  # times are kept as whole milliseconds in a double: a century is far from any edge

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_TASK_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_URL_FORMS = "redis://, rediss://, unix://, redis+sentinel://, embedded:// or embedded:///folder"

Kind = Literal["tcp", "tls", "unix", "sentinel", "embedded"]
_KINDS: dict[str, Kind] = {
    "redis": "tcp",
    "rediss": "tls",
    "unix": "unix",
    "redis+sentinel": "sentinel",
    "embedded": "embedded",
}


def check_name(what: str, name: object) -> str:
    """Return the name of a queue or a namespace, or raise ConfigError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{what} {name!r} is not a name: use 1 to 128 of the characters A-Z a-z 0-9 _ . -")
    return name


def check_task_name(name: object) -> str:
    """Return the name of a task, or raise ConfigError."""
    if not isinstance(name, str) or not _TASK_NAME.fullmatch(name):
        raise ConfigError(f"task {name!r} is not a name: use 1 to 128 of the characters A-Z a-z 0-9 _ . - : /")
    return name


def check_seconds(what: str, value: object, *, least: float = 0.0) -> float:
    """Return a duration, given in seconds or as a timedelta, as seconds; raise ConfigError when it is none.

    >>> check_seconds("delay", timedelta(minutes=1))
    60.0
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{what}={value!r}: give seconds (a number) or a timedelta")
    if not least <= value <= MAX_SECONDS:  # also false for NaN
        raise ConfigError(f"{what}={value!r}: must be at least {least:g} seconds and at most 100 years")
    return float(value)


def check_count(what: str, value: object, *, least: int = 0, most: int = 2**31) -> int:
    """Return a whole number within bounds, or raise ConfigError."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{what}={value!r}: must be a whole number from {least} to {most}")
    return value


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the server is, as read from a URL.

    `url` is the URL itself, with its password; `shown` has none and is fit for messages. `hosts`, `service`,
    `username` and `password` are read here for Sentinel only (the client library reads its own URLs); `folder` is that
    of `embedded:///folder`, or empty.
    """

    kind: Kind
    shown: str
    url: str = field(repr=False)
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    folder: str = ""


def read_url(url: str) -> Endpoint:
    """Classify and check a URL. Raises ConfigError, which never shows what may be a password.

    >>> read_url("redis://user:secret@db.example:6380/2").shown
    'redis://db.example:6380/2'
    """
    scheme, found, _ = url.partition("://")
    if not found:
        raise ConfigError(f"the URL has no scheme: it begins with one of {_URL_FORMS}")
    if scheme in ("redis+cluster", "rediss+cluster"):
        raise ConfigError("Redis Cluster is not supported yet: give the URL of one server or of a Sentinel")
    kind = _KINDS.get(scheme)
    if kind is None:
        raise ConfigError(f"the URL's scheme {scheme!r} is unknown: it begins with one of {_URL_FORMS}")
    try:
        return _READERS[kind](url)
    except ConfigError:
        raise
    except ValueError:  # its text may quote a piece of a password with an unescaped slash in it
        raise ConfigError(
            f"this {scheme}:// URL cannot be read: is the port a number, and are / @ : # ? in the password %-encoded?"
        ) from None


def _read_server(url: str) -> Endpoint:
    parts = urlsplit(url)
    host, port, database = parts.hostname or "localhost", parts.port or 6379, _database(parts.path)
    host = f"[{host}]" if ":" in host else host
    kind = _KINDS[parts.scheme]
    return Endpoint(kind, f"{parts.scheme}://{host}:{port}/{database}", url, database=database)


def _read_unix(url: str) -> Endpoint:
    path = urlsplit(url).path
    if not path.startswith("/"):
        raise ConfigError("a unix:// URL names a socket by its full path: unix:///run/redis.sock")
    return Endpoint("unix", f"unix://{path}", url)


def _read_embedded(url: str) -> Endpoint:
    parts = urlsplit(url)
    if parts.netloc:
        raise ConfigError("an embedded folder is given by its full path, with three slashes: embedded:///var/lib/shop")
    folder = "" if parts.path == "/" else unquote(parts.path)
    return Endpoint("embedded", f"embedded://{folder}", url, folder=folder)


def _read_sentinel(url: str) -> Endpoint:
    parts = urlsplit(url)
    credentials, at, netloc = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    service, _, database = parts.path.lstrip("/").partition("/")
    if not netloc or not service:
        raise ConfigError("a Sentinel URL names its hosts and the service: redis+sentinel://host1,host2:26379/service/0")
    hosts = tuple(_host_and_port(host) for host in netloc.split(","))
    shown = ",".join(f"{host}:{port}" for host, port in hosts)
    return Endpoint(
        "sentinel",
        f"redis+sentinel://{shown}/{service}/{_database(database)}",
        url,
        hosts=hosts,
        service=unquote(service),
        username=unquote(username) or None if at else None,
        password=unquote(password) or None if at else None,
        database=_database(database),
    )


_READERS = {
    "tcp": _read_server,
    "tls": _read_server,
    "unix": _read_unix,
    "sentinel": _read_sentinel,
    "embedded": _read_embedded,
}


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(text)
    return parts.hostname, parts.port or 26379


def _database(path: str) -> int:
    number = path.strip("/")
    if not number:
        return 0
    if not number.isascii() or not number.isdigit():
        raise ValueError(number)
    return int(number)


@dataclass(frozen=True, slots=True)
class DeadBounds:
    """How many dead jobs a queue keeps: in number, in bytes of their messages, and for how long (seconds or a timedelta).

    Beyond any of them the oldest are deleted, which frees their locks and ids. Raises ConfigError.

    >>> DeadBounds(age=timedelta(days=7)).age
    604800.0
    """

    jobs: int = 100_000
    size: int = 256 << 20
    age: float = 90 * 86_400.0

    def __post_init__(self) -> None:
        check_count("jobs", self.jobs)
        check_count("size", self.size, most=2**53)
        object.__setattr__(self, "age", check_seconds("age", self.age))


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one FastQ; checked when made, raises ConfigError.

    `url` None means $FASTQ_URL, else `redis://localhost:6379/0`, read at first use. `lease` is in seconds,
    `max_payload` in bytes; `max_queue` bounds the jobs that wait in a queue (None: no bound), `max_dead` the dead
    jobs that it keeps.
    """

    url: str | None = field(default=None, repr=False)
    namespace: str = "fastq"
    include: tuple[str, ...] = ()
    lease: float = 10.0
    max_queue: int | None = None
    max_payload: int = 1 << 20
    max_crashes: int = 3
    max_dead: DeadBounds = DeadBounds()
    validate: bool = False
    redis_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.url is not None:
            read_url(self.url)
        check_name("namespace", self.namespace)
        if isinstance(self.include, str) or not all(isinstance(name, str) for name in self.include):
            raise ConfigError('include= is a list of module names: include=["shop.mail"]')
        object.__setattr__(self, "include", tuple(self.include))
        object.__setattr__(self, "lease", check_seconds("lease", self.lease, least=0.5))
        if self.max_queue is not None:
            check_count("max_queue", self.max_queue, least=1)
        check_count("max_payload", self.max_payload, least=1, most=1 << 20)
        check_count("max_crashes", self.max_crashes, least=1, most=255)
        if not isinstance(self.max_dead, DeadBounds):
            raise ConfigError(f"max_dead={self.max_dead!r}: give DeadBounds(jobs=..., size=..., age=...)")

    def endpoint(self) -> Endpoint:
        """The server to use, as of now. Raises ConfigError for a bad $FASTQ_URL."""
        return read_url(self.url if self.url is not None else os.environ.get("FASTQ_URL") or DEFAULT_URL)
