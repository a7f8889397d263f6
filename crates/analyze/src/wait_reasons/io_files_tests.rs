use proptest::prelude::*;
use whyslow_model::FileSnapshot;
use whyslow_model::timeline::Stack;

use super::*;

const MOUNTS: &str = "\
1 0 254:0 / / rw - ext4 /dev/vda rw
2 1 254:16 / /srv/my\\040data rw - xfs /dev/vdb1 rw
3 1 8:0 /sub /bound rw - ext4 /dev/sda rw
";

fn file(id: u32, dev: &str, path: &str) -> IoFile {
    let (file_dev, path) = (dev.to_owned(), path.to_owned());
    IoFile {
        id,
        of: IoOf::File,
        path,
        file_dev,
        ino: 100 + u64::from(id),
        device: "vda".into(),
        ..IoFile::default()
    }
}

fn wait(pid: u32, io_file: u32, ns: u64) -> Span {
    let device = Some("254:0".to_owned());
    Span {
        pid,
        tgid: pid,
        io_file,
        device,
        state: State::Io,
        woken_ns: ns,
        to_ns: ns,
        stack: Some(1),
        ..Span::default()
    }
}

fn recording(files: Vec<IoFile>, spans: Vec<Span>) -> Recording {
    let mut recording = Recording::default();
    let kernel = ["folio_wait_bit_common", "filemap_fault", "handle_mm_fault", "asm_exc_page_fault"];
    let stack = Stack { id: 1, kernel: kernel.map(str::to_owned).to_vec(), user: vec![] };
    (recording.tables.io_files, recording.tables.spans) = (Some(files), Some(spans));
    recording.tables.stacks = Some(vec![stack]);
    let (name, bytes) = ("proc/self/mountinfo".to_owned(), MOUNTS.as_bytes().to_vec());
    recording.snapshots.push(FileSnapshot { at: std::time::Duration::ZERO, name, bytes });
    recording
}

/// The text for the first wait.
fn said(recording: &Recording) -> String {
    let stacks = Stacks::in_recording(recording);
    crate::wait_reasons::of(&recording.tables.spans.as_ref().unwrap()[0], &stacks).detail.to_string()
}

const PLAIN: &str = "block device 254:0 (page fault)";

fn of(what: &str) -> String {
    format!("block device 254:0 (page fault of {what})")
}

#[test]
fn a_page_fault_is_told_with_its_file_on_the_host() {
    for (row, name) in [
        (file(1, "254:0", "/srv/x"), "/srv/x"),
        (file(1, "254:16", "/x"), "/srv/my data/x"),
        (file(1, "8:0", "/sub/a/b"), "/bound/a/b"),
        (file(1, "8:0", "/subtle/b"), "vda:/subtle/b"),
        (file(1, "9:9", "/x"), "vda:/x"),
        (file(1, "254:0", ".../a/x"), ".../a/x"),
        (IoFile { deleted: true, ..file(1, "254:0", "/srv/x") }, "/srv/x (deleted)"),
        (file(1, "254:16", ""), "inode 101 of /srv/my data"),
        (IoFile { of: IoOf::Blocks, ..file(1, "254:16", "") }, "metadata of vdb1"),
        (IoFile { of: IoOf::Journal, ..file(1, "254:0", "") }, "journal of vda"),
    ] {
        assert_eq!(said(&recording(vec![row], vec![wait(7, 1, 10)])), of(name));
    }
}

#[test]
fn page_fault_on_unknown_data_is_reported_without_a_name() {
    assert_eq!(said(&recording(vec![file(1, "254:0", "/x")], vec![wait(7, 0, 10)])), PLAIN);
    assert_eq!(said(&recording(vec![file(1, "254:0", "/x")], vec![wait(7, 9, 10)])), PLAIN);
    let blocks = IoFile { of: IoOf::Blocks, ..file(1, "9:9", "") };
    assert_eq!(said(&recording(vec![blocks], vec![wait(7, 1, 10)])), PLAIN, "its contents are not known");
    // Another process's waits do not describe this one's; nor does a part of its own.
    let spans = vec![wait(7, 0, 60), wait(7, 1, 40), wait(8, 1, 1000)];
    assert_eq!(said(&recording(vec![file(1, "254:0", "/x")], spans)), PLAIN);
}

#[test]
fn several_files_are_told_by_their_folder_or_the_largest() {
    let spans = || vec![wait(7, 1, 30), wait(7, 2, 60), wait(7, 0, 10)];
    let files = |two: &str| vec![file(1, "254:0", "/srv/data/a/x"), file(2, "254:0", two)];
    assert_eq!(said(&recording(files("/srv/data/b/y"), spans())), of("2 files in /srv/data"));
    assert_eq!(said(&recording(files("/srv/database"), spans())), of("2 files in /srv"));
    assert_eq!(said(&recording(files("/var/y"), spans())), of("2 files, most /var/y"));
    let most = vec![wait(7, 1, 5), wait(7, 2, 95)];
    assert_eq!(said(&recording(files("/var/y"), most)), of("/var/y"));
}

#[test]
fn the_file_of_a_call_goes_before_what_was_queued_before() {
    let mut span = wait(7, 1, 10);
    span.target = Some(whyslow_model::timeline::Target {
        kind: "file".into(),
        dev: "254:0".into(),
        ino: 102,
        ..Default::default()
    });
    let files = vec![file(1, "254:0", "/other"), file(2, "254:0", "/own")];
    assert_eq!(said(&recording(files, vec![span])), of("/own"));
}

proptest! {
    #[test]
    fn no_path_makes_it_panic(paths in prop::collection::vec("(/|\\PC|\\.\\.\\.|\u{fc}){0,12}", 1..5), dev in "254:0|8:0|") {
        let files: Vec<_> = paths.iter().zip(1..).map(|(path, id)| file(id, &dev, path)).collect();
        let spans: Vec<_> = files.iter().map(|file| wait(7, file.id, u64::MAX / 2)).collect();
        let _ = said(&recording(files, spans));
    }
}
