"""Exactly-once in Spark's processes: who runs which part of the two-phase commit, and what travels between them.

    planning worker   pickles the writer  ─> `Plan`: takes the sink over, finishes what was decided, finds the facts
    task              write()             ─> begin, rows in a transaction, marker, `PreparedCommitMessage`
    committing worker commit(), abort()   ─> the micro-batch's decision, or the end of its transactions

Spark also makes a writer in the process that commits, which must not plan: what is about to be committed would be
aborted as left over. But only the planning process pickles its writer, once a micro-batch, to send it to tasks. So the
plan is made when the writer is pickled (`PythonPlannerRunner`; a test counts it on a real Spark).

A batch write with `txnAppId` and `txnVersion` is a micro-batch of that sink and number. Where the plan finds it
written, or a later one, tasks, which Spark runs all the same, read their rows and send none
(`CountedCommitMessage`), and the commit says so.

Nothing here may come from Spark's conf but what only tasks need, as neither planning nor committing knows it.
"""
