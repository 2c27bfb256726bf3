"""The network: a client of the cluster's brokers over a transport and a clock that are handed in."""
