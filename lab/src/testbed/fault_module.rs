//! The fault module in the test bed: loaded once under drawn names; at the end all faults are turned off and it is unloaded.

use std::cell::OnceCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use whyslow_faults::Draw;
use whyslow_faults::rounds::Trouble;

use crate::guest::module::{Module, Names};
use crate::guest_modules;

/// Words that do not reveal what the module does: a folder of /proc has one of them.
const FOLDERS: [&str; 6] = ["binder", "archive", "catalog", "pantry", "parish", "registry"];
const CONTROLS: [&str; 4] = ["index", "contents", "summary", "notes"];

/// Loaded when a part of a run first needs it.
pub struct Folio {
    file: Option<PathBuf>,
    loaded: OnceCell<Rc<Loaded>>,
}

/// The module in the kernel.
pub struct Loaded {
    /// Its orders and its account.
    pub module: Module,
    name: String,
}

impl Folio {
    /// From this file, if there is one for the guest's kernel.
    #[must_use]
    pub fn of(file: Option<PathBuf>) -> Self {
        Folio { file, loaded: OnceCell::new() }
    }

    /// The module; the first call loads it.
    pub fn loaded(&self, draw: &mut Draw) -> Result<Rc<Loaded>, Trouble> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded.clone());
        }
        let file = self.file.as_ref().ok_or("the fault module was not built for this kernel")?;
        let loaded = Rc::new(Loaded::load(file, draw)?);
        Ok(self.loaded.get_or_init(|| loaded).clone())
    }
}

impl Loaded {
    fn load(file: &Path, draw: &mut Draw) -> Result<Self, Trouble> {
        let names =
            Names { folder: draw.pick(&FOLDERS).to_owned(), control: draw.pick(&CONTROLS).to_owned() };
        guest_modules::insert(file, &names.parameters())
            .map_err(|err| format!("cannot load {}: {err}", file.display()))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Loaded { module: Module::new(Path::new("/proc"), &names), name })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // A guest that cannot end its faults is switched off all the same.
        let _ = self.module.off();
        let _ = unload(&self.name);
    }
}

fn unload(name: &str) -> io::Result<()> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: the name outlives the call.
    let done = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
