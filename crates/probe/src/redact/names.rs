//! Which names say that a secret follows.

/// Anywhere in a name: "PGPASSWORD", "--db-passwd", "aws_secret_access_key". They also hide values that are no secrets ("--author"):
/// no report needs those.
const SECRET: [&str; 14] = [
    "passw",
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "apikey",
    "auth",
    "credential",
    "private",
    "session",
    "cookie",
    "bearer",
    "signature",
];

/// The same as the last part of a name: "--pin", "--so-pin", "-pw", "user_pw", but not "--ping" or "--cpu-pinning".
const LAST: [&str; 8] = ["pin", "pw", "upw", "opw", "otp", "psk", "jwt", "community"];

/// Words that are no options, but are followed by a secret: `mysqladmin password x`.
const BARE: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "apikey", "api_key", "bearer", "psk"];

/// The same as the end of a setting's name: `git config proxy.password x`, `configure set aws_secret_access_key x`.
const BARE_END: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "requirepass",
    "masterauth",
    "secret_key",
    "access_key",
    "private_key",
    "api_key",
    "auth_token",
];

/// Words between "Authorization:" and the secret.
const SCHEMES: [&str; 6] = ["basic", "bearer", "digest", "negotiate", "token", "apikey"];

/// Whether a value of this name is secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(['-', '_', '.', '/']).next().unwrap_or_default();
    !name.starts_with("--no-") && (SECRET.iter().any(|secret| name.contains(secret)) || LAST.contains(&last))
}

/// An environment variable that is set for a command: no report needs its value.
pub(super) fn is_environment(name: &str) -> bool {
    let is_upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && name.chars().all(is_upper)
}

pub(super) fn is_bare_name(word: &str) -> bool {
    BARE.iter().any(|bare| word.eq_ignore_ascii_case(bare))
}

/// As `is_bare_name`, or the name of a setting that ends so.
pub(super) fn is_setting(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_name = word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(is_part);
    let lower = word.to_ascii_lowercase().replace('-', "_");
    is_bare_name(word) || (is_name && BARE_END.iter().any(|end| lower.ends_with(end)))
}

pub(super) fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Signs between a name and its value in SQL and settings: they hold no value themselves.
pub(super) fn is_sign(word: &str) -> bool {
    matches!(word, "=" | ":" | ":=" | "=>" | "==")
}

/// The same as a word: "IDENTIFIED BY VALUES 'x'", "PASSWORD IS 'x'".
pub(super) fn is_joint(word: &str) -> bool {
    ["by", "to", "is", "as", "values"].iter().any(|joint| word.eq_ignore_ascii_case(joint))
}

/// A program with short options for secrets. For other programs `-p` is a port, a path or a pid.
#[derive(Debug)]
pub(super) struct Program {
    /// Its name begins so.
    begin: &'static [&'static str],
    /// This is its whole name.
    exact: &'static [&'static str],
    /// The secret follows in the same word: `mysql -pSECRET`.
    attached: &'static [&'static str],
    /// The secret is the next word. Words that are no options are commands, in upper or lower case.
    separate: &'static [&'static str],
    /// The next two words are hidden: a user and a password.
    two: &'static [&'static str],
    /// The same, after one word that is shown: the letter of an option, or "" for the program itself.
    behind: Option<&'static str>,
    /// It logs in with an argument "user/password@database".
    pub logs_in: bool,
}

const NONE: Program =
    Program { begin: &[], exact: &[], attached: &[], separate: &[], two: &[], behind: None, logs_in: false };

const PROGRAMS: [Program; 25] = [
    Program { begin: &["mysql", "mariadb"], attached: &["-p"], ..NONE },
    Program { exact: &["sshpass"], attached: &["-p"], separate: &["-p"], ..NONE },
    Program { begin: &["ldap"], attached: &["-w"], separate: &["-w"], ..NONE },
    Program {
        begin: &["curl"],
        attached: &["-u", "-U", "-b", "--user=", "--proxy-user="],
        separate: &["-u", "-U", "-b", "--user", "--proxy-user"],
        ..NONE
    },
    Program { begin: &["wget"], attached: &["--user="], separate: &["--user"], ..NONE },
    Program {
        begin: &["redis-cli", "valkey-cli", "keydb-cli"],
        attached: &["-a", ">", "<", "'>", "\">"],
        separate: &["-a", "requirepass", "masterauth", "masteruser"],
        two: &["auth", "auth2"],
        ..NONE
    },
    Program {
        begin: &["mongo", "cqlsh", "beeline", "couchbase"],
        attached: &["-p"],
        separate: &["-p"],
        ..NONE
    },
    Program {
        begin: &["docker", "podman", "nerdctl", "helm", "skopeo", "buildah"],
        separate: &["-p", "--creds"],
        ..NONE
    },
    Program {
        begin: &["sqlcmd", "bcp", "zip", "unzip", "isql", "tsql", "sqsh", "mosquitto_"],
        attached: &["-P"],
        separate: &["-P"],
        ..NONE
    },
    Program {
        begin: &["smbclient", "rpcclient", "mount.cifs", "winexe"],
        exact: &["net"],
        attached: &["-U"],
        separate: &["-U"],
        ..NONE
    },
    Program {
        begin: &["7z", "7za", "7zr", "rar", "unrar"],
        attached: &["-p", "-P"],
        separate: &["-P"],
        ..NONE
    },
    Program { exact: &["ipmitool"], attached: &["-P"], separate: &["-P"], two: &["password"], ..NONE },
    Program { begin: &["openssl"], separate: &["-k", "-K", "-iv"], ..NONE },
    Program {
        exact: &[
            "snmpget",
            "snmpgetnext",
            "snmpwalk",
            "snmpbulkwalk",
            "snmpbulkget",
            "snmpset",
            "snmptable",
            "snmpdelta",
            "snmpdf",
            "snmpstatus",
            "snmptest",
            "snmptrap",
            "snmpinform",
            "snmpusm",
            "snmpvacm",
            "snmpnetstat",
            "snmpping",
            "snmpps",
        ],
        attached: &["-c", "-A", "-X", "-3m", "-3M", "-3k", "-3K"],
        separate: &["-c", "-A", "-X", "-3m", "-3M", "-3k", "-3K"],
        ..NONE
    },
    Program { exact: &["check_snmp"], attached: &["-C", "-A", "-X"], separate: &["-C", "-A", "-X"], ..NONE },
    Program { exact: &["htpasswd"], behind: Some("b"), ..NONE },
    Program { exact: &["wpa_passphrase"], behind: Some(""), ..NONE },
    Program {
        begin: &["xfreerdp", "wlfreerdp", "sdl-freerdp", "sfreerdp"],
        attached: &["/p:", "/gp:", "/pth:", "-p:"],
        separate: &["-p"],
        ..NONE
    },
    Program { begin: &["rdesktop", "ncftp"], attached: &["-p"], separate: &["-p"], ..NONE },
    Program { exact: &["lftp"], attached: &["-u"], separate: &["-u"], two: &["user"], ..NONE },
    Program { exact: &["http", "https", "httpie"], attached: &["-a"], separate: &["-a"], ..NONE },
    Program { exact: &["ab"], attached: &["-A", "-P"], separate: &["-A", "-P"], ..NONE },
    Program {
        exact: &["useradd", "usermod", "groupadd", "groupmod"],
        attached: &["-p"],
        separate: &["-p"],
        ..NONE
    },
    Program { exact: &["rabbitmqctl"], two: &["add_user", "change_password", "authenticate_user"], ..NONE },
    Program { exact: &["sqlplus", "expdp", "impdp", "sqlldr", "rman", "sqlcl"], logs_in: true, ..NONE },
];

/// The last part of a path; quotes of a shell may come before it.
pub(super) fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default().trim_start_matches(['"', '\'', '('])
}

/// The program that a word names, by its path or without.
pub(super) fn program(word: &str) -> Option<&'static Program> {
    let name = base(word);
    let is_it =
        |one: &&Program| one.exact.contains(&name) || one.begin.iter().any(|begin| name.starts_with(begin));
    PROGRAMS.iter().find(is_it)
}

impl Program {
    /// The option that a word begins with, if the secret is the rest of it.
    pub(super) fn attached(&self, word: &str) -> Option<&'static str> {
        self.attached.iter().copied().find(|option| word.len() > option.len() && word.starts_with(option))
    }

    /// What an argument says about the words that follow: how many are shown, and then how many are hidden.
    pub(super) fn next(&self, word: &str) -> Option<(usize, usize)> {
        let is_in = |all: &[&str]| {
            all.iter().any(|one| *one == word || (!one.starts_with('-') && one.eq_ignore_ascii_case(word)))
        };
        let cluster = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        let is_behind =
            |letter: &str| cluster.is_some_and(|letters| !letter.is_empty() && letters.contains(letter));
        if is_in(self.two) {
            Some((0, 2))
        } else if is_in(self.separate) {
            Some((0, 1))
        } else if self.behind.is_some_and(is_behind) {
            // A file and a user, or with "n" no file: hiding a user does no harm.
            Some((1, 2))
        } else {
            None
        }
    }

    /// The same for the words after the program's name.
    pub(super) fn first(&self) -> Option<(usize, usize)> {
        self.behind.filter(|letter| letter.is_empty()).map(|_| (1, 1))
    }
}
