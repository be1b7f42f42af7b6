"""Every canonical field is mapped, unsupported or irrelevant, with the reason, on every backend and version."""

import pytest

from launcher.job import field_paths
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.rows import active_rows, unmapped_fields

CASES = [(name, version) for name in backend_names() for version in get_backend(name).versions]


@pytest.mark.parametrize(("name", "version"), CASES, ids=["-".join(case) for case in CASES])
def test_no_field_is_forgotten(name, version):
    left = unmapped_fields(get_backend(name).table(version), version)
    assert not left, (
        f"backends/{name}/mapping lacks {', '.join(left)} in version {version}: "
        "add a row, or the reason to `unsupported` (or `irrelevant`)"
    )


@pytest.mark.parametrize(("name", "version"), CASES, ids=["-".join(case) for case in CASES])
def test_tables_name_only_what_exists(name, version):
    backend = get_backend(name)
    table, catalogue = backend.table(version), backend.catalogue(version)
    flags = {flag for row in active_rows(table, version) for flag in row.flags}
    unknown = {flag for flag in flags if catalogue.get(flag) is None and not catalogue.is_open(flag)}
    assert not unknown
    paths = {path for row in table.rows for path in row.fields} | set(table.unsupported) | set(table.irrelevant)
    assert paths <= set(field_paths())


@pytest.mark.parametrize(("name", "version"), CASES, ids=["-".join(case) for case in CASES])
def test_reasons_are_given_once(name, version):
    table = get_backend(name).table(version)
    mapped = {path for row in active_rows(table, version) for path in row.fields}
    assert not set(table.unsupported) & set(table.irrelevant)
    assert all(gap.why for gap in table.unsupported.values())
    assert all(table.irrelevant.values())
    assert not mapped & set(table.irrelevant)
