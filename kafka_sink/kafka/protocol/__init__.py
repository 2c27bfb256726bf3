"""The Kafka wire protocol without I/O: requests and responses, framing, correlation ids, version negotiation."""
