//! Fingerprints of values: equal fingerprints mean equal values, without comparing elements. `versions` describes the
//! protocol by which storages keep them.

/// The fingerprint of values. Equal fingerprints mean equal values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(u64);

/// A fingerprint with the low bits of the version of its storage. Functions save it for each input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionedFingerprint(u64);

/// Low bits that are zero in a fingerprint and hold the version in a [`VersionedFingerprint`].
pub(super) const VERSION: u64 = 0xFFFF;

impl Fingerprint {
    /// No fingerprint: none was requested since the last write, or no derived data may be cached.
    pub const NONE: Self = Self(0);

    /// True if this is a fingerprint.
    #[inline(always)]
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// The fingerprint with this number. Zero is [`Fingerprint::NONE`].
    pub(crate) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number of the fingerprint.
    #[inline(always)]
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// The fingerprint of a value derived from `self` and `other`. Two different pairs collide with a probability of
    /// 2^-47.
    #[inline(always)]
    pub(crate) const fn join(self, other: u64) -> Self {
        let x = (self.0 ^ other.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let x = (x ^ (x >> 29)).wrapping_add(other).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1 << 63;
        Self(x & !VERSION)
    }

    /// The fingerprint with the low bits of a version.
    #[inline(always)]
    pub(super) const fn with_version(self, version: u64) -> VersionedFingerprint {
        VersionedFingerprint(self.0 | version & VERSION)
    }
}

/// Of values that have no storage, and so no version.
impl From<Fingerprint> for VersionedFingerprint {
    #[inline(always)]
    fn from(fingerprint: Fingerprint) -> Self {
        Self(fingerprint.0)
    }
}

impl VersionedFingerprint {
    /// Never the fingerprint of values: the values changed, or were never read.
    pub const NONE: Self = Self(0);

    /// The fingerprint without the version.
    #[inline(always)]
    pub fn fingerprint(self) -> Fingerprint {
        Fingerprint(self.0 & !VERSION)
    }

    /// The low bits of the version.
    pub(super) const fn version(self) -> u64 {
        self.0 & VERSION
    }
}
