"""The commit of a micro-batch in two phases: Spark's tasks write it in transactions, and another process commits them.

    planning, attempt, deciding    the steps below, without I/O; runner carries them out
    requests, ending               their requests, and how transactions end
    markers, handover              the state in Kafka, and what the processes pass on
    replay, went_back, hanging     checks: rows that may follow, lost state of brokers, hanging transactions
    commit_topic, stream_name      what a sink needs before its first step or decision
    open_transactions              `pykafka transactions`

The steps:

    plan     fence older drivers ─> read the decision ─> finish what it names ─> abort what is left open ─> read markers
    begin    a task, before its rows:  is this run current? ─> Init the slot ─> is its marker this micro-batch's?
    prepare  a task, after its rows are acknowledged:  put the marker into the transaction
    commit   check messages, decision ─> all open, alone? and write the decision ─> DECIDE ─> EndTxn each ─> verify each
    abort    a plan that no tasks follow, unless another run has begun
    forget   after the commit of a batch write without a version: delete its groups

Each step is a generator of effects (`requests`). The caller (`runner` or a simulation) sends back definite answers. It
repeats a request on CONCURRENT_TRANSACTIONS, an unstable offset, a lost connection or a moved coordinator. So brokers
may carry out any request twice. A process may die between any two effects: `tests/verification/model`
enumerates the consequences. docs/design/exactly-once.md explains why the protocol is correct, and each of its rules.

Not obvious here:

* `plan` runs once for each micro-batch, in the planning process, and again after a failure. It must never run in the
  committing process: there it would abort the transactions that `commit` is about to commit.
* `commit` never Inits the driver's id. Two processes that Init it fence each other.
* The EndTxn of the driver's transaction makes the decision. So `commit` writes the text of the decision while it checks
  the slots. If a check fails, the driver's transaction stays open, and the abort or the next plan ends it with Init.
* The answer to EndTxn alone proves neither success nor failure: PRODUCER_FENCED after a lost answer may mean either.
* A transaction that a decision names is never aborted, even if its commit timed out.
* A batch write with a version is a micro-batch with an id that the user chose. Versions may have gaps, so the last
  decision may be several numbers back. That decision must be visible whole before a new version is written, because
  nobody can write its rows later. A version below the last decision was visible whole by then, or was never decided:
  `is_written` skips it.

Source: KIP-98, KIP-447 (require stable), KIP-664 (describing), KIP-890 (versions).
"""
