//! Users, login sessions and machines: from the text of /etc/passwd and of systemd's files to names. No I/O.

use std::collections::HashMap;

use super::found::name;

/// A line of /etc/passwd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub name: String,
    pub home: String,
}

/// passwd(5). Lines of another form are skipped.
pub fn accounts(text: &str) -> Vec<Account> {
    let one = |line: &str| {
        let mut parts = line.split(':');
        let called = parts.next().filter(|name| !name.starts_with(['#', '+', '-'])).and_then(name)?;
        let uid = parts.nth(1)?.parse().ok()?;
        let home = parts.nth(2)?.to_owned();
        Some(Account { uid, name: called, home })
    };
    text.lines().filter_map(one).collect()
}

/// A file of assignments as systemd writes them for itself: `KEY=value`, or with quotes and backslashes.
pub fn assignments(text: &str) -> HashMap<&str, String> {
    let pairs = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key, unquoted(value))).collect()
}

/// A value may be in double quotes, with a backslash before characters that a shell would interpret.
fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut out = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

/// A login session: the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    pub user: String,
    pub tty: Option<String>,
    pub remote_host: Option<String>,
}

/// /run/systemd/sessions/<n>, if it is a session of that user in that scope (src/login/logind-session.c, session_save).
pub fn session(text: &str, uid: u32, scope: &str) -> Option<Session> {
    let of = assignments(text);
    let is_his = of.get("UID").and_then(|uid| uid.parse().ok()) == Some(uid);
    let is_here = of.get("SCOPE").is_none_or(|said| said == scope);
    let user = of.get("USER").and_then(|user| name(user)).filter(|_| is_his && is_here)?;
    let said = |key| of.get(key).and_then(|value| name(value));
    Some(Session { user, tty: said("TTY"), remote_host: said("REMOTE_HOST") })
}

/// /run/systemd/machines/<name>: its name, and the unit that holds it (src/machine/machine.c, machine_save).
pub fn machine(text: &str, file: &str) -> Option<(String, String)> {
    let of = assignments(text);
    let unit = ["SCOPE", "UNIT"].iter().find_map(|key| name(of.get(key)?))?;
    let called = of.get("NAME").map_or(file, String::as_str);
    (called == file).then(|| Some((unit, name(called)?)))?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn users_by_number() {
        let text = "root:x:0:0:root:/root:/bin/bash\ntorn:x:1\nalice:x:1000:1000:A,,,:/home/alice:/bin/sh\n+nis\nbob:x:-1:1::/:/\n";
        let root = Account { uid: 0, name: "root".into(), home: "/root".into() };
        let alice = Account { uid: 1000, name: "alice".into(), home: "/home/alice".into() };
        assert_eq!(accounts(text), [root, alice]);
    }

    #[test]
    fn a_session_is_of_who_it_says() {
        let text = "# This is private data. Do not parse.\nUID=1000\nUSER=alice\nACTIVE=1\nSTATE=active\nREMOTE=1\n\
                    SCOPE=session-5.scope\nTTY=pts/0\nREMOTE_HOST=\"10.0.0.7\"\n";
        let want =
            Session { user: "alice".into(), tty: Some("pts/0".into()), remote_host: Some("10.0.0.7".into()) };
        assert_eq!(session(text, 1000, "session-5.scope"), Some(want));
        assert_eq!(session(text, 1001, "session-5.scope"), None, "another's");
        assert_eq!(session(text, 1000, "session-6.scope"), None, "the file of another session");
        assert_eq!(session("UID=1000\nUS", 1000, "session-5.scope"), None, "torn");
    }

    #[test]
    fn a_machine_has_a_unit() {
        let text = "NAME=web\nSCOPE=machine-web.scope\nSERVICE=nspawn\n";
        assert_eq!(machine(text, "web"), Some(("machine-web.scope".into(), "web".into())));
        assert_eq!(machine(text, "other"), None);
        assert_eq!(machine("NAME=web\n", "web"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[A-Z=:\"\\\\\n0-9#é/]{0,80}", any in ".*") {
            for text in [&text, &any] {
                accounts(text);
                session(text, 1000, text);
                machine(text, text);
            }
        }
    }
}
