#!/usr/bin/env bash
# Packs what a GPU machine without network lacks into .gpu/archive.tar, for verify.sh there: python -m tools.gpu.archive.
#   tools/gpu/archive.sh [--python 3.12]
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" -m tools.gpu.archive "$@"
