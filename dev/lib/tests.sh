# shellcheck shell=bash
# Running tests and counting them: by the closing lines of cargo, and of the scripts here ("N passed, M failed").

# run_tests COMMAND...: shows its output and adds its numbers to $FELIX_COUNTS. Fails if it fails or ran no test.
run_tests() {
  local log status=0 count
  log=$(mktemp)
  set +e
  "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  set -e
  count=$(count_tests <"$log")
  rm -f "$log"
  [ -z "${FELIX_COUNTS:-}" ] || echo "$count" >>"$FELIX_COUNTS"
  [ "$status" = 0 ] || return "$status"
  case $count in 0\ *) fail "no test was run by: $*" ;; esac
}

# Sums the closing lines on standard input: "PASSED FAILED".
count_tests() {
  awk '
    /^test result: / { passed += $4; failed += $6 }
    /^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3 }
    END { print passed + 0, failed + 0 }'
}

# Whether dev/kube can have root: at once, or by asking the person at the terminal.
can_be_root() {
  [ "$EUID" = 0 ] && return 0
  command -v sudo >/dev/null || return 1
  sudo -n true 2>/dev/null && return 0
  [ -t 0 ] && { say "dev/kube needs root; sudo asks for your password:"; sudo -v; }
}
