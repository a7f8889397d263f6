//! Files that are no recordings, and files made to do harm: a clear error or a partial recording, in bounded memory.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use whyslow::store;
use whyslow_model::Recording;

const HEAD: (u8, &str, &[u8]) =
    (b'0', "whyslow.json", b"{\"format\":0,\"whyslow\":\"0.1.0\",\"window_ns\":1}");

fn header(kind: u8, name: &str, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    // Set as bytes: the crate would refuse the names that this test needs.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_size(size);
    header.set_cksum();
    header
}

fn packed(members: &[(u8, &str, &[u8])]) -> Vec<u8> {
    let mut out = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
    for (kind, name, bytes) in members {
        out.append(&header(*kind, name, bytes.len() as u64), *bytes).unwrap();
    }
    out.into_inner().unwrap().finish().unwrap()
}

fn open(bytes: &[u8]) -> Result<Recording, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.why");
    fs::write(&path, bytes).unwrap();
    open_path(&path)
}

fn open_path(path: &Path) -> Result<Recording, String> {
    let why = store::open(path).map_err(|e| format!("{e:#}"));
    let start = format!("cannot open recording {}: ", path.display());
    why.map_err(|why| why.strip_prefix(&start).expect("an error names the file").to_owned())
}

fn open_members(members: &[(u8, &str, &[u8])]) -> Result<Recording, String> {
    open(&packed(&[&[HEAD], members].concat()))
}

#[test]
fn snapshots_of_a_window_without_length_keep_their_order() {
    let folder = tempfile::tempdir().unwrap();
    for at in ["earlier/0000000/proc", "proc"] {
        fs::create_dir_all(folder.path().join(at)).unwrap();
        for file in ["stat", "vmstat", "loadavg"] {
            fs::write(folder.path().join(at).join(file), at).unwrap();
        }
    }
    // Members are kept in a hash map, which has another order each time.
    for _ in 0..30 {
        let recording = open_path(folder.path()).unwrap();
        let latest = recording.last("proc/stat").unwrap();
        assert_eq!((&*latest.bytes, recording.window().as_nanos()), (&b"proc"[..], 0));
    }
}

#[test]
fn foreign_files_are_named() {
    let ours = "; whyslow record writes a tar compressed with zstd";
    for (bytes, what) in [
        (&b""[..], "it is empty"),
        (b"\x28\xb5", "it ends after its first bytes"),
        (b"\x1f\x8b\x08rest", "it is a gzip file"),
        (b"\x7fELF\x02\x01", "it is a program (ELF)"),
        (b"{\"schema\":0}", "it looks like JSON"),
        (b"hello\n", "it is not a recording"),
        (&[0; 4096], "it is not a recording"),
    ] {
        assert_eq!(open(bytes).unwrap_err(), format!("{what}{ours}"));
    }
    let plain = zstd::decode_all(packed(&[HEAD]).as_slice()).unwrap();
    assert_eq!(open(&plain).unwrap_err(), format!("it is a tar that is not compressed{ours}"));
}

#[test]
fn fifos_devices_and_missing_paths_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let name = CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: the name ends in NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let no_file = |what: &str| format!("it is {what}; name a file or a folder");
    assert_eq!(open_path(&fifo).unwrap_err(), no_file("a FIFO"));
    assert_eq!(open_path(Path::new("/dev/zero")).unwrap_err(), no_file("a character device"));
    assert_eq!(open_path(&folder.path().join("none")).unwrap_err(), "No such file or directory (os error 2)");
    assert_eq!(open_path(folder.path()).unwrap_err(), "it holds no whyslow.json, no proc/ and no sys/");
}

#[test]
fn the_live_proc_and_sys_are_not_read() {
    let live = "it is a live file system of the kernel; `whyslow exam` examines this host";
    assert_eq!(open_path(Path::new("/proc")).unwrap_err(), live);
    assert_eq!(open_path(Path::new("/sys")).unwrap_err(), live);
}

#[test]
fn zstd_with_something_else_in_it_is_no_recording() {
    for inside in [&b""[..], b"hello", &[b'x'; 5000], &[0; 5000]] {
        let why = open(&zstd::encode_all(inside, 1).unwrap()).unwrap_err();
        assert!(
            why.ends_with("before whyslow.json, so nothing is left")
                || why == "it holds no whyslow.json, no proc/ and no sys/",
            "{why}"
        );
    }
}

#[test]
fn formats_are_compared() {
    let newer = b"{\"format\":7,\"whyslow\":\"9.1.0\",\"frames\":{\"all\":\"different\"}}";
    let why = open(&packed(&[(b'0', "whyslow.json", newer)])).unwrap_err();
    assert_eq!(why, "it has format 7, and whyslow 0.1.0 reads formats up to 0; use whyslow 9.1.0 or newer");
    let oldest = open(&packed(&[(b'0', "./whyslow.json", b"{\"host\":\"web-3\"}")])).unwrap();
    assert_eq!((oldest.meta.host.as_str(), oldest.torn), ("web-3", None));
    let future = open_members(&[(b'0', "tables/dreams.ndjson", b"{}"), (b'0', "new.bin", b"x")]).unwrap();
    assert_eq!((future.snapshots.len(), future.missing.len()), (0, 0));
    for senseless in
        [&b""[..], b"[]]", b"{\"format\":-1}", b"{\"cpus\":\"\x1b[2J\"}", b"\xff\xfe", &[b'['; 200_000]]
    {
        let why = open(&packed(&[(b'0', "whyslow.json", senseless)])).unwrap_err();
        assert!(why.starts_with("its whyslow.json makes no sense: ") && !why.contains('\x1b'), "{why}");
    }
}

#[test]
fn members_that_whyslow_never_writes_refuse_the_file() {
    for (kind, name, why) in [
        (b'0', "../../etc/passwd", "member ../../etc/passwd leads out of the recording"),
        (b'0', "proc/../../x", "member proc/../../x leads out of the recording"),
        (b'0', "/etc/passwd", "member /etc/passwd has an absolute path"),
        (b'0', "proc/a\nb", "member proc/a\\nb has control characters in its name"),
        (b'2', "proc/stat", "member proc/stat is a symbolic link, which whyslow never writes"),
        (b'1', "proc/stat", "member proc/stat is a hard link, which whyslow never writes"),
        (b'3', "dev/mem", "member dev/mem is a character device, which whyslow never writes"),
        (b'4', "dev/sda", "member dev/sda is a block device, which whyslow never writes"),
        (b'6', "proc/x", "member proc/x is a FIFO, which whyslow never writes"),
        (b'S', "proc/x", "member proc/x is no plain file, which whyslow never writes"),
        (b'0', "./whyslow.json", "member whyslow.json is there twice, which whyslow never writes"),
    ] {
        assert_eq!(open_members(&[(kind, name, b"")]).unwrap_err(), why);
    }
}

#[test]
fn huge_declared_sizes_are_not_believed() {
    for size in [u64::MAX, u64::MAX / 2, 1 << 40, 100 << 20] {
        let mut tar = zstd::decode_all(packed(&[HEAD]).as_slice()).unwrap();
        tar.truncate(1024);
        tar.extend(header(b'0', "proc/stat", size).as_bytes());
        tar.extend(b"cpu 1 2 3");
        let rec = open(&zstd::encode_all(tar.as_slice(), 1).unwrap()).unwrap();
        assert!(rec.torn.is_some() && rec.snapshots.is_empty());
    }
    let why = open_members(&[(b'L', "long", &[b'a'; 100_000])]).unwrap_err();
    assert_eq!(why, "a member's name has 100000 bytes");
    let large = vec![b' '; 2 << 20];
    assert_eq!(
        open(&packed(&[(b'0', "whyslow.json", &large)])).unwrap_err(),
        "its whyslow.json has 2097152 bytes"
    );
}

#[test]
fn lines_that_make_no_sense_are_counted_and_the_others_used() {
    let mut table = b"{\"pid\":1}\nnonsense \x1b[2J\n{\"pid\":\"one\"}\n\xff\xfe\n".to_vec();
    table.extend(vec![b'['; 100_000]);
    table.extend(b"\n{\"comm\":\"");
    table.extend(vec![b'x'; 10 << 20]);
    table.extend(b"\"}\n{}\n{\"pid\":2,\"new\":[{}]}\n{\"pid\":3}");
    let rec = open_members(&[(b'0', "tables/tasks.ndjson", &table)]).unwrap();
    let pids: Vec<u32> = rec.tables.tasks.unwrap().iter().map(|t| t.pid).collect();
    assert_eq!(pids, [1, 0, 2, 3]);
    let [note] = rec.missing.as_slice() else { panic!("one note: {:?}", rec.missing) };
    assert!(
        note.text.starts_with("cannot read tables/tasks.ndjson: 5 of 9 lines make no sense; line 2: "),
        "{}",
        note.text
    );
    assert!(!note.text.contains(char::is_control));
}

#[test]
fn an_index_that_lies_gives_each_member_away_once() {
    let index = b"{\"name\":\"proc/a\",\"member\":\"proc/x\"}\n{\"name\":\"proc/b\",\"member\":\"proc/x\"}\n\
                  {\"name\":\"proc/c\",\"member\":\"../whyslow.json\"}\n7\n{}\n";
    let members =
        [(b'0', "snapshots.ndjson", index.as_slice()), (b'0', "proc/x", b"text"), (b'0', "proc/y", b"y")];
    let rec = open_members(&members).unwrap();
    let names: Vec<&str> = rec.snapshots.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["proc/a", "proc/y"]);
    assert_eq!(rec.why_missing("proc/c").to_string(), "cannot read proc/c: it is not in the recording");
}

#[test]
fn a_folder_made_to_hurt_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let below = |name: &str| folder.path().join(name);
    fs::create_dir_all(below("proc/deep")).unwrap();
    fs::write(below("proc/stat"), "cpu 1").unwrap();
    let huge = fs::File::create(below("proc/huge")).unwrap();
    huge.set_len(100 << 20).unwrap();
    std::os::unix::fs::symlink("/etc", below("proc/etc")).unwrap();
    std::os::unix::fs::symlink("..", below("proc/loop")).unwrap();
    std::os::unix::fs::symlink("/", below("sys")).unwrap();
    let name = CString::new(below("proc/fifo").to_str().unwrap()).unwrap();
    // SAFETY: the name ends in NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let rec = open_path(folder.path()).unwrap();
    let names: Vec<&str> = rec.snapshots.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["proc/stat"]);
    let notes: Vec<&str> = rec.missing.iter().map(|m| m.text.as_str()).collect();
    assert!(notes[0].starts_with("proc/huge was skipped: it has 104857600 bytes"), "{notes:?}");
    assert!(notes[1].starts_with("3 symbolic links"), "{notes:?}");
    assert!(notes[2].starts_with("1 entry"), "{notes:?}");

    fs::create_dir(below("tables")).unwrap();
    let table = fs::File::create(below("tables/tasks.ndjson")).unwrap();
    table.set_len(2 << 40).unwrap();
    assert_eq!(open_path(folder.path()).unwrap_err(), "it holds more than 1024 MiB, in tables");
    fs::write(below("whyslow.json"), "{}").unwrap();
    let torn = open_path(folder.path()).unwrap().torn.unwrap();
    assert!(torn.starts_with("it holds more than 1024 MiB, in tables; "), "{torn}");
    fs::remove_file(below("tables/tasks.ndjson")).unwrap();

    let mut deep = below("proc/deep");
    deep.extend(std::iter::repeat_n("d", 60));
    fs::create_dir_all(&deep).unwrap();
    fs::remove_file(below("proc/huge")).unwrap();
    let torn = open_path(folder.path()).unwrap().torn.unwrap();
    assert!(torn.starts_with("it is more than 40 folders deep, in proc; "), "{torn}");
}

/// A member of `size` bytes, `unit` again and again, after a valid head.
fn bomb(path: &Path, name: &str, unit: &'static [u8], size: u64) {
    let out = zstd::Encoder::new(fs::File::create(path).unwrap(), 1).unwrap();
    let mut out = tar::Builder::new(out);
    out.append(&header(HEAD.0, HEAD.1, HEAD.2.len() as u64), HEAD.2).unwrap();
    let again = unit.repeat((1 << 20) / unit.len());
    let endless = io::BufReader::with_capacity(1 << 20, Again { unit: again, at: 0 });
    out.append(&header(b'0', name, size), endless.take(size)).unwrap();
    out.into_inner().unwrap().finish().unwrap();
}

struct Again {
    unit: Vec<u8>,
    at: usize,
}

impl Read for Again {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.at %= self.unit.len();
        let n = (&self.unit[self.at..]).read(out)?;
        self.at += n;
        Ok(n)
    }
}

/// A child opens the bombs; it may not have more than 1.5 GiB of address space: a larger allocation kills it.
#[test]
fn bombs_go_off_in_bounded_memory() {
    const CHILD: &str = "WHYSLOW_TEST_BOMB";
    if let Some(path) = std::env::var_os(CHILD) {
        let most = libc::rlimit { rlim_cur: 1536 << 20, rlim_max: 1536 << 20 };
        // SAFETY: the struct is whole; the limit is this child's own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &most) }, 0);
        println!("torn: {}", store::open(Path::new(&path)).unwrap().torn.unwrap());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.why");
    for (name, unit, size, why) in [
        ("proc/zeros", b"\0".as_slice(), 1100 << 20, "it unpacks to more than 1024 MiB"),
        ("tables/tasks.ndjson", b"{}\n", 6 << 20, "it needs more than 640 MiB of memory"),
        ("snapshots.ndjson", b"{}\n", 60 << 20, "it needs more than 640 MiB of memory"),
        (
            "tables/waits.ndjson",
            b"{\"kernel\":[\"\",\"\",\"\",\"\",\"\"]}\n",
            60 << 20,
            "it needs more than 640 MiB",
        ),
    ] {
        bomb(&path, name, unit, size);
        assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "store::hostile::bombs_go_off_in_bounded_memory",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CHILD, &path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success() && said.contains(why), "{name}: {} {said}", child.status);
    }
}
