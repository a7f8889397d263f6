//! The cells of a proof: tests on the host, scenarios in guests, and the programs of the wait chains in guests.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::Path;
use std::time::{Duration, Instant};

use whyslow_faults::Draw;
use whyslow_faults::proven::{self, Ended, Row};

use super::Asked;
use super::kept::Made;
use super::resources;
use crate::live::binary::{self, Binary, Ran};
use crate::live::{ALONE, COSTS};
use crate::rounds::{self, Runner};
use crate::scenario::{Scenario, Sort};
use crate::{Trouble, place, table, truth};

/// A test that runs longer hangs.
const LIMIT: Duration = Duration::from_secs(300);
/// Test binaries of whyslow that draw anew each time.
const DRAWN: [&str; 2] = ["proof", LOCK_CHAINS];
const WHYSLOW: &str = "whyslow";
/// Its tests are one suite, on the host and in guests.
const LOCK_CHAINS: &str = "lock_chains";
const LAB: &str = "lab";
const LIVE: &str = "live";
const OF_COSTS: &str = "costs";
/// Characters of a failure's reason that are printed.
const WORDS: usize = 200;
/// Tests that a proof draws from each suite.
const OF_SUITE: usize = 16;
/// Scenarios that a proof draws of each sort.
const PARTS: [(Sort, usize); 3] = [(Sort::Fault, 8), (Sort::Control, 5), (Sort::Double, 1)];
/// Wait chains that it draws in guests, besides the heaviest load.
const IN_GUESTS: usize = 3;

/// One cell to make.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its identity, the same in each proof.
    pub key: String,
    /// The suite that counts it.
    suite: String,
    /// The kernel that it runs on.
    kernel: String,
    how: How,
}

/// How it is made.
#[derive(Debug, Clone)]
enum How {
    Test { binary: Binary, name: String },
    Scenario { scenario: Box<Scenario>, kernel: String },
    Chain { name: String, kernel: String },
}

/// The subject of the proof: the commit, the programs, and the request. Results of another subject do not count.
pub fn subject(asked: &Asked) -> Result<Vec<String>, Trouble> {
    let mut of = vec![format!("commit {}", asked.commit.as_deref().unwrap_or_default())];
    let tests = Binary::all(&asked.binaries)?.into_iter().filter(is_drawn);
    for program in tests.map(|binary| binary.path).chain([place::whyslow()?, place::lab()?]) {
        let bytes = std::fs::read(&program)
            .map_err(|err| Trouble::new(format!("read {}", program.display()), err))?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        of.push(format!("{name} {:x}", hasher.finish()));
    }
    // Other sets, other bars.
    let not_asked = ["WHYSLOW_SEED", "WHYSLOW_ANEW", proven::FILE];
    let settings = std::env::vars().filter(|(name, _)| name.starts_with("WHYSLOW_"));
    let settings = settings.filter(|(name, _)| !not_asked.contains(&name.as_str()));
    of.extend(settings.map(|(name, value)| format!("{name}={value}")));
    of.sort();
    Ok(of)
}

/// Scenarios for this host are a suite of their own.
fn suite_of(scenario: &Scenario) -> &'static str {
    if scenario.name.starts_with("live-") { LIVE } else { LAB }
}

/// Drawn, one of each sort in turn: tests of one name in several modules are a sort, and all others together are another.
fn in_turn(tests: Vec<Item>, draw: &mut Draw) -> Vec<Item> {
    let name = |test: &Item| test.key.rsplit("::").next().unwrap_or_default().to_owned();
    let mut sorts: BTreeMap<String, Vec<Item>> = BTreeMap::new();
    for test in tests {
        sorts.entry(name(&test)).or_default().push(test);
    }
    let (single, mut sorts): (Vec<_>, Vec<_>) = sorts.into_values().partition(|sort| sort.len() == 1);
    sorts.push(single.into_iter().flatten().collect());
    let mut sorts: Vec<_> = sorts.iter().map(|sort| draw.some(sort.len(), sort).into_iter()).collect();
    let longest = sorts.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    (0..longest).flat_map(|_| sorts.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>()).collect()
}

fn is_drawn(binary: &Binary) -> bool {
    binary.package() == WHYSLOW && DRAWN.contains(&binary.target.as_str())
}

/// The place where cells are made.
pub struct Bench {
    asked: Asked,
    tests: binary::How,
    scenarios: Vec<Scenario>,
    runner: Runner,
    chains: truth::Programs,
    draw: Draw,
    /// The kernel of this host.
    host: String,
}

impl Bench {
    /// With the binaries that were built here.
    pub fn here(asked: &Asked, seed: u64) -> Result<Self, Trouble> {
        let project = place::project()?;
        let scenarios = Scenario::of(&project)?;
        let binaries = Binary::all(&asked.binaries)?;
        let chains = binaries.into_iter().find(|binary| binary.target == LOCK_CHAINS);
        let chains =
            chains.ok_or_else(|| Trouble::new("find the wait chains", "there is no such test binary"))?;
        Ok(Bench {
            asked: asked.clone(),
            tests: binary::How { seed, whyslow: place::whyslow()?, set: Vec::new(), limit: LIMIT },
            scenarios,
            runner: Runner::here(&rounds::Asked::default(), project)?,
            chains: truth::Programs::of(chains.path, seed)?,
            draw: Draw::with(seed),
            host: running()?,
        })
    }

    fn wants(&self, suite: &str) -> bool {
        self.asked.suite.as_ref().is_none_or(|wanted| wanted == suite)
    }

    /// Whether the request names the suite that takes its cells from other suites.
    fn of_resources(&self) -> bool {
        self.asked.suite.as_deref() == Some(resources::SUITE)
    }

    /// The suite that counts a scenario; `None`: not requested.
    fn counts_in(&self, scenario: &Scenario) -> Option<&'static str> {
        match self.of_resources() {
            true => resources::has_scenario(&scenario.name).then_some(resources::SUITE),
            false => Some(suite_of(scenario)).filter(|suite| self.wants(suite)),
        }
    }

    /// All requested and drawn cells.
    pub fn items(&self) -> Result<Vec<Item>, Trouble> {
        let mut tests = Vec::new();
        for binary in Binary::all(&self.asked.binaries)?.iter().filter(|binary| is_drawn(binary)) {
            self.add_tests(binary, &ALONE, &mut tests)?;
        }
        if self.of_resources() {
            resources::check(tests.iter().filter_map(|test| test.key.split(' ').next_back()))?;
        }
        let mut items = self.some_of_each(tests);
        let scenarios = self.scenarios().into_iter();
        let scenarios = scenarios.filter_map(|(one, kernel)| Some((one, kernel, self.counts_in(one)?)));
        let scenarios: Vec<Item> =
            scenarios.map(|(one, kernel, suite)| self.scenario(one, kernel, suite)).collect();
        if self.of_resources() && scenarios.is_empty() {
            return Err(Trouble::new("find scenarios of resources", "there are none"));
        }
        items.extend(scenarios);
        if self.wants(LOCK_CHAINS) {
            items.extend(self.chains()?);
        }
        if let Some(costs) = self.asked.costs.as_ref().filter(|_| self.wants(OF_COSTS)) {
            for binary in Binary::all(costs)? {
                self.add_tests(&binary, &COSTS, &mut items)?;
            }
        }
        if items.is_empty() {
            return Err(Trouble::new("draw cells", "there is no such suite"));
        }
        Ok(items)
    }

    fn add_tests(&self, binary: &Binary, kinds: &[&str], items: &mut Vec<Item>) -> Result<(), Trouble> {
        for name in binary.names(kinds)? {
            let (module, is_cost) = (name.split("::").next().unwrap_or_default(), kinds == COSTS);
            let suite = match binary.target.as_str() {
                _ if is_cost => OF_COSTS,
                LOCK_CHAINS => LOCK_CHAINS,
                _ if self.of_resources() && resources::has_test(&name) => resources::SUITE,
                _ => module,
            };
            if self.wants(suite) {
                items.push(Item {
                    key: format!("{}{} {name}", binary.target, if is_cost { " (costs)" } else { "" }),
                    suite: suite.to_owned(),
                    kernel: self.host.clone(),
                    how: How::Test { binary: binary.clone(), name },
                });
            }
        }
        Ok(())
    }

    /// A few tests of each suite, or all.
    fn some_of_each(&self, tests: Vec<Item>) -> Vec<Item> {
        let mut suites: BTreeMap<String, Vec<Item>> = BTreeMap::new();
        for test in tests {
            suites.entry(test.suite.clone()).or_default().push(test);
        }
        let most = if self.asked.all || self.of_resources() { usize::MAX } else { OF_SUITE };
        let some = |(suite, tests): (String, Vec<Item>)| {
            let mut tests = in_turn(tests, &mut self.draw.branch(&suite));
            tests.truncate(most);
            tests
        };
        suites.into_iter().flat_map(some).collect()
    }

    fn scenario(&self, scenario: &Scenario, kernel: &str, suite: &str) -> Item {
        let on = if kernel == rounds::HOST { self.host.clone() } else { kernel.to_owned() };
        let (key, kernel) = (format!("{LAB} {} {kernel}", scenario.name), kernel.to_owned());
        let how = How::Scenario { scenario: Box::new(scenario.clone()), kernel };
        Item { key, suite: suite.to_owned(), kernel: on, how }
    }

    /// All scenarios for this host; of the others a few of each sort, each on one of its kernels. Or all scenarios on all kernels.
    fn scenarios(&self) -> Vec<(&Scenario, &str)> {
        if self.asked.all {
            let all = self.scenarios.iter();
            return all.flat_map(|one| one.head.kernels.iter().map(move |on| (one, on.as_str()))).collect();
        }
        let mut draw = self.draw.branch(LAB);
        let live = self.scenarios.iter().filter(|one| suite_of(one) == LIVE);
        let mut drawn: Vec<(&Scenario, &str)> = live.map(|one| (one, rounds::HOST)).collect();
        for (sort, count) in PARTS {
            let all: Vec<&Scenario> = self
                .scenarios
                .iter()
                .filter(|one| one.head.ci && suite_of(one) == LAB && one.sort() == sort)
                .collect();
            for scenario in draw.some(count.min(all.len()), &all) {
                let kernels: Vec<&str> = scenario.head.kernels.iter().map(String::as_str).collect();
                drawn.push((scenario, draw.pick(&kernels)));
            }
        }
        drawn
    }

    fn chains(&self) -> Result<Vec<Item>, Trouble> {
        let mut names = self.chains.names(&[])?;
        let mut kernels: Vec<&str> = truth::KERNELS.to_vec();
        if !self.asked.all {
            let mut draw = self.draw.branch(LOCK_CHAINS);
            kernels = vec![draw.pick(&kernels)];
            names.retain(|name| name != truth::HEAVIEST);
            names = draw.some(IN_GUESTS, &names);
            names.push(truth::HEAVIEST.to_owned());
        }
        let item = |kernel: &str, name: &String| Item {
            key: format!("guest {name} {kernel}"),
            suite: LOCK_CHAINS.to_owned(),
            kernel: kernel.to_owned(),
            how: How::Chain { name: name.clone(), kernel: kernel.to_owned() },
        };
        Ok(kernels.iter().flat_map(|kernel| names.iter().map(|name| item(kernel, name))).collect())
    }

    /// Make a cell once. Prints its result after `at`.
    pub fn make(&self, item: &Item, at: &str) -> Result<Made, Trouble> {
        let began = Instant::now();
        let row = match &item.how {
            How::Test { binary, name } => of_test(binary.run(name, &self.tests)?, &item.suite, name),
            How::Scenario { scenario, kernel } => {
                table::proven(&self.runner.run(scenario, kernel, &self.draw), &item.suite)
            }
            How::Chain { name, kernel } => self.chains.made(kernel, name)?,
        };
        let why: String = row.why.chars().take(WORDS).collect();
        let (took, of) = (began.elapsed().as_secs_f64(), format!("{} {}", row.suite, item.kernel));
        println!("{at} {took:>5.1} s {:?}: {of} {} {why}", row.ended, row.cell);
        Ok(Made { item: item.key.clone(), kernel: item.kernel.clone(), row })
    }
}

/// The result of a test: its row, unless the test failed after writing it. A test without a row is no cell; for it, only the limits of
/// whyslow's own cost can be right or wrong.
///
/// A fault and its twin are two rows of one test: the worse of the two counts, under the name of the first.
fn of_test(ran: Ran, suite: &str, name: &str) -> Row {
    let first = ran.rows.first().filter(|_| !ran.is_without_rows).map(|row| row.cell.clone());
    let decides = ran.rows.into_iter().min_by_key(|row| match row.ended {
        Ended::Failed => 0,
        Ended::NotIdle | Ended::NotRun | Ended::NotDrawn => 1,
        Ended::Passed => 2,
    });
    let row = match (first, decides, ran.ended) {
        (Some(cell), Some(row), Ended::Failed) if row.ended != Ended::Failed => {
            Row { ended: Ended::Failed, why: ran.why, cell, ..row }
        }
        (Some(cell), Some(row), _) if row.cell != cell && !row.why.is_empty() => {
            Row { why: format!("{}: {}", row.cell, row.why), cell, ..row }
        }
        (Some(cell), Some(row), _) => Row { cell, ..row },
        (None, _, Ended::Passed) if suite != OF_COSTS => Row::of(suite, name, Ended::NotDrawn),
        (_, _, ended) => Row { why: ran.why, ..Row::of(suite, name, ended) },
    };
    Row { suite: suite.to_owned(), ..row }
}

/// "host 6.18": the kernel of this host. A guest's kernel of the same version is another one.
fn running() -> Result<String, Trouble> {
    let path = Path::new("/proc/sys/kernel/osrelease");
    let release =
        std::fs::read_to_string(path).map_err(|err| Trouble::new("read the kernel's release", err))?;
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Ok(format!("host {}.{}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default()))
}

#[cfg(test)]
#[path = "item_tests.rs"]
mod tests;
