#!/usr/bin/env bats
# What all tools promise alike: usage errors, stdout that is checked, configuration files, and
# programs that run where they are meant to.

load test_helper

# Each tool, and each of its subcommands, as "tool [subcommand]" lines.
all_commands() {
  local tool sub
  for tool in $(all_tools); do
    sub=$("$tool" --help | sed -n '/^Subcommands:/,$s/^  \([a-z][a-z-]*\) .*/\1/p')
    if [ -z "$sub" ]; then
      echo "$tool"
    else
      sed "s/^/$tool /" <<<"$sub"
    fi
  done
}

# for_each CHECK: runs CHECK TOOL [SUBCOMMAND] for all, and says which failed.
for_each() {
  local bad=0 line count=0
  while IFS= read -r line; do
    count=$((count + 1))
    # shellcheck disable=SC2086  # tool and subcommand are two words
    if ! "$1" $line; then
      echo "failed for: $line"
      echo "status: $status stdout: $output stderr: $stderr"
      bad=1
    fi
  done < <(all_commands)
  [ "$count" -gt 0 ] && [ "$bad" -eq 0 ]
}

refuses_unknown_flag() {
  run --separate-stderr "$@" --no-such-flag
  [ "$status" -eq 64 ] && [ "$output" = "" ] && [ "${#stderr_lines[@]}" -eq 2 ] &&
    [[ "${stderr_lines[0]}" == "$1: error: "* ]] &&
    [ "${stderr_lines[1]}" = "Try '$1 --help'" ]
}

@test "an unknown flag is 64, one line, and where to look" {
  for_each refuses_unknown_flag
}

helps() {
  run --separate-stderr "$@" --help
  [ "$status" -eq 0 ] && [ "$stderr" = "" ] && [[ "$output" == *"Usage: $1"* ]] &&
    CUDA_VISIBLE_DEVICES='' GMS_DRIVER=/nonexistent "$@" --help >/dev/null
}

@test "--help goes to stdout and needs no driver" {
  for_each helps
}

says_version() {
  run --separate-stderr "$@" --version
  [ "$status" -eq 0 ] && [ "$stderr" = "" ] && [[ "$output" =~ ^$1\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "--version is the tool and its version" {
  for_each says_version
}

complains_of_full_stdout() {
  # shellcheck disable=SC2016
  run --separate-stderr sh -c '"$@" --help >/dev/full' sh "$@"
  [ "$status" -eq 74 ] &&
    [ "$stderr" = "$1: error: write to standard output: No space left on device" ]
}

@test "a full stdout is 74" {
  for_each complains_of_full_stdout
}

complains_of_closed_stdout() {
  # shellcheck disable=SC2016
  run --separate-stderr sh -c '"$@" --help >&-' sh "$@"
  [ "$status" -eq 74 ] && [ "$stderr" = "$1: error: write to standard output: Bad file descriptor" ]
}

@test "a closed stdout is 74" {
  for_each complains_of_closed_stdout
}

complains_of_toml() {
  printf '\nx = = 1\n' >"$T/bad.toml"
  run --separate-stderr "$@" --config "$T/bad.toml"
  [ "$status" -eq 78 ] && [ "$output" = "" ] && [ "${#stderr_lines[@]}" -eq 1 ] &&
    [[ "$stderr" == "$1: error: read configuration '$T/bad.toml': line 2, column 5: "* ]]
}

@test "a configuration file that is not TOML is 78, with line and column" {
  for_each complains_of_toml
}

complains_of_unknown_key() {
  echo 'no-such-key = 1' >"$T/key.toml"
  run --separate-stderr "$@" --config "$T/key.toml"
  [ "$status" -eq 78 ] &&
    [ "$stderr" = "$1: error: read configuration '$T/key.toml': key 'no-such-key': no such option" ]
}

@test "an unknown key in a configuration file is 78" {
  for_each complains_of_unknown_key
}

complains_of_missing_config() {
  run --separate-stderr "$@" --config "$T/none.toml"
  [ "$status" -eq 66 ] && [ "$stderr" = "$1: error: open '$T/none.toml': No such file or directory" ]
}

@test "a configuration file that is not there is 66" {
  for_each complains_of_missing_config
}

@test "dynamic programs run on glibc 2.35" {
  command -v objdump >/dev/null || skip_because binutils "objdump is not installed"
  local program newest bad=0
  for program in "$FO_BIN"/* "$FO_BUILD"/libexec/fo/* "$FO_BUILD"/lib/sim/*.so.1; do
    if [ ! -f "$program" ]; then continue; fi
    newest=$(objdump -T "$program" 2>/dev/null | grep -oE 'GLIBC_2\.[0-9]+' | sort -t. -k2 -n | tail -n 1)
    if [ -n "$newest" ] && [ "${newest#GLIBC_2.}" -gt 35 ]; then
      echo "${program##*/} needs $newest: $(objdump -T "$program" | grep "$newest" | head -n 3)"
      bad=1
    fi
  done
  [ "$bad" -eq 0 ]
}

@test "tools for engine images are static in a release build" {
  if ! grep -qx 'FO_STATIC_TOOLS:BOOL=ON' "$FO_BUILD/CMakeCache.txt"; then
    skip_because release "not a release build"
  fi
  local tool tools bad=0
  tools=$(sed -n 's/^fo_tool(\([^ ]*\) STATIC$/\1/p' "$FO_ROOT"/cmd/*/CMakeLists.txt)
  [ "$(wc -w <<<"$tools")" -ge 7 ]
  for tool in $tools; do
    if readelf -l "$FO_BIN/$tool" | grep -qE 'INTERP|DYNAMIC'; then
      echo "$tool is not static"
      bad=1
    fi
  done
  [ "$bad" -eq 0 ]
}
