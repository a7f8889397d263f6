use proptest::prelude::*;

use super::*;

pub(super) fn line(arguments: &[&str]) -> String {
    command_line(arguments.join("\0").as_bytes(), false).replace(BETWEEN_ARGUMENTS, " ")
}

pub(super) fn of(text: &str) -> String {
    line(&text.split(' ').collect::<Vec<_>>())
}

#[test]
fn values_go_and_names_stay() {
    for (told, want) in [
        ("/srv/app --password=hunter2 --port 80", "/srv/app --password=*** --port 80"),
        ("/srv/app --password hunter2 run", "/srv/app --password *** run"),
        (
            "app -Djavax.net.ssl.keyStorePassword=hunter2 Main",
            "app -Djavax.net.ssl.keyStorePassword=*** Main",
        ),
        ("env PGPASSWORD=hunter2 DEBUG=yes psql -h db", "env PGPASSWORD=*** DEBUG=*** psql -h db"),
        ("curl https://joe:hunter2@host/a?b", "curl https://joe:***@host/a?b"),
        ("curl http://h/?token=hunter2&x=1", "curl http://h/?token=***"),
        ("mysql -uroot -phunter2 shop", "mysql -uroot -p*** shop"),
        ("ssh -p 2222 host", "ssh -p 2222 host"),
        ("nginx -p /srv/www -c a.conf", "nginx -p /srv/www -c a.conf"),
        ("redis-cli -a hunter2 ping", "redis-cli -a *** ping"),
        ("openssl enc -pass pass:hunter2 -in x", "openssl enc -pass *** -in x"),
        ("mysqladmin password hunter2", "mysqladmin password ***"),
        ("app --no-password --verbose", "app --no-password --verbose"),
        ("python3 /srv/report.py --day 3", "python3 /srv/report.py --day 3"),
        (
            "/usr/lib/x86_64-linux-gnu/libexec/kf6/kded6 --replace",
            "/usr/lib/x86_64-linux-gnu/libexec/kf6/kded6 --replace",
        ),
    ] {
        assert_eq!(of(told), want);
    }
}

#[test]
fn an_argument_with_blanks_is_one_value() {
    assert_eq!(
        line(&["curl", "-H", "Authorization: Bearer hunter2 x", "host"]),
        "curl -H Authorization: *** host"
    );
    assert_eq!(line(&["app", "--password=a b c", "x"]), "app --password=*** x");
    assert_eq!(line(&["app", "--token", "a b c", "x"]), "app --token *** x");
    assert_eq!(line(&["sh", "-c", "mysql --password='a b' -e x; ls"]), "sh -c mysql --password=*** -e x; ls");
    assert_eq!(
        line(&["sh", "-c", "curl -H \"Authorization: Basic aGk=\" h"]),
        "sh -c curl -H \"Authorization:***"
    );
    assert_eq!(line(&["app", r#"{"password":"hunter2"}"#]), r#"app {"password":***"#);
}

#[test]
fn key_like_words_are_redacted_and_ordinary_names_are_kept() {
    for key in [
        "d41d8cd98f00b204e9800998ecf8427e",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "ghp_abcdefghijklmnop",
        "AKIAIOSFODNN7EXAMPLE",
        "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5",
    ] {
        assert!(!of(&format!("app run {key} now")).contains(key), "{key}");
    }
    for name in [
        "/usr/lib/jvm/java-21-openjdk-amd64/bin/java",
        "com.example.Main",
        "linux-image-6.12.41",
        "2026-11-26",
    ] {
        assert!(of(&format!("app {name}")).ends_with(name), "{name}");
    }
}

#[test]
fn of_a_line_that_was_cut_the_last_word_goes() {
    assert_eq!(command_line(b"app\0--config\0/etc/ap", true), "app\u{1f}--config\u{1f}...");
    assert_eq!(command_line(b"postgres: shop UPD", true), "postgres: shop ...");
    assert_eq!(title(b"abcdef", 6, 6).as_deref(), Some("..."));
}

#[test]
fn the_environment_behind_a_title_is_none_of_it() {
    assert_eq!(title(b"worker: abcSECRET_X=hunter2", 11, 255).as_deref(), Some("worker: abc"));
    assert_eq!(title(b"sshd: root@pts/0 [priv]", 9, 255).as_deref(), Some("sshd: root@pts/0 [priv]"));
    assert_eq!(title(b"", 9, 255), None);
    assert_eq!(title(b"\0\0\0", 9, 255), None);
}

/// Names in many spellings, each with a value in one of several forms.
fn given(secret: &str, name: &str, form: usize) -> Vec<String> {
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match form {
        0 => text(&[&format!("--{name}={secret}")]),
        1 => text(&[&format!("--{name}"), secret]),
        2 => text(&[&format!("-D{name}={secret}")]),
        3 => text(&[&format!("{}={secret}", name.to_uppercase().replace('-', "_"))]),
        4 => text(&[&format!("https://joe:{secret}@host:80/a")]),
        5 => text(&["-H", &format!("Authorization: Bearer {secret}")]),
        6 => text(&["sh", "-c", &format!("run --{name} '{secret}' x")]),
        7 => text(&["mysql", "-u", "joe", &format!("-p{secret}")]),
        8 => text(&[&format!("postgres://u:{secret}@db/shop?a=b")]),
        9 => text(&[&format!("--data=user=joe&{name}={secret}")]),
        10 => text(&["--proxy", &format!("joe:{secret}@host:80")]),
        11 => text(&["mysql", "-e", &format!("SET PASSWORD = '{secret}'")]),
        12 => text(&["mysql", "-e", &format!("ALTER USER joe IDENTIFIED BY 'x {secret}'")]),
        13 => text(&["sh", "-c", &format!("run --{name} 'a {secret} b'")]),
        14 => text(&["sh", "-c", &format!("run {name} = '{secret}'")]),
        15 => text(&["snmpget", "-v2c", "-c", secret, "host"]),
        _ => text(&[&format!("{{\"{name}\": \"{secret}\"}}")]),
    }
}

const NAMES: [&str; 16] = [
    "password",
    "passwd",
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "apikey",
    "api_key",
    "auth",
    "credential",
    "private-key",
    "session-id",
    "cookie",
    "db-password",
    "bearer",
];

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_once_is_enough(bytes in prop::collection::vec(any::<u8>(), 0..300), cut: bool) {
        let once = command_line(&bytes, cut);
        prop_assert!(!once.contains(|c: char| c.is_control() && c != BETWEEN_ARGUMENTS));
        prop_assert_eq!(&command_line(once.as_bytes(), false), &once);
    }

    #[test]
    fn of_likely_text_once_is_enough(words in prop::collection::vec("(--?)?(password|key|https://a:b@c|mysql|-p|Authorization:|bearer|x|[A-Z]{1,3}|'|\"|[a-zA-Z0-9/+=:'\" \\\\@-]{1,40})(=|:|)[a-z'\"]{0,4}", 0..12)) {
        let once = command_line(words.join("\0").as_bytes(), false);
        prop_assert_eq!(command_line(once.as_bytes(), false), once);
    }

    #[test]
    fn no_secret_survives(
        secret in "[a-zA-Z0-9]{6,30}[qxz]{4}",
        name in prop::sample::select(&NAMES[..]),
        form in 0usize..17,
        before in prop::collection::vec("[a-m]{1,8}|--[a-d]{2,5}|-[b-d]|/[a-m/]{3,9}", 0..5),
        after in prop::collection::vec("[a-m]{1,8}|--[a-d]{2,5}=[a-m]{1,4}", 0..5),
    ) {
        let mut words = vec!["/usr/bin/app".to_owned()];
        words.extend(before);
        words.extend(given(&secret, name, form));
        words.extend(after.clone());
        let line = command_line(words.join("\0").as_bytes(), false);
        prop_assert!(!line.contains(&secret), "{} of {:?}", line, words);
        if let Some(last) = after.last() {
            prop_assert!(line.ends_with(last), "{} of {:?}", line, words);
        }
    }

    #[test]
    fn a_title_is_never_more_than_was_there(bytes in prop::collection::vec(any::<u8>(), 0..255), area in 0usize..300) {
        let _ = title(&bytes, area, 255);
    }
}
