//! Each fault, twin and false-positive control has the intended effect, by the victim's own clock alone. Drawn at random.

use std::io::Write as _;
use std::time::Duration;

use whyslow_faults::host::Calm;
use whyslow_faults::scenario::TestBed;
use whyslow_faults::{Draw, FaultKind, Fence, Form, Scenario, Truth, clock, host, thresholds};

const WITHOUT: Duration = Duration::from_millis(800);
const SETTLE: Duration = Duration::from_millis(1_000);
const WINDOW: Duration = Duration::from_millis(2_000);

/// The result of one measurement.
struct Seen {
    said: String,
    truth: Truth,
    counted: Option<u64>,
    failures: u64,
    disturbed: Option<String>,
}

fn measure(kind: FaultKind, form: Form, round: u64) -> std::io::Result<Seen> {
    let mut draw = Draw::of_run(&format!("{} {form:?}", kind.rule()), round);
    let fence = Fence::enter()?;
    let mut scenario = Scenario::set(&TestBed::alone(&fence), kind, form, &mut draw)?;
    scenario.work_without(WITHOUT);
    scenario.impose()?;
    std::thread::sleep(SETTLE);
    let calm = Calm::watch(Some(fence.top()))?;
    let before = scenario.counter()?;
    let window = clock::span_of(WINDOW);
    let counted = scenario.counter()?.zip(before).map(|(after, before)| after.saturating_sub(before));
    let disturbed = calm.disturbed(Some(fence.top()), Duration::ZERO)?;
    scenario.lift()?;
    scenario.work_without(WITHOUT);
    let drift = scenario.drift(window);
    let drifted = (form == Form::Twin && drift > thresholds::NO_FAULT)
        .then(|| format!("the rate changed by {:.0} % by itself", drift * 100.0));
    let disturbed = disturbed.or(drifted);
    fence.check_time()?;
    let failures = scenario.processes().map(|p| p.ledger().failures()).sum();
    Ok(Seen {
        said: format!("{draw} {scenario}"),
        truth: scenario.truth(window),
        counted,
        failures,
        disturbed,
    })
}

/// Noise of the host may spoil a measurement, but not `thresholds::TRIES` of them, unless other processes use the host all the time; and a
/// scenario may break down before it is measured.
fn holds(kind: FaultKind, form: Form, bar: impl Fn(&Truth) -> bool) {
    let say = |text: &str| drop(writeln!(std::io::stderr(), "{text}"));
    if !host::is_root() {
        return say(&format!("not run: {} {form:?} needs root", kind.rule()));
    }
    let (mut all, mut idle, mut measured, mut broken) = (String::new(), false, 0, 0);
    while measured < thresholds::TRIES && broken < thresholds::TRIES_OF_THE_BROKEN {
        // A reclaimer that finds every page in use may kill a victim (premature OOM on a starved host).
        let seen = match measure(kind, form, u64::from(measured + broken)) {
            Ok(seen) => seen,
            Err(err) => {
                broken += 1;
                all += &format!("\n{err}");
                continue;
            }
        };
        measured += 1;
        let reported =
            format!("{}: {}; counter {:?}; {:?}", seen.said, seen.truth, seen.counted, seen.disturbed);
        say(&reported);
        // A non-blocking connect to a full queue is no failure; every other failure is a broken test.
        assert_eq!(seen.failures, 0, "work failed: {reported}");
        let rises = form != Form::Control || seen.counted.is_none_or(|n| n > 0);
        if bar(&seen.truth) && rises {
            return;
        }
        idle |= seen.disturbed.is_none();
        all += &format!("\n{reported}");
    }
    assert!(!idle && measured > 0, "not what it says:{all}");
    say(&format!("HOST NOT IDLE, not passed: {} {form:?}", kind.rule()));
}

macro_rules! forms {
    ($($kind:ident: $fault:ident, $twin:ident, $control:ident;)*) => {$(
        #[test]
        fn $fault() {
            holds(FaultKind::$kind, Form::Fault, |truth| truth.share() >= thresholds::A_FAULT);
        }

        #[test]
        fn $twin() {
            holds(FaultKind::$kind, Form::Twin, |truth| truth.share() < thresholds::NO_FAULT);
        }

        #[test]
        fn $control() {
            holds(FaultKind::$kind, Form::Control, |truth| truth.share() < thresholds::NO_FAULT);
        }
    )*};
}

forms! {
    CpuQuota: root_a_cpu_quota_costs_time, root_an_ample_quota_costs_nothing,
        root_a_quota_that_throttles_a_punctual_task_costs_nothing;
    CpuPinned: root_pinning_busy_threads_costs_time, root_busy_threads_on_all_cpus_lose_nothing,
        root_pinning_threads_that_need_little_costs_nothing;
    MemoryLimit: root_rereading_past_a_memory_limit_costs_time, root_rereading_under_a_memory_limit_costs_nothing,
        root_streaming_through_a_memory_limit_costs_nothing;
    BlkioThrottle: root_throttled_io_costs_time, root_free_io_costs_nothing,
        root_throttled_io_of_a_punctual_task_costs_nothing;
    ListenOverflow: root_a_full_accept_queue_costs_clients_time, root_a_prompt_server_costs_clients_nothing,
        root_a_full_accept_queue_that_nobody_waits_for_costs_nothing;
    SwapIn: root_swapping_the_working_set_costs_time, root_memory_that_fits_costs_nothing,
        root_swapping_out_forgotten_pages_costs_nothing;
}
