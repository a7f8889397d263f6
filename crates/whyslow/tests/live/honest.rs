//! An idle host, and one that compiles: no cause but steal.

use std::time::{Duration, Instant};

use whyslow_faults::honest::Compile;
use whyslow_faults::host::Calm;
use whyslow_faults::rounds::{Outcome, Trouble};
use whyslow_faults::{Draw, Fence, bars};

use crate::exam::Exam;
use crate::quiet::accusations;

/// A compiler that has not built one small file by then is not there.
const ONE_FILE_WITHIN: Duration = Duration::from_secs(20);

/// Nothing runs.
pub fn idle(label: &str) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let calm = Calm::watch(None)?;
        let exam = Exam::look(&format!("{label}-{attempt}"))?;
        match calm.disturbed(None, exam.own_cpu())? {
            Some(reason) => why = format!("{reason}; {}", exam.summary()),
            None => return no_cause(&exam),
        }
        fence.check_time()?;
    }
    Ok(Outcome::HostNotIdle(why))
}

/// So many compilers run, in a cgroup of their own.
pub fn compile(jobs: usize, draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let compile = Compile::start(&fence, jobs, draw)?;
        let began = Instant::now();
        while compile.done() == 0 {
            if began.elapsed() > ONE_FILE_WITHIN {
                return Err("no file was compiled; install a C compiler (cc)".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let calm = Calm::watch(Some(fence.top()))?;
        let before = compile.done();
        let exam = Exam::look(&format!("{label}-{attempt}"))?;
        if compile.done() == before {
            why = "no file was compiled while whyslow looked".to_owned();
            continue;
        }
        if let Some(blame) = exam.causes().iter().find(|finding| finding.mentions(fence.top().path())) {
            return Err(format!("honest work is accused: \"{blame}\": {}", exam.summary()).into());
        }
        match calm.disturbed(Some(fence.top()), exam.own_cpu())? {
            Some(reason) => why = format!("{reason}; {}", exam.summary()),
            None => return no_cause(&exam),
        }
        fence.check_time()?;
    }
    Ok(Outcome::HostNotIdle(why))
}

fn no_cause(exam: &Exam) -> Result<Outcome, Trouble> {
    if accusations(exam).is_empty() {
        Ok(Outcome::Passed)
    } else {
        Err(format!("a cause on a healthy host: {}", exam.summary()).into())
    }
}
