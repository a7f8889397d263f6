//! Generated containers, units and sessions as they lie on disk: each gets the name that its files say, and one without a whole file of its
//! own gets no name.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runtime {
    Containerd,
    Nerdctl,
    Crio,
    CrioStays,
    Docker,
    DockerOfPod,
    DockerOfUser,
    Podman,
    PodmanOfUser,
    PodmanVolatile,
}

/// A defect of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    None,
    Torn,
    OtherId,
    OtherPod,
    Bytes,
    LeadsOut,
    Fifo,
    Absent,
}

#[derive(Debug, Clone)]
struct Drawn {
    runtime: Runtime,
    damage: Damage,
    systemd: bool,
    inside: bool,
    /// A name is any text that a file can hold, but not an empty one.
    name: String,
    image: String,
    pod: String,
    namespace: String,
}

impl Drawn {
    fn is_in_pod(&self) -> bool {
        matches!(
            self.runtime,
            Runtime::Containerd | Runtime::Crio | Runtime::CrioStays | Runtime::DockerOfPod
        )
    }

    fn is_of_user(&self) -> bool {
        matches!(self.runtime, Runtime::DockerOfUser | Runtime::PodmanOfUser)
    }

    fn engine(&self) -> (&'static str, &'static str) {
        match self.runtime {
            Runtime::Containerd => ("containerd", "cri-containerd-"),
            Runtime::Nerdctl => ("containerd", "nerdctl-"),
            Runtime::Crio | Runtime::CrioStays => ("cri-o", "crio-"),
            Runtime::Docker | Runtime::DockerOfPod | Runtime::DockerOfUser => ("docker", "docker-"),
            _ => ("podman", "libpod-"),
        }
    }

    fn path(&self, at: usize) -> String {
        let (id, uid) = (id(at), uid(at));
        let prefix = self.engine().1;
        let above = match (self.is_in_pod(), self.is_of_user(), self.systemd) {
            (true, _, true) => format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
                uid.replace('-', "_")
            ),
            (true, _, false) => format!("/kubepods/burstable/pod{uid}"),
            (_, true, _) => "/user.slice/user-1000.slice/user@1000.service/user.slice".to_owned(),
            (_, _, true) => "/system.slice".to_owned(),
            _ => "/runtime".to_owned(),
        };
        let own = if self.systemd || self.is_of_user() { format!("{prefix}{id}.scope") } else { id };
        format!("{above}/{own}{}", if self.inside { "/init" } else { "" })
    }

    /// Where its file is, and the file's text.
    fn file(&self, at: usize) -> (String, String) {
        let id = if self.damage == Damage::OtherId { id(at + 1000) } else { id(at) };
        let uid = if self.damage == Damage::OtherPod { uid(at + 1000) } else { uid(at) };
        let (name, image, pod, namespace) =
            (json(&self.name), json(&self.image), json(&self.pod), json(&self.namespace));
        let k8s = format!(
            r#""io.kubernetes.container.name":{name},"io.kubernetes.pod.name":{pod},"io.kubernetes.pod.namespace":{namespace},"io.kubernetes.pod.uid":"{uid}""#
        );
        let bundle = |labels: String| {
            format!(
                r#"{{"ociVersion":"1.1.0","process":{{"args":["x"]}},"annotations":{{{labels}}},"linux":{{"cgroupsPath":"/x/{id}","resources":null}}}}"#
            )
        };
        let docker = |name: &str, labels: &str| {
            format!(
                r#"{{"StreamConfig":{{}},"ID":"{id}","Name":{name},"Config":{{"Image":{image},"Labels":{{{labels}}},"Env":["A=b"]}}}}"#
            )
        };
        let stored = || {
            let metadata = json(&format!(r#"{{"image-name":{image},"image-id":"x","name":{name}}}"#));
            format!(
                r#"[{{"id":"x","names":null}},{{"id":"{id}","names":[{name}],"metadata":{metadata},"layer":"x"}}]"#
            )
        };
        let cri = format!(
            r#""io.kubernetes.cri.container-type":"container","io.kubernetes.cri.container-name":{name},"io.kubernetes.cri.image-name":{image},"io.kubernetes.cri.sandbox-name":{pod},"io.kubernetes.cri.sandbox-namespace":{namespace},"io.kubernetes.cri.sandbox-uid":"{uid}""#
        );
        let crio = format!(
            r#""io.kubernetes.cri-o.ContainerID":"{id}","io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri-o.ImageName":{image},{k8s}"#
        );
        let own = self::id(at);
        let home = "home/alice/.local/share";
        match self.runtime {
            Runtime::Containerd => (
                format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{own}/config.json"),
                bundle(cri),
            ),
            Runtime::Nerdctl => (
                format!("run/containerd/io.containerd.runtime.v2.task/default/{own}/config.json"),
                bundle(format!(r#""nerdctl/name":{name}"#)),
            ),
            Runtime::Crio => (
                format!("run/containers/storage/overlay-containers/{own}/userdata/config.json"),
                bundle(crio),
            ),
            Runtime::CrioStays => (
                format!("var/lib/containers/storage/overlay-containers/{own}/userdata/config.json"),
                bundle(crio),
            ),
            Runtime::Docker => {
                let slashed = json(&format!("/{}", self.name));
                (
                    format!("var/lib/docker/containers/{own}/config.v2.json"),
                    docker(&slashed, r#""com.docker.compose.project":"p""#),
                )
            }
            Runtime::DockerOfPod => {
                (format!("var/lib/docker/containers/{own}/config.v2.json"), docker(r#""/k8s_x""#, &k8s))
            }
            Runtime::DockerOfUser => {
                (format!("{home}/docker/containers/{own}/config.v2.json"), docker(&name, ""))
            }
            Runtime::Podman => {
                ("var/lib/containers/storage/overlay-containers/containers.json".to_owned(), stored())
            }
            Runtime::PodmanOfUser => {
                (format!("{home}/containers/storage/overlay-containers/containers.json"), stored())
            }
            Runtime::PodmanVolatile => {
                ("run/containers/storage/overlay-containers/volatile-containers.json".to_owned(), stored())
            }
        }
    }

    fn write(&self, at: usize, root: &Path, outside: &Path) {
        let (file, text) = self.file(at);
        let path = root.join(&file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Several containers share a list: the last one that was generated is in it.
        let _ = fs::remove_file(&path);
        match self.damage {
            Damage::None | Damage::OtherId | Damage::OtherPod => fs::write(path, text).unwrap(),
            Damage::Torn => {
                fs::write(path, text.get(..text.floor_char_boundary(text.len() - 2)).unwrap()).unwrap()
            }
            Damage::Bytes => fs::write(path, [0xff, 0x00, 0x1b]).unwrap(),
            Damage::LeadsOut => {
                let secret = outside.join(format!("{at}"));
                fs::write(&secret, text).unwrap();
                symlink(secret, path).unwrap();
            }
            Damage::Fifo => {
                let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
                // SAFETY: the path ends with a NUL.
                assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
            }
            Damage::Absent => {}
        }
    }

    fn is_named(&self) -> bool {
        self.damage == Damage::None || self.damage == Damage::OtherPod && !self.is_in_pod()
    }

    fn want(&self, at: usize) -> Group {
        let text = |words: &str| Some(words.to_owned());
        let in_pod = |words: &str| text(words).filter(|_| self.is_in_pod());
        Group {
            path: self.path(at),
            runtime: text(self.engine().0),
            container_id: text(&id(at)),
            container: text(&self.name),
            image: text(&self.image).filter(|_| self.runtime != Runtime::Nerdctl),
            pod: in_pod(&self.pod),
            namespace: in_pod(&self.namespace),
            pod_uid: in_pod(&uid(at)),
            ..Group::default()
        }
    }
}

fn id(at: usize) -> String {
    format!("{:064x}", 0x00c0_ffee_0000_0000_u64 + at as u64)
}

fn uid(at: usize) -> String {
    format!("11111111-2222-3333-4444-{at:012x}")
}

fn json(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

fn drawn() -> impl Strategy<Value = Drawn> {
    use Runtime as R;
    let runtime = prop::sample::select(vec![
        R::Containerd,
        R::Nerdctl,
        R::Crio,
        R::CrioStays,
        R::Docker,
        R::DockerOfPod,
        R::DockerOfUser,
        R::Podman,
        R::PodmanOfUser,
        R::PodmanVolatile,
    ]);
    let damage = prop_oneof![
        5 => Just(Damage::None),
        5 => prop::sample::select(vec![
            Damage::Torn, Damage::OtherId, Damage::OtherPod, Damage::Bytes, Damage::LeadsOut, Damage::Fifo, Damage::Absent,
        ]),
    ];
    // "/" is what Docker writes before a name.
    let name = "[a-z\"\\\\{}\u{1b}\u{202e} é-]{1,20}";
    (runtime, damage, any::<bool>(), any::<bool>(), name, name, name, name).prop_map(
        |(runtime, damage, systemd, inside, name, image, pod, namespace)| Drawn {
            runtime,
            damage,
            systemd,
            inside,
            name,
            image,
            pod,
            namespace,
        },
    )
}

/// The names found below `root`, without a child process.
fn found(root: &Path, paths: &[String], uids: &[u32]) -> Named {
    let asked = paths.iter().map(|path| PendingGroup::at(path)).collect();
    let mut said = Vec::new();
    search(root, asked, &uids.iter().copied().collect(), &mut said);
    heard(&said, true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn containers_are_called_what_their_own_files_say_and_no_name_is_invented(all in prop::collection::vec(drawn(), 1..12)) {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/passwd"), "alice:x:1000:1000::/home/alice:/bin/sh\n").unwrap();
        let mut shared = HashSet::new();
        // If several containers share one list, only the last one was written: ask only for that one.
        let all: Vec<(usize, Drawn)> = all.into_iter().enumerate().rev().filter(|(at, one)| shared.insert(one.file(*at).0)).collect();
        all.iter().for_each(|(at, one)| one.write(*at, root.path(), outside.path()));
        let paths: Vec<String> = all.iter().map(|(at, one)| one.path(*at)).collect();
        let named = found(root.path(), &paths, &[]);
        for (at, one) in &all {
            let row = named.groups.iter().find(|group| group.path == one.path(*at));
            if one.is_named() {
                prop_assert_eq!(row, Some(&one.want(*at)), "{:?}", one);
            } else {
                let said = row.map(|group| (&group.container, &group.image, &group.pod, &group.container_id));
                prop_assert!(said.is_none_or(|said| said == (&None, &None, &None, &None)), "{:?}: {:?}", one, row);
            }
        }
    }

    #[test]
    fn no_text_of_a_runtime_makes_it_panic(text in "[\\[\\]{}\":,a-zA-Z0-9./_-]{0,120}", any in ".*") {
        for text in [&text, &any] {
            found::bundle(text, "id");
            found::docker(text, "id");
            found::stored(text);
            found::pod_logs(text);
            found::container_log(text);
        }
    }
}

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn row(named: &Named, path: &str) -> Group {
    named.groups.iter().find(|group| group.path == path).cloned().unwrap_or_default()
}

#[test]
fn a_pod_is_called_by_its_logs_if_they_are_those_of_its_uid() {
    let root = tempfile::tempdir().unwrap();
    let (pod, other) = (format!("/kubepods/pod{}", uid(1)), format!("/kubepods/pod{}", uid(2)));
    let container = format!("{pod}/{}", id(1));
    for folder in [format!("shop_web-0_{}", uid(1)), format!("shop_web_1_{}", uid(2)), "x_y".to_owned()] {
        fs::create_dir_all(root.path().join("var/log/pods").join(folder)).unwrap();
    }
    write(root.path(), &format!("var/log/containers/web-0_shop_nginx-{}.log", id(1)), "");
    let named = found(root.path(), &[pod.clone(), other.clone(), container.clone()], &[]);
    assert_eq!(row(&named, &pod).full_pod().as_deref(), Some("shop/web-0"));
    assert_eq!(row(&named, &other), Group::default(), "three parts are a name, four are not");
    assert_eq!(row(&named, &container).container.as_deref(), Some("nginx"));
}

#[test]
fn units_are_described_by_the_file_that_counts_and_what_is_dropped_in() {
    let root = tempfile::tempdir().unwrap();
    let at = |file: &str, text: &str| write(root.path(), file, text);
    at("usr/lib/systemd/system/web.service", "[Unit]\nDescription=Shipped\n");
    at("etc/systemd/system/web.service", "[Unit]\nDescription=Ours %n\n");
    at("usr/lib/systemd/system/db.service", "[Unit]\nDescription=A database\n");
    at("etc/systemd/system/db.service.d/10.conf", "[Unit]\nDescription=The database of %H\n");
    at("usr/lib/systemd/system/db.service.d/20.conf", "[Unit]\nDescription=The database\n");
    at("usr/lib/systemd/system/getty@.service", "[Unit]\nDescription=Getty on %I\n");
    at("run/systemd/transient/run-1.scope", "[Unit]\nDescription=/usr/bin/make\n");
    fs::create_dir_all(root.path().join("etc/systemd/system")).unwrap();
    symlink("/dev/null", root.path().join("etc/systemd/system/masked.service")).unwrap();
    at("usr/lib/systemd/system/masked.service", "[Unit]\nDescription=Does not run\n");
    at("usr/lib/systemd/user/app.service", "[Unit]\nDescription=An app\n");
    let inner = format!("/docker/{}/system.slice/web.service", id(1));
    let app = "/user.slice/user-1000.slice/user@1000.service/app.slice/app.service";
    let paths = [
        "/system.slice/web.service",
        "/system.slice/db.service",
        "/system.slice/getty@tty1.service",
        "/system.slice/run-1.scope",
        "/system.slice/masked.service",
        "/system.slice/none.service",
        &inner,
        app,
        "/system.slice/app.service",
    ];
    let named = found(root.path(), &paths.map(str::to_owned), &[]);
    let described = paths.map(|path| row(&named, path).description.unwrap_or_default());
    let want =
        ["Ours web.service", "The database", "Getty on tty1", "/usr/bin/make", "", "", "", "An app", ""];
    assert_eq!(described, want);
}

#[test]
fn sessions_machines_and_users_are_called_by_theirs() {
    let root = tempfile::tempdir().unwrap();
    let at = |file: &str, text: &str| write(root.path(), file, text);
    at(
        "etc/passwd",
        "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbob:x:1001:1001::/:/\n",
    );
    at(
        "run/systemd/sessions/5",
        "UID=1000\nUSER=alice\nTTY=pts/0\nREMOTE_HOST=10.0.0.7\nSCOPE=session-5.scope\n",
    );
    at("run/systemd/sessions/6", "UID=1001\nUSER=bob\n");
    at("run/systemd/machines/web", "NAME=web\nSCOPE=machine-qemu\\x2d1\\x2dweb.scope\n");
    let slice = "/user.slice/user-1000.slice";
    let (five, six) = (format!("{slice}/session-5.scope"), format!("{slice}/session-6.scope"));
    let machine = r"/machine.slice/machine-qemu\x2d1\x2dweb.scope";
    let named =
        found(root.path(), &[five.clone(), six.clone(), slice.to_owned(), machine.to_owned()], &[0, 1000]);
    let five = row(&named, &five);
    assert_eq!(
        (five.session.as_deref(), five.user.as_deref(), five.tty.as_deref()),
        (Some("5"), Some("alice"), Some("pts/0"))
    );
    assert_eq!(row(&named, &six).session, None, "bob's file is not about a session of alice");
    assert_eq!(row(&named, slice).user.as_deref(), Some("alice"));
    assert_eq!(row(&named, machine).machine.as_deref(), Some("web"));
    let user = |uid, name: &str| User { uid, name: name.into() };
    assert_eq!(named.users, [user(0, "root"), user(1000, "alice")]);
}

#[test]
fn timed_the_child_says_the_same_and_a_torn_answer_is_kept_up_to_there() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "usr/lib/systemd/system/web.service", "[Unit]\nDescription=A web server\n");
    let path = "/system.slice/web.service";
    let named = read(root.path(), [path].into_iter(), &BTreeSet::new());
    assert_eq!((named.is_whole, row(&named, path).description.as_deref()), (true, Some("A web server")));
    let torn = heard(b"{\"user\":{\"uid\":1,\"name\":\"a\"}}\n{\"group\":{\"path\":\"/x\",\"conta", false);
    assert_eq!((torn.is_whole, torn.users.len(), torn.groups.len()), (false, 1, 0));
}

/// Another user's process has that user as owner, by /proc.
#[test]
fn root_task_of_another_user_has_its_uid_and_uid_0_has_its_name() {
    use std::os::unix::process::CommandExt as _;
    let mut slot = std::mem::MaybeUninit::uninit();
    let mut tasks = crate::bpf::tasks::Tasks::start(&mut slot).expect("root may load the task iterator");
    let mut sleeper = std::process::Command::new("sleep").arg("60").uid(65_123).spawn().unwrap();
    let seen = tasks.snapshot();
    let _ = sleeper.kill();
    let _ = sleeper.wait();
    let uids: BTreeSet<u32> = seen.unwrap().tasks.iter().map(|task| task.uid).collect();
    assert!(uids.contains(&65_123), "{uids:?}");
    let began = std::time::Instant::now();
    let named = read(Path::new("/"), ["/system.slice/dbus.service"].into_iter(), &uids);
    assert!(named.is_whole, "within {:?}", began.elapsed());
    assert!(named.users.iter().any(|user| user.uid == 0 && user.name == "root"), "{:?}", named.users);
}
