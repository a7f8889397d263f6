//! A list that never gets longer than it may: when it is full, every second one is dropped.

/// The list.
pub struct Decimated<T> {
    kept: Vec<T>,
    most: usize,
    let_go: u64,
}

impl<T> Decimated<T> {
    /// Of no more than `most`.
    pub fn of(most: usize) -> Self {
        Decimated { kept: Vec::new(), most, let_go: 0 }
    }

    /// Add one.
    pub fn note(&mut self, one: T) {
        if self.kept.len() >= self.most {
            let mut odd = false;
            let before = self.kept.len();
            self.kept.retain(|_| {
                odd = !odd;
                odd
            });
            self.let_go += (before - self.kept.len()) as u64;
        }
        self.kept.push(one);
    }

    /// The kept ones, and how many were dropped.
    pub fn take(&mut self) -> (Vec<T>, u64) {
        (std::mem::take(&mut self.kept), std::mem::take(&mut self.let_go))
    }
}

#[cfg(test)]
mod tests {
    use super::Decimated;

    #[test]
    fn of_too_many_some_of_all_times_are_kept_and_the_rest_are_counted() {
        let mut list = Decimated::of(100);
        (0..10_000u64).for_each(|one| list.note(one));
        let (kept, let_go) = list.take();
        assert!(kept.len() <= 100 && kept.len() > 50, "{}", kept.len());
        assert_eq!(kept.len() as u64 + let_go, 10_000);
        assert!(kept.is_sorted() && kept[0] == 0 && kept.last() == Some(&9_999));
    }
}
