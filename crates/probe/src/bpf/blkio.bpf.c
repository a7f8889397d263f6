// SPDX-License-Identifier: GPL-2.0
/* How long does block I/O take, by device and cgroup: held back by a throttle, queued, at the device? Which process queued it, about which
 * file?
 *
 * blk-throttle keeps a bio before block_bio_queue has fired for it: the event then comes from the worker that releases it
 * (blk_throtl_dispatch_work_fn; 5.15 to 6.18). No event says that a bio was put on hold, so the hold is measured at its victim: from the
 * moment a task of the bio's cgroup went to sleep for I/O to the moment the throttle released the cgroup's last bio before the task was
 * woken. The rest is queue and device.
 *
 * There is no hook of ours in the scheduler. When the worker releases a bio, we walk the tasks of its cgroup; the slots of the sched object
 * say since when a sleeper has slept. The throttle's worker pays for that, and only while it releases bios.
 */
#include "alone.bpf.h"
#include "block_files.bpf.h"

#define MAX_ROWS 4096
#define MAX_FLIGHTS 16384
#define MAX_RELEASES 1024
#define MAX_DEVICES 24
#define MAX_LOADS 1024
/* A request that waited no longer than this to be handed to the device met no other request there. */
#define AT_ONCE 100000ULL
/* How long a larger request takes depends on how fast the device is, not on other requests. */
#define SMALL 65536
#define MAX_DEPTH 8
#define POLICIES 6
/* Tasks and css_sets of a cgroup that are walked when a bio of it is released, at 0.1 us each... */
#define MAX_STEPS 1024
/* ... and not again within this time: the throttle works by timers of whole ticks, and a wait that ends sooner was not held.
 */
#define PAUSE 1000000ULL

struct blkio_key {
	__u32 dev; /* major << 20 | minor */
	__u32 op;  /* REQ_OP_READ 0, REQ_OP_WRITE 1 */
	__u64 cgroup;
};

struct blkio_row {
	__u64 requests;
	__u64 bytes;
	__u64 device_ns;
	__u64 device_worst_ns;
	__u64 queue_ns;
	__u64 held;
	__u64 held_ns;
	__u64 held_worst_ns;
	/* Requests of up to SMALL bytes that found no other at the device, did not wait to be handed to it, and were done before another came. */
	__u64 alone;
	__u64 alone_bytes;
	/* How long such requests were there, until they were done or another came: where requests come more often, only short ones are left
	 * alone.
	 */
	__u64 alone_ns;
};

/* A request at the device. */
struct blkio_flight {
	struct blkio_key key;
	__u64 issued;
	__u64 bytes;
	__u64 queue_ns; /* before it was issued */
	__u32 ahead;	/* other requests that were at the device then */
	__u32 number;	/* among the requests that were issued there */
	__u32 tgid; /* the process that queued it; 0: not known */
	__u32 file; /* id of what it is about; 0: not known */
	char comm[16];
};

/* The part of a task's sleep for I/O that is booked as held. Run queue clock, as in its slot. */
struct blkio_held {
	__u64 since; /* which sleep */
	__u64 until;
};

/* All are preallocated: the hooks run with interrupts off. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct blkio_key);
	__type(value, struct blkio_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLIGHTS);
	__type(key, __u64);
	__type(value, struct blkio_flight);
} flights SEC(".maps");

/* By the number of a device. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LOADS);
	__type(key, __u32);
	__type(value, struct blkio_load);
} loads SEC(".maps");

/* When the tasks of a cgroup were last walked. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_RELEASES);
	__type(key, __u64);
	__type(value, __u64);
} releases SEC(".maps");

/* By pid, as the slots. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS + SPARES);
	__type(key, __u32);
	__type(value, struct blkio_held);
} helds SEC(".maps");

/* Requests that we saw but could not note, and cgroups with more tasks than were walked. */
__u64 lost;
/* The throttle of some device has been set up (v6.10, a3166c51702b: on first use; before, with the device). */
__u64 throttled;
/* Where blkcg_gq::pd has the throttle's data. */
__u64 throttle_at;

/* Address of blk_throtl_dispatch_work_fn, the worker of the throttle; 0 where the kernel has none. Not a __ksym: for one name libbpf would
 * make the kernel print all of kallsyms again.
 */
const volatile __u64 throttle_worker;

static struct blkio_row *row_of(struct blkio_key *key)
{
	static const struct blkio_row none;
	struct blkio_row *row = bpf_map_lookup_elem(&rows, key);

	if (!row) {
		bpf_map_update_elem(&rows, key, &none, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&rows, key);
	}
	if (!row)
		__sync_fetch_and_add(&lost, 1);
	return row;
}

static void add(__u64 *sum, __u64 *worst, __u64 ns)
{
	__sync_fetch_and_add(sum, ns);
	if (ns > *worst)
		*worst = ns; /* of two updates at once the smaller may be left: a rare, small error */
}

static __u32 number_of(struct gendisk *disk)
{
	return disk ? BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor) : 0;
}

static __u64 owner_of(struct bio *bio)
{
	return bio ? css_cgroup_key((void *)BPF_CORE_READ(bio, bi_blkg, blkcg)) : 0; /* css is blkcg's first member */
}

static bool dispatched_by_throttle(void)
{
	struct task_struct *t = (void *)bpf_get_current_task_btf();
	struct task_struct___before_5_17 *old = (void *)t;
	struct kthread *thread;
	struct worker *worker;

	if (!(t->flags & PF_WQ_WORKER) || !throttle_worker)
		return false;
	thread = bpf_core_field_exists(t->worker_private) ? t->worker_private : (void *)old->set_child_tid;
	worker = BPF_CORE_READ(thread, data);
	return (__u64)BPF_CORE_READ(worker, current_func) == throttle_worker;
}

/* `task` was found by its address: no field of it can be read directly. */
static bool sleeps_for_io(struct task_struct *t)
{
	struct task_struct___before_5_14 *old = (void *)t;
	__u32 state = bpf_core_field_exists(t->__state) ? BPF_CORE_READ(t, __state) : BPF_CORE_READ(old, state);

	return (state & TASK_UNINTERRUPTIBLE) && BPF_CORE_READ_BITFIELD_PROBED(t, in_iowait);
}

/* The worker has just been put on its CPU, so its run queue's clock is fresh. */
static __always_inline __u64 run_queue_clock(void)
{
	return clock_of(bpf_get_current_task_btf());
}

static void note_device(__u32 pid, __u32 dev)
{
	__u32 at = place_by_pid(pid);
	struct last_io *last = bpf_map_lookup_elem(&last_device, &at);

	if (last)
		last->dev = dev;
}

/* The current task queues I/O. */
static void note_own(__u32 dev, __u32 file)
{
	struct task_struct *t = (void *)bpf_get_current_task_btf();
	__u32 at = place_by_pid(t->pid);
	struct last_io now = { .dev = dev, .file = file, .switches = t->nvcsw };
	struct last_io *last = bpf_map_lookup_elem(&last_device, &at);

	if (last)
		*last = now;
}

/* The sleep that this task is in was held up to `now`. Two workers at once may book a stretch twice: rare, small. */
static __always_inline void book(struct blkio_row *row, __u32 pid, __u64 now)
{
	__u32 at = place_by_pid(pid);
	struct sched_slot *s = slot_at(at);
	struct blkio_held *held = bpf_map_lookup_elem(&helds, &at);
	__u64 since;

	if (!s || !held || s->pid != pid || s->state != IO)
		return;
	since = s->since;
	if (held->since != since) {
		held->since = since;
		held->until = since;
	}
	if (now <= held->until)
		return;
	__sync_fetch_and_add(&row->held_ns, elapsed(held->until, now));
	worsen(&row->held_worst_ns, elapsed(since, now));
	held->until = now;
}

static __always_inline void *next_in(struct list_head *node)
{
	return BPF_CORE_READ(node, next);
}

/* A walk over the tasks of a cgroup: where it is. */
struct walk {
	struct blkio_key key;
	__u64 now;
	__u64 io;     /* key of the I/O controller, in arrays of list heads */
	void *sets;   /* heads of the lists... */
	void *tasks;
	void *set;
	void *at_set; /* ... and places in them */
	void *at_task;
};

/* One step: to the next css_set of the cgroup, or to the next task of the css_set. Returns whether there is a next one. It takes no lock: a
 * list that changes meanwhile ends the walk of a css_set, or begins it again, and no time is booked twice.
 *
 * Not static: so the verifier checks it once, not in each round of a loop.
 */
__noinline int step(struct walk *walk)
{
	struct blkio_row *row;
	struct task_struct *t;
	struct blkio_key key;
	__u32 pid;

	if (!walk)
		return 0;
	if (walk->at_task == walk->tasks) {
		walk->at_set = next_in(walk->at_set);
		if (!walk->at_set || walk->at_set == walk->sets)
			return 0;
		walk->set = walk->at_set - bpf_core_field_offset(struct css_set___members, e_cset_node) - walk->io;
		walk->tasks = walk->set + bpf_core_field_offset(struct css_set___members, tasks);
		walk->at_task = next_in(walk->tasks);
		return 1;
	}
	t = walk->at_task - bpf_core_field_offset(struct task_struct___member, cg_list);
	if (!walk->at_task || BPF_CORE_READ(t, cgroups) != walk->set) {
		walk->at_task = walk->tasks; /* the task moved to another css_set, and led the walk there */
		return 1;
	}
	walk->at_task = next_in(walk->at_task);
	if (!sleeps_for_io(t))
		return 1;
	pid = BPF_CORE_READ(t, pid);
	note_device(pid, walk->key.dev);
	key = walk->key; /* the verifier of 6.1 wants the key of a map on the stack */
	row = row_of(&key);
	if (row)
		book(row, pid, walk->now);
	return 1;
}

/* Book the tasks of a cgroup that sleep for I/O. */
static void book_sleepers(struct blkio_key *key, struct cgroup *cgroup, __u64 now)
{
	struct walk walk = { .key = *key, .now = now };
	int i;

	walk.io = bpf_core_enum_value(enum cgroup_subsys_id, io_cgrp_id) * sizeof(struct list_head___whole);
	walk.sets = (void *)cgroup + bpf_core_field_offset(struct cgroup___members, e_csets) + walk.io;
	walk.at_set = walk.sets;
	for (i = 0; i < MAX_STEPS; i++)
		if (!step(&walk))
			return;
	__sync_fetch_and_add(&lost, 1);
}

/* The throttle releases a bio. */
static void released(struct bio *bio, __u32 dev)
{
	struct blkio_key key = { .dev = dev };
	__u64 now = run_queue_clock(), *last;
	struct blkio_row *row;

	key.op = BPF_CORE_READ(bio, bi_opf) & 0xff;
	key.cgroup = owner_of(bio);
	row = row_of(&key);
	if (!row)
		return;
	__sync_fetch_and_add(&row->held, 1);
	last = bpf_map_lookup_elem(&releases, &key.cgroup);
	if (last && now - *last < PAUSE)
		return;
	if (bpf_map_update_elem(&releases, &key.cgroup, &now, BPF_ANY))
		__sync_fetch_and_add(&lost, 1);
	book_sleepers(&key, BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup), now);
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(queued, struct bio *bio)
{
	struct gendisk *disk = bio->bi_bdev->bd_disk;
	__u32 dev = disk->major << 20 | disk->first_minor;
	bool is_let_go = dispatched_by_throttle();

	note_own(dev, note_bio(bio, bio->bi_opf & 0xff, !is_let_go));
	if (is_let_go)
		released(bio, dev);
	return 0;
}

/* A bio is too large for a request: its first part becomes a bio of its own, made by the task that queues it. */
SEC("tp_btf/block_split")
int BPF_PROG(parted, struct bio *part)
{
	note_bio(part, part->bi_opf & 0xff, !dispatched_by_throttle());
	return 0;
}

static void note_flight(struct blkio_flight *flight, struct request *rq)
{
	__u64 bio = (__u64)BPF_CORE_READ(rq, bio);
	struct bio_note *note = note_of(bio);

	if (!note || !bio || note->bio != bio)
		return;
	flight->tgid = note->tgid;
	flight->file = note->file;
	__builtin_memcpy(flight->comm, note->comm, sizeof(flight->comm));
}

/* Two CPUs at once may read or give the same number: the count is wrong by a request for a moment. */
static struct blkio_load *load_of(__u32 dev)
{
	struct blkio_load none = {}, *load = bpf_map_lookup_elem(&loads, &dev);

	if (!load) {
		bpf_map_update_elem(&loads, &dev, &none, BPF_NOEXIST);
		load = bpf_map_lookup_elem(&loads, &dev);
	}
	return load;
}

static bool flushes_first(struct request *rq)
{
	if (!bpf_core_enum_value_exists(enum req_flag_bits, __REQ_PREFLUSH))
		return false;
	return BPF_CORE_READ(rq, cmd_flags) >> bpf_core_enum_value(enum req_flag_bits, __REQ_PREFLUSH) & 1;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(issued, struct request *rq)
{
	struct blkio_flight flight = {};
	__u64 at = (__u64)rq, queued = BPF_CORE_READ(rq, start_time_ns);
	bool is_again = bpf_map_lookup_elem(&flights, &at); /* the device had no room for it */
	struct blkio_row *row;
	struct blkio_load *load;

	flight.key.dev = number_of(BPF_CORE_READ(rq, q, disk));
	flight.key.op = BPF_CORE_READ(rq, cmd_flags) & 0xff;
	flight.key.cgroup = owner_of(BPF_CORE_READ(rq, bio));
	flight.issued = bpf_ktime_get_ns();
	flight.bytes = BPF_CORE_READ(rq, __data_len);
	note_flight(&flight, rq);
	row = row_of(&flight.key);
	load = load_of(flight.key.dev);
	/* 0 where /sys/block/X/queue/iostats is off. A request that flushes the device's cache first waits for the flush, not for other
	 * requests (block/blk-flush.c).
	 */
	if (queued && queued < flight.issued && !flushes_first(rq))
		flight.queue_ns = flight.issued - queued;
	/* Missed ends leave the count too high, and two CPUs at once may take it below 0. */
	if (load && load->now > MAX_FLIGHTS)
		load->now = 0;
	if (load) {
		flight.ahead = is_again && load->now ? load->now - 1 : load->now;
		flight.number = comes(load, flight.ahead, flight.issued);
	}
	if (row && flight.queue_ns)
		__sync_fetch_and_add(&row->queue_ns, flight.queue_ns);
	if (bpf_map_update_elem(&flights, &at, &flight, BPF_ANY))
		__sync_fetch_and_add(&lost, 1);
	else if (load && !is_again)
		__sync_fetch_and_add(&load->now, 1);
	return 0;
}

static void add_alone(struct blkio_row *row, struct blkio_load *load, struct blkio_flight *flight, __u64 now)
{
	__sync_fetch_and_add(&row->alone_ns, elapsed(flight->issued, alone_until(load, flight->number, now)));
	if (load->issued != flight->number)
		return;
	__sync_fetch_and_add(&row->alone, 1);
	__sync_fetch_and_add(&row->alone_bytes, flight->bytes);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(completed, struct request *rq, int error, unsigned int bytes)
{
	__u64 at = (__u64)rq, now = bpf_ktime_get_ns();
	struct blkio_flight *flight = bpf_map_lookup_elem(&flights, &at);
	struct file_io_key file_key = {};
	struct file_io done = {};
	struct blkio_load *load;
	struct blkio_row *row;

	if (!flight || bytes < BPF_CORE_READ(rq, __data_len))
		return 0; /* issued before we attached, or only partly done */
	load = load_of(flight->key.dev);
	if (load && load->now)
		__sync_fetch_and_sub(&load->now, 1);
	row = row_of(&flight->key);
	if (row) {
		__sync_fetch_and_add(&row->requests, 1);
		__sync_fetch_and_add(&row->bytes, flight->bytes);
		add(&row->device_ns, &row->device_worst_ns, elapsed(flight->issued, now));
	}
	if (row && load && !flight->ahead && flight->queue_ns < AT_ONCE && flight->bytes <= SMALL)
		add_alone(row, load, flight, now);
	file_key.dev = flight->key.dev;
	file_key.op = flight->key.op;
	file_key.tgid = flight->tgid;
	file_key.file = flight->file;
	done.bytes = flight->bytes;
	done.device_ns = elapsed(flight->issued, now);
	done.queue_ns = flight->queue_ns;
	done.ahead = flight->ahead;
	__builtin_memcpy(done.comm, flight->comm, sizeof(done.comm));
	add_file_row(&file_key, &done);
	bpf_map_delete_elem(&flights, &at);
	return 0;
}

/* The (cgroup, device) pairs of a cgroup are a list. */
static __always_inline struct blkcg_gq *first_of(struct blkcg *blkcg)
{
	struct hlist_node *node = BPF_CORE_READ(blkcg, blkg_list.first);

	return node ? (void *)node - bpf_core_field_offset(struct blkcg_gq, blkcg_node) : 0;
}

static __always_inline struct blkcg_gq *next_of(struct blkcg_gq *blkg)
{
	struct hlist_node *node = BPF_CORE_READ(blkg, blkcg_node.next);

	return node ? (void *)node - bpf_core_field_offset(struct blkcg_gq, blkcg_node) : 0;
}

/* Note where the throttle keeps its data of a (cgroup, device): it is the only policy that points back to td. */
static void find_throttle(struct blkcg_gq *blkg)
{
	struct throtl_data *td = BPF_CORE_READ(blkg, q, td);
	struct throtl_grp *tg;
	int i;

	if (!td)
		return;
	for (i = 0; i < POLICIES; i++) {
		tg = 0;
		bpf_core_read(&tg, sizeof(tg), &blkg->pd[i]);
		if (tg && BPF_CORE_READ(tg, td) == td) {
			throttle_at = i;
			throttled = 1;
		}
	}
}

/* At the start: is the throttle in use? */
SEC("iter/task")
int seed(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct blkcg_gq *blkg;
	int i;

	if (!t || throttled)
		return 0;
	blkg = first_of((void *)task_css(t, io_cgrp_id));
	for (i = 0; i < MAX_DEVICES && blkg && !throttled; i++) {
		find_throttle(blkg);
		blkg = next_of(blkg);
	}
	return 0;
}

/* In which direction do bios of this cgroup and device wait in the throttle? -1: none waits. */
static int held_now(struct blkcg_gq *blkg)
{
	struct throtl_service_queue___before_6_16 *old;
	struct throtl_service_queue *queue;
	struct throtl_grp *tg = 0;
	unsigned int n[2] = {}, m[2] = {};

	bpf_core_read(&tg, sizeof(tg), &blkg->pd[throttle_at & 7]);
	if (!tg)
		return -1;
	queue = &tg->service_queue;
	old = (void *)queue;
	if (bpf_core_field_exists(queue->nr_queued_bps)) {
		bpf_core_read(n, sizeof(n), &queue->nr_queued_bps);
		bpf_core_read(m, sizeof(m), &queue->nr_queued_iops);
	} else {
		bpf_core_read(n, sizeof(n), &old->nr_queued);
	}
	return n[0] + m[0] ? 0 : n[1] + m[1] ? 1 : -1;
}

/* On v2 a bio may wait in the throttle of an ancestor. */
static int held_in_tree(struct blkcg_gq *blkg)
{
	int i, op;

	for (i = 0; i < MAX_DEPTH && blkg; i++) {
		op = held_now(blkg);
		if (op >= 0)
			return op;
		blkg = BPF_CORE_READ(blkg, parent);
	}
	return -1;
}

/* At the end: which tasks still wait for a bio in the throttle? Their wait counts up to now. */
SEC("iter/task")
int finish(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct cgroup_subsys_state *css;
	struct blkio_key key = {};
	struct blkio_row *row;
	struct blkcg_gq *blkg;
	int i, op;

	if (!t || !throttled || !sleeps_for_io(t))
		return 0;
	css = task_css(t, io_cgrp_id);
	blkg = first_of((void *)css);
	for (i = 0; i < MAX_DEVICES && blkg; i++) {
		op = held_in_tree(blkg);
		if (op >= 0) {
			key.dev = number_of(BPF_CORE_READ(blkg, q, disk));
			key.op = op;
			key.cgroup = css_cgroup_key(css);
			row = row_of(&key);
			if (row)
				book(row, t->pid, run_queue_clock());
			return 0;
		}
		blkg = next_of(blkg);
	}
	return 0;
}
