"""The options of a write, as one table.

Each row of `OPTIONS` describes one option: its name, the field it fills, the reader of its text, its default, its
meaning, and if its value is secret. Client options have Kafka's name behind Spark's prefix `kafka.`. Connector options
are camelCase. Names are case-insensitive, because Spark converts them to lower case. Messages print the name as it is
in the table.

`options/config.py` builds the configuration from the table. `tools/options_page.py` writes docs/options.md from it.
Error messages and the suggestions for unknown names use it too.

Three more tables list names that are not options of this sink:

- `SPARK_OPTIONS`: they belong to Spark and are ignored.
- `REFUSED` and `REFUSED_PREFIXES`: they cannot work in this sink.
- `NOT_YET_PREFIXES`: this version does not support them yet.

The value of an option with `redact=True` is wrapped in `Secret`. `Option.invalid` makes every message about a value,
so no message shows a secret value.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.kafka.auth.jaas import parse_jaas
from kafka_sink.kafka.new_topic import EXAMPLE
from kafka_sink.options import kinds
from kafka_sink.options.kinds import (
    INT32_MAX,
    INT64_MAX,
    KIB,
    MIB,
    OUTAGE_MS,
    REQUIRED,
    Kind,
    Option,
    OptionTable,
    Section,
)

_MEASURED = """\
Java's defaults (`batch.size` 16 KiB, `linger.ms` 5, `buffer.memory` 32 MiB) suit applications that send single rows.
Spark hands over thousands of rows at a time. Each batch has fixed costs: its header, a compressor call, a share of a
request, an entry in the broker's log index. Larger batches pay these costs less often.

The table shows medians for one producer that sends 400,000 rows (8-byte keys, 100-byte values) with zstd to a local
broker. Other programs used the 2 cores too, so the table shows CPU time and counts instead of rows per second. CPU time
varies by a fifth from run to run.

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

Above 64 KiB the producer's own CPU time no longer falls. The work of brokers and readers depends on the count of
batches. 1 MiB is also the largest batch that a broker accepts with the default `message.max.bytes`. Twice the memory
reduces the count only a little.

`kafka.linger.ms` has little effect on a task whose rows arrive quickly, because its batches fill while others are in
flight. With 200 partitions, three measurements gave 435 to 578 batches at 100 ms and 400 to 453 at 1000 ms. At 0 and
5 ms they gave more: 515 to 1508."""


_EXACTLY_ONCE = """\
For `deliveryGuarantee` = `exactly-once`. Set all of these, and `kafka.bootstrap.servers`, as options of the write. They
are needed where Spark plans and commits a micro-batch, and Spark passes its conf to tasks only."""


_RECEIPTS = """\
A receipt is a file that lists the record batches of a write, one row for each: topic, partition, first offset, count,
checksum. `kafka_sink.receipts` reads receipts as a DataFrame. `pykafka verify` compares them with the topics. With
`receiptsPath` set, a task's commit message grows by 36 bytes for each record batch (up to `kafka.batch.size` of rows).

Exactly-once: the sink writes the file before it decides to commit the micro-batch. So all visible rows have a receipt,
and a micro-batch whose receipt cannot be written fails. At-least-once: the sink writes the file when all rows are in
Kafka. It tries three times, then logs a warning, and the write goes on. To fail the write would only write its rows
again."""


_BAD_ROWS = """\
A row is bad if the cause is in the row itself:

- it is larger than `kafka.max.request.size`, or, compressed, larger than its topic's `max.message.bytes`
- its topic is null, empty or an invalid name
- it names a partition that its topic does not have
- its time is before 1970, or further from now than its topic allows
- a header has no key, or a key that is not UTF-8
- it has no key, and its topic is compacted
- it was made of a record that `kafka_sink.registry.deserialized` could not decode, with `bad_rows="deadLetter"`

The sink finds bad rows before it sends them, as far as it knows the settings of the topic. A task asks for these
settings once for each topic, which needs the ACL TOPIC DESCRIBE_CONFIGS. Rows that a leader refuses by their index are
bad too."""


_RATE = """\
Limits the rate of a write to a topic that other applications use too. A write that is slower anyway is not affected.

Spark does not tell a Python sink how many tasks a write has. So set `rateTasks`: each task gets that part of the rate.
The exact value is the number of tasks that run at once. That is the number of the DataFrame's partitions
(`df.rdd.getNumPartitions()`, after a shuffle the number it was repartitioned to), or the number of cores if that is
smaller.

| Tasks that run at once | Rate of the write |
|---|---|
| fewer than `rateTasks` (16 tasks share 2 cores, or only the last tasks still run) | lower in proportion |
| as many as `rateTasks` | as set |
| more than `rateTasks` | higher; the commit logs a warning |

For a limit that no job can exceed, set a quota on the brokers: they throttle a client id or user (KIP-219). The sink
waits while the brokers throttle it, and the task logs a warning meanwhile.

A task hands over the rows of a tenth of a second at a time, then waits. After a slow source it catches up by at most
that amount. Kafka's timeouts do not run for rows that wait. With exactly-once, transactions are open while the
micro-batch is written. A micro-batch that takes longer than `kafka.transaction.timeout.ms` fails with
RateOutlastsTransaction. So limit its size too, for example with `maxOffsetsPerTrigger` of the source."""


_SECURITY = """\
The options of a JVM client's `client.properties`, with the prefix `kafka.`. Stores are PEM, PKCS12 or JKS.
The sink reads the files where it connects: on executors, and with exactly-once also where the write is planned. Errors
in a file are found there.

Set secrets as options of the write. They go to executors, and no message, plan or event log shows them. Spark shows its
conf in its UI and event log, except names and values that match `spark.redaction.regex`. By default it matches
`secret`, `password` and `token`, and so does not cover `kafka.ssl.keystore.key`."""


_ACKS = kinds.words("'all' (or '-1'), '1' or '0'", {"all": "all", "-1": "all", "1": "1", "0": "0"})

SECTIONS: tuple[Section, ...] = (
    Section("Where to", "", (
        Option("kafka.bootstrap.servers", "bootstrap_servers",
               Kind("host:port[,host:port...]", kinds.bootstrap_servers),
               REQUIRED,
               "some brokers of the cluster; the client learns the others from them"),
        Option("topic", "topic", kinds.TOPIC, None,
               "topic of every row; overrides a `topic` column, and is required if there is no such column"),
        Option("createTopics", "create_topics",
               Kind(f"true, false, or settings of the topic: {EXAMPLE}", kinds.create_topics), False,
               "creates a missing `topic` at the start of a write, in kafka_sink.validate and in pykafka check. Names: "
               "partitions, replicas, and the topic settings of Kafka. Settings that are left out have the brokers' "
               "default; with true all have it. An existing topic is not changed. Topics that rows name are not "
               "created"),
        Option("sailPartitions", "sail_partitions", kinds.integer(1), None,
               "for batch writes on Sail, where it is required: how many partitions the last step of the DataFrame "
               "makes, coalesce(1) or repartition(n). Sail may fail other writes after their rows are written. "
               "kafka_sink.export adds the step itself, by default coalesce(1). Spark needs no such number"),
        Option("partitioner", "partitioner",
               kinds.one_of("murmur2", "murmur3", "consistent", "fnv1a", "roundrobin", "sticky"), "murmur2",
               "murmur2: a key goes to the same partition as with JVM producers; murmur3: by mmh3's hash; consistent: "
               "as with librdkafka's `consistent`, which sends rows without a key to partition 0; fnv1a: as with "
               "Sarama. With murmur2, murmur3 and fnv1a, rows without a key stay on one partition for about a batch. "
               "roundrobin and sticky ignore keys: roundrobin changes the partition after each row, sticky after each "
               "batch"),
        Option("includeHeaders", None, kinds.BOOLEAN, True,
               "accepted as in Spark's Kafka sink, without effect: the sink writes headers if the column exists"),
    )),
    Section("What is guaranteed", "", (
        Option("deliveryGuarantee", "delivery_guarantee",
               kinds.one_of("at-least-once", "exactly-once"), "at-least-once",
               "at-least-once: a row is in Kafka before Spark records it as written, and may be there twice after a "
               "failure; exactly-once: readers with isolation.level=read_committed see each row once, even after a "
               "crash"),
        Option("rowIdentity", "row_identity", kinds.BOOLEAN, False,
               "true: each record has headers that identify its row and write (pykafka.topic, pykafka.query, "
               "pykafka.batch, pykafka.slot, pykafka.row). They stay the same when a micro-batch or task runs again "
               "over the same rows in the same order and partitions. kafka_sink.dedupe removes the duplicates. A batch "
               "write, also in foreachBatch, has a new identity each time it runs"),
        Option("kafka.acks", "acks", _ACKS, "all",
               "all: a row is acknowledged when every in-sync replica has it; 1: when the leader has it, so rows are "
               "lost if the leader dies; 0: when the client has sent it. With 0 rows are also lost, without an error, "
               "if the connection breaks or the broker refuses them, and receipts have no offsets"),
        Option("kafka.enable.idempotence", "enable_idempotence", kinds.BOOLEAN, True,
               "sequence numbers: a network retry cannot duplicate or reorder rows. Needs kafka.acks=all, "
               "kafka.retries of 1 or more and at most 5 requests in flight. If one of these differs and this option "
               "is not set, it is off, as in Kafka's own producer. Without it a retry may duplicate rows. It may also "
               "reorder them unless kafka.max.in.flight.requests.per.connection is 1"),
        Option("kafka.retries", "retries", kinds.integer(0), INT32_MAX,
               "how often the sink sends a batch again before the write fails; kafka.delivery.timeout.ms is the better "
               "limit. 0 switches kafka.enable.idempotence off"),
        Option("kafka.max.in.flight.requests.per.connection", "max_in_flight_requests_per_connection",
               kinds.integer(1), 5,
               "unanswered requests to one broker; brokers remember 5 batches for each producer and partition, so more "
               "than 5 switches kafka.enable.idempotence off"),
    )),
    Section("Rows that cannot be written", _BAD_ROWS, (
        Option("badRows", "bad_rows", kinds.one_of("fail", "drop", "deadLetter"), "fail",
               "fail: the first bad row fails its task; drop: bad rows are skipped, counted and logged; deadLetter: "
               "they go to deadLetterTopic. An error of the cluster is never a bad row and always fails the task"),
        Option("deadLetterTopic", "dead_letter_topic", kinds.TOPIC, None,
               "topic for bad rows, with headers that say what was wrong; required with badRows=deadLetter. No row may "
               "name this topic"),
        Option("maxBadRows", "max_bad_rows", kinds.integer(0, INT64_MAX), None,
               "largest number of bad rows. More in one task fail the task; more in all tasks together fail the write "
               "or micro-batch. With at-least-once the other rows are in Kafka by then"),
        Option("maxBadRowFraction", "max_bad_row_fraction", Kind("a number from 0 to 1", kinds.fraction), None,
               "largest fraction of bad rows among all rows; checked at the end of each task, and again for all tasks "
               "together"),
    )),
    Section("Exactly once", _EXACTLY_ONCE, (
        Option("transactionalIdPrefix", "transactional_id_prefix", kinds.PREFIX, None,
               "start of the names of transactional ids and consumer groups; each stream needs its own. The default is "
               "pykafka-<query id> if checkpointLocation is an option of the write and a folder on the driver's host; "
               "otherwise the sink derives it from checkpointLocation. A batch write has a new prefix each time, or "
               "uses txnAppId"),
        Option("txnAppId", "txn_app_id", kinds.PREFIX, None,
               "for batch writes, also in foreachBatch: name of the writer, and start of the names of its "
               "transactional ids and consumer groups; each writer needs its own. txnAppId and txnVersion together "
               "identify a write: a committed write is not written again"),
        Option("txnVersion", "txn_version", kinds.integer(0, INT64_MAX), None,
               "number of the write under its txnAppId, in foreachBatch the batch id. It must increase; gaps are "
               "allowed. A repeated or lower number writes nothing and logs a warning. The first number must be 0, or "
               "needs allowLostState=true"),
        Option("commitTopic", "commit_topic", kinds.TOPIC, "pykafka-commits",
               "the sink stores markers and decisions of commits as committed offsets of this topic's partition 0; it "
               "writes no records into it. The topic has two partitions. The sink creates a missing topic if the "
               "cluster allows that"),
        Option("allowLostState", "allow_lost_state", kinds.BOOLEAN, False,
               "true: continue even if the state of earlier micro-batches or versions is lost, or part of the last one "
               "is missing"),
        Option("kafka.transaction.timeout.ms", "transaction_timeout_ms", kinds.integer(10_000), 900_000,
               "how long a micro-batch's transactions may be open before the brokers abort them; at most the brokers' "
               "transaction.max.timeout.ms"),
    )),
    Section("Rate", _RATE, (
        Option("maxRowsPerSecond", "max_rows_per_second", kinds.integer(1, INT64_MAX), None,
               "rows that the whole write hands over in a second; needs rateTasks"),
        Option("maxBytesPerSecond", "max_bytes_per_second", kinds.integer(1, INT64_MAX), None,
               "bytes that the whole write hands over in a second: keys, values and the rows' own headers, before "
               "compression; needs rateTasks"),
        Option("rateTasks", "rate_tasks", kinds.integer(1), None,
               "how many tasks of the write run at once; each gets this part of the rate"),
    )),
    Section("Receipts", _RECEIPTS, (
        Option("receiptsPath", "receipts_path",
               Kind("an absolute path, or a URI: s3://bucket/folder", kinds.folder), None,
               "folder for receipts: one file for each micro-batch and batch write. It is on the driver, or anywhere "
               "that pyarrow.fs.FileSystem.from_uri can open (s3a is read as s3). hdfs:// needs "
               "pyspark-pykafka[hdfs]. The sink creates a missing folder"),
        Option("receiptName", "receipt_name", kinds.PREFIX, None,
               "name of a batch write in its receipt (a stream's receipts have the query's id). It must be an option "
               "of the write, and different for each write: a second receipt with the same name replaces the first. "
               "The default is random"),
    )),
    Section("Security", _SECURITY, (
        Option("kafka.security.protocol", "security_protocol", kinds.one_of(*kinds.SECURITY_PROTOCOLS), "PLAINTEXT",
               "SSL: connections are encrypted, and the client verifies the brokers; SASL_SSL: the client also "
               "authenticates with kafka.sasl.mechanism; SASL_PLAINTEXT: the client authenticates over connections "
               "that anybody can read. Required with any kafka.ssl or kafka.sasl option that differs from its default"),
        Option("kafka.ssl.truststore.type", None, kinds.store_type("kafka.ssl.truststore.location"), None,
               "accepted without effect: the sink recognises the format by the file's content. PKCS12 needs the extra "
               "keystores"),
        Option("kafka.ssl.truststore.location", "ssl_truststore_location", kinds.STORE_LOCATION, None,
               "file with the certificates of the CAs to trust, on every executor, and with exactly-once on the driver "
               "too. If neither this nor kafka.ssl.truststore.certificates is set, the client trusts the system's CAs"),
        Option("kafka.ssl.truststore.password", "ssl_truststore_password", kinds.PASSWORD, None,
               "password of a JKS or PKCS12 truststore. A JKS store is read without it too, and then not verified",
               redact=True),
        Option("kafka.ssl.truststore.certificates", "ssl_truststore_certificates", kinds.TEXT, None,
               "the same certificates as PEM text, instead of a file"),
        Option("kafka.ssl.keystore.type", None, kinds.store_type("kafka.ssl.keystore.location"), None,
               "as kafka.ssl.truststore.type"),
        Option("kafka.ssl.keystore.location", "ssl_keystore_location", kinds.STORE_LOCATION, None,
               "file with the client's private key and its certificate chain, for brokers that require a client "
               "certificate. Of several private keys the sink uses the first in the file"),
        Option("kafka.ssl.keystore.password", "ssl_keystore_password", kinds.PASSWORD, None,
               "password of a JKS or PKCS12 keystore", redact=True),
        Option("kafka.ssl.keystore.certificate.chain", "ssl_keystore_certificate_chain", kinds.TEXT, None,
               "the client's certificate chain as PEM text; needs kafka.ssl.keystore.key"),
        Option("kafka.ssl.keystore.key", "ssl_keystore_key", kinds.TEXT, None,
               "the client's private key as PEM text; needs kafka.ssl.keystore.certificate.chain", redact=True),
        Option("kafka.ssl.key.password", "ssl_key_password", kinds.PASSWORD, None,
               "password of an encrypted private key in PEM. In JKS: password of the private key if it differs from "
               "kafka.ssl.keystore.password", redact=True),
        Option("kafka.ssl.endpoint.identification.algorithm", "ssl_endpoint_identification_algorithm",
               kinds.words("'https', or nothing", {"https": "https", "": ""}), "https",
               "https: a broker's certificate must name the host that the client connected to; nothing: any host with "
               "a certificate of the same CAs can pretend to be a broker"),
        Option("kafka.ssl.enabled.protocols", "ssl_enabled_protocols",
               Kind("TLSv1.2, TLSv1.3 or both", kinds.tls_versions), "TLSv1.2,TLSv1.3",
               "versions of TLS that the client offers"),
        Option("kafka.ssl.protocol", "ssl_protocol", kinds.SSL_PROTOCOL, "TLSv1.3",
               "accepted without effect: kafka.ssl.enabled.protocols decides"),
        Option("kafka.sasl.mechanism", "sasl_mechanism", kinds.one_of(*kinds.SASL_MECHANISMS), None,
               "how the client authenticates; required with SASL_SSL and SASL_PLAINTEXT. AWS_MSK_IAM signs tokens "
               "with the AWS credentials of the host that connects"),
        Option("kafka.sasl.jaas.config", "sasl_jaas_config",
               Kind('org.apache.kafka.common.security.<...>LoginModule required username="..." password="...";',
                    parse_jaas),
               None,
               "credentials in the form of JVM clients: PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule, "
               "MSK's IAMLoginModule, or Java's Krb5LoginModule, whose keyTab or ticketCache is read on driver and "
               "executors; pykafka does not run the class",
               redact=True),
        Option("kafka.sasl.client.callback.handler.class", None,
               Kind("software.amazon.msk.auth.iam.IAMClientCallbackHandler", kinds.callback_handler), None,
               "accepted without effect: a line that AWS's documentation has for AWS_MSK_IAM; pykafka does not run "
               "the class"),
        Option("kafka.sasl.username", "sasl_username", kinds.TEXT, None,
               "user name, instead of kafka.sasl.jaas.config"),
        Option("kafka.sasl.password", "sasl_password", kinds.PASSWORD, None,
               "password, instead of kafka.sasl.jaas.config", redact=True),
        Option("kafka.sasl.kerberos.service.name", "sasl_kerberos_service_name",
               Kind("the first part of the brokers' principals, such as kafka", kinds.service_name), None,
               "Kerberos (GSSAPI): the first part of the brokers' principals, <name>/<advertised host>@REALM; "
               "instead of serviceName in kafka.sasl.jaas.config. Without kafka.sasl.jaas.config the client uses the "
               "ticket of kinit"),
        Option("kafka.sasl.oauthbearer.token.endpoint.url", "sasl_oauthbearer_token_endpoint_url",
               Kind("an https URL", kinds.url), None,
               "OAUTHBEARER: the endpoint that issues tokens by the client-credentials grant. To supply tokens "
               "yourself, pass a callable to kafka_sink.register(spark, token=...)"),
        Option("kafka.sasl.oauthbearer.client.credentials.client.id", "sasl_oauthbearer_client_id", kinds.TEXT, None,
               "OAUTHBEARER: the client id, instead of clientId in kafka.sasl.jaas.config"),
        Option("kafka.sasl.oauthbearer.client.credentials.client.secret", "sasl_oauthbearer_client_secret",
               kinds.PASSWORD, None,
               "OAUTHBEARER: the client secret, instead of clientSecret in kafka.sasl.jaas.config", redact=True),
        Option("kafka.sasl.oauthbearer.scope", "sasl_oauthbearer_scope", kinds.TEXT, None,
               "OAUTHBEARER: the scope to ask for, instead of scope in kafka.sasl.jaas.config"),
        Option("kafka.sasl.oauthbearer.header.urlencode", "sasl_oauthbearer_header_urlencode", kinds.BOOLEAN, False,
               "OAUTHBEARER: true: the client sends its id and secret form-encoded, as RFC 6749 requires; false: it "
               "sends them unchanged, which is the default of JVM clients"),
        Option("allowedTokenUrls", "allowed_token_urls", Kind("URLs, separated by commas", kinds.urls), None,
               "token endpoints that may be http; anybody on the network can then read the client secret"),
        Option("allowPlaintextCredentials", "allow_plaintext_credentials", kinds.BOOLEAN, False,
               "true: with SASL_PLAINTEXT the client sends passwords and tokens that anybody on the network can read"),
    )),
    Section("Batches and memory", _MEASURED, (
        Option("kafka.batch.size", "batch_size", kinds.integer(1 * KIB, 64 * MIB), 1 * MIB,
               "bytes of one record batch before compression; with many partitions the sink uses smaller batches, so "
               "that all fit in kafka.buffer.memory"),
        Option("kafka.linger.ms", "linger_ms", kinds.MILLISECONDS_OR_NONE, 100,
               "how long a batch that is not full waits for more rows; the end of a task does not wait"),
        Option("kafka.buffer.memory", "buffer_memory", kinds.integer(1 * MIB, 2**40), 64 * MIB,
               "bytes of unacknowledged rows in one worker process; when they are used up, Spark waits. At least twice "
               "kafka.batch.size"),
        Option("kafka.max.request.size", "max_request_size", kinds.integer(1 * KIB, 100 * MIB), 1 * MIB,
               "bytes of record batches in one request, and of one row; at most the bytes of the whole batches that "
               "fit in kafka.buffer.memory"),
        Option("kafka.compression.type", "compression_type",
               kinds.one_of("none", "gzip", "snappy", "lz4", "zstd"), "zstd",
               "a batch that compression would make larger is sent uncompressed"),
        Option("kafka.compression.gzip.level", "compression_gzip_level",
               Kind("a whole number from 1 to 9, or -1", kinds.gzip_level), -1,
               "1: fastest; 9: smallest; -1: zlib's default, 6"),
        Option("kafka.compression.lz4.level", "compression_lz4_level", kinds.integer(1, 17), 9,
               "9: lz4's fast mode, as in Kafka; any other: its high-compression mode, which ends at 12"),
        Option("kafka.compression.zstd.level", "compression_zstd_level", kinds.integer(-131_072, 22), None,
               "-131072: fastest; 22: smallest, as in zstd itself. The default compresses 0.9 to 1.1 times as well as "
               "level 3, Kafka's default, at 1.4 to 2 times its speed"),
    )),
    Section("How long to wait", "All in milliseconds.", (
        Option("kafka.max.block.ms", "max_block_ms", kinds.MILLISECONDS_OR_NONE, OUTAGE_MS,
               "how long a write waits for metadata, for coordinators, or for buffer memory while none is freed, "
               "before it fails; time in which a broker throttles counts for a tenth. If no broker has ever answered, "
               "it fails earlier"),
        Option("kafka.delivery.timeout.ms", "delivery_timeout_ms", kinds.MILLISECONDS, OUTAGE_MS,
               "how long a batch may take from its first row to its acknowledgement, retries included; time in which "
               "its broker throttles does not count, up to ten times the limit. At least kafka.linger.ms + "
               "kafka.request.timeout.ms. The default is not longer than kafka.transaction.timeout.ms with "
               "deliveryGuarantee=exactly-once"),
        Option("kafka.request.timeout.ms", "request_timeout_ms", kinds.MILLISECONDS, 30_000,
               "how long one request waits for its answer before the client closes the connection"),
        Option("kafka.retry.backoff.ms", "retry_backoff_ms", kinds.MILLISECONDS_OR_NONE, 100,
               "pause before the first retry; doubles, with jitter"),
        Option("kafka.retry.backoff.max.ms", "retry_backoff_max_ms", kinds.MILLISECONDS_OR_NONE, 1_000,
               "longest pause between retries, even if kafka.retry.backoff.ms is longer"),
        Option("kafka.metadata.max.age.ms", "metadata_max_age_ms", kinds.MILLISECONDS, 300_000,
               "after this time the client asks again for topics, partitions and leaders; after an error it asks "
               "earlier"),
    )),
    Section("Connections", "", (
        Option("kafka.metadata.recovery.strategy", "metadata_recovery_strategy", kinds.one_of("rebootstrap", "none"),
               "rebootstrap",
               "`rebootstrap`: the client asks its bootstrap servers again if no broker can be reached, if the cluster "
               "tells it to (Kafka 4.0), and after kafka.metadata.recovery.rebootstrap.trigger.ms; `none`: never once "
               "it knows the brokers"),
        Option("kafka.metadata.recovery.rebootstrap.trigger.ms", "metadata_recovery_rebootstrap_trigger_ms",
               kinds.MILLISECONDS_OR_NONE, 300_000,
               "when brokers that can be reached have answered no request for metadata for so long, the client forgets "
               "them and asks its bootstrap servers"),
        Option("kafka.client.id", "client_id", kinds.TEXT, "pykafka",
               "name in the brokers' logs, metrics and quotas"),
        Option("kafka.client.rack", None, kinds.TEXT, "",
               "accepted without effect: rows go to the leader of their partition, and racks do not influence the "
               "choice of the partition"),
        Option("kafka.client.dns.lookup", None, kinds.one_of("use_all_dns_ips"), "use_all_dns_ips",
               "accepted without effect: the client tries all addresses of a name (KIP-302)"),
        Option("kafka.reconnect.backoff.ms", "reconnect_backoff_ms", kinds.MILLISECONDS_OR_NONE, 50,
               "pause before the first new attempt to connect to a broker; doubles, with jitter"),
        Option("kafka.reconnect.backoff.max.ms", "reconnect_backoff_max_ms", kinds.MILLISECONDS_OR_NONE, 1_000,
               "longest pause between attempts to connect, even if kafka.reconnect.backoff.ms is longer"),
        Option("kafka.connections.max.idle.ms", "connections_max_idle_ms", kinds.MILLISECONDS, 540_000,
               "the client closes connections that were idle for this time; the worker's next write closes producers "
               "that were idle for this time"),
        Option("kafka.socket.connection.setup.timeout.ms", "socket_connection_setup_timeout_ms",
               kinds.MILLISECONDS, 10_000,
               "how long one address of a broker may take to accept a connection; doubles with each failure, with "
               "jitter"),
        Option("kafka.socket.connection.setup.timeout.max.ms", "socket_connection_setup_timeout_max_ms",
               kinds.MILLISECONDS,
               30_000,
               "longest time that one address may take to accept a connection, even if "
               "kafka.socket.connection.setup.timeout.ms is longer"),
        Option("kafka.send.buffer.bytes", "send_buffer_bytes", kinds.SOCKET_BUFFER, -1,
               "the socket's SO_SNDBUF; -1: the system's default, which grows with the connection. With Java's default "
               "of 131072 the socket takes a request of 1 MiB in a dozen pieces"),
        Option("kafka.receive.buffer.bytes", "receive_buffer_bytes", kinds.SOCKET_BUFFER, 32_768,
               "the socket's SO_RCVBUF; -1: the system's default"),
    )),
)  # fmt: skip

OPTIONS: tuple[Option, ...] = tuple(option for section in SECTIONS for option in section.options)

SPARK_OPTIONS = ("checkpointLocation", "queryName", "path")

_NO_CLASSES = (
    "remove it: pykafka does not run classes that options name. OAUTHBEARER fetches tokens from "
    "kafka.sasl.oauthbearer.token.endpoint.url, or calls the callable of kafka_sink.register(spark, token=...)."
)

_NO_KINIT = (
    "remove it: pykafka runs no kinit. With a keytab it gets a new ticket in the second half of a ticket's life; a "
    "ticket cache is read for each connection."
)
_OF_LIBRDKAFKA = (
    "it is an option of librdkafka. Use kafka.sasl.jaas.config = com.sun.security.auth.module.Krb5LoginModule required "
    'useKeyTab=true keyTab="..." principal="...";'
)
_BROKERS_VERIFY = "remove it: brokers verify tokens, and pykafka does not."
_NO_REPORTERS = "remove it: pykafka does not run classes that options name, and has no Java reporters."

REFUSED: Mapping[str, str] = {
    "kafka.key.serializer": "cast the 'key' column to string or binary; its bytes are sent as they are.",
    "kafka.value.serializer": "cast the 'value' column to string or binary; its bytes are sent as they are.",
    "kafka.interceptor.classes": "pykafka does not run classes that options name. Pass objects to "
    "kafka_sink.register(spark, interceptors=[...]), or transform the DataFrame.",
    "kafka.partitioner.class": "use the 'partitioner' option, or a 'partition' column.",
    "kafka.transactional.id": "pykafka names its transactions itself.",
    "kafka.ssl.cipher.suites": "remove it: pykafka uses the ciphers of the Python on the executors.",
    "kafka.ssl.provider": "remove it: pykafka has no Java security provider.",
    "kafka.ssl.keymanager.algorithm": "remove it: it is for Java clients only.",
    "kafka.ssl.trustmanager.algorithm": "remove it: it is for Java clients only.",
    "kafka.ssl.secure.random.implementation": "remove it: it is for Java clients only.",
    "kafka.ssl.engine.factory.class": _NO_CLASSES,
    "kafka.security.providers": _NO_CLASSES,
    "kafka.sasl.login.callback.handler.class": _NO_CLASSES
    + " For IAM of Amazon MSK set kafka.sasl.mechanism=AWS_MSK_IAM.",
    "kafka.sasl.login.class": _NO_CLASSES,
    "kafka.sasl.kerberos.kinit.cmd": _NO_KINIT,
    "kafka.sasl.kerberos.min.time.before.relogin": _NO_KINIT,
    "kafka.sasl.kerberos.ticket.renew.jitter": _NO_KINIT,
    "kafka.sasl.kerberos.ticket.renew.window.factor": _NO_KINIT,
    "kafka.sasl.kerberos.keytab": _OF_LIBRDKAFKA,
    "kafka.sasl.kerberos.principal": _OF_LIBRDKAFKA,
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
    "kafka.config.providers": "remove it, and set the values themselves: pykafka does not run classes that options "
    "name.",
    "kafka.metadata.max.idle.ms": "remove it: pykafka has no such setting.",
    "kafka.transaction.two.phase.commit.enable": "remove it: deliveryGuarantee=exactly-once commits in two phases.",
}

NOT_YET_PREFIXES = ("kafka.sasl.oauthbearer.assertion.",)
REFUSED_PREFIXES: Mapping[str, str] = {
    "kafka.sasl.login.": "remove it: pykafka fetches a new token at 80 % of the token's lifetime, and tries each "
    "fetch twice.",
    "kafka.sasl.oauthbearer.jwks.": _BROKERS_VERIFY,
    "kafka.partitioner.": "use the 'partitioner' option, or a 'partition' column.",
    "kafka.metrics.": _NO_REPORTERS,
}

# A user gives them to a write with a dict for both, or with INSERT INTO a view that reads.
_OF_READS_ONLY = (
    "subscribePattern", "assign", "failOnDataLoss", "startingOffsets", "startingTimestamp",
    "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "startingGroup", "startingGroupStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "reuseOffsets", "minPartitions",
    "maxRecordsPerPartition", "maxPartitions", "maxBytesPerTrigger", "maxOffsetsPerTrigger",
    "maxOffsetsPerPartitionPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupId",
    "maxDecompressedBatchBytes", "maxHeadersPerBatch", "kafkaConsumer.pollTimeoutMs", "groupIdPrefix",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
)  # fmt: skip
OF_READS: Mapping[str, str] = {
    "subscribe": "use topic: 'subscribe' is an option of reads. A view that is made with topic and with its columns, "
    "(key STRING, value STRING), takes INSERT INTO.",
    **dict.fromkeys(_OF_READS_ONLY, "remove it: it is an option of reads."),
}

WRITING = OptionTable(SECTIONS, SPARK_OPTIONS, {**REFUSED, **OF_READS}, REFUSED_PREFIXES, NOT_YET_PREFIXES)
