"""Finds out, step by step and without writing a row, why a write would fail: DNS to ACLs, each with what to do."""
