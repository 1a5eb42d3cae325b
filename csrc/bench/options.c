#include "options.h"

#include <errno.h>
#include <string.h>

enum { PLACES = 9, UNLIMITED_RATE = 0 };

static uint64_t number(const char *name, const char *text, uint64_t least, uint64_t most) {
  char *end;
  errno = 0;
  uint64_t value = strtoull(text, &end, 10);
  if (errno != 0 || *text == '\0' || *end != '\0' || value < least || value > most) {
    fprintf(stderr, "load: %s is '%s', expected %llu to %llu\n", name, text,
            (unsigned long long)least, (unsigned long long)most);
    exit(2);
  }
  return value;
}

static uint64_t duration_ns(const char *text) {
  char *end;
  double seconds = strtod(text, &end);
  if (*text == '\0' || *end != '\0' || !(seconds >= 0.01 && seconds <= 3600)) {
    fprintf(stderr, "load: SECONDS is '%s', expected 0.01 to 3600\n", text);
    exit(2);
  }
  return (uint64_t)(seconds * 1e9);
}

static int one_of(const char *name, const char *text, const char *const *words, int count) {
  for (int i = 0; i < count; i++)
    if (strcmp(text, words[i]) == 0) return i;
  fprintf(stderr, "load: %s is '%s', expected one of", name, text);
  for (int i = 0; i < count; i++) fprintf(stderr, " %s", words[i]);
  fprintf(stderr, "\n");
  exit(2);
}

struct setting {
  const char *name;
  uint64_t least, most;
  uint64_t *wide;
  uint32_t *narrow;
};

/* A setting that is a number; false when there is none of that name. */
static bool set_number(struct options *options, const char *name, const char *text) {
  struct flood_config *flood = &options->flood;
  const struct setting settings[] = {
      {"pid", 1, 1 << 22, &options->pid, NULL},
      {"rate", 1, 10000000, &options->rate, NULL},
      {"commands", 1, UINT64_MAX / 2, &options->commands, NULL},
      {"cold_percent", 0, 100, &options->cold_percent, NULL},
      {"sequential", 0, 1, &options->sequential, NULL},
      {"stamped", 0, 1, &options->stamped, NULL},
      {"poll", 0, 1, &options->poll, NULL},
      {"header_digest", 0, 1, &options->header_digest, NULL},
      {"data_digest", 0, 1, &options->data_digest, NULL},
      {"nsid", 1, UINT32_MAX, NULL, &options->nsid},
      {"namespaces", 1, 1024, NULL, &options->namespaces},
      {"idle", 1, IDLE_MOST, NULL, &options->idle},
      {"seed", 1, UINT64_MAX, &options->seed, NULL},
      {"flood_rate", UNLIMITED_RATE, 100000000, &flood->rate, NULL},
      {"flood_records", 1, UINT64_MAX, &flood->records, NULL},
      {"flood_depth", 1, DEPTH_MOST, NULL, &flood->depth},
      {"flood_ids", 1, UINT32_MAX, &flood->ids, NULL},
      {"flood_nsid", 1, UINT32_MAX, NULL, &flood->nsid},
      {"flood_span", 1 << 20, UINT64_MAX / 2, &flood->span, NULL},
      {"extension", 1, UINT32_MAX, NULL, &flood->extension},
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    if (strcmp(name, settings[i].name) != 0) continue;
    uint64_t value = number(name, text, settings[i].least, settings[i].most);
    if (settings[i].wide != NULL) *settings[i].wide = value;
    if (settings[i].narrow != NULL) *settings[i].narrow = (uint32_t)value;
    return true;
  }
  return false;
}

/* A setting that is a name; false when there is none of that name. */
static bool set_name(struct options *options, const char *name, const char *text) {
  if (strcmp(name, "host") == 0) {
    options->endpoint.host = text;
  } else if (strcmp(name, "flood_nqn") == 0) {
    options->flood_nqn = text;
  } else if (strcmp(name, "flood_host") == 0) {
    options->flood_host = text;
  } else {
    return false;
  }
  return true;
}

/* KEY=VALUE; cuts the text in two. */
static void set_option(struct options *options, char *text) {
  static const char *const mixes[] = {"sets", "signatures", "intents", "mix", "hostile"};
  char *value = strchr(text, '=');
  if (value == NULL) {
    fprintf(stderr, "load: '%s': expected KEY=VALUE\n", text);
    exit(2);
  }
  *value++ = '\0';
  if (strcmp(text, "flood") == 0) {
    options->has_flood = true;
    options->flood.mix = (enum flood_mix)one_of("flood", value, mixes, 5);
  } else if (!set_name(options, text, value) && !set_number(options, text, value)) {
    fprintf(stderr, "load: there is no option '%s'\n", text);
    exit(2);
  }
}

void read_options(struct options *options, int count, char **arguments) {
  static const char *const kinds[] = {"read", "write", "mixed", "none"};
  if (count < 1 + PLACES) {
    fprintf(stderr,
            "usage: load ADDRESS PORT NQN|bare OP SIZE DEPTH CONNECTIONS SECONDS SPAN"
            " [KEY=VALUE...]\n");
    exit(2);
  }
  *options = (struct options){.seed = 88172645463325252u, .nsid = 1, .namespaces = 1};
  number("PORT", arguments[2], 1, UINT16_MAX);
  options->endpoint = (struct endpoint){.address = arguments[1],
                                        .port = arguments[2],
                                        .nqn = arguments[3],
                                        .host = "nqn.2026-11.io.prestage:bench-host"};
  if (strcmp(arguments[3], "bare") == 0) options->endpoint.nqn = NULL;
  options->kind = (enum kind)one_of("OP", arguments[4], kinds, 4);
  options->size = (uint32_t)number("SIZE", arguments[5], 512, PAYLOAD);
  options->depth = (uint32_t)number("DEPTH", arguments[6], 1, DEPTH_MOST);
  options->connections = (uint32_t)number("CONNECTIONS", arguments[7], 1, QUEUES_MOST);
  options->duration_ns = duration_ns(arguments[8]);
  options->span = number("SPAN", arguments[9], 4096, UINT64_MAX / 2);
  options->flood = (struct flood_config){.depth = 4, .ids = 65536, .nsid = 1};
  for (int i = 1 + PLACES; i < count; i++) set_option(options, arguments[i]);
  if (options->flood_host == NULL) options->flood_host = options->endpoint.host;
  if (options->flood.span == 0) options->flood.span = options->span;
  options->flood.warm_span = options->span;
  options->flood.by_pages = options->flood.extension != 0;
  if (options->kind == NOTHING) options->connections = 0;
  options->endpoint.digests = (uint8_t)((options->header_digest ? PS_DIGEST_HEADER : 0) |
                                        (options->data_digest ? PS_DIGEST_DATA : 0));
}
