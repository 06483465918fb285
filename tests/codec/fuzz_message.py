"""Throws damaged bytes at the reader of frames and holds it against its plain-Python twin.

    python -m tests.codec.fuzz_message --seconds 60 --seed 1

Run from the checkout. Every round damages a good frame in a few random places (flipped, inserted, deleted, repeated
and truncated bytes, wild numbers in length fields, pieces of other frames) or makes up bytes altogether; Frame must
then tell of every message what the twin tells, and raise nothing. The seed and the round are printed with the bytes
that failed.
An over-read shows in a build with -fsanitize=address.
"""

import argparse
import contextlib
import random
import time

from fastq_ext.message import Frame
from tests.support import message_twin as twin
from tests.support.message_calls import NOW, UID, encode, good_frame, split

WILD = (0, 1, 43, 44, 47, 48, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
GOOD = (
    good_frame(),
    encode(1, "two", [3.0], four=None) * 5,
    twin.build(twin.Fields(uid=UID, enqueued_at=NOW, task="t", due_ms=1, extras=b"\x80", payload=b"\x92\x90\x80")) * 3,
    encode() * 66,
)


def flip(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def overwrite(data: bytearray, chance: random.Random) -> None:
    size = chance.choice((1, 2, 4, 8))
    at = chance.randrange(len(data))
    data[at : at + size] = (chance.choice(WILD) & (256**size - 1)).to_bytes(size, "little")


def insert(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    data[at:at] = chance.randbytes(chance.randrange(1, 9))


def delete(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.randrange(1, 9)]


def repeat(data: bytearray, chance: random.Random) -> None:
    at, end = sorted(chance.choices(range(len(data)), k=2))
    data[at:at] = data[at:end]


def truncate(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def graft(data: bytearray, chance: random.Random) -> None:
    other = chance.choice(GOOD)
    at = chance.randrange(len(data))
    data[at : at + chance.randrange(200)] = other[chance.randrange(len(other)) :]


DAMAGES = (flip, flip, overwrite, overwrite, insert, delete, repeat, truncate, graft)


def damaged(chance: random.Random) -> bytes:
    if chance.random() < 0.05:
        return chance.randbytes(chance.randrange(300))
    data = bytearray(chance.choice(GOOD))
    for _ in range(chance.randrange(1, 5)):
        if data:
            chance.choice(DAMAGES)(data, chance)
    return bytes(data)


def fuzz(seed: int, *, rounds: int | None = None, seconds: float | None = None) -> tuple[int, int]:
    """Run `rounds`, or for `seconds`. Returns the rounds run and the sound messages that were met."""
    chance = random.Random(seed)
    until = time.monotonic() + (seconds or 0)
    done = sound = 0
    while done != rounds if seconds is None else time.monotonic() < until:
        data = damaged(chance)
        try:
            assert split(data) == twin.split(data)
            sound += len(Frame(data))
            for i in range(len(Frame(data))):
                read_extras(Frame(data)[i])
        except Exception:
            print(f"seed {seed}, round {done}: {data.hex()}")
            raise
        done += 1
    return done, sound


def read_extras(message) -> None:
    """The one attribute that may refuse, and only by ValueError."""
    with contextlib.suppress(ValueError):
        assert type(message.extras) is dict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rounds, sound = fuzz(options.seed, seconds=options.seconds)
    print(f"{rounds} frames, {sound} sound messages in them, no difference")


if __name__ == "__main__":
    main()
