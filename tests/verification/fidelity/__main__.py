"""`make fidelity`: traces of the model, replayed on real brokers.

    PYTHONPATH=tests/verification:tests/support python -m fidelity --traces 500 --kafka-version 4.3.1 2.1.1 --seed 1

Seeds count up from --seed; a seed is a trace, on every machine. Exit status 1 if a broker and the
model ever differ. Each difference is printed with the steps before it, both answers, and the command to run it again.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from confluent_kafka.admin import AdminClient

from fidelity.kinds import BROKER_CONFIG
from fidelity.report import Findings, campaign
from fidelity.traces import PROTOCOLS, make_trace, replay
from zookeeper_kafka import kafka_of

TRACES_A_LINE = 25


def main() -> int:
    arguments = _arguments()
    seeds = range(arguments.seed, arguments.seed + arguments.traces)
    shares = [(version, seeds[start :: arguments.brokers])
              for version in arguments.kafka_version for start in range(arguments.brokers)]  # fmt: skip
    with ProcessPoolExecutor(len(shares)) as pool:
        parts = list(pool.map(replay_share, *zip(*shares, strict=True)))
    findings = [Findings.of(version, parts) for version in arguments.kafka_version]
    for found in findings:
        print("\n".join(found.told()))
    if arguments.results is not None:
        versions = " ".join(arguments.kafka_version)
        options = f"--kafka-version {versions} --seed {arguments.seed}"
        campaign(findings, f"make fidelity TRACES={arguments.traces} ARGS='{options}'").write(arguments.results)
    return 1 if any(found.differences for found in findings) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fidelity", description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=int, default=500, help="how many, on each version")
    parser.add_argument("--kafka-version", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS), help="brokers")
    parser.add_argument("--seed", type=int, default=1, help="of the first trace")
    parser.add_argument("--brokers", type=int, default=1, help="of each version, each in a process with its share")
    parser.add_argument("--results", type=Path, help="the file of the campaign")
    return parser.parse_args()


def replay_share(kafka_version: str, seeds: range) -> Findings:
    """One trace at a time: a broker that asks coordinators about several producers at once lets the first one decide
    by which codes all are answered (AddPartitionsToTxnManager), so that traces would meddle with each other."""
    findings = Findings(kafka_version)
    with kafka_of(kafka_version, config=BROKER_CONFIG) as kafka:
        # It outlives the broker for a moment, and would say so on stderr.
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        for seed in seeds:
            trace = make_trace(seed, kafka_version)
            difference = replay(trace, kafka, admin)
            findings.count(trace, difference)
            if difference is not None:
                print(difference, flush=True)
            if findings.traces % TRACES_A_LINE == 0:
                print(f"Kafka {kafka_version}: {findings.traces} of {len(seeds)} traces", flush=True)
    return findings


if __name__ == "__main__":
    sys.exit(main())
