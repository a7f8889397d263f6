//! The programs and their names.

use std::fmt;

use super::{Loop, SpinWait, unseen};

/// One program, a spinner or an honest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// Threads of ours that wait by spinning.
    Wait(SpinWait),
    /// An OpenMP team whose threads wait at its barriers by spinning (`OMP_WAIT_POLICY=active`).
    OpenMp,
    /// Erlang processes that play ping-pong; the schedulers spin when they have no work.
    Erlang(Sbwt),
    /// A Java thread that waits with `Thread.onSpinWait`.
    Java,
    /// A goroutine that waits for an atomic; in the unseen set, which no detector was tuned on.
    Go,
    /// Threads of ours that compute.
    Loop(Loop),
    /// A common program.
    Tool(Tool),
    /// An event loop under load.
    Server,
}

/// `+sbwt` of the Erlang VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sbwt {
    /// `very_long`.
    VeryLong,
    /// Option not set: `medium`.
    Default,
    /// `none`.
    None,
}

/// Common programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// `gzip` of random words.
    Gzip,
    /// `sha256sum` of noise.
    Sha256,
    /// A C compiler.
    Compiler,
    /// `dd bs=1`.
    Dd,
    /// A loop in Python.
    Python,
}

impl Program {
    /// Programs that detectors may be tuned on.
    #[must_use]
    pub fn seen() -> Vec<Program> {
        let waits = SpinWait::ALL.map(Program::Wait);
        let loops = Loop::ALL.map(Program::Loop);
        let tools = [Tool::Gzip, Tool::Sha256, Tool::Compiler, Tool::Dd, Tool::Python].map(Program::Tool);
        let mut all = waits.to_vec();
        all.extend([
            Program::OpenMp,
            Program::Erlang(Sbwt::VeryLong),
            Program::Erlang(Sbwt::Default),
            Program::Java,
        ]);
        all.extend(loops);
        all.extend(tools);
        all.extend([Program::Server, Program::Erlang(Sbwt::None)]);
        all
    }

    /// Programs that no detector was tuned on.
    #[must_use]
    pub fn unseen() -> Vec<Program> {
        let mut all: Vec<Program> =
            unseen::UnseenWait::ALL.map(|wait| Program::Wait(SpinWait::Unseen(wait))).to_vec();
        all.push(Program::Go);
        all.extend(unseen::Loop::ALL.map(|each| Program::Loop(Loop::Unseen(each))));
        all
    }

    /// Whether it spins.
    #[must_use]
    pub fn spins(self) -> bool {
        match self {
            Program::Wait(_) | Program::OpenMp | Program::Java | Program::Go => true,
            Program::Erlang(sbwt) => sbwt != Sbwt::None,
            Program::Loop(_) | Program::Tool(_) | Program::Server => false,
        }
    }

    /// Words of which a finding must contain one, where it is known which runtime spins.
    #[must_use]
    pub fn runtime(self) -> &'static [&'static str] {
        match self {
            Program::OpenMp => &["OpenMP", "libgomp"],
            Program::Erlang(_) => &["Erlang", "BEAM"],
            Program::Java => &["JVM", "Java"],
            Program::Go => &["Go"],
            Program::Wait(SpinWait::SpinLock) => &["pthread_spin_lock", "spin lock"],
            _ => &[],
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Program::Wait(SpinWait::Unseen(wait)) => write!(f, "{wait:?}"),
            Program::Wait(wait) => write!(f, "{wait:?}"),
            Program::Loop(Loop::Unseen(each)) => write!(f, "{each:?}"),
            Program::Loop(each) => write!(f, "{each:?}"),
            Program::Tool(tool) => write!(f, "{tool:?}"),
            Program::Erlang(sbwt) => write!(f, "Erlang{sbwt:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_sets_have_nothing_in_common() {
        let (seen, unseen) = (Program::seen(), Program::unseen());
        let spin = |of: &[Program]| of.iter().filter(|program| program.spins()).count();
        assert_eq!((spin(&seen), seen.len() - spin(&seen)), (10, 12));
        assert_eq!((spin(&unseen), unseen.len() - spin(&unseen)), (6, 6));
        assert!(unseen.iter().all(|program| !seen.contains(program)));
        let mut names: Vec<String> = seen.iter().chain(&unseen).map(ToString::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), seen.len() + unseen.len());
    }
}
