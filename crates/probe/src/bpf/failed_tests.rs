use std::fs::{self, File};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::Command;

use super::*;
use proptest::prelude::*;

/// Calls of this process that failed while it did `what`.
fn failed(what: impl FnOnce()) -> Vec<table::FailedCall> {
    let mut slot = MaybeUninit::uninit();
    let mut probe = Failed::load(&mut slot, 0).expect("root may look");
    probe.begin().unwrap();
    what();
    let mut rows = probe.rows();
    rows.retain(|row| row.tgid == std::process::id());
    rows
}

/// A file system of 64 KiB, in a folder of its own that is gone when this is dropped.
struct Small(std::path::PathBuf);

impl Small {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("whyslow-test-{}-small", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path).status();
        assert!(mounted.unwrap().success());
        Small(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn root_writes_to_a_full_file_system_are_reported_with_it() {
    let small = Small::new();
    let mut file = File::create(small.0.join("big.log")).unwrap();
    let mut refused = 0;
    let rows = failed(|| {
        for _ in 0..40 {
            refused += u64::from(file.write_all(&[1; 4096]).is_err());
        }
    });
    assert!(refused > 20, "{refused}");
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.error, row.syscall, row.count), (libc::ENOSPC as u32, libc::SYS_write as u32, refused));
    assert_eq!((&*row.file_system, &*row.device, &*row.file), ("tmpfs", "tmpfs", "big.log"));
    assert!(row.dev.starts_with("0:"), "{row:?}");
}

#[test]
fn root_a_path_that_has_no_room_is_reported_as_it_was_given() {
    let small = Small::new();
    fs::write(small.0.join("fills"), [1; 65_536]).unwrap();
    let new = small.0.join("no-room");
    let rows = failed(|| {
        // A link's text has no room of its own there.
        let long = "x".repeat(2000);
        assert!(std::os::unix::fs::symlink(&long, &new).is_err());
    });
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.error, row.count, &*row.file), (libc::ENOSPC as u32, 1, new.to_str().unwrap()));
    assert_eq!(row.dev, "");
}

#[test]
fn root_what_fails_for_other_reasons_is_not_reported() {
    let rows = failed(|| {
        for _ in 0..100 {
            assert!(File::open("/no/such/file").is_err());
            assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, 1)).is_err());
        }
    });
    assert_eq!(rows, []);
}

#[test]
fn root_who_makes_many_calls_is_not_looked_at_for_long() {
    let mut slot = MaybeUninit::uninit();
    let mut probe = Failed::load(&mut slot, 0).expect("root may look");
    probe.begin().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while probe.let_go_at.is_none() {
        assert!(Instant::now() < until);
        for _ in 0..20_000 {
            // SAFETY: no pointers.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        probe.poll(Duration::ZERO);
    }
    assert!(probe.skel.links.returned.is_none());
    probe.let_go_at = Some(Instant::now() - AWAY);
    probe.poll(Duration::ZERO);
    assert!(probe.skel.links.returned.is_some() && probe.time_away() >= AWAY);
}

#[test]
fn root_who_looks_is_not_looked_at() {
    let mut slot = MaybeUninit::uninit();
    let mut probe = Failed::load(&mut slot, std::process::id()).expect("root may look");
    probe.begin().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert!((&full).write_all(&[1]).is_err());
    assert!(probe.rows().iter().all(|row| row.tgid != std::process::id()));
}

#[test]
fn threads_are_counted() {
    assert_eq!(threads("0.12 0.08 0.05 1/345 6789\n"), Some(345));
    assert_eq!(threads("0.12 0.08 0.05 1"), None);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,40}") {
        threads(&text);
    }
}
