//! Runs a loop with the widest vectors that the processor has.
//!
//! The caller writes a plain loop over words as a [`Wide`]. The compiler makes one copy of it for each vector
//! width, and [`vectorized`] runs the widest copy that this processor can run. Cost: a load of the cached
//! feature flags for each call, so the loop should run over tens of words at least.

/// A loop that runs faster with wider vectors.
pub trait Wide {
    type Output;

    /// Runs the loop. Mark the implementation and the functions that it calls `#[inline(always)]`: a call
    /// that is not inlined runs the code for the narrow vectors.
    fn run(self) -> Self::Output;
}

/// Runs `work` with the widest vectors that this processor has.
pub fn vectorized<W: Wide>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let narrower = has!("avx2") && has!("bmi1") && has!("bmi2") && has!("popcnt");
        if narrower && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
            // SAFETY: the lines above have checked each feature for which `with_64_bytes` is compiled.
            return unsafe { with_64_bytes(work) };
        }
        if narrower {
            // SAFETY: the lines above have checked each feature for which `with_32_bytes` is compiled.
            return unsafe { with_32_bytes(work) };
        }
    }
    work.run()
}

/// Runs `work`, compiled for vectors of 64 bytes. Needs AVX-512: the four parts that compilers assume
/// together (x86-64-v4).
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
fn with_64_bytes<W: Wide>(work: W) -> W::Output {
    work.run()
}

/// Runs `work`, compiled for vectors of 32 bytes. Needs AVX2 and the bit-manipulation instructions that came
/// with it (part of x86-64-v3).
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn with_32_bytes<W: Wide>(work: W) -> W::Output {
    work.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ones<'a>(&'a [u64]);

    impl Wide for Ones<'_> {
        type Output = u32;

        #[inline(always)]
        fn run(self) -> u32 {
            self.0.iter().map(|word| word.count_ones()).sum()
        }
    }

    #[test]
    fn every_copy_answers_what_the_plain_loop_answers() {
        let words: Vec<u64> = (0..1000_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        let plain = Ones(&words).run();
        assert_eq!(vectorized(Ones(&words)), plain);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("bmi2") {
            // SAFETY: every processor with AVX2 and BMI2 has BMI1 and POPCNT.
            assert_eq!(unsafe { with_32_bytes(Ones(&words)) }, plain);
        }
    }
}
