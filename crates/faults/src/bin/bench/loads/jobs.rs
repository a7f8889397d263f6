//! Jobs that live for a millisecond, as on a judge or a CI host: a cgroup and namespaces of its own each.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use whyslow_faults::cgroup::{Group, Hierarchies};
use whyslow_faults::leftovers::Owner;

use super::{fork, reap};

/// A thousand a second.
const EVERY: Duration = Duration::from_millis(1);

/// The cgroup above those of the jobs, where this process may make one.
struct Parent(Option<Group>);

impl Parent {
    fn new() -> Self {
        let made = Hierarchies::here().and_then(|all| Group::make(&all, &format!("/{}", Owner::me().name())));
        Parent(made.ok())
    }

    fn dir(&self) -> Option<PathBuf> {
        Some(self.0.as_ref()?.procs_files().first()?.parent()?.to_owned())
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            group.remove();
        }
    }
}

/// `count` jobs, one after the other. Where the kernel refuses a cgroup or a namespace the load is a different one, but still a load.
pub fn jobs(count: u64) -> io::Result<()> {
    let (parent, program) = (Parent::new(), program()?);
    let dir = parent.dir();
    let begin = Instant::now();
    for number in 0..count {
        let begins = begin + EVERY * u32::try_from(number).map_err(io::Error::other)?;
        sleep(begins.saturating_duration_since(Instant::now()));
        let own = dir.as_ref().map(|dir| dir.join(format!("j{number}")));
        job(own.as_deref(), &program)?;
    }
    Ok(())
}

fn program() -> io::Result<CString> {
    let found = ["/bin/true", "/usr/bin/true"].into_iter().map(Path::new).find(|path| path.exists());
    let path = found.ok_or_else(|| io::Error::other("there is no program true"))?;
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn job(dir: Option<&Path>, program: &CString) -> io::Result<()> {
    let procs = dir.and_then(|dir| {
        fs::create_dir(dir).ok()?;
        File::options().write(true).open(dir.join("cgroup.procs")).ok()
    });
    let child = fork(|| {
        let _ = procs.as_ref().map(|mut procs| procs.write_all(b"0"));
        // SAFETY: concerns this process alone, whose one thread this is. The strings and the array outlive the calls.
        unsafe {
            libc::unshare(libc::CLONE_NEWIPC | libc::CLONE_NEWUTS);
            let args = [program.as_ptr(), ptr::null()];
            libc::execv(program.as_ptr(), args.as_ptr());
        }
        Err(io::Error::last_os_error())
    })?;
    reap(child)?;
    // A task that has just ended may still be in it.
    if let Some(dir) = dir {
        let until = Instant::now() + Duration::from_millis(100);
        while fs::remove_dir(dir).is_err_and(|err| err.kind() == io::ErrorKind::ResourceBusy)
            && Instant::now() < until
        {
            std::thread::yield_now();
        }
    }
    Ok(())
}
