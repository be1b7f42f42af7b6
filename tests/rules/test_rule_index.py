"""A rule's fields are read off the rule itself."""

import re

import pytest

from launcher.mapping.backend import backend_names, get_backend
from launcher.rules.engine import load
from launcher.rules.registry import loaded_rules
from launcher.rules.rule_index import fields_of, rules_of
from launcher.rules.table import FlagConstraint

load(module for name in backend_names() for module in get_backend(name).rules)


def test_a_function_names_its_fields_in_its_own_text():
    assert fields_of("LR-ORDER") == ("optimizer.lr", "optimizer.min_lr")


def test_a_row_of_a_table_names_native_arguments_that_the_mapping_ties_to_fields():
    assert fields_of("SW-DEEPEP-FLEX") == ("moe.token_dispatcher_type", "moe.deepep")
    assert "parallel.pp" in fields_of("MF-OFFSET-SHAPE")


def test_a_field_knows_its_rules():
    rules = {rule.id for rule in rules_of("checkpoint.save_total_limit")}
    assert {"SW-SAVE-LIMIT", "SW-ASYNC-LIMIT"} <= rules
    assert "LR-ORDER" not in rules


@pytest.mark.parametrize("name", ["megatron_lm", "mindspeed"])
def test_every_argument_in_a_table_of_rules_exists(name):
    """A condition on a name that no version has never holds: the rule is silent, or refuses what it asks for."""
    made = get_backend(name)
    catalogues = [made.catalogue(version) for version in made.versions]
    rows = [(rule, row) for rule in loaded_rules() for row in _rows(rule) if rule.backends and name in rule.backends]
    unknown = {
        (rule.id, flag)
        for rule, row in rows
        for flag in (*_flags(row.when), *(_flags(row.then) if len(rule.backends) == 1 else ()), *row.about)
        if not any(flag in catalogue for catalogue in catalogues)
    }
    assert rows
    assert unknown == set()


def _rows(rule):
    return [
        cell.cell_contents for cell in rule.check.__closure__ or () if isinstance(cell.cell_contents, FlagConstraint)
    ]


def _flags(conditions):
    parts = [part.strip() for part in re.split(r" & | or ", conditions) if part]
    return [re.match(r"!?([a-z0-9][a-z0-9._-]*)", part)[1] for part in parts]
