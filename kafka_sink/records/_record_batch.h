/* Where the fields of a record batch's header are; see record_batch.py for the layout. */

#ifndef KAFKA_SINK_RECORD_BATCH_H
#define KAFKA_SINK_RECORD_BATCH_H

#define HEADER_BYTES 61
#define LENGTH_END 12
#define CRC_OFFSET 17
#define CRC_END 21
#define MAGIC 2

#endif
