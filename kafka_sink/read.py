"""`python -m kafka_sink.read`: `pykafka read`, where the script `pykafka` is not on the path."""

from __future__ import annotations

import sys

from kafka_sink.cli.command_line import run_to_the_end
from kafka_sink.cli.read import main

if __name__ == "__main__":
    sys.exit(run_to_the_end(main))
