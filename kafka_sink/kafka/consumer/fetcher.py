"""Fetches the record sets of one range of offsets, in order, whatever happens to leaders, logs and connections.

    while not fetcher.is_done:
        wait_ms = fetcher.run_once(now_ms)                 # sends what is due
        fetcher.handle(network.poll(wait_ms), now_ms)      # takes answers
        record_set = fetcher.take(now_ms)                  # or None

One request is under way while the caller decodes the record set before: `run_once` sends the next Fetch as soon as the
answer to the last one was taken. So at most two record sets are in memory.

What is asked next is decided anew in each turn, from what is known (`_next_request`):

| Known | Asked |
|---|---|
| the leader has a newer epoch than was checked | OffsetForLeaderEpoch: is the log whole up to the range's end? |
| a broker said that the position is out of range | ListOffsets: where does the log begin and end? |
| otherwise | Fetch, of the preferred replica or the leader |

Non-obvious:

* A range ends when the position passes its end, never by a count: control batches, aborted transactions and
  compaction leave gaps.
* The check of epochs is KIP-320's, but of the range's end, not of the position: two logs that agree on the last record
  of an epoch agree on all before it. Each Fetch names the leader epoch that was checked, so no record of another
  leader slips in between.
* A throttling broker answers without records. That is no progress, but the time hardly counts (THROTTLED_LIMITS).

Pure: network and time are handed in. Source: org.apache.kafka.clients.consumer.internals.Fetcher, AbstractFetch,
FetchCollector, OffsetFetcher, SubscriptionState; KIP-74, KIP-320, KIP-392.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_sink.errors import (
    FetchRefused,
    KafkaSinkError,
    OffsetsLost,
    ReadStalled,
    RecordsCorrupt,
    TopicAuthorizationFailed,
)
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.backoff import backoff_ms
from kafka_sink.kafka.consumer.fetch_policy import Action, on_read_error
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, RecordSet, after_out_of_range
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS, NO_LEADER, Metadata
from kafka_sink.kafka.network import LONGEST_POLL_MS, Network
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse
from kafka_sink.kafka.protocol.apis.list_offsets import (
    EARLIEST,
    LATEST,
    AskedOffset,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka_sink.kafka.protocol.apis.metadata import MetadataResponse
from kafka_sink.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka_sink.kafka.protocol.client_response import ClientResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
from kafka_sink.kafka.protocol.requests import Request
from kafka_sink.kafka.protocol.topic_id import ids_differ
from kafka_sink.records.record_batch import next_offset

# How many times the limit without progress brokers may throttle a read that gets no record. A batch that is larger than
# a quota lets through in its whole window never comes.
THROTTLED_LIMITS = 10

# What a request is under way for.
_METADATA, _READ = object(), object()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Consumer settings under Kafka's names, with Java's defaults. `no_progress_ms`: how long a range may wait for a
    record. `fail_on_data_loss`: False leaves out what cannot be read."""

    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    max_bytes: int = 1024 * 1024
    min_bytes: int = 1
    max_wait_ms: int = 500
    client_rack: str = ""
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    no_progress_ms: int = 120_000
    fail_on_data_loss: bool = True


class Fetcher:
    """Fetches one range. `failure`: the error that ended it. `losses`: what was left out, if that is no failure."""

    def __init__(
        self,
        range_: FetchRange,
        *,
        settings: FetchSettings,
        network: Network,
        metadata: Metadata,
        rng: random.Random,
        now_ms: int,
    ) -> None:
        self.failure: KafkaSinkError | None = None
        self.losses: list[Loss] = []
        self._range = range_
        self._end = range_.end
        self._settings = settings
        self._network = network
        self._metadata = metadata
        self._rng = rng
        self._position = range_.first
        self._fetched: RecordSet | None = None
        self._is_asking = False
        self._not_before_ms = now_ms
        self._tries = 0
        # Since when the caller waits for a record set, on a clock without the time in which brokers throttle; and how
        # long brokers had throttled by then.
        self._waiting_since_ms: int | None = None
        self._throttled_before_ms = 0
        # Since when the metadata has another topic of this name.
        self._doubted_since_ms: int | None = None
        # The leader epoch under which the log was seen to reach the range's end.
        self._checked_epoch = range_.leader_epoch
        # Whether the bounds of the log are needed, and the first of them. `_truncated`: the log is known to be shorter
        # than the range, and the range ends with it.
        self._out_of_range = self._truncated = False
        self._earliest: int | None = None
        # The replica that the leader prefers for this client's rack, and until when.
        self._replica = NO_LEADER
        self._replica_until_ms = 0
        # For the message of a range that gets no further.
        self._high_watermark = self._last_stable_offset = -1
        self._last_error = ""
        metadata.want({range_.topic}, now_ms)

    @property
    def is_done(self) -> bool:
        """True after the last record set was taken, and after a failure."""
        return self.failure is not None or (self._has_all and self._fetched is None)

    @property
    def _has_all(self) -> bool:
        return self._position >= self._end

    def take(self, now_ms: int) -> RecordSet | None:
        """Return the next record set, if it is there. If not, the caller waits from now on."""
        record_set, self._fetched = self._fetched, None
        if record_set is not None:
            self._waiting_since_ms = None
        elif self._waiting_since_ms is None:
            self._waiting_since_ms = self._clock_ms(now_ms)
            self._throttled_before_ms = self._network.throttled_ms(now_ms)
        return record_set

    # --- what is asked ------------------------------------------------------------------------------------------------

    def run_once(self, now_ms: int) -> int:
        """Send what is due. Return how many ms nothing else is."""
        if self.failure is None and self._fetched is None and not self._has_all:
            self._ask(now_ms)
        delays_ms = [LONGEST_POLL_MS, self._refresh_metadata(now_ms)]
        if self._not_before_ms > now_ms:
            delays_ms.append(self._not_before_ms - now_ms)
        return 0 if self.is_done else min(delays_ms)

    def _ask(self, now_ms: int) -> None:
        if self._has_stalled(now_ms):
            self.failure = self._stalled(now_ms)
            return
        if self._is_asking or now_ms < self._not_before_ms:
            return
        node_id = self._node(now_ms)
        if node_id == NO_LEADER:
            return
        if self._network.ready(node_id, now_ms):
            self._network.send(node_id, self._next_request(node_id), now_ms, _READ)
            self._is_asking = True
        elif self._network.is_down(node_id):
            self._on_error(self._network.last_error, now_ms, refresh=True)

    def _has_stalled(self, now_ms: int) -> bool:
        limit_ms, since_ms = self._settings.no_progress_ms, self._waiting_since_ms
        return since_ms is not None and (
            self._clock_ms(now_ms) - since_ms >= limit_ms
            or self._throttled_meanwhile_ms(now_ms) >= THROTTLED_LIMITS * limit_ms
        )

    def _throttled_meanwhile_ms(self, now_ms: int) -> int:
        return self._network.throttled_ms(now_ms) - self._throttled_before_ms

    def _refresh_metadata(self, now_ms: int) -> int:
        """Request metadata if that is due. Return how many ms it is not."""
        delay_ms = self._metadata.next_request_delay_ms(now_ms)
        if delay_ms is None or delay_ms > 0:
            return LONGEST_POLL_MS if delay_ms is None else min(delay_ms, LONGEST_POLL_MS)
        node_id = self._network.least_loaded_node(now_ms)
        if node_id is not None:
            self._network.send(node_id, self._metadata.request((), now_ms), now_ms, _METADATA)
        return LONGEST_POLL_MS

    def _node(self, now_ms: int) -> int:
        """Return the node to ask: for a Fetch the preferred replica, else the leader. NO_LEADER if none is known."""
        leader = self._leader(now_ms)
        if leader == NO_LEADER or self._must_ask_leader() or now_ms >= self._replica_until_ms:
            self._replica = NO_LEADER
        return leader if self._replica == NO_LEADER else self._replica

    def _leader(self, now_ms: int) -> int:
        """Return the leader, unless the metadata has none, or is older than the range. Then request metadata."""
        topic = self._metadata.snapshot.topics.get(self._range.topic)
        if self._metadata.snapshot.errors.get(self._range.topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._deny()
            return NO_LEADER
        patience_ends_ms = self._metadata.patience_ends_ms((self._range.topic,))
        if patience_ends_ms is not None and now_ms >= patience_ends_ms:
            self._lose(Loss(self._position, self._end, LossCause.TOPIC_DELETED))
            return NO_LEADER
        if topic is not None and ids_differ(self._range.topic_id, topic.topic_id):
            self._doubt_topic(now_ms)
            return NO_LEADER
        self._doubted_since_ms = None
        leader = self._metadata.snapshot.leader(self._range.topic, self._range.partition)
        if leader != NO_LEADER and self._epoch() >= self._range.leader_epoch:
            return leader
        if self._metadata.answered:
            self._last_error = self._last_error or _without(leader)
            self._metadata.request_update()
        return NO_LEADER

    def _doubt_topic(self, now_ms: int) -> None:
        """Believe that the topic was made again only after a while: a broker may lag behind the one that planned."""
        if self._doubted_since_ms is None:
            self._doubted_since_ms = now_ms
        if now_ms - self._doubted_since_ms >= ABSENT_PATIENCE_MS:
            self._lose(Loss(self._position, self._end, LossCause.TOPIC_RECREATED))
        else:
            self._last_error = "the topic has another id"
            self._metadata.request_update()

    def _epoch(self) -> int:
        return self._metadata.snapshot.topics[self._range.topic].leader_epochs[self._range.partition]

    def _must_check_epoch(self) -> bool:
        return self._range.leader_epoch >= 0 and self._epoch() > self._checked_epoch

    def _must_ask_leader(self) -> bool:
        return self._must_check_epoch() or self._out_of_range

    def _next_request(self, node_id: int) -> Request:
        topic, partition, epoch = self._range.topic, self._range.partition, self._epoch()
        if self._must_check_epoch():
            check = OffsetForLeaderEpochRequest(topic, partition, epoch, self._range.leader_epoch)
            if self._network.api_version(node_id, check) is not None:
                return check
            # As Java does with brokers that do not tell.
            self._checked_epoch = epoch
        if self._out_of_range:
            return ListOffsetsRequest(
                (AskedOffset(topic, partition, EARLIEST if self._earliest is None else LATEST, epoch),),
                IsolationLevel.READ_UNCOMMITTED,
                self._settings.request_timeout_ms,
            )
        return FetchRequest(
            topic=topic,
            topic_id=self._range.topic_id,
            partition=partition,
            offset=self._position,
            leader_epoch=epoch,
            isolation_level=self._settings.isolation_level,
            max_bytes=self._settings.max_bytes,
            min_bytes=self._settings.min_bytes,
            max_wait_ms=self._settings.max_wait_ms,
            rack_id=self._settings.client_rack,
        )

    # --- what is answered ---------------------------------------------------------------------------------------------

    def handle(self, answers: Sequence[ClientResponse], now_ms: int) -> None:
        """Take the answers of this fetcher's requests."""
        for answer in answers:
            if answer.token is _METADATA:
                self._on_metadata(answer, now_ms)
            elif answer.token is _READ:
                self._is_asking = False
                self._on_answer(answer, now_ms)

    def _on_metadata(self, answer: ClientResponse, now_ms: int) -> None:
        if isinstance(answer.response, MetadataResponse):
            self._metadata.update(answer.response, now_ms)
            self._network.update_brokers(answer.response.brokers)
        else:
            self._metadata.failed(now_ms)

    def _on_answer(self, answer: ClientResponse, now_ms: int) -> None:
        match answer.response:
            case FetchResponse(error_code=code) | OffsetForLeaderEpochResponse(error_code=code):
                self._on_code(code, answer, now_ms)
            case ListOffsetsResponse(partitions=(ListedOffset(error_code=code),)):
                self._on_code(code, answer, now_ms)
            case _:
                self._on_error(answer.error or "no answer", now_ms, refresh=True)

    def _on_code(self, code: int, answer: ClientResponse, now_ms: int) -> None:
        match on_read_error(code):
            case Action.TAKE:
                self._tries, self._last_error = 0, ""
                self._take_answer(answer, now_ms)
            case Action.LOOK_FOR_BOUNDS if self._replica == answer.node_id:
                # A replica that lags knows less than the leader.
                self._on_error(f"{error_name(code)} (error {code})", now_ms, refresh=False)
            case Action.LOOK_FOR_BOUNDS:
                self._out_of_range, self._earliest = True, None
            case Action.DENIED:
                self._deny()
            case Action.FAIL:
                self.failure = self._of_range(FetchRefused, offset=self._position, code=code, name=error_name(code))
            case action:
                self._on_error(f"{error_name(code)} (error {code})", now_ms, refresh=action is Action.REFRESH_AND_RETRY)

    def _take_answer(self, answer: ClientResponse, now_ms: int) -> None:
        match answer.response, answer.request:
            case FetchResponse() as response, FetchRequest() as request:
                self._take_records(response, request, now_ms)
            case OffsetForLeaderEpochResponse() as response, OffsetForLeaderEpochRequest() as request:
                self._take_end_of_epoch(response, request)
            case ListOffsetsResponse(partitions=(found,)), _:
                self._take_bound(found.offset, now_ms)

    def _take_records(self, response: FetchResponse, request: FetchRequest, now_ms: int) -> None:
        self._high_watermark, self._last_stable_offset = response.high_watermark, response.last_stable_offset
        if response.preferred_read_replica != NO_LEADER:
            self._replica = response.preferred_read_replica
            self._replica_until_ms = now_ms + self._settings.metadata_max_age_ms
            return
        if not response.records:
            self._pass_gap(response)
            return
        following = next_offset(response.records)
        if following is None or following <= self._position:
            reason = "the answer has no whole batch" if following is None else f"it ends before offset {following}"
            self.failure = self._of_range(RecordsCorrupt, offset=self._position, reason=reason)
            return
        self._fetched = RecordSet(request.offset, following, response.records, response.aborted_transactions)
        self._position = following

    def _pass_gap(self, response: FetchResponse) -> None:
        """Compaction may leave no batch between the position and the end of what may be read. An answer without records
        shows that, because the first batch always comes (KIP-74)."""
        is_committed = self._settings.isolation_level is IsolationLevel.READ_COMMITTED
        readable = response.last_stable_offset if is_committed else response.high_watermark
        self._position = max(self._position, readable)

    def _take_end_of_epoch(self, response: OffsetForLeaderEpochResponse, request: OffsetForLeaderEpochRequest) -> None:
        """An undefined end (-1) is truncation too, as for Java's consumer: the leader knows no such epoch."""
        if response.end_offset < self._range.end:
            self._lose(Loss(max(self._position, response.end_offset), self._end, LossCause.TRUNCATED))
        self._checked_epoch = request.current_leader_epoch

    def _take_bound(self, offset: int, now_ms: int) -> None:
        if self._earliest is None:
            self._earliest = offset
            return
        was_truncated, self._truncated, self._out_of_range = self._truncated, False, False
        if was_truncated:
            self._end = min(self._end, offset)
        loss = after_out_of_range(self._position, self._end, self._earliest, offset)
        if loss is not None and not self._has_all:
            self._lose(loss)
        elif not was_truncated:
            self._on_error("OFFSET_OUT_OF_RANGE (error 1), although the log has the offset", now_ms, refresh=True)

    # --- what it means ------------------------------------------------------------------------------------------------

    def _deny(self) -> None:
        self.failure = TopicAuthorizationFailed(topic=self._range.topic, operation="READ")

    def _lose(self, loss: Loss) -> None:
        """End with a failure, or leave out what is lost and read what is there."""
        if self._settings.fail_on_data_loss:
            self.failure = self._of_range(OffsetsLost, first=loss.first, end=loss.end, cause=loss.cause)
            return
        self.losses.append(loss)
        match loss.cause:
            case LossCause.DELETED:
                self._position = loss.end
            case LossCause.TRUNCATED:
                # Other records may be there instead, up to the end of the log.
                self._truncated = self._out_of_range = True
                self._earliest = None
            case LossCause.TOPIC_DELETED | LossCause.TOPIC_RECREATED:
                self._end = self._position

    def _on_error(self, error: str, now_ms: int, *, refresh: bool) -> None:
        """Try again after the backoff, at the leader."""
        self._last_error, self._replica = error, NO_LEADER
        self._tries += 1
        settings = self._settings
        self._not_before_ms = now_ms + backoff_ms(
            self._tries, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._rng
        )
        if refresh:
            self._metadata.request_update()

    def _stalled(self, now_ms: int) -> ReadStalled:
        return ReadStalled(
            topic=self._range.topic,
            partition=self._range.partition,
            offset=self._position,
            end=self._range.end,
            waited_ms=self._settings.no_progress_ms,
            high_watermark=self._high_watermark,
            last_stable_offset=self._last_stable_offset,
            last_error=self._last_error or self._network.last_error,
            throttled_ms=self._throttled_meanwhile_ms(now_ms),
        )

    def _of_range(self, error_type: type[KafkaSinkError], **facts: object) -> KafkaSinkError:
        return error_type(topic=self._range.topic, partition=self._range.partition, **facts)

    def _clock_ms(self, now_ms: int) -> int:
        return now_ms - self._network.throttled_ms(now_ms)


def _without(leader: int) -> str:
    """Return why no node can be asked."""
    return "the partition has no leader" if leader == NO_LEADER else "the brokers know only an older leader"
