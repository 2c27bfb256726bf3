"""The client for everything except producing: coordinators, leaders, brokers, topics and their settings."""
