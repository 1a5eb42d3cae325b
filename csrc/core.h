/* The data path as the control plane sees it: reactors, connections, volumes, namespace maps.
 *
 * One control thread calls these functions; none of them waits for I/O except ps_core_volume_open,
 * ps_core_volume_resize, ps_core_stop and ps_core_free. The first two may be called in another
 * thread while the control thread calls others, but only one of them at a time, for a volume that
 * the control thread leaves alone meanwhile, and not across a stop. Reactors answer with notices,
 * read in batches after the wake descriptor became readable. C never calls the control plane.
 *
 * Fabrics and admin commands (and Connect on every queue) go up as PS_NOTICE_COMMAND and come back
 * by ps_core_answer. I/O commands finish in C.
 */
#ifndef PRESTAGE_CORE_H
#define PRESTAGE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hints.h"
#include "media.h"
#include "orders.h"
#include "tier.h"

/* cffi: begin */
#define PS_MAX_REACTORS 64
#define PS_MAX_SUBSYSTEMS 512
#define PS_MAX_NSID 1024
#define PS_MAX_VOLUMES 1024
#define PS_LATENCY_BINS 192

struct ps_core_config {
  uint32_t reactor_count; /* 1 to PS_MAX_REACTORS */
  int32_t cpus[64];       /* reactor n is pinned to cpus[n]; -1: not pinned */
  uint32_t max_connections;
  uint32_t queue_depth;     /* entries of a queue at most (MQES + 1), 16 to 4096 */
  uint32_t max_transfer;    /* MDTS in bytes, a power of two times 4096 */
  uint32_t in_capsule_size; /* of I/O queues, bytes; admin queues always take 8192 */
  uint32_t max_h2c_data;    /* MAXH2CDATA, bytes */
  uint32_t digests;         /* enum ps_digest bits that hosts may ask for */
  uint32_t success;         /* 1: SUCCESS may also be used while SQ flow control is enabled */
  uint32_t slot_size;       /* tier slot, bytes */
  uint64_t dram_bytes;      /* tier size, bytes */
  uint32_t huge_pages;      /* 1: try huge pages for the tier */
  uint32_t dirty_percent;   /* dirty share of the tier at most */
  uint64_t writeback_age_ns;
  uint64_t handshake_timeout_ns; /* ICReq and Connect must be complete by then */
  uint64_t poll_ns;              /* busy-poll this long before sleeping; 0: sleep at once */
  uint64_t starvation_ns;        /* as ps_sched_config */
  uint32_t merge_bytes;          /* as ps_sched_config */
  uint32_t tenant_count;
  uint64_t ring_capacity;       /* facts kept for the model, a power of two; 0: no ring */
  uint64_t orders_capacity;     /* orders of the model, a power of two; 0: none are taken */
  struct ps_hints_config hints; /* tenant_count, volume_count, slot_size are set by the core */
};

enum ps_notice_kind {
  PS_NOTICE_COMMAND = 1,  /* answer it with ps_core_answer; entry = SQE, data = host data */
  PS_NOTICE_CLOSED = 2,   /* the connection is gone and nothing of it is left; id is free again */
  PS_NOTICE_QUIET = 3,    /* ps_core_quiesce: no I/O command of the connection is under way */
  PS_NOTICE_ABORTED = 4,  /* ps_core_abort: result 1 = ended with 0/07, 0 = not found or too late */
  PS_NOTICE_IO_ERROR = 5, /* an I/O command ended in error (lossy): entry, status, lba, nsid */
  PS_NOTICE_UNMAPPED = 6, /* ps_core_unmap: the last command on the namespace has ended */
  PS_NOTICE_FLUSHED = 7,  /* ps_core_volume_flush: result = 0 or an errno */
  PS_NOTICE_VOLUME_CLOSED = 8, /* ps_core_volume_close: result = 0 or an errno, lba = bytes lost */
  PS_NOTICE_WARM_EVENT = 10,   /* the warm-event log of a tenant (result) is not empty any more */
  PS_NOTICE_VOLUME_HEALTH = 9  /* deferred writes of a volume began to fail (result = errno) or
                                  succeed again (result = 0) */
};

struct ps_notice {
  uint32_t kind;       /* enum ps_notice_kind */
  uint32_t connection; /* COMMAND to ABORTED, IO_ERROR */
  uint32_t slot;       /* COMMAND */
  uint32_t cookie;     /* QUIET, ABORTED, UNMAPPED, FLUSHED, VOLUME_CLOSED: the caller's */
  uint32_t volume;     /* FLUSHED, VOLUME_*: the volume */
  uint32_t nsid;       /* IO_ERROR */
  int32_t result;
  uint16_t status;       /* IO_ERROR: the status field */
  uint16_t qid;          /* COMMAND, IO_ERROR */
  uint64_t lba;          /* IO_ERROR: first failing LBA */
  uint32_t data_length;  /* COMMAND: bytes at data */
  uint32_t digest_error; /* COMMAND: the data digest did not match; answer 0/22 */
  const uint8_t *data;   /* COMMAND: valid until ps_core_answer */
  uint8_t entry[64];     /* COMMAND, IO_ERROR: the SQE */
};

struct ps_queue_config {
  uint32_t qid;                   /* 0: admin */
  uint32_t sq_size;               /* entries (SQSIZE + 1) */
  uint32_t flow_control_disabled; /* CATTR bit 2 */
  uint32_t controller;            /* CNTLID */
  uint32_t subsystem;             /* index into the namespace maps */
  uint16_t tenant;                /* small number of the host NQN */
  uint16_t enabled;               /* I/O commands may run */
};

struct ps_connection_info {
  uint64_t last_command_ns; /* CLOCK_MONOTONIC of the last command capsule */
  uint64_t bytes_in;
  uint64_t bytes_out;
  uint64_t commands;
  uint32_t in_flight;
  uint32_t reactor;
  uint32_t digests; /* enum ps_digest bits in force */
  uint32_t reserved;
};

struct ps_volume_config {
  const char *spec;    /* as ps_media_open */
  uint32_t block_size; /* 512 or 4096 */
  uint32_t write_through;
  uint32_t read_only;
  uint32_t reactor; /* which reactor owns its medium */
};

struct ps_volume_stats {
  uint64_t size;
  uint64_t reads, writes, flushes, compares, zeroes, discards, verifies, copies;
  uint64_t read_bytes, write_bytes, compare_bytes, verify_bytes, copy_bytes;
  uint64_t read_ns, write_ns; /* sums of times from command to response */
  uint64_t errors;            /* commands that ended in a media error */
  uint64_t media_reads, media_writes, media_syncs, media_read_bytes, media_write_bytes;
  uint64_t unflushed_bytes;
  uint32_t in_flight;       /* commands */
  uint32_t media_in_flight; /* operations waiting or under way */
  int32_t health;           /* 0, or the errno of the deferred writes that fail now */
  uint32_t reserved;
};

struct ps_core_stats {
  uint64_t connections_opened, connections_closed, connections_refused;
  uint64_t protocol_errors, digest_errors, handshake_timeouts;
  uint64_t connections_stalled; /* ended: they held memory that others waited for */
  uint64_t commands, admin_commands;
  uint64_t bytes_in, bytes_out;
  uint64_t receive_calls, send_calls, wait_calls; /* system calls */
  uint64_t busy_ns;                               /* time outside the wait */
  uint64_t notices_lost;                          /* IO_ERROR notices that found no room */
  uint32_t connections;
  uint32_t transfers_in_use; /* commands that have frames reserved */
};

struct ps_core;

/* NULL on failure, with the reason in `error`. */
struct ps_core *ps_core_new(const struct ps_core_config *config, char *error, size_t error_size);
/* Starts the reactor threads; after daemonising. 0 or -errno. */
int ps_core_start(struct ps_core *core);
/* Closes what is left at once, stops and joins the threads. */
void ps_core_stop(struct ps_core *core);
void ps_core_free(struct ps_core *core);

/* Readable when notices wait. ps_core_notices clears it, then fills up to `most`. */
int ps_core_wake_fd(struct ps_core *core);
int ps_core_notices(struct ps_core *core, struct ps_notice *notices, int most);

/* ---- connections ---- */

/* Take over an accepted, non-blocking TCP socket. Returns the connection's id (never 0), or
 * -EMFILE when max_connections are open (the descriptor stays the caller's). */
int64_t ps_core_adopt(struct ps_core *core, int fd, uint32_t reactor);
/* After a good Connect, before it is answered. */
int ps_core_bind(struct ps_core *core, uint32_t connection, const struct ps_queue_config *queue);
/* I/O commands may run, or end with 0/0C. Asynchronous, in order with the other calls. */
int ps_core_enable(struct ps_core *core, uint32_t connection, bool enabled);
/* The answer to a PS_NOTICE_COMMAND; `data` is copied. -ENOENT when the connection is gone. */
int ps_core_answer(struct ps_core *core, uint32_t connection, uint32_t slot, uint16_t status,
                   uint32_t dw0, uint32_t dw1, const uint8_t *data, uint32_t length);
/* Answered by PS_NOTICE_QUIET once no I/O command of the connection is under way. */
int ps_core_quiesce(struct ps_core *core, uint32_t connection, uint32_t cookie);
/* End the command `cid` with 0/07 if it is queued or still receiving data. PS_NOTICE_ABORTED. */
int ps_core_abort(struct ps_core *core, uint32_t connection, uint16_t cid, uint32_t cookie);
/* Close: `after_output` lets queued answers leave first. PS_NOTICE_CLOSED follows in any case. */
int ps_core_close(struct ps_core *core, uint32_t connection, bool after_output);
int ps_core_connection_info(struct ps_core *core, uint32_t connection,
                            struct ps_connection_info *info);

/* ---- volumes and namespaces ---- */

/* Opens the medium. Returns the volume's number, or -errno with the reason in `error`. */
int ps_core_volume_open(struct ps_core *core, const struct ps_volume_config *config, char *error,
                        size_t error_size);
int ps_core_volume_limits(struct ps_core *core, uint32_t volume, struct ps_media_limits *limits);
/* -EBUSY: it is smaller for its commands from now on, but the medium still works beyond the new
 * end. Call again, or with the old size to give up; what was beyond may be lost either way. */
int ps_core_volume_resize(struct ps_core *core, uint32_t volume, uint64_t size);
int ps_core_volume_flush(struct ps_core *core, uint32_t volume, uint32_t cookie);
/* Flush (not when `abandon`), then close the medium. Unmap its namespaces first. */
int ps_core_volume_close(struct ps_core *core, uint32_t volume, bool abandon, uint32_t cookie);
int ps_core_volume_control(struct ps_core *core, uint32_t volume, const char *kind,
                           const char *verb, char *error, size_t error_size);
int ps_core_volume_get_stats(struct ps_core *core, uint32_t volume, struct ps_volume_stats *stats);
/* How long Reads, or Writes, took from capsule to response: PS_LATENCY_BINS counts. Times below 4
 * ns have a bin each; from there on each power of two is cut into four. The last bin has the rest.
 */
int ps_core_volume_latency(struct ps_core *core, uint32_t volume, bool writes, uint64_t *bins);
int ps_core_map(struct ps_core *core, uint32_t subsystem, uint32_t nsid, uint32_t volume);
/* New commands on it end with 0/0B at once; PS_NOTICE_UNMAPPED when the last one has ended. */
int ps_core_unmap(struct ps_core *core, uint32_t subsystem, uint32_t nsid, uint32_t cookie);

/* The extension namespace of a subsystem: PAX_EXTENSION_PAGES blocks of 4096 bytes without a
 * medium. Unmapped as any other. */
int ps_core_map_extension(struct ps_core *core, uint32_t subsystem, uint32_t nsid);

/* ---- hints ---- */

/* What hosts are told, and what is taken: a carrier that is not in it is not there (its opcodes are
 * invalid, its attributes mean nothing). Before the first call there is none. */
void ps_core_set_capability(struct ps_core *core, const struct pax_capability *capability);
/* What the prestager has measured of itself: hosts read it in their status pages. */
void ps_core_set_benefit(struct ps_core *core, const struct pax_benefit *benefit);
/* NULL: the default budget again. */
void ps_core_set_budget(struct ps_core *core, uint16_t tenant,
                        const struct ps_hints_budget *budget);
/* The status page, or the warm-event log, of a tenant as a host of this subsystem sees it. */
void ps_core_hint_status(struct ps_core *core, uint16_t tenant, uint32_t subsystem, uint8_t *page);
void ps_core_hint_events(struct ps_core *core, uint16_t tenant, bool clear, uint8_t *page);
void ps_core_hint_stats(struct ps_core *core, struct ps_hints_stats *stats);
/* `source`: a hint's (enum ps_tier_source). */
void ps_core_hint_trust(struct ps_core *core, uint16_t tenant, uint32_t source,
                        struct ps_hints_trust *trust);
/* The ring of facts (a memfd; the core's own, duplicate it to keep it); -1: there is none. */
int ps_core_ring_fd(struct ps_core *core);

/* ---- the model ---- */

/* Descriptors for the model's process, the core's own; -1: there is none. The memory of orders (a
 * memfd); an eventfd that the model signals after it wrote orders; an eventfd that becomes readable
 * when the ring has what its reader waits for (ps_ring_waits). */
int ps_core_orders_fd(struct ps_core *core);
int ps_core_orders_wake_fd(struct ps_core *core);
int ps_core_ring_wake_fd(struct ps_core *core);
/* The model is gone: see ps_orders_reset. */
void ps_core_orders_reset(struct ps_core *core);
void ps_core_orders_stats(struct ps_core *core, struct ps_orders_stats *stats);
/* As ps_tier_get_model. */
void ps_core_model_stats(struct ps_core *core, struct ps_tier_tenant *stats);

/* ---- statistics ---- */

void ps_core_get_stats(struct ps_core *core, struct ps_core_stats *stats);
int ps_core_reactor_stats(struct ps_core *core, uint32_t reactor, struct ps_core_stats *stats);
/* The processor that a reactor runs on and on no other, as the kernel says now; -1: not pinned. */
int ps_core_reactor_cpu(struct ps_core *core, uint32_t reactor);
void ps_core_tier_stats(struct ps_core *core, struct ps_tier_stats *stats);
void ps_core_tenant_stats(struct ps_core *core, uint16_t tenant, struct ps_tier_tenant *stats);
int ps_core_volume_sched(struct ps_core *core, uint32_t volume, struct ps_sched_stats *stats);
/* cffi: end */

#endif
