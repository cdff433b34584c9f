#!/bin/sh
# Fuzzes everything in felix-wire that reads foreign bytes, coverage-guided, on the stable compiler.
#
#   broker/wire/fuzz/fuzz.sh [minutes [target...]]     10 minutes for each of: frames hello batch names
#
# Needs a C++ compiler. Prints executions and edges; a finding ends it with the input's file. What it learned is merged
# into broker/wire/tests/corpus, which the ordinary tests replay.
set -eu

minutes=${1:-10}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- frames hello batch names

here=$(cd "$(dirname "$0")" && pwd)
corpus=$here/../tests/corpus
target_dir=${FELIX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/felix}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')

# What cargo-fuzz passes, less the sanitizer, which only the nightly compiler has. Edges are counted by 8-bit counters,
# comparisons are traced; the instrumentation is an LLVM pass that the stable compiler runs as well.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
cargo build --quiet --release --manifest-path "$here/Cargo.toml" --target "$host" --target-dir "$target_dir"
fuzzer=$target_dir/$host/release/felix-wire-fuzz

for target in "$@"; do
    work=$target_dir/work/$target
    mkdir -p "$work" "$corpus/$target"
    echo "== $target, $minutes minutes"
    FUZZ_TARGET=$target "$fuzzer" -max_total_time=$((minutes * 60 + 1)) -max_len=4096 -timeout=10 -rss_limit_mb=1024 \
        -artifact_prefix="$work.finding-" -print_final_stats=1 -verbosity=1 "$work" "$corpus/$target" \
        2>"$work.log" || { tail -n 40 "$work.log"; exit 1; }
    grep -E 'DONE|stat::number_of_executed_units|stat::average_exec_per_sec|stat::peak_rss_mb' "$work.log"
    # The smallest set of inputs that reaches every edge.
    rm -rf "$work.merged" && mkdir "$work.merged"
    FUZZ_TARGET=$target "$fuzzer" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$work.merged" "$corpus/$target" "$work" \
        2>>"$work.log"
    rm -rf "${corpus:?}/$target" && cp -r "$work.merged" "$corpus/$target"
    echo "corpus of $target: $(find "$corpus/$target" -type f | wc -l) files"
done
