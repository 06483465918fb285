"""Programs that hold an embedded server, and the processes behind one."""

from collections.abc import Callable
from pathlib import Path

import redis

from tests.support import process

PROGRAM = Path(__file__).with_name("holder.py")


class Holder:
    """A program that holds the server of `url`, or nothing yet when that is None."""

    def __init__(self, url: str | None, env: dict[str, str] | None = None) -> None:
        self.child = process.python(str(PROGRAM), env=env)
        self.pid = self.child.pid
        self._answers = 0
        if url:
            self.opened(self.tell(f"open {url}"))

    def opened(self, answer: str) -> None:
        assert answer.startswith("opened "), answer
        _, self.server_url, self.folder = answer.split(maxsplit=2)

    def tell(self, command: str) -> str:
        """Its answer to a command."""
        self.begin(command)
        return self.answer()

    def begin(self, command: str) -> None:
        """Give a command without waiting for the answer."""
        self.child.write(command)

    def answer(self, timeout: float = 30) -> str:
        self._answers += 1
        return self.child.wait_line(
            r"^(opened|refused|count|forked|started|closed)", timeout, count=self._answers
        ).string

    def kill(self) -> None:
        self.child.kill()


Start = Callable[..., Holder]


def server_pid(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.info("server")["process_id"])


def processes_of(url: str) -> tuple[int, int]:
    """The pids of the server and of its guard, which is its parent."""
    server = process.look_up(server_pid(url))
    assert server is not None
    return server.pid, server.parent


def processes_with(folder: Path) -> list[str]:
    return [command for command in process.descendants().values() if str(folder) in command]
