/* A latency histogram: 64 linear steps in each power of two, so a percentile is within 1.6 %. */
#ifndef PRESTAGE_BENCH_HISTOGRAM_H
#define PRESTAGE_BENCH_HISTOGRAM_H

#include <stdint.h>

enum { STEPS = 64, BINS = 40 * STEPS };

struct histogram {
  uint64_t counts[BINS], total;
};

static inline uint32_t histogram_bin(uint64_t value) {
  if (value < STEPS) return (uint32_t)value;
  uint32_t power = 63u - (uint32_t)__builtin_clzll(value) - 6;
  uint32_t bin = (power + 1) * STEPS + (uint32_t)((value >> power) - STEPS);
  return bin < BINS ? bin : BINS - 1;
}

static inline void histogram_add(struct histogram *histogram, uint64_t value) {
  histogram->counts[histogram_bin(value)]++;
  histogram->total++;
}

/* The smallest value that `share` of the values do not exceed. */
static inline uint64_t histogram_at(const struct histogram *histogram, double share) {
  uint64_t seen = 0, wanted = (uint64_t)(share * (double)histogram->total);
  for (uint32_t bin = 0; bin < BINS; bin++) {
    seen += histogram->counts[bin];
    if (seen > wanted || (seen == histogram->total && seen > 0))
      return bin < STEPS ? bin : (uint64_t)(STEPS + bin % STEPS) << (bin / STEPS - 1);
  }
  return 0;
}

#endif
