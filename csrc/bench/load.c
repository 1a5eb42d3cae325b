/* A load generator for NVMe/TCP targets and for the bare server.
 *
 *   load ADDRESS PORT NQN|bare OP SIZE DEPTH CONNECTIONS SECONDS SPAN [KEY=VALUE...]
 *
 * OP is read, write, mixed (two reads to a write) or none, SIZE and SPAN are bytes (SPAN: how much
 * of a namespace is touched, from its start, at random), DEPTH is per connection. Prints one JSON
 * object. One thread, epoll. Without `rate` that many commands are always in flight (closed loop).
 *
 *   pid=N            also the CPU time that this process uses meanwhile, and its resident memory
 *                    at the end
 *   commands=N       then it is over, SECONDS is only a limit
 *   poll=1           never sleep: receive from each connection in turn
 *   header_digest=1  and data_digest=1, on I/O queues: made and checked here too
 *   nsid=N           the first namespace that is touched (1)
 *   namespaces=N     from that one on, at random
 *   idle=N           connections beside those that do nothing (admin queues among them)
 *   rate=N           commands a second at random times (Poisson), whatever is in flight: latency
 *                    counts from when a command was due
 *   cold_percent=N   of the reads go beyond SPAN, to the rest of the namespace
 *   sequential=1     one after the other through SPAN, again and again, from a place by the seed on
 *   stamped=1        latency counts from when a command was sent until the kernel had its answer:
 *                    what the generator itself does beside them is not in it
 *   seed=N           of places and times
 *   host=NQN         of the host
 *   flood=MIX        hints beside it on a queue of their own: sets, signatures, intents, mix,
 *                    hostile (flood.h). With OP none they, or what idles, are the whole load
 *   flood_nqn=NQN    to this subsystem, not to that of the reads
 *   flood_host=NQN   in the name of this host, then
 *   flood_rate=N     records a second (0: as fast as they are taken)
 *   flood_records=N  then it is over, SECONDS is only a limit
 *   flood_depth=N    batches in flight
 *   flood_ids=N      of sets, and places of signatures
 *   flood_nsid=N     the namespace that is spoken of (intents: namespace 1, SPAN)
 *   flood_span=N     bytes of it
 *   extension=N      by pages of this extension namespace, not by the submit opcode
 */
#include <math.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "flood.h"
#include "histogram.h"
#include "options.h"

enum { COMMANDS_MOST = DEPTH_MOST * QUEUES_MOST };

struct load {
  struct options options;
  struct geometry geometry;
  struct histogram histogram;
  uint64_t seed, until_ns, due_ns, started, done, reads;
  uint64_t turn; /* of a scan: commands so far, and where it began */
  bool is_over;
  uint32_t queue_count; /* with the flood's */
  struct queue *queues;
  struct flood *flood;
  uint32_t idle_count; /* commands that are not under way, when there is a rate */
  struct {
    struct queue *queue;
    uint16_t cid;
  } idle[COMMANDS_MOST];
};

static uint8_t payload[PAYLOAD];

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The first byte of a command: within the span, or, for a share of them, beyond it. */
static uint64_t some_place(struct load *load) {
  const struct options *options = &load->options;
  uint64_t first = 0, bytes = options->span;
  if (options->sequential) return load->turn++ % (bytes / options->size) * options->size;
  if (options->cold_percent > 0 && random_next(&load->seed) % 100 < options->cold_percent) {
    first = options->span;
    bytes = load->geometry.blocks * load->geometry.block_size - first;
  }
  return first + (random_next(&load->seed) >> 8) % (bytes / options->size) * options->size;
}

/* Make the command of one slot and queue it for sending. */
static void start(struct load *load, struct queue *queue, uint16_t cid, uint64_t started_ns) {
  const struct options *options = &load->options;
  bool is_read =
      options->kind == READ || (options->kind == MIXED && random_next(&load->seed) % 3 != 0);
  uint64_t slba = some_place(load) / load->geometry.block_size;
  bool is_one = options->namespaces == 1;
  uint32_t nth = is_one ? 0 : (uint32_t)((random_next(&load->seed) >> 8) % options->namespaces);
  struct capsule sqe = {.opcode = is_read ? PS_OP_READ : PS_OP_WRITE,
                        .nsid = options->nsid + nth,
                        .cdw10 = (uint32_t)slba,
                        .cdw11 = (uint32_t)(slba >> 32),
                        .cdw12 = options->size / load->geometry.block_size - 1};
  load->started++;
  queue->started_ns[cid] = options->stamped ? clock_now_ns() : started_ns;
  queue_command(queue, &sqe, cid, is_read ? NULL : payload, options->size,
                load->geometry.in_capsule);
}

/* All that there shall be have been started. */
static bool is_enough(const struct load *load) {
  return load->options.commands > 0 && load->started >= load->options.commands;
}

/* With a rate: start what is due, as far as there are commands. */
static void start_due(struct load *load, uint64_t now_ns) {
  while (load->due_ns <= now_ns && load->idle_count > 0 && !load->is_over && !is_enough(load)) {
    load->idle_count--;
    start(load, load->idle[load->idle_count].queue, load->idle[load->idle_count].cid, load->due_ns);
    double uniform = ((double)(random_next(&load->seed) >> 11) + 1.0) / 9007199254740993.0;
    load->due_ns += (uint64_t)(-log(uniform) * 1e9 / (double)load->options.rate);
  }
}

static void ended(struct queue *queue, uint16_t cid, uint64_t now_ns) {
  struct load *load = queue->owner;
  histogram_add(&load->histogram, now_ns - queue->started_ns[cid]);
  load->done++;
  load->reads += queue->capsules[cid].pdu.opcode == PS_OP_READ;
  load->is_over =
      load->is_over || now_ns >= load->until_ns || (is_enough(load) && load->done == load->started);
  if (load->options.rate > 0) {
    load->idle[load->idle_count].queue = queue;
    load->idle[load->idle_count++].cid = cid;
  } else if (!load->is_over && !is_enough(load)) {
    start(load, queue, cid, now_ns);
  }
}

/* What has to be done at `now_ns` although nothing came; when it is time again. */
static uint64_t keep_time(struct load *load, uint64_t now_ns) {
  uint64_t next_ns = load->until_ns;
  if (now_ns >= load->until_ns) load->is_over = true;
  if (load->options.rate > 0) {
    start_due(load, now_ns);
    if (load->idle_count > 0 && load->due_ns < next_ns) next_ns = load->due_ns;
    for (uint32_t i = 0; i < load->options.connections; i++) queue_flush(&load->queues[i]);
  }
  if (load->flood != NULL) {
    flood_send(load->flood, now_ns);
    uint64_t flood_ns = flood_next_ns(load->flood);
    if (flood_ns < next_ns) next_ns = flood_ns;
    if (flood_is_over(load->flood)) load->is_over = true;
  }
  for (uint32_t i = 0; i < load->queue_count; i++) queue_flush(&load->queues[i]);
  return next_ns;
}

/* Without a rate all commands start now, and each again when it has ended. */
static void start_all(struct load *load, uint64_t now_ns) {
  load->until_ns = now_ns + load->options.duration_ns;
  load->due_ns = now_ns;
  for (uint32_t i = 0; i < load->options.connections; i++) {
    struct queue *queue = &load->queues[i];
    if (load->options.stamped) queue_stamp(queue);
    queue->owner = load;
    queue->ended = ended;
    for (uint32_t cid = 0; cid < load->options.depth && !is_enough(load); cid++) {
      if (load->options.rate == 0) {
        start(load, queue, (uint16_t)cid, now_ns);
        continue;
      }
      load->idle[load->idle_count].queue = queue;
      load->idle[load->idle_count++].cid = (uint16_t)cid;
    }
  }
}

static int epoll_of(struct load *load) {
  int epoll_fd = epoll_create1(0);
  if (epoll_fd < 0) die("load: epoll");
  for (uint32_t i = 0; i < load->queue_count; i++) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &load->queues[i]};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, load->queues[i].fd, &event);
  }
  return epoll_fd;
}

/* Sleep until something came or it is `next_ns`, and take what came. */
static void wait_and_receive(int epoll_fd, uint64_t now_ns, uint64_t next_ns) {
  struct epoll_event events[QUEUES_MOST + 1];
  uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
  struct timespec wait = {(time_t)(wait_ns / 1000000000), (long)(wait_ns % 1000000000)};
  int count = epoll_pwait2(epoll_fd, events, QUEUES_MOST + 1, &wait, NULL);
  for (int i = 0; i < count; i++) queue_receive(events[i].data.ptr);
}

static void run(struct load *load) {
  int epoll_fd = epoll_of(load);
  start_all(load, clock_now_ns());
  for (;;) {
    uint64_t now_ns = clock_now_ns();
    uint64_t next_ns = keep_time(load, now_ns);
    if (load->is_over) break;
    if (!load->options.poll) {
      wait_and_receive(epoll_fd, now_ns, next_ns);
      continue;
    }
    for (uint32_t i = 0; i < load->queue_count; i++) queue_receive(&load->queues[i]);
  }
  close(epoll_fd);
}

static void report_flood(const struct flood *flood, double seconds) {
  printf(
      ", \"records\": %llu, \"batches\": %llu, \"records_accepted\": %llu, "
      "\"records_dropped\": %llu, \"records_per_s\": %.1f",
      (unsigned long long)flood->records, (unsigned long long)flood->batches,
      (unsigned long long)flood->accepted, (unsigned long long)flood->dropped,
      (double)flood->records / seconds);
}

/* Resident memory of a process; 0 when it is gone. */
static uint64_t resident_bytes(uint64_t pid) {
  char path[64], text[128] = "";
  snprintf(path, sizeof path, "/proc/%llu/statm", (unsigned long long)pid);
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  const char *second = fgets(text, sizeof text, file) == NULL ? NULL : strchr(text, ' ');
  fclose(file);
  return second == NULL ? 0 : strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void report(const struct load *load, uint64_t elapsed_ns, uint64_t cpu_ns,
                   uint64_t own_cpu_ns) {
  double seconds = (double)elapsed_ns / 1e9, done = (double)load->done;
  double each = done > 0 ? 1e3 * done : 1e3;
  printf(
      "{\"iops\": %.1f, \"bytes_per_s\": %.1f, \"commands\": %llu, \"reads\": %llu, "
      "\"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, \"cpu_us_per_command\": %.4f, "
      "\"generator_cpu_us_per_command\": %.4f, \"cpu_s\": %.6f, \"seconds\": %.4f",
      done / seconds, done * load->options.size / seconds, (unsigned long long)load->done,
      (unsigned long long)load->reads, (double)histogram_at(&load->histogram, 0.5) / 1e3,
      (double)histogram_at(&load->histogram, 0.99) / 1e3,
      (double)histogram_at(&load->histogram, 0.999) / 1e3, (double)cpu_ns / each,
      (double)own_cpu_ns / each, (double)cpu_ns / 1e9, seconds);
  if (load->options.pid != 0)
    printf(", \"resident_bytes\": %llu", (unsigned long long)resident_bytes(load->options.pid));
  if (load->flood != NULL) report_flood(load->flood, seconds);
  printf("}\n");
}

/* On a queue of the same controller, or, for another host or subsystem, on one of its own. */
static void connect_flood(struct load *load, uint16_t qid) {
  struct flood_config config = load->options.flood;
  struct geometry geometry = load->geometry;
  struct endpoint endpoint = load->options.endpoint;
  if (load->options.flood_nqn != NULL) {
    endpoint.nqn = load->options.flood_nqn;
    endpoint.host = load->options.flood_host;
    admin_connect(&endpoint, 1, &geometry);
    qid = 1;
  }
  load->flood = calloc(1, sizeof *load->flood);
  if (load->flood == NULL) die("load: memory");
  struct queue *queue = &load->queues[load->queue_count++];
  queue->fd = queue_connect(&endpoint, qid, config.depth, &geometry);
  queue->digests = endpoint.digests;
  config.block_size = geometry.block_size;
  config.in_capsule = geometry.in_capsule;
  flood_init(load->flood, &config, queue, clock_now_ns());
}

static void connect_all(struct load *load) {
  const struct options *options = &load->options;
  const struct endpoint *endpoint = &options->endpoint;
  if (options->connections == 0 && !options->has_flood && options->idle == 0) {
    fprintf(stderr, "load: OP none needs a flood, or something that idles\n");
    exit(2);
  }
  load->geometry = (struct geometry){
      .block_size = 4096, .blocks = 1u << 30, .in_capsule = 8192, .nsid = options->nsid};
  load->queues = calloc(QUEUES_MOST + 1, sizeof *load->queues); /* with the flood's */
  if (load->queues == NULL) die("load: memory");
  uint16_t last = 0;
  if (options->connections > 0) {
    int fds[QUEUES_MOST];
    last = queues_connect(endpoint, options->connections, options->depth, &load->geometry, fds);
    for (; load->queue_count < options->connections; load->queue_count++) {
      load->queues[load->queue_count].fd = fds[load->queue_count];
      load->queues[load->queue_count].digests = endpoint->digests;
    }
  } else if (endpoint->nqn != NULL) {
    admin_connect(endpoint, 1, &load->geometry);
  }
  uint64_t bytes = load->geometry.blocks * load->geometry.block_size;
  if (options->span > bytes || options->span < options->size) {
    fprintf(stderr, "load: SPAN must be between SIZE and the namespace's size\n");
    exit(2);
  }
  if (options->has_flood) connect_flood(load, (uint16_t)(last + 1));
  if (options->idle > 0) idle_connect(endpoint, options->idle, load->geometry);
}

/* As many as the system lets a process open. */
static void open_many_files(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) die("load: files");
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) die("load: files");
}

int main(int argc, char **argv) {
  static struct load load;
  read_options(&load.options, argc, argv);
  load.seed = load.options.seed;
  load.turn = random_next(&load.seed) >> 8;
  clockid_t cpu_clock = CLOCK_MONOTONIC;
  bool has_pid = load.options.pid != 0;
  if (has_pid && clock_getcpuclockid((pid_t)load.options.pid, &cpu_clock) != 0) {
    fprintf(stderr, "load: pid=%llu: there is no such process, expected that of the server\n",
            (unsigned long long)load.options.pid);
    exit(2);
  }
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* a wait of microseconds is one */
  open_many_files();
  connect_all(&load);
  uint64_t cpu_ns = clock_ns(cpu_clock), own_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  uint64_t start_ns = clock_now_ns();
  run(&load);
  report(&load, clock_now_ns() - start_ns, has_pid ? clock_ns(cpu_clock) - cpu_ns : 0,
         clock_ns(CLOCK_PROCESS_CPUTIME_ID) - own_ns);
  return 0;
}
