//! BPF programs.
