//! The probe on threads of our own.

#[path = "asked_of_tests.rs"]
mod asked_of_tests;
#[path = "asked_tests.rs"]
mod asked_tests;
#[path = "delivered_tests.rs"]
mod delivered_tests;
#[path = "lock_retry_tests.rs"]
mod lock_retry_tests;
#[path = "other_ends_tests.rs"]
mod other_ends_tests;
#[path = "parked_tests.rs"]
mod parked_tests;

use std::sync::mpsc;

use super::super::shared::SLOTS;
use super::*;
use crate::test_pids::LargePids;

#[test]
fn where_btf_has_no_variables_the_symbols_of_data_tell_the_layout() {
    let listed = &b"0000000000015b00 A __preempt_count\n000000000002c4c0 A runqueues\n"[..];
    let of = |text: &[u8], known| {
        Layout { preempt_count_at: known, ..Layout::default() }
            .or_from(&Kallsyms::from(text))
            .preempt_count_at
    };
    assert_eq!(of(listed, None), Some(0x15b00 - 0x2c4c0));
    assert_eq!(of(listed, Some(8)), Some(8), "what BTF says stands");
    assert_eq!(of(b"ffffffff81000000 T _text\n", None), None);
    assert_eq!(of(b"ffffffffffffffff A __preempt_count\n000000000002c4c0 A runqueues\n", None), None);
}

/// The states of one thread of ours while it slept in a pipe, used CPU, and ended.
#[test]
fn root_a_threads_time_adds_up_to_its_life() {
    let mut slot = MaybeUninit::uninit();
    let mut sched =
        Sched::load(&mut slot, Layout::default(), Budget::of(2, false)).expect("root may load it");
    sched.begin().expect("root may trace the scheduler");
    let (tell, reported) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let began = Instant::now();
    let thread = std::thread::spawn(move || {
        // SAFETY: gettid has no arguments and cannot fail.
        tell.send(unsafe { libc::gettid() } as u32).unwrap();
        wait.recv().unwrap();
        let until = Instant::now() + Duration::from_millis(80);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    });
    let pid = reported.recv().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    go.send(()).unwrap();
    thread.join().unwrap();
    let life = began.elapsed();
    let (seen, lost) = sched.finish().unwrap();
    assert_eq!(lost, 0);
    // join() returns when the thread clears its tid, before its last switch: it may live on for the closing walk.
    let exit = seen.exits.single().into_iter().find(|e| e.pid == pid).map(|e| e.slot);
    let live = seen.live.iter().find(|l| l.slot.pid == pid).map(|l| l.slot);
    let slot = exit.or(live).expect("the thread was seen");
    let sum = |state: usize| Duration::from_nanos(slot.sum[state].ns);
    let all: Duration = (RUNNING..=ASLEEP).map(sum).sum();
    assert!(sum(ASLEEP) >= Duration::from_millis(45), "slept {:?}", sum(ASLEEP));
    let awake = sum(RUNNING) + sum(READY);
    assert!(awake >= Duration::from_millis(75), "awake {awake:?}");
    assert!(all <= life + Duration::from_millis(1), "{all:?} in a life of {life:?}");
    assert!(
        all + Duration::from_nanos(slot.unknown_ns) + Duration::from_millis(20) >= life,
        "{all:?} of {life:?}"
    );
}

/// The kernel counts what a task makes dirty, in pages: threads of ours write so much to a file each, by their ends.
#[test]
fn root_written_bytes_at_exit_match_the_pages_a_thread_wrote() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap(); // /tmp may be a tmpfs, which does not count dirty pages
    let drawn = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos() as usize;
    let mut slot = MaybeUninit::uninit();
    let mut sched =
        Sched::load(&mut slot, Layout::default(), Budget::of(2, false)).expect("root may load it");
    sched.begin().expect("root may trace the scheduler");
    let of_thread = |n: usize| {
        let pages = drawn.checked_div(n).unwrap_or(0) % 900;
        let file = folder.path().join(n.to_string());
        let write = move || {
            std::fs::write(file, vec![1; pages * 4096]).unwrap();
            // SAFETY: gettid has no arguments and cannot fail.
            unsafe { libc::gettid() as u32 }
        };
        (std::thread::spawn(write).join().unwrap(), pages as u64)
    };
    let wrote: Vec<(u32, u64)> = (0..10).map(of_thread).collect();
    let (seen, _) = sched.finish().unwrap();
    let exits = seen.exits.single();
    // join() returns when a thread clears its tid, before its last switch: one or the other may live on.
    let ended = |pid| exits.iter().find(|exit| exit.pid == pid).map(|exit| exit.written);
    let reported: Vec<(u64, u64)> =
        wrote.iter().filter_map(|(pid, pages)| Some((*pages, ended(*pid)?))).collect();
    assert!(reported.len() > 5, "{wrote:?}: {reported:?}");
    for (pages, bytes) in reported {
        // The file's own blocks are written, too.
        assert!(
            (pages * 4096..(pages + 40) * 4096).contains(&bytes),
            "{bytes} bytes of {pages} pages, {drawn}"
        );
    }
}

/// The rows of one thread, with times from the begin of the window.
fn timeline_of(pid: u32, seen: &mut RawSched) -> Vec<whyslow_model::table::Span> {
    timeline_of_all(seen).into_iter().filter(|span| span.pid == pid).collect()
}

fn timeline_of_all(seen: &mut RawSched) -> Vec<whyslow_model::table::Span> {
    let mut kernel = crate::symbols::KernelNames::from(&crate::kallsyms::Kallsyms::read());
    let window = crate::span_table::Window { start_ns: 0, ns: u64::MAX };
    crate::span_table::timelines(seen, window, &mut kernel, None).spans
}

fn layout() -> Layout {
    Layout::of(&Btf::from_vmlinux().expect("this kernel has BTF"))
}

fn me() -> u32 {
    // SAFETY: gettid has no arguments and cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// One thread reads from a pipe what another writes after a sleep: each wait names its end.
#[test]
fn root_a_wait_names_its_call_its_file_and_its_waker() {
    use std::io::{Read as _, Write as _};
    use whyslow_model::timeline::{Context, State};

    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, false)).unwrap();
    if let Some(bss) = sched.skel.maps.bss_data.as_mut() {
        bss.own_tgid = 0; // otherwise our own rows are left out
    }
    sched.begin().unwrap();
    let (mut from, mut to) = std::io::pipe().unwrap();
    let (tell, reported) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        tell.send(me()).unwrap();
        from.read_exact(&mut [0]).unwrap();
    });
    let reader_pid = reported.recv().unwrap();
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(40));
        to.write_all(&[1]).unwrap();
        me()
    });
    let writer_pid = writer.join().unwrap();
    reader.join().unwrap();
    let (mut seen, lost) = sched.finish().unwrap();
    assert_eq!(lost, 0);

    let rows = timeline_of(reader_pid, &mut seen);
    let wait = rows.iter().max_by_key(|row| row.woken_ns - row.at_ns).expect("the reader waited");
    let waker = wait.waker.as_ref().expect("a task woke it");
    assert_eq!((wait.state, wait.syscall), (State::Sleep, Some(libc::SYS_read as u32)));
    assert_eq!(wait.target.as_ref().map(|target| target.kind.as_str()), Some("pipe"));
    assert_eq!((waker.pid, waker.context), (writer_pid, Context::Task), "{waker:?}");
    assert!(wait.woken_ns - wait.at_ns > 25_000_000);
    let made_by =
        seen.exits.single().into_iter().find(|exit| exit.pid == reader_pid).map(|exit| exit.slot.creator);
    assert_eq!(made_by, Some(me()), "its process's parent is another one");

    let rows = timeline_of(writer_pid, &mut seen);
    let sleep = rows.iter().max_by_key(|row| row.woken_ns - row.at_ns).expect("the writer slept");
    assert_eq!(sleep.syscall, Some(libc::SYS_clock_nanosleep as u32));
    // The timer's interrupt hit some task: that task is not the waker.
    assert_eq!(sleep.waker.as_ref().map(|waker| waker.context), Some(Context::Hardirq));
    for pair in rows.windows(2) {
        assert_eq!(pair[0].to_ns, pair[1].from_ns, "rows touch");
    }
}

/// A followed thread's children are followed, and their short waits are reported.
#[test]
fn root_children_of_the_followed_are_followed() {
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, true)).unwrap();
    sched.follow(&[me()]).unwrap();
    sched.begin().unwrap();
    let mut child = std::process::Command::new("sh").args(["-c", "sleep 0.01; :"]).spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let map = &sched.skel.maps.followed;
    let owner = |pid: u32| {
        let bytes = map.lookup(&(pid % SLOTS).to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        u32::from_ne_bytes(bytes[..4].try_into().unwrap())
    };
    assert_eq!(owner(me()), me());
    assert_ne!(owner(pid), pid, "it has ended: a new task of that number is not followed");
    let (mut seen, _) = sched.finish().unwrap();
    let rows = timeline_of(pid, &mut seen);
    assert!(rows.last().is_some_and(|row| row.ended), "its end is reported: {rows:?}");
}

/// A child with a pid that we choose, which sleeps and works in turns of milliseconds until it is dropped.
pub(in crate::bpf) struct Child(u32);

impl Child {
    pub(in crate::bpf) fn of_pid(pid: u32) -> Self {
        // SAFETY: numbers only: all zeroes is a value of it.
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        args.exit_signal = libc::SIGCHLD as u64;
        args.set_tid = (&raw const pid) as u64;
        args.set_tid_size = 1;
        // SAFETY: as fork; the child calls nothing that allocates, and never returns.
        let born = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
        assert!(born >= 0, "{}", std::io::Error::last_os_error());
        if born > 0 {
            return Child(pid);
        }
        // SAFETY: numbers only: descriptors of the test, which it would keep open, are not used again.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32);
        }
        loop {
            let until = Instant::now() + Duration::from_millis(3);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            let nap = libc::timespec { tv_sec: 0, tv_nsec: 3_000_000 };
            // SAFETY: the pointer is to a local.
            unsafe { libc::nanosleep(&raw const nap, std::ptr::null_mut()) };
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0).unwrap();
        // SAFETY: our own child, which no other thread waits for.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
}

/// Task that the kernel half takes for followed at the home of [`HOME`], and the followed tasks that it looks up elsewhere.
fn followed_at_home(sched: &Sched<'_>) -> (u32, Vec<u32>) {
    let maps = &sched.skel.maps;
    let bytes = maps.followed.lookup(&(HOME % SLOTS).to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    let mut more: Vec<u32> = maps.followed_more.keys().map(|key| owner(&key)).collect();
    more.sort_unstable();
    (owner(&bytes), if owner(&bytes[4..]) == 0 { Vec::new() } else { more })
}

/// Threads are listed twice: as those of a process, and as those in its cgroup.
#[test]
fn root_task_followed_twice_hides_no_task_with_the_same_home() {
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, true)).unwrap();
    sched.follow(&[HOME, HOME + SLOTS, HOME]).unwrap();
    assert_eq!(followed_at_home(&sched), (HOME, vec![HOME + SLOTS]));
}

#[test]
fn root_a_stranger_with_the_number_of_one_who_was_followed_and_died_is_not_followed() {
    let _large = LargePids::new();
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, true)).unwrap();
    // They ended before their end could be seen.
    sched.follow(&[HOME, HOME + SLOTS]).unwrap();
    sched.begin().unwrap();
    let strangers = [Child::of_pid(HOME), Child::of_pid(HOME + SLOTS)];
    let (mut at_home, mut more) = followed_at_home(&sched);
    let patience = Instant::now() + Duration::from_secs(1);
    while (at_home != 0 || !more.is_empty()) && Instant::now() < patience {
        std::thread::yield_now(); // clone may return to the maker after the first wake-up
        (at_home, more) = followed_at_home(&sched);
    }
    drop(strangers);
    assert_eq!((at_home, more), (0, vec![]));
}

#[test]
fn root_task_missing_from_the_new_list_is_no_longer_followed() {
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, true)).unwrap();
    let all = [HOME, HOME + SLOTS, HOME + 2 * SLOTS];
    sched.follow(&all).unwrap();
    sched.follow_instead(&all, &[HOME + SLOTS]).unwrap();
    assert_eq!(followed_at_home(&sched), (0, vec![HOME + SLOTS]));
    sched.follow_instead(&[HOME + SLOTS], &[HOME, HOME + SLOTS]).unwrap();
    assert_eq!(followed_at_home(&sched), (HOME, vec![HOME + SLOTS]));
}

#[test]
fn live_row_of_a_task_that_exits_during_the_walk_is_dropped() {
    let of = |pid, task, start| sched_slot { pid, task, start, ..sched_slot::default() };
    let live = |slot| sched_live { slot, ..sched_live::default() };
    let mut seen = RawSched { live: vec![live(of(7, 1, 10)), live(of(8, 2, 20))], ..RawSched::default() };
    seen.exits.mark();
    seen.exits.note(sched_exit { pid: 7, start_ns: 10, slot: of(7, 1, 10), ..sched_exit::default() });
    // Thread 9 ended by exec: task 2 lives on as process 8, whose first thread has ended, too.
    seen.exits.note(sched_exit { pid: 9, start_ns: 30, slot: of(9, 2, 30), ..sched_exit::default() });
    seen.exits.note(sched_exit { pid: 8, start_ns: 20, slot: of(8, 3, 20), ..sched_exit::default() });
    seen.forget_the_dead();
    assert_eq!(seen.live.iter().map(|l| l.slot.pid).collect::<Vec<_>>(), [8]);
}

fn all_of(slot: &sched_slot) -> Duration {
    (RUNNING..=ASLEEP).map(|state| Duration::from_nanos(slot.sum[state].ns)).sum()
}

/// Free, since no pid of a small host is so large, and none of a large one is likely to be.
pub(in crate::bpf) const HOME: u32 = 1_000_003;

#[test]
fn root_tasks_whose_pids_share_a_home_are_all_reported() {
    let _large = LargePids::new();
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, true)).unwrap();
    let before = [Child::of_pid(HOME), Child::of_pid(HOME + SLOTS)];
    sched.follow(&[HOME, HOME + SLOTS]).unwrap();
    sched.begin().unwrap();
    let began = Instant::now();
    let born = Child::of_pid(HOME + 2 * SLOTS);
    std::thread::sleep(Duration::from_millis(100));
    drop(born);
    let again = Child::of_pid(HOME + 2 * SLOTS);
    std::thread::sleep(Duration::from_millis(60));
    let life = began.elapsed();
    let (seen, lost) = sched.finish().unwrap();
    drop((before, again));
    assert_eq!((lost, seen.without_place), (0, 0));
    for (pid, most) in [(HOME, life), (HOME + SLOTS, life), (HOME + 2 * SLOTS, Duration::from_millis(60))] {
        let live =
            seen.live.iter().find(|l| l.slot.pid == pid).unwrap_or_else(|| panic!("{pid} was not seen"));
        let all = all_of(&live.slot);
        assert!(all + Duration::from_millis(20) >= most, "{pid}: {all:?} of {most:?}");
        assert!(live.slot.sum[ASLEEP].count > 0 && live.slot.sum[RUNNING].count > 0);
    }
    let ended =
        seen.exits.single().into_iter().find(|e| e.pid == HOME + 2 * SLOTS).expect("its end is reported");
    assert!(all_of(&ended.slot) >= Duration::from_millis(90), "{:?}", all_of(&ended.slot));
    let reported: Vec<u32> = [HOME, HOME + SLOTS]
        .into_iter()
        .filter(|pid| seen.rows.spans.iter().any(|r| r.span.pid == *pid))
        .collect();
    assert_eq!(reported, [HOME, HOME + SLOTS], "both are followed: their waits of 3 ms are rows");
}

#[test]
fn root_tasks_without_a_place_are_counted_and_followed_tasks_have_one() {
    let _large = LargePids::new();
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::try_load(&mut slot, layout(), Budget::of(2, true), 1).unwrap();
    let others = [HOME, HOME + SLOTS, HOME + 2 * SLOTS].map(Child::of_pid);
    let followed = Child::of_pid(HOME + 3 * SLOTS);
    sched.follow(&[followed.0]).unwrap();
    sched.begin().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let tasks = || {
        let mut slot = MaybeUninit::uninit();
        crate::bpf::tasks::Tasks::start(&mut slot).unwrap().snapshot().unwrap()
    };
    let end = tasks();
    let (seen, _) = sched.finish().unwrap();
    let rows = crate::task_table::tasks(
        &end,
        &end,
        &seen,
        crate::span_table::Window { start_ns: 0, ns: 50_000_000 },
    );
    let unseen = |pid: u32| rows.iter().find(|row| row.pid == pid).unwrap().unseen;
    assert!(!unseen(followed.0), "a followed task has a place");
    assert_eq!(others.iter().filter(|child| unseen(child.0)).count(), 2, "four tasks, two places");
    assert_eq!(seen.without_place, 2);
    assert!(!unseen(me()));
}

/// For the next test, in a process of its own.
#[test]
#[ignore = "part of another test, in a process of its own"]
fn a_thread_executes() {
    let thread = std::thread::spawn(|| {
        println!("thread {} ", me());
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let args = [c"sleep".as_ptr(), c"0.15".as_ptr(), std::ptr::null()];
        // SAFETY: strings with a zero byte, and a list with a null.
        unsafe { libc::execv(c"/bin/sleep".as_ptr(), args.as_ptr()) };
    });
    thread.join().unwrap();
}

#[test]
fn root_a_thread_that_executes_goes_on_under_the_pid_of_its_process() {
    a_thread_executes_where_its_home_is(false);
}

/// Another task has the thread's home. When the thread has its process's number no place may be two tasks', and none may be lost.
#[test]
fn root_a_displaced_thread_that_executes_gives_its_place_back_once() {
    for _ in 0..5 {
        a_thread_executes_where_its_home_is(true);
    }
}

/// Free places and places with a task: each exists once.
fn each_spare_place_is_there_once(sched: &Sched<'_>) {
    let maps = &sched.skel.maps;
    let taken = maps.displaced.keys().filter_map(|pid| maps.displaced.lookup(&pid, MapFlags::ANY).unwrap());
    let free = std::iter::from_fn(|| maps.spare_places.lookup_and_delete(&[]).ok().flatten());
    let mut all: Vec<u32> = taken.chain(free).map(|place| owner(&place)).collect();
    all.sort_unstable();
    assert_eq!(all, (SLOTS..sched.places).collect::<Vec<_>>());
}

fn a_thread_executes_where_its_home_is(anothers: bool) {
    use std::io::{BufRead as _, Write as _};
    use std::process::{Command, Stdio};

    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, true)).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bpf::sched::tests::a_thread_executes", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("thread ")).expect("it prints its thread");
    let thread: u32 = line.split("thread ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    sched.follow(&crate::host::threads_of(&[child.id()], &[])).unwrap();
    if anothers {
        let stranger = thread + SLOTS;
        let has_it = sched_slot { pid: stranger, key: stranger, task: 1, claims: 1, ..sched_slot::default() };
        // SAFETY: integers only, without gaps.
        let has_it = unsafe { plain::as_bytes(&has_it) };
        sched.skel.maps.slots.update(&(thread % SLOTS).to_ne_bytes(), has_it, MapFlags::ANY).unwrap();
    }
    sched.begin().unwrap();
    assert_eq!(
        sched.skel.maps.displaced.lookup(&thread.to_ne_bytes(), MapFlags::ANY).unwrap().is_some(),
        anothers
    );
    std::thread::sleep(Duration::from_millis(20));
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    sched.await_exits(None);
    sched.skel.links.born = None; // tasks that are displaced from here on do not count
    let gone =
        |pid: u32| sched.skel.maps.displaced.lookup(&pid.to_ne_bytes(), MapFlags::ANY).unwrap().is_none();
    assert!(gone(thread) && gone(child.id()), "they have ended, and their places are free");
    if anothers {
        each_spare_place_is_there_once(&sched);
    }
    let (mut seen, lost) = sched.finish().unwrap();
    assert_eq!(lost, 0);
    let of = |pid: u32| {
        seen.exits.single().into_iter().filter(|e| e.pid == pid).map(|e| e.slot).collect::<Vec<_>>()
    };
    assert_eq!(of(thread).len(), 1, "the thread's number ends with its call of exec");
    assert!(all_of(&of(thread)[0]) >= Duration::from_millis(20), "it waited for a line");
    let process = of(child.id());
    assert_eq!(process.len(), 2, "the leader, which has ended, and the thread that took its number over");
    assert!(process.iter().all(|slot| slot.task != 0), "what both did is reported");
    let slept = process.iter().find(|slot| slot.taken_over == 1).expect("one took it over").sum[ASLEEP].ns;
    assert!(slept >= 145_000_000, "the sleep of the program was seen: {slept}");
    let rows = timeline_of(child.id(), &mut seen);
    let nap = rows.iter().map(|row| row.woken_ns - row.at_ns).max().unwrap_or(0);
    assert!(nap >= 145_000_000 && rows.iter().filter(|row| row.ended).count() == 2, "{rows:?}");
}
