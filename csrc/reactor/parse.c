/* I/O commands are parsed and checked once here; what passes has its volume, its range and its
 * step function. NVMe Base 2.0, 3.3.3 (submission queue entry), and NVM Command Set 1.0, 3.2.
 */
#include <assert.h>

#include "internal.h"

enum {
  SQE_FLAGS = 1,
  SQE_NSID = 4,
  SQE_SGL = 24, /* address 24, length 32, type 39 */
  SQE_SGL_LENGTH = 32,
  SQE_SGL_TYPE = 39,
  SQE_CDW10 = 40,
  SQE_CDW11 = 44,
  SQE_CDW12 = 48,
  SQE_CDW13 = 52,
  FUSE_MASK = 0x03,
  PSDT_MASK = 0xc0,
  PSDT_SGL = 0x40,
  FUA = 1 << 30,
  ACCESS_FREQUENCY = 0x0f,
  ACCESS_ONCE = 6 /* one-time read, NVM 1.0, figure 38 (Dataset Management field) */
};

/* How the data of a command moves. */
enum data { DATA_NONE, DATA_TO_HOST, DATA_FROM_HOST, DATA_PARAMETERS };

struct description {
  enum step (*step)(struct command *command);
  enum data data;
  bool has_range, writes;
};

static const struct description descriptions[] = {
    [PS_OP_FLUSH] = {flush_step, DATA_NONE, false, false},
    [PS_OP_WRITE] = {write_step, DATA_FROM_HOST, true, true},
    [PS_OP_READ] = {read_step, DATA_TO_HOST, true, false},
    [PS_OP_COMPARE] = {compare_step, DATA_FROM_HOST, true, false},
    [PS_OP_WRITE_ZEROES] = {zeroes_step, DATA_NONE, true, true},
    [PS_OP_DATASET_MANAGEMENT] = {dsm_step, DATA_PARAMETERS, false, false},
    [PS_OP_VERIFY] = {verify_step, DATA_NONE, true, false},
    [PS_OP_COPY] = {copy_step, DATA_PARAMETERS, false, true},
};

static const struct description *describe(uint8_t opcode) {
  if (opcode >= sizeof descriptions / sizeof *descriptions) return NULL;
  return descriptions[opcode].step != NULL ? &descriptions[opcode] : NULL;
}

/* LBA and length in blocks (NVM 1.0: SLBA in CDW10 and 11, NLB 0-based in CDW12). */
static uint16_t parse_range(struct command *command, bool has_data) {
  const struct volume *volume = command->volume;
  uint64_t slba = le64(command->sqe + SQE_CDW10);
  uint64_t count = (uint64_t)le16(command->sqe + SQE_CDW12) + 1;
  uint64_t blocks = volume->size >> volume->block_shift;
  uint32_t limit = command->connection->reactor->core->config.max_transfer;
  if (has_data && count << volume->block_shift > limit) return PS_SC_INVALID_FIELD | PS_DNR;
  if (slba > blocks || count > blocks - slba) return PS_SC_LBA_RANGE | PS_DNR;
  command->offset = slba << volume->block_shift;
  command->length = (uint32_t)(count << volume->block_shift);
  command->gate_offset = command->offset;
  command->gate_length = command->length;
  command->fua = (le32(command->sqe + SQE_CDW12) & FUA) != 0;
  command->once = (command->sqe[SQE_CDW13] & ACCESS_FREQUENCY) == ACCESS_ONCE;
  return 0;
}

/* The SGL (Base 2.0, 4.1.2; TCP 1.0, 3.3.1): only the two kinds a TCP host may use here. */
static uint16_t parse_sgl(struct command *command, const struct ps_engine_event *event,
                          enum data data) {
  uint8_t type = command->sqe[SQE_SGL_TYPE];
  uint32_t length = le32(command->sqe + SQE_SGL_LENGTH);
  if (type != PS_SGL_IN_CAPSULE && type != PS_SGL_TRANSPORT) return PS_SC_SGL_TYPE | PS_DNR;
  if (type == PS_SGL_IN_CAPSULE && le64(command->sqe + SQE_SGL) != 0)
    return PS_SC_SGL_OFFSET | PS_DNR;
  if (event->data_length > command->connection->reactor->core->config.in_capsule_size)
    return PS_SC_SGL_OFFSET | PS_DNR;
  if (data == DATA_TO_HOST && type == PS_SGL_IN_CAPSULE) return PS_SC_SGL_TYPE | PS_DNR;
  command->data_length = length;
  if (data == DATA_PARAMETERS &&
      (length == 0 || length > command->connection->reactor->core->config.slot_size))
    return PS_SC_SGL_LENGTH | PS_DNR;
  if ((data == DATA_TO_HOST || data == DATA_FROM_HOST) && length != command->length)
    return PS_SC_SGL_LENGTH | PS_DNR;
  return 0;
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
  command->volume =
      namespace_enter(connection->reactor->core, connection->queue.subsystem, command->nsid);
  command->entered_nsid = command->nsid;
  return command->volume == NULL ? PS_SC_INVALID_NAMESPACE | PS_DNR : 0;
}

/* Runs with the lock held. On failure after the namespace was found, it is left again. */
uint16_t command_parse(struct command *command, const struct ps_engine_event *event) {
  assert(command != NULL && event != NULL);
  assert(command->volume == NULL);
  const uint8_t *sqe = command->sqe;
  if (!command->connection->queue.enabled) return PS_SC_SEQUENCE_ERROR | PS_DNR;
  if ((sqe[SQE_FLAGS] & PSDT_MASK) != PSDT_SGL) return PS_SC_INVALID_FIELD | PS_DNR;
  const struct description *description = describe(sqe[0]);
  if (description == NULL) return PS_SC_INVALID_OPCODE | PS_DNR;
  uint16_t status = parse_fuse(command);
  if (status == 0) status = parse_namespace(command);
  if (status != 0) return status;
  command->step = description->step;
  if (command->volume == NULL) return 0;
  bool moves_data = description->data == DATA_TO_HOST || description->data == DATA_FROM_HOST;
  if (description->has_range) status = parse_range(command, moves_data);
  if (status == 0 && description->data != DATA_NONE)
    status = parse_sgl(command, event, description->data);
  if (status == 0 && description->writes && command->volume->read_only)
    status = PS_SC_WRITE_PROTECTED | PS_DNR;
  return status;
}
