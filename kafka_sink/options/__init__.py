"""The options of a write: their table, the parsing of their texts, and the configuration of a write."""
