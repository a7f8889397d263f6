//! The user that the command of `whyslow run` runs as. `sudo whyslow run` needs root for whyslow, not for the command.
//!
//! whyslow reads /etc/passwd and /etc/group itself: a static binary cannot load the modules that other sources of users
//! (LDAP, sssd) need. For a user of such a source, sudo's variables still give the name and the ids; the user's supplementary groups
//! are not known.

use std::env;
use std::ffi::OsString;
use std::fs;

use anyhow::{Result, anyhow, bail};

/// The user that a command runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
    name: Option<String>,
    home: OsString,
    shell: Option<String>,
}

/// The options of the command line for it.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserOptions<'a> {
    /// `--user`: a name or a number.
    pub user: Option<&'a str>,
    /// `--as-root`.
    pub as_root: bool,
}

/// A line of /etc/passwd.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Account {
    name: String,
    uid: libc::uid_t,
    gid: libc::gid_t,
    home: String,
    shell: String,
}

/// The user that started whyslow as root, as sudo, doas and pkexec leave it in the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Invoker {
    uid: Option<libc::uid_t>,
    gid: Option<libc::gid_t>,
    name: Option<String>,
    home: Option<OsString>,
}

/// The user that the command runs as; `None`: the user of whyslow.
pub fn whose(asked: UserOptions) -> Result<Option<User>> {
    // SAFETY: takes nothing, cannot fail.
    let us = unsafe { libc::geteuid() };
    let read =
        |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let (passwd, group) = (read("/etc/passwd"), read("/etc/group"));
    let user = match asked.user {
        Some(name) => Some(named(name, &passwd, &group)?),
        None if us != 0 || asked.as_root => None,
        None => invoking(&Invoker::from_environment(), &passwd, &group)?,
    };
    match user {
        Some(user) if user.uid == us => Ok(None),
        Some(user) if us != 0 => {
            bail!("cannot run a command as {}: only root may do that; use `sudo whyslow run`", user.shown())
        }
        other => Ok(other),
    }
}

impl Invoker {
    fn from_environment() -> Self {
        let number = |name: &str| env::var(name).ok().and_then(|text| id(&text));
        if let Some(uid) = number("SUDO_UID") {
            let home = env::var_os("SUDO_HOME");
            return Invoker {
                uid: Some(uid),
                gid: number("SUDO_GID"),
                name: env::var("SUDO_USER").ok(),
                home,
            };
        }
        if let Ok(name) = env::var("DOAS_USER") {
            return Invoker { name: Some(name), ..Invoker::default() };
        }
        Invoker { uid: number("PKEXEC_UID"), ..Invoker::default() }
    }
}

fn invoking(who: &Invoker, passwd: &str, group: &str) -> Result<Option<User>> {
    let known = match (who.uid, &who.name) {
        (None, None) => return Ok(None),
        (Some(uid), name) => {
            // Several names may share a uid; sudo gives the name that was used.
            let same = |a: &Account| a.uid == uid && name.as_ref().is_none_or(|name| a.name == *name);
            accounts(passwd).find(same).or_else(|| accounts(passwd).find(|a| a.uid == uid))
        }
        (None, Some(name)) => accounts(passwd).find(|a| a.name == *name),
    };
    if let Some(mut account) = known {
        account.gid = who.gid.unwrap_or(account.gid);
        return Ok(Some(User::of(account, group)));
    }
    let (Some(uid), Some(gid)) = (who.uid, who.gid) else {
        let whom = who.name.clone().or_else(|| who.uid.map(|uid| uid.to_string())).unwrap_or_default();
        return Err(unknown(&whom));
    };
    let name = who.name.clone();
    let groups = name.iter().fold(vec![gid], |all, name| with_groups(all, name, group));
    let home = who.home.clone().unwrap_or_else(|| "/".into());
    Ok(Some(User { uid, gid, groups, name, home, shell: None }))
}

fn named(name: &str, passwd: &str, group: &str) -> Result<User> {
    let by_name = accounts(passwd).find(|account| account.name == name);
    let by_number = || {
        let uid = id(name)?;
        accounts(passwd).find(|account| account.uid == uid)
    };
    let account = by_name.or_else(by_number).ok_or_else(|| unknown(name))?;
    Ok(User::of(account, group))
}

fn unknown(whom: &str) -> anyhow::Error {
    anyhow!(
        "cannot run a command as {whom}: there is no such user in /etc/passwd; --user names another, \
         --as-root runs it as root"
    )
}

impl User {
    fn of(account: Account, group: &str) -> Self {
        let groups = with_groups(vec![account.gid], &account.name, group);
        User {
            uid: account.uid,
            gid: account.gid,
            groups,
            name: Some(account.name),
            home: account.home.into(),
            shell: Some(account.shell).filter(|shell| !shell.is_empty()),
        }
    }

    /// The name for messages.
    #[must_use]
    pub fn shown(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("uid {}", self.uid))
    }

    /// The variables that `sudo -u` sets.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut all = vec![("HOME", self.home.clone())];
        if let Some(name) = &self.name {
            all.extend([("USER", name.into()), ("LOGNAME", name.into())]);
        }
        // An empty shell in /etc/passwd means /bin/sh, passwd(5).
        all.push(("SHELL", self.shell.as_deref().unwrap_or("/bin/sh").into()));
        all
    }

    /// Becomes this user, for good. Async-signal-safe: called between fork and execve, in a process of one thread.
    pub fn become_it(&self) -> std::result::Result<(), i32> {
        // SAFETY: a live list and plain numbers. Groups first: after setresuid(2) the process may not set them.
        unsafe {
            let done = libc::setgroups(self.groups.len(), self.groups.as_ptr()) == 0
                && libc::setresgid(self.gid, self.gid, self.gid) == 0
                && libc::setresuid(self.uid, self.uid, self.uid) == 0;
            if done { Ok(()) } else { Err(*libc::__errno_location()) }
        }
    }
}

/// A uid or gid. The greatest number is refused: for setresuid(2) it means "no change", and the command would stay root.
fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

fn accounts(passwd: &str) -> impl Iterator<Item = Account> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let (uid, gid) = (id(fields.nth(1)?)?, id(fields.next()?)?);
        let (home, shell) = (fields.nth(1)?.to_owned(), fields.next().unwrap_or_default().to_owned());
        // "+" and "-" lines are for NIS.
        (!name.is_empty() && !name.starts_with(['+', '-', '#'])).then_some(Account {
            name,
            uid,
            gid,
            home,
            shell,
        })
    })
}

fn with_groups(mut groups: Vec<libc::gid_t>, name: &str, group: &str) -> Vec<libc::gid_t> {
    for line in group.lines() {
        let mut fields = line.split(':');
        let (Some(gid), Some(members)) = (fields.nth(2).and_then(id), fields.next()) else {
            continue;
        };
        if members.split(',').any(|member| member == name) && !groups.contains(&gid) {
            groups.push(gid);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n# a remark\nbroken\n+nis::::::\n\
        alice:x:1000:100:Alice,,,:/home/alice:/bin/zsh\ntwin:x:1000:100::/home/twin:\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:\nbroken\naudio:x:29:bob,alice\nvideo:x:44:alice\nusers2:x:100:alice\n\
        alicex:x:45:malice,alicea\n";

    fn sudo(uid: u32, gid: Option<u32>, name: Option<&str>) -> Invoker {
        Invoker { uid: Some(uid), gid, name: name.map(str::to_owned), home: None }
    }

    #[test]
    fn sudo_invoker_is_restored_with_groups_and_environment() {
        let user = invoking(&sudo(1000, Some(100), Some("alice")), PASSWD, GROUP).unwrap().unwrap();
        assert_eq!((user.uid, user.gid, user.groups.as_slice()), (1000, 100, [100, 29, 44].as_slice()));
        let want = [("HOME", "/home/alice"), ("USER", "alice"), ("LOGNAME", "alice"), ("SHELL", "/bin/zsh")];
        assert_eq!(user.environment(), want.map(|(name, value)| (name, OsString::from(value))));
    }

    #[test]
    fn of_two_names_of_one_number_sudos_is_taken() {
        let user = invoking(&sudo(1000, None, Some("twin")), PASSWD, GROUP).unwrap().unwrap();
        assert_eq!((user.home.to_str(), user.groups.as_slice()), (Some("/home/twin"), [100].as_slice()));
        assert!(user.environment().contains(&("SHELL", "/bin/sh".into())));
    }

    #[test]
    fn doas_tells_a_name_and_pkexec_a_number() {
        let doas = Invoker { name: Some("alice".into()), ..Invoker::default() };
        let pkexec = Invoker { uid: Some(1000), ..Invoker::default() };
        for who in [doas, pkexec] {
            assert_eq!(invoking(&who, PASSWD, GROUP).unwrap().unwrap().shown(), "alice");
        }
        assert_eq!(invoking(&Invoker::default(), PASSWD, GROUP).unwrap(), None);
    }

    #[test]
    fn a_user_of_elsewhere_is_taken_from_what_sudo_says_or_refused() {
        let user = invoking(&sudo(70_000, Some(71_000), Some("ldap")), PASSWD, GROUP).unwrap().unwrap();
        assert_eq!(
            (user.uid, user.groups.as_slice(), user.home.to_str()),
            (70_000, [71_000].as_slice(), Some("/"))
        );
        let error = invoking(&sudo(70_000, None, None), PASSWD, GROUP).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot run a command as 70000: ") && error.contains("--as-root"),
            "{error}"
        );
    }

    #[test]
    fn users_are_named_by_name_or_number() {
        assert_eq!(named("alice", PASSWD, GROUP).unwrap(), named("1000", PASSWD, GROUP).unwrap());
        let trap = "eve:x:4294967295:4294967295::/:\n";
        assert!(named("eve", trap, "").is_err() && named("4294967295", trap, "").is_err());
        assert!(named("nobody", PASSWD, GROUP).is_err() && named("", PASSWD, GROUP).is_err());
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(passwd in "([a-z0-9:,\n+-]{0,60}|.{0,40})", name in "[a-z]{0,2}") {
            let _ = named(&name, &passwd, &passwd);
            let _ = invoking(&sudo(1, Some(1), Some(&name)), &passwd, &passwd);
        }
    }
}
