"""`printf`: formats text and numbers as bash does, which computes in the processor's 64-bit mantissas."""

import re
from decimal import Context, Decimal
from fractions import Fraction

from launcher.importing.shell.patterns import ansi
from launcher.importing.shell.placeholders import is_open

_MOST_DIGITS = 18
_LARGEST_WIDTH = 10_000  # of a field: padding
_FORMAT = re.compile(r"%(%|(?P<flags>[-+ #0]*)(?P<width>\d*)(?P<point>\.(?P<digits>\d*))?(?P<kind>[sbcqdiuoxXeEfFgG]))")
_INTEGER = re.compile(r"\s*([-+]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)")
_REAL = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")
_PLAIN = re.compile(r"[\w./:=@%+,-]+", re.ASCII)
_MANTISSA = 64
_EXACT = Context(prec=20_000)


def formatted(template: str, arguments: list[str]) -> str | None:
    """Return the output of `printf`, which reuses the format while there are arguments; None: unknown."""
    template = ansi(template)
    sizes = [size for found in _FORMAT.finditer(template) for size in found.group("width", "digits") if size]
    if any(len(size) > _MOST_DIGITS or int(size) > _LARGEST_WIDTH for size in sizes):
        return None
    conversions = sum(found.group(1) != "%" for found in _FORMAT.finditer(template))
    if "%" in _FORMAT.sub("", template):
        return None
    output, rest = "", list(arguments)
    while True:
        try:
            output += _FORMAT.sub(lambda found: _one(found, rest), template)
        except ValueError:
            return None
        if not rest or not conversions:
            return output


def _one(found: "re.Match[str]", arguments: list[str]) -> str:
    if found.group(1) == "%":
        return "%"
    value = arguments.pop(0) if arguments else ""
    flags, kind, digits = found.group("flags"), found.group("kind"), found.group("digits")
    precision = None if found.group("point") is None else int(digits or 0)
    if kind in "sbcq":
        text, sign = _text(value, kind, precision), ""
    elif is_open(value):
        raise ValueError("not known")
    else:
        text = _real(value, kind, precision, flags) if kind in "eEfFgG" else _integer(value, kind, precision, flags)
        sign = "-" if text.startswith("-") else "" if kind in "uoxX" else "+" if "+" in flags else " " * (" " in flags)
        text = text.removeprefix("-")
    width = int(found.group("width") or 0) - len(sign)
    if "-" in flags:
        return f"{sign}{text}".ljust(width + len(sign))
    is_padded = "0" in flags and kind not in "sbcq" and (precision is None or kind in "eEfFgG")
    return sign + text.rjust(width, "0") if is_padded else f"{sign}{text}".rjust(width + len(sign))


def _text(value: str, kind: str, precision: int | None) -> str:
    if kind != "s" and is_open(value):
        raise ValueError("not known")
    if kind == "q" and not _PLAIN.fullmatch(value):
        raise ValueError("quoted in a way that depends on bash")
    if kind == "b":
        value = ansi(value)
    if kind == "c":
        if not value:
            raise ValueError("a null character")
        return value[:1]
    return value if precision is None else value[:precision]


def _integer(value: str, kind: str, precision: int | None, flags: str) -> str:
    found = _INTEGER.fullmatch(value or "0")
    if found is None or "#" in flags:
        raise ValueError("not a number")
    digits = found.group(2)
    number = int(digits, 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" else 10)
    number = -number if found.group(1) == "-" else number
    if abs(number) >= 2**63 or (number < 0 and kind in "uoxX"):
        raise ValueError("beyond 64 bits")
    text = f"{abs(number):{'d' if kind in 'diu' else kind}}"
    text = "" if precision == 0 and not number else text
    return "-" * (number < 0) + text.rjust(precision or 0, "0")


def _real(value: str, kind: str, precision: int | None, flags: str) -> str:
    if "#" in flags or (value and not _REAL.fullmatch(value)):
        raise ValueError("not a number")
    number = _rounded(Fraction(value.strip() or "0"))
    exact = _EXACT.divide(Decimal(number.numerator), Decimal(number.denominator))
    digits = 6 if precision is None else precision
    text = _general(exact, digits or 1) if kind in "gG" else _in_form(exact, kind.lower(), digits)
    text = f"-{text}" if value.strip().startswith("-") and not text.startswith("-") else text
    return text.upper() if kind in "EG" else text


def _in_form(number: Decimal, kind: str, digits: int) -> str:
    if not number:
        return f"{0.0:.{digits}{kind}}"
    text, e, exponent = f"{number:.{digits}{kind}}".partition("e")
    return f"{text}e{exponent[0]}{exponent[1:].rjust(2, '0')}" if e else text


def _general(number: Decimal, digits: int) -> str:
    """Format as `%g`: by the exponent, in one form or the other, without zeros at the end."""
    mantissa, _, exponent = _in_form(number, "e", digits - 1).partition("e")
    if -4 <= int(exponent) < digits:
        text = _in_form(number, "f", digits - 1 - int(exponent))
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{exponent}"


def _rounded(number: Fraction) -> Fraction:
    """Return the nearest number that has a mantissa of 64 bits."""
    if not number:
        return number
    shift = _MANTISSA - (abs(number.numerator).bit_length() - number.denominator.bit_length())
    scale = Fraction(2) ** shift
    while abs(number * scale) >= 2**_MANTISSA:
        scale /= 2
    return round(number * scale) / scale
