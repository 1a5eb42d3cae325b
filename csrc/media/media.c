/* The interface of media.h: opens a chain from its spec, and passes calls to the outermost kind. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

static const struct ps_kind_entry *find_kind(const char *name, size_t length) {
  assert(name != NULL);
  for (const struct ps_kind_entry *entry = ps_kinds; entry->name != NULL; entry++) {
    if (strlen(entry->name) == length && memcmp(entry->name, name, length) == 0) return entry;
  }
  return NULL;
}

static bool fail_kind(const struct ps_spec_report *report, const char *start, size_t length,
                      bool wrapper) {
  char list[160] = "";
  size_t used = 0;
  for (const struct ps_kind_entry *entry = ps_kinds; entry->name != NULL; entry++) {
    if (entry->is_wrapper != wrapper) continue;
    int more =
        snprintf(list + used, sizeof list - used, "%s%s", used == 0 ? "" : ", ", entry->name);
    if (more > 0 && used + (size_t)more < sizeof list) used += (size_t)more;
  }
  return ps_spec_fail(report, start, "unknown %s \"%.*s\"; expected one of %s",
                      wrapper ? "wrapper" : "kind of medium", (int)length, start, list);
}

/* Which kind the part at `start` is; a wrapper must have a part after it, a medium none. */
static const struct ps_kind_entry *entry_at(const struct ps_spec_report *report,
                                            const char *start) {
  size_t length = strcspn(start, ":|");
  const char *stop = start + strcspn(start, "|");
  const struct ps_kind_entry *entry = find_kind(start, length);
  bool last = *stop == '\0';
  if (entry == NULL) {
    fail_kind(report, start, length, !last);
  } else if (entry->is_wrapper && last) {
    ps_spec_fail(report, stop, "nothing is below \"%s\"; expected \"|\" and a medium", entry->name);
    entry = NULL;
  } else if (!entry->is_wrapper && !last) {
    ps_spec_fail(report, stop, "\"%s\" has nothing below it; expected the end of the spec",
                 entry->name);
    entry = NULL;
  }
  return entry;
}

/* Cuts the whole chain. Returns the number of parts (to be freed in any case), good or not. */
static uint32_t cut_chain(const struct ps_spec_report *report, const struct ps_kind_entry **entries,
                          struct ps_spec_part *parts, bool *good) {
  const char *at = report->spec;
  *good = false;
  for (uint32_t count = 0; count < PS_SPEC_PARTS; count++) {
    entries[count] = entry_at(report, at);
    if (entries[count] == NULL) return count;
    const char *end = at;
    if (!ps_spec_cut(report, at, entries[count]->has_path, &parts[count], &end)) return count + 1;
    if (*end == '\0') {
      *good = true;
      return count + 1;
    }
    at = end + 1;
  }
  ps_spec_fail(report, at, "the chain is too long; expected at most %d parts", PS_SPEC_PARTS);
  return PS_SPEC_PARTS;
}

struct ps_media *ps_media_open(const char *spec, char *error, size_t error_size) {
  assert(spec != NULL);
  assert(error != NULL || error_size == 0);
  struct ps_spec_report report = {.spec = spec, .text = error, .size = error_size};
  const struct ps_kind_entry *entries[PS_SPEC_PARTS];
  struct ps_spec_part parts[PS_SPEC_PARTS];
  if (error_size > 0) error[0] = '\0';
  bool good = false;
  uint32_t count = cut_chain(&report, entries, parts, &good);
  struct ps_media *media = NULL;
  for (uint32_t i = count; good && i > 0; i--) {
    struct ps_media *outer = entries[i - 1]->open(&report, &parts[i - 1], media);
    if (outer == NULL) {
      if (media != NULL) ps_media_close(media, false);
      media = NULL;
      break;
    }
    media = outer;
  }
  for (uint32_t i = 0; i < count; i++) ps_spec_part_free(&parts[i]);
  return media;
}

void ps_media_get_limits(struct ps_media *media, struct ps_media_limits *limits) {
  assert(media != NULL && limits != NULL);
  media->kind->get_limits(media, limits);
}

int ps_media_start(struct ps_media *media) {
  assert(media != NULL);
  return media->kind->start(media);
}

void ps_media_submit(struct ps_media *media, struct ps_media_request *request) {
  assert(media != NULL && request != NULL);
  assert(request->done != NULL);
  media->kind->submit(media, request);
}

void ps_media_kick(struct ps_media *media) {
  assert(media != NULL);
  media->kind->kick(media);
}

int ps_media_poll(struct ps_media *media, uint64_t now_ns) {
  assert(media != NULL);
  return media->kind->poll(media, now_ns);
}

int ps_media_wait_fd(struct ps_media *media) {
  assert(media != NULL);
  return media->kind->wait_fd(media);
}

uint64_t ps_media_next_time(struct ps_media *media) {
  assert(media != NULL);
  return media->kind->next_time(media);
}

int ps_media_resize(struct ps_media *media, uint64_t size) {
  assert(media != NULL);
  return media->kind->resize(media, size);
}

int ps_media_control(struct ps_media *media, const char *kind, const char *verb, char *error,
                     size_t error_size) {
  assert(media != NULL && kind != NULL && verb != NULL);
  assert(error != NULL || error_size == 0);
  char list[160] = "";
  size_t used = 0;
  if (error_size > 0) error[0] = '\0';
  for (struct ps_media *at = media; at != NULL; at = at->below) {
    if (strcmp(at->kind->name, kind) == 0) {
      if (at->kind->control != NULL) return at->kind->control(at, verb, error, error_size);
      if (error_size > 0) snprintf(error, error_size, "medium \"%s\" takes no orders", kind);
      return -ENOTSUP;
    }
    int more =
        snprintf(list + used, sizeof list - used, "%s%s", used == 0 ? "" : "|", at->kind->name);
    if (more > 0 && used + (size_t)more < sizeof list) used += (size_t)more;
  }
  if (error_size > 0) {
    snprintf(error, error_size, "no \"%s\" in the chain; expected one of %s", kind, list);
  }
  return -ENOENT;
}

void ps_media_close(struct ps_media *media, bool abandon) {
  assert(media != NULL);
  media->kind->close(media, abandon);
}
