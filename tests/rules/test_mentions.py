"""A rule's fields are read off the rule itself."""

from launcher.rules.engine import load
from launcher.rules.mentions import fields_of, rules_of
from launcher.translate.backend import backend_names, get_backend

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
