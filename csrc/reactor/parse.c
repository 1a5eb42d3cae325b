/* I/O commands are parsed and checked once here; what passes has its namespace, its range and its
 * step function. NVMe Base 2.0, 3.3.3 (submission queue entry), NVM Command Set 1.0, 3.2, and PAX
 * 1.0 for the vendor opcodes.
 */
#include <assert.h>

#include "internal.h"

enum {
  SQE_FLAGS = 1,
  SQE_NSID = 4,
  SQE_CDW2 = 8, /* a dated read's session, with CDW3 */
  SQE_SGL = 24, /* address 24, length 32, type 39 */
  SQE_SGL_LENGTH = 32,
  SQE_SGL_TYPE = 39,
  SQE_CDW10 = 40,
  SQE_CDW11 = 44,
  SQE_CDW12 = 48,
  SQE_CDW13 = 52,
  SQE_CDW14 = 56, /* a dated read's deadline in microseconds */
  SQE_CDW15 = 60, /* a dated read's priority */
  FUSE_MASK = 0x03,
  PSDT_MASK = 0xc0,
  PSDT_SGL = 0x40,
  FUA = 1 << 30,
  EXTENSION_SHIFT = 12, /* blocks of the extension namespace are pages */
  QUERY_LEAST = sizeof(struct pax_answer)
};

/* The Dataset Management field of a Read: CDW13 bits 7:0 (NVM 1.0, figure 38). */
enum {
  ACCESS_FREQUENCY = 0x0f,
  ACCESS_ONCE = 6,      /* one-time read */
  ACCESS_READAHEAD = 7, /* speculative read: prefetch */
  ACCESS_LATENCY_SHIFT = 4,
  ACCESS_LATENCY = 0x03,
  LATENCY_IDLE = 1,
  LATENCY_LOW = 3,
  ACCESS_SEQUENTIAL = 1 << 6,
  ACCESS_ANY = 0x7f /* bit 7 says that the data is incompressible, and nothing of its use */
};

/* A Read whose latency may be long is dated: late enough for everything that somebody waits for to
 * go first on a busy medium, and much shorter than any host's time-out. */
#define IDLE_DEADLINE_NS UINT64_C(100000000)

enum { PRIORITY_URGENT = 0, PRIORITY_NORMAL = 1, PRIORITY_LOW = 3 };

/* How the data of a command moves. */
enum data {
  DATA_NONE,
  DATA_TO_HOST,
  DATA_FROM_HOST,
  DATA_PARAMETERS,
  DATA_BATCH, /* records of hints, as long as the SGL says */
  DATA_ANSWER /* a page, cut to what the SGL says */
};

struct description {
  enum step (*step)(struct command *command);
  enum data data;
  bool has_range, writes;
  uint32_t carrier; /* bit pax_carrier: there is no such opcode without it; 0: always */
};

static const struct description descriptions[] = {
    [PS_OP_FLUSH] = {.step = flush_step},
    [PS_OP_WRITE] = {.step = write_step, .data = DATA_FROM_HOST, .has_range = true, .writes = true},
    [PS_OP_READ] = {.step = read_step, .data = DATA_TO_HOST, .has_range = true},
    [PS_OP_COMPARE] = {.step = compare_step, .data = DATA_FROM_HOST, .has_range = true},
    [PS_OP_WRITE_ZEROES] = {.step = zeroes_step, .has_range = true, .writes = true},
    [PS_OP_DATASET_MANAGEMENT] = {.step = dsm_step, .data = DATA_PARAMETERS},
    [PS_OP_VERIFY] = {.step = verify_step, .has_range = true},
    [PS_OP_COPY] = {.step = copy_step, .data = DATA_PARAMETERS, .writes = true},
    [PAX_OPCODE_SUBMIT] = {.step = submit_step,
                           .data = DATA_BATCH,
                           .carrier = PAX_CARRIER_SUBMIT_QUERY},
    [PAX_OPCODE_QUERY] = {.step = query_step,
                          .data = DATA_ANSWER,
                          .carrier = PAX_CARRIER_SUBMIT_QUERY},
    [PAX_OPCODE_DATED_READ] = {.step = read_step,
                               .data = DATA_TO_HOST,
                               .has_range = true,
                               .carrier = PAX_CARRIER_DATED_READ},
};

/* The extension namespace stores nothing. So there is nothing that a Compare could hold against,
 * nor a Copy copy, and a pair that promises both or neither would promise what nobody can check:
 * these are not supported there. What only makes stored blocks durable, zero or unneeded has
 * nothing to do, and succeeds. */
static const struct description extension_descriptions[] = {
    [PS_OP_FLUSH] = {.step = no_step},
    [PS_OP_WRITE] = {.step = extension_write_step, .data = DATA_FROM_HOST, .has_range = true},
    [PS_OP_READ] = {.step = extension_read_step, .data = DATA_TO_HOST, .has_range = true},
    [PS_OP_WRITE_ZEROES] = {.step = no_step, .has_range = true},
    [PS_OP_DATASET_MANAGEMENT] = {.step = dsm_step, .data = DATA_PARAMETERS},
    [PS_OP_VERIFY] = {.step = no_step, .has_range = true},
    [PAX_OPCODE_SUBMIT] = {.step = submit_step,
                           .data = DATA_BATCH,
                           .carrier = PAX_CARRIER_SUBMIT_QUERY},
    [PAX_OPCODE_QUERY] = {.step = query_step,
                          .data = DATA_ANSWER,
                          .carrier = PAX_CARRIER_SUBMIT_QUERY},
    [PAX_OPCODE_DATED_READ] = {.step = extension_read_step,
                               .data = DATA_TO_HOST,
                               .has_range = true,
                               .carrier = PAX_CARRIER_DATED_READ},
};

_Static_assert(sizeof descriptions == sizeof extension_descriptions, "both end with one opcode");

/* NULL when there is no such command. */
static const struct description *describe(const struct command *command) {
  const struct description *table = command->on_extension ? extension_descriptions : descriptions;
  uint8_t opcode = command->sqe[0];
  if (opcode >= sizeof descriptions / sizeof *descriptions) return NULL;
  const struct description *description = &table[opcode];
  uint32_t missing = description->carrier & ~command->connection->reactor->core->carriers;
  return description->step != NULL && missing == 0 ? description : NULL;
}

uint32_t command_block_shift(const struct command *command) {
  assert(command->volume != NULL || command->on_extension);
  return command->on_extension ? EXTENSION_SHIFT : command->volume->block_shift;
}

/* Blocks of the command's namespace now. */
uint64_t command_blocks(const struct command *command) {
  assert(command->volume != NULL || command->on_extension);
  if (command->on_extension) return PAX_EXTENSION_PAGES;
  return command->volume->size >> command->volume->block_shift;
}

/* LBA and length in blocks (NVM 1.0: SLBA in CDW10 and 11, NLB 0-based in CDW12). */
static uint16_t parse_range(struct command *command, bool has_data) {
  uint64_t slba = le64(command->sqe + SQE_CDW10);
  uint64_t count = (uint64_t)le16(command->sqe + SQE_CDW12) + 1;
  uint64_t blocks = command_blocks(command);
  uint32_t shift = command_block_shift(command);
  uint32_t limit = command->connection->reactor->core->config.max_transfer;
  if (has_data && count << shift > limit) return PS_SC_INVALID_FIELD | PS_DNR;
  if (slba > blocks || count > blocks - slba) return PS_SC_LBA_RANGE | PS_DNR;
  command->offset = slba << shift;
  command->length = (uint32_t)(count << shift);
  command->gate_offset = command->offset;
  command->gate_length = command->length;
  command->fua = (le32(command->sqe + SQE_CDW12) & FUA) != 0;
  return 0;
}

/* What a Read says about itself: it is served like any other, sooner or later. */
static void parse_attributes(struct command *command) {
  uint32_t carriers = command->connection->reactor->core->carriers;
  uint8_t attributes = command->sqe[SQE_CDW13];
  uint8_t frequency = attributes & ACCESS_FREQUENCY;
  uint8_t latency = attributes >> ACCESS_LATENCY_SHIFT & ACCESS_LATENCY;
  struct ps_tier_access *access = &command->access;
  if (attributes == 0) return;
  access->once = frequency == ACCESS_ONCE;
  if ((carriers & PAX_CARRIER_READ_ATTRIBUTES) == 0) return;
  if ((attributes & ACCESS_ANY) != 0) command->read.flags |= PS_FACT_ATTRIBUTES;
  if (access->once) command->read.flags |= PS_FACT_ONCE;
  if (frequency == ACCESS_READAHEAD) command->read.flags |= PS_FACT_READAHEAD;
  if (attributes & ACCESS_SEQUENTIAL) command->read.flags |= PS_FACT_SEQUENTIAL;
  if (latency == LATENCY_LOW) access->priority = PRIORITY_URGENT;
  if (latency == LATENCY_IDLE) {
    access->priority = PRIORITY_LOW;
    access->urgency = PS_TIER_DATED;
    access->deadline_ns = command->started_ns + IDLE_DEADLINE_NS;
  }
}

/* A dated read: its own deadline and priority stand before what CDW13 says of latency. */
static void parse_date(struct command *command) {
  struct ps_tier_access *access = &command->access;
  struct ps_hints_read *read = &command->read;
  read->session = le64(command->sqe + SQE_CDW2);
  read->deadline_us = le32(command->sqe + SQE_CDW14);
  read->flags |= PS_FACT_DATED;
  access->urgency = PS_TIER_DATED;
  access->priority = command->sqe[SQE_CDW15] & PAX_DATED_PRIORITY_MASK;
  access->deadline_ns = command->started_ns + (uint64_t)read->deadline_us * 1000;
}

static void parse_read(struct command *command) {
  assert(command->volume != NULL && command->length > 0);
  parse_attributes(command);
  if (command->sqe[0] == PAX_OPCODE_DATED_READ) parse_date(command);
  command->read.volume = command->volume->number;
  command->read.offset = command->offset;
  command->read.length = command->length;
  command->read.priority = command->access.priority;
}

/* The length that the SGL gives, against what the command moves. */
static uint16_t parse_length(struct command *command, enum data data) {
  uint32_t length = command->data_length, least = 1, most = PAX_PAGE_BYTES;
  if (data == DATA_TO_HOST || data == DATA_FROM_HOST) least = most = command->length;
  if (data == DATA_PARAMETERS) most = command->connection->reactor->core->config.slot_size;
  if (data == DATA_BATCH) {
    least = sizeof(struct pax_batch);
    most = PAX_MAX_BATCH_BYTES;
  }
  if (data == DATA_ANSWER) least = QUERY_LEAST;
  if (length < least || length > most) return PS_SC_SGL_LENGTH | PS_DNR;
  if (data == DATA_BATCH || data == DATA_ANSWER) command->length = length;
  return 0;
}

/* The SGL (Base 2.0, 4.1.2; TCP 1.0, 3.3.1): only the two kinds a TCP host may use here. */
static uint16_t parse_sgl(struct command *command, const struct ps_engine_event *event,
                          enum data data) {
  uint8_t type = command->sqe[SQE_SGL_TYPE];
  if (type != PS_SGL_IN_CAPSULE && type != PS_SGL_TRANSPORT) return PS_SC_SGL_TYPE | PS_DNR;
  if (type == PS_SGL_IN_CAPSULE && le64(command->sqe + SQE_SGL) != 0)
    return PS_SC_SGL_OFFSET | PS_DNR;
  if (event->data_length > command->connection->reactor->core->config.in_capsule_size)
    return PS_SC_SGL_OFFSET | PS_DNR;
  command->sends_data = data == DATA_TO_HOST || data == DATA_ANSWER;
  if (command->sends_data && type == PS_SGL_IN_CAPSULE) return PS_SC_SGL_TYPE | PS_DNR;
  command->data_length = le32(command->sqe + SQE_SGL_LENGTH);
  return parse_length(command, data);
}

/* Fused pairs: Compare first, Write second; nothing else (Base 2.0, 3.4.2 and FUSES). */
static uint16_t parse_fuse(const struct command *command) {
  uint8_t fuse = command->sqe[SQE_FLAGS] & FUSE_MASK;
  uint8_t opcode = command->sqe[0];
  bool is_good =
      fuse == 0 || (fuse == 1 && opcode == PS_OP_COMPARE) || (fuse == 2 && opcode == PS_OP_WRITE);
  return is_good ? 0 : PS_SC_INVALID_FIELD | PS_DNR;
}

static uint16_t parse_namespace(struct command *command) {
  struct connection *connection = command->connection;
  command->nsid = le32(command->sqe + SQE_NSID);
  if (command->nsid == 0xffffffff && command->sqe[0] == PS_OP_FLUSH) return 0;
  const struct namespace_slot *slot =
      namespace_enter(connection->reactor->core, connection->queue.subsystem, command->nsid);
  if (slot == NULL) return PS_SC_INVALID_NAMESPACE | PS_DNR;
  command->entered_nsid = command->nsid;
  command->volume = slot->volume;
  command->on_extension = slot->is_extension;
  return 0;
}

static uint16_t parse_data(struct command *command, const struct ps_engine_event *event,
                           const struct description *description) {
  bool moves_data = description->data == DATA_TO_HOST || description->data == DATA_FROM_HOST;
  uint16_t status = 0;
  if (description->has_range) status = parse_range(command, moves_data);
  if (status == 0 && description->data != DATA_NONE)
    status = parse_sgl(command, event, description->data);
  if (status == 0 && description->writes && command->volume->read_only)
    status = PS_SC_WRITE_PROTECTED | PS_DNR;
  return status;
}

/* Runs with the lock held. On failure after the namespace was found, it is left at the command's
 * end. */
uint16_t command_parse(struct command *command, const struct ps_engine_event *event) {
  assert(command != NULL && event != NULL);
  assert(command->entered_nsid == 0);
  const uint8_t *sqe = command->sqe;
  command->access = (struct ps_tier_access){.deadline_ns = UINT64_MAX,
                                            .tenant = command->connection->queue.tenant,
                                            .urgency = PS_TIER_DEMAND,
                                            .priority = PRIORITY_NORMAL};
  if (!command->connection->queue.enabled) return PS_SC_SEQUENCE_ERROR | PS_DNR;
  if ((sqe[SQE_FLAGS] & PSDT_MASK) != PSDT_SGL) return PS_SC_INVALID_FIELD | PS_DNR;
  const struct description *description = describe(command);
  if (description == NULL) return PS_SC_INVALID_OPCODE | PS_DNR;
  uint16_t status = parse_fuse(command);
  if (status == 0) status = parse_namespace(command);
  if (status != 0) return status;
  if (command->on_extension) description = describe(command);
  if (description == NULL || (command->on_extension && (sqe[SQE_FLAGS] & FUSE_MASK) != 0))
    return PS_SC_INVALID_OPCODE | PS_DNR;
  command->step = description->step;
  if (command->entered_nsid == 0) return 0;
  status = parse_data(command, event, description);
  if (status == 0 && description->step == read_step) parse_read(command);
  return status;
}
