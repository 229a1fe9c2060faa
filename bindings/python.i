/* python.i - how SWIG turns C's parameters into Python's; included by zero.i.
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The raw floor: a function returns its status, or [status, output...]; nothing is checked.
 *   handle          an opaque object, None for NULL
 *   stream, data    an address as int, None for NULL
 *   ids, shape      a sequence of ints, or a buffer of them (int32, int64)
 *   bytes           an object with the buffer protocol; writable where C writes
 *   text out        a writable buffer or None; the length comes back
 * The global lock is released in the calls that threads.i lists (generated: whatever may wait).
 */
%nothread;
%include "threads.i"

%{
#include <string.h>

/* A contiguous buffer of items of item_size bytes, or a sequence of ints copied into memory. */
typedef struct zero_py_items {
  Py_buffer view;
  void* copy;
  const void* data;
  Py_ssize_t count;
  int64_t few[16];
} zero_py_items;

static int zero_py_items_get(PyObject* object, size_t item_size, zero_py_items* items) {
  Py_ssize_t i;
  PyObject* sequence;
  items->copy = NULL;
  items->view.obj = NULL;
  if (PyObject_CheckBuffer(object)) {
    const char* format;
    if (PyObject_GetBuffer(object, &items->view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) return -1;
    format = items->view.format ? items->view.format : "B";
    if (strlen(format) == 1 && strchr("ilq", *format) && items->view.itemsize == (Py_ssize_t)item_size) {
      items->data = items->view.buf;
      items->count = items->view.len / (Py_ssize_t)item_size;
      return 0;
    }
    PyBuffer_Release(&items->view);
    items->view.obj = NULL;
    if (PyBytes_Check(object) || PyByteArray_Check(object)) {
      PyErr_SetString(PyExc_TypeError, "bytes are no list of integers");
      return -1;
    }
  }
  sequence = PySequence_Fast(object, "expected a sequence of integers");
  if (!sequence) return -1;
  items->count = PySequence_Fast_GET_SIZE(sequence);
  items->data = items->few;
  if ((size_t)items->count * item_size > sizeof items->few) {
    items->copy = PyMem_Malloc((size_t)items->count * item_size);
    items->data = items->copy;
    if (!items->copy) {
      Py_DECREF(sequence);
      PyErr_NoMemory();
      return -1;
    }
  }
  for (i = 0; i < items->count; ++i) {
    PyObject* number = PyNumber_Index(PySequence_Fast_GET_ITEM(sequence, i));
    const long long value = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    if (!PyErr_Occurred() && item_size == 4 && (value < INT32_MIN || value > INT32_MAX)) {
      PyErr_SetString(PyExc_OverflowError, "an id does not fit in 32 bits");
    }
    if (PyErr_Occurred()) {
      Py_DECREF(sequence);
      PyMem_Free(items->copy);
      items->copy = NULL;
      return -1;
    }
    if (item_size == 4) {
      ((int32_t*)items->data)[i] = (int32_t)value;
    } else {
      ((int64_t*)items->data)[i] = (int64_t)value;
    }
  }
  Py_DECREF(sequence);
  return 0;
}

static void zero_py_items_release(zero_py_items* items) {
  if (items->view.obj) PyBuffer_Release(&items->view);
  PyMem_Free(items->copy);
}

static int zero_py_address(PyObject* object, void** address) {
  if (object == Py_None) {
    *address = NULL;
    return 0;
  }
  if (!PyLong_Check(object)) {
    PyErr_Format(PyExc_TypeError, "expected an address (int) or None, not %s", Py_TYPE(object)->tp_name);
    return -1;
  }
  *address = PyLong_AsVoidPtr(object);
  return PyErr_Occurred() ? -1 : 0;
}

static PyObject* zero_py_from_address(const void* address) {
  if (!address) Py_RETURN_NONE;
  return PyLong_FromVoidPtr((void*)address);
}
%}

/* ---- addresses ---- */
%typemap(in) void* { if (zero_py_address($input, (void**)&$1) != 0) SWIG_fail; }
%typemap(in) const void* { if (zero_py_address($input, (void**)&$1) != 0) SWIG_fail; }
%typemap(out) void* { $result = zero_py_from_address($1); }
%typemap(in, numinputs=0) void** (void* out = NULL) { $1 = &out; }
%typemap(argout) void** { $result = SWIG_Python_AppendOutput($result, zero_py_from_address(*$1)); }

/* ---- handles and numbers out ---- */
%typemap(in, numinputs=0) SWIGTYPE** (void* out = NULL) { $1 = ($1_ltype)&out; }
%typemap(argout) SWIGTYPE** {
  $result = SWIG_Python_AppendOutput($result, SWIG_NewPointerObj(*$1, $*1_descriptor, 0));
}
%typemap(in, numinputs=0) int32_t* (int32_t out = 0) { $1 = &out; }
%typemap(argout) int32_t* { $result = SWIG_Python_AppendOutput($result, PyLong_FromLong(*$1)); }
%typemap(in, numinputs=0) int64_t* (int64_t out = 0) { $1 = &out; }
%typemap(argout) int64_t* { $result = SWIG_Python_AppendOutput($result, PyLong_FromLongLong(*$1)); }
%typemap(in, numinputs=0) uint64_t* (uint64_t out = 0) { $1 = &out; }
%typemap(argout) uint64_t* {
  $result = SWIG_Python_AppendOutput($result, PyLong_FromUnsignedLongLong(*$1));
}
%typemap(in, numinputs=0) double* (double out = 0) { $1 = &out; }
%typemap(argout) double* { $result = SWIG_Python_AppendOutput($result, PyFloat_FromDouble(*$1)); }

/* ---- frozen structs out ---- */
%define ZERO_FROZEN_OUT(TYPE)
%typemap(in, numinputs=0) TYPE* OUT (TYPE out) {
  memset(&out, 0, sizeof out);
  $1 = &out;
}
%typemap(argout) TYPE* OUT {
  TYPE* copy = (TYPE*)malloc(sizeof(TYPE));
  if (copy) *copy = *$1;
  $result = SWIG_Python_AppendOutput($result, SWIG_NewPointerObj(copy, $1_descriptor, SWIG_POINTER_OWN));
}
%enddef
ZERO_FROZEN_OUT(zero_buffer)
ZERO_FROZEN_OUT(zero_span)
%apply zero_buffer* OUT { zero_buffer* buffer };
%apply zero_span* OUT { zero_span* span };

/* as many as ids were given, which is argument 3 of the one function that has it */
%typemap(in, numinputs=0) zero_buffer* buffers { $1 = NULL; }
%typemap(check) zero_buffer* buffers {
  $1 = (zero_buffer*)calloc((size_t)arg3 + 1, sizeof(zero_buffer));
  if (!$1) SWIG_exception_fail(SWIG_MemoryError, "no memory for the buffers");
}
%typemap(argout) zero_buffer* buffers {
  uint64_t i;
  PyObject* list = PyList_New((Py_ssize_t)arg3);
  for (i = 0; i < arg3; ++i) {
    zero_buffer* copy = (zero_buffer*)malloc(sizeof(zero_buffer));
    if (copy) *copy = $1[i];
    PyList_SET_ITEM(list, (Py_ssize_t)i, SWIG_NewPointerObj(copy, $1_descriptor, SWIG_POINTER_OWN));
  }
  $result = SWIG_Python_AppendOutput($result, list);
}
%typemap(freearg) zero_buffer* buffers { free($1); }

/* ---- arrays in ---- */
%define ZERO_ITEMS_IN(TYPE, NAME, COUNT_TYPE, COUNT)
%typemap(in) (const TYPE* NAME, COUNT_TYPE COUNT) (zero_py_items items, int have = 0) {
  if (zero_py_items_get($input, sizeof(TYPE), &items) != 0) SWIG_fail;
  have = 1;
  $1 = ($1_ltype)items.data;
  $2 = (COUNT_TYPE)items.count;
}
%typemap(argout) (const TYPE* NAME, COUNT_TYPE COUNT) "";
%typemap(freearg) (const TYPE* NAME, COUNT_TYPE COUNT) { if (have$argnum) zero_py_items_release(&items$argnum); }
%enddef
ZERO_ITEMS_IN(zero_param_id, params, uint64_t, count)
ZERO_ITEMS_IN(int64_t, shape, int32_t, dimensions)

/* ---- bytes in and out ---- */
%define ZERO_BYTES(DECLARATION, FLAGS)
%typemap(in) DECLARATION (Py_buffer view, int have = 0) {
  if (PyObject_GetBuffer($input, &view, FLAGS) != 0) SWIG_fail;
  have = 1;
  $1 = ($1_ltype)view.buf;
  $2 = (uint64_t)view.len;
}
%typemap(argout) DECLARATION "";
%typemap(freearg) DECLARATION { if (have$argnum) PyBuffer_Release(&view$argnum); }
%enddef
ZERO_BYTES((void* values, uint64_t bytes), PyBUF_WRITABLE)
ZERO_BYTES((void* bytes, uint64_t count), PyBUF_WRITABLE)
ZERO_BYTES((const void* values, uint64_t bytes), PyBUF_SIMPLE)
ZERO_BYTES((const void* bytes, uint64_t count), PyBUF_SIMPLE)

%typemap(in) (double* values, uint64_t count) (Py_buffer view, int have = 0) {
  if (PyObject_GetBuffer($input, &view, PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) SWIG_fail;
  have = 1;
  if (!view.format || strcmp(view.format, "d") != 0) {
    PyErr_SetString(PyExc_TypeError, "expected a writable buffer of double (format 'd')");
    SWIG_fail;
  }
  $1 = (double*)view.buf;
  $2 = (uint64_t)(view.len / (Py_ssize_t)sizeof(double));
}
%typemap(argout) (double* values, uint64_t count) "";
%typemap(freearg) (double* values, uint64_t count) { if (have$argnum) PyBuffer_Release(&view$argnum); }

%typemap(in) (const char* text, uint64_t length) (Py_ssize_t size) {
  $1 = (char*)PyUnicode_AsUTF8AndSize($input, &size);
  if (!$1) SWIG_fail;
  $2 = (uint64_t)size;
}

/* ---- text and blobs out: a writable buffer or None ---- */
%define ZERO_GROWING(DECLARATION)
%typemap(in) DECLARATION (Py_buffer view, int have = 0, uint64_t length = 0) {
  $1 = NULL;
  $2 = 0;
  $3 = &length;
  if ($input != Py_None) {
    if (PyObject_GetBuffer($input, &view, PyBUF_WRITABLE) != 0) SWIG_fail;
    have = 1;
    $1 = ($1_ltype)view.buf;
    $2 = (uint64_t)view.len;
  }
}
%typemap(argout) DECLARATION {
  $result = SWIG_Python_AppendOutput($result, PyLong_FromUnsignedLongLong(*$3));
}
%typemap(freearg) DECLARATION { if (have$argnum) PyBuffer_Release(&view$argnum); }
%enddef
ZERO_GROWING((char* buffer, uint64_t capacity, uint64_t* length))
ZERO_GROWING((void* bytes, uint64_t capacity, uint64_t* count))

/* ---- structs ---- */
/* A text member borrows the str that it is set to: the caller keeps that alive. */
%typemap(memberin) const char* { $1 = $input; }
%typemap(in) const char* {
  $1 = NULL;
  if ($input != Py_None && !($1 = (char*)PyUnicode_AsUTF8($input))) SWIG_fail;
}
%typemap(freearg) const char* "";
%typemap(out) const int64_t* shape {
  int32_t i;
  $result = PyTuple_New(arg1->dimensions);
  for (i = 0; i < arg1->dimensions; ++i) PyTuple_SET_ITEM($result, i, PyLong_FromLongLong($1[i]));
}
%immutable zero_param_info::shape;
%warnfilter(451);

/* Functions are given as addresses (ctypes makes them, and takes the lock). */
%ignore zero_comm_callbacks::all_gather;
%ignore zero_comm_callbacks::all_to_all;
%ignore zero_comm_callbacks::abort;
%ignore zero_comm_callbacks::destroy;
%ignore zero_allocator::allocate;
%ignore zero_allocator::release;
%ignore zero_progress::report;
%extend zero_comm_callbacks {
  void set_functions(void* all_gather, void* all_to_all, void* abort, void* destroy) {
    memcpy(&$self->all_gather, &all_gather, sizeof all_gather);
    memcpy(&$self->all_to_all, &all_to_all, sizeof all_to_all);
    memcpy(&$self->abort, &abort, sizeof abort);
    memcpy(&$self->destroy, &destroy, sizeof destroy);
  }
}
%extend zero_allocator {
  void set_functions(void* allocate, void* release) {
    memcpy(&$self->allocate, &allocate, sizeof allocate);
    memcpy(&$self->release, &release, sizeof release);
  }
}
%extend zero_progress {
  void set_functions(void* report) { memcpy(&$self->report, &report, sizeof report); }
}
