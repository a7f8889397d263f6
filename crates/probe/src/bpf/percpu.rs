//! Where the kernel keeps the variables of each CPU, by its BTF: not every kernel lists symbols of data in kallsyms.

use std::collections::HashMap;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Var};

/// The variables of a CPU, by name, from the begin of its area.
#[must_use]
pub fn variables(btf: &Btf<'_>) -> HashMap<String, i64> {
    let Some(section) = btf.type_by_name::<DataSec<'_>>(".data..percpu") else { return HashMap::new() };
    let named = section.iter().filter_map(|variable| {
        let var = btf.type_by_id::<Var<'_>>(variable.ty)?;
        Some((var.name()?.to_str()?.to_owned(), i64::from(variable.offset)))
    });
    named.collect()
}
