//! Shares of a whole, to the nanosecond.

/// `whole` in parts as large as `weights` ask for, by largest remainder: the parts add up to `whole` exactly. All zero if no
/// weight is.
pub(super) fn split<const N: usize>(whole: u64, weights: [u64; N]) -> [u64; N] {
    let mut parts = [0; N];
    split_into(whole, &weights, &mut parts);
    parts
}

/// As [`split`], for any number of parts.
pub(super) fn split_many(whole: u64, weights: &[u64]) -> Vec<u64> {
    let mut parts = vec![0; weights.len()];
    split_into(whole, weights, &mut parts);
    parts
}

fn split_into(whole: u64, weights: &[u64], parts: &mut [u64]) {
    let sum: u128 = weights.iter().map(|w| u128::from(*w)).sum();
    if sum == 0 {
        return;
    }
    let mut rest = whole;
    let mut remainders: Vec<(u128, usize)> = Vec::with_capacity(weights.len());
    for (at, (part, weight)) in parts.iter_mut().zip(weights).enumerate() {
        let product = u128::from(whole) * u128::from(*weight);
        *part = u64::try_from(product / sum).unwrap_or(whole);
        rest = rest.saturating_sub(*part);
        remainders.push((product % sum, at));
    }
    // Fewer nanoseconds are left than there are parts.
    remainders.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, at) in remainders.into_iter().take(usize::try_from(rest).unwrap_or(usize::MAX)) {
        if let Some(part) = parts.get_mut(at) {
            *part += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_left_goes_to_the_largest_remainder() {
        assert_eq!(split(10, [1, 1, 1]), [4, 3, 3]);
        assert_eq!(split(10, [0, 3, 1]), [0, 8, 2], "7.5 and 2.5: the first of equals");
        assert_eq!(split(10, [0, 0]), [0, 0]);
    }

    proptest! {
        #[test]
        fn parts_add_up(whole: u64, weights in proptest::collection::vec(any::<u64>(), 1..20)) {
            let sum: u128 = split_many(whole, &weights).into_iter().map(u128::from).sum();
            let any = weights.iter().any(|w| *w > 0);
            prop_assert_eq!(sum, if any { u128::from(whole) } else { 0 });
        }
    }
}
