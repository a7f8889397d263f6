//! Rows that are made up.

use super::*;

fn span(pid: u32, from: u64, at: u64, woken: u64, to: u64) -> sched_span {
    let mut mixed = [0; 8];
    mixed[1] = at - from;
    sched_span { pid, from, at, woken, to, state: 5, mixed, ..sched_span::default() }
}

fn total(rows: &Rows, pid: u32) -> u64 {
    let of = |s: &sched_span| s.mixed.iter().sum::<u64>() + s.to - s.at;
    rows.spans.iter().filter(|row| row.span.pid == pid).map(|row| of(&row.span)).sum()
}

fn touch(rows: &Rows, pid: u32) -> bool {
    let own: Vec<_> = rows.spans.iter().filter(|row| row.span.pid == pid).collect();
    own.windows(2).all(|pair| pair[0].span.to == pair[1].span.from)
}

#[test]
fn compacted_rows_hold_the_same_time() {
    let mut rows = Rows::default();
    let mut at = 0;
    for turn in 0..MOST as u64 * 3 {
        // One wait in a hundred is long.
        let wait = if turn % 100 == 0 { 20_000_000 } else { 150_000 + turn % 1_000 };
        rows.keep(SpanRow::of(span(7, at, at + 50_000, at + 50_000 + wait, at + 60_000 + wait)));
        at += 60_000 + wait;
    }
    assert!(rows.spans.len() < MOST);
    assert_eq!(total(&rows, 7), at);
    let long = rows.spans.iter().filter(|row| row.span.woken - row.span.at == 20_000_000).count();
    assert_eq!(long, MOST * 3 / 100, "long waits stay");
    assert!(touch(&rows, 7), "rows touch");
}

fn name(letter: u8) -> Comm {
    let mut comm = Comm::default();
    comm[0] = letter as c_char;
    comm
}

/// A parent makes children one after another and waits for each; each lives in two rows. An hour and a half at a hundred a
/// second; `exits` goes through all of it, and here all bounds are reached in the first minutes.
#[test]
fn many_births_have_a_bound_and_the_parent_says_for_whom_it_waited() {
    const BIRTHS: u64 = 600_000;
    let mut rows = Rows::default();
    let (mut at, mut most) = (0, 0);
    let mut waited = [0u64; 3];
    for n in 0..BIRTHS {
        let of = (n % 3) as usize;
        let (pid, ns) =
            (100 + (n % 32_000) as u32, [1, 2, 5][of] * 1_000_000 + n.wrapping_mul(7919) % 100_000);
        rows.keep(SpanRow::of(span(pid, at + 1_000, at + 2_000, at + ns / 2, at + ns / 2)));
        let last = sched_span { ended: 1, state: 0, ..span(pid, at + ns / 2, at + ns, at + ns, at + ns) };
        rows.keep(SpanRow::of(last));
        let (key, comm) = (at, name(b'a' + of as u8));
        rows.wakes.insert((7, key), WakeRow { waker: pid, context: 1, comm, ..WakeRow::default() });
        rows.keep(SpanRow::of(sched_span { key, ..span(7, at, at + 500, at + ns, at + ns + 500) }));
        waited[of] += ns - 500;
        at += ns + 500;
        most = most.max(rows.spans.len().max(rows.wakes.len()));
    }
    assert!(most <= 2 * MOST, "{most} rows");
    assert_eq!(total(&rows, 7), at, "no time is lost");
    assert!(touch(&rows, 7));
    for (of, waited) in waited.into_iter().enumerate() {
        let is_its = |row: &&SpanRow| {
            let wake = rows.wakes.get(&(row.span.pid, row.span.key));
            row.span.pid == 7 && wake.is_some_and(|wake| wake.comm == name(b'a' + of as u8))
        };
        let reported: u64 =
            rows.spans.iter().filter(is_its).map(|row| row.stands.max(row.span.woken - row.span.at)).sum();
        let off = reported.abs_diff(waited) as f64 / waited as f64;
        assert!(off < 0.02, "for command {of} it waited {waited}, and {reported} is reported");
    }
}

#[test]
fn as_many_tasks_as_there_are_slots_do_not_make_each_row_cost_a_copy_of_all() {
    let mut rows = Rows::default();
    let mut compactions = 0;
    for n in 0..700_000u64 {
        let before = rows.spans.len();
        rows.keep(SpanRow::of(span((n % 65_536) as u32, n * 10, n * 10 + 1, n * 10 + 2, n * 10 + 3)));
        compactions += u64::from(rows.spans.len() < before);
        assert!(rows.spans.len() <= 2 * MOST);
    }
    assert!(compactions <= 700_000 / (MOST as u64 / 4) + 1, "{compactions} times");
}

#[test]
fn runs_have_a_bound_and_the_longest_stay() {
    let mut rows = Rows::default();
    for n in 0..3 * MOST_RUNS as u64 {
        let ns = if n % 1_000 == 0 { 9_000_000 } else { 600_000 + n % 7 };
        rows.note_run(sched_run { pid: 1, from: n << 24, to: (n << 24) + ns, ..sched_run::default() });
    }
    assert!(rows.runs.len() <= MOST_RUNS);
    let long = rows.runs.iter().filter(|run| run.to - run.from == 9_000_000).count();
    assert_eq!(long, 3 * MOST_RUNS / 1_000);
}

#[test]
fn a_stack_is_kept_once() {
    let mut rows = Rows::default();
    assert_eq!(rows.stack_of(16, &[1, 2, 9]), Some(0));
    assert_eq!(rows.stack_of(24, &[1, 2, 9]), Some(1));
    assert_eq!(rows.stack_of(16, &[1, 2]), Some(0));
    assert_eq!(rows.stack_of(-14, &[1, 2]), None);
    assert_eq!(rows.stack_of(800, &[1, 2]), Some(0), "deeper than what came");
    assert_eq!(rows.stack(7), &[] as &[u64]);
}

#[test]
fn torn_records_are_dropped() {
    let mut rows = Rows::default();
    for size in 0..700 {
        rows.note(&vec![0; size]);
    }
    assert!(rows.spans.len() <= 2 && rows.runs.len() <= 1);
}

/// Half of the room is free after it is full, in whatever order runs come, and the longer ones stay.
#[test]
fn of_too_many_runs_the_shorter_half_goes_also_where_they_are_alike() {
    let run = |ns: u64| sched_run { from: 0, to: ns, ..sched_run::default() };
    let of = |length: fn(usize) -> u64| {
        let mut rows = Rows::default();
        (0..=MOST_RUNS).for_each(|at| rows.note_run(run(length(at))));
        let longer = rows.runs.iter().filter(|run| run.to > 4_000_000).count();
        (rows.runs.len(), longer)
    };
    assert_eq!(of(|_| 4_000_000), (MOST_RUNS / 2 + 1, 0), "all alike");
    const LONGER: usize = MOST_RUNS / 2 - 10;
    let alike_first = |at: usize| if at < MOST_RUNS - LONGER { 4_000_000 } else { 5_000_000 };
    assert_eq!(of(alike_first), (MOST_RUNS / 2 + 1, LONGER + 1), "those that are alike come first");
    assert_eq!(of(|at| at as u64).0, MOST_RUNS / 2 + 1, "all different");
}

fn words(rows: &Rows) -> Vec<String> {
    rows.missing().iter().map(ToString::to_string).collect()
}

#[test]
fn runs_that_were_let_go_are_counted_and_reported() {
    let mut rows = Rows::default();
    for n in 0..MOST_RUNS as u64 {
        rows.note_run(sched_run { from: 0, to: 500_000 + n, ..sched_run::default() });
    }
    assert_eq!(words(&rows), Vec::<String>::new());
    rows.note_run(sched_run { from: 0, to: 9_000_000, ..sched_run::default() });
    assert_eq!(rows.runs.len() as u64 + rows.dropped.runs, MOST_RUNS as u64 + 1);
    let reported = "some runs on CPUs was skipped: 100000 were dropped, none of them longer than 0.6 ms, for want of room";
    assert_eq!(words(&rows), [reported]);
}

#[test]
fn stacks_that_had_no_room_are_counted_and_reported() {
    let mut rows = Rows::default();
    for n in 0..MOST_STACKS as u64 {
        assert!(rows.stack_of(8, &[n]).is_some());
    }
    assert_eq!(words(&rows), Vec::<String>::new());
    assert_eq!((rows.stack_of(8, &[u64::MAX]), rows.stack_of(8, &[3])), (None, Some(3)));
    assert_eq!(words(&rows).len(), 1, "{:?}", words(&rows));
}
