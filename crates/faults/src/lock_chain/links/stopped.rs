//! Kernel locks that the holder keeps in the middle of a system call: the call copies from or to a missing page, and waits for the page
//! while it holds the lock.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::Object;
use crate::sys::kernel;
use crate::sys::userfault::MissingPage;

fn missing(page: &dyn Object) -> io::Result<&MissingPage> {
    page.page().ok_or_else(|| io::Error::other("below a lock of the kernel there must be a page"))
}

/// `inode_lock` of a file: write() against write(), or against lseek() for data.
pub struct File {
    file: fs::File,
    read: bool,
}

impl File {
    pub fn new(dir: &Path, index: usize, read: bool) -> io::Result<Self> {
        let path = dir.join(format!("file{index}"));
        fs::write(&path, "some data")?;
        Ok(File { file: fs::OpenOptions::new().read(true).write(true).open(path)?, read })
    }

    fn write(&self) -> io::Result<()> {
        // SAFETY: the byte lives through the call.
        unsafe { kernel::write_byte(&self.file, [0].as_ptr(), true) }
    }
}

impl Object for File {
    fn want(&self) -> io::Result<()> {
        if self.read { kernel::seek_data(&self.file) } else { self.write() }
    }

    fn enter(&self, page: &dyn Object) -> io::Result<()> {
        // SAFETY: the page is mapped.
        unsafe { kernel::write_byte(&self.file, missing(page)?.at(), true) }
    }

    fn briefly(&self, act: &dyn Fn()) -> io::Result<()> {
        act();
        self.write()
    }
}

/// `inode_lock` of a directory: getdents() against rename().
pub struct Directory {
    dir: fs::File,
    names: [CString; 2],
}

impl Directory {
    pub fn new(dir: &Path, index: usize) -> io::Result<Self> {
        let path = dir.join(format!("directory{index}"));
        fs::create_dir(&path)?;
        fs::write(path.join("a"), "")?;
        fs::write(path.join("b"), "")?;
        Ok(Directory { dir: fs::File::open(path)?, names: [c"a".to_owned(), c"b".to_owned()] })
    }
}

impl Object for Directory {
    fn want(&self) -> io::Result<()> {
        kernel::swap_names(&self.dir, &self.names[0], &self.names[1])
    }

    fn enter(&self, page: &dyn Object) -> io::Result<()> {
        // SAFETY: the page is mapped, and only this thread reads it.
        unsafe { kernel::read_directory(&self.dir, missing(page)?.at()) }
    }

    fn briefly(&self, act: &dyn Fn()) -> io::Result<()> {
        act();
        let mut page = Box::new([0_u64; 512]);
        // SAFETY: 4096 bytes of our own.
        unsafe { kernel::read_directory(&self.dir, page.as_mut_ptr().cast()) }
    }
}

/// `pipe->mutex`: write() against a query of the pipe's length.
pub struct Pipe {
    ends: [OwnedFd; 2],
}

impl Pipe {
    pub fn new() -> io::Result<Self> {
        Ok(Pipe { ends: kernel::pipe()? })
    }
}

impl Object for Pipe {
    fn want(&self) -> io::Result<()> {
        kernel::bytes_in(&self.ends[0])
    }

    fn enter(&self, page: &dyn Object) -> io::Result<()> {
        // SAFETY: the page is mapped. A pipe holds more bytes than there are rounds.
        unsafe { kernel::write_byte(&self.ends[1], missing(page)?.at(), false) }
    }

    fn rest(&self) -> io::Result<()> {
        kernel::read_byte(&self.ends[0])
    }

    fn briefly(&self, act: &dyn Fn()) -> io::Result<()> {
        act();
        kernel::bytes_in(&self.ends[0])
    }
}
