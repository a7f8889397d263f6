/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which argument of a system call is its file, by number. All of it is x86-64's: another architecture has its own table.
 *
 * include/uapi/asm-generic/unistd.h and arch/x86/entry/syscalls/syscall_64.tbl only ever grow.
 */
#pragma once

#include "kernel.bpf.h"

#define CALLS 512

enum call_file {
	NO_FILE,
	FD, /* argument 0 is a file descriptor */
	FD4, /* argument 4 */
	PATH0, /* argument 0 is a path, below the working directory */
	PATH1, /* argument 1 */
	AT0, /* argument 0 is the descriptor of a folder, argument 1 a path below it */
	AT1, /* arguments 1 and 2 */
	ADDR, /* argument 1 is a socket address, argument 2 its length */
	KIND = 15,
	OPENS = 16, /* returns a descriptor of the file */
	NEVER = 32, /* does not return */
	GOES_ON = 64, /* resumes the call that a stop interrupted */
	NO_RESULT = 128, /* its return value belongs to another call */
};

static const volatile __u8 call_files[CALLS] = {
	[0] = FD, /* read */
	[1] = FD, /* write */
	[2] = PATH0 | OPENS, /* open */
	[3] = FD, /* close */
	[4] = PATH0, /* stat */
	[5] = FD, /* fstat */
	[6] = PATH0, /* lstat */
	[8] = FD, /* lseek */
	[9] = FD4, /* mmap */
	[15] = NO_RESULT, /* rt_sigreturn */
	[16] = FD, /* ioctl */
	[17] = FD, /* pread64 */
	[18] = FD, /* pwrite64 */
	[19] = FD, /* readv */
	[20] = FD, /* writev */
	[21] = PATH0, /* access */
	[32] = FD, /* dup */
	[33] = FD, /* dup2 */
	[40] = FD, /* sendfile: to where */
	[42] = ADDR, /* connect */
	[43] = FD, /* accept */
	[44] = FD, /* sendto */
	[45] = FD, /* recvfrom */
	[46] = FD, /* sendmsg */
	[47] = FD, /* recvmsg */
	[48] = FD, /* shutdown */
	[49] = ADDR, /* bind */
	[50] = FD, /* listen */
	[51] = FD, /* getsockname */
	[52] = FD, /* getpeername */
	[54] = FD, /* setsockopt */
	[55] = FD, /* getsockopt */
	[59] = PATH0, /* execve */
	[60] = NEVER, /* exit */
	[72] = FD, /* fcntl */
	[73] = FD, /* flock */
	[74] = FD, /* fsync */
	[75] = FD, /* fdatasync */
	[76] = PATH0, /* truncate */
	[77] = FD, /* ftruncate */
	[78] = FD, /* getdents */
	[80] = PATH0, /* chdir */
	[81] = FD, /* fchdir */
	[82] = PATH0, /* rename */
	[83] = PATH0, /* mkdir */
	[84] = PATH0, /* rmdir */
	[85] = PATH0 | OPENS, /* creat */
	[86] = PATH0, /* link */
	[87] = PATH0, /* unlink */
	[88] = PATH1, /* symlink: the link, not what it says */
	[89] = PATH0, /* readlink */
	[90] = PATH0, /* chmod */
	[91] = FD, /* fchmod */
	[92] = PATH0, /* chown */
	[93] = FD, /* fchown */
	[94] = PATH0, /* lchown */
	[132] = PATH0, /* utime */
	[133] = PATH0, /* mknod */
	[137] = PATH0, /* statfs */
	[138] = FD, /* fstatfs */
	[155] = PATH0, /* pivot_root */
	[161] = PATH0, /* chroot */
	[165] = PATH1, /* mount: where */
	[166] = PATH0, /* umount2 */
	[187] = FD, /* readahead */
	[188] = PATH0, /* setxattr */
	[189] = PATH0, /* lsetxattr */
	[190] = FD, /* fsetxattr */
	[191] = PATH0, /* getxattr */
	[192] = PATH0, /* lgetxattr */
	[193] = FD, /* fgetxattr */
	[194] = PATH0, /* listxattr */
	[195] = PATH0, /* llistxattr */
	[196] = FD, /* flistxattr */
	[197] = PATH0, /* removexattr */
	[198] = PATH0, /* lremovexattr */
	[199] = FD, /* fremovexattr */
	[217] = FD, /* getdents64 */
	[219] = GOES_ON, /* restart_syscall */
	[221] = FD, /* fadvise64 */
	[231] = NEVER, /* exit_group */
	[232] = FD, /* epoll_wait */
	[233] = FD, /* epoll_ctl */
	[235] = PATH0, /* utimes */
	[254] = PATH1, /* inotify_add_watch */
	[255] = FD, /* inotify_rm_watch */
	[257] = AT0 | OPENS, /* openat */
	[258] = AT0, /* mkdirat */
	[259] = AT0, /* mknodat */
	[260] = AT0, /* fchownat */
	[261] = AT0, /* futimesat */
	[262] = AT0, /* newfstatat */
	[263] = AT0, /* unlinkat */
	[264] = AT0, /* renameat */
	[265] = AT0, /* linkat */
	[266] = AT1, /* symlinkat: the link */
	[267] = AT0, /* readlinkat */
	[268] = AT0, /* fchmodat */
	[269] = AT0, /* faccessat */
	[275] = FD, /* splice: from where */
	[276] = FD, /* tee */
	[277] = FD, /* sync_file_range */
	[278] = FD, /* vmsplice */
	[280] = AT0, /* utimensat */
	[281] = FD, /* epoll_pwait */
	[285] = FD, /* fallocate */
	[286] = FD, /* timerfd_settime */
	[287] = FD, /* timerfd_gettime */
	[288] = FD, /* accept4 */
	[289] = FD, /* signalfd4 */
	[295] = FD, /* preadv */
	[296] = FD, /* pwritev */
	[299] = FD, /* recvmmsg */
	[301] = FD, /* fanotify_mark */
	[303] = AT0, /* name_to_handle_at */
	[304] = FD | OPENS, /* open_by_handle_at */
	[306] = FD, /* syncfs */
	[307] = FD, /* sendmmsg */
	[308] = FD, /* setns */
	[313] = FD, /* finit_module */
	[316] = AT0, /* renameat2 */
	[322] = AT0, /* execveat */
	[326] = FD, /* copy_file_range: from where */
	[327] = FD, /* preadv2 */
	[328] = FD, /* pwritev2 */
	[332] = AT0, /* statx */
	[424] = FD, /* pidfd_send_signal */
	[426] = FD, /* io_uring_enter */
	[427] = FD, /* io_uring_register */
	[428] = AT0 | OPENS, /* open_tree */
	[429] = AT0, /* move_mount */
	[431] = FD, /* fsconfig */
	[432] = FD, /* fsmount */
	[433] = AT0 | OPENS, /* fspick */
	[437] = AT0 | OPENS, /* openat2 */
	[438] = FD, /* pidfd_getfd */
	[439] = AT0, /* faccessat2 */
	[441] = FD, /* epoll_pwait2 */
	[442] = AT0, /* mount_setattr */
	[452] = AT0, /* fchmodat2 */
	[463] = AT0, /* setxattrat */
	[464] = AT0, /* getxattrat */
	[465] = AT0, /* listxattrat */
	[466] = AT0, /* removexattrat */
	[467] = AT0 | OPENS, /* open_tree_attr */
	[468] = AT0, /* file_getattr */
	[469] = AT0, /* file_setattr */
};

static __always_inline __u64 call_file(__u32 nr)
{
	return nr < CALLS ? call_files[nr] : NO_FILE;
}
