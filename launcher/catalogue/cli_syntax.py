"""How an argument is typed on a command line: arity, boolean style."""

from launcher.catalogue.catalogue import Argument, Catalogue


def arity(argument: Argument) -> str:
    """Return how many words follow the argument: a number, `0 or 1`, `1 or more`, `0 or more`, `all that follow`."""
    if argument.is_flag or argument.action == "boolean_optional":
        return "0"
    if argument.nargs == "+":
        return "1 or more"
    if argument.nargs == "REMAINDER":
        return "all that follow"
    if argument.nargs == "*":
        return "0 or more"
    if isinstance(argument.nargs, int):
        return str(argument.nargs)
    return "0 or 1" if argument.optional_value or argument.nargs == "?" else "1"


def boolean_style(argument: Argument, catalogue: Catalogue) -> str:
    """Return how a boolean argument is given; empty for others."""
    if catalogue.style == "yaml":
        return "key: true or false" if argument.type == "bool" else ""
    if argument.action == "store_true":
        return f"--{argument.name} alone switches on"
    if argument.action == "store_false":
        return f"--{argument.name} alone switches off"
    if argument.action == "store_const":
        return f"--{argument.name} alone means {argument.const}"
    if argument.action == "boolean_optional":
        return f"--{argument.name} or --no-{argument.name}"
    if argument.type != "bool" or catalogue.style == "env":
        return ""
    if argument.optional_value:
        alone = f"--{argument.name} [true|false]"
        return f"{alone}, or --{argument.negation}" if argument.negation else alone
    return f"--{argument.name} true|false"


def kind(argument: Argument) -> str:
    """Return the type with its allowed values, on one line."""
    text = "list of " + argument.type if argument.is_list else argument.type
    if argument.choices is not None:
        text += " (" + " | ".join(str(choice) for choice in argument.choices) + ")"
    return text + (" or null" if argument.nullable and argument.has_default and argument.default is not None else "")


def default_text(argument: Argument) -> str:
    """Return the default as text: the value, `none`, or the expression that computes it."""
    if argument.default_from is not None:
        return f"computed: {argument.default_from}"
    if not argument.has_default:
        return "required" if argument.required else "unknown"
    if argument.default is None:
        return "none"
    return str(argument.default).lower() if isinstance(argument.default, bool) else repr(argument.default)
