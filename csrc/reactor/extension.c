/* The extension namespace (PAX 1.0): a block namespace of PAX_EXTENSION_PAGES pages that stores
 * nothing. A page written to a mailbox is a batch of hints, a page read from there its answer, page
 * 0 is the tenant's status; so whoever may open a block device may say everything.
 *
 * Everything here runs with the core's lock held, a page or a part of one at a time.
 */
#include <assert.h>
#include <string.h>

#include "internal.h"

enum step no_step(struct command *command) {
  assert(command->on_extension);
  return STEP_DONE;
}

static uint32_t page_count(const struct command *command) {
  return command->length / PAX_PAGE_BYTES;
}

static bool is_mailbox(uint32_t page) {
  return page >= PAX_PAGE_MAILBOXES && page < PAX_PAGE_MAILBOXES + PAX_MAILBOXES;
}

/* The memory of the command's page `index`, and which page of the namespace it is. */
static uint8_t *page_at(const struct command *command, uint32_t index, uint32_t *page) {
  const struct ps_core *core = command->connection->reactor->core;
  uint64_t slot_size = core->config.slot_size;
  uint64_t offset = command->offset + (uint64_t)index * PAX_PAGE_BYTES;
  uint64_t frame = offset / slot_size - command->offset / slot_size;
  assert(frame < command->fresh_count);
  *page = (uint32_t)(offset / PAX_PAGE_BYTES);
  return frame_bytes(core, command->fresh[frame]) + offset % slot_size;
}

static bool make_page(struct command *command, uint32_t index) {
  const struct reactor *reactor = command->connection->reactor;
  const struct ps_hints_scope scope = hint_scope(command->connection);
  uint32_t page;
  uint8_t *bytes = page_at(command, index, &page);
  if (page == PAX_PAGE_STATUS)
    ps_hints_status(reactor->core->hints, reactor->now_ns, &scope, bytes);
  else if (is_mailbox(page))
    ps_hints_answer(reactor->core->hints, reactor->now_ns, &scope, page - PAX_PAGE_MAILBOXES,
                    bytes);
  else
    memset(bytes, 0, PAX_PAGE_BYTES);
  return true;
}

/* A fault is said where the answer is, and on the status page: to a block device the write of a
 * malformed batch must not look like a failing disk. */
static bool take_page(struct command *command, uint32_t index) {
  uint32_t page;
  const uint8_t *bytes = page_at(command, index, &page);
  if (!is_mailbox(page)) return true;
  if (!hint_take_batch(command, page - PAX_PAGE_MAILBOXES, bytes, PAX_PAGE_BYTES)) return false;
  command->progress = (struct ps_hints_progress){.at = 0};
  return true;
}

/* The pages in ascending order, one a turn or a part of one: others have their turn between. */
static enum step for_pages(struct command *command,
                           bool (*handle)(struct command *command, uint32_t index)) {
  uint32_t count = page_count(command);
  if (!has_turn(command)) return step_later(command);
  if (handle(command, command->index)) command->index++;
  return command->index == count ? STEP_DONE : step_later(command);
}

enum step extension_read_step(struct command *command) {
  assert(command->on_extension && command->length > 0);
  if (!answer_frames(command, segment_count(command))) return step_of(command, false);
  command->committed = true;
  return for_pages(command, make_page);
}

enum step extension_write_step(struct command *command) {
  assert(command->on_extension && command->length > 0);
  if (!receive_fresh(command, segment_count(command))) return step_of(command, false);
  command->committed = true;
  return for_pages(command, take_page);
}
