#!/usr/bin/env bats
# packaging/bench and packaging/plot: their output, files and exit statuses. No test checks a speed.
# bats file_tags=slow

load test_helper

setup() {
  fo_setup
  checkout=$T/checkout
  tests=$checkout/build/release/tests
  mkdir -p "$checkout/packaging" "$tests" "$T/bin"
  cp "$FO_ROOT"/packaging/{bench,plot} "$checkout/packaging"
}

# bench_programs: the programs that packaging/bench runs, one per line.
bench_programs() {
  "$FO_ROOT/packaging/bench" --help | sed -n '/only this program/{n;s/^ *//;s/ /\n/g;p}'
}

# stub PROGRAM SCRIPT: replaces a measuring program by SCRIPT, which writes its rows to $rows.
stub() {
  printf '#!/bin/bash\necho "%s $*" >>"%s/calls"\nrows=$2\n%s\n' "$1" "$T" "$2" >"$tests/$1"
  chmod +x "$tests/$1"
}

# row WHAT AIM: prints a row as a measuring program writes it.
row() {
  printf '{"bench":"b","what":"%s","unit":"ms","ours":{"name":"us","median":2,"values":[1,2,3]},' "$1"
  printf '"peer":{"name":"them","median":4,"values":[3,4,5]},"ratio":0.5,"spread":0.25,"aim":%s}' "$2"
}

stub_all() {
  local program
  for program in $(bench_programs); do stub "$program" ':'; done
}

bench() { "$checkout/packaging/bench" --no-build --json "$T/bench.json" "$@"; }

@test "bench --quick runs every program, prints one table and writes a file of values" {
  local program
  for program in "$FO_BUILD"/tests/*; do ln -s "$program" "$tests"; done
  ends_with 0 bench --quick
  [[ "${lines[0]}" =~ ^what\ +ours\ +peer\ +ratio\ +spread\ +aim$ ]]
  [ "${stderr_lines[-1]}" = "all values: $T/bench.json" ]
  jq -e '.machine | (.cpu and .cores and .memory_mib and .kernel and .date and .load != null) and .driver == "sim"' "$T/bench.json"
  jq -e '.quick == true and .series == []' "$T/bench.json"
  [ "$(jq '[.rows[] | select(.failed)] | length' "$T/bench.json")" -eq 0 ]
  jq -e '.rows | map(select(.skipped | not)) | all(.what and .unit and (.ours.values | length > 0)
    and has("peer") and has("ratio") and has("spread") and has("aim"))' "$T/bench.json"
  for program in $(bench_programs); do
    [[ "$output" == *$'\n'"$program: "* ]]
    jq -e --arg bench "$program" '[.rows[] | select(.bench == $bench)] | length > 0' "$T/bench.json"
  done
}

@test "bench knows every program of tests/bench" {
  diff <(bench_programs | sort) \
    <(sed -n 's/^fo_bench(\([a-z_]*\) LINK fo_bench_report.*/\1/p' "$FO_ROOT/tests/bench/CMakeLists.txt" | sort)
}

@test "bench builds what it runs first" {
  stub_all
  # shellcheck disable=SC2016
  printf '#!/bin/sh\necho "${0##*/} $*" >>"%s/calls"\n' "$T" | tee "$T/bin/cmake" >"$checkout/packaging/install-deps"
  chmod +x "$T/bin/cmake" "$checkout/packaging/install-deps"
  PATH=$T/bin:$PATH ends_with 0 "$checkout/packaging/bench"
  run -0 cat "$T/calls"
  [ "${lines[0]}" = "install-deps " ]
  [ "${lines[1]}" = "cmake --preset release" ]
  [ "${lines[2]}" = "cmake --build --preset release --target benches" ]
  [[ "${lines[3]}" =~ ^lock_handover\ --json\ [^\ ]+\ 5$ ]]
  [ -s "$checkout/build/release/bench.json" ]
}

@test "bench runs one program alone" {
  stub_all
  ends_with 0 bench --only gms_rpc --quick
  run -0 cat "$T/calls"
  [[ "$output" =~ ^gms_rpc\ --json\ [^\ ]+\ --quick$ ]]
}

@test "bench reports which aims were met, and a missed aim is not a failure" {
  stub_all
  stub load "cat >\$rows <<'END'
$(row one '{"of":"speed","at_least":0.9,"met":true}')
$(row one '{"of":"cost","at_most":0.1,"met":false}')
$(row two null)
END"
  ends_with 0 bench
  [ "${lines[1]}" = "b: one" ]
  [[ "${lines[2]}" =~ ^\ \ us\ +2\ ms\ +4\ ms\ them\ +0.5\ x\ as\ fast\ +25%\ +'>= 0.9 x as fast, met'$ ]]
  [[ "${lines[3]}" =~ \ 0.5\ x\ +25%\ +'<= 0.1 x, missed'$ ]]
  [ "${lines[4]}" = "b: two" ]
  [[ "${lines[5]}" =~ \ 25%\ +-$ ]]
  [ "${#lines[@]}" -eq 6 ]
}

@test "bench continues when a program fails, reports it, and fails" {
  stub_all
  stub gms_rpc 'echo "gms_rpc: error: no such luck" >&2; exit 70'
  stub publish 'echo "{\"bench\":\"publish\",\"what\":\"a row\",\"skipped\":\"no haproxy\"}" >$rows'
  rm "$tests/failover"
  ends_with 1 bench
  [[ "$stderr" == *"bench: error: run 'gms_rpc': exit status 70: gms_rpc: error: no such luck"* ]]
  [[ "$output" == *$'gms_rpc: all of it\n  failed: exit status 70: gms_rpc: error: no such luck\n'* ]]
  [[ "$output" == *$'publish: a row\n  left out: no haproxy\n'* ]]
  [[ "$output" == *$'failover: all of it\n  failed: exit status 127: '* ]]
  [ "$(jq -c '[.rows[] | select(.failed) | .bench]' "$T/bench.json")" = '["gms_rpc","failover"]' ]
}

@test "bench skips what can't be measured here" {
  ln -s "$FO_BUILD/tests/publish" "$tests"
  local program
  for program in awk bash cut date dirname head jq mktemp nproc readlink realpath rm sed tail timeout touch tr uname cp mkdir; do
    ln -s "$(command -v "$program")" "$T/bin"
  done
  PATH=$T/bin ends_with 0 bench --quick --only publish
  [ "${lines[2]}" = "  left out: haproxy is not installed" ]
}

@test "bench checks first that it can write its files" {
  stub_all
  : >"$T/file"
  run -73 "$checkout/packaging/bench" --no-build --json "$T/file/bench.json"
  run -73 "$checkout/packaging/bench" --no-build --json "$T"
  run -73 bench --plot "$T/file/plots"
  [ ! -e "$T/calls" ]
}

@test "bench ends its processes when it is ended or a program takes too long" {
  stub_all
  # shellcheck disable=SC2016
  stub lock_handover "sleep 1000 & echo \$! >$T/child; wait"
  start_bg bench "$checkout/packaging/bench" --no-build --json "$T/bench.json" --only lock_handover
  wait_for "[ -s $T/child ]"
  terminate "$BG_PID" 143
  wait_for "! kill -0 $(cat "$T/child")"
  sed -i 's/^most_seconds=.*/most_seconds=0.5/' "$checkout/packaging/bench"
  ends_with 1 bench --only lock_handover
  [[ "$output" == *"not done within 0.5 s"* ]]
  wait_for "! kill -0 $(cat "$T/child")"
}

@test "bench --plot draws what programs measured against N" {
  stub_all
  ln -sf "$FO_BUILD/tests/gms_import" "$tests"
  stub load 'if [ "$3" = --series ]; then for n in 1 10; do
    echo "{\"bench\":\"load\",\"series\":\"a < b\",\"name\":\"us & them\",\"n\":$n,\"n_unit\":\"MiB\",
      \"unit\":\"ms\",\"median\":2,\"values\":[1,2,3]}"; done >$rows; fi'
  ends_with 0 bench --quick --plot "$T/plots"
  [ "$(ls "$T/plots")" = $'import.svg\nload.svg\nseries.json' ]
  local name
  for name in import load; do
    python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$T/plots/$name.svg"
  done
  # There are two series, for N objects and for one of N, with three contenders each.
  [ "$(grep -c '<polyline' "$T/plots/import.svg")" -eq 6 ]
  [ "$(grep -c '<circle' "$T/plots/load.svg")" -eq 2 ]
  jq -e 'length == 14 and all(.series and .name and .n and .n_unit and .unit and .values)' "$T/plots/series.json"
  jq -e '.series | length == 14' "$T/bench.json"
  # Draws the same series again, from the JSON file.
  run -0 "$checkout/packaging/plot" "$T/bench.json" "$T/again"
  diff -r "$T/plots" "$T/again"
}

@test "bench and plot refuse unknown arguments" {
  local arguments
  for arguments in --frob '--only' '--only frob' '--json' "--plot ''" frob; do
    eval "ends_with 64 bench $arguments"
    [ "$output" = "" ]
    [[ "${stderr_lines[0]}" == "bench: error: "* ]]
    [ "${stderr_lines[1]}" = "Try 'packaging/bench --help'" ]
  done
  ends_with 64 "$checkout/packaging/plot" one
  [ "$stderr" = $'plot: error: wants a file and a folder\nTry \'packaging/plot --help\'' ]
  ends_with 66 "$checkout/packaging/plot" "$T/none.json" "$T"
  [ "$stderr" = "plot: error: open '$T/none.json': No such file or directory" ]
  echo '{"series": []}' >"$T/empty.json"
  ends_with 65 "$checkout/packaging/plot" "$T/empty.json" "$T"
  [ "$stderr" = "plot: error: read '$T/empty.json': no series in it; packaging/bench --plot measures them" ]
  echo '[' >"$T/broken.json"
  ends_with 65 "$checkout/packaging/plot" "$T/broken.json" "$T"
  [[ "$stderr" == "plot: error: read '$T/broken.json': not of packaging/bench: "* ]]
  run -0 "$checkout/packaging/plot" --help
}
