/* Record batches to Arrow columns; see _decoder.c. */

#ifndef KAFKA_SINK_DECODER_H
#define KAFKA_SINK_DECODER_H

#include "_buffers.h"

extern const char scan_batches_doc[], measure_records_doc[], fill_columns_doc[];

PyObject *kernel_scan_batches(PyObject *module, PyObject *args);
PyObject *kernel_measure_records(PyObject *module, PyObject *args);
PyObject *kernel_fill_columns(PyObject *module, PyObject *args);

#endif
