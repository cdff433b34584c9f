# shellcheck shell=bash
# What the scripts of this repository tell a person: one line when a step starts, one with its duration when it ends.
# Each finished step is also noted in $FELIX_STEPS (a file), from which `dev/steps` prints where the time went.

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "${0##*/}: $*"
  exit 1
}

milliseconds() { # since an arbitrary point; whole seconds where bash is older than 5 (macOS)
  local now=${EPOCHREALTIME:-$(date +%s).000000}
  echo $((${now/[.,]/} / 1000))
}
seconds() { printf '%d.%d' "$(($1 / 1000))" "$(($1 % 1000 / 100))"; } # milliseconds

note_step() { # milliseconds status what
  [ -z "${FELIX_STEPS:-}" ] || printf '%s\t%s\t%s\n' "$@" >>"$FELIX_STEPS"
}

# step WHAT COMMAND...: says what it does and how long it took. Call it plainly, never in a condition: bash would
# then ignore `set -e` within COMMAND.
step() {
  local what=$1 start status
  shift
  start=$(milliseconds)
  say "==> $what"
  set +e
  (set -e; "$@")
  status=$?
  set -e
  local took=$(($(milliseconds) - start))
  note_step "$took" "$status" "$what"
  if [ "$status" = 0 ]; then say "    $what: $(seconds "$took") s"; else say "    $what: FAILED after $(seconds "$took") s"; fi
  return "$status"
}
