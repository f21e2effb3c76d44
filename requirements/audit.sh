#!/bin/sh
# Looks every locked package up among known vulnerabilities: 1 where one has any, 0 where none has or nobody can be asked, which is said.
set -eu

cd "$(dirname "$0")/.."
audit=build/audit
said=$(mktemp)
trap 'rm -f "$said"' EXIT
[ -x $audit/bin/pip-audit ] || {
    .venv/bin/python -m venv $audit
    $audit/bin/pip install --quiet --disable-pip-version-check --no-input --require-hashes --only-binary :all: -r requirements/audit.txt
}
for lock in base all build dev ziglang kube-tools engines; do
    # the pins are looked up as they stand: nothing is resolved or installed
    if $audit/bin/pip-audit --disable-pip --require-hashes --progress-spinner off -r requirements/$lock.txt >"$said" 2>&1; then
        skipped=$(grep -c "could not be audited" "$said" || true)
        case $skipped in
        0) echo "requirements/$lock.txt: no known vulnerability" ;;
        *) echo "requirements/$lock.txt: NOT CHECKED: the database of vulnerabilities knows nothing of $skipped of its packages" ;;
        esac
    elif grep -q "known vulnerabilit" "$said"; then
        cat "$said"
        echo "fallow: requirements/$lock.txt has packages with known vulnerabilities; make lock UPGRADE=--upgrade takes newer ones" >&2
        exit 1
    else
        echo "requirements/$lock.txt: NOT CHECKED: $(tail -n 1 "$said")"
    fi
done
