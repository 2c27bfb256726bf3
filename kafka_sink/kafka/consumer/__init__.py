"""The consumer's half of the client: reads ranges of partitions. Pure: the time is an argument.

fetch_range     a range of offsets, and what is found in it
fetcher         reads one range, by the rules of `fetch_policy`; `gaps` tells compaction from damage
shared_fetcher  reads ranges of many partitions, with one Fetch for each leader
"""
