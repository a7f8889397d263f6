//! `-o` and `--flame`: files that whyslow writes after the window.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use whyslow_model::Recording;
use whyslow_report::safe::plain;

use crate::{flame, redact, store};

/// Files to be written.
#[derive(Debug, Clone, clap::Args)]
pub struct SaveArgs {
    /// Save the recording to this file, for `whyslow report FILE`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// With -o: replace the names of tasks, cgroups, users, files, network peers and functions, and all command lines, by made-up
    /// words; process and user ids, other numbers and times stay
    #[arg(long, requires = "output")]
    redact: bool,
    #[command(flatten)]
    flame: FlameArg,
}

/// A flame graph.
#[derive(Debug, Clone, clap::Args)]
pub struct FlameArg {
    /// Write a flame graph of on-CPU and off-CPU time; the wait chain is drawn on top of each waiter's stack
    #[arg(long, value_name = "FILE.svg")]
    flame: Option<PathBuf>,
}

impl SaveArgs {
    /// Reports a file that cannot be created before the window, not after it.
    pub fn must_be_writable(&self) -> Result<()> {
        self.output.as_deref().map_or(Ok(()), |file| can_be_written("save recording", file))?;
        self.flame.must_be_writable()
    }

    /// Whether the recording is saved.
    pub fn keeps_recording(&self) -> bool {
        self.output.is_some()
    }

    /// Writes both files. If one fails, the other is still written.
    pub fn keep(&self, recording: &Recording) -> Result<()> {
        let drawn = self.flame.keep(recording);
        let saved = self.output.as_deref().map_or(Ok(()), |file| self.save(recording, file));
        match (drawn, saved) {
            (Err(drawn), Err(saved)) => bail!("{drawn:#}; {saved:#}"),
            (drawn, saved) => drawn.and(saved),
        }
    }
}

impl SaveArgs {
    fn save(&self, recording: &Recording, file: &Path) -> Result<()> {
        if !self.redact {
            return store::save(recording, file);
        }
        let mut without_names = recording.clone();
        redact::redact(&mut without_names);
        store::save(&without_names, file)
    }
}

impl FlameArg {
    /// As [`SaveArgs::must_be_writable`].
    pub fn must_be_writable(&self) -> Result<()> {
        self.flame.as_deref().map_or(Ok(()), |file| can_be_written("draw flame graph", file))
    }

    /// Writes the flame graph.
    pub fn keep(&self, recording: &Recording) -> Result<()> {
        self.flame
            .as_deref()
            .map_or(Ok(()), |file| store::put(&flame::draw(recording)?, file, "draw flame graph"))
    }
}

/// Whether the file can be created, as far as can be seen without creating it.
pub fn can_be_written(verb: &str, file: &Path) -> Result<()> {
    let shown = plain(&file.to_string_lossy());
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if file.is_dir() {
        bail!("cannot {verb} {shown}: it is a folder; name a file");
    }
    if !folder.is_dir() {
        bail!(
            "cannot {verb} {shown}: there is no folder {}; make it first",
            plain(&folder.to_string_lossy())
        );
    }
    Ok(())
}
