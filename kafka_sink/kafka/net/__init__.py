"""The network: a client of the cluster's brokers. Its transport and clock are passed in."""
