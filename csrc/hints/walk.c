/* An intent on its way: pieces of it are started when the scheduler says so, and when all of it was
 * started, the tier is asked whether it has become warm. The tier decides, not a count of what is
 * under way: what somebody else fills, writes or evicts meanwhile comes out right. */
#include "internal.h"

/* When its deadline asks for a look, when nothing else does. */
static uint64_t deadline_wake(const struct intent *intent) {
  bool is_late_ok = (intent->wanted & PAX_INTENT_FLAG_LATE_OK) != 0;
  return is_late_ok ? UINT64_MAX : intent->deadline_ns;
}

static void remove_job(struct ps_hints *hints, struct intent *intent) {
  if (intent->has_job) ps_sched_remove_job(hints->volumes[intent->volume].sched, &intent->job);
  intent->has_job = false;
}

static void drop(struct ps_hints *hints, uint64_t now_ns, uint32_t index, uint8_t reason) {
  hints_end_intent(hints, now_ns, index, PAX_STATE_DROPPED, reason);
}

/* When to try again: at a moment that those share who wait for the like, for a wake-up costs more
 * than what most of them find. */
static uint64_t next_retry_ns(struct intent *intent, uint64_t now_ns) {
  intent->retry_ns = intent->retry_ns == 0 ? RETRY_FIRST_NS : intent->retry_ns * 2;
  if (intent->retry_ns > RETRY_MOST_NS) intent->retry_ns = RETRY_MOST_NS;
  uint64_t retry_at_ns = now_ns + intent->retry_ns;
  return retry_at_ns + RETRY_FIRST_NS - retry_at_ns % RETRY_FIRST_NS;
}

/* No room, or not now: its job comes back later. */
static void wait_for_room(struct ps_hints *hints, uint64_t now_ns, uint32_t index,
                          bool lacks_room) {
  struct intent *intent = hints_intent(hints, index);
  assert(!intent->has_job);
  intent->phase = PHASE_WAITING;
  intent->lacks_room = lacks_room;
  uint64_t retry_at_ns = next_retry_ns(intent, now_ns);
  /* At its deadline the lack of room ends it, unless it is over already. */
  uint64_t limit_ns = lacks_room ? intent->deadline_ns : deadline_wake(intent);
  hints_wake_at(hints, index, hints_min(retry_at_ns, limit_ns));
}

/* Where one intent of a tenant has just found no room, thousands of others need not try. */
void hints_queue_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  assert(intent->state == PAX_STATE_PENDING && !intent->has_job);
  assert(intent->walked_bytes < intent->admitted_bytes);
  if (now_ns < hints_tenant(hints, intent->tenant)->no_room_until_ns) {
    wait_for_room(hints, now_ns, index, true);
    return;
  }
  intent->phase = PHASE_QUEUED;
  intent->job.deadline_ns = intent->deadline_ns;
  intent->job.bytes = intent->admitted_bytes - intent->walked_bytes;
  intent->job.sched_class = PS_SCHED_DATED;
  intent->job.priority = intent->priority;
  intent->job.owner = PS_JOB_OF_HINTS;
  intent->has_job = true;
  ps_sched_add_job(hints->volumes[intent->volume].sched, now_ns, &intent->job);
  hints_announce_volume(hints, intent->volume);
  hints_wake_at(hints, index, deadline_wake(intent));
}

static void pause_walk(struct ps_hints *hints, uint64_t now_ns, uint32_t index, bool lacks_room) {
  struct intent *intent = hints_intent(hints, index);
  remove_job(hints, intent);
  if (lacks_room) hints_tenant(hints, intent->tenant)->no_room_until_ns = now_ns + RETRY_FIRST_NS;
  wait_for_room(hints, now_ns, index, lacks_room);
}

/* All that was admitted was found to be warm. */
static void finish(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  intent->warm_bytes = intent->admitted_bytes;
  uint8_t state = now_ns <= intent->deadline_ns ? PAX_STATE_MET : PAX_STATE_LATE;
  hints_end_intent(hints, now_ns, index, state, PAX_REASON_NONE);
}

/* Something that was started is gone again: from there on once more. */
static void walk_again(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  if (intent->passes >= PASSES_MOST) {
    drop(hints, now_ns, index, PAX_REASON_ROOM);
    return;
  }
  intent->passes++;
  intent->walk = intent->check;
  intent->walked_bytes = intent->verified_bytes;
  intent->warm_bytes = intent->verified_bytes;
  hints_queue_intent(hints, now_ns, index);
}

enum found { FOUND_ALL, FOUND_COLD, FOUND_COMING, FOUND_MORE };

/* Goes on from what was found to be warm before, as far as it was walked: what it found there, or
 * FOUND_MORE when it has looked enough for one time. */
static enum found verify(struct ps_hints *hints, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  uint32_t shift = hints_set(hints, intent->set)->block_shift;
  struct span span;
  for (uint32_t i = 0; i < hints->config.part_items; i++) {
    if (intent->verified_bytes >= intent->walked_bytes) return FOUND_ALL;
    bool is_there = hints_cursor_span(hints, &intent->check, shift, &span);
    assert(is_there);
    uint64_t warm = 0;
    uint64_t coming = 0;
    ps_tier_residency(hints->tier, intent->volume, span.offset, span.length, &warm, &coming);
    hints->looked++;
    if (warm < span.length) return coming == 0 ? FOUND_COLD : FOUND_COMING;
    intent->verified_bytes += span.length;
    hints_cursor_advance(hints, &intent->check, shift, span.length);
  }
  return FOUND_MORE;
}

/* Whether all that was started has become warm; if not, when to look again. True: at once, for it
 * has not looked at all of it. */
static bool settle(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  assert(intent->phase == PHASE_SETTLING && !intent->has_job);
  uint64_t before = intent->verified_bytes;
  enum found found = verify(hints, index);
  if (intent->verified_bytes > before) intent->retry_ns = 0;
  if (found == FOUND_ALL) {
    finish(hints, now_ns, index);
  } else if (found == FOUND_COLD) {
    walk_again(hints, now_ns, index);
  } else if (found == FOUND_COMING) {
    uint64_t look_ns = next_retry_ns(intent, now_ns);
    hints_wake_at(hints, index, hints_min(look_ns, deadline_wake(intent)));
  } else {
    hints_wake_at(hints, index, now_ns);
  }
  return found == FOUND_MORE;
}

static void begin_settling(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  remove_job(hints, intent);
  intent->phase = PHASE_SETTLING;
  intent->retry_ns = 0;
  (void)settle(hints, now_ns, index);
}

void hints_round(const struct ps_hints *hints, uint64_t volume_bytes, struct span *span) {
  uint64_t slot = hints->config.slot_size;
  uint64_t start = span->offset & ~(slot - 1);
  uint64_t end = hints_min(start + slot, volume_bytes);
  assert(end > start);
  *span = (struct span){.offset = start, .length = (uint32_t)(end - start)};
}

/* One extent: the result of the hydrate. */
static int hydrate(struct ps_hints *hints, uint64_t now_ns, uint32_t index, uint64_t volume_bytes,
                   struct span span) {
  struct intent *intent = hints_intent(hints, index);
  uint64_t needed_ns = intent->deadline_ns > now_ns ? intent->deadline_ns : now_ns;
  struct ps_tier_access access = {
      .deadline_ns = intent->deadline_ns,
      .cookie = hints_cookie(intent, index, 0),
      .keep_until_ns = hints_add(needed_ns, hints->config.grace_ns),
      .tenant = intent->tenant,
      .urgency = PS_TIER_DATED,
      .priority = intent->priority,
      .source = PS_TIER_OF_INTENT,
  };
  /* What a smaller size cuts through never becomes warm as a whole. */
  if (span.offset + span.length > volume_bytes) return PS_TIER_INVALID;
  hints_round(hints, volume_bytes, &span);
  intent->is_kept = true;
  return ps_tier_hydrate(hints->tier, now_ns, intent->volume, span.offset, span.length, &access);
}

bool hints_find_volume_bytes(const struct ps_hints *hints, const struct intent *intent,
                             uint64_t *volume_bytes) {
  assert(intent != NULL && volume_bytes != NULL);
  const struct set *set = hints_set(hints, intent->set);
  struct ps_hints_namespace space;
  if (!hints->resolve(hints->context, set->subsystem, set->nsid, &space)) return false;
  *volume_bytes = space.blocks << space.block_shift;
  return space.volume == intent->volume;
}

/* Starts what may be started of one extent; false when the walk cannot go on now. */
static bool walk_one(struct ps_hints *hints, uint64_t now_ns, uint32_t index, uint64_t volume_bytes,
                     uint64_t *started) {
  struct intent *intent = hints_intent(hints, index);
  uint32_t shift = hints_set(hints, intent->set)->block_shift;
  struct span span;
  bool is_there = hints_cursor_span(hints, &intent->walk, shift, &span);
  assert(is_there);
  switch (hydrate(hints, now_ns, index, volume_bytes, span)) {
    case PS_TIER_NO_ROOM:
      pause_walk(hints, now_ns, index, true);
      return false;
    case PS_TIER_BUSY:
      pause_walk(hints, now_ns, index, false);
      return false;
    case PS_TIER_INVALID:
      drop(hints, now_ns, index, PAX_REASON_NAMESPACE);
      return false;
    case PS_TIER_STARTED:
      *started += span.length;
      break;
    case PS_TIER_WARM:
      intent->warm_bytes = hints_min(intent->warm_bytes + span.length, intent->admitted_bytes);
      break;
    default:
      break; /* somebody else's fill: looked at when all was started */
  }
  intent->lacks_room = false;
  intent->retry_ns = 0;
  intent->walked_bytes += span.length;
  hints_cursor_advance(hints, &intent->walk, shift, span.length);
  return true;
}

void hints_walk_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  assert(intent->state == PAX_STATE_PENDING && intent->has_job);
  uint64_t volume_bytes;
  if (!hints_find_volume_bytes(hints, intent, &volume_bytes)) {
    hints_end_intent(hints, now_ns, index, PAX_STATE_CANCELLED, PAX_REASON_NONE);
    return;
  }
  uint64_t started = 0;
  for (uint32_t i = 0; i < WALK_EXTENTS && started < hints->config.piece_bytes; i++) {
    if (intent->walked_bytes >= intent->admitted_bytes) break;
    if (!walk_one(hints, now_ns, index, volume_bytes, &started)) return;
  }
  if (intent->walked_bytes >= intent->admitted_bytes) {
    begin_settling(hints, now_ns, index);
    return;
  }
  intent->job.bytes = intent->admitted_bytes - intent->walked_bytes;
  ps_sched_update_job(hints->volumes[intent->volume].sched, now_ns, &intent->job);
}

void hints_wake_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  assert(intent->state == PAX_STATE_PENDING);
  if (intent->phase == PHASE_ARRIVING) {
    (void)hints_look_on(hints, now_ns, index);
    return;
  }
  if (intent->phase == PHASE_SETTLING) {
    bool goes_on = settle(hints, now_ns, index);
    if (intent->state != PAX_STATE_PENDING || goes_on) return;
  }
  bool is_over = now_ns >= intent->deadline_ns;
  bool is_late_ok = (intent->wanted & PAX_INTENT_FLAG_LATE_OK) != 0;
  if (is_over && intent->lacks_room) {
    drop(hints, now_ns, index, PAX_REASON_ROOM);
  } else if (is_over && !is_late_ok) {
    drop(hints, now_ns, index, PAX_REASON_DEADLINE);
  } else if (intent->phase == PHASE_WAITING) {
    hints_queue_intent(hints, now_ns, index);
  }
}

void ps_hints_fill_ended(struct ps_hints *hints, uint64_t now_ns, uint64_t cookie, uint32_t bytes,
                         int32_t error) {
  assert(hints != NULL);
  uint32_t index = (uint32_t)cookie;
  if (index == NONE || index > hints->intents.fresh) return;
  struct intent *intent = hints_intent(hints, index);
  if (intent->state != PAX_STATE_PENDING || hints_cookie(intent, index, 0) != cookie) return;
  if (error != 0) {
    drop(hints, now_ns, index, PAX_REASON_MEDIA);
    return;
  }
  intent->warm_bytes = hints_min(intent->warm_bytes + bytes, intent->admitted_bytes);
  if (intent->phase == PHASE_SETTLING) {
    (void)settle(hints, now_ns, index);
  } else {
    verify(hints, index);
  }
}

void ps_hints_start_job(struct ps_hints *hints, uint64_t now_ns, struct ps_sched_job *job) {
  assert(hints != NULL && job != NULL && job->owner == PS_JOB_OF_HINTS);
  const uint8_t *at = (const uint8_t *)job;
  if (job->sched_class == PS_SCHED_DATED) {
    size_t offset = (size_t)(at - hints->intents.items) - offsetof(struct intent, job);
    hints_walk_intent(hints, now_ns, (uint32_t)(offset / hints->intents.stride));
  } else {
    assert(job->sched_class == PS_SCHED_SPECULATIVE);
    size_t offset = (size_t)(at - hints->follows.items) - offsetof(struct follow, job);
    hints_walk_follow(hints, now_ns, (uint32_t)(offset / hints->follows.stride));
  }
}
