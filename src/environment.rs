//! Reading of environment variables: parsing, and the error for an invalid value. Each module reads its own variables.

/// An environment variable with a value that is not allowed.
#[derive(Debug, thiserror::Error)]
#[error("environment: expected {name} to be {expected}, got {given:?}")]
pub(crate) struct WrongSetting {
    /// The name of the variable.
    name: String,
    /// A description of the allowed values.
    expected: String,
    /// The value that was found.
    given: String,
}

/// The value of the environment variable `name`, parsed by `read`. None if it is not set or empty.
///
/// # Errors
/// [`WrongSetting`] if `read` rejects it. `expected` describes the allowed values.
pub(crate) fn setting<T>(
    name: &str,
    expected: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, WrongSetting> {
    let Some(given) = std::env::var_os(name) else { return Ok(None) };
    let given = given.to_string_lossy();
    let given = given.trim();
    if given.is_empty() {
        return Ok(None);
    }
    let wrong = || WrongSetting { name: name.into(), expected: expected.into(), given: given.into() };
    read(given).map(Some).ok_or_else(wrong)
}

/// Parses a number of bytes: digits, optionally followed by K, M, G or T for powers of 1024.
pub(crate) fn bytes(text: &str) -> Option<usize> {
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        (at, 't' | 'T') => (&text[..at], 40),
        _ => (text, 0),
    };
    let is_plain = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse::<usize>().ok().filter(|_| is_plain)?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_with_and_without_a_unit_are_parsed() {
        let good =
            [("0", 0), ("17", 17), ("10K", 10 << 10), ("3m", 3 << 20), ("2G", 2 << 30), ("1T", 1 << 40)];
        assert!(good.iter().all(|(text, size)| bytes(text) == Some(*size)));
        let bad = ["", "M", "abc", "-1", "+1", "1.5G", "10MB", "1 M", "99999999999T", "\u{664}"];
        assert!(bad.iter().all(|text| bytes(text).is_none()));
    }
}
