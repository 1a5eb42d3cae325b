/* The spec of a medium, cut into parts: KIND:PATH,KEY=VALUE,...|KIND:... (options.c reads the
 * values). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

bool ps_spec_fail(const struct ps_spec_report *report, const char *at, const char *format, ...) {
  assert(report != NULL && format != NULL);
  assert(report->size == 0 || report->text != NULL);
  int used = 0;
  if (report->size == 0) return false;
  if (at != NULL) {
    assert(at >= report->spec && at <= report->spec + strlen(report->spec));
    used = snprintf(report->text, report->size, "media spec \"%s\", at byte %zu: ", report->spec,
                    (size_t)(at - report->spec) + 1);
  } else if (report->spec != NULL) {
    used = snprintf(report->text, report->size, "media spec \"%s\": ", report->spec);
  }
  if (used < 0 || (size_t)used >= report->size) return false;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(report->text + used, report->size - (size_t)used, format, arguments);
  va_end(arguments);
  return false;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* Decodes %XX of a path. */
static bool decode_path(const struct ps_spec_report *report, const char *text, size_t length,
                        struct ps_spec_part *part) {
  assert(part->path == NULL);
  if (length == 0) {
    return ps_spec_fail(report, text, "the path is empty; expected %.*s:PATH",
                        (int)part->kind_length, part->start);
  }
  part->path_start = text;
  part->path = malloc(length + 1);
  if (part->path == NULL) return ps_spec_fail(report, text, "no memory for the path");
  size_t used = 0;
  for (size_t i = 0; i < length; i++) {
    char c = text[i];
    if (c == '%') {
      int high = i + 1 < length ? hex_digit(text[i + 1]) : -1;
      int low = i + 2 < length ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0 || (high == 0 && low == 0)) {
        return ps_spec_fail(report, text + i,
                            "\"%.3s\" is no escape; expected %%2C for ',', %%7C for '|', %%25 "
                            "for '%%'",
                            text + i);
      }
      c = (char)(high * 16 + low);
      i += 2;
    }
    part->path[used++] = c;
  }
  part->path[used] = '\0';
  return true;
}

static bool cut_option(const struct ps_spec_report *report, const char *text, size_t length,
                       struct ps_spec_part *part) {
  assert(part->option_count <= PS_SPEC_OPTIONS);
  const char *equals = memchr(text, '=', length);
  if (equals == NULL || equals == text) {
    return ps_spec_fail(report, text, "\"%.*s\" is no option; expected KEY=VALUE", (int)length,
                        text);
  }
  if (part->option_count == PS_SPEC_OPTIONS) {
    return ps_spec_fail(report, text, "too many options; expected at most %d", PS_SPEC_OPTIONS);
  }
  struct ps_spec_option *option = &part->options[part->option_count++];
  option->key = text;
  option->key_length = (size_t)(equals - text);
  option->value = equals + 1;
  option->value_length = length - option->key_length - 1;
  for (uint32_t i = 0; i + 1 < part->option_count; i++) {
    const struct ps_spec_option *other = &part->options[i];
    if (other->key_length == option->key_length &&
        memcmp(other->key, option->key, option->key_length) == 0) {
      return ps_spec_fail(report, text, "option \"%.*s\" is given twice; expected once",
                          (int)option->key_length, option->key);
    }
  }
  return true;
}

bool ps_spec_cut(const struct ps_spec_report *report, const char *start, bool has_path,
                 struct ps_spec_part *part, const char **end) {
  assert(report != NULL && start != NULL);
  assert(part != NULL && end != NULL);
  *part = (struct ps_spec_part){.start = start};
  part->kind_length = strcspn(start, ":|");
  const char *stop = start + strcspn(start, "|");
  const char *at = start + part->kind_length;
  *end = stop;
  bool colon = at < stop;
  if (colon) at++;
  if (has_path) {
    size_t length = (size_t)(stop - at);
    const char *comma = memchr(at, ',', length);
    if (comma != NULL) length = (size_t)(comma - at);
    if (!decode_path(report, at, length, part)) return false;
    at += length;
    if (at == stop) return true;
    at++;
  } else if (at == stop) {
    return true;
  }
  for (;;) {
    size_t length = (size_t)(stop - at);
    const char *comma = memchr(at, ',', length);
    if (comma != NULL) length = (size_t)(comma - at);
    if (!cut_option(report, at, length, part)) return false;
    at += length;
    if (comma == NULL) return true;
    at++;
  }
}

void ps_spec_part_free(struct ps_spec_part *part) {
  assert(part != NULL);
  free(part->path);
  part->path = NULL;
}
