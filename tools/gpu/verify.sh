#!/usr/bin/env bash
# Verifies Launch on this machine's GPU: python -m tools.gpu.verify, with what archive.sh packed and this machine lacks.
#   tools/gpu/verify.sh [--device cpu] [--only STEP] [--seconds N] [--page]     PYTHON=… chooses the interpreter (python3)
set -euo pipefail
cd "$(dirname "$0")/../.."
python="${PYTHON:-python3}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-8}"
if [ -f .gpu/archive.tar ]; then
  carried=$(mktemp -d)
  trap 'rm -rf "$carried"' EXIT
  tar -xf .gpu/archive.tar -C "$carried"
  mapfile -t wheels < <("$python" -m tools.gpu.archive --missing "$carried/wheels")
  if [ -n "${wheels[0]:-}" ]; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --disable-pip-version-check \
      --root-user-action=ignore --target "$carried/site" "${wheels[@]}"
    export PYTHONPATH="$PYTHONPATH:$carried/site"
  fi
fi
"$python" -m tools.gpu.verify "$@"
