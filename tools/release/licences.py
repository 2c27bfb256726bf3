"""The licences of the packages that pip installs for a user, as SPDX expressions.

Each package names its own in its metadata, in words of its choice. A test compares this table with the metadata.
"""

from __future__ import annotations

# What setup.cfg requires, and what those packages require.
LICENCES = {
    "crc32c": "LGPL-2.1-or-later",
    "kio": "Apache-2.0",
    "numpy": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    "pyarrow": "Apache-2.0",
    "typing-extensions": "PSF-2.0",
    "zstandard": "BSD-3-Clause",
}

# What the extras of setup.cfg for users name. Their own dependencies are not listed.
LICENCES_OF_EXTRAS = {
    "botocore": "Apache-2.0",
    "confluent-kafka": "Apache-2.0",
    "cryptography": "Apache-2.0 OR BSD-3-Clause",
    "hdfs-native": "Apache-2.0",
    "opentelemetry-api": "Apache-2.0",
    "prometheus-client": "Apache-2.0 AND BSD-2-Clause",
    "pysail": "Apache-2.0",
    "pyspark": "Apache-2.0",
    "pyspark-client": "Apache-2.0",
    "tqdm": "MPL-2.0 AND MIT",
}
