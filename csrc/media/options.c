/* The values of options: whole numbers, sizes, fractions, choices, each with its own complaint. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

/* Digits at the front of the text; false on none or on overflow. */
static bool read_digits(const char **text, const char *end, uint64_t *number) {
  assert(text != NULL && *text != NULL && number != NULL);
  const char *start = *text;
  uint64_t sum = 0;
  for (; *text < end && **text >= '0' && **text <= '9'; (*text)++) {
    uint64_t digit = (uint64_t)(**text - '0');
    if (sum > (UINT64_MAX - digit) / 10) return false;
    sum = sum * 10 + digit;
  }
  *number = sum;
  return *text > start;
}

static bool read_size(const char *text, const char *end, uint64_t *number) {
  static const char suffixes[] = "KMGT";
  if (!read_digits(&text, end, number)) return false;
  if (text == end) return true;
  const char *suffix = memchr(suffixes, *text, sizeof suffixes - 1);
  if (suffix == NULL || text + 1 != end) return false;
  unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
  if (*number > UINT64_MAX >> shift) return false;
  *number <<= shift;
  return true;
}

/* Digits with an optional fraction. strtod would read it by the process's locale. */
static bool read_real(const char *text, const char *end, double *real) {
  uint64_t whole = 0;
  uint64_t part = 0;
  if (!read_digits(&text, end, &whole)) return false;
  *real = (double)whole;
  if (text == end) return true;
  if (*text != '.') return false;
  const char *start = ++text;
  if (!read_digits(&text, end, &part) || text != end) return false;
  double scale = 1;
  for (; start < text; start++) scale *= 10;
  *real += (double)part / scale;
  return true;
}

static bool parse_whole(const struct ps_spec_report *report, const struct ps_option *option,
                        const char *text, size_t length, struct ps_option_value *value) {
  const char *end = text + length;
  const char *rest = text;
  bool size = option->type == PS_OPTION_SIZE;
  bool good = size ? read_size(text, end, &value->number)
                   : read_digits(&rest, end, &value->number) && rest == end;
  if (!good) {
    return ps_spec_fail(report, value->at, "%s=\"%.*s\" is no %s; expected %s", option->key,
                        (int)length, text, size ? "size" : "number",
                        size ? "bytes, or a number with K, M, G or T" : "a whole number");
  }
  if (value->number < option->least || value->number > option->most) {
    return ps_spec_fail(report, value->at,
                        "%s=%.*s is out of range; expected %" PRIu64 " to %" PRIu64, option->key,
                        (int)length, text, option->least, option->most);
  }
  return true;
}

static bool parse_real(const struct ps_spec_report *report, const struct ps_option *option,
                       const char *text, size_t length, struct ps_option_value *value) {
  if (!read_real(text, text + length, &value->real)) {
    return ps_spec_fail(report, value->at,
                        "%s=\"%.*s\" is no number; expected a decimal number such as 0.5",
                        option->key, (int)length, text);
  }
  if (value->real < option->least_real || value->real > option->most_real) {
    return ps_spec_fail(report, value->at, "%s=%.*s is out of range; expected %g to %g",
                        option->key, (int)length, text, option->least_real, option->most_real);
  }
  return true;
}

static bool parse_choice(const struct ps_spec_report *report, const struct ps_option *option,
                         const char *text, size_t length, struct ps_option_value *value) {
  assert(option->choices != NULL);
  char list[200] = "";
  size_t used = 0;
  for (uint64_t i = 0; option->choices[i] != NULL; i++) {
    const char *choice = option->choices[i];
    if (strlen(choice) == length && memcmp(choice, text, length) == 0) {
      value->number = i;
      return true;
    }
    int more = snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ", choice);
    if (more > 0 && used + (size_t)more < sizeof list) used += (size_t)more;
  }
  return ps_spec_fail(report, value->at, "%s=\"%.*s\" is unknown; expected one of %s", option->key,
                      (int)length, text, list);
}

bool ps_option_parse(const struct ps_spec_report *report, const struct ps_option *option,
                     const char *text, size_t length, struct ps_option_value *value) {
  assert(report != NULL && option != NULL);
  assert(text != NULL && value != NULL);
  value->given = true;
  switch (option->type) {
    case PS_OPTION_NUMBER:
    case PS_OPTION_SIZE:
      return parse_whole(report, option, text, length, value);
    case PS_OPTION_FRACTION:
      return parse_real(report, option, text, length, value);
    case PS_OPTION_CHOICE:
      return parse_choice(report, option, text, length, value);
  }
  assert(false);
  return false;
}

static int find_option(const struct ps_option *table, uint32_t count, const char *key,
                       size_t length) {
  assert(table != NULL || count == 0);
  for (uint32_t i = 0; i < count; i++) {
    if (strlen(table[i].key) == length && memcmp(table[i].key, key, length) == 0) return (int)i;
  }
  return -1;
}

static bool fail_unknown(const struct ps_spec_report *report, const char *at, const char *key,
                         size_t length, const struct ps_option *table, uint32_t count) {
  char list[200] = "no options";
  size_t used = 0;
  for (uint32_t i = 0; i < count; i++) {
    const char *lead = i == 0 ? "one of " : ", ";
    int more = snprintf(list + used, sizeof list - used, "%s%s", lead, table[i].key);
    if (more > 0 && used + (size_t)more < sizeof list) used += (size_t)more;
  }
  return ps_spec_fail(report, at, "unknown option \"%.*s\"; expected %s", (int)length, key, list);
}

bool ps_spec_read(const struct ps_spec_report *report, const struct ps_spec_part *part,
                  const struct ps_option *table, uint32_t count, struct ps_option_value *values) {
  assert(report != NULL && part != NULL);
  assert(values != NULL || count == 0);
  for (uint32_t i = 0; i < count; i++) {
    values[i] = (struct ps_option_value){.at = part->start};
  }
  for (uint32_t i = 0; i < part->option_count; i++) {
    const struct ps_spec_option *given = &part->options[i];
    int index = find_option(table, count, given->key, given->key_length);
    if (index < 0) {
      return fail_unknown(report, given->key, given->key, given->key_length, table, count);
    }
    values[index].at = given->value;
    if (!ps_option_parse(report, &table[index], given->value, given->value_length,
                         &values[index])) {
      return false;
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    if (table[i].required && !values[i].given) {
      return ps_spec_fail(report, part->start,
                          "option \"%s\" is missing; expected %s=... after "
                          "\"%.*s\"",
                          table[i].key, table[i].key, (int)part->kind_length, part->start);
    }
  }
  return true;
}

int ps_option_set(const struct ps_spec_report *report, const char *verb,
                  const struct ps_option *table, uint32_t count, struct ps_option_value *value) {
  assert(report != NULL && verb != NULL && value != NULL);
  assert(strncmp(verb, "set ", 4) == 0);
  const char *key = verb + 4;
  const char *equals = strchr(key, '=');
  if (equals == NULL) {
    ps_spec_fail(report, NULL, "\"%s\" sets nothing; expected set KEY=VALUE", verb);
    return -1;
  }
  size_t length = (size_t)(equals - key);
  int index = find_option(table, count, key, length);
  if (index < 0) {
    fail_unknown(report, NULL, key, length, table, count);
    return -1;
  }
  *value = (struct ps_option_value){.at = NULL};
  bool good = ps_option_parse(report, &table[index], equals + 1, strlen(equals + 1), value);
  return good ? index : -1;
}
