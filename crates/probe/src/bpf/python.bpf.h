/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Functions of Python, from the structures of its interpreter (oncpu; CPython 3.11 to 3.13).
 *
 * The work of the interpreter's own code is the Python function's work: from the innermost frame in the interpreter's file on, the thread's
 * Python frames replace those of C. User space gives the offsets of the fields per file (python.rs).
 */
#pragma once

#include "user_stack.bpf.h"

/* A frame of Python: the number of its code, and the instruction in it. */
#define FRAME_PYTHON (1ULL << FRAME_PYTHON_BIT)
#define FRAME_PYTHON_BIT 62
#define PYTHON_UNIT_BITS 24
#define PYTHON_FILES 256
#define PYTHON_CODES 4096
#define PYTHON_THREADS 64
#define PYTHON_FRAMES 48
#define PYTHON_NAME 80
#define PYTHON_PATH 160
#define PYTHON_LINES 512
/* _PyInterpreterFrame.owner: made by C, for a call into the interpreter. v3.12. */
#define PYTHON_OWNED_BY_C 3

/* Offsets of fields, in bytes. */
struct python_layout {
	__u64 runtime; /* _PyRuntime, relative to where the file's first byte would be in memory */
	__u32 interpreters_head;
	__u32 threads_head;
	__u32 thread_next;
	__u32 thread_id;
	__u32 thread_frame;
	__u32 frame_within; /* 3.11, 3.12: of the _PyCFrame that thread_frame points at; else ~0 */
	__u32 frame_code;
	__u32 frame_previous;
	__u32 frame_instruction;
	__u32 frame_owner;
	__u32 code_first_line;
	__u32 code_path;
	__u32 code_name;
	__u32 code_lines;
	__u32 code_units;
	__u32 text;  /* of a str of ASCII */
	__u32 wide;  /* ... of others */
	__u32 text_state;
	__u32 lines_size;
	__u32 lines;
	__u32 pad;
};

/* Memory of a freed object may hold another one. */
struct python_code_key {
	__u64 code;
	__u64 name; /* the str */
	__u32 tgid;
	__s32 first_line;
};

struct python_code {
	__s32 first_line;
	__u32 name_state, path_state;
	__u32 lines_size;
	char name[PYTHON_NAME];
	char path[PYTHON_PATH];
	__u8 lines[PYTHON_LINES];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PYTHON_FILES);
	__type(key, __u32);
	__type(value, struct python_layout);
} python_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PYTHON_CODES);
	__type(key, struct python_code_key);
	__type(value, __u32);
} python_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PYTHON_CODES);
	__type(key, __u32);
	__type(value, struct python_code);
} python_codes SEC(".maps");

__u32 python_codes_met;
/* Frames of functions that have no number: the numbers have run out. */
__u64 python_codes_refused;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct python_code);
} python_scratch SEC(".maps");

static __always_inline __u64 word_of(__u64 object, __u32 field)
{
	__u64 word = 0;

	read_word(&word, object + field);
	return word;
}

/* Of a str: interned:2, kind:3, compact:1, ascii:1 (Include/cpython/unicodeobject.h). */
#define PYTHON_ASCII (1 << 6)
#define PYTHON_WIDE (1 << 3 | 1 << 4)

static __always_inline __u32 read_text(char *text, __u32 room, const struct python_layout *at, __u64 object)
{
	__u32 state = 0;
	__u64 begin;

	if (bpf_probe_read_user(&state, sizeof(state), (void *)(object + at->text_state)))
		return 0;
	begin = object + (state & PYTHON_ASCII ? at->text : at->wide);
	if (state & PYTHON_WIDE)
		bpf_probe_read_user(text, room, (void *)begin);
	else
		bpf_probe_read_user_str(text, room, (void *)begin);
	return state;
}

/* The number of a code object. Its name is read when the object is first seen: it may be gone when names are looked up. */
static __always_inline __u32 code_number(const struct python_layout *at, __u64 code)
{
	struct python_code_key key = { .code = code, .tgid = bpf_get_current_pid_tgid() >> 32 };
	__u32 zero = 0, size, number, *known;
	struct python_code *told;
	__u64 lines, length;

	bpf_probe_read_user(&key.first_line, sizeof(key.first_line), (void *)(code + at->code_first_line));
	key.name = word_of(code, at->code_name);
	known = bpf_map_lookup_elem(&python_numbers, &key);
	if (known)
		return *known;
	told = bpf_map_lookup_elem(&python_scratch, &zero);
	if (!told)
		return 0;
	__builtin_memset(told, 0, sizeof(*told));
	told->first_line = key.first_line;
	told->name_state = read_text(told->name, PYTHON_NAME, at, key.name);
	told->path_state = read_text(told->path, PYTHON_PATH, at, word_of(code, at->code_path));
	lines = word_of(code, at->code_lines);
	length = word_of(lines, at->lines_size);
	size = length < PYTHON_LINES ? length : PYTHON_LINES;
	barrier_var(size);
	if (size <= PYTHON_LINES && !bpf_probe_read_user(told->lines, size, (void *)(lines + at->lines)))
		told->lines_size = size;
	if (*(volatile __u32 *)&python_codes_met >= PYTHON_CODES) {
		__sync_fetch_and_add(&python_codes_refused, 1);
		return 0;
	}
	number = 1 + *(volatile __u32 *)&python_codes_met;
	if (bpf_map_update_elem(&python_codes, &number, told, BPF_NOEXIST)) {
		/* Another CPU has just taken the number: try again next time. Or user space has made the table smaller. */
		if (!bpf_map_lookup_elem(&python_codes, &number))
			__sync_fetch_and_add(&python_codes_refused, 1);
		return 0;
	}
	__sync_fetch_and_add(&python_codes_met, 1);
	bpf_map_update_elem(&python_numbers, &key, &number, BPF_ANY);
	return number;
}

/* Note the frame at w->bp, and go to its caller. */
__noinline int python_frame(void)
{
	struct user_walk *w = my_walk();
	struct python_layout *at;
	__u64 code, unit, frame;
	__u8 owner = 0;

	if (!w || !w->bp || w->stack.count >= USER_FRAMES)
		return 1;
	at = bpf_map_lookup_elem(&python_files, &w->python);
	if (!at)
		return 1;
	frame = w->bp;
	w->bp = word_of(frame, at->frame_previous);
	bpf_probe_read_user(&owner, sizeof(owner), (void *)(frame + at->frame_owner));
	code = word_of(frame, at->frame_code);
	if (owner == PYTHON_OWNED_BY_C || !code || code & 15 || code >> 47)
		return 0;
	unit = (word_of(frame, at->frame_instruction) - code - at->code_units) / 2;
	if (unit >> PYTHON_UNIT_BITS)
		unit = 0;
	add_frame(w, FRAME_PYTHON | (__u64)code_number(at, code) << PYTHON_UNIT_BITS | unit);
	return 0;
}

static __always_inline __u32 number_within(struct task_struct *t)
{
	struct pid *pid = BPF_CORE_READ(t, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	__u64 at = (__u64)pid + bpf_core_field_offset(struct pid, numbers);
	struct upid *own = (void *)(at + level * bpf_core_type_size(struct upid));

	return BPF_CORE_READ(own, nr);
}

/* Whether this thread of the interpreter is the current one. */
static __always_inline bool is_this_thread(struct user_walk *w, const struct python_layout *at, __u64 thread, __u32 number)
{
	__u64 frame;

	if (word_of(thread, at->thread_id) != number)
		return false;
	frame = word_of(thread, at->thread_frame);
	if (at->frame_within != ~0u)
		frame = word_of(frame, at->frame_within);
	w->bp = frame;
	return true;
}

/* In the interpreter's file: the Python frames of this thread. True: these frames take the place of the frames that follow.
 */
__noinline int enter_python(void)
{
	struct task_struct *t = (void *)bpf_get_current_task();
	struct user_walk *w = my_walk();
	struct python_layout *at;
	__u32 number, i;
	__u64 thread;

	if (!w)
		return 0;
	at = bpf_map_lookup_elem(&python_files, &w->file);
	if (!at)
		return 0;
	w->python = w->file;
	number = number_within(t);
	/* base is a frame: its offset is that of the area's first byte in the file. */
	thread = word_of(w->start - (w->base & FRAME_OFFSET_MASK) + at->runtime, at->interpreters_head);
	thread = word_of(thread, at->threads_head);
	for (i = 0; i < PYTHON_THREADS && thread; i++) {
		if (is_this_thread(w, at, thread, number))
			return w->bp != 0;
		thread = word_of(thread, at->thread_next);
	}
	return 0;
}

static __always_inline bool is_in_python(struct user_walk *w)
{
	__u64 bp = w->bp;

	if (w->asked || !bpf_map_lookup_elem(&python_files, &w->file))
		return false;
	w->asked = 1;
	if (enter_python())
		return true;
	w->bp = bp;
	return false;
}

/* Note one frame, and go to its caller: 0. A function of its own, so that the verifier checks it once. */
__noinline int user_frame(void)
{
	struct user_walk *w = my_walk();
	__u64 frame, at, row = by_chain();

	if (!w || w->stack.count >= USER_FRAMES)
		return 1;
	at = w->exact ? w->pc : w->pc - 1; /* after a call that does not return, the next byte is another function's */
	if (at >> USER_BITS)
		return 1; /* no chain: the words that were read are data */
	w->exact = 0;
	if (!frame_of(w, at, &frame))
		return 1; /* likewise */
	if (frame & FRAME_IN_FILE) {
		if (is_in_python(w))
			return 1;
		row = row_at(w, frame);
	}
	w->python = 0;
	add_frame(w, frame);
	if (!by_row(w, row))
		return 1;
	return !w->pc;
}

static __always_inline void begin_walk(struct user_walk *w, const struct user_at *at)
{
	struct task_struct *t = (void *)bpf_get_current_task();

	w->pc = at->pc;
	w->sp = at->sp;
	w->bp = at->bp;
	w->start = w->end = 0;
	w->exact = 1;
	w->asked = w->python = w->is_cut = 0;
	w->hash = 1;
	w->stack.count = 0;
	w->mm = (__u64)BPF_CORE_READ(t, mm);
}

/* The frames of a thread that is in user mode, or will be. */
static __always_inline void walk_user(const struct user_at *at)
{
	struct user_walk *w = my_walk();
	__u32 i;

	if (!w)
		return;
	begin_walk(w, at);
	for (i = 0; i < USER_FRAMES; i++)
		if (user_frame())
			break;
	for (i = 0; w->python && i < PYTHON_FRAMES; i++)
		if (python_frame())
			break;
	__sync_fetch_and_add(&user_walks_begun, 1);
	if (w->is_cut)
		__sync_fetch_and_add(&user_walks_cut, 1);
}
