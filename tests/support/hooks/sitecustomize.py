"""Kills or pauses processes of a Spark application at a named step of the two-phase commit.

Python imports this when it starts, where its folder is on PYTHONPATH: in the user's process, in the workers that plan
and commit, in tasks. PYKAFKA_HOOK says, as JSON or in a file of JSON, what to do:

    step   "before EndTxn orders.driver commit": before or after; the request; its key; of EndTxn also how.
           DescribeProducers is the one that follows the markers' OffsetFetch, not those before a decision;
           TxnOffsetCommit and EndTxn are not those by which a new sink writes down that nothing is committed yet
    kill   "application": all processes of the session, as a machine that dies; "process": this one; "": none
    once   a file, made when it has happened: it happens once
    log    a file that gets a line for every request, in the order of sending
    holds  step -> a named pipe: who comes there first makes the file <pipe>.reached, and waits until the pipe is opened

Requests that go out together go one by one here, so that a process can end in between.
"""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path


def install(step: str, kill: str, once: str, log: str, holds: Mapping[str, str]) -> None:
    from kafka_sink.commit import runner
    from kafka_sink.commit.markers import NO_QUERY

    answers_of = runner.answer_all
    last = ""
    # The transactional ids whose transaction says that nothing is committed yet.
    of_nothing: set[str] = set()

    def watched(client: object, effects: object) -> list[object]:
        nonlocal last
        answers: list[object] = []
        for effect in effects:  # type: ignore[attr-defined]
            text = described(effect)
            if text == "DescribeProducers" and not last.startswith("OffsetFetch"):
                text += " before a decision"
            last = text
            with open(log, "a") as lines:
                lines.write(f"{text}\n")
            step_text = f"{text} of nothing" if is_of_nothing(getattr(effect, "request", None)) else text
            come_to(f"before {step_text}")
            answers += answers_of(client, [effect])  # type: ignore[arg-type]
            come_to(f"after {step_text}")
        return answers

    def is_of_nothing(request: object) -> bool:
        transactional_id = str(getattr(request, "transactional_id", None))
        if (metadata := getattr(request, "metadata", None)) is not None:
            says_nothing = metadata.split("|")[1:2] == [NO_QUERY]
            (of_nothing.add if says_nothing else of_nothing.discard)(transactional_id)
        return getattr(request, "committed", metadata) is not None and transactional_id in of_nothing

    def come_to(here: str) -> None:
        if here in holds and made_first(f"{holds[here]}.reached"):
            with open(holds[here]):
                pass
        if not kill or here != step or not made_first(once):
            return
        if kill == "application":
            kill_session()
        os.kill(os.getpid(), signal.SIGKILL)

    runner.answer_all = watched


def made_first(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def described(effect: object) -> str:
    request = getattr(effect, "request", None)
    words = [type(request).__name__.removesuffix("Request"), getattr(effect, "key", "")]
    committed = getattr(request, "committed", None)
    if committed is not None:
        words.append("commit" if committed else "abort")
    return " ".join(filter(None, words))


def kill_session() -> None:
    """Send SIGKILL to all processes of the session, this process last."""
    session = os.getsid(0)
    for process in Path("/proc").glob("[0-9]*"):
        process_id = int(process.name)
        try:
            if process_id != os.getpid() and os.getsid(process_id) == session:
                os.kill(process_id, signal.SIGKILL)
        except ProcessLookupError:
            continue


if hook := os.environ.get("PYKAFKA_HOOK"):
    install(**json.loads(hook if hook.startswith("{") else Path(hook).read_text()))
