/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which functions called the sampled code? (oncpu)
 *
 * Where a file has unwinding tables (.eh_frame), user space has put the tables of the sampled code into `unwind_rows`, one block of code
 * after the other; elsewhere the chain of frame pointers is followed, as in perf_callchain_user (arch/x86/events/core.c).
 */
#pragma once

#include "spin.bpf.h"
#include "user_places.bpf.h"

/* Tables are requested for blocks of code of so many bytes. */
#define BLOCK_SHIFT 13
#define UNWIND_BLOCKS 32768
#define UNWIND_ROWS 524288
/* Rows of a block: 2^13, one a byte. */
#define SEARCH_STEPS 13

/* How the caller's stack pointer is found: it cannot be, from sp or bp on, nowhere (there is no caller), a word more from the eleventh byte
 * of an entry on (lazy binding), in the frame of a signal (__restore_rt), where bp points (main with a realigned stack), or by the chain of
 * frame pointers: where a file has no tables, and in gaps between their entries.
 */
enum { UNWIND_UNKNOWN, UNWIND_BY_SP, UNWIND_BY_BP, UNWIND_END, UNWIND_PLT, UNWIND_SIGNAL, UNWIND_AT_BP, UNWIND_BY_CHAIN };

/* Of struct rt_sigframe at the stack pointer (arch/x86/include/asm/sigframe.h): uc.uc_mcontext. */
#define SIGNAL_BP 120
#define SIGNAL_SP 160
#define SIGNAL_IP 168

struct unwind_block {
	__u32 first;
	__u32 count;
	__u32 state;
};

/* State of a block: requested, made, its file has no tables, or its file was not found, and how its code keeps its frames is not known. */
enum { BLOCK_ASKED, BLOCK_MADE, BLOCK_BARE, BLOCK_LOST };

/* Offset in the file, low half, in the upper half: rows are in order. Then the kind, where bp is (words below the caller's sp;
 * 0: where it was), and the caller's sp, in words from the register on.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_ROWS);
	__type(key, __u32);
	__type(value, __u64);
} unwind_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UNWIND_BLOCKS);
	__type(key, __u64);
	__type(value, struct unwind_block);
} unwind_blocks SEC(".maps");

struct unwind_news {
	__u32 what;
	__u32 pad;
	__u64 block;
};

/* Samples in user code: all, and those whose callers were not known yet. */
__u64 user_walks_begun, user_walks_cut;

static __always_inline void tell_block(__u64 block)
{
	struct unwind_block none = {};
	struct unwind_news *told = bpf_ringbuf_reserve(&user_news, sizeof(*told), 0);

	if (!told)
		return;
	if (bpf_map_update_elem(&unwind_blocks, &block, &none, BPF_NOEXIST)) {
		bpf_ringbuf_discard(told, 0);
		return;
	}
	told->what = TOLD_BLOCK;
	told->pad = 0;
	told->block = block;
	bpf_ringbuf_submit(told, 0);
}

/* One word of the stack. */
__noinline int ahead_step(void)
{
	struct user_walk *w = my_walk();
	__u64 word, block;

	if (!w)
		return 0;
	word = w->words[w->low++ & (WORDS_AHEAD - 1)];
	if (word < w->start || word >= w->end)
		return 0;
	block = ((w->base + (word - w->start)) & ~FRAME_IN_FILE) >> BLOCK_SHIFT;
	if (!bpf_map_lookup_elem(&unwind_blocks, &block))
		tell_block(block);
	return 0;
}

/* Callers lie above: code of this file that a word there points to is requested before it is sampled. */
__noinline int ask_ahead(void)
{
	struct user_walk *w = my_walk();
	__u32 i;

	if (!w || bpf_probe_read_user(w->words, sizeof(w->words), (void *)w->sp))
		return 0;
	w->low = 0;
	for (i = 0; i < WORDS_AHEAD; i++)
		ahead_step();
	return 0;
}

static __always_inline __u64 by_chain(void)
{
	return (__u64)UNWIND_BY_CHAIN << 24;
}

/* Half of the rows are left. Not 0: none is. */
__noinline int row_step(void)
{
	struct user_walk *w = my_walk();
	__u64 *row;
	__u32 at;

	if (!w || w->low >= w->high)
		return 1;
	at = w->low + (w->high - w->low) / 2;
	row = bpf_map_lookup_elem(&unwind_rows, &at);
	if (!row)
		return 1;
	if (*row <= w->wanted) {
		w->row = *row;
		w->low = at + 1;
	} else {
		w->high = at;
	}
	return 0;
}

/* The last row at or before this place. 0: the caller cannot be found, or not yet. */
static __always_inline __u64 row_at(struct user_walk *w, __u64 frame)
{
	__u64 block = (frame & ~FRAME_IN_FILE) >> BLOCK_SHIFT;
	struct unwind_block *rows = bpf_map_lookup_elem(&unwind_blocks, &block);
	__u32 i;

	if (!rows || rows->state == BLOCK_ASKED) {
		if (!rows)
			tell_block(block);
		ask_ahead();
		w->is_cut = 1;
		return 0;
	}
	if (rows->state == BLOCK_LOST) {
		w->is_cut = 1;
		return 0;
	}
	w->row = by_chain();
	if (rows->state == BLOCK_BARE)
		return w->row;
	w->wanted = frame << 32 | 0xffffffff;
	w->low = rows->first;
	w->high = w->low + rows->count;
	for (i = 0; i < SEARCH_STEPS; i++)
		if (row_step())
			break;
	return w->row;
}

static __always_inline bool read_word(__u64 *word, __u64 at)
{
	return !bpf_probe_read_user(word, sizeof(*word), (void *)at);
}

/* False: there is no caller. */
static __always_inline bool by_frame_pointer(struct user_walk *w)
{
	__u64 words[2];

	if (w->bp < w->sp || w->bp & 7 || bpf_probe_read_user(words, sizeof(words), (void *)w->bp))
		return false;
	w->sp = w->bp + sizeof(words);
	w->bp = words[0];
	w->pc = words[1];
	return true;
}

static __always_inline bool from_signal(struct user_walk *w)
{
	__u64 sp = w->sp;

	w->exact = 1;
	return read_word(&w->pc, sp + SIGNAL_IP) && read_word(&w->bp, sp + SIGNAL_BP) && read_word(&w->sp, sp + SIGNAL_SP);
}

static __always_inline bool by_row(struct user_walk *w, __u64 row)
{
	__u32 kind = row >> 24 & 0xff, saved = row >> 16 & 0xff;
	__s64 offset = (__s16)(row & 0xffff) * 8LL;
	__u64 sp;

	if (kind == UNWIND_BY_CHAIN)
		return by_frame_pointer(w);
	if (kind == UNWIND_SIGNAL)
		return from_signal(w);
	if (kind == UNWIND_BY_SP)
		sp = w->sp + offset;
	else if (kind == UNWIND_BY_BP)
		sp = w->bp + offset;
	else if (kind == UNWIND_PLT)
		sp = w->sp + 8 + ((w->pc & 15) >= 11 ? 8 : 0);
	else if (kind != UNWIND_AT_BP || !read_word(&sp, w->bp + offset))
		return false;
	if (sp <= w->sp)
		return false; /* stacks grow downwards */
	if (saved && !read_word(&w->bp, sp - saved * 8ULL))
		return false;
	w->sp = sp;
	return read_word(&w->pc, sp - 8);
}

static __always_inline void add_frame(struct user_walk *w, __u64 frame)
{
	w->stack.frames[w->stack.count & (USER_FRAMES - 1)] = frame;
	w->stack.count++;
	w->hash = mixed(w->hash, frame);
}
