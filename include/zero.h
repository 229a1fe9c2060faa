/* zero.h - C interface of libzero, an embedded ZeRO runtime.
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What it does. Given a model's parameters on N ranks, libzero owns the three
 * things ZeRO shards - optimizer state (stage 1), gradients (stage 2) and the
 * parameters themselves (stage 3) - and the collectives that keep them in step.
 * The host program owns the forward and backward passes.
 *
 * A run, from above:
 *   config, model -> [plan] -> [communicator] -> zero_init -> zero_shard_params
 *   each micro-batch: [params_acquire/release]*, grad_ready*, micro_end
 *   each step: zero_step
 *   now and then: checkpoint_save;  at the end: runtime_close, runtime_destroy
 *
 * RULES THAT HOLD FOR EVERY FUNCTION (said once, here, and nowhere else)
 *
 * Result     A function that can fail returns zero_status; ZERO_OK is 0, every
 *            other value is an error. Output arguments come last, are written on
 *            ZERO_OK only, and are left alone on error.
 * Text       UTF-8, NUL-terminated. Strings passed in are copied before return.
 *            Text passed out goes into the caller's buffer (see "Text out").
 * Memory     The caller owns what it passes in. What libzero allocates, libzero
 *            frees; no pointer from here is ever given to free(). A borrowed
 *            pointer says how long it lives where it is returned.
 * Handles    Opaque, created by a ..._create, ended by the matching ..._destroy,
 *            which accepts NULL, never communicates and may run from a garbage
 *            collector's finalizer. It cancels what has not started and waits at
 *            most for this rank's own running copy or kernel, never for a peer. A
 *            parent destroyed before its children stays alive, unusable, until
 *            the last child is destroyed.
 * Threads    Different runtimes are independent. Calls on one runtime are made
 *            from one thread at a time, save those marked [any thread]. A forked
 *            child must not call libzero; its parent is not affected.
 * Callbacks  Run only on a thread that is inside a libzero call at that moment,
 *            unless they declare any_thread. A callback must not unwind (throw,
 *            panic, longjmp) through libzero: it returns a status, which comes
 *            back to the caller as is.
 * Streams    Host memory: stream is NULL and the calling thread is the stream:
 *            what a call reads has been read, and what it writes can be read, when
 *            it returns. Device memory: stream is a cudaStream_t cast to void*,
 *            NULL being CUDA's legacy default stream; work is ordered after what
 *            the stream holds, later work on it sees the result, and the host is
 *            not blocked unless the function is marked [blocks]. The current CUDA
 *            device is after every call what it was before.
 * Collective Functions marked [collective] are called by all ranks, in one order.
 *            An error that a rank finds before it communicates stays on that rank;
 *            the others get COMM_MISMATCH or COMM_TIMEOUT naming it. Those that can
 *            fail later (shard, save, load, export) end by agreeing: every rank
 *            returns the same status, naming the rank at fault.
 * Units      Sizes are bytes and counts are elements, both uint64_t. Times are
 *            nanoseconds, int64_t. Ranks and ids are int32_t, -1 for "none".
 *            Truth values are int32_t, 0 or 1.
 * Failure    After a status of the COMM or DEVICE family a runtime is failed:
 *            everything on it but status, errors, reports and destroy returns
 *            ZERO_ERR_FAILED. Other errors leave it as it was before the call.
 * Silence    libzero writes nothing to stdout or stderr, and never exits or aborts
 *            the process. (A person may ask for it: ZERO_LOG=warn|info|debug in the
 *            environment writes the log to stderr.)
 *
 * ABI. Enumerators are never renumbered or reused. Two kinds of struct:
 *   growing structs start with struct_size, are filled by their ..._init and
 *     passed by pointer; new fields are only ever appended, and 0 in an appended
 *     field means its default. They never appear by value, in arrays, or inside
 *     one another.
 *   frozen structs (zero_buffer, zero_span) have no struct_size and never
 *     change; arrays are made of these only.
 */
#ifndef ZERO_H
#define ZERO_H

#include <stddef.h>
#include <stdint.h>

#define ZERO_VERSION_MAJOR 0
#define ZERO_VERSION_MINOR 1
#define ZERO_VERSION_PATCH 0

#ifndef ZERO_API
#if defined(_WIN32)
#define ZERO_API
#else
#define ZERO_API __attribute__((visibility("default")))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. Version and what this build can do ------------------------------ */

/* major*10000 + minor*100 + patch of the library that is loaded. [any thread] */
ZERO_API int32_t zero_version_number(void);
/* "0.1.0+<git description>"; static, never freed. [any thread] */
ZERO_API const char* zero_version_string(void);

typedef int32_t zero_feature;
enum zero_feature_values {
  ZERO_FEATURE_CUDA = 1,
  ZERO_FEATURE_NCCL = 2,
  ZERO_FEATURE_GLOO = 3,
  ZERO_FEATURE_LOCAL = 4
};
/* 1 if built in and usable on this machine now, else 0. [any thread] */
ZERO_API int32_t zero_has_feature(zero_feature feature);

/* ---- 2. Status and errors ------------------------------------------------ */

typedef int32_t zero_status;
enum zero_status_values {
  ZERO_OK = 0,
  /* the call was wrong */
  ZERO_ERR_INVALID_ARGUMENT = 1,
  ZERO_ERR_INVALID_STATE = 2, /* right call, wrong moment */
  ZERO_ERR_UNSUPPORTED = 3, /* not in this build, or a newer field was set */
  ZERO_ERR_NOT_FOUND = 4,
  ZERO_ERR_BUFFER_TOO_SMALL = 5,
  ZERO_ERR_FAILED = 6, /* an earlier COMM or DEVICE error ended this runtime */
  ZERO_ERR_OVERFLOW = 7, /* non-finite gradients at the smallest loss scale */
  ZERO_ERR_NO_OPEN_BUCKET = 8, /* nothing changed: the same gradient may be handed over later */
  /* configuration */
  ZERO_ERR_CONFIG_SYNTAX = 20,
  ZERO_ERR_CONFIG_UNKNOWN_KEY = 21,
  ZERO_ERR_CONFIG_VALUE = 22,
  ZERO_ERR_CONFIG_CONFLICT = 23,
  /* resources */
  ZERO_ERR_OUT_OF_MEMORY = 40,
  ZERO_ERR_OUT_OF_DEVICE_MEMORY = 41,
  ZERO_ERR_IO = 42,
  ZERO_ERR_NO_SPACE = 43,
  /* COMM family */
  ZERO_ERR_COMM = 60,
  ZERO_ERR_COMM_TIMEOUT = 61,
  ZERO_ERR_COMM_ABORTED = 62,
  ZERO_ERR_COMM_MISMATCH = 63, /* ranks disagree on model, config or call order */
  /* DEVICE family */
  ZERO_ERR_DEVICE = 80,
  ZERO_ERR_DEVICE_LOST = 81,
  /* files */
  ZERO_ERR_FILE_FORMAT = 100,
  ZERO_ERR_FILE_VERSION = 101,
  ZERO_ERR_FILE_CORRUPT = 102,
  ZERO_ERR_FILE_INCOMPLETE = 103,
  ZERO_ERR_FILE_MISMATCH = 104, /* a sound file, but of another model */
  /* never made by libzero itself: free for callbacks to return */
  ZERO_ERR_USER = 200,
  ZERO_ERR_INTERNAL = 250 /* a bug in libzero */
};

/* "ZERO_ERR_COMM_TIMEOUT"; static; "ZERO_ERR_?" for a number it does not know.
 * [any thread] */
ZERO_API const char* zero_status_name(zero_status status);

typedef struct zero_error_info {
  uint32_t struct_size;
  zero_status status;
  int32_t rank; /* the rank at fault where known, else -1 */
  int32_t native_code; /* errno, cudaError_t or ncclResult_t; 0 if none */
  char origin[32]; /* "libzero", "cuda", "nccl", "gloo", "os", "callback" */
  char message[952]; /* one sentence; names the argument and its value */
} zero_error_info;
ZERO_API void zero_error_info_init(zero_error_info* info, uint32_t struct_size);

/* The last failed call on this thread. A success does not clear it.
 * [any thread] */
ZERO_API zero_status zero_last_error(zero_error_info* info);
/* The whole text, where it is longer than message. [any thread] */
ZERO_API zero_status zero_last_error_text(char* buffer, uint64_t capacity, uint64_t* length);
/* For a callback that wants to say why, before returning its status.
 * [any thread] */
ZERO_API void zero_set_last_error(zero_status status, const char* message);

/* Text out: the bytes of the text without its NUL go to *length whatever the
 * capacity; with capacity <= *length nothing is written to buffer and the result
 * is ZERO_ERR_BUFFER_TOO_SMALL (the one error that writes an output argument).
 * buffer may be NULL when capacity is 0. */
/* Which library of a feature was found, where, its version; or why not. */
ZERO_API zero_status zero_feature_text(zero_feature feature, char* buffer, uint64_t capacity,
                                       uint64_t* length);

/* Element types, everywhere in this header. Trained parameters are of the first
 * three; buffers (zero_param_role) may be of any. */
typedef int32_t zero_dtype;
enum zero_dtype_values {
  ZERO_DTYPE_FP32 = 1,
  ZERO_DTYPE_FP16 = 2,
  ZERO_DTYPE_BF16 = 3,
  ZERO_DTYPE_FP64 = 4,
  ZERO_DTYPE_INT64 = 5,
  ZERO_DTYPE_INT32 = 6,
  ZERO_DTYPE_UINT8 = 7
};

/* Where memory lies. */
typedef int32_t zero_place;
enum zero_place_values {
  ZERO_PLACE_HOST = 1,
  ZERO_PLACE_PINNED = 2,
  ZERO_PLACE_DEVICE = 3,
  ZERO_PLACE_FILE = 4 /* NVMe offload; only in accounting */
};

/* frozen struct */
typedef struct zero_buffer {
  void* data;
  uint64_t bytes;
  uint64_t count; /* elements */
  zero_dtype dtype;
  zero_place place;
  int32_t device;
  int32_t reserved;
} zero_buffer;

/* frozen struct */
typedef struct zero_span {
  uint64_t offset; /* elements, within the flattened parameter */
  uint64_t count; /* 0: this rank holds none of it */
} zero_span;

/* ---- 3. Configuration: a DeepSpeed JSON file ------------------------------ */

typedef struct zero_config zero_config;

ZERO_API zero_status zero_config_create(zero_config** config); /* all defaults */
/* Succeed when the text is well-formed; what it says is judged by zero_config_check. */
ZERO_API zero_status zero_config_load_file(const char* path, zero_config** config);
ZERO_API zero_status zero_config_load_text(const char* text, uint64_t length, zero_config** config);
ZERO_API void zero_config_destroy(zero_config* config);

/* key is a dotted path ("zero_optimization.stage"); value is written as in a config file. */
ZERO_API zero_status zero_config_set(zero_config* config, const char* key, const char* value);
/* The effective value, and where it comes from: "file", "set", "facts", "derived" or "default". */
ZERO_API zero_status zero_config_get(const zero_config* config, const char* key, char* buffer,
                                     uint64_t capacity, uint64_t* length);
ZERO_API const char* zero_config_origin(const zero_config* config, const char* key);

/* What a front end knows and a file may leave open as "auto". */
typedef struct zero_config_facts {
  uint32_t struct_size;
  int32_t world_size; /* integers: -1 not known */
  int64_t micro_batch_size; /* samples a rank, a micro-batch */
  int64_t accumulation_steps;
  int64_t hidden_size; /* bucket sizes follow from it: see the DeepSpeed reference, 1.15 */
  int64_t warmup_steps;
  int64_t total_steps;
  double learning_rate; /* numbers: NaN not known */
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
  double gradient_clipping;
  zero_dtype compute_dtype; /* 0 not known */
  int32_t reserved;
} zero_config_facts;
ZERO_API void zero_config_facts_init(zero_config_facts* facts, uint32_t struct_size);
/* Fills every "auto" that facts determine; never overrides a written value. What stays open
 * and is needed makes zero_config_check fail, naming each dotted key. */
ZERO_API zero_status zero_config_fill_auto(zero_config* config, const zero_config_facts* facts);

/* Every check that needs no communicator and no device; the status is that of the first error. */
ZERO_API zero_status zero_config_check(zero_config* config);
typedef struct zero_diagnostic {
  uint32_t struct_size;
  int32_t is_error; /* 0: a warning */
  int32_t line; /* 1-based; 0 when no line is to blame */
  int32_t column;
  const char* key; /* as the file spells it; these live until the next check or destroy */
  const char* value;
  const char* message; /* one sentence, with what was expected */
  const char* suggestion; /* the nearest known key or value, or "" */
} zero_diagnostic;
ZERO_API void zero_diagnostic_init(zero_diagnostic* diagnostic, uint32_t struct_size);
/* All findings of the last check, in file order. */
ZERO_API int32_t zero_config_diagnostic_count(const zero_config* config);
ZERO_API zero_status zero_config_diagnostic_at(const zero_config* config, int32_t index,
                                               zero_diagnostic* diagnostic);
/* The whole config, defaults filled in, in a form that load_text reads back. */
ZERO_API zero_status zero_config_text(const zero_config* config, char* buffer, uint64_t capacity,
                                      uint64_t* length);

typedef struct zero_option_info {
  uint32_t struct_size;
  int32_t kind; /* ZERO_OPTION_... */
  const char* key; /* static, as are the strings below */
  const char* default_value;
  const char* choices; /* "fp32|fp16|bf16", or "" */
  const char* help;
  double minimum; /* inclusive; both 0 where there is no bound */
  double maximum;
} zero_option_info;
enum zero_option_kinds {
  ZERO_OPTION_INTEGER = 1,
  ZERO_OPTION_NUMBER = 2,
  ZERO_OPTION_BOOLEAN = 3,
  ZERO_OPTION_TEXT = 4,
  ZERO_OPTION_CHOICE = 5
};
ZERO_API void zero_option_info_init(zero_option_info* info, uint32_t struct_size);
ZERO_API int32_t zero_option_count(void); /* [any thread] */
ZERO_API zero_status zero_option_at(int32_t index, zero_option_info* info);
/* The schedule as a function of the update's number alone, the first being 1. [any thread] */
ZERO_API zero_status zero_schedule_at(const zero_config* config, int64_t update, double* lr,
                                      double* momentum);

/* ---- 4. Model: names, shapes, groups; no communicator, no device ---------------------- */

typedef struct zero_model zero_model;
typedef int32_t zero_group_id;
typedef int32_t zero_param_id; /* 0, 1, 2, ... in the order of registration */

ZERO_API zero_status zero_model_create(zero_model** model);
/* Names, shapes and dtypes from a TSV list, a safetensors file, an index or a folder of them. */
ZERO_API zero_status zero_model_load(const char* path, zero_model** model);
ZERO_API void zero_model_destroy(zero_model* model); /* also right after zero_shard_params */
/* Gives trained and frozen parameters of floating type this dtype (fp32, fp16 or bf16) without
 * touching values: for a plan of a model that is cast before it trains. A parameter that already
 * has data of another type is INVALID_ARGUMENT, and nothing has changed. */
ZERO_API zero_status zero_model_cast(zero_model* model, zero_dtype dtype);

typedef struct zero_group_options {
  uint32_t struct_size;
  int32_t frozen; /* 1: no gradient, no optimizer state; stage 3 still shards it */
  double lr; /* NaN in any of these: the config's value; lr is then the schedule's */
  double lr_scale; /* multiplies the rate */
  double weight_decay;
  double beta1;
  double beta2;
  double epsilon;
  double momentum;
} zero_group_options;
ZERO_API void zero_group_options_init(zero_group_options* options, uint32_t struct_size);
/* Group 0 exists from the start, with every value the config's. */
ZERO_API zero_status zero_group_add(zero_model* model, const char* name,
                                    const zero_group_options* options, zero_group_id* group);

typedef int32_t zero_param_role;
enum zero_param_role_values {
  ZERO_PARAM_TRAINED = 0,
  ZERO_PARAM_FROZEN = 1, /* no gradient, no state; sharded at stage 3 */
  ZERO_PARAM_BUFFER = 2 /* running statistics and the like: whole on every rank, in checkpoints */
};
typedef int32_t zero_storage;
enum zero_storage_values {
  /* libzero's flat memory; the caller's data is read once, by zero_shard_params;
   * zero_param_buffer then says where the parameter lives */
  ZERO_STORAGE_LIBRARY = 0,
  /* the caller's memory, kept up to date in place until destroy (stages 0 to 2) */
  ZERO_STORAGE_CALLER = 1 /* at stage 3: CONFIG_CONFLICT naming the parameter */
};
typedef struct zero_param_options {
  uint32_t struct_size;
  zero_dtype dtype;
  zero_group_id group; /* 0 by default */
  zero_param_role role;
  zero_storage storage;
  zero_param_id tied_to; /* -1, or an earlier parameter whose storage this one is */
  int32_t unit; /* stage 3: parameters of one unit are gathered together; -1: alone */
  zero_place place;
  int32_t device; /* -1 for host */
  int32_t reserved;
  void* data; /* the full values; NULL: zeros until written, loaded or broadcast */
} zero_param_options;
ZERO_API void zero_param_options_init(zero_param_options* options, uint32_t struct_size);
/* name is unique in the model and is the key in checkpoints; shape has dimensions entries,
 * none for a scalar. */
ZERO_API zero_status zero_param_add(zero_model* model, const char* name, const int64_t* shape,
                                    int32_t dimensions, const zero_param_options* options,
                                    zero_param_id* param);
/* The order in which gradients are expected to be finished, where it is not the reverse of the
 * registration; buckets follow it, each by its last parameter. */
ZERO_API zero_status zero_model_backward_order(zero_model* model, const zero_param_id* params,
                                               uint64_t count);

/* ---- 5. Plan: every byte, before anything is allocated -------------------------------- */

typedef int32_t zero_memory_use;
enum zero_memory_use_values {
  ZERO_MEMORY_TOTAL = 0,
  ZERO_MEMORY_PARAMS = 1,
  ZERO_MEMORY_GRADS = 2,
  ZERO_MEMORY_MASTER = 3,
  ZERO_MEMORY_OPTIMIZER = 4,
  ZERO_MEMORY_GATHERED = 5, /* stage 3: parameters on loan, kept whole, or prefetched */
  ZERO_MEMORY_BUCKETS = 6,
  ZERO_MEMORY_STAGING = 7,
  ZERO_MEMORY_TABLES = 8, /* the plan's own tables; bounded by the plan, the others are exact */
  ZERO_MEMORY_HOST_PROGRAM = 9 /* from zero_memory_allocate; no part of a plan, where it is 0 */
};

typedef struct zero_plan zero_plan;
typedef int32_t zero_comm_kind;
enum zero_comm_kind_values {
  ZERO_COMM_SELF = 1,
  ZERO_COMM_LOCAL = 2,
  ZERO_COMM_GLOO = 3,
  ZERO_COMM_NCCL = 4,
  ZERO_COMM_USER = 5
};
typedef struct zero_plan_options {
  uint32_t struct_size;
  int32_t world_size;
  zero_place place; /* HOST or DEVICE */
  zero_comm_kind comm; /* staging depends on it */
  int32_t own_allocator; /* 1: the host program brings one */
  int32_t reserved;
} zero_plan_options;
ZERO_API void zero_plan_options_init(zero_plan_options* options, uint32_t struct_size);
/* Pure: allocates no tensor, needs no device and no other rank. */
ZERO_API zero_status zero_plan_create(const zero_config* config, const zero_model* model,
                                      const zero_plan_options* options, zero_plan** plan);
ZERO_API zero_status zero_plan_memory(const zero_plan* plan, int32_t rank, zero_place place,
                                      zero_memory_use use, uint64_t* bytes);
/* The plan as text, one line a bucket. */
ZERO_API zero_status zero_plan_text(const zero_plan* plan, char* buffer, uint64_t capacity,
                                    uint64_t* length);
ZERO_API void zero_plan_destroy(zero_plan* plan);

/* ---- 6. Communicators ------------------------------------------------------ */

/* A communicator serves one runtime at a time. */
typedef struct zero_comm zero_comm;

/* One rank, no transport. */
ZERO_API zero_status zero_comm_create_self(zero_comm** comm);
/* Ranks of one machine, processes or threads, through shared memory; group_name is what they
 * meet under. [collective][blocks] */
ZERO_API zero_status zero_comm_create_local(const char* group_name, int32_t rank, int32_t size,
                                            int64_t timeout_ns, zero_comm** comm);
/* Whichever of the above the config and the environment name. [collective][blocks] */
ZERO_API zero_status zero_comm_create_from_config(const zero_config* config, zero_comm** comm);

/* A communicator of the host program's own (MPI, ...). It moves bytes; libzero adds, in rank
 * order, so the sums are the same sums as everywhere. Each function returns when the operation
 * is done (host memory) or enqueued on stream (device memory). A status it returns comes back
 * from the call that was waiting; libzero cannot know here that a peer is dead. */
typedef struct zero_comm_callbacks {
  uint32_t struct_size;
  int32_t handles_device_memory; /* 0: pointers are always host memory */
  int32_t any_thread; /* 1: may be called from a thread of libzero's; needed for overlap_comm */
  /* sequences that may be in flight at once: 0 the host program's, 1 reduce, 2 gather; fewer
   * than 3: no overlap */
  int32_t channels;
  /* required: recv + i*bytes_each is what rank i sent; send may be recv + rank*bytes_each */
  zero_status (*all_gather)(void* user_data, int32_t channel, const void* send, void* recv,
                            uint64_t bytes_each, zero_place place, void* stream);
  /* required: block i of send goes to rank i, block i of recv comes from rank i */
  zero_status (*all_to_all)(void* user_data, int32_t channel, const void* send, void* recv,
                            uint64_t bytes_each, zero_place place, void* stream);
  void (*abort)(void* user_data); /* optional: unblocks the others; from any thread */
  void (*destroy)(void* user_data); /* optional */
} zero_comm_callbacks;
ZERO_API void zero_comm_callbacks_init(zero_comm_callbacks* callbacks, uint32_t struct_size);
ZERO_API zero_status zero_comm_create_user(int32_t rank, int32_t size,
                                           const zero_comm_callbacks* callbacks, void* user_data,
                                           zero_comm** comm);

ZERO_API int32_t zero_comm_rank(const zero_comm* comm); /* [any thread] */
ZERO_API int32_t zero_comm_size(const zero_comm* comm); /* [any thread] */
/* For the host program's own needs: a mean loss, a seed, an early stop. [collective][blocks] */
typedef int32_t zero_reduce;
enum zero_reduce_values { ZERO_REDUCE_SUM = 1, ZERO_REDUCE_MAX = 2, ZERO_REDUCE_MIN = 3 };
ZERO_API zero_status zero_comm_all_reduce(zero_comm* comm, double* values, uint64_t count,
                                          zero_reduce op);
ZERO_API zero_status zero_comm_broadcast(zero_comm* comm, void* bytes, uint64_t count,
                                         int32_t root);
ZERO_API zero_status zero_comm_barrier(zero_comm* comm);
/* Makes every blocked or later call on comm return ZERO_ERR_COMM_ABORTED. [any thread] */
ZERO_API void zero_comm_abort(zero_comm* comm);
ZERO_API void zero_comm_destroy(zero_comm* comm);

/* ---- 7. Runtime ---------------------------------------------------------- */

typedef struct zero_runtime zero_runtime;

/* Memory from the host program, instead of malloc and cudaMalloc. Called in zero_shard_params,
 * once for each (place, use), with the sizes of the plan. With it the local communicator copies
 * through staging, which the plan lists. */
typedef struct zero_allocator {
  uint32_t struct_size;
  int32_t reserved;
  void* (*allocate)(void* user_data, zero_place place, int32_t device, zero_memory_use use,
                    uint64_t bytes, uint64_t alignment);
  void (*release)(void* user_data, zero_place place, int32_t device, void* memory, uint64_t bytes);
  void* user_data;
} zero_allocator;
ZERO_API void zero_allocator_init(zero_allocator* allocator, uint32_t struct_size);

typedef struct zero_init_options {
  uint32_t struct_size;
  int32_t device; /* CUDA ordinal; -1: as the config says (default: LOCAL_RANK, or the host) */
  zero_comm* comm; /* kept; NULL: the one the config and the environment name */
  const zero_allocator* allocator; /* copied; NULL: libzero's own */
} zero_init_options;
ZERO_API void zero_init_options_init(zero_init_options* options, uint32_t struct_size);

/* Makes a runtime for this rank; keeps a copy of config. options may be NULL.
 * [collective][blocks] */
ZERO_API zero_status zero_init(const zero_config* config, const zero_init_options* options,
                               zero_runtime** runtime);
/* Lays out the shards, checks that all ranks bring the same model and config, allocates
 * everything the steps will need, and makes the values equal: rank 0's are sent round, unless
 * "libzero.initial_values" says "rank:R", "verify" (checksums must agree) or "local" (each rank
 * brings its own part). [collective][blocks] */
ZERO_API zero_status zero_shard_params(zero_runtime* runtime, const zero_model* model);
/* Waits for work in flight and agrees with the other ranks to end. [collective][blocks] */
ZERO_API zero_status zero_runtime_close(zero_runtime* runtime);
ZERO_API void zero_runtime_destroy(zero_runtime* runtime);

/* ZERO_OK, or the error that failed this runtime, also one that came up between
 * calls. Never blocks. [any thread] */
ZERO_API zero_status zero_runtime_status(const zero_runtime* runtime);
/* Where it stands: step, open loans, pending buckets, whom each rank waits for. Also part of
 * every COMM error. [any thread] */
ZERO_API zero_status zero_runtime_text(const zero_runtime* runtime, char* buffer, uint64_t capacity,
                                       uint64_t* length);
/* Borrowed until destroy: rank and size, and the config as it took effect. */
ZERO_API zero_comm* zero_runtime_comm(const zero_runtime* runtime);
ZERO_API const zero_config* zero_runtime_config(const zero_runtime* runtime);
ZERO_API const zero_plan* zero_runtime_plan(const zero_runtime* runtime); /* the one carried out */

ZERO_API int32_t zero_param_count(const zero_runtime* runtime);
ZERO_API zero_status zero_param_find(const zero_runtime* runtime, const char* name,
                                     zero_param_id* param);
typedef struct zero_param_info {
  uint32_t struct_size;
  zero_dtype dtype;
  zero_param_role role;
  zero_group_id group;
  zero_param_id tied_to;
  int32_t dimensions;
  uint64_t elements;
  const char* name; /* borrowed from the runtime, as is shape */
  const int64_t* shape;
} zero_param_info;
ZERO_API void zero_param_info_init(zero_param_info* info, uint32_t struct_size);
ZERO_API zero_status zero_param_describe(const zero_runtime* runtime, zero_param_id param,
                                         zero_param_info* info);
/* The same of a model, as registered or loaded; name and shape live until the model changes. */
ZERO_API int32_t zero_model_param_count(const zero_model* model);
ZERO_API zero_status zero_model_param_at(const zero_model* model, zero_param_id param,
                                         zero_param_info* info);
/* The whole parameter where it lives between steps (stages 0 to 2); fixed until destroy. */
ZERO_API zero_status zero_param_buffer(const zero_runtime* runtime, zero_param_id param,
                                       zero_buffer* buffer);
/* The part of param whose master and optimizer state rank holds: at stage 0 the whole. */
ZERO_API zero_status zero_param_shard(const zero_runtime* runtime, zero_param_id param,
                                      int32_t rank, zero_span* span);
/* New values for a group, between steps; equal on all ranks, checked at the next step. frozen
 * cannot change. */
ZERO_API zero_status zero_group_set(zero_runtime* runtime, zero_group_id group,
                                    const zero_group_options* options);

/* ---- 8. Gradients --------------------------------------------------------
 * The host hands over the gradient of its own micro-batch's mean loss, times the loss scale.
 * Contributions are added in rank order in fp32, times 1/ranks, rounded once to the
 * accumulation dtype; the step divides by the number of micro-batches, which is the number of
 * micro_end calls since the last step (see gradient_divisor). A gradient missing on some ranks
 * is zero there; missing on all for the whole step, the parameter is left alone
 * ("libzero.missing_gradients": "zero" treats it as zeros). */

/* Optional: says whether this micro-batch ends the step (1, 0; -1 as
 * gradient_accumulation_steps says), so that stages 0 and 1 can overlap its reduction. After one
 * that does, another micro-batch before the step is INVALID_STATE. */
ZERO_API zero_status zero_micro_begin(zero_runtime* runtime, int32_t is_last);
/* Where the backward pass puts param's gradient, on stream. *add is 0: the content is undefined,
 * write every element; 1: add to it. Asked for when the gradient is about to be written; then
 * grad_ready must follow. At stages 0 and 1 the address is fixed until destroy; at stages 2 and 3
 * "libzero.open_buckets" buckets of a class are open at once, and an order that needs more is
 * NO_OPEN_BUCKET, naming the bucket in the way and the number needed so far. */
ZERO_API zero_status zero_grad_buffer(zero_runtime* runtime, zero_param_id param, void* stream,
                                      zero_buffer* buffer, int32_t* add);
/* These gradients are complete. Once for each parameter and micro-batch. [any thread] */
ZERO_API zero_status zero_grad_ready(zero_runtime* runtime, const zero_param_id* params,
                                     uint64_t count, void* stream);
/* Or: hands over a complete gradient that lies elsewhere. */
ZERO_API zero_status zero_grad_submit(zero_runtime* runtime, zero_param_id param,
                                      const zero_buffer* gradient, void* stream);
/* No more gradient comes for these in this micro-batch: what is missing is missing, and their
 * buckets may be reduced. */
ZERO_API zero_status zero_grads_close(zero_runtime* runtime, const zero_param_id* params,
                                      uint64_t count, void* stream);
/* Ends a micro-batch: closes them all. A step without micro calls is one micro-batch.
 * [collective] */
ZERO_API zero_status zero_micro_end(zero_runtime* runtime, void* stream);
/* Forgets what the micro-batches since the last step have brought. [collective] */
ZERO_API zero_status zero_grads_clear(zero_runtime* runtime, void* stream);

/* ---- 9. Stage 3: whole parameters on loan -------------------------------- */

/* buffers[i] holds the whole of params[i], in stream order, until the matching release. Loans
 * count: acquired twice, released twice. At stages 0 to 2 it is zero_param_buffer. More than
 * "libzero.live_parameters" at once is OUT_OF_MEMORY naming the loans held and the value that
 * would do. Acquire, release, prefetch, grads_close, micro_end and step come in the same order on
 * all ranks. [collective] */
ZERO_API zero_status zero_params_acquire(zero_runtime* runtime, const zero_param_id* params,
                                         uint64_t count, void* stream, zero_buffer* buffers);
/* keep_changes: what the host wrote into the loan becomes the value (at every stage, master
 * included). */
ZERO_API zero_status zero_params_release(zero_runtime* runtime, const zero_param_id* params,
                                         uint64_t count, int32_t keep_changes, void* stream);
/* A hint, in the order they will be acquired. [collective] */
ZERO_API zero_status zero_params_prefetch(zero_runtime* runtime, const zero_param_id* params,
                                          uint64_t count);
/* root's values and buffers to all, masters set from them (stage 0: states too). Stage 3:
 * UNSUPPORTED, see initial_values. [collective][blocks] */
ZERO_API zero_status zero_params_broadcast(zero_runtime* runtime, int32_t root);

/* ---- 10. Step ------------------------------------------------------------ */

typedef struct zero_step_options {
  uint32_t struct_size;
  int32_t reserved;
  double lr; /* NaN: the schedule's */
  /* NaN: ranks x micro-batches. Else the gradients handed over are sums, and this is what their
   * sum over ranks and micro-batches is divided by (tokens, samples); equal on all ranks. */
  double gradient_divisor;
} zero_step_options;
ZERO_API void zero_step_options_init(zero_step_options* options, uint32_t struct_size);

typedef struct zero_step_info {
  uint32_t struct_size;
  int32_t skipped; /* 1: an overflow, nothing was updated */
  int64_t step; /* updates done so far, this one included */
  int64_t skipped_total;
  double lr;
  double grad_norm; /* over all ranks, unscaled, before clipping */
  double clip_scale; /* 1 where nothing was clipped */
  double loss_scale; /* for the next step */
  zero_param_id nonfinite_param; /* where the first non-finite value was; -1: none */
  int32_t nonfinite_rank; /* -1 also where NCCL itself summed */
  uint64_t nonfinite_element;
  int64_t reduce_ns;
  int64_t update_ns;
  int64_t gather_ns;
  uint64_t bytes_sent; /* by this rank, in this step */
} zero_step_info;
ZERO_API void zero_step_info_init(zero_step_info* info, uint32_t struct_size);

/* options and info may be NULL. Gradients that are not finite (bf16: unless
 * bf16.check_grad_overflow is false) skip the step: info->skipped is 1, the loss scale falls as the
 * config says, nothing else changes. At the smallest loss scale that is ZERO_ERR_OVERFLOW, on all
 * ranks; the gradients since the last step are then forgotten, nothing else has changed.
 * [collective][blocks when info is given] */
ZERO_API zero_status zero_step(zero_runtime* runtime, const zero_step_options* options,
                               void* stream, zero_step_info* info);
ZERO_API int64_t zero_step_count(const zero_runtime* runtime); /* [any thread] */
/* What the loss is multiplied by before backward; 1 without fp16. Waits for the verdict of the
 * last step. [any thread][blocks] */
ZERO_API double zero_loss_scale(const zero_runtime* runtime);
/* The same as one fp32 where the runtime lives, for a kernel that scales the loss; valid after
 * zero_step in stream order. */
ZERO_API zero_status zero_loss_scale_buffer(const zero_runtime* runtime, zero_buffer* buffer);
/* Of the last step, unscaled, before clipping; equal on all ranks. Needs "libzero.param_norms". */
ZERO_API zero_status zero_param_grad_norm(const zero_runtime* runtime, zero_param_id param,
                                          double* norm);

/* An optimizer of the host program's own ("optimizer": {"type": "libzero.host", "params":
 * {"states": K}}), for rules that act element by element: step_begin reduces, decides on
 * overflow, unscales and clips; the host updates master and states of each shard; step_end
 * writes back and gathers. [collective] */
typedef int32_t zero_part;
enum zero_part_values {
  ZERO_PART_VALUE = 0,
  ZERO_PART_GRAD = 1,
  ZERO_PART_MASTER = 2,
  ZERO_PART_STATE = 3
};
ZERO_API zero_status zero_step_begin(zero_runtime* runtime, const zero_step_options* options,
                                     void* stream, zero_step_info* info);
ZERO_API zero_status zero_step_end(zero_runtime* runtime, void* stream);
/* This rank's part of param, in place (zero_param_shard says which); index counts states. GRAD
 * only between a step_begin that did not skip and step_end, NOT_FOUND where no gradient of param
 * came on any rank. A master kept as a remainder ("libzero.master_weights") lies nowhere in place:
 * UNSUPPORTED, see zero_param_get. */
ZERO_API zero_status zero_shard_buffer(zero_runtime* runtime, zero_param_id param, zero_part part,
                                       int32_t index, zero_buffer* buffer);
/* The whole of one part, gathered from or scattered to its owners, as fp32 (VALUE: its dtype), in
 * host memory of bytes bytes. [collective][blocks] */
ZERO_API zero_status zero_param_get(zero_runtime* runtime, zero_param_id param, zero_part part,
                                    int32_t index, void* values, uint64_t bytes);
ZERO_API zero_status zero_param_set(zero_runtime* runtime, zero_param_id param, zero_part part,
                                    int32_t index, const void* values, uint64_t bytes);

/* ---- 11. Checkpoints ----------------------------------------------------- */

/* A checkpoint is a folder: one piece a rank and a manifest (docs/checkpoint-format.md). All ranks
 * see one file system. Whatever wrote it - stage, number of ranks, bucket size, dtype - any other
 * run of the same model reads it. Host memory alone: no stream. */

typedef struct zero_save_options {
  uint32_t struct_size;
  int32_t replace; /* 1: path may exist; it stays whole until the new one is */
  /* 1: returns once the state is copied to staging memory; needs
   * "libzero.checkpoint_background", so that the plan lists it */
  int32_t in_background;
  int32_t weights_only; /* values and buffers, in their own dtypes, and nothing else */
  /* After this one is whole, older checkpoints of this run beside path are deleted: all but the
   * newest keep_last (this one counts; 0: all stay), those of steps that keep_every divides (0:
   * none), and the one that latest names. This run: what it saved and what it was loaded from. */
  int32_t keep_last;
  int32_t keep_every;
  /* The name of a file in path's folder that is swapped to say path's own name, after the new one
   * is whole; or NULL. */
  const char* latest;
} zero_save_options;
ZERO_API void zero_save_options_init(zero_save_options* options, uint32_t struct_size);
/* Writes the state between two steps: parameters, masters, optimizer state, buffers (rank 0's),
 * step counts, loss scale, group values, what zero_checkpoint_put gave. It is written beside path
 * (in ".NAME.saving-..."), synced and renamed, so that path is whole or absent, whenever a process
 * dies. Missing folders above path are made. In the middle of a step, of a micro-batch or of its
 * accumulation, or with parameters on loan, it is INVALID_STATE. One at a time: a save while
 * another is in flight waits for that one first, and returns its error if it failed. Beside the
 * plan it takes buffers of a few MiB and the lists of the manifest from the heap, and gives them
 * back. options may be NULL. [collective][blocks] */
ZERO_API zero_status zero_checkpoint_save(zero_runtime* runtime, const char* path,
                                          const zero_save_options* options);
/* done: 1 when no save is in flight on any rank's behalf, as far as this rank knows. The error of a
 * failed background save is what poll, wait, close and the next save return, until wait or the
 * save has returned it. Never waits for a peer. */
ZERO_API zero_status zero_checkpoint_poll(zero_runtime* runtime, int32_t* done);
/* Until no save is in flight; then its outcome, the same on all ranks. [collective][blocks] */
ZERO_API zero_status zero_checkpoint_wait(zero_runtime* runtime);

/* The host program's own state (loader position, RNG): goes into every later save of full state, a
 * blob for each key and rank, until another one of that key replaces it; 0 bytes: forgotten.
 * Copied before return. */
ZERO_API zero_status zero_checkpoint_put(zero_runtime* runtime, const char* key, const void* bytes,
                                         uint64_t count);

typedef struct zero_checkpoint zero_checkpoint; /* an opened checkpoint, for reading */
/* path: the folder, a file that says its name (see zero_save_options.latest), or a folder that
 * holds such a file called "latest". No runtime, no device, any number of ranks; reads the manifest
 * and looks at the pieces' sizes. */
ZERO_API zero_status zero_checkpoint_open(const char* path, zero_checkpoint** checkpoint);
ZERO_API void zero_checkpoint_destroy(zero_checkpoint* checkpoint);

typedef struct zero_checkpoint_info {
  uint32_t struct_size;
  int32_t format_version;
  int64_t step; /* updates done */
  int64_t skipped_total;
  double loss_scale;
  int32_t world_size; /* of the run that wrote it, as is stage */
  int32_t stage;
  int64_t param_count;
  uint64_t bytes; /* of all its files */
  int32_t weights_only;
  int32_t state_count; /* optimizer states beside a master */
} zero_checkpoint_info;
ZERO_API void zero_checkpoint_info_init(zero_checkpoint_info* info, uint32_t struct_size);
ZERO_API zero_status zero_checkpoint_describe(const zero_checkpoint* checkpoint,
                                              zero_checkpoint_info* info);
/* Name and shape are borrowed until destroy; index as in the run that wrote it. */
ZERO_API zero_status zero_checkpoint_param_at(const zero_checkpoint* checkpoint, int64_t index,
                                              zero_param_info* info);
/* The updates that this parameter itself has had. */
ZERO_API zero_status zero_checkpoint_param_steps(const zero_checkpoint* checkpoint, int64_t index,
                                                 int64_t* steps);
/* What is in it: one line each for the run, every group, blob and parameter; after a verify that
 * failed also each damaged range: file, offset, parameter. */
ZERO_API zero_status zero_checkpoint_text(const zero_checkpoint* checkpoint, char* buffer,
                                          uint64_t capacity, uint64_t* length);
/* Elements [offset, offset + count) of one part of a parameter or one of its aliases, as fp32
 * (VALUE: its dtype; GRAD: none is kept), their checksums compared first. [any thread][blocks] */
ZERO_API zero_status zero_checkpoint_read(const zero_checkpoint* checkpoint, const char* name,
                                          zero_part part, int32_t index, uint64_t offset,
                                          uint64_t count, void* values, uint64_t bytes);
/* What rank put under key; with capacity 0 count alone, else BUFFER_TOO_SMALL as for text. */
ZERO_API zero_status zero_checkpoint_get(const zero_checkpoint* checkpoint, int32_t rank,
                                         const char* key, void* bytes, uint64_t capacity,
                                         uint64_t* count);

/* Told now and then during the long calls on one checkpoint, on their thread. A status other than
 * ZERO_OK ends the call and comes back from it. */
typedef struct zero_progress {
  uint32_t struct_size;
  int32_t reserved;
  zero_status (*report)(void* user_data, uint64_t bytes_done, uint64_t bytes_total);
  void* user_data;
} zero_progress;
ZERO_API void zero_progress_init(zero_progress* progress, uint32_t struct_size);
/* progress is copied; NULL: nobody is told. */
ZERO_API zero_status zero_checkpoint_progress(zero_checkpoint* checkpoint,
                                              const zero_progress* progress);
/* Reads every byte and compares every checksum; the error is of the first damage, the text lists
 * all. [blocks] */
ZERO_API zero_status zero_checkpoint_verify(zero_checkpoint* checkpoint);
/* The same state as another number of ranks would have written it; path must not exist. [blocks] */
ZERO_API zero_status zero_checkpoint_reshard(zero_checkpoint* checkpoint, const char* path,
                                             int32_t world_size);

typedef struct zero_load_options {
  uint32_t struct_size;
  /* values and buffers alone; the optimizer state of the parameters loaded starts anew (states 0,
   * their own steps 0, masters from what is stored); the run's step and loss scale stay */
  int32_t weights_only;
  int32_t allow_missing; /* parameters of the model that the file lacks keep their values */
  int32_t allow_extra; /* parameters of the file that the model lacks are passed over */
} zero_load_options;
ZERO_API void zero_load_options_init(zero_load_options* options, uint32_t struct_size);
/* Everything that a save wrote, into the same model at any number of ranks, stage, bucket size and
 * dtype; blobs are for zero_checkpoint_get. Parameters that are missing, extra, of another shape or
 * tied otherwise are FILE_MISMATCH, all of them listed; so is another optimizer. Where a master is
 * kept in fp32 it comes back exactly; a value is its master, rounded. What is needed is read and
 * compared with its checksums; where that fails on any rank, nothing has changed on any. So a rank
 * keeps what it writes over, but for zeros, in memory beside the plan until all have read (up to
 * what zero_plan_text says of loads; STAGING of zero_memory_usage, under the budget); without that
 * memory it reads twice, and damage that comes between the two fails the runtime. At last what the
 * parameters are is compared between ranks. Every rank opens its own handle; options may be NULL.
 * [collective][blocks] */
ZERO_API zero_status zero_checkpoint_load(zero_runtime* runtime, const zero_checkpoint* checkpoint,
                                          const zero_load_options* options);

/* Whole weights as safetensors. max_file_bytes 0: path is one file, replaced as a whole. Else path
 * is a new folder of files of at most so many bytes and their index (a larger tensor has a file of
 * its own). dtype: of the trained and frozen floats, 0: each its own; any other than a trained
 * parameter's own comes from its master. [collective][blocks] */
ZERO_API zero_status zero_weights_export(zero_runtime* runtime, const char* path, zero_dtype dtype,
                                         uint64_t max_file_bytes);
/* From a safetensors file, an index, or a folder of them, straight into the shards, as a load with
 * weights_only, which is implied. options may be NULL. [collective][blocks] */
ZERO_API zero_status zero_weights_import(zero_runtime* runtime, const char* path,
                                         const zero_load_options* options);
/* The same export from a checkpoint, without a runtime. [blocks] */
ZERO_API zero_status zero_checkpoint_export(zero_checkpoint* checkpoint, const char* path,
                                            zero_dtype dtype, uint64_t max_file_bytes);
/* A DeepSpeed checkpoint (stages 0 to 3, or universal; folder holds "latest", or is the tag's own),
 * written as a checkpoint of world_size ranks (0: as many as wrote it). Nothing that a pickle asks
 * for is executed; a class that is not known is UNSUPPORTED, naming it. progress may be NULL.
 * [blocks] */
ZERO_API zero_status zero_checkpoint_import_deepspeed(const char* folder, const char* path,
                                                      int32_t world_size,
                                                      const zero_progress* progress);

/* ---- 12. Memory ---------------------------------------------------------- */

typedef struct zero_memory_info {
  uint32_t struct_size;
  int32_t reserved;
  uint64_t planned; /* what zero_shard_params set out to use; 0 for HOST_PROGRAM */
  uint64_t current;
  uint64_t peak; /* since zero_shard_params or the last reset */
} zero_memory_info;
ZERO_API void zero_memory_info_init(zero_memory_info* info, uint32_t struct_size);
/* [any thread] */
ZERO_API zero_status zero_memory_usage(const zero_runtime* runtime, zero_place place,
                                       zero_memory_use use, zero_memory_info* info);
ZERO_API zero_status zero_memory_reset_peak(zero_runtime* runtime); /* [any thread] */

/* The host program's own memory (activations) under the same ledger and budget, from zero_init
 * until destroy. "libzero.memory_budget" ("24GB": 10^9, "24GiB": 2^30; a rank, each place on its
 * own) holds like a smaller machine: zero_shard_params is charged the plan's total, before it
 * allocates anything, these calls what they ask for, and what goes beyond is OUT_OF_MEMORY, saying
 * what holds what and the cheapest change that fits; nothing has changed then.
 * place is HOST here (PINNED and DEVICE: UNSUPPORTED in this build). alignment is a power of two
 * up to 2 MiB, 0 meaning 64. The content is undefined; 0 bytes are NULL. [any thread] */
ZERO_API zero_status zero_memory_allocate(zero_runtime* runtime, zero_place place, uint64_t bytes,
                                          uint64_t alignment, void** memory);
/* NULL is left alone, and so is what is not from zero_memory_allocate of this runtime or is free
 * already (the log says so). Also after a failure. What is not freed ends with the runtime.
 * [any thread] */
ZERO_API void zero_memory_free(zero_runtime* runtime, void* memory);
/* For the message of an allocation of failed_bytes that failed anywhere in the process: a line each
 * for what was asked, what libzero holds of place by use and the host program by
 * zero_memory_allocate, the cheapest changes that fit (config keys and the total with them; the
 * same plan that zero_plan_create makes), and what others in the process hold. A change fits when
 * everything is within "libzero.memory_budget", or, where that did not bind, when it sets
 * failed_bytes free. Without a model: no changes. The error of zero_shard_params and
 * zero_memory_allocate says the same (zero_last_error_text has it whole). [any thread] */
ZERO_API zero_status zero_memory_explain(const zero_runtime* runtime, zero_place place,
                                         uint64_t failed_bytes, char* buffer, uint64_t capacity,
                                         uint64_t* length);
/* ---- 13. Log (pulled, so that no callback is needed) ----------- */

typedef int32_t zero_log_level;
enum zero_log_level_values {
  ZERO_LOG_ERROR = 1,
  ZERO_LOG_WARN = 2,
  ZERO_LOG_INFO = 3,
  ZERO_LOG_DEBUG = 4
};
/* The oldest unread line, or ZERO_ERR_NOT_FOUND. [any thread] */
ZERO_API zero_status zero_log_read(zero_runtime* runtime, zero_log_level* level, char* buffer,
                                   uint64_t capacity, uint64_t* length);
#ifdef __cplusplus
}
#endif

#endif /* ZERO_H */
