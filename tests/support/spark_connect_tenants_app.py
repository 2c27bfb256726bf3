"""Two tenants and hostile peers on one Spark Connect server: python spark_connect_tenants_app.py TOLD

TOLD is JSON: of two users a token and a topic, of the first the options with a password, and options without
credentials; or the options that reach each hostile peer. It prints, as JSON, what each tenant read, and the errors.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink.errors import KafkaSinkError

given = json.loads(sys.argv[1])
# The server takes a free port, and not the one of every other server of this machine.
os.environ["SPARK_TESTING"] = "1"
first = SparkSession.builder.remote("local[1]").getOrCreate()
sessions = {user: first if number == 0 else first.newSession() for number, user in enumerate(given["users"])}


def of_session(token: str) -> Callable[[], tuple[str, float]]:
    return lambda: (token, 3_600.0)


def writes(user: str, topic: str, options: dict[str, str]) -> None:
    frame = sessions[user].sql(f"select '{user}' as value").coalesce(1)
    frame.write.format("pykafka").options(**options, topic=topic).mode("append").save()


def reads(user: str, topic: str, options: dict[str, str]) -> list[str]:
    frame = sessions[user].read.format("pykafka").options(**options, subscribe=topic).load()
    return [bytes(row.value).decode() for row in frame.collect()]


def exports(user: str, topic: str, options: dict[str, str]) -> None:
    kafka_sink.export(sessions[user].sql("select 'row' as value"), topic, value="value", options=options)


def failure(call: Callable[[str, str, dict[str, str]], Any], *arguments: Any) -> dict[str, str]:
    """What the client sees: the exception's text, and the error's own with its fields."""
    try:
        call(*arguments)
    except (PySparkException, KafkaSinkError) as error:
        found = kafka_sink.error_of(error)
        return {"class": type(found).__name__, "text": str(error), "found": f"{found} {vars(found) if found else ''}"}
    raise AssertionError("it must fail")


def tenants(users: dict[str, Any], options: dict[str, str]) -> dict[str, Any]:
    for user, of_user in users.items():
        kafka_sink.register(sessions[user], token=of_session(of_user["token"]))
        writes(user, of_user["topic"], options)
    bob, dan = users
    password = users[bob]["options"]
    writes(bob, users[bob]["topic"], password)
    found: dict[str, Any] = {"read": {user: reads(user, users[user]["topic"], options) for user in users}}
    found["refused"] = []
    for user, other in ((bob, dan), (dan, bob)):
        found["refused"] += [failure(call, user, users[other]["topic"], options) for call in (writes, reads)]
    found["refused"].append(failure(writes, bob, users[dan]["topic"], password))
    # What one tenant has in the conf of its session is not the other's.
    for name, text in password.items():
        sessions[bob].conf.set(f"spark.pykafka.{name}", text)
    writes(bob, users[bob]["topic"], {})
    found["without"] = failure(writes, dan, users[dan]["topic"], {})
    return found


def hostile(peers: list[dict[str, dict[str, str]]]) -> list[dict[str, str]]:
    kafka_sink.register(first)
    return [
        failure(call, next(iter(sessions)), "orders", each[kind])
        for each in peers
        for call, kind in ((writes, "write"), (exports, "write"), (reads, "read"))
    ]


status = 1
try:
    told = hostile(given["hostile"]) if "hostile" in given else tenants(given["users"], given["options"])
    print(json.dumps(told), flush=True)
    status = 0
except Exception:
    traceback.print_exc()
# An exit in the usual way waits for a server that has ended, or that runs on after an error.
os._exit(status)
