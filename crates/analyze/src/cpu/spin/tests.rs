//! Real code: what gcc 12 made of small loops, at -O2 and -O0.

use proptest::prelude::*;
use whyslow_model::table::{Met, Sample, Spin, Task};

use super::loops::Code;
use super::places::seen;
use super::purpose::purpose;
use super::x86::X86;
use super::{Process, Purpose, arm64, processes};
use crate::evidence::fixture::Fixture;

fn bytes(hex: &str) -> Vec<u8> {
    let hex = hex.replace(' ', "");
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// What the loop around the instruction at `at` is for; `None`: there is no loop.
fn x86(hex: &str, at: usize) -> Option<Purpose> {
    let code = bytes(hex);
    let mut decoder = X86::new(&code);
    Code::new(code.len(), |at| decoder.step(at)).around(at).as_ref().map(purpose)
}

fn arm(words: &[u32], at: usize) -> Option<Purpose> {
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Code::new(code.len(), |at| arm64::step(&code, at)).around(at).as_ref().map(purpose)
}

const PAUSE: &str = "eb08660f1f440000f3908b05682c000085c074f4c3";
const PAUSE_O0: &str = "554889e5eb02f3908b059b2e000085c074f490905dc3";
const FLAG: &str = "8b05522c000085c074f6c3";
const FLAG_O0: &str = "554889e5908b05882e000085c074f690905dc3";
const COUNTED: &str = "b8a0860100eb0e660f1f84000000000083e801740b8b152d2c000085d274f1c3";
const COUNTED_O0: &str =
    "554889e54883ec10c745fc00000000eb0e8b05692e000085c075148345fc01817dfc9f8601007ee9e813feffffebd990c9c3";
const TEST_AND_SET: &str = "ba010000000f1f0089d0870785c075f8c3";
const TEST_AND_SET_O0: &str = "554889e548897df890488b55f8b801000000870285c075f190905dc3";
const COMPARE_AND_SWAP: &str = "31c9ba0100000089c8f00fb11775f8c3";
const CLOCK: &str = "0f3148c1e22089c04809c2488d8a40420f000f3148c1e22089c04809c24839ca72f0ebdc";

const LCG: &str =
    "48b92d7f954c2df45158b80100000048ba4f8167f77e7b05140f1f8000000000480fafc14801d0483d3930000075f1";
const LCG_O0: &str = "48c745f801000000488b45f848ba2d7f954c2df45158480fafc248ba4f8167f77e7b05144801d0488945f848817df8393000007402ebd1";
const XORSHIFT: &str = "48b9447abfcb8d403901660f1f4400004889ca48c1e20d4831ca4889d048c1e8074831d04889c248c1e2114889d14831c14839c275dac3";
const SUM_O0: &str = "48c745f800000000c745f400000000eb218b45f44898488d148500000000488d057a2c00008b04024898480145f88345f401817df4ffff00007ed6c3";
const COUNT: &str = "b8000001000f1f0083e80175fbc3";
const FLOATS: &str = "660f28d8f20f59daf20f5ccb660f28d9f20f59daf20f58c3660f2fc476e2c3";
const CHASE: &str = "488b004885c075f8c3";
const CHASE_O0: &str = "488b45f0488b00488945f048837df00075eec3";
/// `for (i = 0; i < n; i++);` with n in the stack frame: it counts, and reads memory, but it does not wait for a write there.
const COUNT_TO_N_O0: &str = "8345fc018b45fc3b45f87cf4c3";
/// `while (*a == *b) a++, b++;`
const COMPARE: &str = "48ffc048ffc18a103a1174f6c3";
/// A ticket taken with `lock xadd`, again and again.
const TICKETS: &str = "b801000000f00fc10785c075f3c3";
/// `do { old = *p; } while (!cas(p, old, old + 1))`: if it fails, other threads made progress.
const INCREMENT: &str = "8b078d4801f00fb10f75f8c3";

/// `do { while ((seq = *s) & 1) pause; t = rdtsc; } while (*s != seq);`, as in the vDSO
const READS_TIME: &str = "eb02f3908b0f f6c10175f7 0f31 8b37 39ce 75ef c3";

#[test]
fn loops_that_wait() {
    for (name, code, at, expected) in [
        ("pause", PAUSE, 10, Purpose::Pauses),
        ("pause, at the test", PAUSE, 16, Purpose::Pauses),
        ("pause -O0", PAUSE_O0, 8, Purpose::Pauses),
        ("flag", FLAG, 0, Purpose::Polls),
        ("flag, at the test", FLAG, 6, Purpose::Polls),
        ("flag -O0", FLAG_O0, 11, Purpose::Polls),
        ("counted", COUNTED, 0x15, Purpose::PollsCounted),
        ("counted -O0", COUNTED_O0, 0x11, Purpose::PollsCounted),
        ("test and set", TEST_AND_SET, 12, Purpose::Polls),
        ("test and set -O0", TEST_AND_SET_O0, 20, Purpose::Polls),
        ("compare and swap", COMPARE_AND_SWAP, 13, Purpose::Polls),
        ("rdtsc", CLOCK, 20, Purpose::Clock),
        ("for (;;);", "90ebfe", 1, Purpose::Empty),
    ] {
        assert_eq!(x86(code, at), Some(expected), "{name}");
    }
}

#[test]
fn loops_that_work() {
    for (name, code, at) in [
        ("LCG", LCG, 32),
        ("LCG, at the comparison", LCG, 39),
        ("LCG -O0", LCG_O0, 12),
        ("xorshift", XORSHIFT, 16),
        ("xorshift, further on", XORSHIFT, 29),
        ("sum over an array -O0", SUM_O0, 0x11),
        ("count", COUNT, 8),
        ("count to n -O0", COUNT_TO_N_O0, 4),
        ("floating point", FLOATS, 0),
        ("list", CHASE, 3),
        ("list -O0", CHASE_O0, 4),
        ("compare strings", COMPARE, 6),
        ("tickets", TICKETS, 5),
        ("sequence count around a clock", READS_TIME, 11),
    ] {
        let found = x86(code, at);
        assert!(matches!(found, Some(Purpose::Works(_))), "{name}: {found:?}");
    }
    assert!(matches!(x86(INCREMENT, 5), None | Some(Purpose::Works(_))), "{:?}", x86(INCREMENT, 5));
    assert_eq!(x86("b80100000089c8c3", 0), None, "no loop");
}

#[test]
fn code_that_leaves_a_loop_is_no_part_of_it() {
    // 0: mov eax,[rdi]; test eax,eax; je 12; mov [rsi],eax; ret; 12: jmp 0
    let code = "8b0785c07403890690c3eb f4".replace(' ', "");
    assert_eq!(x86(&code, 0), None, "the jump goes elsewhere");
    let code = "8b0785c07404890690c3ebf4";
    assert_eq!(x86(code, 0), Some(Purpose::Polls));
}

#[test]
fn arm_code() {
    const LDR: u32 = 0xb940_0001; // ldr w1, [x0]
    const LDAR: u32 = 0x88df_fc01; // ldar w1, [x0]
    const CBZ_BACK_1: u32 = 0x34ff_ffe1; // cbz w1, -4
    const CBZ_BACK_2: u32 = 0x34ff_ffc1; // cbz w1, -8
    const YIELD: u32 = 0xd503_203f;
    const ISB: u32 = 0xd503_3fdf;
    const WFE: u32 = 0xd503_205f;
    assert_eq!(arm(&[LDR, CBZ_BACK_1], 0), Some(Purpose::Polls));
    assert_eq!(arm(&[LDAR, CBZ_BACK_1], 4), Some(Purpose::Polls));
    for pause in [YIELD, ISB, WFE] {
        assert_eq!(arm(&[pause, LDR, CBZ_BACK_2], 4), Some(Purpose::Pauses), "{pause:x}");
    }
    // add x1, x1, #1; cmp x1, x2 (subs xzr); b.ne -8
    assert!(matches!(arm(&[0x9100_0421, 0xeb02_003f, 0x54ff_ffc1], 0), Some(Purpose::Works(_))));
    // ldr w1, [x0]; cmp w1, #3; b.ne -8
    assert_eq!(arm(&[LDR, 0x7100_0c3f, 0x54ff_ffc1], 8), Some(Purpose::Polls));
    // ldr x0, [x0]; cbnz x0, -4: a list
    assert!(matches!(arm(&[0xf940_0000, 0xb5ff_ffe0], 0), Some(Purpose::Works(_))));
}

fn met(pid: u32, offset: u32, count: u64, same: u64) -> Met {
    Met { pid, offset, count, same, ..Met::default() }
}

fn row(code: &str, met: Vec<Met>) -> Spin {
    Spin { tgid: 7, code: code.into(), arch: "x86_64".into(), place: "f".into(), met, ..Spin::default() }
}

#[test]
fn a_loop_is_believed_only_with_the_second_opinion() {
    let unchanged = row(FLAG, vec![met(8, 0, 60, 58), met(9, 6, 40, 40)]);
    let found = seen(&[&unchanged]).waiting;
    let place = found.values().next().unwrap();
    assert_eq!((place.purpose, place.by_thread[&8], place.by_thread[&9]), (Purpose::Polls, 60, 40));
    assert!(
        !seen(&[&row(FLAG, vec![met(8, 0, 60, 3)])]).waiting.is_empty(),
        "it waits for another value each time"
    );
    assert!(
        seen(&[&row(TEST_AND_SET, vec![met(8, 12, 60, 3)])]).waiting.is_empty(),
        "it takes the lock at once"
    );
    assert!(!seen(&[&row(TEST_AND_SET, vec![met(8, 12, 60, 59)])]).waiting.is_empty(), "it does not get it");
    let far = format!("f390{}eb{:02x}", "90".repeat(60), 256 - 64);
    assert!(
        seen(&[&row(&far, vec![met(8, 50, 90, 0), met(8, 2, 3, 0)])]).waiting.is_empty(),
        "far from its pause"
    );
    assert!(!seen(&[&row(PAUSE, vec![met(8, 10, 9, 0)])]).waiting.is_empty());
}

#[test]
fn a_function_that_only_pauses_is_seen() {
    let found = seen(&[&row("f390c3", vec![met(8, 2, 9, 0)])]).waiting;
    assert_eq!(found.values().next().map(|place| place.purpose), Some(Purpose::Pauses));
}

/// A thread with `user` and `kernel` samples, 10 ms each, in a window of 10 s.
fn host(rows: Vec<Spin>, user: u64, kernel: u64) -> Fixture {
    let sample = |count, kernel: &[&str]| Sample {
        pid: 8,
        tgid: 7,
        comm: "t".into(),
        count,
        ns: count * 10_000_000,
        kernel: kernel.iter().map(|&f| f.to_owned()).collect(),
        ..Sample::default()
    };
    Fixture::window(std::time::Duration::from_secs(10)).with(|t| {
        t.samples = Some(vec![sample(user, &[]), sample(kernel, &["do_syscall_64"])]);
        t.tasks = Some(vec![Task { pid: 8, tgid: 7, voluntary: 3, ..Task::default() }]);
        t.spins = Some(rows);
    })
}

fn called(call: u32, kernel: u64, (seen, zero, again): (u64, u64, u64)) -> Spin {
    let inside = Met { pid: 8, offset: 40, call: Some(call), count: kernel, ..Met::default() };
    let behind = Met { pid: 8, offset: 40, call: None, count: seen, same: 0, zero, again };
    row("", vec![inside, behind])
}

fn one(host: &Fixture) -> Option<Process> {
    processes(&host.ev()).unwrap().into_iter().next()
}

#[test]
fn empty_calls_are_reported_by_what_they_return() {
    let (epoll, read, write) = (232, 0, 1);
    let found = one(&host(vec![called(epoll, 50, (10, 10, 0))], 20, 60)).expect("epoll_wait that returns 0");
    assert_eq!((found.sum.spun, found.sum.all), (60, 80));
    let around = Spin { at: 70_000, ..row("", vec![met(8, 3, 2, 0)]) };
    let found = one(&host(vec![called(epoll, 50, (10, 10, 0)), around], 12, 52)).unwrap();
    assert_eq!(found.sum.spun, 62, "with the little code around it");
    let some = Spin { at: 70_000, ..row("", vec![met(8, 3, 25, 0)]) };
    let found = one(&host(vec![called(epoll, 50, (10, 10, 0)), some], 35, 52)).unwrap();
    assert_eq!(found.sum.spun, 85, "the way from call to call");
    let computes = Spin { at: 70_000, ..row(CHASE, vec![met(8, 0, 25, 0)]) };
    let found = one(&host(vec![called(epoll, 50, (10, 10, 0)), computes], 35, 52)).unwrap();
    assert_eq!(found.sum.spun, 60, "a loop that computes is none");
    let work = Spin { at: 70_000, ..row("", vec![met(8, 3, 180, 0)]) };
    let found = one(&host(vec![called(epoll, 50, (10, 10, 0)), work], 190, 52)).unwrap();
    assert_eq!(found.sum.spun, 60, "without its work");
    assert!(found.places[0].0.contains("epoll_wait"), "{:?}", found.places);
    assert!(one(&host(vec![called(45, 50, (10, 0, 10))], 20, 60)).is_some(), "recv that returns EAGAIN");
    assert_eq!(one(&host(vec![called(epoll, 50, (10, 0, 0))], 20, 60)), None, "it finds events");
    assert_eq!(one(&host(vec![called(read, 50, (10, 0, 0))], 20, 60)), None, "dd");
    assert_eq!(one(&host(vec![called(write, 50, (10, 10, 0))], 20, 60)), None, "0 is no failure of write");
    assert_eq!(one(&host(vec![called(epoll, 50, (1, 1, 0))], 20, 60)), None, "seen once");
    assert_eq!(one(&host(vec![called(epoll, 15, (9, 9, 0))], 20, 60)), None, "too few");
    let two = vec![called(epoll, 50, (10, 10, 0)), Spin { at: 9000, ..called(read, 40, (10, 0, 0)) }];
    assert_eq!(one(&host(two, 20, 100)), None, "it reads, too");
}

#[test]
fn a_program_that_times_its_work_does_not_wait() {
    let (clock_gettime, work) = (228, Spin { at: 70_000, ..row("", vec![met(8, 3, 400, 0)]) });
    assert_eq!(one(&host(vec![called(clock_gettime, 50, (10, 10, 0)), work], 410, 50)), None);
    assert!(
        one(&host(vec![called(clock_gettime, 50, (10, 10, 0))], 10, 50)).is_some(),
        "it does nothing else"
    );
}

#[test]
fn yields_are_reported_by_how_many_there_must_have_been() {
    assert!(one(&host(vec![called(24, 50, (10, 10, 0))], 20, 60)).is_some(), "half a second of yields");
    let rare = called(24, 1, (0, 0, 0));
    let mut polite = host(vec![rare], 900, 1);
    assert_eq!(one(&polite), None, "2000 in 10 s at most");
    polite.0.tables.tasks.as_mut().unwrap()[0].voluntary = 50_000;
    polite.0.tables.spins = Some(vec![called(24, 50, (10, 10, 0))]);
    assert_eq!(one(&polite), None, "it sleeps as often");
}

/// A sequence count that is read again if the clock was just set: the loop goes round once.
#[test]
fn the_kernels_own_code_for_reading_a_clock_is_no_loop_that_waits() {
    let spun = |module: &str| {
        let clock = Spin { module: module.into(), ..row(CLOCK, vec![met(8, 20, 30, 0)]) };
        one(&host(vec![clock, Spin { at: 70_000, ..row("", vec![met(8, 3, 170, 0)]) }], 200, 1))
    };
    assert!(spun("/usr/bin/program").is_some());
    assert_eq!(spun("[vdso]"), None);
}

#[test]
fn a_clock_that_is_read_all_the_time_is_seen() {
    let clock = Spin { at: 90_000, module: "[vdso]".into(), ..row("", vec![met(8, 1, 70, 0)]) };
    let reader = row("", vec![met(8, 3, 20, 0)]);
    let found = one(&host(vec![clock.clone(), reader.clone()], 95, 1)).expect("nothing but the clock");
    assert_eq!(found.sum.spun, 90);
    assert_eq!(one(&host(vec![clock, reader], 200, 1)), None, "it does other things");
}

proptest! {
    #[test]
    fn no_code_makes_it_panic(code in prop::collection::vec(any::<u8>(), 0..256), at in 0usize..300) {
        let mut decoder = X86::new(&code);
        let around = Code::new(code.len(), |at| decoder.step(at)).around(at);
        around.as_ref().map(purpose);
        Code::new(code.len(), |at| arm64::step(&code, at)).around(at).as_ref().map(purpose);
    }

    #[test]
    fn no_row_makes_it_panic(code in "[0-9a-fx]{0,64}", at: u64, offset: u32, call: Option<u32>, count: u64) {
        let met = Met { pid: 8, offset, call, count, same: count, zero: count, again: count };
        let row = Spin { at, ..row(&code, vec![met.clone(), met]) };
        let arm = Spin { arch: "aarch64".into(), ..row.clone() };
        processes(&host(vec![row, arm], count.min(1 << 40), 3).ev()).unwrap();
    }
}
