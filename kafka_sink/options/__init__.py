"""The options of a write: their table, how a text becomes a value, and the configuration that a write goes by."""
