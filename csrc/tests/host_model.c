/* A model test of a host's queues: batches and single commands over socket pairs to targets that
 * answer in any order, late, wrongly or never; receives and sends that stop anywhere; batches that
 * are stopped, cut anew, overdue or lost; CIDs that are kept from use; connections that break or
 * talk nonsense. Every byte that is read is the right one, every byte that is written was meant to
 * be, memory that was given back is left alone, and in the end everything has ended.
 *
 *   host_model SEED RUNS
 */
#include <signal.h>
#include <unistd.h>

#include "fuzz_support.h"
#include "host_rig.h"

enum { STEPS = 1000, JOBS = 5, PIECES = 40, PIECE_BLOCKS = 24, GUARD = 0xee, LAST_TURNS = 100000 };

/* A batch, and the memory that it has or had. */
struct job {
  struct ps_host_batch batch;
  struct ps_host_piece pieces[PIECES];
  struct ps_host_piece *cut; /* instead of `pieces`, once they were cut anew */
  uint8_t *memory;
  size_t size;
  bool is_given_back; /* it holds the guard, and must go on to */
};

static struct rig rig;
static struct job jobs[JOBS];
static uint64_t ends[PS_BATCH_STOPPED + 1];
static uint64_t cuts;

static void forget(struct job *job) {
  if (job->is_given_back) {
    for (size_t i = 0; i < job->size; i++) FUZZ_CHECK(job->memory[i] == GUARD);
  }
  free(job->memory);
  free(job->cut);
  *job = (struct job){0};
}

/* Extents of a new batch: reads where blocks are, writes where none are yet. */
static void begin(struct job *job) {
  forget(job);
  struct ps_host_batch *batch = &job->batch;
  batch->is_read = rig_pick(&rig, 3) > 0;
  batch->is_repeatable = batch->is_read && rig_pick(&rig, 4) > 0;
  batch->count = 1 + rig_pick(&rig, PIECES);
  batch->pieces = job->pieces;
  batch->block_size = RIG_BLOCK;
  batch->tag = (uint64_t)(job - jobs);
  batch->sqe[0] = batch->is_read ? PS_OP_READ : PS_OP_WRITE;
  for (uint32_t i = 0; i < batch->count; i++) {
    job->pieces[i].nlb = 1 + rig_pick(&rig, PIECE_BLOCKS);
    job->size += (size_t)job->pieces[i].nlb * RIG_BLOCK;
  }
  job->memory = calloc(1, job->size);
  FUZZ_CHECK(job->memory != NULL);
  uint8_t *at = job->memory;
  for (uint32_t i = 0; i < batch->count; i++) {
    struct ps_host_piece *piece = &job->pieces[i];
    piece->slba = rig_place(&rig, batch->is_read, piece->nlb);
    piece->address = (uint64_t)(uintptr_t)at;
    if (!batch->is_read) rig_content(at, piece->slba, piece->nlb);
    at += (size_t)piece->nlb * RIG_BLOCK;
  }
  ps_host_add(&rig.work, batch);
}

/* Cut what is left of a batch into smaller pieces, as for a controller that takes less at a time.
 */
static void cut_anew(struct job *job) {
  struct ps_host_batch *batch = &job->batch;
  if (batch->end != PS_BATCH_RUNNING || batch->waiting + batch->done != batch->count) return;
  uint32_t most = 1 + rig_pick(&rig, PIECE_BLOCKS), count = 0;
  struct ps_host_piece *cut = calloc((size_t)PIECES * PIECE_BLOCKS, sizeof *cut);
  FUZZ_CHECK(cut != NULL);
  for (uint32_t i = 0; i < batch->count; i++) {
    struct ps_host_piece left = batch->pieces[i];
    if (left.state == PS_PIECE_DONE) continue;
    while (left.nlb > 0) {
      uint32_t nlb = left.nlb < most ? left.nlb : most;
      cut[count++] = (struct ps_host_piece){.slba = left.slba, .address = left.address, .nlb = nlb};
      left.slba += nlb;
      left.address += (uint64_t)nlb * RIG_BLOCK;
      left.nlb -= nlb;
    }
  }
  ps_host_recut(&rig.work, batch, cut, count);
  free(job->cut);
  job->cut = cut;
  cuts++;
}

/* The batch has ended or was stopped: its memory is the caller's again. */
static void give_back(struct job *job) {
  for (uint32_t i = 0; i < rig.lane_count; i++) lane_detach(&rig.lanes[i], &job->batch);
  memset(job->memory, GUARD, job->size);
  job->is_given_back = true;
}

static void check_done(const struct job *job) {
  FUZZ_CHECK(job->batch.done == job->batch.count);
  for (uint32_t i = 0; i < job->batch.count; i++) {
    const struct ps_host_piece *piece = &job->batch.pieces[i];
    FUZZ_CHECK(piece->state == PS_PIECE_DONE);
    const uint8_t *bytes = job->batch.is_read ? (const uint8_t *)(uintptr_t)piece->address
                                              : rig.store + piece->slba * RIG_BLOCK;
    rig_check(bytes, piece->slba, piece->nlb);
  }
}

/* Batches that have ended by themselves: what may have ended them did. */
static void take_ended(void) {
  for (int i = 0; i <= JOBS; i++) {
    struct ps_host_batch *batch = ps_host_next_ended(&rig.work);
    if (batch == NULL) return;
    struct job *job = &jobs[batch->tag];
    FUZZ_CHECK(batch == &job->batch && !job->is_given_back && batch->waiting == 0);
    ends[batch->end]++;
    if (batch->end == PS_BATCH_DONE) check_done(job);
    if (batch->end == PS_BATCH_FAILED) FUZZ_CHECK(rig.lies > 0);
    if (batch->end == PS_BATCH_LOST) FUZZ_CHECK(rig.breaks > 0);
    give_back(job);
  }
  FUZZ_CHECK(!"every batch has ended once");
}

static void check_work(void) {
  uint64_t waiting = 0;
  uint32_t listed = 0, seen = 0;
  for (uint32_t i = 0; i < JOBS; i++) {
    waiting += jobs[i].batch.waiting;
    listed += jobs[i].batch.is_listed;
    FUZZ_CHECK(jobs[i].batch.is_listed == (jobs[i].batch.waiting > 0));
  }
  for (struct ps_host_batch *one = rig.work.first; one != NULL; one = one->next) {
    FUZZ_CHECK(one->is_listed && one->end == PS_BATCH_RUNNING && ++seen <= listed);
    FUZZ_CHECK((one->next == NULL ? rig.work.last : one->next->previous) == one);
  }
  FUZZ_CHECK(seen == listed && waiting == rig.work.waiting);
  for (uint32_t i = 0; i < rig.lane_count; i++) lane_check(&rig.lanes[i]);
}

static bool is_running(const struct job *job) { return job->memory != NULL && !job->is_given_back; }

static void step(void) {
  struct lane *lane = &rig.lanes[rig_pick(&rig, rig.lane_count)];
  struct job *job = &jobs[rig_pick(&rig, JOBS)];
  switch (rig_pick(&rig, 26)) {
    case 0:
    case 1:
      if (!is_running(job)) begin(job);
      break;
    case 2:
      if (!is_running(job) || rig_pick(&rig, 8) != 0) break;
      ps_host_stop(&rig.work, &job->batch);
      ends[PS_BATCH_STOPPED]++;
      give_back(job);
      break;
    case 3:
      lane_single(lane);
      break;
    case 4:
      if (rig.is_rough && rig_pick(&rig, 8) == 0) lane_break(lane);
      break;
    case 5:
      rig.work.requests = rig_pick(&rig, 2) * rig_pick(&rig, 5);
      break;
    case 6:
      lane_reserve(lane, rig_pick(&rig, 3));
      break;
    case 7:
      rig.now_us += rig_pick(&rig, RIG_TIMEOUT_US / 8);
      lane_keep_time(lane);
      break;
    case 8:
      lane_let_go(lane);
      break;
    case 9:
    case 10:
      lane_fill(lane, rig_pick(&rig, 6));
      break;
    case 11:
      if (is_running(job)) cut_anew(job);
      break;
    default:
      for (int i = 0; i < 4; i++) lane_turn(lane);
  }
}

/* Everything ends once nobody hinders it. */
static void finish(void) {
  rig.is_rough = false;
  rig.work.requests = 0;
  bool is_quiet = false;
  for (int turn = 0; turn < LAST_TURNS && !is_quiet; turn++) {
    is_quiet = rig.work.waiting == 0;
    for (uint32_t i = 0; i < rig.lane_count; i++) {
      lane_reserve(&rig.lanes[i], 0);
      lane_let_go(&rig.lanes[i]);
      lane_fill(&rig.lanes[i], UINT32_MAX);
      lane_turn(&rig.lanes[i]);
      take_ended();
      is_quiet = is_quiet && lane_is_quiet(&rig.lanes[i]);
    }
  }
  FUZZ_CHECK(is_quiet);
  for (uint32_t i = 0; i < JOBS; i++) FUZZ_CHECK(!is_running(&jobs[i]));
}

static void run(uint64_t seed) {
  lanes_open(&rig, seed);
  for (int i = 0; i < STEPS; i++) {
    step();
    take_ended();
    check_work();
  }
  finish();
  check_work();
  lanes_close(&rig);
  for (uint32_t i = 0; i < JOBS; i++) forget(&jobs[i]);
}

static char seed_text[64];
static size_t seed_size;

static void tell(int number) {
  if (write(STDERR_FILENO, seed_text, seed_size) < 0) _exit(3);
  signal(number, SIG_DFL);
  raise(number);
}

int main(int count, char **arguments) {
  char *end[2] = {NULL, NULL};
  unsigned long seed = count == 3 ? strtoul(arguments[1], &end[0], 0) : 0;
  unsigned long runs = count == 3 ? strtoul(arguments[2], &end[1], 0) : 0;
  if (count != 3 || *end[0] != '\0' || *end[1] != '\0' || runs == 0) {
    fprintf(stderr, "usage: %s SEED RUNS (two numbers)\n", arguments[0]);
    return 2;
  }
  signal(SIGABRT, tell);
  for (unsigned long i = 0; i < runs; i++) {
    int size = snprintf(seed_text, sizeof seed_text, "host_model: failed at seed %lu\n", seed + i);
    seed_size = (size_t)size;
    run(seed + i);
  }
  static const char *const names[] = {"running", "done", "failed", "overdue", "lost", "stopped"};
  printf("%lu runs from seed %lu:", runs, seed);
  for (uint32_t i = PS_BATCH_DONE; i <= PS_BATCH_STOPPED; i++)
    printf(" %llu %s,", (unsigned long long)ends[i], names[i]);
  printf(" %llu cut anew, %llu single commands, %llu CIDs kept, %llu connections broken\n",
         (unsigned long long)cuts, (unsigned long long)rig.all_singles,
         (unsigned long long)rig.all_kept, (unsigned long long)rig.all_breaks);
  return 0;
}
