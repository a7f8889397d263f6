//! The archive, through apt: its own keys verify the downloads, and the host's configuration stays unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::known::Known;
use super::text;
use crate::{Trouble, child, place};

/// A mirror that takes longer counts as not answering.
const LISTS: Duration = Duration::from_secs(180);
/// 130 MB at 250 KB/s.
const DOWNLOAD: Duration = Duration::from_secs(600);

/// Where packages come from.
pub struct Archive {
    /// Further options for apt: none for the host's own sources.
    options: Vec<String>,
}

impl Archive {
    /// The archive that has such kernels.
    pub fn of(known: &Known) -> Result<Self, Trouble> {
        let host = Self { options: Vec::new() };
        match known.suite {
            Some(suite) => host.of_another_release(known.label, suite),
            None => Ok(host),
        }
    }

    /// The newest release in the archive. Its lists are updated only if they contain none.
    pub fn newest(&self, known: &Known) -> Result<String, Trouble> {
        let what = format!("find a kernel {}", known.label);
        let pattern = known.pattern();
        let look = || -> Result<Option<String>, Trouble> {
            let mut search = self.command("apt-cache");
            let said = child::output(&what, search.args(["search", "--names-only", &pattern]), LISTS)?;
            Ok(text::newest(&said, known))
        };
        if let Some(release) = look()? {
            return Ok(release);
        }
        self.update(&what)?;
        look()?
            .ok_or_else(|| Trouble::new(&what, "the archive has none").or("check the host's package sources"))
    }

    /// Download the kernel, its headers and the build tools for modules, as far as the archive has them, into `dir`.
    pub fn download(&self, known: &Known, release: &str, dir: &Path) -> Result<Vec<PathBuf>, Trouble> {
        let what = format!("fetch Linux {release}");
        let headers = format!("linux-headers-{release}");
        let mut packages = vec![known.package(release)];
        if known.has_headers() {
            let mut depends = self.command("apt-cache");
            let depends = child::output(&what, depends.args(["depends", &headers]), LISTS)?;
            packages.push(headers);
            packages.extend(text::needed(&depends));
        }
        let get = || {
            let mut download = self.command("apt-get");
            download.args(["-q", "download"]).args(&packages).current_dir(dir);
            child::output(&what, &mut download, DOWNLOAD).map_err(|trouble| trouble.only(is_error))
        };
        // Lists from last week name packages that are gone.
        get().or_else(|_| self.update(&what).and_then(|()| get()))?;
        let entries = fs::read_dir(dir).map_err(|error| Trouble::new(&what, error))?;
        let files = entries.flatten().map(|entry| entry.path());
        Ok(files.filter(|path| path.extension().is_some_and(|ending| ending == "deb")).collect())
    }

    fn update(&self, what: &str) -> Result<(), Trouble> {
        // Without this option a mirror that is down is only a warning, and the old lists pass for new ones.
        let mut update = self.command("apt-get");
        child::output(what, update.args(["-q", "-o", "APT::Update::Error-Mode=any", "update"]), LISTS)
            .map(drop)
            .map_err(|trouble| {
                trouble.only(is_error).or("the first run needs the package archive, and root for its lists")
            })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // The cache may be in a folder that apt's own user must not write to.
        command.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2"]);
        command.args(&self.options);
        command
    }

    /// An archive from the host's own mirror, but for another release: lists and state in our cache.
    fn of_another_release(&self, label: &str, suite: &str) -> Result<Self, Trouble> {
        let what = format!("find a kernel {label}");
        let mut targets = self.command("apt-get");
        targets.args(["indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]);
        let said = child::output(&what, &mut targets, LISTS)?;
        // Security updates have an archive of their own; backports are where the updates of a stable release are.
        let kin = if suite.ends_with("-security") { "-security" } else { "-updates" };
        let beside = text::repositories(&said).into_iter().find(|one| one.release.ends_with(kin));
        let uri = beside.map(|one| one.uri.to_owned()).ok_or_else(|| {
            Trouble::new(&what, format!("the host's package sources have no archive of {kin}"))
                .or("this kernel is optional")
        })?;
        let dir = place::fetched(&format!("apt-{suite}"))?;
        let trouble = |error| Trouble::new(&what, error);
        for sub in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(sub)).map_err(trouble)?;
        }
        let source = dir.join("sources.list");
        fs::write(&source, format!("deb {uri} {suite} main\n")).map_err(trouble)?;
        let set = |key: &str, value: &Path| ["-o".to_owned(), format!("{key}={}", value.display())];
        let options = [
            set("Dir::Etc::SourceList", &source),
            set("Dir::Etc::SourceParts", Path::new("/dev/null")),
            set("Dir::State::Lists", &dir.join("lists")),
            set("Dir::Cache", &dir.join("cache")),
        ];
        Ok(Self { options: options.into_iter().flatten().collect() })
    }
}

/// The last error of apt, in one line.
fn is_error(line: &str) -> bool {
    line.starts_with("E: ")
}
