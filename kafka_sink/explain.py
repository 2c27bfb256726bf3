"""`python -m kafka_sink.explain` runs `pykafka explain`, for hosts where the script `pykafka` is not on the path."""

from __future__ import annotations

import sys

from kafka_sink.cli.explain import main
from kafka_sink.command_line import run_to_the_end

if __name__ == "__main__":
    sys.exit(run_to_the_end(main))
