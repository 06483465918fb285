"""A program that holds an embedded server and does what it reads: `open URL`, `incr KEY`, `fork`, `exec`, `close`.

It answers each with one line. A line that it does not know ends it.
"""

import os
import subprocess
import sys
import time

import redis

from fastq.embedded import EmbeddedServer, open_embedded
from fastq.errors import BrokerError


def main() -> None:
    server: EmbeddedServer
    for line in sys.stdin:
        match line.split():
            case ["open", url, *rest]:
                say("opening")
                try:
                    server = open_embedded(url, may_create="join" not in rest)
                    say(f"opened {server.url} {server.folder}")
                except BrokerError as error:
                    say(f"refused: {error}")
            case ["incr", key]:
                with redis.Redis.from_url(server.url) as client:
                    say(f"count {client.incr(key)}")
            case ["fork"]:
                pid = os.fork()
                if pid == 0:
                    time.sleep(600)  # until a test kills it
                say(f"forked {pid}")
            case ["exec"]:
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                say(f"started {child.pid}")
            case ["close"]:
                server.close()
                say("closed")
            case _:
                return


def say(line: str) -> None:
    print(line, flush=True)


main()
