//! Users with their passwords: before a host, in addresses or alone; before a database.

use super::HIDDEN;

/// Words before a colon and an "@" that have no password between them.
const NO_USERS: [&str; 8] = ["mailto", "sip", "sips", "xmpp", "acct", "npm", "urn", "cid"];
/// Words after an "@" that is not followed by a host: images by their sums.
const NO_HOSTS: [&str; 3] = ["sha256:", "sha384:", "sha512:"];
/// For these programs a colon follows a host, and an "@" may be in a path.
const COPIERS: [&str; 3] = ["rsync", "scp", "sftp"];

/// Whether the program at the begin of a line writes "host:path".
pub(super) fn is_copier(program: &str) -> bool {
    COPIERS.contains(&super::names::base(program))
}

/// A word without the passwords of addresses: "https://user:pass@host", and if `has_bare` also "user:pass@host".
pub(super) fn without(word: &str, has_bare: bool) -> String {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    let bare = |text: &str| if has_bare && !text.starts_with('/') { bare(text) } else { text.to_owned() };
    while let Some((before, after)) = rest.split_once("://") {
        let (login, behind) = authority(after);
        out.push_str(&format!("{}://{login}", bare(before)));
        rest = behind;
    }
    out.push_str(&bare(rest));
    out
}

/// A path without them: programs open addresses as paths, and folders are named after them. The kernel reports one slash of "https://".
pub(super) fn of_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    let parts = |text: &str| text.split('/').map(bare).collect::<Vec<_>>().join("/");
    while let Some((before, after)) = rest.split_once(":/") {
        let address = after.trim_start_matches('/');
        let (login, behind) = authority(address);
        let slashes = after.get(..after.len() - address.len()).unwrap_or_default();
        out.push_str(&format!("{}:/{slashes}{login}", parts(before)));
        rest = behind;
    }
    out.push_str(&parts(rest));
    out
}

/// The part between a scheme and the path, and the rest. A password that is not encoded may contain slashes.
fn authority(after: &str) -> (String, &str) {
    let (head, behind) = after.split_at(after.find(['/', '?', '#', ' ']).unwrap_or(after.len()));
    if let Some((login, host)) = head.rsplit_once('@') {
        let user = login.split_once(':').map(|(user, _)| user);
        return (user.map_or_else(|| head.to_owned(), |user| format!("{user}:{HIDDEN}@{host}")), behind);
    }
    let all = after.get(..after.find(['"', '\'', ',', ' ']).unwrap_or(after.len())).unwrap_or_default();
    match (head.split_once(':'), all.rfind('@')) {
        (Some((user, pass)), Some(at)) if !is_number(pass) && !user.starts_with('[') => {
            (format!("{user}:{HIDDEN}"), after.get(at..).unwrap_or_default())
        }
        _ => (head.to_owned(), behind),
    }
}

/// "user:pass@host" without a scheme, anywhere in a text.
fn bare(text: &str) -> String {
    let host = text.rfind('@').filter(|at| is_host(text.get(at + 1..).unwrap_or_default()));
    let Some((before, host)) = host.map(|at| text.split_at(at)) else { return text.to_owned() };
    let login = before.match_indices(':').find_map(|(colon, _)| {
        let (head, pass) = (before.get(..colon)?, before.get(colon + 1..)?);
        let from =
            head.char_indices().rev().take_while(|(_, c)| is_of_user(*c)).last().map_or(colon, |(at, _)| at);
        let user = head.get(from..)?;
        let is_begin = head.get(..from)?.ends_with(|c: char| "=,'\"(/\\ ;&|{[<>`".contains(c)) || from == 0;
        let is_port = is_number(pass.split('/').next()?);
        let is_other = pass.is_empty() || pass.starts_with('/') || (is_port && pass.contains('/'));
        (is_begin && is_user(user) && !is_other).then_some(head)
    });
    login.map_or_else(|| text.to_owned(), |login| format!("{login}:{HIDDEN}{host}"))
}

fn is_of_user(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '%' | '+' | '$')
}

fn is_user(user: &str) -> bool {
    user.starts_with(|c: char| c.is_alphabetic() || c == '_') && !NO_USERS.contains(&user)
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// "db", "10.0.0.7:80/x", "tcp(db:3306)/shop"; "1.2.3" is a version.
fn is_host(text: &str) -> bool {
    let end =
        text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-' | '_'))).unwrap_or(text.len());
    let name = text.get(..end).unwrap_or_default();
    let is_version = is_number(&name.replace('.', "")) && name.matches('.').count() != 3;
    let begins = text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '[' | '$' | '*'));
    begins && !NO_HOSTS.iter().any(|sum| text.starts_with(sum)) && (name.is_empty() || !is_version)
}

/// "scott/tiger@db" as "scott/***@db", for programs that log in so; "/ as sysdba", "@script" and paths have no password.
pub(super) fn at_database(word: &str) -> Option<String> {
    let from = word.find('=').map_or(0, |at| at + 1);
    let (user, rest) = word.get(from..)?.split_once('/')?;
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '#' | '[' | ']' | '"' | '\'');
    let host = rest.rfind('@').and_then(|at| rest.get(at..)).unwrap_or_default();
    let is_login = !user.is_empty() && user.chars().all(is_plain) && !rest.is_empty();
    is_login.then(|| format!("{}{user}/{HIDDEN}{host}", word.get(..from).unwrap_or_default()))
}
