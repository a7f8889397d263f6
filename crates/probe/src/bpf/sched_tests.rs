//! The probe on threads of our own.

use std::sync::mpsc;

use super::*;

#[test]
fn where_btf_has_no_variables_the_symbols_of_data_tell_the_layout() {
    let listed = &b"0000000000015b00 A __preempt_count\n000000000002c4c0 A runqueues\n"[..];
    let of = |text: &[u8], known| {
        Layout { preempt_count_at: known }.or_from(&Kallsyms::from(text)).preempt_count_at
    };
    assert_eq!(of(listed, None), Some(0x15b00 - 0x2c4c0));
    assert_eq!(of(listed, Some(8)), Some(8), "what BTF says stands");
    assert_eq!(of(b"ffffffff81000000 T _text\n", None), None);
    assert_eq!(of(b"ffffffffffffffff A __preempt_count\n000000000002c4c0 A runqueues\n", None), None);
}

/// What one thread of ours was seen to do while it slept in a pipe, burned CPU, and ended.
#[test]
fn root_a_threads_time_adds_up_to_its_life() {
    let mut slot = MaybeUninit::uninit();
    let mut sched =
        Sched::load(&mut slot, Layout::default(), Budget::of(2, false)).expect("root may load it");
    sched.begin().expect("root may trace the scheduler");
    let (tell, told) = mpsc::channel();
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
    let pid = told.recv().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    go.send(()).unwrap();
    thread.join().unwrap();
    let life = began.elapsed();
    let (seen, lost) = sched.finish().unwrap();
    assert_eq!(lost, 0);
    // join() returns when the thread clears its tid, before its last switch: it may live on for the closing walk.
    let exit = seen.exits.iter().find(|e| e.pid == pid).map(|e| e.slot);
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

/// The rows of one thread, with times from the begin of the window.
fn timeline_of(pid: u32, seen: &mut Seen) -> Vec<whyslow_model::table::Span> {
    let mut kernel = crate::symbols::KernelNames::from(&crate::kallsyms::Kallsyms::read());
    let window = crate::span_table::Window { start_ns: 0, ns: u64::MAX };
    let spans = crate::span_table::timelines(seen, window, &mut kernel).spans;
    spans.into_iter().filter(|span| span.pid == pid).collect()
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
        bss.own_tgid = 0; // else our own rows are left out
    }
    sched.begin().unwrap();
    let (mut from, mut to) = std::io::pipe().unwrap();
    let (tell, told) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        tell.send(me()).unwrap();
        from.read_exact(&mut [0]).unwrap();
    });
    let reader_pid = told.recv().unwrap();
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
    let waker = wait.waker.as_ref().expect("somebody woke it");
    assert_eq!((wait.state, wait.syscall), (State::Sleep, Some(libc::SYS_read as u32)));
    assert_eq!(wait.target.as_ref().map(|target| target.kind.as_str()), Some("pipe"));
    assert_eq!((waker.pid, waker.context), (writer_pid, Context::Task), "{waker:?}");
    assert!(wait.woken_ns - wait.at_ns > 25_000_000);
    let made_by = seen.exits.iter().find(|exit| exit.pid == reader_pid).map(|exit| exit.slot.creator);
    assert_eq!(made_by, Some(me()), "its process's parent is another one");

    let rows = timeline_of(writer_pid, &mut seen);
    let sleep = rows.iter().max_by_key(|row| row.woken_ns - row.at_ns).expect("the writer slept");
    assert_eq!(sleep.syscall, Some(libc::SYS_clock_nanosleep as u32));
    // The timer's interrupt hit somebody: that task is not the waker.
    assert_eq!(sleep.waker.as_ref().map(|waker| waker.context), Some(Context::Hardirq));
    for pair in rows.windows(2) {
        assert_eq!(pair[0].to_ns, pair[1].from_ns, "rows touch");
    }
}

/// A followed thread's children are followed, and their short waits are told.
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
    assert!(rows.last().is_some_and(|row| row.ended), "its end is told: {rows:?}");
}

#[test]
fn the_wakers_hook_goes_where_a_cpu_only_switches_and_comes_back() {
    let mut crowd = Crowd::default();
    let begin = Instant::now();
    let at = |ms: u64| begin + Duration::from_millis(ms);
    assert_eq!(crowd.judge(&[0, 0], at(0)), None);
    assert_eq!(crowd.judge(&[1_000, 60_000], at(200)), None, "300,000 a second");
    assert_eq!(crowd.judge(&[1_000, 160_000], at(400)), Some(Verdict::TooMany));
    assert_eq!(crowd.judge(&[1_000, 220_000], at(600)), None, "between the bounds nothing changes");
    assert_eq!(crowd.judge(&[2_000, 221_000], at(800)), Some(Verdict::FewAgain));
    assert_eq!(crowd.time(at(5_000)), Duration::from_millis(400));
    assert_eq!(crowd.judge(&[2_000], at(1_000)), None, "fewer CPUs than before");
}
