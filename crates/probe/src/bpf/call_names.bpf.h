/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Files get ids; when a file is first seen, user space gets the name of its id.
 *
 * A name is looked up by the values that distinguish the file from others that had its address: dentry, hash of the name (salted with the
 * folder), inode number, mount. A renamed file counts as another file; a file whose folder is renamed does not.
 */
#pragma once

#include "calls.bpf.h"

#define MAX_PARTS 96

enum { FOR_FILE, FOR_ARGUMENT };

static __always_inline struct call_scratch *my_scratch(__u32 what)
{
	return bpf_map_lookup_elem(&scratch, &what);
}

/* The id of s->key if it has one, else a new one in s->name.id and 0. */
static __always_inline __u32 known(struct call_scratch *s)
{
	__u32 *id = bpf_map_lookup_elem(&names, &s->key);
	struct call_own *own;

	if (id)
		return *id;
	own = own_numbers_here();
	if (!own)
		return OTHER_FILES;
	s->name.id = FIRST_NAME + new_number(&own->names);
	return 0;
}

/* Tell user space. If the ring has no room now, the next call on this file tries again. */
static __always_inline __u32 tell(struct call_scratch *s)
{
	__u32 size = s->name.size;

	if (size > MAX_TEXT)
		size = MAX_TEXT;
	if (bpf_ringbuf_output(&new_names, &s->name, sizeof(s->name) + size, BPF_RB_NO_WAKEUP)) {
		__sync_fetch_and_add(&lost, 1);
		return OTHER_FILES;
	}
	bpf_map_update_elem(&names, &s->key, &s->name.id, BPF_ANY);
	return s->name.id;
}

static __always_inline void anew(struct call_scratch *s, __u32 kind)
{
	__u32 id = s->name.id;

	__builtin_memset(&s->name, 0, sizeof(s->name));
	s->name.id = id;
	s->name.kind = kind;
}

/* One part of a path, or across the edge of a mount. False: the path is complete. */
static __always_inline bool step(struct call_scratch *s, struct dentry *root, struct vfsmount *root_mnt)
{
	struct dentry *dentry = (void *)s->dentry, *above;
	struct vfsmount *mnt = (void *)s->mnt;
	__u32 at = s->name.size;
	long n;

	if (dentry == root && mnt == root_mnt)
		return false;
	if (dentry == BPF_CORE_READ(mnt, mnt_root)) {
		struct mount *m = mount_of(mnt), *parent = BPF_CORE_READ(m, mnt_parent);

		s->dentry = (__u64)BPF_CORE_READ(m, mnt_mountpoint);
		s->mnt = (__u64)&parent->mnt;
		return parent && parent != m;
	}
	above = BPF_CORE_READ(dentry, d_parent);
	if (!above || above == dentry || at > MAX_TEXT - 256)
		return false;
	n = bpf_probe_read_kernel_str(&s->text[at & (MAX_TEXT - 1)], 256, BPF_CORE_READ(dentry, d_name.name));
	s->name.size = at + (n > 0 ? n : 0);
	s->dentry = (__u64)above;
	return true;
}

/* The path of a dentry as the current task would write it: the parts of its name, last one first, up to the root of the task or of all
 * mounts. The verifier checks global functions once, not once for each caller.
 */
__noinline int walk(__u64 dentry, __u64 mnt)
{
	struct task_struct *t = (void *)bpf_get_current_task();
	struct call_scratch *s = my_scratch(FOR_FILE);
	struct vfsmount *root_mnt = BPF_CORE_READ(t, fs, root.mnt);
	struct dentry *root = BPF_CORE_READ(t, fs, root.dentry);
	int i;

	if (!s)
		return 0;
	s->dentry = dentry;
	s->mnt = mnt;
	for (i = 0; i < MAX_PARTS; i++)
		if (!step(s, root, root_mnt))
			break;
	s->name.cut = i == MAX_PARTS || s->name.size > MAX_TEXT - 256;
	return 0;
}

__noinline __u32 path_id(__u64 at, __u64 mnt)
{
	struct call_scratch *s = my_scratch(FOR_FILE);
	struct dentry *dentry = (void *)at;
	__u32 id;

	if (!s)
		return NO_NAME;
	s->key.a = (__u64)dentry;
	s->key.b = BPF_CORE_READ(dentry, d_name.hash_len);
	s->key.c = BPF_CORE_READ(dentry, d_inode, i_ino);
	s->key.d = mnt;
	id = known(s);
	if (id)
		return id;
	anew(s, WALK);
	s->name.ino = s->key.c;
	/* As d_unlinked() decides it. */
	s->name.deleted = !BPF_CORE_READ(dentry, d_hash.pprev) && BPF_CORE_READ(dentry, d_parent) != dentry;
	walk(s->key.a, s->key.d);
	return tell(s);
}

static __always_inline __u32 describe_unix(struct call_scratch *s, struct sock *sk)
{
	struct unix_sock *u = (void *)sk;
	struct unix_address *addr = BPF_CORE_READ(u, addr);
	__u32 size;

	if (!addr) {
		u = (void *)BPF_CORE_READ(u, peer);
		addr = BPF_CORE_READ(u, addr);
	}
	if (!addr)
		return 0;
	size = BPF_CORE_READ(addr, len) - sizeof(short);
	if (size > sizeof(addr->name[0].sun_path))
		return 0;
	if (bpf_probe_read_kernel(s->text, size, addr->name[0].sun_path))
		return 0;
	return size;
}

/* A socket that is bound or connected later gets another name at that moment. */
static __noinline __u32 socket_id(struct call_scratch *s, struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);
	struct sock_common *c = &sk->__sk_common;
	__u32 family = BPF_CORE_READ(c, skc_family), id, state = BPF_CORE_READ(c, skc_state);
	__u32 port = __builtin_bswap16(BPF_CORE_READ(c, skc_dport));

	s->key.a = (__u64)sk;
	s->key.b = family | state << 16 | (__u64)port << 32;
	s->key.c = BPF_CORE_READ(file, f_inode, i_ino);
	s->key.d = SOCKET;
	if (family == AF_UNIX)
		s->key.c = (__u64)BPF_CORE_READ((struct unix_sock *)sk, peer) ^
			   (__u64)BPF_CORE_READ((struct unix_sock *)sk, addr) << 1;
	else if (family == AF_INET)
		s->key.d |= (__u64)BPF_CORE_READ(c, skc_daddr) << 32;
	id = known(s);
	if (id)
		return id;
	anew(s, SOCKET);
	s->name.family = family;
	if (family == AF_UNIX) {
		s->name.kind = UNIX;
		s->name.size = describe_unix(s, sk);
	} else if (family == AF_INET || family == AF_INET6) {
		bool peer = port;

		s->name.kind = INET;
		s->name.listens = state == TCP_LISTEN;
		s->name.port = peer ? port : BPF_CORE_READ(c, skc_num);
		s->name.cut = !peer; /* its own address, not a peer's */
		if (family == AF_INET)
			bpf_probe_read_kernel(s->name.addr, 4, peer ? &c->skc_daddr : &c->skc_rcv_saddr);
		else
			bpf_probe_read_kernel(s->name.addr, 16, peer ? &c->skc_v6_daddr : &c->skc_v6_rcv_saddr);
	}
	return tell(s);
}

/* Pipes and other files on mounts that the kernel keeps for itself: no path, perhaps a name. */
static __always_inline __u32 nameless_id(struct call_scratch *s, struct file *file, __u64 magic)
{
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);
	long n = 0;
	__u32 id;

	s->key.a = (__u64)dentry;
	s->key.b = BPF_CORE_READ(dentry, d_name.hash_len);
	s->key.c = BPF_CORE_READ(file, f_inode, i_ino);
	s->key.d = ANON;
	id = known(s);
	if (id)
		return id;
	anew(s, magic == PIPEFS_MAGIC ? PIPE : ANON);
	if (magic != PIPEFS_MAGIC)
		n = bpf_probe_read_kernel_str(s->text, 256, BPF_CORE_READ(dentry, d_name.name));
	if (n == 1)
		n = bpf_probe_read_kernel_str(s->text, 64, BPF_CORE_READ(file, f_inode, i_sb, s_type, name));
	s->name.size = n > 0 ? n : 0;
	return tell(s);
}

__noinline __u32 file_id(__u64 at)
{
	struct file *file = (void *)at;
	struct super_block *sb = BPF_CORE_READ(file, f_inode, i_sb);
	__u64 magic = BPF_CORE_READ(sb, s_magic);
	struct call_scratch *s = my_scratch(FOR_FILE);

	if (!s || !file)
		return NO_NAME;
	if (magic == SOCKFS_MAGIC)
		return socket_id(s, file);
	if (magic == PIPEFS_MAGIC || magic == ANON_INODE_FS_MAGIC || BPF_CORE_READ(sb, s_flags) & SB_KERNMOUNT)
		return nameless_id(s, file, magic);
	return path_id((__u64)BPF_CORE_READ(file, f_path.dentry), (__u64)BPF_CORE_READ(file, f_path.mnt));
}

/* Eight bytes at a time; the bytes behind the end are cleared first. */
__noinline __u64 hash_text(__u32 size)
{
	struct call_scratch *s = my_scratch(FOR_ARGUMENT);
	__u64 hash = size;
	__u32 at;

	if (!s)
		return 0;
	*(__u64 *)&s->text[size & (MAX_TEXT - 1)] = 0;
	for (at = 0; at < MAX_TEXT; at += 8) {
		if (at >= size)
			break;
		hash = (hash ^ *(__u64 *)&s->text[at]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	return hash;
}
