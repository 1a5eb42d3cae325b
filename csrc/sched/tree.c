/* A treap: ordered by (key, order), balanced by ranks that are as good as random. Every node knows
 * the bytes below it, and the latest time at which serving those in order must begin. */
#include "../prefetch.h"
#include "internal.h"

static int64_t cost(const struct tree *tree, uint64_t bytes) {
  return (int64_t)((double)bytes * tree->ns_per_byte);
}

static uint64_t sum_of(const struct ps_sched_node *node) { return node == NULL ? 0 : node->sum; }

/* What stands in a node about it and all below it. */
static void gather(const struct tree *tree, struct ps_sched_node *node) {
  uint64_t before = sum_of(node->left) + node->weight;
  int64_t key = node->key > INT64_MAX ? INT64_MAX : (int64_t)node->key;
  int64_t slack = key - cost(tree, before);
  node->sum = before + sum_of(node->right);
  if (node->left != NULL && node->left->slack < slack) slack = node->left->slack;
  if (node->right != NULL) {
    int64_t right = node->right->slack - cost(tree, before);
    if (right < slack) slack = right;
  }
  node->slack = slack;
}

static bool is_before(const struct ps_sched_node *a, const struct ps_sched_node *b) {
  return a->key != b->key ? a->key < b->key : a->order < b->order;
}

static void gather_up(const struct tree *tree, struct ps_sched_node *node) {
  for (; node != NULL; node = node->up) gather(tree, node);
}

/* Where the tree points at `node`. */
static struct ps_sched_node **link_of(struct tree *tree, const struct ps_sched_node *node) {
  if (node->up == NULL) return &tree->root;
  return node->up->left == node ? &node->up->left : &node->up->right;
}

/* `child` takes the place of `node`, its parent, which goes below it. What stands in `child` is not
 * gathered: it may have to go on. */
static void rotate(struct tree *tree, struct ps_sched_node *node, struct ps_sched_node *child) {
  assert(child->up == node);
  struct ps_sched_node **link = link_of(tree, node);
  struct ps_sched_node *moved = NULL;
  if (node->left == child) {
    moved = child->right;
    node->left = moved;
    child->right = node;
  } else {
    moved = child->left;
    node->right = moved;
    child->left = node;
  }
  if (moved != NULL) moved->up = node;
  child->up = node->up;
  node->up = child;
  *link = child;
  gather(tree, node);
}

void tree_insert(struct tree *tree, struct ps_sched_node *node) {
  assert(tree != NULL && node != NULL);
  struct ps_sched_node **link = &tree->root;
  struct ps_sched_node *up = NULL;
  while (*link != NULL) {
    up = *link;
    link = is_before(node, up) ? &up->left : &up->right;
  }
  node->left = NULL;
  node->right = NULL;
  node->up = up;
  tree->ranks = tree->ranks * 1664525u + 1013904223u;
  node->rank = tree->ranks >> 8;
  *link = node;
  while (node->up != NULL && node->up->rank < node->rank) rotate(tree, node->up, node);
  gather_up(tree, node);
}

void tree_remove(struct tree *tree, struct ps_sched_node *node) {
  assert(tree != NULL && tree->root != NULL && node != NULL);
  while (node->left != NULL && node->right != NULL) {
    bool left = node->left->rank > node->right->rank;
    rotate(tree, node, left ? node->left : node->right);
  }
  struct ps_sched_node *child = node->left != NULL ? node->left : node->right;
  if (child != NULL) child->up = node->up;
  *link_of(tree, node) = child;
  gather_up(tree, node->up);
  node->left = NULL;
  node->right = NULL;
  node->up = NULL;
}

static struct ps_sched_node *leftmost(struct ps_sched_node *node) {
  while (node != NULL && node->left != NULL) node = node->left;
  return node;
}

struct ps_sched_node *tree_first(const struct tree *tree) {
  assert(tree != NULL);
  return leftmost(tree->root);
}

struct ps_sched_node *tree_next(const struct ps_sched_node *node) {
  assert(node != NULL);
  if (node->right != NULL) return leftmost(node->right);
  while (node->up != NULL && node->up->right == node) node = node->up;
  return node->up;
}

uint64_t tree_sum(const struct tree *tree) { return sum_of(tree->root); }

uint64_t tree_sum_until(const struct tree *tree, uint64_t key) {
  assert(tree != NULL);
  uint64_t sum = 0;
  for (const struct ps_sched_node *node = tree->root; node != NULL;) {
    if (node->key > key) {
      node = node->left;
    } else {
      sum += sum_of(node->left) + node->weight;
      node = node->right;
    }
  }
  return sum;
}

int64_t tree_slack(const struct tree *tree) {
  return tree->root == NULL ? INT64_MAX : tree->root->slack;
}

int64_t tree_slack_after(const struct tree *tree, uint64_t key) {
  assert(tree != NULL);
  int64_t slack = INT64_MAX;
  uint64_t before = 0; /* bytes of all that is sooner than what is below `node` */
  for (const struct ps_sched_node *node = tree->root; node != NULL;) {
    uint64_t until = before + sum_of(node->left) + node->weight;
    if (node->key <= key) {
      before = until;
      node = node->right;
      continue;
    }
    int64_t own = (int64_t)(node->key > INT64_MAX ? INT64_MAX : node->key) - cost(tree, until);
    if (own < slack) slack = own;
    if (node->right != NULL && node->right->slack - cost(tree, until) < slack)
      slack = node->right->slack - cost(tree, until);
    node = node->left;
  }
  return slack;
}

/* The first node to look at when those below are looked at before those above. */
static struct ps_sched_node *deepest(struct ps_sched_node *node) {
  while (node != NULL && (node->left != NULL || node->right != NULL))
    node = node->left != NULL ? node->left : node->right;
  return node;
}

void tree_set_cost(struct tree *tree, double ns_per_byte) {
  assert(tree != NULL && ns_per_byte > 0);
  tree->ns_per_byte = ns_per_byte;
  for (struct ps_sched_node *node = deepest(tree->root); node != NULL;) {
    gather(tree, node);
    struct ps_sched_node *up = node->up;
    bool was_left = up != NULL && up->left == node;
    node = was_left && up->right != NULL ? deepest(up->right) : up;
  }
}

/* A node and its sums, which may be in two cache lines. */
static const struct ps_sched_node *ask(const struct ps_sched_node *node) {
  if (node == NULL) return NULL;
  ps_prefetch(node);
  ps_prefetch(&node->rank);
  return node;
}

void tree_prefetch(const struct tree *tree, const uint64_t *keys, uint32_t count) {
  assert(tree != NULL && keys != NULL && count <= PS_SCHED_PREFETCHED);
  const struct ps_sched_node *nodes[PS_SCHED_PREFETCHED];
  for (uint32_t i = 0; i < count; i++) nodes[i] = tree->root;
  for (uint32_t under_way = count; under_way > 0;) {
    under_way = 0;
    for (uint32_t i = 0; i < count; i++) {
      if (nodes[i] == NULL) continue;
      const struct ps_sched_node *left = ask(nodes[i]->left);
      const struct ps_sched_node *right = ask(nodes[i]->right);
      nodes[i] = nodes[i]->key > keys[i] ? left : right;
      under_way++;
    }
  }
}
