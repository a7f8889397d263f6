//! Loads modules of the guest's kernel by name, with their dependencies, from the unpacked package.
//!
//! The host's root has no modules of this kernel and may lack kmod, so PID 1 registers the lab's own binary as the kernel's module loader
//! (kernel.modprobe): `ip link add type veth`, `tc qdisc add ... netem` and the crypto of ext4 work as on a plain host.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::{Trouble, orders};

/// A chain of modules that is longer than this is a circle.
const DEEPEST: usize = 64;

/// Load a module of the running guest and its dependencies. Does nothing if it is loaded or built in.
pub fn load(name: &str) -> Result<(), Trouble> {
    load_with(name, "")
}

/// The same with parameters for the module itself.
pub fn load_with(name: &str, parameters: &str) -> Result<(), Trouble> {
    let what = format!("load the module {name}");
    let dir = fs::read_to_string(orders::MODULES).map_err(|error| {
        Trouble::new(&what, format!("{}: {error}", orders::MODULES))
            .or("this works in a guest of the lab only")
    })?;
    let index = Index::read(Path::new(dir.trim())).map_err(|error| Trouble::new(&what, error))?;
    let mut path = Vec::new();
    for module in index.resolve(name).map_err(|error| Trouble::new(&what, error))? {
        let last = index.files.get(&module).ok_or_else(|| Trouble::new(&what, "it has no file"))?;
        path.push(index.dir.join(last));
    }
    let count = path.len();
    for (at, file) in path.iter().enumerate() {
        let given = if at.saturating_add(1) == count { parameters } else { "" };
        insert(file, given).map_err(|error| Trouble::new(&what, format!("{}: {error}", file.display())))?;
    }
    Ok(())
}

/// Pass a module file to the kernel. An already loaded module is no error.
pub fn insert(file: &Path, parameters: &str) -> io::Result<()> {
    let parameters = CString::new(parameters)?;
    let done = if file.extension().is_some_and(|ending| ending == "xz") {
        let bytes = bytes(file)?;
        // SAFETY: the pointers are valid for their lengths; the kernel copies them.
        unsafe { libc::syscall(libc::SYS_init_module, bytes.as_ptr(), bytes.len(), parameters.as_ptr()) }
    } else {
        let opened = File::open(file)?;
        // SAFETY: a descriptor that is open and a string that ends in zero.
        unsafe { libc::syscall(libc::SYS_finit_module, opened.as_raw_fd(), parameters.as_ptr(), 0) }
    };
    match io::Error::last_os_error() {
        error if done != 0 && error.raw_os_error() != Some(libc::EEXIST) => Err(error),
        _ => Ok(()),
    }
}

/// A module's ELF file, decompressed.
pub fn bytes(file: &Path) -> io::Result<Vec<u8>> {
    let raw = fs::read(file)?;
    if file.extension().is_none_or(|ending| ending != "xz") {
        return Ok(raw);
    }
    let mut bytes = Vec::new();
    lzma_rs::xz_decompress(&mut io::Cursor::new(raw), &mut bytes)
        .map_err(|error| io::Error::other(format!("{}: {error:?}", file.display())))?;
    Ok(bytes)
}

/// The modules and their dependencies.
#[derive(Debug, Default)]
pub struct Index {
    dir: PathBuf,
    /// By module name: the file, relative to `dir`.
    files: HashMap<String, PathBuf>,
    /// By module name: the modules that must be loaded first, the nearest first.
    needs: HashMap<String, Vec<String>>,
    /// Modules by the kernel's alias for them: "crypto-crc32c", "rtnl-link-veth".
    aliases: HashMap<String, Vec<String>>,
    built_in: Vec<String>,
}

impl Index {
    /// Read modules.dep and its neighbours.
    pub fn read(dir: &Path) -> Result<Self, String> {
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut index = Self { dir: dir.to_path_buf(), ..Self::default() };
        index.add_dependencies(&read("modules.dep")?);
        index.add_aliases(&read("modules.alias")?);
        index.built_in =
            read("modules.builtin")?.lines().filter_map(|line| module_name(line.trim())).collect();
        Ok(index)
    }

    fn add_dependencies(&mut self, text: &str) {
        for (file, needs) in text.lines().filter_map(|line| line.split_once(':')) {
            let Some(name) = module_name(file) else { continue };
            self.files.insert(name.clone(), PathBuf::from(file));
            self.needs.insert(name, needs.split_whitespace().filter_map(module_name).collect());
        }
    }

    /// Patterns for devices ("pci:v*") are left out: a guest gets no new devices.
    fn add_aliases(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if let (Some("alias"), Some(alias), Some(name)) = (words.next(), words.next(), words.next())
                && !alias.contains(['*', '[', '?'])
            {
                self.aliases.entry(alias.replace('-', "_")).or_default().push(name.to_owned());
            }
        }
    }

    /// The modules to load for `name`, in order, `name` last. An empty list if it is built in.
    pub fn resolve(&self, name: &str) -> Result<Vec<String>, String> {
        let plain = name.replace('-', "_");
        if self.built_in.contains(&plain) {
            return Ok(Vec::new());
        }
        let own = [plain.clone()];
        let named = self.aliases.get(&plain).map_or(&own[..], Vec::as_slice);
        let wanted = if self.files.contains_key(&plain) { &own[..] } else { named };
        let mut order = Vec::new();
        for module in wanted {
            self.visit(module, &mut order, 0)?;
        }
        Ok(order)
    }

    fn visit(&self, name: &str, order: &mut Vec<String>, depth: usize) -> Result<(), String> {
        if order.iter().any(|seen| seen == name) {
            return Ok(());
        }
        if depth > DEEPEST {
            return Err(format!("{name} needs itself"));
        }
        let needs = self.needs.get(name).ok_or_else(|| format!("this kernel has no module {name}"))?;
        for need in needs.iter().rev() {
            self.visit(need, order, depth.saturating_add(1))?;
        }
        order.push(name.to_owned());
        Ok(())
    }

    /// The file of a module.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.dir.join(self.files.get(name)?))
    }
}

/// "kernel/fs/9p/9p.ko.xz": "9p". Dashes and underscores are one in a module's name.
fn module_name(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let (name, _) = file.split_once(".ko")?;
    (!name.is_empty()).then(|| name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index(dep: &str, alias: &str) -> Index {
        let mut index = Index::default();
        index.add_dependencies(dep);
        index.add_aliases(alias);
        index
    }

    const DEP: &str = "kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
                       kernel/net/9p/9pnet.ko.xz:\nkernel/fs/netfs/netfs.ko.xz:\n\
                       kernel/net/9p/9pnet-virtio.ko: kernel/net/9p/9pnet.ko.xz\n\
                       a/one.ko: a/two.ko\na/two.ko: a/one.ko\n";

    #[test]
    fn dependencies_come_before_the_module_that_needs_them() {
        let index = index(DEP, "alias pci:v00001AF4d* nothing\nalias fs-9p 9p\n");
        let order = ["netfs", "9pnet", "9p"].map(str::to_owned).to_vec();
        assert_eq!(index.resolve("9p"), Ok(order.clone()));
        assert_eq!(index.resolve("fs-9p"), Ok(order));
        assert_eq!(index.resolve("9pnet_virtio").map(|all| all.len()), Ok(2));
        assert_eq!(index.file("9pnet_virtio"), Some(PathBuf::from("kernel/net/9p/9pnet-virtio.ko")));
    }

    #[test]
    fn strangers_and_circles_are_reported() {
        let index = index(DEP, "");
        assert!(index.resolve("nosuch").is_err_and(|reason| reason.contains("no module nosuch")));
        assert!(index.resolve("one").is_err_and(|reason| reason.contains("needs itself")));
    }

    #[test]
    fn files_are_decompressed_by_their_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut packed = Vec::new();
        lzma_rs::xz_compress(&mut &b"module"[..], &mut packed).expect("memory");
        let (plain, xz, torn) =
            (dir.path().join("a.ko"), dir.path().join("a.ko.xz"), dir.path().join("b.ko.xz"));
        fs::write(&plain, "module").expect("a file");
        fs::write(&torn, packed.get(..packed.len() / 2).expect("half")).expect("a file");
        fs::write(&xz, packed).expect("a file");
        assert_eq!(bytes(&plain).expect("plain"), bytes(&xz).expect("packed"));
        assert!(bytes(&torn).is_err_and(|error| error.to_string().contains("b.ko.xz")));
    }

    #[test]
    fn built_in_needs_nothing() {
        let index = Index { built_in: vec!["ext4".into()], ..Index::default() };
        assert_eq!(index.resolve("ext4"), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(dep in "([a-c/]{1,4}\\.ko(\\.xz)?|:|\\n| |\\PC){0,40}", alias in "(alias |[a-c*-]|\\n| ){0,40}",
                                  name in "[a-c-]{0,3}") {
            let _ = index(&dep, &alias).resolve(&name);
        }
    }
}
