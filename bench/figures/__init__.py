"""All figures, by group. A new one is an entry in the list of its group's module."""

from __future__ import annotations

from bench.figure import Figure
from bench.figures import clients, codec, drain, enqueue, fleet, hashing, latency, memory, scale, server

ALL: list[Figure] = [
    *codec.FIGURES,
    *hashing.FIGURES,
    *enqueue.FIGURES,
    *drain.FIGURES,
    *clients.FIGURES,
    *server.FIGURES,
    *latency.FIGURES,
    *memory.FIGURES,
    *fleet.FIGURES,
    *scale.FIGURES,
]
