"""A rule's fields are read off the rule itself."""

from dataclasses import replace

from launcher.mapping.backend import backend_names, get_backend
from launcher.plan.executor import option_rules
from launcher.rules.engine import load
from launcher.rules.registry import Rule, loaded_rules
from launcher.rules.rule_index import fields_of, leaves, reads_of, rules_of
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


def test_every_name_in_a_rule_exists():
    """A condition on a name that no version has never holds: the rule is silent, or refuses what it asks for."""
    made = {name: get_backend(name) for name in backend_names()}
    known = {
        name: {argument.name for version in backend.versions for argument in backend.catalogue(version).arguments}
        for name, backend in made.items()
    }
    # The older trainer's keys and the sections of a model are open: the catalogue has those that are documented.
    known["mindformers"] = None
    unknown = {
        (rule.id, name)
        for rule in loaded_rules()
        for backend in rule.backends
        if known[backend] is not None
        for name in _arguments(rule, alone=len(rule.backends) == 1)
        if name not in known[backend]
    }
    assert unknown == set()


def _arguments(rule, *, alone: bool):
    """Yield the arguments in a rule; alternatives of a rule for several backends may be one backend's only."""
    tree = conditions_of(rule)
    names = (*rule.reads.split(), *rule.flags, *rule.about) if alone else [each.name for each in tree.when]
    yield from (each for each in names if each != "*" and not each.startswith((FIELD, TERM)))


def test_every_field_and_term_in_a_rule_exists():
    for rule in loaded_rules():
        names = rule.reads.split()
        assert {name for name in names if name.startswith(TERM)} <= {f"{TERM}{name}" for _, name in TERMS}
        assert all(leaves(name.removeprefix(FIELD)) for name in names if name.startswith(FIELD)), rule.id


def test_a_property_of_the_job_counts_as_the_fields_that_it_reads():
    rule = Rule(id="X", source="", when="job.model.is_moe")
    assert reads_of(replace(rule, reads="job.model.is_moe", backends=("megatron",))) == {"job.model.num_experts"}
