/* What the kinds of media share. Nothing outside media/ includes this. */
#ifndef PRESTAGE_MEDIA_INTERNAL_H
#define PRESTAGE_MEDIA_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../media.h"

/* ---- requests ---- */

/* A queue of requests, linked by `next`. */
struct ps_request_list {
  struct ps_media_request *head;
  struct ps_media_request *tail;
};

static inline void ps_list_push(struct ps_request_list *list, struct ps_media_request *request) {
  assert(list != NULL && request != NULL);
  request->next = NULL;
  if (list->tail != NULL) {
    list->tail->next = request;
  } else {
    list->head = request;
  }
  list->tail = request;
}

static inline struct ps_media_request *ps_list_pop(struct ps_request_list *list) {
  assert(list != NULL);
  struct ps_media_request *request = list->head;
  if (request != NULL) {
    list->head = request->next;
    if (list->head == NULL) list->tail = NULL;
    request->next = NULL;
  }
  return request;
}

/* Moves all of `from` to the end of `to`. */
static inline void ps_list_move(struct ps_request_list *to, struct ps_request_list *from) {
  assert(to != NULL && from != NULL && to != from);
  if (from->head == NULL) return;
  if (to->tail != NULL) {
    to->tail->next = from->head;
  } else {
    to->head = from->head;
  }
  to->tail = from->tail;
  from->head = NULL;
  from->tail = NULL;
}

/* Ends a request; its memory is the caller's again when this returns. */
static inline void ps_request_end(struct ps_media_request *request, int error) {
  assert(request != NULL && error >= 0);
  assert(request->done != NULL);
  request->error = error;
  request->done(request);
}

static inline bool ps_op_is_read(uint32_t op) {
  return op == PS_MEDIA_READ || op == PS_MEDIA_PREFETCH;
}

/* True for what changes contents: write, discard, zero. */
static inline bool ps_op_is_write(uint32_t op) {
  return op == PS_MEDIA_WRITE || op == PS_MEDIA_DISCARD || op == PS_MEDIA_ZERO;
}

/* Whether the memory of the request is in parts. */
static inline bool ps_is_in_parts(const struct ps_media_request *request) {
  return request->part_count > 0;
}

/* The memory of a request from byte `at` on: all of it, as one piece or as whole parts in the
 * caller's list; or, within a part, the rest of that part alone. */
struct ps_memory {
  const struct iovec *parts; /* NULL: one piece */
  uint32_t part_count;
  uint8_t *piece;
  uint32_t length; /* bytes, of either */
};
struct ps_memory ps_memory_at(const struct ps_media_request *request, uint32_t at);

/* 0, or EINVAL for an unknown operation, for a range that is empty, misaligned or outside of
 * `size`, and for parts that do not make up the range or belong to no read. A SYNC has no range. */
int ps_request_check(const struct ps_media_request *request, uint64_t size, uint32_t block_size);

/* ---- time, randomness, descriptors ---- */

uint64_t ps_monotonic_ns(void);
/* A well-mixed number of (seed, counter): the same arguments give the same number for ever. */
uint64_t ps_mix(uint64_t seed, uint64_t counter);
/* The same as a fraction in [0, 1). */
double ps_fraction(uint64_t seed, uint64_t counter);
/* Makes an eventfd readable, and unreadable again. */
void ps_event_set(int event_fd);
void ps_event_clear(int event_fd);

/* ---- the spec ---- */

#define PS_SPEC_OPTIONS 16 /* options of one part at most */
#define PS_SPEC_PARTS 16   /* parts of a chain at most */

/* Where errors go: the text is "media spec "...", at byte N: WHAT; expected WHAT". */
struct ps_spec_report {
  const char *spec;
  char *text;
  size_t size;
};

struct ps_spec_option {
  const char *key; /* into the spec, not terminated */
  const char *value;
  size_t key_length;
  size_t value_length;
};

/* One part of the chain: KIND:PATH,KEY=VALUE,... */
struct ps_spec_part {
  const char *start; /* into the spec */
  size_t kind_length;
  char *path; /* decoded, owned by the part; NULL when the kind has none */
  const char *path_start;
  uint32_t option_count;
  struct ps_spec_option options[PS_SPEC_OPTIONS];
};

enum ps_option_type {
  PS_OPTION_NUMBER,   /* a whole number */
  PS_OPTION_SIZE,     /* bytes, or a number with K, M, G or T (powers of 1024) */
  PS_OPTION_FRACTION, /* a decimal number, as a double */
  PS_OPTION_CHOICE    /* one of `choices`; its index */
};

struct ps_option {
  const char *key;
  enum ps_option_type type;
  bool required;
  uint64_t least; /* NUMBER, SIZE */
  uint64_t most;
  double least_real; /* FRACTION */
  double most_real;
  const char *const *choices; /* CHOICE: ends with NULL */
};

struct ps_option_value {
  bool given;
  uint64_t number;
  double real;
  const char *at; /* into the spec, for later complaints */
};

/* Reports a fault at `at` (into the spec; NULL: no place). Returns false for the caller's use. */
bool ps_spec_fail(const struct ps_spec_report *report, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Cuts one part (up to '|' or the end) at `start`; `*end` is where it stopped. */
bool ps_spec_cut(const struct ps_spec_report *report, const char *start, bool has_path,
                 struct ps_spec_part *part, const char **end);
void ps_spec_part_free(struct ps_spec_part *part);
/* Checks every option of `part` against the table and fills `values`, one for each of `table`. */
bool ps_spec_read(const struct ps_spec_report *report, const struct ps_spec_part *part,
                  const struct ps_option *table, uint32_t count, struct ps_option_value *values);
/* One value; for ps_spec_read and "set key=value". */
bool ps_option_parse(const struct ps_spec_report *report, const struct ps_option *option,
                     const char *text, size_t length, struct ps_option_value *value);
/* A "set key=value" verb against the table: the index of the option, or -1 with a report. */
int ps_option_set(const struct ps_spec_report *report, const char *verb,
                  const struct ps_option *table, uint32_t count, struct ps_option_value *value);

/* ---- kinds ---- */

/* How a kind is made from its part of the spec. On failure: NULL, with a report; `below` stays the
 * caller's then. */
struct ps_kind_entry {
  const char *name;
  bool has_path;
  bool is_wrapper;
  struct ps_media *(*open)(const struct ps_spec_report *report, const struct ps_spec_part *part,
                           struct ps_media *below);
};

/* Options that both kinds over a file have. */
#define PS_FILE_OPTION_SIZE {.key = "size", .type = PS_OPTION_SIZE, .least = 512, .most = INT64_MAX}
#define PS_FILE_OPTION_CREATE {.key = "create", .type = PS_OPTION_CHOICE, .choices = ps_flags}
#define PS_FILE_OPTION_DEPTH {.key = "depth", .type = PS_OPTION_NUMBER, .least = 1, .most = 4096}

extern const char *const ps_flags[]; /* "0", "1" */

/* What a file medium is to be like; not given: the default. */
struct ps_file_order {
  struct ps_option_value size;
  struct ps_option_value create;
  struct ps_option_value engine;
  struct ps_option_value direct;
  struct ps_option_value depth;
};

struct ps_media *ps_file_new(const struct ps_spec_report *report, const struct ps_spec_part *part,
                             const struct ps_file_order *order);

struct ps_media *ps_file_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                              struct ps_media *below);
struct ps_media *ps_ram_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                             struct ps_media *below);
struct ps_media *ps_model_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                               struct ps_media *below);
struct ps_media *ps_delay_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                               struct ps_media *below);
struct ps_media *ps_error_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                               struct ps_media *below);
struct ps_media *ps_stall_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                               struct ps_media *below);
struct ps_media *ps_powercut_open(const struct ps_spec_report *report,
                                  const struct ps_spec_part *part, struct ps_media *below);

/* The table of all kinds (kinds.c); ends with a NULL name. */
extern const struct ps_kind_entry ps_kinds[];

#endif
