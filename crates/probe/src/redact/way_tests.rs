//! How programs, SQL and addresses receive secrets; and lines that look like it but hold none.

use super::tests::{line, of};
use super::*;

const PUBLIC: &str = "hunter2";

#[test]
fn secrets_go_however_a_program_is_told_them() {
    for told in [
        "mysql -e SET PASSWORD = 'hunter2'",
        "mysql -e SET PASSWORD FOR 'joe'@'h' = 'hunter2'",
        "mysql -e SET PASSWORD FOR joe = PASSWORD('hunter2')",
        "mysql -e ALTER USER joe IDENTIFIED BY 'hunter2'",
        "mysql -e ALTER USER joe IDENTIFIED WITH caching_sha2_password BY 'hunter2'",
        "mysql -e GRANT ALL ON x.* TO joe IDENTIFIED BY PASSWORD 'hunter2'",
        "sqlplus -s x @create IDENTIFIED BY VALUES 'hunter2'",
        "psql -c ALTER ROLE joe WITH ENCRYPTED PASSWORD 'hunter2'",
        "redis-cli CONFIG SET requirepass hunter2",
        "redis-cli -h db config set masterauth hunter2",
        "redis-cli AUTH hunter2",
        "redis-cli auth joe hunter2",
        "redis-cli ACL SETUSER joe on >hunter2 ~*",
        "sqlplus scott/hunter2@db",
        "sqlplus -S scott/hunter2",
        "rman target sys/hunter2@//db:1521/x",
        "expdp userid=scott/hunter2 full=y",
        "ftp-mirror joe:hunter2@host.example/pub",
        "app --proxy joe:hunter2@proxy:3128",
        "app --dsn=joe:hunter2@tcp(db:3306)/shop",
        "app --dsn joe:a/hunter2@db",
        "app https://joe:a/hunter2@host/x",
        "app https://joe:a#hunter2@host/x",
        "secretsdump corp/joe:hunter2@10.0.0.7",
        "plink -pw hunter2 host",
        "pscp -batch -pw hunter2 a host:b",
        "mosquitto_pub -t x -u joe -P hunter2 -m y",
        "snmpget -v2c -c hunter2 host .1",
        "snmpwalk -v2c -chunter2 host .1",
        "snmpwalk -v3 -A hunter2 -X hunter2 host .1",
        "/usr/bin/snmpbulkwalk -On -v3 -Xhunter2 host",
        "htpasswd -b /etc/x joe hunter2",
        "htpasswd -cbB /etc/x joe hunter2",
        "htpasswd -nb joe hunter2",
        "xfreerdp /v:host /u:joe /p:hunter2",
        "xfreerdp /gp:hunter2 /v:host",
        "lftp -u joe,hunter2 host",
        "lftp -e open -u joe,hunter2 host",
        "PASSWORD hunter2",
        "pkcs11-tool --login --pin hunter2",
        "pkcs11-tool --so-pin=hunter2 --init",
        "pdftotext -upw hunter2 a.pdf",
        "git config http.proxy.password hunter2",
        "aws configure set aws_secret_access_key hunter2",
        "rabbitmqctl add_user joe hunter2",
        "rabbitmqctl change_password joe hunter2",
        "ipmitool user set password 2 hunter2",
        "wpa_passphrase net hunter2",
        "app password = hunter2",
        "app db_password =hunter2",
        "app api_token => hunter2",
        "app {\"secret\" : \"hunter2\"}",
        "wpa_cli set_network 0 psk \"hunter2\"",
    ] {
        assert!(!of(told).contains(PUBLIC), "{}", of(told));
        let (program, command) = told.split_once(' ').unwrap();
        for line in [line(&["sh", "-c", told]), line(&[program, command]), line(&[told])] {
            assert!(!line.contains(PUBLIC), "{line}");
        }
    }
}

#[test]
fn a_value_in_quotes_is_one_however_many_words_it_has() {
    for (told, want) in [
        ("app --password 'a b c' x", "app --password *** x"),
        ("app --password \"a b c\" x", "app --password *** x"),
        ("app --password \"a \\\" b c\" x", "app --password *** x"),
        ("mysql -p'a b' x", "mysql -p*** x"),
        ("lftp -u joe,'a b' x", "lftp -u *** x"),
        ("psql -c PASSWORD('a b') x", "psql -c PASSWORD(*** x"),
        ("psql -c PASSWORD 'a b' x", "psql -c PASSWORD *** x"),
    ] {
        assert_eq!(line(&["sh", "-c", told]), format!("sh -c {want}"));
        assert_eq!(line(&[told]), want, "of a title");
    }
    assert_eq!(line(&["app", "--password", "a b c", "x"]), "app --password *** x");
}

#[test]
fn lines_without_secrets_stay_unchanged() {
    for told in [
        "git log joe@example.org",
        "git clone git@github.com:org/shop.git",
        "git clone ssh://git@host:2222/org/shop.git",
        "git show HEAD@{1}:src/main.rs",
        "rsync -a host:dir/b@c /srv",
        "rsync a:b@c d",
        "scp joe@host:/srv/a:b@2x.png .",
        "ssh -L 8080:db:80 joe@gate",
        "ssh joe@10.0.0.7 -p 2222",
        "npm install left@npm:right@1.2.3",
        "npm install @scope/a@1.2.3 b@2",
        "pip install a@git+https://host/x@v1",
        "docker run shop:1.2@sha256:abcd",
        "zfs send tank/data@daily",
        "mail mailto:joe@example.org",
        "sshd: joe@pts/0",
        "systemctl start getty@tty1.service",
        "celery -A shop worker -n w1@%h",
        "app http://host:80/img@2x.png",
        "app /srv/a:1@b /srv/x",
        "snmpd -c /etc/snmp.conf -A -Lf /x",
        "netstat -c -A inet",
        "tar -c -P -X list -A x",
        "bash --login -c run",
        "ping -c 3 host",
        "taskset --cpu-list 0-3 app --pinned --spin 3 --ping x",
        "xeyes /p:x",
        "psql -c SELECT identified FROM t",
        "htpasswd -n joe",
        "exim -bd -q1h",
        "postgres: joe shop 10.0.0.7(41200) UPDATE",
        "perl -e don't panic it's fine",
        "java -cp /a.jar:/b@2 com.x.Main",
        "ls a = b : c",
    ] {
        assert_eq!(of(told), told);
        // In a shell's command line it is not known which word is a program.
        if !["rsync", "scp"].iter().any(|copier| told.starts_with(copier)) {
            assert_eq!(line(&["sh", "-c", told]), format!("sh -c {told}"));
        }
    }
}

#[test]
fn of_paths_the_passwords_of_addresses_go() {
    for (told, want) in [
        ("https://joe:hunter2@host/a", "https://joe:***@host/a"),
        ("/srv/https:/joe:hunter2@host/a", "/srv/https:/joe:***@host/a"),
        ("/srv/https:/joe:hun/ter2@host/a", "/srv/https:/joe:***@host/a"),
        ("/srv/mirror/joe:hunter2@host/a@b", "/srv/mirror/joe:***@host/a@b"),
        ("joe:hunter2@host", "joe:***@host"),
    ] {
        assert_eq!(path(told), want);
        assert_eq!(path(want), want);
    }
    for plain in [
        "/srv/a:b/c",
        "/run/user@1000.service/x",
        "/x/0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a/y",
        "/a/img@2x.png",
        "socket 10.0.0.7:80",
        "",
    ] {
        assert_eq!(path(plain), plain);
    }
}

#[test]
fn arguments_are_told_apart() {
    let told = command_line(b"/bin/sh\0/opt/My App/run.sh\0a b\0\0", false);
    assert_eq!(told, "/bin/sh\u{1f}/opt/My App/run.sh\u{1f}a b");
    assert_eq!(command_line(told.as_bytes(), false), told);
    assert_eq!(command_line(b"app\0--password\0a b\0x y", false), "app\u{1f}--password\u{1f}***\u{1f}x y");
}
