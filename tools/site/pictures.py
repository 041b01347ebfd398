"""Pictures for the reference, as SVG."""


def all_pictures() -> dict[str, str]:
    """All, by name."""
    return {}
