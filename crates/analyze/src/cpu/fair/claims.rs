//! Claims on one capacity, where they are changed. Most groups of a host have one changed claim: that needs no allocation.

/// Amount before, amount now, weight.
pub(super) type Claim = (f64, f64, f64);

#[derive(Debug, Default)]
pub(super) enum Claims {
    #[default]
    None,
    One([Claim; 1]),
    Several(Vec<Claim>),
}

impl Claims {
    pub fn push(&mut self, claim: Claim) {
        *self = match std::mem::take(self) {
            Claims::None => Claims::One([claim]),
            Claims::One([first]) => Claims::Several(vec![first, claim]),
            Claims::Several(mut all) => {
                all.push(claim);
                Claims::Several(all)
            }
        }
    }

    /// In the order in which they were added.
    pub fn all(&self) -> &[Claim] {
        match self {
            Claims::None => &[],
            Claims::One(one) => one,
            Claims::Several(all) => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_keep_their_order() {
        let mut claims = Claims::default();
        assert_eq!(claims.all(), []);
        for n in 0..4 {
            claims.push((f64::from(n), 0.0, 1.0));
            let firsts: Vec<f64> = claims.all().iter().map(|claim| claim.0).collect();
            assert_eq!(firsts, (0..=n).map(f64::from).collect::<Vec<_>>());
        }
    }
}
