"""Exactly-once in Spark's processes: each process runs a part of the two-phase commit and passes facts on.

    planning worker    plan.py     pickles the writer ─> takes the sink over, finishes what was decided, finds the facts
    task               slot.py     write() ─> begin, rows in a transaction, marker, `PreparedCommitMessage`
    committing worker  commit.py   commit(), abort() ─> the micro-batch's decision, or the end of its transactions

Spark also makes a writer in the committing process. That process must not plan: the plan would abort the transactions
that are about to be committed. Only the planning process pickles its writer, once for each micro-batch, to send it to
tasks. So the plan is made when the writer is pickled (`PythonPlannerRunner`; a test counts the pickles of a real
Spark).

A batch write with `txnAppId` and `txnVersion` is a micro-batch with this sink name and this number. The plan may find
that this version or a later one is already written. Spark still runs the tasks, which then read their rows and send
none (`CountedCommitMessage`), and the commit logs that nothing was written.

Only settings that tasks alone need may come from Spark's conf, because the planning and committing processes cannot see
it.
"""
