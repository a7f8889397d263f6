//! Readable names of symbols: without the additions of compilers and linkers, and demangled as far as possible.

/// Suffixes of compilers with a dot before and a number after: parts of one function, and functions for one caller.
const NUMBERED: &[&str] =
    &["cold", "part", "isra", "constprop", "lto_priv", "llvm", "clone", "__uniq", "specialized"];
/// The same without a number.
const ALONE: &[&str] = &["cold", "localalias", "warm", "unlikely"];
/// The most of a demangled name; texts of a report cut it earlier.
const MOST_BYTES: usize = 4096;
/// Remains of template packs without members, and their replacement.
const EMPTY_PACKS: &[(&str, &str)] =
    &[(", >", ">"), ("<, ", "<"), (", , ", ", "), ("(, ", "("), (", )", ")"), (", &&)", ")"), (", &)", ")")];

/// The readable form of a name, mangled or not. `has_dots`: in this file's language a name has dots of its own.
pub fn readable(name: &str, has_dots: bool) -> String {
    // glibc's `memcpy@@GLIBC_2.14`, the linker's `read@plt`.
    let is_plain = !name.contains(['(', '<', ' ']);
    let name = name.split('@').next().filter(|begin| is_plain && !begin.is_empty()).unwrap_or(name);
    if has_dots && !name.starts_with("_Z") {
        return name.to_owned();
    }
    let own = without_clones(if is_plain { without_suffixes(name) } else { name });
    let demangled = if own.starts_with("_Z") || own.starts_with("_R") { demangled(own) } else { None };
    without_empty_packs(demangled.as_deref().map_or(own, without_clones))
}

fn demangled(name: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return Some(format!("{rust:#}"));
    }
    cpp(name).or_else(|| coarse(name))
}

/// Each part of a name may stand for two of the one before it: names that are too long to read are not written out.
fn cpp(name: &str) -> Option<String> {
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    let mut text = Bounded(String::new());
    let is_whole = symbol.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::default()).is_ok();
    (is_whole || text.0.len() >= MOST_BYTES).then_some(text.0)
}

struct Bounded(String);

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        if self.0.len() >= MOST_BYTES {
            return Err(std::fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// `read.constprop.0.cold`: the name of the original function.
fn without_suffixes(mut name: &str) -> &str {
    while let Some((begin, last)) = name.rsplit_once('.').filter(|(begin, _)| !begin.is_empty()) {
        let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
        let numbered = begin
            .rsplit_once('.')
            .filter(|(begin, word)| is_number && !begin.is_empty() && NUMBERED.contains(word));
        name = match numbered {
            Some((begin, _)) => begin,
            None if ALONE.contains(&last) => begin,
            None => return name,
        };
    }
    name
}

/// The same as demanglers write it: "f(int) [clone .cold]".
fn without_clones(name: &str) -> &str {
    name.split_once(" [clone ").map_or(name, |(begin, _)| begin)
}

fn without_empty_packs(name: &str) -> String {
    let mut name = name.to_owned();
    while let Some((empty, is)) = EMPTY_PACKS.iter().find(|(empty, _)| name.contains(empty)) {
        name = name.replace(empty, is);
    }
    without_empty_references(&name)
}

/// A parameter list from an empty pack of references; after a blank it is a reference to a function: `void (&)(int)`.
fn without_empty_references(name: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("(&") {
        let (begin, from) = rest.split_at(at);
        kept.push_str(begin);
        let reference = ["(&&)", "(&)"].into_iter().find(|one| from.starts_with(one));
        let list = reference.filter(|_| !kept.is_empty() && !kept.ends_with([' ', '(', ',']));
        let (is, length) = match (list, reference) {
            (Some(one), _) => ("()", one.len()),
            (None, Some(one)) => (one, one.len()),
            (None, None) => ("(&", 2),
        };
        kept.push_str(is);
        rest = from.get(length..).unwrap_or_default();
    }
    kept.push_str(rest);
    kept
}

/// For names that no demangler takes (newer manglings, cut names, names nested too deep): the names at its begin (Itanium C++ ABI,
/// 5.1: `_ZN`, then each with its length).
fn coarse(name: &str) -> Option<String> {
    let rest = name.strip_prefix("_Z")?;
    let nested = rest.strip_prefix('N');
    let mut rest = nested.map_or(rest, |rest| rest.trim_start_matches(['r', 'V', 'K', 'R', 'O']));
    let mut parts: Vec<&str> = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix("St") {
            parts.push("std");
            rest = after;
            continue;
        }
        let named = rest.strip_prefix('L').unwrap_or(rest);
        let digits = named.bytes().take_while(u8::is_ascii_digit).count();
        let Some(size) = named.get(..digits).and_then(|size| size.parse::<usize>().ok()) else { break };
        let after = named.get(digits..)?;
        let part = after.get(..size).unwrap_or(after);
        parts.push(if part.starts_with("_GLOBAL__N") { "(anonymous namespace)" } else { part });
        rest = after.get(size..).unwrap_or_default();
        if nested.is_none() {
            break;
        }
    }
    let last = parts.iter().rfind(|part| !part.is_empty()).copied()?;
    let special = match rest.as_bytes() {
        [b'C', b'1'..=b'5', ..] => format!("::{last}"),
        [b'D', b'0'..=b'5', ..] => format!("::~{last}"),
        [b'I', ..] => "<...>".to_owned(),
        _ => String::new(),
    };
    Some(parts.join("::") + &special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_and_linker_suffixes_are_stripped_from_symbol_names() {
        for (name, want) in [
            ("read", "read"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("read@plt", "read"),
            ("work.constprop.0", "work"),
            ("work.isra.0.constprop.1.cold", "work"),
            ("work.part.0.cold.12", "work"),
            ("work.llvm.1234567890", "work"),
            ("work.lto_priv.0", "work"),
            ("__libc_malloc.localalias", "__libc_malloc"),
            ("v8.2", "v8.2"),
            (".cold", ".cold"),
            ("f(int) [clone .part.0] [clone .cold]", "f(int)"),
            ("@", "@"),
            ("", ""),
        ] {
            assert_eq!(readable(name, false), want, "{name}");
        }
    }

    #[test]
    fn names_with_dots_of_their_own_keep_them() {
        assert_eq!(readable("main.cold", true), "main.cold");
        assert_eq!(readable("main.(*T).part.0", true), "main.(*T).part.0");
        assert_eq!(readable("_ZN3foo3barEv", true), "foo::bar()");
    }

    #[test]
    fn names_of_cpp_and_rust_are_demangled_whatever_is_behind_them() {
        for (name, want) in [
            ("_ZN3foo3barEv", "foo::bar()"),
            ("_ZN3foo3barEv.constprop.0.isra.0", "foo::bar()"),
            ("_ZN3foo3barEv.cold.7", "foo::bar()"),
            ("_ZN3foo3barEv.llvm.1234567890", "foo::bar()"),
            ("_ZN3foo3barEv.__uniq.42.llvm.7", "foo::bar()"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_ZN4core3fmt5write17h0123456789abcdefE.llvm.99", "core::fmt::write"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_RNvCs1234_7mycrate3foo.llvm.99", "mycrate::foo"),
            ("_RINvNtC3std3mem8align_ofjE", "std::mem::align_of::<usize>"),
            ("_ZNKSt8functionIFvvEEclEv", "std::function<void ()>::operator()() const"),
        ] {
            assert_eq!(readable(name, false), want, "{name}");
        }
    }

    #[test]
    fn symbol_that_no_demangler_accepts_shows_its_leading_names() {
        for (name, want) in [
            ("_ZN3foo3barEQ", "foo::bar"),
            ("_ZN3foo12_GLOBAL__N_13barIQxE", "foo::(anonymous namespace)::bar<...>"),
            ("_ZNSt6vectorIQxEC1Ev", "std::vector<...>"),
            // clang 18 and newer: the type of a parameter that is no type.
            (
                "_ZN5clang12ast_matchers23makeMatcherAutoMarshallINS_4TypeEETnPFT_iEXadL_Z1gvEEEEvv",
                "clang::ast_matchers::makeMatcherAutoMarshall<...>",
            ),
            ("_ZN3foo3barC1EQ", "foo::bar::bar"),
            ("_ZN3foo3barD2EQ", "foo::bar::~bar"),
            ("_ZNK3foo3ba", "foo::ba"),
            ("_Z3barQ", "bar"),
            ("_Z", "_Z"),
            ("_ZN", "_ZN"),
            ("_Z99999999999999999999999x", "_Z99999999999999999999999x"),
        ] {
            assert_eq!(readable(name, false), want, "{name}");
        }
    }

    #[test]
    fn a_name_that_doubles_with_each_part_ends() {
        // bI1a1aE is S0_, after 1b (S_): each holds the one before it twice. The function's own name counts for none.
        let digit = |at: u32| char::from_digit(at, 36).map(|digit| digit.to_ascii_uppercase());
        let doubled = (0..30).filter_map(|at| digit(at).map(|last| format!("S_IS{last}_S{last}_E")));
        let name = format!("_Z1f1bIiiE{}", doubled.collect::<String>());
        let told = readable(&name, false);
        assert!((MOST_BYTES..3 * MOST_BYTES).contains(&told.len()), "{} bytes", told.len());
    }

    #[test]
    fn packs_without_members_leave_no_comma() {
        for (name, want) in [
            ("call<Function, >(int)", "call<Function>(int)"),
            ("call<, int>()", "call<int>()"),
            ("call<A, , B>(A, )", "call<A, B>(A)"),
            ("call<A, , , >()", "call<A>()"),
            ("make<A, >(&&)", "make<A>()"),
            ("call(void (&)(int), int (&&)())", "call(void (&)(int), int (&&)())"),
            ("f<A, >(&)", "f<A>()"),
            ("(&", "(&"),
            ("async<F, >(launch, F&&, &&)", "async<F>(launch, F&&)"),
            ("foo::operator,(int)", "foo::operator,(int)"),
            ("foo::operator&&(bool&)", "foo::operator&&(bool&)"),
        ] {
            assert_eq!(readable(name, false), want, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(name in "(_Z|_R)?[A-Za-z0-9_.@<>, ()é]{0,40}", has_dots: bool) {
            let _ = readable(&name, has_dots);
            let _ = coarse(&name);
        }
    }
}
