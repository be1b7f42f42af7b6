"""A rule's fields are read off the rule itself."""

import pytest

from launcher.job import fields
from launcher.mapping.backend import backend_names, get_backend
from launcher.plan.executor import option_rules
from launcher.rules.engine import load
from launcher.rules.registry import loaded_rules
from launcher.rules.rule_index import fields_of, rules_of
from launcher.rules.table import FIELD, TERM, TERMS, conditions_of

load((*option_rules(), *(module for name in backend_names() for module in get_backend(name).rules)))


def test_a_function_names_its_fields_in_its_own_text():
    assert fields_of("LR-ORDER") == ("optimizer.lr", "optimizer.min_lr")


def test_a_row_of_a_table_names_native_arguments_that_the_mapping_ties_to_fields():
    assert fields_of("SW-DEEPEP-FLEX") == ("moe.token_dispatcher_type", "moe.deepep")
    assert "parallel.pp" in fields_of("MF-OFFSET-SHAPE")


def test_a_field_knows_its_rules():
    rules = {rule.id for rule in rules_of("checkpoint.save_total_limit")}
    assert {"SW-SAVE-LIMIT", "SW-ASYNC-LIMIT"} <= rules
    assert "LR-ORDER" not in rules


@pytest.mark.parametrize("name", ["megatron", "megatron_lm", "mindspeed"])
def test_every_name_in_a_table_of_rules_exists(name):
    """A condition on a name that no version has never holds: the rule is silent, or refuses what it asks for."""
    made = get_backend(name)
    catalogues = [made.catalogue(version) for version in made.versions]
    rules = [rule for rule in loaded_rules() if name in rule.backends and rule.reads]
    unknown = {
        (rule.id, flag)
        for rule in rules
        for flag in _arguments(rule, alone=len(rule.backends) == 1)
        if not any(flag in catalogue for catalogue in catalogues)
    }
    assert rules
    assert unknown == set()


def _arguments(rule, *, alone: bool):
    """Yield the arguments in a rule; alternatives of a rule for several backends may be one backend's only."""
    tree = conditions_of(rule)
    names = tree.names() if alone else [condition.name for condition in tree.when]
    yield from (each for each in (*names, *rule.flags, *rule.about) if not each.startswith((FIELD, TERM)))


def test_every_field_and_term_in_a_rule_exists():
    known = {f"{FIELD}{path}" for path in fields()} | {f"{TERM}{name}" for _, name in TERMS}
    names = {name for rule in loaded_rules() for name in rule.reads if name.startswith((FIELD, TERM))}
    properties = {f"{FIELD}model.is_moe", f"{FIELD}model.is_mla"}
    assert names - known <= properties
