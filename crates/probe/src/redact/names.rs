//! Which names say that a secret follows.

/// In any place of a name: "PGPASSWORD", "--db-passwd", "aws_secret_access_key". What they hide beside secrets ("--author")
/// no report needs.
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

/// ... as the last part of one: "--pin", "--so-pin", "-pw", "user_pw", but not "--ping" or "--cpu-pinning".
const LAST: [&str; 8] = ["pin", "pw", "upw", "opw", "otp", "psk", "jwt", "community"];

/// Words of which the next is a secret although they are no options: `mysqladmin password x`.
const BARE: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "apikey", "api_key", "bearer", "psk"];

/// ... that have names of settings before them: `git config proxy.password x`, `configure set aws_secret_access_key x`.
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

/// What stands between "Authorization:" and the secret.
const SCHEMES: [&str; 6] = ["basic", "bearer", "digest", "negotiate", "token", "apikey"];

/// Whether what is called so is nobody's business.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(['-', '_', '.', '/']).next().unwrap_or_default();
    !name.starts_with("--no-") && (SECRET.iter().any(|secret| name.contains(secret)) || LAST.contains(&last))
}

/// A variable of the environment that is set for a command: nobody asks what is in it.
pub(super) fn is_environment(name: &str) -> bool {
    let is_upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && name.chars().all(is_upper)
}

pub(super) fn is_bare_name(word: &str) -> bool {
    BARE.iter().any(|bare| word.eq_ignore_ascii_case(bare))
}

/// As `is_bare_name`, or a setting's name that ends so.
pub(super) fn is_setting(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_name = word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(is_part);
    let lower = word.to_ascii_lowercase().replace('-', "_");
    is_bare_name(word) || (is_name && BARE_END.iter().any(|end| lower.ends_with(end)))
}

pub(super) fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// What stands between a name and its value in SQL and settings, and says nothing itself.
pub(super) fn is_sign(word: &str) -> bool {
    matches!(word, "=" | ":" | ":=" | "=>" | "==")
}

/// ... as a word: "IDENTIFIED BY VALUES 'x'", "PASSWORD IS 'x'".
pub(super) fn is_joint(word: &str) -> bool {
    ["by", "to", "is", "as", "values"].iter().any(|joint| word.eq_ignore_ascii_case(joint))
}

/// A program with short options for secrets. `-p` is a port, a path or a pid for others.
#[derive(Debug)]
pub(super) struct Program {
    /// Names begin so.
    begin: &'static [&'static str],
    /// It is called just so.
    exact: &'static [&'static str],
    /// The secret follows in the same word: `mysql -pSECRET`.
    attached: &'static [&'static str],
    /// ... in the next. Words that are no options are commands, in letters of either case.
    separate: &'static [&'static str],
    /// The next two words are hidden: of a user and a password.
    two: &'static [&'static str],
    /// So are these, after one that is told: an option's letter, or the program itself where it is "".
    behind: Option<&'static str>,
    /// It is told to log in as "user/password@database".
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

/// The last part of a path; quotes of a shell may stand before it.
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

    /// What a word of its arguments says of those that follow: so many are told, and then so many are not.
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
            // A file and a user, or with "n" none: a user that is hidden hurts nobody.
            Some((1, 2))
        } else {
            None
        }
    }

    /// ... of those behind its name.
    pub(super) fn first(&self) -> Option<(usize, usize)> {
        self.behind.filter(|letter| letter.is_empty()).map(|_| (1, 1))
    }
}
