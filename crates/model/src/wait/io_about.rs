//! What block I/O is about.

use std::fmt;

use serde::{Serialize, Serializer};

/// What block I/O is about, as far as it is known. [`fmt::Display`] is its name, and what JSON has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoAbout {
    /// A file, by its path on the host.
    File {
        /// Its path.
        path: String,
        /// It has no name any more: the path is where it was.
        deleted: bool,
    },
    /// A file that the kernel had no name for.
    Inode {
        /// Its number.
        ino: u64,
        /// Where its file system is mounted, else its device.
        of: String,
    },
    /// Blocks of a mounted file system itself, by the name of its device.
    Metadata(String),
    /// The journal of a file system, by the name of its device.
    Journal(String),
    /// Several that share a folder.
    FilesIn {
        /// How many.
        count: usize,
        /// The folder.
        folder: String,
    },
    /// Several that share nothing.
    Several {
        /// How many.
        count: usize,
        /// The one with most of the time.
        most: Box<IoAbout>,
    },
}

impl fmt::Display for IoAbout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoAbout::File { path, deleted } => {
                f.write_str(path)?;
                f.write_str(if *deleted { " (deleted)" } else { "" })
            }
            IoAbout::Inode { ino, of } => write!(f, "inode {ino} of {of}"),
            IoAbout::Metadata(device) => write!(f, "metadata of {device}"),
            IoAbout::Journal(device) => write!(f, "journal of {device}"),
            IoAbout::FilesIn { count, folder } => write!(f, "{count} files in {folder}"),
            IoAbout::Several { count, most } => write!(f, "{count} files, most {most}"),
        }
    }
}

impl Serialize for IoAbout {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
