"""`launch schema`: JSON Schema of job files and recipes, for editors and other programs."""

from launcher.cli.options import parse, parser, print_json, writable, write_file
from launcher.cli.refusal import WrongUse
from launcher.mapping.backend import UnknownBackend, UnknownVersion, backend_names, get_backend
from launcher.nearest import nearest
from launcher.outputs.kinds import SCHEMA
from launcher.schema.document import Schema, document
from launcher.schema.files import editor_line, schema_text
from launcher.schema.native_args import with_native_args

_EXAMPLES = """\
launch schema -o job.schema.json
  launch schema --backend {cuda} --backend-version {new} -o job.schema.json    backend.args typed, too
  launch schema hardware"""


def main(words: list[str]) -> int:
    """Print the schema or write it to a file; exit 2 for an unknown section, backend or version."""
    made = parser(
        "schema",
        "Print the JSON Schema (2020-12) of job files and recipes. Editors with yaml-language-server read it from a "
        "comment of the file; files that launch writes have that comment.",
        _EXAMPLES,
        overrides=False,
    )
    made.add_argument("section", nargs="?", metavar="SECTION", help="of files that fill one section, such as hardware")
    made.add_argument("--backend", metavar="B", help="with the types of this backend's arguments (backend.args)")
    made.add_argument("--backend-version", metavar="V", help="its version; default: the one that jobs get")
    made.add_argument("-o", "--output", metavar="FILE.json", help="write it to this file")
    options = parse(made, words)
    writable("-o", options.output, SCHEMA, ".json")
    schema = _of_section(_schema(options.backend, options.backend_version), options.section)
    if options.output is None:
        print(schema_text(schema), end="")
        return 0
    write_file(options.output, schema_text(schema), SCHEMA)
    line = editor_line(options.output)
    if options.json:
        print_json({"file": options.output, "line": line})
    else:
        print(f"written: {options.output}\nadd this line to a YAML file; the path is relative to its folder:\n{line}")
    return 0


def _schema(name: str | None, version: str | None) -> Schema:
    """Return the schema of jobs of any backend, or of one version of one.

    Raises:
        WrongUse: there is no such backend or version.
    """
    if name is None:
        if version is not None:
            raise WrongUse("--backend-version needs --backend", *(f"--backend {each}" for each in backend_names()))
        return document()
    try:
        backend = get_backend(name)
        return with_native_args(document(), backend.catalogue(backend.version(version)))
    except UnknownBackend:
        known = backend_names()
        raise WrongUse(f"--backend {name}: no such backend", *(nearest(name, known) or known)) from None
    except UnknownVersion as error:
        raise WrongUse(f"--backend-version {version}: {error}") from None


def _of_section(schema: Schema, section: str | None) -> Schema:
    """Return the schema of a file with the fields of one section.

    Raises:
        WrongUse: there is no such section.
    """
    if section is None:
        return schema
    sections = [name for name, each in schema["$defs"].items() if "properties" in each]
    if section not in sections:
        near = nearest(section, sections, cutoff=0.5) or [name for name in sections if "." not in name]
        raise WrongUse(f"no section {section!r} in a job", *near)
    title = f"{schema['title']}: {section}"
    return {"$schema": schema["$schema"], "title": title, "$ref": f"#/$defs/{section}", "$defs": schema["$defs"]}
