# shellcheck shell=bash
# What the demo shows at the end: the figures from the benchmark's status, the same from Prometheus, and a page.

# One line a row of the matrix: the status holds whole nanoseconds, people read microseconds.
print_table() {
  printf '%9s %7s %6s %9s %9s %9s %9s %11s %9s %8s  %s\n' \
    "payload" fanout batch records "p50 us" "p99 us" "p999 us" "records/s" "MB/s" dropped result
  kubectl get felixbenchmarks.felix.dev demo -o go-template='{{range .status.rows}}{{.payloadBytes}} {{.fanout}} {{.batch}} {{.records}} {{
    .p50Nanoseconds}} {{.p99Nanoseconds}} {{.p999Nanoseconds}} {{.deliveredPerSecond}} {{.deliveredBytesPerSecond}} {{
    .dropped}} {{.passed}}{{"\n"}}{{end}}' | awk '{
      printf "%9d %7d %6d %9d %9.1f %9.1f %9.1f %11d %9.1f %8d  %s\n",
        $1, $2, $3, $4, $5 / 1e3, $6 / 1e3, $7 / 1e3, $8, $9 / 1e6, $10, $11 == "true" ? "passed" : "FAILED" }'
}

# Forwards a port of this machine to Prometheus for the length of a command, whose last argument becomes its address.
with_prometheus() {
  local address= forwarder line said=
  coproc FORWARD { exec kubectl --namespace felix port-forward service/prometheus :9090 2>&1; }
  forwarder=$FORWARD_PID
  while read -r line <&"${FORWARD[0]}"; do
    said+="$line "
    case $line in "Forwarding from 127.0.0.1:"*) address=${line#Forwarding from }; break ;; esac
  done
  address=${address%% *}
  [ -n "$address" ] || fail "cannot reach Prometheus: $said"
  "$@" "http://$address"
  kill "$forwarder"
}

# instant EXPRESSION ADDRESS: each sample's labels and value, a line each.
instant() {
  curl -fsS --get --data-urlencode "query=$1" "$2/api/v1/query" | jq -r '.data.result[]
    | "{" + (.metric | to_entries | map("\(.key)=\"\(.value)\"") | join(", ")) + "} => " + .value[1]'
}

# query WHAT EXPRESSION ADDRESS: fails where Prometheus has no sample.
query() {
  local answer
  answer=$(instant "$2" "$3")
  [ -n "$answer" ] || fail "Prometheus has no sample for: $2"
  printf '%s\n    %s\n' "$1" "${answer//$'\n'/$'\n    '}"
}

query_all() {
  query "records published since the broker started" 'sum(felix_publish_records_total)' "$1"
  query "records delivered since the broker started" 'sum(felix_subscribe_records_total)' "$1"
  query "records dropped for slow subscribers since the broker started" 'sum(felix_subscribe_dropped_total)' "$1"
  query "p99 of the benchmark, in us, from what the operator exports" \
    'sort(1e6 * sum by (payload, fanout, batch) (felix_benchmark_delivery_latency_seconds{benchmark="demo",quantile="0.99"}))' "$1"
}

# Prometheus scrapes every two seconds; what the operator has just begun to export must have been seen.
await_scrape() { # address
  local deadline=$((SECONDS + 60))
  until [ -n "$(instant 'felix_benchmark_delivery_latency_seconds{benchmark="demo"}' "$1")" ]; do
    ((SECONDS < deadline)) || fail "Prometheus has not scraped the benchmark's results within 60 s"
    sleep 0.5
  done
  query_all "$1"
}

write_page() {
  local name
  mkdir -p out
  for name in $(kubectl get felixbenchmarks.felix.dev demo -o 'jsonpath={.status.resultRefs[*].name}'); do
    kubectl get configmap "$name" -o 'go-template={{index .data "results.jsonl"}}'
  done >out/demo.jsonl
  "$CARGO_TARGET_DIR/release/felix-bench" report out/demo.jsonl --output out/demo.html >/dev/null
}
