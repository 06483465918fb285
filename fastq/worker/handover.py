"""What a process that beats for a worker has to know to reach its server, as words on a line of JSON."""

from __future__ import annotations

import base64
import pickle
import sys
from typing import Any

from fastq.config import Config
from fastq.errors import ConfigError


def words_of(config: Config) -> dict[str, Any]:
    """What to hand over. Raises ConfigError for redis_options that another process cannot have."""
    options = {}
    for name, value in config.redis_options.items():
        try:
            options[name] = base64.b64encode(pickle.dumps(value)).decode()
        except Exception as error:
            raise ConfigError(
                f"redis_options[{name!r}] cannot be handed to the process that beats for a worker ({error}):"
                " give a value that pickle takes"
            ) from error
    return {
        "url": config.endpoint().url,
        "namespace": config.namespace,
        "lease": config.lease,
        "max_crashes": config.max_crashes,
        "path": [folder for folder in sys.path if isinstance(folder, str)],
        "redis_options": options,
    }


def config_of(words: dict[str, Any]) -> Config:
    """The Config that was handed over by our own worker."""
    # Where the classes of its options are looked for.
    sys.path += [folder for folder in words["path"] if folder not in sys.path]
    options = {name: pickle.loads(base64.b64decode(value)) for name, value in words["redis_options"].items()}
    return Config(
        words["url"], words["namespace"], lease=words["lease"], max_crashes=words["max_crashes"], redis_options=options
    )
