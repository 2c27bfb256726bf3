"""The options users set, as one table.

A row of `OPTIONS` is all there is to know of an option: the name users write (client options carry Spark's `kafka.`
prefix and Kafka's own name, connector options are camelCase), the field it fills, how its text is read, its default,
its meaning, and whether its value may be shown. `options/config.py` makes the configuration of it,
`tools/options_page.py` docs/options.md; messages and "did you mean" come from here. Keys are case-insensitive, because
Spark lower-cases them; messages print the canonical name.

Three more tables say why a name that is not an option is turned away: it belongs to Spark and is ignored
(`SPARK_OPTIONS`), it cannot work in this sink (`REFUSED`), or this version does not have it yet (`NOT_YET_PREFIXES`).

A value whose row says `redact` is a `Secret` from here on, and every message about an option's value is made by
`Option.invalid`: what the table redacts is shown nowhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import InvalidOption, RefusedOption, UnknownOption
from kafka_sink.kafka.jaas import JaasProblem, parse_jaas
from kafka_sink.kafka.net.java_store import conversion
from kafka_sink.kafka.new_topic import EXAMPLE
from kafka_sink.options import kinds
from kafka_sink.options.kinds import INT32_MAX, INT64_MAX, KIB, MIB, Kind, Problem
from kafka_sink.text.redaction import Secret, redacted

REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `default` is the parsed value, `REQUIRED`, or None for "not set"; `field` is None for an option that
    is checked and then has no effect; with `redact` its value becomes a `Secret`."""

    name: str
    field: str | None
    kind: Kind
    default: Any
    doc: str
    redact: bool = False

    def read(self, text: str, *, prefix: str = "") -> Any:
        """The value that `text` stands for. `prefix`: what stood before the name. Raises InvalidOption."""
        try:
            value = self.kind.read(text.strip())
        except ValueError as failure:
            is_told = isinstance(failure, JaasProblem if self.redact else JaasProblem | Problem)
            detail = str(failure) if is_told else ""
        else:
            return Secret(value) if self.redact else value
        # Outside of the handler: the ValueError must not travel along as the context, with the text in it.
        raise self.invalid(text, f"{self.kind.values} ({detail})" if detail else self.kind.values, prefix=prefix)

    def invalid(self, text: str, expected: str, *, prefix: str = "") -> InvalidOption:
        # Here as well as in the error, which cuts what is long before it looks at it.
        value = None if self.redact else redacted(text)
        return InvalidOption(option=prefix + self.name, value=value, expected=expected)


@dataclass(frozen=True, slots=True)
class Section:
    """Options that belong together, and what is to be said of them in common (Markdown)."""

    title: str
    text: str
    options: tuple[Option, ...]


_MEASURED = """\
Java's defaults (`batch.size` 16 KiB, `linger.ms` 5, `buffer.memory` 32 MiB) are for single rows that trickle; here a
task's rows come thousands at a time, and a batch's fixed costs (header, compressor call, share of a request, entry in
the broker's log index) are paid once for all its rows. 400,000 rows with 8-byte keys and 100-byte values through one
producer, zstd, a local broker; medians, on 2 cores that others used as well, so CPU time and counts and not rows a
second. CPU differs by a fifth from run to run.

| | | batches | CPU of the producer |
|---|---|---|---|
| `kafka.batch.size`, 4 partitions | 16 KiB | 2911 | 0.69 s |
| | 64 KiB | 744 | 0.44 s |
| | 256 KiB | 232 | 0.54 s |
| | **1 MiB** | 60 | 0.45 s |
| `kafka.buffer.memory`, 200 partitions | 8 MiB | 3557 | 0.59 s |
| | 16 MiB | 1670 | 0.44 s |
| | 32 MiB | 877 | 0.41 s |
| | **64 MiB** | 437 | 0.39 s |
| | 128 MiB | 320 | 0.37 s |

Above 64 KiB a producer's own CPU no longer falls; what a broker and readers do goes with the count of batches. 1 MiB is
also the most that a broker with the default `message.max.bytes` takes. Twice the memory buys little more. Lingering
matters little to a task whose rows come quickly, as its batches fill while others are on the wire: with 200 partitions
three measurements gave 435 to 578 batches at 100 ms, 400 to 453 at 1000 ms, and more, 515 to 1508, at 0 and 5 ms."""


_EXACTLY_ONCE = """\
For `deliveryGuarantee` = `exactly-once`. All of these, and `kafka.bootstrap.servers`, must be options of the write:
Spark's conf reaches tasks only, and these are needed where a micro-batch is planned and committed."""


_RECEIPTS = """\
What was written, one row for each record batch: topic, partition, first offset, count, checksum.
`kafka_sink.receipts` reads it as a DataFrame, `pykafka verify` compares it with what is in the topics. A
task's commit message grows by 36 bytes for each record batch, which is up to `kafka.batch.size` of rows, and by nothing
where this is not set.

Exactly-once: the file is written before the micro-batch is decided, so nothing is ever visible without one, and a
micro-batch whose file cannot be written fails. At-least-once: it is written when all rows are in Kafka; if it cannot
be, that is tried three times, then logged, and the write goes on, as failing it would write its rows again."""


_BAD_ROWS = """\
A row is bad if it alone is to blame: it is larger than `kafka.max.request.size`, or, compressed, than its topic's
`max.message.bytes`; its topic is null, empty or a name that no topic can have; it names a partition that its topic does
not have; its time is before 1970, or further from now than its topic allows; a header has no key, or one that is not
UTF-8; it has no key, and its topic compacts. Bad rows are found before they are sent, as far as the settings of their
topic are known, which takes the ACL TOPIC DESCRIBE_CONFIGS; a task asks for them once, when it meets the topic. Rows
that a leader then names as refused are bad as well."""


_RATE = """\
For a topic that others use as well. A write that is slower than this anyway does not notice.

Spark tells a Python sink how many tasks a write has neither while it is planned nor in a task, so `rateTasks` says it:
each task takes that part of the rate. Exact is the number that run at once: the number of the DataFrame's partitions
(`df.rdd.getNumPartitions()`, after a shuffle what it was repartitioned to), or of the cores they share, if those are
fewer. Where fewer tasks run at once than that, as when 16 tasks share 2 cores or the last of them are still running,
the write is as much slower than asked, and never faster. Where more run at once it is faster, and the commit logs a
warning. A bound that must hold whatever a job says is a quota of the brokers, which throttle a client id or user
(KIP-219); the sink waits as long as it takes, and the task logs a warning on its way.

A task hands over a tenth of a second's worth at a time, waits for the next, and catches up with no more than that when
its source was slow. No timeout of Kafka's begins for rows that wait. With exactly-once a micro-batch's transactions are
open as long as it is written: one that takes longer than `kafka.transaction.timeout.ms` fails with
RateOutlastsTransaction, so bound it too (`maxOffsetsPerTrigger` and the like of the source)."""


_SECURITY = """\
Those of a JVM client's `client.properties`, behind `kafka.`, with PEM instead of Java's stores. What is wrong in a
file is found where connections are made: on executors, and with exactly-once where the write is planned.

Secrets belong into options of the write, which go to executors and are shown by no message, plan or event log. Spark
does show its conf, in its UI and event log, but for names and values that `spark.redaction.regex` covers: by default
those with `secret`, `password` or `token` in them, which `kafka.ssl.keystore.key` has not."""


_TOPIC_KIND = Kind("a topic name: 1 to 249 letters, digits, '.', '_' or '-', and not '.' or '..'", kinds.topic)

SECTIONS: tuple[Section, ...] = (
    Section("Where to", "", (
        Option("kafka.bootstrap.servers", "bootstrap_servers",
               Kind("host:port[,host:port...]", kinds.bootstrap_servers),
               REQUIRED,
               "some brokers of the cluster; the others are learned from them"),
        Option("topic", "topic",
               Kind("a topic name: 1 to 249 letters, digits, '.', '_' or '-', and not '.' or '..'", kinds.topic), None,
               "topic of every row; wins over a `topic` column, and is required without one"),
        Option("createTopics", "create_topics",
               Kind(f"true, false, or what the topic is to have: {EXAMPLE}", kinds.create_topics), False,
               "creates a missing `topic` at the start of a write, in kafka_sink.validate and in pykafka check. Names: "
               "partitions, replicas, and the topic settings of Kafka; what is left out, and all with true, is the "
               "brokers' default. A topic that exists is left as it is. Topics that rows name are not created"),
        Option("partitioner", "partitioner",
               kinds.one_of("murmur2", "murmur3", "consistent", "fnv1a", "roundrobin", "sticky"), "murmur2",
               "murmur2: rows with a key go where every JVM producer sends that key; murmur3: by mmh3's hash; "
               "consistent: where librdkafka's sends it, without a key to partition 0; fnv1a: where Sarama sends it; "
               "rows without a key stick to a partition for about a batch. roundrobin and sticky ignore keys: a row "
               "each in turn, or a batch each"),
        Option("includeHeaders", None, kinds.BOOLEAN, True,
               "accepted as in Spark's Kafka sink, without effect: headers are written when the column exists"),
    )),
    Section("What is guaranteed", "", (
        Option("deliveryGuarantee", "delivery_guarantee",
               kinds.one_of("at-least-once", "exactly-once"), "at-least-once",
               "at-least-once: a row is in Kafka before Spark records it as written, and may be there twice after a "
               "failure; exactly-once: readers with isolation.level=read_committed see it once, whatever crashes"),
        Option("rowIdentity", "row_identity", kinds.BOOLEAN, False,
               "true: each record has headers that say which row of which write it is (pykafka.topic, pykafka.query, "
               "pykafka.batch, pykafka.slot, pykafka.row), the same when a micro-batch or task runs again over the "
               "same rows in the same order and partitions; kafka_sink.dedupe leaves the second one out. A batch "
               "write, also in foreachBatch, is another one each time that it is run"),
        Option("kafka.acks", "acks", Kind("'all' (or '-1'), '1' or '0'", kinds.acks), "all",
               "all: a row counts once every in-sync replica has it; 1: once its leader has it, so that rows are lost "
               "when the leader dies; 0: once its bytes are on their way, so that rows are also lost, without an "
               "error, when the connection breaks or the broker refuses them, and receipts have no offsets"),
        Option("kafka.enable.idempotence", "enable_idempotence", kinds.BOOLEAN, True,
               "sequence numbers: a network retry neither doubles nor reorders. Needs kafka.acks=all, kafka.retries of "
               "1 or more and at most 5 requests in flight: where it is not set and one of these is otherwise, it is "
               "off, as in Kafka's own producer. Without it a retry may double rows, and reorder them unless "
               "kafka.max.in.flight.requests.per.connection is 1"),
        Option("kafka.retries", "retries", kinds.integer(0), INT32_MAX,
               "how often a batch is sent again before the write fails; kafka.delivery.timeout.ms is the better "
               "bound. 0 switches kafka.enable.idempotence off"),
        Option("kafka.max.in.flight.requests.per.connection", "max_in_flight_requests_per_connection",
               kinds.integer(1), 5,
               "unanswered requests to one broker; brokers remember 5 batches of a producer and partition, so more "
               "than 5 switch kafka.enable.idempotence off"),
    )),
    Section("Rows that cannot be written", _BAD_ROWS, (
        Option("badRows", "bad_rows", Kind("one of: fail, drop, deadLetter", kinds.bad_rows), "fail",
               "fail: the first one fails its task; drop: it is left out, counted and logged; deadLetter: it goes to "
               "deadLetterTopic. An error of the cluster is never a bad row and fails the task in any case"),
        Option("deadLetterTopic", "dead_letter_topic", _TOPIC_KIND, None,
               "topic for bad rows, with headers that say what was wrong; required with badRows=deadLetter. No row may "
               "name it"),
        Option("maxBadRows", "max_bad_rows", kinds.integer(0, INT64_MAX), None,
               "more bad rows fail the task that has them, and the write or micro-batch whose tasks have them "
               "together; with at-least-once its other rows are in Kafka by then"),
        Option("maxBadRowFraction", "max_bad_row_fraction", Kind("a number from 0 to 1", kinds.fraction), None,
               "the same for a part of all rows, looked at when a task has ended and when all have"),
    )),
    Section("Exactly once", _EXACTLY_ONCE, (
        Option("transactionalIdPrefix", "transactional_id_prefix",
               Kind("1 to 200 letters, digits, '.', '_' or '-'", kinds.prefix), None,
               "name of the sink's transactional ids and consumer groups, one for each stream; by default "
               "pykafka-<query id>, where checkpointLocation is an option of the write and a folder of the driver's "
               "host, else made of its text. A batch write has one of its own each time, or txnAppId in its place"),
        Option("txnAppId", "txn_app_id", Kind("1 to 200 letters, digits, '.', '_' or '-'", kinds.prefix), None,
               "for batch writes, also those of foreachBatch: name of the writer, one for each, and of its "
               "transactional ids and consumer groups. With txnVersion it names a write: one that was committed is not "
               "written again"),
        Option("txnVersion", "txn_version", kinds.integer(0, INT64_MAX), None,
               "number of the write under its txnAppId, in foreachBatch the batch id: must grow, may leave numbers "
               "out. A number again, or a lower one, writes nothing, and a warning is logged. The first is 0, or comes "
               "with allowLostState=true"),
        Option("commitTopic", "commit_topic",
               Kind("a topic name: 1 to 249 letters, digits, '.', '_' or '-', and not '.' or '..'", kinds.topic),
               "pykafka-commits",
               "topic whose partition 0 the markers and decisions of commits are offsets of; nothing is written into "
               "it. Has two partitions. Made if it is missing and the cluster allows that"),
        Option("allowLostState", "allow_lost_state", kinds.BOOLEAN, False,
               "true: go on though nothing is known of earlier micro-batches or versions, or part of the last one is "
               "missing"),
        Option("kafka.transaction.timeout.ms", "transaction_timeout_ms", kinds.integer(10_000), 900_000,
               "how long a micro-batch's transactions may be open before the brokers abort them; at most the brokers' "
               "transaction.max.timeout.ms"),
    )),
    Section("Rate", _RATE, (
        Option("maxRowsPerSecond", "max_rows_per_second", kinds.integer(1, INT64_MAX), None,
               "rows that the whole write hands over in a second; needs rateTasks"),
        Option("maxBytesPerSecond", "max_bytes_per_second", kinds.integer(1, INT64_MAX), None,
               "the same for bytes of keys, values and the rows' own headers, before compression"),
        Option("rateTasks", "rate_tasks", kinds.integer(1), None,
               "how many of the write's tasks run at once: each takes this part of the rate"),
    )),
    Section("Receipts", _RECEIPTS, (
        Option("receiptsPath", "receipts_path",
               Kind("an absolute path, or a URI: s3://bucket/folder", kinds.folder), None,
               "folder that gets a file of receipts for each micro-batch and batch write; on the driver, or anywhere "
               "that pyarrow.fs.FileSystem.from_uri reaches (s3a is taken for s3). It is made if it is missing"),
        Option("receiptName", "receipt_name", Kind("1 to 200 letters, digits, '.', '_' or '-'", kinds.prefix), None,
               "name of a batch write in its receipt, where a stream's has the query's id: an option of the write, one "
               "for each, as a second receipt of that name takes the place of the first. Without one it is random"),
    )),
    Section("Security", _SECURITY, (
        Option("kafka.security.protocol", "security_protocol", kinds.upper_of(*kinds.SECURITY_PROTOCOLS), "PLAINTEXT",
               "SSL: encrypted, the brokers verified; SASL_SSL: and the client authenticated by kafka.sasl.mechanism; "
               "SASL_PLAINTEXT: authenticated over connections that anybody can read. Required with any kafka.ssl or "
               "kafka.sasl option that says more than its default"),
        Option("kafka.ssl.truststore.type", None, kinds.store_type("kafka.ssl.truststore.location"), "PEM",
               "JKS and PKCS12 stores are refused with the command that converts them"),
        Option("kafka.ssl.truststore.location", "ssl_truststore_location",
               kinds.pem_store("kafka.ssl.truststore.location"), None,
               "file with the certificates of the CAs to trust, on every executor, with exactly-once on the driver "
               "too; without it and kafka.ssl.truststore.certificates the system's are trusted"),
        Option("kafka.ssl.truststore.certificates", "ssl_truststore_certificates", kinds.TEXT, None,
               "the same certificates, PEM itself"),
        Option("kafka.ssl.keystore.type", None, kinds.store_type("kafka.ssl.keystore.location"), "PEM",
               "as kafka.ssl.truststore.type"),
        Option("kafka.ssl.keystore.location", "ssl_keystore_location",
               kinds.pem_store("kafka.ssl.keystore.location"), None,
               "file with the client's private key and its certificate chain, where brokers ask for one"),
        Option("kafka.ssl.keystore.certificate.chain", "ssl_keystore_certificate_chain", kinds.TEXT, None,
               "the client's certificate chain, PEM itself; needs kafka.ssl.keystore.key"),
        Option("kafka.ssl.keystore.key", "ssl_keystore_key", kinds.TEXT, None,
               "the client's private key, PEM itself; needs kafka.ssl.keystore.certificate.chain", redact=True),
        Option("kafka.ssl.key.password", "ssl_key_password", kinds.TEXT, None,
               "password of an encrypted private key", redact=True),
        Option("kafka.ssl.endpoint.identification.algorithm", "ssl_endpoint_identification_algorithm",
               Kind("'https', or nothing", kinds.endpoint_identification), "https",
               "https: a broker's certificate must be for the host name that was connected to; nothing: any host "
               "with a certificate of the same CAs may pose as a broker"),
        Option("kafka.ssl.enabled.protocols", "ssl_enabled_protocols",
               Kind("TLSv1.2, TLSv1.3 or both", kinds.tls_versions), "TLSv1.2,TLSv1.3",
               "versions of TLS that may be spoken"),
        Option("kafka.ssl.protocol", "ssl_protocol", Kind("TLS, TLSv1.2 or TLSv1.3", kinds.ssl_protocol), "TLSv1.3",
               "accepted without effect: kafka.ssl.enabled.protocols decides"),
        Option("kafka.sasl.mechanism", "sasl_mechanism",
               Kind(f"one of: {', '.join(kinds.SASL_MECHANISMS)}", kinds.mechanism), None,
               "how the client is authenticated; required with SASL_SSL and SASL_PLAINTEXT"),
        Option("kafka.sasl.jaas.config", "sasl_jaas_config",
               Kind('org.apache.kafka.common.security.<...>LoginModule required username="..." password="...";',
                    parse_jaas),
               None,
               "credentials as JVM clients keep them, of PlainLoginModule, ScramLoginModule or "
               "OAuthBearerLoginModule; the class is not run",
               redact=True),
        Option("kafka.sasl.username", "sasl_username", kinds.TEXT, None,
               "user name, instead of kafka.sasl.jaas.config"),
        Option("kafka.sasl.password", "sasl_password", kinds.TEXT, None,
               "password, instead of kafka.sasl.jaas.config", redact=True),
        Option("kafka.sasl.oauthbearer.token.endpoint.url", "sasl_oauthbearer_token_endpoint_url",
               Kind("an https URL", kinds.url), None,
               "OAUTHBEARER: where tokens come from, by the client-credentials grant. Tokens of your own come from a "
               "callable given to kafka_sink.register(spark, token=...)"),
        Option("kafka.sasl.oauthbearer.client.credentials.client.id", "sasl_oauthbearer_client_id", kinds.TEXT, None,
               "OAUTHBEARER: the client id, instead of clientId in kafka.sasl.jaas.config"),
        Option("kafka.sasl.oauthbearer.client.credentials.client.secret", "sasl_oauthbearer_client_secret",
               kinds.TEXT, None,
               "OAUTHBEARER: the client secret, instead of clientSecret in kafka.sasl.jaas.config", redact=True),
        Option("kafka.sasl.oauthbearer.scope", "sasl_oauthbearer_scope", kinds.TEXT, None,
               "OAUTHBEARER: the scope to ask for, instead of scope in kafka.sasl.jaas.config"),
        Option("kafka.sasl.oauthbearer.header.urlencode", "sasl_oauthbearer_header_urlencode", kinds.BOOLEAN, False,
               "OAUTHBEARER: true: client id and secret go to the endpoint form-encoded, as RFC 6749 has it; false: as "
               "they are, as JVM clients do unless told"),
        Option("allowedTokenUrls", "allowed_token_urls", Kind("URLs by commas", kinds.urls), None,
               "token endpoints that may be http, to which the client secret then goes for everybody to read"),
        Option("allowPlaintextCredentials", "allow_plaintext_credentials", kinds.BOOLEAN, False,
               "true: with SASL_PLAINTEXT send passwords and tokens though anybody on the way can read them"),
    )),
    Section("Batches and memory", _MEASURED, (
        Option("kafka.batch.size", "batch_size", kinds.integer(1 * KIB, 64 * MIB), 1 * MIB,
               "bytes of one record batch before compression; shrinks with many partitions so that all fit "
               "kafka.buffer.memory"),
        Option("kafka.linger.ms", "linger_ms", kinds.MILLISECONDS_OR_NONE, 100,
               "how long a batch that is not full waits for more rows; the end of a task never waits"),
        Option("kafka.buffer.memory", "buffer_memory", kinds.integer(1 * MIB, 2**40), 64 * MIB,
               "bytes of rows that one worker process holds unacknowledged; Spark waits beyond. At least twice "
               "kafka.batch.size"),
        Option("kafka.max.request.size", "max_request_size", kinds.integer(1 * KIB, 100 * MIB), 1 * MIB,
               "bytes of record batches in one request, and of one row; at most the whole batches that "
               "kafka.buffer.memory has room for"),
        Option("kafka.compression.type", "compression_type",
               kinds.one_of("none", "gzip", "snappy", "lz4", "zstd"), "zstd",
               "a batch that it would make larger goes uncompressed"),
        Option("kafka.compression.gzip.level", "compression_gzip_level",
               Kind("a whole number from 1 to 9, or -1", kinds.gzip_level), -1,
               "1 is fast, 9 small; -1: zlib's default, 6"),
        Option("kafka.compression.lz4.level", "compression_lz4_level", kinds.integer(1, 17), 9,
               "9: lz4's fast mode, as in Kafka; any other: its high-compression mode, which ends at 12"),
        Option("kafka.compression.zstd.level", "compression_zstd_level", kinds.integer(-131_072, 22), None,
               "-131072 is fast, 22 small, as zstd itself has them; without one, 0.9 to 1.1 times the ratio of 3, "
               "Kafka's default, at 1.4 to 2 times its speed"),
    )),
    Section("How long to wait", "All in milliseconds.", (
        Option("kafka.max.block.ms", "max_block_ms", kinds.MILLISECONDS_OR_NONE, 60_000,
               "how long a write waits for metadata, or for buffer memory while none comes back, before it fails; "
               "without the time in which a broker throttles"),
        Option("kafka.delivery.timeout.ms", "delivery_timeout_ms", kinds.MILLISECONDS, 120_000,
               "how long a batch may take from its first row to its acknowledgement, retries included, without the "
               "time in which its broker throttles; at least kafka.linger.ms + kafka.request.timeout.ms"),
        Option("kafka.request.timeout.ms", "request_timeout_ms", kinds.MILLISECONDS, 30_000,
               "how long one request waits for its answer before the connection is given up"),
        Option("kafka.retry.backoff.ms", "retry_backoff_ms", kinds.MILLISECONDS_OR_NONE, 100,
               "pause before the first retry; doubles, with jitter"),
        Option("kafka.retry.backoff.max.ms", "retry_backoff_max_ms", kinds.MILLISECONDS_OR_NONE, 1_000,
               "longest pause between retries, also where kafka.retry.backoff.ms is longer"),
        Option("kafka.metadata.max.age.ms", "metadata_max_age_ms", kinds.MILLISECONDS, 300_000,
               "topics, partitions and leaders are asked for again after this, errors aside"),
    )),
    Section("Connections", "", (
        Option("kafka.client.id", "client_id", kinds.TEXT, "pykafka",
               "name in the brokers' logs, metrics and quotas"),
        Option("kafka.client.rack", None, kinds.TEXT, "",
               "accepted without effect: rows go to the leader of their partition, wherever it is, and no partition is "
               "chosen for its rack"),
        Option("kafka.client.dns.lookup", None, kinds.one_of("use_all_dns_ips"), "use_all_dns_ips",
               "accepted without effect: all addresses of a name are tried (KIP-302)"),
        Option("kafka.reconnect.backoff.ms", "reconnect_backoff_ms", kinds.MILLISECONDS_OR_NONE, 50,
               "pause before the first new attempt to connect to a broker; doubles, with jitter"),
        Option("kafka.reconnect.backoff.max.ms", "reconnect_backoff_max_ms", kinds.MILLISECONDS_OR_NONE, 1_000,
               "longest pause between attempts to connect, also where kafka.reconnect.backoff.ms is longer"),
        Option("kafka.connections.max.idle.ms", "connections_max_idle_ms", kinds.MILLISECONDS, 540_000,
               "idle connections are closed after this, idle producers when the worker's next write begins"),
        Option("kafka.socket.connection.setup.timeout.ms", "socket_connection_setup_timeout_ms",
               kinds.MILLISECONDS, 10_000,
               "how long one address of a broker may take to accept a connection; doubles with each failure, with "
               "jitter"),
        Option("kafka.socket.connection.setup.timeout.max.ms", "socket_connection_setup_timeout_max_ms",
               kinds.MILLISECONDS,
               30_000,
               "longest time for that, also where kafka.socket.connection.setup.timeout.ms is longer"),
        Option("kafka.send.buffer.bytes", "send_buffer_bytes", kinds.SOCKET_BUFFER, -1,
               "the socket's SO_SNDBUF; -1: the system's, which grows with the connection. Java's 131072 takes a "
               "request of 1 MiB in a dozen pieces"),
        Option("kafka.receive.buffer.bytes", "receive_buffer_bytes", kinds.SOCKET_BUFFER, 32_768,
               "the socket's SO_RCVBUF; -1: the system's"),
    )),
)  # fmt: skip

OPTIONS: tuple[Option, ...] = tuple(option for section in SECTIONS for option in section.options)

SPARK_OPTIONS = ("checkpointLocation", "queryName", "path")

_NO_CLASSES = (
    "remove it: the sink runs no classes named in options, and its mechanisms need none; OAUTHBEARER fetches tokens by "
    "kafka.sasl.oauthbearer.token.endpoint.url, or calls what kafka_sink.register(spark, token=...) was given."
)

_BROKERS_VERIFY = "remove it: brokers verify tokens, and the sink does not."
_NO_REPORTERS = "remove it: the sink runs no classes named in options, and reports to none of Java's."

REFUSED: Mapping[str, str] = {
    "kafka.key.serializer": "cast the 'key' column to string or binary; its bytes are sent as they are.",
    "kafka.value.serializer": "cast the 'value' column to string or binary; its bytes are sent as they are.",
    "kafka.interceptor.classes": "the sink runs no classes named in options; give objects to "
    "kafka_sink.register(spark, interceptors=[...]), or transform the DataFrame.",
    "kafka.partitioner.class": "use the 'partitioner' option, or a 'partition' column.",
    "kafka.transactional.id": "the sink names its transactions itself.",
    "kafka.ssl.truststore.password": "PEM certificates have no password: remove it. If the truststore is a Java store: "
    + conversion("kafka.ssl.truststore.location", "truststore.jks", "JKS"),
    "kafka.ssl.keystore.password": "a PEM file has no password of its own: remove it; that of the private key in it is "
    "kafka.ssl.key.password. If the keystore is a Java store: "
    + conversion("kafka.ssl.keystore.location", "keystore.jks", "JKS"),
    "kafka.ssl.cipher.suites": "remove it: the ciphers are those of the Python on the executors.",
    "kafka.ssl.provider": "remove it: there is no Java security provider here.",
    "kafka.ssl.keymanager.algorithm": "remove it: it is Java's.",
    "kafka.ssl.trustmanager.algorithm": "remove it: it is Java's.",
    "kafka.ssl.secure.random.implementation": "remove it: it is Java's.",
    "kafka.ssl.engine.factory.class": _NO_CLASSES,
    "kafka.security.providers": _NO_CLASSES,
    "kafka.sasl.client.callback.handler.class": _NO_CLASSES,
    "kafka.sasl.login.callback.handler.class": _NO_CLASSES,
    "kafka.sasl.login.class": _NO_CLASSES,
    "kafka.sasl.oauthbearer.jwt.retriever.class": _NO_CLASSES,
    "kafka.sasl.oauthbearer.jwt.validator.class": _NO_CLASSES,
    "kafka.sasl.oauthbearer.clock.skew.seconds": _BROKERS_VERIFY,
    "kafka.sasl.oauthbearer.expected.audience": _BROKERS_VERIFY,
    "kafka.sasl.oauthbearer.expected.issuer": _BROKERS_VERIFY,
    "kafka.sasl.oauthbearer.scope.claim.name": _BROKERS_VERIFY,
    "kafka.sasl.oauthbearer.sub.claim.name": _BROKERS_VERIFY,
    "kafka.metric.reporters": _NO_REPORTERS,
    "kafka.auto.include.jmx.reporter": _NO_REPORTERS,
    "kafka.enable.metrics.push": _NO_REPORTERS,
    "kafka.config.providers": "remove it, and write the values themselves: the sink runs no classes named in options.",
    "kafka.metadata.max.idle.ms": "remove it: nothing here goes by it.",
    "kafka.transaction.two.phase.commit.enable": "remove it: deliveryGuarantee=exactly-once commits in two phases.",
}

NOT_YET_PREFIXES = ("kafka.sasl.kerberos.", "kafka.sasl.oauthbearer.assertion.")
REFUSED_PREFIXES: Mapping[str, str] = {
    "kafka.sasl.login.": "remove it: tokens are fetched again at 80 % of their lifetime, and a fetch is tried twice.",
    "kafka.sasl.oauthbearer.jwks.": _BROKERS_VERIFY,
    "kafka.partitioner.": "use the 'partitioner' option, or a 'partition' column.",
    "kafka.metrics.": _NO_REPORTERS,
    "kafka.metadata.recovery.": "remove it: nothing here goes by it.",
}

BY_KEY = {option.name.lower(): option for option in OPTIONS}
_SPARK_KEYS = frozenset(name.lower() for name in SPARK_OPTIONS)
_REFUSED_BY_KEY = {name.lower(): name for name in REFUSED}


def option_named(key: str, *, prefix: str = "") -> Option | None:
    """The table's row for `key`, in any case; None for a key that is Spark's own. `prefix`: what stood before it.

    Raises UnknownOption, with the nearest known names, or RefusedOption, with what to do instead.
    """
    folded = key.lower()
    if folded in BY_KEY:
        return BY_KEY[folded]
    if folded in _SPARK_KEYS and not prefix:
        return None
    if folded in _REFUSED_BY_KEY:
        name = _REFUSED_BY_KEY[folded]
        raise RefusedOption(option=prefix + name, instead=REFUSED[name])
    for start, instead in REFUSED_PREFIXES.items():
        if folded.startswith(start):
            raise RefusedOption(option=prefix + key, instead=instead)
    if folded.startswith(NOT_YET_PREFIXES):
        raise RefusedOption(option=prefix + key, instead="this version does not have it yet.")
    raise UnknownOption(option=prefix + key, nearest=[prefix + name for name in _nearest(folded)])


def _nearest(folded: str) -> list[str]:
    """Up to two known names: those that look like it, else those that would with the prefix put there or taken away."""
    for attempt in (folded, f"kafka.{folded}", folded.removeprefix("kafka.")):
        near = difflib.get_close_matches(attempt, BY_KEY, n=2, cutoff=0.75)
        if near:
            return [BY_KEY[match].name for match in near]
    return []
