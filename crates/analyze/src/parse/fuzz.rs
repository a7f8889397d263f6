//! No text makes a parser panic: arbitrary texts, random bytes, and mutants of real texts, fed to every parser.

use std::hash::{BuildHasher, RandomState};

use proptest::prelude::*;

use super::*;

/// Real texts; each is fed, mutated, to every parser, not only to its own.
const TEXTS: &[&str] = &[
    buddyinfo::tests::HERE,
    cgroups::tests::HERE,
    choice::tests::PREEMPT,
    choice::tests::THP,
    cmdline::tests::HERE,
    cpuinfo::tests::HERE,
    cpulist::tests::MANY,
    diskstats::tests::HERE,
    diskstats::tests::OLD,
    flat::tests::EVENTS,
    flat::tests::HERE,
    interrupts::tests::HERE,
    interrupts::tests::SOFTIRQS,
    keyed::tests::HERE,
    keyed::tests::IO,
    kmsg::tests::HERE,
    kmsg::tests::WITH_MORE,
    kubelet::tests::STATIC,
    loadavg::tests::HERE,
    modules::tests::DEBIAN,
    mountinfo::tests::ESCAPED,
    mountinfo::tests::HERE,
    pid_schedstat::tests::HERE,
    pid_stat::tests::HERE,
    pid_stat::tests::KTHREAD,
    pid_status::tests::HERE,
    netstat::tests::SNMP,
    softnet::tests::V6_18,
    pressure::tests::HERE,
    pressure::tests::IRQ,
    stat::tests::HERE,
    stat::tests::OLD,
    zoneinfo::tests::HERE,
];

/// Mutants fed in one run: about two seconds.
const MUTANTS: u32 = 150_000;

/// xorshift64*: the tests need no more, and a printed seed repeats it.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Things that break parsers.
const NASTY: &[&str] = &[
    "18446744073709551616",
    "18446744073709551615",
    "-1",
    "4294967296",
    "",
    " ",
    "\n",
    "\t",
    ":",
    ",",
    "-",
    "=",
    "/",
    "(",
    ")",
    "[",
    "]",
    "\\",
    "\\04",
    "\"",
    "\0",
    "\u{fffd}",
    "max",
    "cpu",
    "CPU",
    "Node ",
    " - ",
    "0-4294967295",
    "nan",
    "inf",
    "1e999",
];

fn mutant(dice: &mut Dice) -> Vec<u8> {
    let mut bytes = TEXTS[dice.below(TEXTS.len())].as_bytes().to_vec();
    for _ in 0..=dice.below(6) {
        let at = dice.below(bytes.len());
        let end = (at + dice.below(12)).min(bytes.len());
        match dice.below(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.extend_from_within(at..end),
            3 => drop(bytes.splice(at..end, NASTY[dice.below(NASTY.len())].bytes())),
            4 => drop(bytes.splice(at..at, (0..4).map(|_| dice.next() as u8))),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
        }
    }
    bytes
}

#[test]
fn no_mutant_of_a_real_text_makes_a_parser_panic() {
    #[expect(clippy::disallowed_methods, reason = "repeats a failed run: WHYSLOW_SEED=<seed>")]
    let given = std::env::var("WHYSLOW_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0)) | 1;
    println!("WHYSLOW_SEED={seed}");
    let mut dice = Dice(seed);
    for _ in 0..MUTANTS {
        let bytes = mutant(&mut dice);
        for (name, parse) in ALL {
            let fed = std::panic::catch_unwind(|| parse(&bytes));
            assert!(fed.is_ok(), "{name} panicked; WHYSLOW_SEED={seed}; text {:?}", text(&bytes));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for (_, parse) in ALL {
            parse(&bytes);
        }
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "(([a-z_A-Z]{0,6}|[0-9]{0,21}|[-:=,;/()\\[\\] \t]){0,12}\n){0,5}") {
        for (_, parse) in ALL {
            parse(text.as_bytes());
        }
    }
}

#[test]
fn parsers_are_listed_once_and_in_order() {
    assert!(ALL.windows(2).all(|two| two[0].0 < two[1].0), "sorted, so that a missing one is seen");
}
