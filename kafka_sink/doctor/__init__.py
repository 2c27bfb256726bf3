"""The doctor checks step by step, from DNS to ACLs, why a write would fail. It writes no row, and proposes fixes."""
