/* SPDX-License-Identifier: GPL-2.0 */
/* Namespaces and mounts that calls make or enter which have no event of their own: for the hook at the end of each system call. */
#pragma once

#include "churn.bpf.h"

/* include/uapi/linux/mount.h: MS_UNBINDABLE, MS_PRIVATE, MS_SLAVE, MS_SHARED, MS_MOVE. Such a mount() makes none. */
#define CHANGES_MOUNT (0x20000 | 0x40000 | 0x80000 | 0x100000 | 0x2000)
#define MS_REMOUNT 0x20
#define MS_BIND 0x1000
/* An old mount program says so that it knows the flags. */
#define MS_MGC_VAL 0xc0ed0000
#define MS_MGC_MSK 0xffff0000

/* In the order of path_mount() (fs/namespace.c). */
static __always_inline bool makes_mount(__u64 flags)
{
	if ((flags & MS_MGC_MSK) == MS_MGC_VAL)
		flags &= ~(__u64)MS_MGC_MSK;
	if (flags & MS_REMOUNT)
		return false;
	return flags & MS_BIND || !(flags & CHANGES_MOUNT);
}

/* Calls that churn where they succeed (arch/x86/entry/syscalls/syscall_64.tbl). */
static __always_inline bool may_churn(__u64 call)
{
	return call == 165 || call == 166 || call == 272 || call == 308 || call == 429;
}

static __always_inline int count_mount(__u32 what)
{
	note_mounts(current_task());
	return count_churn(what);
}

static __noinline int count_call(__u64 call, __u64 first, __u64 fourth)
{
	switch (call) {
	case 165: /* mount */
		return makes_mount(fourth) ? count_mount(MOUNTED) : 0;
	case 429: /* move_mount */
		return count_mount(MOUNTED);
	case 166: /* umount2 */
		return count_mount(UNMOUNTED);
	case 308: /* setns */
		return count_churn(NAMESPACE_JOINED);
	case 272: /* unshare */
		return count_namespaces(first);
	}
	return 0;
}
