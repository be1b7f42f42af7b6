"""conf/schema.json from the fields of a job: what the recipes' line for editors names.

python -m tools.docs.schema
"""

from pathlib import Path

from launcher.schema.document import document
from launcher.schema.files import NAME, schema_text

FILE = Path(__file__).resolve().parents[2] / "conf" / NAME


def main() -> int:
    """Write the file."""
    FILE.write_text(schema_text(document()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
