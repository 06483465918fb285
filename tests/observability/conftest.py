"""A program of a user's, as the tests of the command line have it."""

from tests.cli.conftest import shop

__all__ = ["shop"]
