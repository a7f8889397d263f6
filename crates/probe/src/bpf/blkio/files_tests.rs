//! The file that a request is about, on a real disk.

use std::fs::{self, File};
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use whyslow_model::table::{IoFile, IoOf};

use super::Blkio;
use crate::kallsyms::Kallsyms;
use crate::probes::Probe as _;
use crate::test_group::scratch;

const PAGES: usize = 64;
const PAGE: usize = 4096;

/// Written to disk, and evicted from the page cache.
fn on_disk_only(path: &Path) -> File {
    fs::write(path, vec![7; PAGES * PAGE]).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    file
}

/// Each of its pages is touched through a mapping.
fn touch(file: &File) {
    let size = PAGES * PAGE;
    let (protect, flags) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping of a file that is so large.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, protect, flags, file.as_raw_fd(), 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let sum: u64 = (0..PAGES)
        // SAFETY: within the mapping.
        .map(|page| u64::from(unsafe { at.cast::<u8>().add(page * PAGE).read_volatile() }))
        .sum();
    assert_eq!(sum, 7 * PAGES as u64);
    // SAFETY: ours, and there is no reference into it.
    unsafe { libc::munmap(at, size) };
}

fn read_directly(path: &Path) {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let layout = std::alloc::Layout::from_size_align(PAGES * PAGE, PAGE).unwrap();
    // SAFETY: the layout has a size; it is given back below.
    let room = unsafe { std::alloc::alloc_zeroed(layout) };
    // SAFETY: the buffer is so large.
    let read = unsafe { libc::read(file.as_raw_fd(), room.cast(), PAGES * PAGE) };
    assert_eq!(read, (PAGES * PAGE) as isize);
    // SAFETY: made with this layout.
    unsafe { std::alloc::dealloc(room, layout) };
}

/// Rows of this process about that file, in one direction.
fn of<'r>(rows: &'r [IoFile], file: &File, op: &str) -> Vec<&'r IoFile> {
    let ino = file.metadata().unwrap().ino();
    let is_its = |row: &&IoFile| row.ino == ino && row.op == op && row.tgid == std::process::id();
    rows.iter().filter(is_its).collect()
}

#[test]
fn root_a_request_is_about_the_file_whose_pages_it_reads_or_writes() {
    let dir = scratch();
    let salt = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    println!("drawn from {salt}");
    let folder = dir.path().join(format!("deep-{salt:x}")).join("er");
    fs::create_dir_all(&folder).unwrap();
    let path = |what: &str| folder.join(format!("{what} {:x}", salt.rotate_left(what.len() as u32 * 8)));
    let mapped = on_disk_only(&path("mapped"));
    let healthy = on_disk_only(&path("direct"));
    let gone = on_disk_only(&path("gone"));
    fs::remove_file(path("gone")).unwrap();
    let mut slot = MaybeUninit::uninit();
    let probe = Blkio::start(&mut slot, &Kallsyms::read(), None).unwrap();
    touch(&mapped);
    touch(&gone);
    read_directly(&path("direct"));
    let mut written = File::create(path("written")).unwrap();
    written.write_all(&[9; PAGES * PAGE]).unwrap();
    written.sync_all().unwrap();
    let rows = probe.files();

    for (file, what, op, deleted) in [
        (&mapped, "mapped", "read", false),
        (&gone, "gone", "read", true),
        (&written, "written", "write", false),
    ] {
        let [row] = of(&rows, file, op)[..] else { panic!("{what}: {:?} of {rows:#?}", of(&rows, file, op)) };
        let name = path(what);
        let tail = name.strip_prefix(dir.path()).unwrap().to_str().unwrap();
        assert!(row.path.ends_with(tail), "{what}: {row:?}");
        assert_eq!((row.of, row.deleted), (IoOf::File, deleted), "{what}: {row:?}");
        assert!(row.bytes >= (PAGES * PAGE) as u64 && row.device_ns > 0, "{what}: {row:?}");
    }
    assert_eq!(of(&rows, &healthy, "read"), Vec::<&IoFile>::new(), "direct reads are about no file's pages");
    let unnamed = rows.iter().find(|row| row.tgid == std::process::id() && row.id == 0 && row.op == "read");
    assert!(unnamed.is_some_and(|row| row.bytes >= (PAGES * PAGE) as u64), "{rows:#?}");
}

#[test]
fn root_read_of_a_cached_file_has_no_row() {
    let dir = scratch();
    let file = on_disk_only(&dir.path().join("cached"));
    touch(&file);
    let mut slot = MaybeUninit::uninit();
    let probe = Blkio::start(&mut slot, &Kallsyms::read(), None).unwrap();
    touch(&file);
    assert_eq!(of(&probe.files(), &file, "read"), Vec::<&IoFile>::new());
}

/// More than the kernel half has room for, of a page each, evicted from the page cache.
fn crowd(folder: &Path) -> Vec<std::path::PathBuf> {
    let paths: Vec<_> = (0..9_000).map(|n| folder.join(format!("small-{n}"))).collect();
    for path in &paths {
        fs::write(path, [7; PAGE]).unwrap();
    }
    let all = File::open(folder).unwrap();
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::syncfs(all.as_raw_fd()) }, 0);
    for path in &paths {
        let file = File::open(path).unwrap();
        // SAFETY: plain numbers.
        assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    }
    paths
}

#[test]
fn root_a_file_after_thousands_of_others_has_a_name_too() {
    let dir = scratch();
    let crowd = crowd(dir.path());
    let last = on_disk_only(&dir.path().join("after all others"));
    let mut slot = MaybeUninit::uninit();
    let mut probe = Blkio::start(&mut slot, &Kallsyms::read(), None).unwrap();
    probe.begin().unwrap();
    for some in crowd.chunks(500) {
        some.iter().for_each(|path| drop(fs::read(path).unwrap()));
        probe.poll(Duration::ZERO);
    }
    touch(&last);
    let disk = probe.rows().unwrap();
    let all: u64 = disk.iter().filter(|row| row.op == "read").map(|row| row.bytes).sum();
    let rows = probe.files();
    let [row] = of(&rows, &last, "read")[..] else { panic!("{:?}", of(&rows, &last, "read")) };
    assert!(row.path.ends_with("/after all others") && row.bytes >= (PAGES * PAGE) as u64, "{row:?}");
    let own = rows.iter().filter(|row| row.tgid == std::process::id() && row.op == "read");
    let read: u64 = rows.iter().filter(|row| row.op == "read").map(|row| row.bytes).sum();
    assert!(own.clone().filter(|row| row.path.contains("/small-")).count() > 100, "others are named, too");
    assert!(read >= all && all > (crowd.len() * PAGE / 2) as u64, "nothing is lost: {read} of {all}");
}
