//! Which CPUs are flagged as slow, and which are not, whatever the noise.

use proptest::prelude::*;
use whyslow_model::table::{Loop, Speed};

use super::*;
use crate::cpu::speed::measured_tests::{WINDOW, speed};
use crate::evidence::fixture::Fixture;

fn host(rows: Vec<Speed>) -> Fixture {
    Fixture::window(std::time::Duration::from_nanos(WINDOW)).with(|t| t.speeds = Some(rows))
}

fn flagged(fixture: &Fixture) -> Vec<(u32, Against)> {
    let speeds = CpuSpeeds::of(&fixture.ev()).unwrap();
    speeds.measured.iter().filter_map(|seen| Some((seen.cpu, speeds.judge(seen)?.against))).collect()
}

#[test]
fn one_slow_cpu_of_four_and_one_of_two_are_found() {
    let three = [(0, 4000), (1, 4100), (3, 3900)].map(|(cpu, mhz)| speed(cpu, mhz, 0.0));
    let slow = host([three.to_vec(), vec![speed(2, 2700, 0.0)]].concat());
    assert_eq!(flagged(&slow), [(2, Against::Median)]);
    assert_eq!(flagged(&host(vec![speed(0, 4000, 0.0), speed(1, 2700, 0.0)])), [(1, Against::Median)]);
    assert_eq!(flagged(&host(three.to_vec())), []);
}

#[test]
fn all_slow_alike_are_found_by_nominal_by_a_baseline_or_by_what_is_taken() {
    let alike = |mhz, taken| vec![speed(0, mhz, taken), speed(1, mhz, taken)];
    assert_eq!(flagged(&host(alike(1200, 0.0))), [(0, Against::Nominal), (1, Against::Nominal)]);
    assert_eq!(flagged(&host(alike(9000, 0.6))), [(0, Against::Itself), (1, Against::Itself)]);
    let emulated =
        |taken| alike(9000, taken).into_iter().map(|row| Speed { cycle_exact: false, ..row }).collect();
    assert_eq!(flagged(&host(emulated(0.4))), [], "its interrupts take that much");
    assert_eq!(flagged(&host(emulated(0.6))), [(0, Against::Itself), (1, Against::Itself)]);
    let (slow, before) = (host(alike(2700, 0.0)), host(alike(4300, 0.0)));
    assert_eq!(flagged(&slow), []);
    let speeds = CpuSpeeds::of(&slow.ev().beside(Some(&before.0))).unwrap();
    let verdict = speeds.judge(&speeds.measured[0]).unwrap();
    assert_eq!(verdict.against, Against::Baseline);
    assert!((verdict.ratio - 4300.0 / 2700.0).abs() < 0.01);
}

#[test]
fn cores_of_another_sort_are_not_compared() {
    let mixed =
        host(vec![speed(0, 5000, 0.0), speed(1, 5000, 0.0), speed(2, 3600, 0.0), speed(3, 3600, 0.0)])
            .end("sys/devices/cpu_atom/cpus", "2-3\n");
    assert_eq!(flagged(&mixed), []);
}

#[test]
fn the_clock_of_an_idle_cpu_is_not_judged() {
    let stat =
        |busy: u64, idle: u64| format!("cpu  {busy} 0 0 {idle} 0 0 0 0\ncpu1 {busy} 0 0 {idle} 0 0 0 0\n");
    let policy = "sys/devices/system/cpu/cpufreq/policy1";
    let with = |idle: u64| {
        host(vec![speed(0, 4000, 0.0), speed(1, 1000, 0.0)])
            .start("proc/stat", &stat(0, 0))
            .end("proc/stat", &stat(1000 - idle, idle))
            .end(&format!("{policy}/scaling_driver"), "intel_pstate\n")
            .end(&format!("{policy}/affected_cpus"), "1\n")
    };
    assert_eq!(flagged(&with(990)), []);
    assert_eq!(flagged(&with(500)).len(), 1);
}

#[test]
fn one_loop_that_slips_in_between_interrupts_hides_nothing_but_where_the_others_are_spoilt_too() {
    let with_one_let_alone = |cpu| {
        let mut row = speed(cpu, 4000, 0.7);
        for at in [1, 8] {
            row.loops[at] = Loop { at_ns: row.loops[at].at_ns, ..speed(cpu, 4000, 0.0).loops[at] };
        }
        row
    };
    let calm = host(vec![speed(0, 4000, 0.0), with_one_let_alone(1)]);
    assert_eq!(flagged(&calm), [(1, Against::Median)]);
    let all = host(vec![with_one_let_alone(0), with_one_let_alone(1)]);
    assert_eq!(flagged(&all), []);
}

/// Two loops of 2 ms at each visit: both fit between interrupts, once in each half.
#[test]
fn a_visit_that_slips_in_hides_nothing_unless_it_does_so_in_each_half() {
    let in_pairs = |let_alone: &[usize]| {
        let mut row = speed(1, 4000, 0.7);
        for (at, turn) in row.loops.iter_mut().enumerate() {
            let source = if let_alone.contains(&at) { 0.0 } else { 0.7 };
            let at_ns = (at as u64 / 2) * WINDOW / 6 + (at as u64 % 2) * 2_000_000;
            *turn = Loop { at_ns, ..speed(1, 4000, source).loops[at] };
        }
        flagged(&host(vec![speed(0, 4000, 0.0), row]))
    };
    assert_eq!(in_pairs(&[2, 3]), [(1, Against::Median)]);
    assert_eq!(in_pairs(&[2, 3, 8, 9]), [], "a third of its loops runs without interruption");
}

#[test]
fn a_burst_in_one_half_flags_nobody() {
    let mut row = speed(1, 4000, 0.0);
    for turn in row.loops.iter_mut().filter(|turn| turn.at_ns < WINDOW / 2) {
        turn.work /= 3;
        turn.pieces /= 3;
    }
    assert_eq!(flagged(&host(vec![speed(0, 4000, 0.0), row])), []);
}

/// A CPU of a healthy host at a load of 20: loops wait for the CPU, and most are interrupted by the kernel and by a hypervisor;
/// each third one runs without interruption.
fn busy(cpu: u32, noise: &[(u64, u64)], per_mille: u64) -> Speed {
    let mut row = speed(cpu, 4000, 0.0);
    for (at, (turn, (wait, taken))) in row.loops.iter_mut().zip(noise).enumerate() {
        let taken = if at % 3 == 0 { 0 } else { taken % 8_000_000 };
        let cpu_ns = turn.cpu_ns + turn.cpu_ns * per_mille / 1000 + taken;
        let wait = wait % 80_000_000;
        *turn = Loop { wall_ns: cpu_ns + wait, cpu_ns, wait_ns: Some(wait), ..*turn };
    }
    row
}

proptest! {
    #[test]
    fn noise_on_healthy_cpus_flags_none(
        noise in prop::collection::vec(prop::collection::vec(any::<(u64, u64)>(), 12), 2..8),
        jitter in prop::collection::vec(0u64..40, 8),
    ) {
        let rows = noise.iter().zip(&jitter).zip(0u32..).map(|((noise, jitter), cpu)| busy(cpu, noise, *jitter));
        prop_assert_eq!(flagged(&host(rows.collect())), vec![]);
    }

    #[test]
    fn a_cpu_that_is_slow_throughout_is_flagged_whatever_the_noise(
        noise in prop::collection::vec(0u64..30_000_000, 12), mhz in 500u64..3000, cpus in 2u32..8,
    ) {
        let mut slow = speed(0, mhz, 0.0);
        for (turn, wait) in slow.loops.iter_mut().zip(&noise) {
            turn.wall_ns += wait;
            turn.wait_ns = Some(*wait);
        }
        let rows = std::iter::once(slow).chain((1..cpus).map(|cpu| speed(cpu, 4000, 0.0)));
        prop_assert_eq!(flagged(&host(rows.collect())), vec![(0, Against::Median)]);
    }
}
