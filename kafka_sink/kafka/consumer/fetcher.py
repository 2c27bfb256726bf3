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
| it ended before | ListOffsets: where does what may be read end now? |
| a broker said that the position is out of range | ListOffsets: where does the log begin and end? |
| offsets are in no batch, and damage could look so | Fetch of the batch before: does that one follow? (`gaps.py`) |
| no committed record came, although there is one to read | Fetch of one batch of any kind: where does it begin? |
| otherwise | Fetch, of the preferred replica or the leader |

Non-obvious:

* A range ends when the position passes its end, never by a count: control batches, aborted transactions and
  compaction leave gaps.
* An answer without records is no gap. A broker whose remote storage is slow (KIP-405) answers so, with the end of the
  log and nothing else. Only a batch that begins behind the position shows a gap.
* No CRC covers the header that says where a batch begins and ends. What an answer leaves out is in `gaps.py`.
* The check of epochs is KIP-320's, but of the range's end, not of the position: two logs that agree on the last record
  of an epoch agree on all before it. Each Fetch names the leader epoch that was checked, so no record of another
  leader slips in between.
* A throttling broker answers without records. That is no progress, but the time hardly counts (`Patience`).

Pure: network and time are handed in. Source: org.apache.kafka.clients.consumer.internals.Fetcher, AbstractFetch,
FetchCollector, OffsetFetcher, SubscriptionState; KIP-74, KIP-320, KIP-392.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_sink.errors import (
    FetchRefused,
    KafkaSinkError,
    OffsetsLost,
    ReadStalled,
    RecordsCorrupt,
    TopicAuthorizationFailed,
)
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.config import ConsumerConfig, IsolationLevel
from kafka_sink.kafka.consumer.fetch_policy import (
    FIRST_BYTES,
    Action,
    Appetite,
    Patience,
    PreferredReplica,
    TopicWatch,
    missing,
    on_read_error,
)
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, RecordSet, after_out_of_range, parts_at
from kafka_sink.kafka.consumer.gaps import Gaps
from kafka_sink.kafka.metadata import NO_EPOCH, NO_LEADER, Metadata
from kafka_sink.kafka.network import LONGEST_POLL_MS, Network
from kafka_sink.kafka.protocol.api import ClientResponse, Request
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse
from kafka_sink.kafka.protocol.apis.metadata import MetadataResponse
from kafka_sink.kafka.protocol.apis.offsets import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    AskedOffset,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name, error_text
from kafka_sink.kafka.waits import backoff_ms
from kafka_sink.records.record_batch import first_offset, outline


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """`fail_on_data_loss`: False leaves out what cannot be read. `reads_replacements`: whether a range of a truncated
    log includes the records that replace the lost ones. `poll_timeout_ms`: how long a range may wait for a record.
    `begins_small`: whether the caller may want no more than a few rows."""

    config: ConsumerConfig
    fail_on_data_loss: bool
    reads_replacements: bool
    poll_timeout_ms: int
    begins_small: bool = False

    def appetite(self) -> Appetite:
        """Return that of the first Fetch."""
        most_bytes = self.config.fetch_bytes
        return Appetite(most_bytes, FIRST_BYTES if self.begins_small else most_bytes)


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for a record of `place`, for the log."""

    place: str
    reason: str
    waited_ms: int
    limit_ms: int


class Fetcher:
    """Fetches one range. `failure`: the error that ended it. `losses`: what was left out, if that is no failure.
    `token`: of its requests, unless they are for metadata.

    `patience`: of the task, if it reads several ranges; then `take_answers` is used instead of `handle`, and `appetite`
    is that of a range.
    """

    def __init__(
        self,
        range_: FetchRange,
        *,
        settings: FetchSettings,
        network: Network,
        metadata: Metadata,
        rng: random.Random,
        now_ms: int,
        patience: Patience | None = None,
        appetite: Appetite | None = None,
    ) -> None:
        self.failure: KafkaSinkError | None = None
        self.losses: list[Loss] = []
        self._range = range_
        self._end = range_.end
        self._settings = settings
        self._config = settings.config
        self._network = network
        self._metadata = metadata
        self._rng = rng
        self._position = range_.first
        self._fetched: RecordSet | None = None
        # What a request is under way for. Of this fetcher alone: the range before may have left one unanswered.
        self._of_metadata, self.token = object(), object()
        self._is_asking = False
        # The node of the last request, or of the last attempt.
        self._asked = NO_LEADER
        self._not_before_ms = now_ms
        self._tries = 0
        self._patience = Patience(settings.poll_timeout_ms) if patience is None else patience
        self._appetite = settings.appetite() if appetite is None else appetite
        # The leader epoch of the last record of the range, and the newest under which the log reaches the range's end.
        self._end_epoch = range_.leader_epoch if range_.record_epoch == NO_EPOCH else range_.record_epoch
        self._checked_epoch = range_.leader_epoch
        self._watch = TopicWatch(range_)
        self._gone: LossCause | None = None
        # Where the log of a new leader parts from the one before. Its end is needed then.
        self._truncated_at: int | None = None
        # The bounds of the log are needed, and the first of them.
        self._is_out_of_range = False
        self._earliest: int | None
        # Whether the next Fetch is only for where the next batch begins.
        self._looks_ahead = False
        self._gaps = Gaps()
        # The request of the look that is under way.
        self._look: FetchRequest | None = None
        self._replica = PreferredReplica(self._config.client_rack, self._config.metadata_max_age_ms)
        # Where the log is damaged, if it is.
        self._damaged_at = range_.first
        # For the message of a range that gets no further.
        self._high_watermark = self._last_stable_offset = NO_OFFSET
        self._last_error = ""
        metadata.want({range_.topic}, now_ms)

    @property
    def is_done(self) -> bool:
        """True after the last record set was taken, and after a failure."""
        return self.failure is not None or (self._has_all and self._fetched is None)

    @property
    def record_set(self) -> RecordSet | None:
        """What `take` returns next."""
        return self._fetched

    @property
    def has_records(self) -> bool:
        """True if that has records: the caller's wait is over."""
        return self._fetched is not None and self._fetched.has_records

    @property
    def has_work(self) -> bool:
        """True if `run_once` may have something to send. Otherwise it waits for an answer, or for `take`."""
        return not self._is_asking and self._fetched is None

    @property
    def _has_all(self) -> bool:
        return self._position >= self._end and self._gaps.look is None

    def take(self, now_ms: int) -> RecordSet | None:
        """Return the next record set, if it is there. If not, the caller waits from now on."""
        record_set, self._fetched = self._fetched, None
        # Without end a broker could hand out empty batches.
        if record_set is not None and record_set.has_records:
            self._patience.end()
        else:
            self._patience.begin(now_ms, self._network.throttled_ms(now_ms))
        return record_set

    def wait(self, now_ms: int) -> Wait | None:
        """Return the wait of the caller, if the last request failed; None if brokers answer."""
        if not self._why:
            return None
        waited_ms = self._patience.waited_ms(now_ms, self._network.throttled_ms(now_ms))
        place = f"{self._range.topic}-{self._range.partition}"
        return Wait(place, self._why, waited_ms, self._settings.poll_timeout_ms)

    @property
    def _why(self) -> str:
        """Why no answer with records comes; empty if brokers answer."""
        return self._last_error or ("" if self._high_watermark >= 0 else self._network.last_error)

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
        if self._is_asking or now_ms < self._not_before_ms:
            return
        if self._gone is not None:
            self._lose(Loss(self._position, self._end, self._gone))
            return
        node_id = self._node(now_ms)
        if node_id == NO_LEADER:
            return
        self._asked = node_id
        if self._network.ready(node_id, now_ms):
            self._network.send(node_id, self._next_request(node_id, now_ms), now_ms, self.token)
            self._is_asking = True
        elif self._network.is_down(node_id):
            self._on_error(why_down(node_id, self._network), now_ms, refresh=True)

    def _refresh_metadata(self, now_ms: int) -> int:
        """Request metadata if that is due. Return how many ms it is not."""
        delay_ms = self._metadata.next_request_delay_ms(now_ms)
        if delay_ms:
            return min(delay_ms, LONGEST_POLL_MS)
        node_id = self._network.least_loaded_node(now_ms) if delay_ms is not None else None
        if node_id is not None:
            # In use, so it is not forgotten however long the range takes.
            request = self._metadata.request((self._range.topic,), now_ms)
            self._network.send(node_id, request, now_ms, self._of_metadata)
        return LONGEST_POLL_MS

    def _node(self, now_ms: int) -> int:
        """Return the node to ask: for a Fetch the preferred replica, else the leader. NO_LEADER if none is known."""
        leader = self._leader()
        if leader == NO_LEADER or self._must_check_epoch():
            self._replica.forget()
        self._replica.expire(now_ms)
        return leader if self._replica.node == NO_LEADER else self._replica.node

    def _leader(self) -> int:
        """Return the leader, unless the metadata has none, is older than the range, or of another topic. Then request
        metadata."""
        snapshot = self._metadata.snapshot
        leader = snapshot.leader(*self._range.topic_partition)
        if leader == NO_LEADER:
            code = snapshot.errors.get(self._range.topic, ErrorCode.NONE)
            problem = error_text(code) if code else "the partition has no leader"
        elif missing(self._range, snapshot) is LossCause.TOPIC_RECREATED:
            problem = "a broker knows a topic of this name with another id"
        elif self._epoch() < self._end_epoch:
            problem = f"brokers know leader epoch {self._epoch()}, older than {self._end_epoch} of the range"
        else:
            return leader
        if self._metadata.answered:
            self._last_error = problem
            self._metadata.request_update()
        return NO_LEADER

    def _epoch(self) -> int:
        return self._metadata.snapshot.topics[self._range.topic].leader_epochs[self._range.partition]

    def _must_check_epoch(self) -> bool:
        return self._end_epoch >= 0 and self._checked_epoch < self._epoch() and self._truncated_at is None

    def _next_request(self, node_id: int, now_ms: int) -> Request:
        epoch = self._epoch()
        if self._must_check_epoch():
            check = OffsetForLeaderEpochRequest(*self._range.topic_partition, epoch, self._end_epoch)
            if self._network.api_version(node_id, check) is not None:
                return check
            # As Java does with brokers that do not tell.
            self._checked_epoch = epoch
        if self._truncated_at is not None:
            return self._bound_request(LATEST, self._config.isolation_level)
        if self._is_out_of_range:
            bound = EARLIEST if self._earliest is None else LATEST
            return self._bound_request(bound, IsolationLevel.READ_UNCOMMITTED)
        return self._fetch_request(epoch, now_ms)

    def _bound_request(self, bound: int, isolation_level: IsolationLevel) -> ListOffsetsRequest:
        asked = AskedOffset(*self._range.topic_partition, bound, self._epoch())
        return ListOffsetsRequest((asked,), isolation_level, self._config.request_timeout_ms)

    def _fetch_request(self, epoch: int, now_ms: int) -> FetchRequest:
        config = self._config
        request = FetchRequest(
            topic=self._range.topic,
            topic_id=self._range.topic_id,
            partition=self._range.partition,
            offset=self._position,
            leader_epoch=epoch,
            isolation_level=IsolationLevel.READ_UNCOMMITTED if self._looks_ahead else config.isolation_level,
            # Of one batch: the first one comes whole (KIP-74).
            max_bytes=1 if self._looks_ahead else self._appetite.bytes,
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            rack_id=self._replica.rack(now_ms),
        )
        look, self._look = self._gaps.look, None
        if look is not None:
            uncommitted = IsolationLevel.READ_UNCOMMITTED
            request = self._look = replace(
                request, offset=look.offset, isolation_level=uncommitted, max_bytes=look.max_bytes, min_bytes=1
            )
        return request

    # --- what is answered ---------------------------------------------------------------------------------------------

    def handle(self, answers: Sequence[ClientResponse], now_ms: int) -> None:
        """Take the answers of this fetcher's requests."""
        self.take_answers(answers, now_ms)
        self.look_at_clock(now_ms)

    def take_answers(self, answers: Sequence[ClientResponse], now_ms: int) -> None:
        for answer in answers:
            if answer.token is self._of_metadata:
                self._on_metadata(answer, now_ms)
            elif answer.token is self.token:
                self._is_asking = False
                self._on_answer(answer, now_ms)

    def look_at_clock(self, now_ms: int) -> None:
        """Fail if the caller has waited for too long, and no answer that was there has ended its wait."""
        if self.is_done or self.has_records:
            return
        if self._patience.is_over(now_ms, self._network.throttled_ms(now_ms)):
            self.failure = self._stalled(now_ms)

    def _on_metadata(self, answer: ClientResponse, now_ms: int) -> None:
        if learn(answer, self._metadata, self._network, now_ms):
            self.look_for_topic(now_ms - answer.latency_ms, now_ms)

    def look_for_topic(self, sent_ms: int, now_ms: int) -> None:
        """Take what the metadata say by now, of a request that was sent at `sent_ms`."""
        snapshot = self._metadata.snapshot
        self._gone = self._watch.answered(snapshot, sent_ms, now_ms)
        if on_read_error(snapshot.errors.get(self._range.topic, ErrorCode.NONE)) is Action.DENIED:
            self.failure = self._denied()
        self._turn_to_leader(now_ms)

    def _turn_to_leader(self, now_ms: int) -> None:
        """After an error, ask a new leader without a pause (KIP-951)."""
        if self._tries and self._metadata.snapshot.leader(*self._range.topic_partition) not in (NO_LEADER, self._asked):
            self._not_before_ms = now_ms

    def _on_answer(self, answer: ClientResponse, now_ms: int) -> None:
        match answer.response:
            case FetchResponse(error_code=code) | OffsetForLeaderEpochResponse(error_code=code):
                self._on_code(code, answer, now_ms)
            case ListOffsetsResponse(partitions=(ListedOffset(error_code=code),)):
                self._on_code(code, answer, now_ms)
            case _:
                self._on_error(str(answer.error), now_ms, refresh=True)

    def _on_code(self, code: int, answer: ClientResponse, now_ms: int) -> None:
        match on_read_error(code):
            case Action.TAKE:
                self._take_answer(answer, now_ms)
            case Action.LOOK_FOR_BOUNDS:
                if answer.request is self._look:
                    self._gaps.drop_look()
                # A replica that lags knows less than the leader, which is asked next.
                elif self._replica.node == NO_LEADER:
                    self._is_out_of_range, self._earliest = True, None
                self._on_error(error_text(code), now_ms, refresh=True)
            case Action.DENIED:
                self.failure = self._denied()
            case Action.FAIL:
                self.failure = self._of_range(FetchRefused, offset=self._position, code=code, name=error_name(code))
            case action:
                self._on_error(error_text(code), now_ms, refresh=action is Action.REFRESH_AND_RETRY)
                self._follow(answer.response, now_ms)

    def _follow(self, response: object, now_ms: int) -> None:
        if isinstance(response, FetchResponse) and response.leader is not None:
            range_ = self._range
            self._metadata.follow(range_.topic_partition, range_.topic_id, response.leader, self._network.learn)
            self._turn_to_leader(now_ms)

    def _take_answer(self, answer: ClientResponse, now_ms: int) -> None:
        match answer.response, answer.request:
            case FetchResponse() as response, FetchRequest():
                self._take_records(answer, response, now_ms)
            case OffsetForLeaderEpochResponse() as response, OffsetForLeaderEpochRequest() as request:
                self._take_end_of_epoch(response, request)
            case ListOffsetsResponse(partitions=(found,)), ListOffsetsRequest(asked=(asked,)):
                self._take_bound(found.offset, asked, now_ms)

    def _take_records(self, answer: ClientResponse, response: FetchResponse, now_ms: int) -> None:
        if self._replica.named(response.preferred_read_replica, answer.node_id, now_ms) and not response.records:
            return
        self._tries, self._last_error = 0, ""
        if response.high_watermark >= 0:
            self._watch.seen()
            self._high_watermark, self._last_stable_offset = response.high_watermark, response.last_stable_offset
        assert isinstance(answer.request, FetchRequest)
        epoch, node_id = answer.request.leader_epoch, answer.node_id
        if answer.request is self._look:
            self._gaps.looked(response, epoch=epoch, node_id=node_id)
        elif self._looks_ahead:
            self._pass_gap(response, epoch, node_id)
        elif response.records:
            self._take_record_set(response, epoch, node_id, now_ms)
        else:
            self._take_nothing(response, epoch, node_id)
            # A broker that waits for records answers later than this.
            self._not_before_ms = now_ms + self._config.retry_backoff_ms - answer.latency_ms
        if self._gaps.damage:
            self.failure = self._of_range(RecordsCorrupt, offset=self._damaged_at, reason=self._gaps.damage)

    @property
    def _is_committed(self) -> bool:
        return self._config.isolation_level is IsolationLevel.READ_COMMITTED

    def _take_record_set(self, response: FetchResponse, epoch: int, node_id: int, now_ms: int) -> None:
        position, found = self._position, outline(response.records, self._position, self._end)
        if found is None or found.following <= position:
            reason = "the answer has no whole batch" if found is None else f"it ends before offset {found.following}"
            self.failure = self._of_range(RecordsCorrupt, offset=position, reason=reason)
            return
        if self._gaps.has_doubt(found, response, position=position, epoch=epoch, node_id=node_id):
            self._damaged_at = position if found.gap is None else found.gap[0]
            self._not_before_ms = now_ms + self._config.retry_backoff_ms
            return
        if (look := self._gaps.look) is not None:
            self._damaged_at = look.first
        self._fetched = RecordSet(
            position, self._end, found.following, response.records, response.aborted_transactions, found.has_records
        )
        self._position = found.following
        self._appetite.fed()

    def _take_nothing(self, response: FetchResponse, epoch: int, node_id: int) -> None:
        readable = response.last_stable_offset if self._is_committed else response.high_watermark
        if self._position < readable and not response.throttle_time_ms:
            self._damaged_at = self._position
            self._gaps.take_nothing(response, self._position, epoch=epoch, node_id=node_id)
        self._looks_ahead = self._is_committed and self._position < response.last_stable_offset

    def _pass_gap(self, response: FetchResponse, epoch: int, node_id: int) -> None:
        """Move to where the next batch begins. Compaction may leave none before the first open transaction."""
        self._looks_ahead = False
        first = first_offset(response.records)
        if first is not None and first > self._position and not 0 <= response.high_watermark < first:
            self._damaged_at = self._position
            self._gaps.passed(self._position, first, response, epoch=epoch, node_id=node_id)
            self._position = first

    def _take_end_of_epoch(self, response: OffsetForLeaderEpochResponse, request: OffsetForLeaderEpochRequest) -> None:
        """An undefined end (-1) is truncation too, as for Java's consumer: the leader knows no such epoch."""
        self._checked_epoch = request.current_leader_epoch
        parts = response.end_offset
        if request.leader_epoch == self._range.record_epoch:
            parts = parts_at(self._range.record_epoch, self._range.record_start, epoch=response.leader_epoch, end=parts)
        if parts < self._end:
            self._truncated_at = parts

    def _take_bound(self, offset: int, asked: AskedOffset, now_ms: int) -> None:
        if offset < 0:
            self._on_error(f"the leader's log begins or ends at offset {offset}", now_ms, refresh=True)
        elif self._truncated_at is not None:
            self._go_on_to(offset, self._truncated_at)
            self._end_epoch = self._checked_epoch = asked.leader_epoch
        elif self._earliest is None:
            self._earliest = offset
        else:
            self._is_out_of_range = False
            self._judge_position(self._earliest, offset)

    def _judge_position(self, earliest: int, latest: int) -> None:
        match after_out_of_range(self._position, earliest, latest):
            case LossCause.DELETED as cause:
                self._lose(Loss(self._position, min(earliest, self._end), cause))
            case LossCause.TRUNCATED:
                self._truncated_at = latest

    # --- what it means ------------------------------------------------------------------------------------------------

    def _go_on_to(self, end: int, truncated_at: int) -> None:
        """Lose what is behind `truncated_at`. Other records may be there instead, up to `end`, the end of what may be
        read now. Even that may be before the truncation, if it took the end of a transaction."""
        self._truncated_at = None
        first = max(self._range.first, min(truncated_at, end))
        self._lose(Loss(first, self._end, LossCause.TRUNCATED))
        self._end = min(self._end, end if self._settings.reads_replacements else first)

    def _lose(self, loss: Loss) -> None:
        """End with a failure, or leave out what is lost and read what is there."""
        if self._settings.fail_on_data_loss:
            self.failure = self._of_range(OffsetsLost, first=loss.first, end=loss.end, cause=loss.cause)
            return
        self.losses.append(loss)
        self._gaps.forget()
        if loss.cause is LossCause.DELETED:
            self._position = loss.end
        elif loss.cause in (LossCause.TOPIC_DELETED, LossCause.TOPIC_RECREATED):
            self._end = self._position

    def _on_error(self, error: str, now_ms: int, *, refresh: bool) -> None:
        """Try again after the backoff, at the leader."""
        self._last_error = error
        self._replica.failed(now_ms)
        self._tries += 1
        config = self._config
        self._not_before_ms = now_ms + backoff_ms(
            self._tries, config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng
        )
        if refresh:
            self._metadata.request_update()

    def _denied(self) -> TopicAuthorizationFailed:
        return TopicAuthorizationFailed(topic=self._range.topic, operation="READ")

    def _stalled(self, now_ms: int) -> KafkaSinkError:
        return self._of_range(
            ReadStalled,
            offset=self._position,
            end=self._range.end,
            waited_ms=self._settings.poll_timeout_ms,
            high_watermark=self._high_watermark,
            last_stable_offset=self._last_stable_offset if self._is_committed else self._high_watermark,
            throttled_ms=self._patience.throttled_ms(self._network.throttled_ms(now_ms)),
            last_error=self._why,
        )

    def _of_range(self, error_type: type[KafkaSinkError], **facts: object) -> KafkaSinkError:
        return error_type(**self._range.topic_partition._asdict(), **facts)


def learn(answer: ClientResponse, metadata: Metadata, network: Network, now_ms: int) -> bool:
    """Take the answer to a Metadata request. Return whether it tells anything: a broker that lists no brokers has just
    started, and knows no topics either."""
    if not isinstance(answer.response, MetadataResponse) or not answer.response.brokers:
        metadata.failed(now_ms)
        return False
    metadata.update(answer.response, now_ms)
    network.update_brokers(answer.response.brokers)
    return True


def why_down(node_id: int, network: Network) -> str:
    """Return why a node takes no request."""
    return network.last_error or f"broker {node_id} is not among the brokers of the cluster"
