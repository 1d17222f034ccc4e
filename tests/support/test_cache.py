"""The cache makes a value again only when one of its parts is replaced."""

from retinue.support.cache import MAX_CACHED, IdentityCache


def kept():
    """Nothing yet."""
    return IdentityCache[object, list[object]]()


def made(remembered, key, *parts):
    """Return the value of the key, and whether it was made now."""
    asked = []

    def make():
        asked.append(key)
        return [*parts]

    return remembered.get_or_make(key, parts, make), bool(asked)


def test_a_value_is_made_once_of_the_same_parts():
    remembered, part = kept(), {"timeout": 1}
    first, was_made = made(remembered, "here", part, None)
    assert was_made
    again, was_made = made(remembered, "here", part, None)
    assert again is first
    assert not was_made


def test_equal_but_not_identical_part_makes_a_new_value():
    remembered = kept()
    made(remembered, "here", {"turns": 1})
    assert made(remembered, "here", {"turns": True}) == ([{"turns": True}], True)


def test_different_number_of_parts_makes_a_new_value():
    remembered, part = kept(), object()
    made(remembered, "here", part, part)
    assert made(remembered, "here", part) == ([part], True)


def test_each_key_has_its_own_value():
    remembered, part = kept(), object()
    made(remembered, "here", part)
    assert made(remembered, "there", part) == ([part], True)
    assert made(remembered, "here", part) == ([part], False)


def test_cache_is_cleared_at_its_limit():
    remembered, part = kept(), object()
    for key in range(MAX_CACHED):
        made(remembered, key, part)
    assert made(remembered, 0, part) == ([part], False)
    made(remembered, "one more", part)
    assert made(remembered, 0, part) == ([part], True)
