use std::time::Duration;

use super::*;

const TEXT: &str = "file poem inside=2 act=take lock=quire how=write for=0 count=100 total_ns=324182877 max_ns=36595383
lock quire by=poet how=write meanwhile=spin for=30000 every=100000 count=28 total_ns=1277459403 max_ns=303856222
work merge_notes label=blurb meanwhile=sleep for=25000 count=80 total_ns=3088959577 max_ns=323901307
irqs cpu=1 form=timer by=folio for=20000 every=100000 count=77 total_ns=1991091945 max_ns=99875634
idle cpu=0 from=2 for=20000 count=3 total_ns=60000000 max_ns=21000000
idle cpu=1 from=2 for=20000 count=337 total_ns=8766525193 max_ns=301759659
msr cpu=1 bound=1 value=2 count=7 total_ns=69244 max_ns=14862
";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn grip(lock: &str, shared: bool) -> Grip {
    Grip { lock: lock.into(), shared }
}

fn faults() -> Vec<(Fault, &'static str, &'static str)> {
    let by = Interrupter::Thread("novel".into());
    let take = Meanwhile::Take(grip("porch", true));
    let held = |meanwhile| Fault::Held {
        grip: grip("annex", true),
        lasts: ms(30),
        every: ms(100),
        by: "poet".into(),
        meanwhile,
    };
    let file = |act| Fault::File { name: "poem".into(), act };
    let work = Fault::Work { work: "merge_notes".into(), lasts: ms(25), spins: false, label: "blurb".into() };
    let slow = Fault::SlowCpu {
        cpus: vec![0, 1],
        percent: 75,
        every: Duration::from_micros(500),
        when: When::Lowest,
    };
    let (irqs, every) = (Fault::IrqsOff { cpu: 1, lasts: ms(20), every: ms(100), by }, ms(100));
    let timer = Fault::IrqsOff { cpu: 0, lasts: ms(20), every, by: Interrupter::Timer };
    let by = Interrupter::BottomHalves("essay".into());
    let halves = Fault::IrqsOff { cpu: 1, lasts: ms(20), every, by };
    vec![
        (halves, "irqs cpu=1 for=20000 every=100000 form=halves by=essay", "irqs cpu=1 off"),
        (irqs, "irqs cpu=1 for=20000 every=100000 form=thread by=novel", "irqs cpu=1 off"),
        (timer, "irqs cpu=0 for=20000 every=100000 form=timer", "irqs cpu=0 off"),
        (
            Fault::LateWake { cpus: vec![0, 1], from: 2, lasts: ms(20) },
            "idle cpus=0,1 from=2 for=20000",
            "idle off",
        ),
        (
            held(Meanwhile::Spin),
            "lock annex:read for=30000 every=100000 by=poet meanwhile=spin",
            "lock off by=poet",
        ),
        (
            held(take),
            "lock annex:read for=30000 every=100000 by=poet meanwhile=take:porch:read",
            "lock off by=poet",
        ),
        (work, "work merge_notes for=25000 meanwhile=sleep label=blurb", "work merge_notes off"),
        (file(Act::Sleep(ms(3))), "file poem sleep=3000", "file poem off"),
        (file(Act::Spin(ms(3))), "file poem spin=3000", "file poem off"),
        (file(Act::Take(grip("quire", false), ms(0))), "file poem take=quire for=0", "file poem off"),
        (file(Act::Flush("stamp_rows".into())), "file poem flush=stamp_rows", "file poem off"),
        (file(Act::Await("stamp_rows".into())), "file poem await=stamp_rows", "file poem off"),
        (file(Act::Gate), "file poem gate", "file poem off"),
        (Fault::PStateMsr { aperf: false }, "msr on", "msr off"),
        (Fault::PStateMsr { aperf: true }, "msr on aperf", "msr off"),
        (slow, "pace cpus=0,1 share=75 every=500 when=lowest", "pace off"),
    ]
}

#[test]
fn each_fault_has_its_line_and_the_line_that_ends_it() {
    for (fault, on, off) in faults() {
        assert_eq!((fault.on().as_str(), fault.off().as_str()), (on, off));
    }
}

#[test]
fn each_fault_finds_its_counters() {
    let counts: Vec<Count> = TEXT.lines().filter_map(Count::parse).collect();
    assert_eq!(counts.len(), 7);
    let times: Vec<u64> = faults().iter().map(|(fault, ..)| fault.count(&counts).times).collect();
    assert_eq!(times, [77, 77, 0, 340, 28, 28, 80, 100, 100, 100, 100, 100, 100, 7, 7, 0]);
    let late = Fault::LateWake { cpus: vec![0, 1], from: 2, lasts: ms(20) }.count(&counts);
    assert_eq!(late.total, Duration::from_nanos(8_826_525_193));
    assert_eq!(late.longest, Duration::from_nanos(301_759_659));
    assert_eq!(counts.first().map(|file| (file.name.as_deref(), file.inside)), Some((Some("poem"), 2)));
}

#[test]
fn a_torn_line_is_no_counter_and_no_text_makes_it_panic() {
    for line in TEXT.lines() {
        for end in 0..line.rfind('=').unwrap_or(0) {
            assert_eq!(line.get(..end).and_then(Count::parse), None);
        }
    }
    assert_eq!(Count::parse(""), None);
    assert_eq!(Count::parse("irqs cpu=-1 max_ns=3"), None);
    assert_eq!(Count::parse("irqs count=99999999999999999999999 max_ns=3"), None);
}

/// The lists here and the tables of the module's sources say the same.
#[test]
fn the_module_has_the_names() {
    let shelves = include_str!("../../../module/lock.c");
    let kinds = [(&MUTEXES[..], "MUTEX"), (&RWSEMS[..], "RWSEM"), (&PERCPU_RWSEMS[..], "PERCPU")];
    for (names, kind) in kinds {
        for name in names {
            assert!(shelves.contains(&format!("{{ \"{name}\", {kind}, {{ &{name} }} }}")), "{name}");
        }
    }
    for name in WORKS {
        assert!(include_str!("../../../module/work.c").contains(&format!("JOB({name})")), "{name}");
    }
}

#[test]
fn the_module_has_the_functions() {
    let sources = [
        include_str!("../../../module/irqs.c"),
        include_str!("../../../module/idle.c"),
        include_str!("../../../module/lock.c"),
        include_str!("../../../module/work.c"),
        include_str!("../../../module/file.c"),
        include_str!("../../../module/msr.c"),
        include_str!("../../../module/pace.c"),
    ];
    for (fault, ..) in faults() {
        let function = fault.function();
        let said = [format!(" {function}("), format!("JOB({function})")];
        assert!(
            sources.iter().any(|source| said.iter().any(|said| source.contains(said.as_str()))),
            "{function}"
        );
    }
}
