"""Names of files in a wheel."""

KERNEL = "kafka_sink/records/_kernel.abi3.so"
# In `*.dist-info/sboms`, where scanners look for it (PEP 770).
SBOM = "pyspark-pykafka.cdx.json"
MODULES = ("kafka_sink", "pyspark_pykafka.py")
