/* What commands that came together will touch is brought into the caches side by side, before the
 * first of them is carried out. Nothing depends on it: they are checked when their turn comes.
 */
#include <assert.h>

#include "internal.h"

enum { SQE_NSID = 4, SQE_CDW10 = 40, LOOKS_SAVED = 7 };

struct reader {
  const struct connection *connection;
  struct ps_hints_namespace space; /* of `nsid`; most commands are for one after the other */
  uint32_t nsid;
  bool has_space;
};

static bool find_space(struct reader *reader, uint32_t nsid) {
  const struct connection *connection = reader->connection;
  if (nsid != reader->nsid) {
    reader->nsid = nsid;
    reader->has_space = namespace_resolve(connection->reactor->core, connection->queue.subsystem,
                                          nsid, &reader->space);
  }
  return reader->has_space;
}

/* Where the command begins to read or write; false when it does neither, or goes nowhere. */
static bool find_place(struct reader *reader, const uint8_t *sqe, struct ps_tier_place *place) {
  bool is_of_blocks = sqe[0] == PS_OP_READ || sqe[0] == PS_OP_WRITE || sqe[0] == PS_OP_COMPARE ||
                      sqe[0] == PAX_OPCODE_DATED_READ;
  if (!is_of_blocks || !find_space(reader, le32(sqe + SQE_NSID))) return false;
  uint64_t slba = le64(sqe + SQE_CDW10);
  if (slba >= reader->space.blocks) return false;
  *place = (struct ps_tier_place){.volume = reader->space.volume,
                                  .offset = slba << reader->space.block_shift};
  return true;
}

/* Look at up to `most` commands among the bytes that were received and not parsed. The lock is
 * held. One alone would wait as long for what is asked for as without it; and where the caches have
 * all that is read, it is looked only now and then whether that is still so. */
void look_ahead(struct connection *connection, uint32_t most) {
  const uint8_t *entries[PS_TIER_PREFETCHED];
  struct ps_tier_place places[PS_TIER_PREFETCHED];
  struct reader reader = {.connection = connection};
  assert(connection != NULL && most <= PS_TIER_PREFETCHED);
  if (!is_io_queue(connection)) return;
  if (connection->looks_saved > 0) {
    connection->looks_saved--;
    return;
  }
  uint32_t found = 0;
  uint32_t count =
      ps_engine_peek(connection->engine, connection->receive_buffer + connection->receive_offset,
                     connection->receive_length, entries, most);
  if (count < 2) return;
  for (uint32_t i = 0; i < count; i++)
    if (find_place(&reader, entries[i], &places[found])) found++;
  if (ps_tier_prefetch(connection->reactor->core->tier, places, found) == 0)
    connection->looks_saved = LOOKS_SAVED;
}
