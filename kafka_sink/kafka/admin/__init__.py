"""The client for everything that is not producing: coordinators, leaders, brokers, topics and their settings."""
