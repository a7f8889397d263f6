//! Why a file could not be read, in words: from its row and the kernel's error.

use std::io;

use whyslow_model::Missing;

use super::table::Row;

/// The missing rights.
const WAY_OUT: &str = "run as root, or grant CAP_DAC_READ_SEARCH, CAP_SYSLOG and CAP_SYS_PTRACE";

/// Why `what` of `row` is not known. `None`: it is gone, as processes and interfaces go; that needs no note.
pub(super) fn why(row: &Row, what: &str, live: bool, err: &io::Error) -> Option<Missing> {
    let what = what.to_owned();
    let errno = err.raw_os_error().unwrap_or(libc::EIO);
    Some(match errno {
        libc::ESRCH => return None,
        libc::ENOENT | libc::ENOTDIR if comes_and_goes(row) && live => return None,
        libc::ENOENT | libc::ENOTDIR if !live => Missing::NotRecorded { what },
        libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP | libc::ENOSYS => {
            Missing::NotInKernel { what, needs: row.needs.to_owned() }
        }
        libc::EACCES | libc::EPERM => Missing::NotAllowed { what, way_out: WAY_OUT.to_owned() },
        libc::EAGAIN => Missing::Skipped { what, reason: "reading it would have to wait".to_owned() },
        libc::ENOSTR => Missing::broken(what, "it is not a regular file"),
        libc::EISDIR => Missing::broken(what, "it is a directory"),
        libc::ELOOP => Missing::broken(what, "its symbolic links go round in circles"),
        _ => Missing::broken(what, err),
    })
}

/// Whether its files belong to processes.
fn comes_and_goes(row: &Row) -> bool {
    row.pattern.contains("{pid}")
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    fn ask(id: &str, live: bool, errno: i32) -> Option<Missing> {
        let row = ROWS.iter().find(|row| row.id == id).unwrap();
        why(row, row.pattern, live, &io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn absent_is_not_in_this_kernel_when_live_and_not_recorded_in_a_folder() {
        assert!(matches!(ask("schedstat", true, libc::ENOENT), Some(Missing::NotInKernel { .. })));
        assert_eq!(ask("schedstat", false, libc::ENOENT), Some(Missing::not_recorded("proc/schedstat")));
    }

    #[test]
    fn psi_that_refuses_says_how_to_get_it() {
        let said = ask("psi-io", true, libc::EOPNOTSUPP).unwrap().to_string();
        assert!(said.starts_with("this kernel has no proc/pressure/io"), "{said}");
        assert!(said.contains("psi=1"), "{said}");
    }

    #[test]
    fn unreadable_comes_with_a_way_out_and_a_vanished_process_is_no_news() {
        assert!(matches!(ask("vmstat", true, libc::EACCES), Some(Missing::NotAllowed { .. })));
        assert_eq!(ask("process", true, libc::ESRCH), None);
        assert_eq!(ask("process", true, libc::ENOENT), None);
        assert!(matches!(ask("vmstat", true, libc::EIO), Some(Missing::Broken { .. })));
    }
}
