//! Functions that wait at a file descriptor.

use super::files::{
    epoll, file_lock, io_uring, pipe_read, poll, socket_accept, socket_read, socket_write, unix_read,
};
use whyslow_model::wait::WaitTarget;

use super::table::{Row, by, row};
use super::{Class, WaitContext, WaitKind};

/// Functions that wait for locks on files (fs/locks.c).
pub const FILE_LOCKS: &[&str] = &[
    "flock_lock_inode_wait",
    "posix_lock_inode_wait",
    "locks_lock_inode_wait",
    "fcntl_setlk",
    "do_lock_file_wait",
];

/// fs/pipe.c, net/unix/af_unix.c, net/core, net/ipv4, fs/eventpoll.c, fs/select.c, drivers/tty, ipc, fs/fuse, net/sunrpc.
pub(super) const ROWS: &[Row] = &[
    // pipe_read is anon_pipe_read for unnamed pipes since v6.14 (ee5eda8ea595). A wait for a pipe's mutex is a lock.
    by(&["pipe_read", "anon_pipe_read", "fifo_pipe_read", "ipipe_prep", "opipe_prep"], pipe_read),
    by(&["pipe_wait_readable", "splice_from_pipe_next", "pipe_wait"], pipe_read),
    row(
        &["pipe_write", "anon_pipe_write", "fifo_pipe_write", "pipe_wait_writable", "wait_for_space"],
        WaitTarget::PipeReader,
        Class::Dependency,
    ),
    row(&["wait_for_partner", "fifo_open"], WaitTarget::FifoEnd, Class::Dependency),
    // Unix sockets.
    by(&["unix_stream_data_wait", "unix_stream_read_generic", "unix_stream_recvmsg"], unix_read),
    by(&["unix_dgram_recvmsg", "__unix_dgram_recvmsg", "unix_seqpacket_recvmsg"], unix_read),
    row(
        &["sock_alloc_send_pskb", "sock_wait_for_wmem", "unix_wait_for_peer", "unix_dgram_sendmsg"],
        WaitTarget::UnixReader,
        Class::Dependency,
    ),
    row(&["unix_stream_connect"], WaitTarget::UnixListener, Class::Dependency),
    by(&["unix_accept"], socket_accept),
    // Network sockets.
    by(&["inet_csk_accept", "inet_csk_wait_for_connect", "vsock_accept", "sctp_accept"], socket_accept),
    by(
        &["sk_wait_data", "tcp_recvmsg", "tcp_recvmsg_locked", "tcp_data_wait", "tcp_splice_read"],
        socket_read,
    ),
    by(&["__skb_wait_for_more_packets", "__skb_recv_udp", "udp_recvmsg", "udpv6_recvmsg"], socket_read),
    by(&["skb_recv_datagram", "__skb_recv_datagram", "raw_recvmsg"], socket_read),
    by(
        &["netlink_recvmsg", "packet_recvmsg", "vsock_connectible_wait_data", "vsock_stream_recvmsg"],
        socket_read,
    ),
    row(&["netlink_attachskb", "netlink_unicast"], WaitTarget::NetlinkReader, Class::Dependency),
    // kernel/audit.c: kauditd passes the records to their reader, and wakes the tasks that wait for room when it has passed on all.
    row(&["audit_log_start"], WaitTarget::AuditRoom, Class::Dependency),
    by(&["tls_rx_rec_wait", "tls_sw_recvmsg", "mptcp_recvmsg", "smc_rx_wait"], socket_read),
    by(&["sk_stream_wait_memory", "tcp_sendmsg_locked", "sk_stream_wait_connect"], socket_write),
    by(&["sk_stream_wait_close", "tcp_close", "inet_wait_for_connect", "inet_stream_connect"], socket_write),
    by(&["__inet_stream_connect", "vsock_connect", "vsock_connectible_sendmsg"], socket_write),
    row(&["lock_sock_nested", "__lock_sock"], WaitTarget::SocketLock, Class::Lock),
    // Several descriptors at once.
    by(&["ep_poll", "do_epoll_wait", "do_epoll_pwait"], epoll),
    by(&["poll_schedule_timeout", "do_poll", "do_sys_poll", "do_select", "core_sys_select"], poll),
    by(&["io_cqring_wait", "io_cqring_wait_schedule"], io_uring),
    row(&["read_events", "do_io_getevents"], WaitTarget::AsyncIo, Class::Device),
    row(&["exit_aio", "io_uring_cancel_generic"], WaitTarget::AsyncIo, Class::Dependency),
    // Events of all kinds.
    row(&["eventfd_read", "eventfd_ctx_do_read"], WaitTarget::EventfdCount, Class::Idle),
    row(&["eventfd_write"], WaitTarget::EventfdReader, Class::Dependency),
    row(&["signalfd_dequeue", "signalfd_read", "signalfd_read_iter"], WaitTarget::ASignal, Class::Idle),
    row(&["inotify_read"], WaitTarget::FileChanges, Class::Idle),
    row(&["fanotify_read"], WaitTarget::FileAccesses, Class::Idle),
    row(&["fanotify_handle_event", "fanotify_get_response"], WaitTarget::FanotifyLeave, Class::Dependency),
    row(&["handle_userfault"], WaitTarget::UserfaultHandler, Class::Dependency),
    row(
        &["userfaultfd_read", "userfaultfd_ctx_read", "userfaultfd_read_iter"],
        WaitTarget::Userfaults,
        Class::Idle,
    ),
    row(&["do_syslog", "devkmsg_read", "syslog_print"], WaitTarget::KernelMessages, Class::Idle),
    row(
        &["perf_read", "ring_buffer_wait", "tracing_wait_pipe", "wait_on_pipe"],
        WaitTarget::TraceEvents,
        Class::Idle,
    ),
    // Terminals.
    row(&["n_tty_read", "tty_read", "iterate_tty_read"], WaitTarget::TerminalInput, Class::Idle),
    row(
        &["n_tty_write", "tty_wait_until_sent", "tty_write_room", "pty_write", "do_tty_hangup"],
        WaitTarget::TerminalOutput,
        Class::Dependency,
    ),
    row(
        &["tty_ldisc_lock", "ldsem_down_read", "ldsem_down_write", "tty_ldisc_ref_wait"],
        WaitTarget::TerminalLock,
        Class::Lock,
    ),
    // Locks on files. fs/locks.c.
    by(FILE_LOCKS, file_lock),
    row(&["__break_lease"], WaitTarget::FileLease, Class::Lock),
    // ipc/*.c.
    row(&["do_semtimedop", "__do_semtimedop"], WaitTarget::SystemVSemaphore, Class::Idle),
    row(&["do_msgrcv"], WaitTarget::SystemVMessage, Class::Idle),
    row(&["do_msgsnd"], WaitTarget::MessageReader, Class::Dependency),
    by(&["wq_sleep", "do_mq_timedreceive", "do_mq_timedsend"], message_queue),
    // Servers behind a file system.
    row(
        &["request_wait_answer", "__fuse_request_send", "fuse_simple_request", "__fuse_simple_request"],
        WaitTarget::FuseAnswer,
        Class::Dependency,
    ),
    row(
        &["fuse_get_req", "fuse_block_alloc", "fuse_wait_aborted", "fuse_set_nowrite"],
        WaitTarget::FuseAnswer,
        Class::Dependency,
    ),
    row(&["fuse_dev_do_read", "fuse_dev_read"], WaitTarget::FuseRequests, Class::Idle),
    by(&["rpc_wait_bit_killable", "__rpc_execute", "nfs_wait_bit_killable", "nfs_wait_on_request"], nfs),
    by(
        &[
            "nfs4_wait_clnt_recover",
            "nfs_wait_client_init_complete",
            "nfs_commit_inode",
            "nfs_iocounter_wait",
        ],
        nfs,
    ),
    row(&["p9_client_rpc", "p9_virtio_zc_request", "p9_client_zc_rpc"], WaitTarget::NinePServer, Class::Peer),
    row(
        &["wait_for_response", "cifs_call_async", "compound_send_recv", "smb2_reconnect"],
        WaitTarget::SmbServer,
        Class::Peer,
    ),
    row(
        &["ceph_mdsc_wait_request", "ceph_osdc_wait_request", "wait_request_timeout", "ceph_mdsc_do_request"],
        WaitTarget::CephCluster,
        Class::Peer,
    ),
];

fn nfs(_: &WaitContext<'_>) -> WaitKind {
    WaitKind::target(WaitTarget::NfsServer, Class::Peer)
}

fn message_queue(wait: &WaitContext<'_>) -> WaitKind {
    if wait.passes(&["do_mq_timedsend"]) {
        return WaitKind::target(WaitTarget::MessageReader, Class::Dependency);
    }
    WaitKind::target(WaitTarget::PosixMessage, Class::Idle)
}
