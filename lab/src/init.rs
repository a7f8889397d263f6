//! PID 1 of the guest: sets up the host's root, runs one command, reports how it ended, powers off.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;
use std::{fs, process};

use crate::orders::{self, Orders, Outcome};
use crate::{guest_modules, image};

mod mounts;
mod system;

/// The exit status of a shell for a command that cannot be run.
const CANNOT_RUN: i32 = 127;

/// Is this process the first of a guest?
pub fn is_first() -> bool {
    process::id() == 1
}

/// Whether the kernel requests a module. It calls its loader as `LOADER -q -- NAME`.
pub fn asked_for_module(args: &[OsString]) -> Option<String> {
    match args {
        [_, quiet, dashes, name] if quiet == "-q" && dashes == "--" => name.to_str().map(str::to_owned),
        _ => None,
    }
}

/// Run everything. Errors are printed on the console, and then the guest powers off.
pub fn main() -> ! {
    if let Err(error) = all() {
        println!("lab: {error}");
    }
    system::power_off()
}

fn all() -> io::Result<()> {
    mounts::first()?;
    load_first_modules()?;
    let orders = mounts::shared()?;
    mounts::root(&orders)?;
    system::settle(&orders)?;
    orders.mend.iter().try_for_each(|module| guest_modules::insert(module, ""))?;
    // The kernel's warnings reach the console from here on: earlier warnings are caused by the emulator.
    fs::write("/proc/sys/kernel/printk", "5")?;
    println!("{}{}", orders::UP, uptime()?);
    let status = run(&orders)?;
    println!("{}{}", orders::END, uptime()?);
    system::end_all();
    let dir = Path::new(orders::SHARE).join(orders::DIR);
    let part = dir.join("outcome.part");
    fs::write(&part, serde_json::to_vec(&Outcome { status })?)?;
    fs::rename(part, dir.join(orders::OUTCOME))
}

fn load_first_modules() -> io::Result<()> {
    let order = fs::read_to_string(Path::new("/").join(image::ORDER))?;
    for name in order.lines() {
        guest_modules::insert(Path::new(&format!("/modules/{name}.ko")), "")
            .map_err(|error| io::Error::other(format!("cannot load {name}: {error}")))?;
    }
    Ok(())
}

/// Start the command and reap children until it has ended.
fn run(orders: &Orders) -> io::Result<i32> {
    let mut words = orders.command.iter().map(|word| OsString::from_vec(word.clone()));
    let Some(program) = words.next() else { return Err(io::Error::other("no command was given")) };
    let mut command = Command::new(&program);
    command.args(words).current_dir(&orders.directory).env_clear().envs(system::ENVIRONMENT);
    match command.spawn() {
        Ok(child) => system::reap(child.id()),
        Err(error) => {
            println!("lab: cannot run {}: {error}", program.display());
            Ok(CANNOT_RUN)
        }
    }
}

fn uptime() -> io::Result<String> {
    let text = fs::read_to_string("/proc/uptime")?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernel_asks_like_that() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(asked_for_module(&words("lab -q -- rtnl-link-veth")).as_deref(), Some("rtnl-link-veth"));
        assert_eq!(asked_for_module(&words("lab boot 6.1 --")), None);
        assert_eq!(asked_for_module(&words("lab")), None);
    }
}
