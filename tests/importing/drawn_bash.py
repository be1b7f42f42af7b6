"""Draws conditions and scripts of bash: what people write in training scripts, in any combination."""

import random

# Every script begins with these; U and V are never set.
SETTINGS = """A=a-b.c
B="x y"
C=/d/qwen-7b.json
P=
F=true
N=2
M=5
LIST=(u "v w")
ARGS=(--a 1)
"""
# What the training command gets in the end.
RUN = 'run "$A" $A "$B" $B ${C} "$P" $N $M "${LIST[@]}" ${ARGS[@]} "${#LIST[@]}"'
_TEXTS = ("A", "B", "C", "P")
_NUMBERS = ("N", "M")
_LISTS = ("LIST", "ARGS")
# Files that do not exist where the scripts run.
_ABSENT = ("/nonexistent/a", '"/nonexistent/$A"')


class Draw:
    """Draws with one source of random numbers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *of: str) -> str:
        return self.random.choice(of)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # -- conditions

    def condition(self, depth: int = 2) -> str:
        """Return `[[ … ]]`, `[ … ]`, `(( … ))` or `test …`, negated and joined at times."""
        kind = self.one("[[", "[[", "[[", "[", "[", "((", "test")
        inside = self.number(2) if kind == "((" else self._expression(kind, 2 if kind == "[[" else 1)
        end = {"[[": " ]]", "[": " ]", "((": " ))", "test": ""}[kind]
        found = f"{'! ' * self.chance(0.1)}{kind} {inside}{end}"
        if depth and self.chance(0.2):
            return f"{found} {self.one('&&', '||')} {self.condition(depth - 1)}"
        return found

    def _expression(self, kind: str, depth: int) -> str:
        if not depth or self.chance(0.45):
            return self._test(kind)
        if self.chance(0.25):
            return f"! {self._expression(kind, depth - 1)}"
        left, right = self._expression(kind, depth - 1), self._expression(kind, depth - 1)
        if kind != "[[":
            return f"{left} {self.one('-a', '-o')} {right}"
        return f"( {left} )" if self.chance(0.2) else f"{left} {self.one('&&', '||')} {right}"

    def _test(self, kind: str) -> str:
        left, right = self._operand(), self._operand()
        found = [
            f"{self.one('-z', '-n')} {left}",
            left,
            f"{left} {self.one('-eq', '-ne', '-lt', '-le', '-gt', '-ge')} {right}",
            f"{left} {self.one('==', '!=', '=')} {right}",
            f"{self.one('-d', '-f', '-e', '-s')} {self.one(*_ABSENT)}",
        ]
        if kind == "[[":
            found.append(f"{left} {self.one('==', '!=', '=')} {self.one('a*', '[0-9]', '?', '*', 'x*y', '${C}')}")
            found.append(f"{left} =~ {self.one('^a', '[0-9]+$', '^$', 'x.y')}")
        return self.one(*found)

    def _operand(self) -> str:
        if self.chance(0.3):
            return self.one("b", "3", "0", '""', "true", '"x y"', "-2", "10")
        name = self.one("A", "B", "P", "F", "N", "M", "U", "V")
        found = self.one(
            f"${name}", f"${{{name}}}", f"${{{name}:-}}", f"${{{name}:-2}}", f"${{{name}^^}}", "${#LIST[@]}"
        )
        return f'"{found}"' if self.chance(0.5) else found

    # -- words

    def number(self, depth: int) -> str:
        """Return an arithmetic expression."""
        if depth <= 0 or self.chance(0.3):
            return self.one("N", "M", "3", "$N", "10", "${#LIST[@]}", "!N", "-M")
        signs = ("+", "+", "*", "<", ">", "==", "!=", "&&", "||")
        return f"{self.number(depth - 1)} {self.one(*signs)} {self.number(depth - 1)}"

    def expansion(self, depth: int = 1) -> str:
        """Return `$…` of a text, a number, an array or a command."""
        name, array = self.one(*_TEXTS), self.one(*_LISTS)
        texts = ("", ":-d1", "%.*", "%%-*", "##*/", "#*a", "/a/Z", "//[a-z]/y", ":1:2", ":1", "^", "^^", ",,", ":+set")
        items = ("[@]", "[@]:1", "[*]")
        found = [f"${{{name}{self.one(*texts)}}}", f"${name}", f"${{{array}{self.one(*items)}}}", f"${{#{array}[@]}}"]
        found += [f"$(({self.number(1)}))", f"${self.one(*_NUMBERS)}", f"${{#{name}}}"]
        if depth:
            inner = self.expansion(0)
            found += [f"$(echo {inner})", f'$(echo "{inner}" | cut -d- -f1)', f'$(basename -- "${name}")']
            found += [f'$(dirname "/${name}")', f'$(printf "%s-%02d" {inner} {self.one("1", "7", "12")})', "$(seq 1 3)"]
            test = self.condition(0)
            found += [f"$( {test} && echo {inner} || echo {self.expansion(0)})", f"$( {test} || echo {inner}; echo z)"]
            found += [f"$(echo {inner} | tr a-z A-Z)", f'$(echo "{inner}" | sed "s/a/b/g")']
        return self.one(*found)

    def word(self, depth: int = 1) -> str:
        """Return an argument as it is typed."""
        return self.one(
            self.one("x", "--lr", "1e-4", "a{1,2}", "'$A'", "'a b'", '"a b"', '"/data/a.b.json"'),
            f'"{self.one("", "p_", "a ")}{self.expansion(depth)}{self.one("", "_s", " t")}"',
            f"{self.one('', 'pre')}{self.expansion(depth)}{self.one('', '.post', '/q')}",
        )

    # -- statements

    def statement(self, depth: int) -> str:
        """Return a statement, with others inside it up to a depth."""
        name, number, array = self.one(*_TEXTS), self.one(*_NUMBERS), self.one(*_LISTS)
        words = " ".join(self.word() for _ in range(self.random.randint(0, 2)))
        found = [
            f'{name}="{self.expansion()}"',
            f"{name}={self.expansion()}",
            f'{name}+="{self.one("", " ")}{self.expansion()}"',
            f"{name}=${{{name}:-{self.one('x', '3')}}}",
            f"{number}=$(({self.number(2)}))",
            self.one(f"(({number}++))", f"let {number}+=1", f": $(({number}*=2))"),
            f"{array}=({words})",
            f"{array}+=({words})",
            f"{array}[{self.one('0', '1', '3', '$N%2')}]={self.word()}",
            f'set -- {self.word()} {self.word()}; {name}="$1"; shift; {name}+=$#',
            f'read -r {name} {self.one(*_TEXTS)} <<< "{self.expansion(0)}"',
            f'IFS={self.one(",", "-")} read -ra {array} <<< "${name}"',
        ]
        if depth:
            inner, tests = [self.statement(depth - 1) for _ in range(3)], [self.condition(0), self.condition(0)]
            last = f"\n *b | x) {inner[1]} {self.one(';;', ';&')}\n *) {inner[2]} ;;\nesac"
            found += [
                f"if {tests[0]}; then\n{inner[0]}\nelif {tests[1]}; then\n{inner[1]}\nelse\n{inner[2]}\nfi",
                f"for i in {self.word(0)} {self.word(0)}; do\n{name}+=$i\n{inner[0]}\ndone",
                f"case ${name} in\n a*) {inner[0]} ;;{last}",
                f"{tests[0]} {self.one('&&', '||')} {self.statement(0)}",
                f"{{\n{inner[0]}\n}} | cat",
                f"echo {self.word(0)} | while read -r {name}; do\n{inner[0]}\ndone",
                f"(\n{inner[0]}\n{inner[1]}\n)",
                f"f() {{ local -n R=$1; R+=({self.word(0)}); {array}+=(f); }}; f {self.one(*_LISTS)}",
                f"{name}=$( {self.statement(0)}; {tests[0]} && echo {self.word(0)}) || {name}=failed",
                f"! {tests[0].removeprefix('! ')} {self.one('&&', '||')} {self.statement(0)}",
                f"f() {{ local A={self.one('x', '$B')}; B=$1; {inner[0]}; }}\nf {self.word(0)} {self.word(0)}",
            ]
        return self.one(*found)

    def script(self) -> str:
        """Return a script that starts a program in the end."""
        statements = [self.statement(2) for _ in range(self.random.randint(2, 6))]
        return "\n".join([SETTINGS, *statements, RUN])
