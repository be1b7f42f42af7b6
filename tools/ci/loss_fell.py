"""Check results of rehearsals in CI: the loss fell clearly, and the second run went on where the first one ended.

python tools/ci/loss_fell.py FIRST/result.json [SECOND/result.json]
"""

import json
import sys
from pathlib import Path


def main() -> int:
    """Print the losses; exit 1 if they do not show training."""
    results = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    first = results[0]
    print(f"{first['what']}: loss {first['first_loss']:.4f} → {first['final_loss']:.4f}")
    if first["final_loss"] > 0.8 * first["first_loss"]:
        print("the loss did not clearly fall", file=sys.stderr)
        return 1
    for result in results[1:]:
        print(f"resumed: loss {result['first_loss']:.4f} → {result['final_loss']:.4f}")
        if abs(result["first_loss"] - first["final_loss"]) > 0.1 * first["first_loss"]:
            print("the resumed run does not go on where the first one ended", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
