#!/usr/bin/env bats
# What all tools have in common: usage errors, a checked stdout, configuration files, completion,
# and the libraries that they need.

load test_helper

# Each tool and each of its subcommands, as "tool [subcommand]" lines in the file "commands".
setup_file() {
  local tool sub
  for tool in $(all_tools); do
    sub=$(subcommands_of "$tool")
    if [ -z "$sub" ]; then
      echo "$tool"
    else
      sed "s/^/$tool /" <<<"$sub"
    fi
  done >"$BATS_FILE_TMPDIR/commands"
}

# for_each CHECK: runs CHECK TOOL [SUBCOMMAND] for every command, and prints which one failed.
for_each() {
  local line count=0
  while IFS= read -r line; do
    count=$((count + 1))
    # shellcheck disable=SC2086  # tool and subcommand are two words
    if ! "$1" $line; then
      echo "failed for: $line"
      wrong "status: $status stdout: $output stderr: $stderr"
    fi
  done <"$BATS_FILE_TMPDIR/commands"
  [ "$count" -gt 0 ] && none_wrong
}

refuses_unknown_flag() {
  observe "$@" --no-such-flag
  [ "$status" -eq 64 ] && [ "$output" = "" ] && [ "${#stderr_lines[@]}" -eq 2 ] &&
    [[ "${stderr_lines[0]}" == "$1: error: "* ]] &&
    [ "${stderr_lines[1]}" = "Try '$1 --help'" ]
}

@test "an unknown flag is 64, one line, and where to look" {
  for_each refuses_unknown_flag
}

helps() {
  observe "$@" --help
  [ "$status" -eq 0 ] && [ "$stderr" = "" ] && [[ "$output" == *"Usage: $1"* ]] &&
    CUDA_VISIBLE_DEVICES='' GMS_DRIVER=/nonexistent "$@" --help >/dev/null
}

@test "--help goes to stdout and needs no driver" {
  for_each helps
}

says_version() {
  observe "$@" --version
  [ "$status" -eq 0 ] && [ "$stderr" = "" ] && [[ "$output" =~ ^$1\ [0-9]+\.[0-9]+\.[0-9]+\ \(([0-9a-f]{12,40}(-dirty)?,\ )?[A-Za-z]+\ [0-9.]+,\ [A-Z][a-z]+(\ with\ [a-z,]+)?\)$ ]]
}

@test "--version prints the tool, its version, and the sources that it was built from" {
  for_each says_version
}

complains_of_full_stdout() {
  # shellcheck disable=SC2016
  observe sh -c '"$@" --help >/dev/full' sh "$@"
  [ "$status" -eq 74 ] &&
    [ "$stderr" = "$1: error: write to standard output: No space left on device" ]
}

@test "a full stdout is 74" {
  for_each complains_of_full_stdout
}

complains_of_closed_stdout() {
  # shellcheck disable=SC2016
  observe sh -c '"$@" --help >&-' sh "$@"
  [ "$status" -eq 74 ] && [ "$stderr" = "$1: error: write to standard output: Bad file descriptor" ]
}

@test "a closed stdout is 74" {
  for_each complains_of_closed_stdout
}

complains_of_toml() {
  printf '\nx = = 1\n' >"$T/bad.toml"
  observe "$@" --config "$T/bad.toml"
  [ "$status" -eq 78 ] && [ "$output" = "" ] && [ "${#stderr_lines[@]}" -eq 1 ] &&
    [[ "$stderr" == "$1: error: read configuration '$T/bad.toml': line 2, column 5: "* ]]
}

@test "a configuration file that is not TOML is 78, with line and column" {
  for_each complains_of_toml
}

complains_of_unknown_key() {
  echo 'no-such-key = 1' >"$T/key.toml"
  observe "$@" --config "$T/key.toml"
  [ "$status" -eq 78 ] &&
    [ "$stderr" = "$1: error: read configuration '$T/key.toml': key 'no-such-key': no such option" ]
}

@test "an unknown key in a configuration file is 78" {
  for_each complains_of_unknown_key
}

guesses_what_was_meant() {
  observe "$@" --print-confg
  [ "$status" -eq 64 ] && [ "${#stderr_lines[@]}" -eq 2 ] &&
    [[ "${stderr_lines[0]}" == "$1: error: "*": --print-confg; did you mean '--print-config'?" ]] || return 1
  echo 'verbsoe = 1' >"$T/key.toml"
  observe "$@" --config "$T/key.toml"
  [ "$status" -eq 78 ] && [[ "$stderr" == *": key 'verbsoe': no such option; did you mean 'verbose'?" ]]
}

# bats test_tags=slow
@test "a mistyped option or key gets a suggestion" {
  for_each guesses_what_was_meant
}

@test "a mistyped subcommand gets a suggestion" {
  ends_with 64 gms-lock aquire
  [ "${stderr_lines[0]}" = "gms-lock: error: The following argument was not expected: aquire; did you mean 'acquire'?" ]
}

# without_origins: removes the comments that name the source of each value.
without_origins() { sed 's/  # .*//'; }

prints_its_configuration() {
  observe env GMS_DRIVER=/nonexistent GMS_SOCKET_DIR="$T/none" "$@" --print-config -v
  [ "$status" -eq 0 ] && [ "$stderr" = "" ] || return 1
  [[ "$output" == *"verbose = true "*"  # flag"* && "$output" == *"quiet = false "*"  # default"* ]] || return 1
  printf '%s\n' "$output" | without_origins >"$T/first"
  printf '%s\n' "$output" >"$T/config.toml"
  observe env -u GMS_DRIVER "$@" --print-config --config "$T/config.toml"
  [ "$status" -eq 0 ] && [[ "$output" == *"verbose = true "*"  # $T/config.toml"* ]] || return 1
  printf '%s\n' "$output" | without_origins | grep -v '^# [A-Z]' | diff <(grep -v '^# [A-Z]' "$T/first") - || return 1
  observe "$@" --print-config --json
  [ "$status" -eq 0 ] && jq -e '.options.json == {value: true, from: "flag"}' <<<"$output" >/dev/null
}

# bats test_tags=slow
@test "--print-config prints what --config reads back, without a driver or a server" {
  for_each prints_its_configuration
}

prints_its_variables() {
  local defaults option variable value flag
  defaults=$'\n'$("$@" --print-config)
  while read -r option variable; do
    value=9
    if [[ $defaults =~ $'\n'$option\ =\ \"?9[^0-9] ]]; then value=8; fi
    if [ "$variable" = FO_LOG_FORMAT ]; then value=json; fi
    observe env "$variable=$value" "$@" --print-config
    [ "$status" -eq 0 ] && [[ "$output" =~ (^|$'\n')$option\ =\ [\"]?$value(ms)?[\"]?\ +\#\ environment\ $variable ]] || return 1
    flag=7
    if [[ "$variable" == *_MS ]]; then flag=7ms; fi
    if [ "$variable" = FO_LOG_FORMAT ]; then flag=timed; fi
    observe env "$variable=$value" "$@" --print-config "--$option" "$flag"
    [ "$status" -eq 0 ] && [[ "$output" =~ (^|$'\n')$option\ =\ [\"]?${flag}[\"]?\ +\#\ flag ]] || return 1
    options=$((options + 1))
  done < <("$@" --help | sed -nE 's/^  --([a-z-]+) .*env: ([A-Z_]+)\).*/\1 \2/p')
}

# bats test_tags=slow
@test "--print-config names the environment as a source, and flags override it" {
  local options=0
  unset GMS_DRIVER
  for_each prints_its_variables
  [ "$options" -ge 20 ]
}

complains_of_missing_config() {
  observe "$@" --config "$T/none.toml"
  [ "$status" -eq 66 ] && [ "$stderr" = "$1: error: open '$T/none.toml': No such file or directory" ]
}

complains_of_no_config_file() {
  observe "$@" --config ""
  [ "$status" -eq 64 ] && [ "${stderr_lines[0]}" = "$1: error: --config: needs a file" ]
}

@test "a configuration file with an empty name is 64" {
  for_each complains_of_no_config_file
}

@test "a missing configuration file is 66" {
  for_each complains_of_missing_config
}

@test "dynamic programs run on glibc 2.35" {
  need objdump binutils
  local program newest
  for program in "$FO_BIN"/* "$FO_BUILD"/libexec/fo/* "$FO_BUILD"/lib/sim/*; do
    if [ ! -f "$program" ]; then continue; fi
    newest=$(objdump -T "$program" 2>/dev/null | grep -oE 'GLIBC_2\.[0-9]+' | sort -t. -k2 -n | tail -n 1)
    if [ -n "$newest" ] && [ "${newest#GLIBC_2.}" -gt 35 ]; then
      wrong "${program##*/} needs $newest: $(objdump -T "$program" | grep "$newest" | head -n 3)"
    fi
  done
  none_wrong
}

@test "tools for engine images are static in a release build" {
  if ! grep -qx 'FO_STATIC_TOOLS:BOOL=ON' "$FO_BUILD/CMakeCache.txt"; then
    skip_because release "not a release build"
  fi
  local tool tools
  tools=$(sed -n 's/^fo_tool(\([^ ]*\) STATIC$/\1/p' "$FO_ROOT"/cmd/*/CMakeLists.txt)
  [ "$(wc -w <<<"$tools")" -ge 7 ]
  for tool in $tools; do
    if readelf -l "$FO_BIN/$tool" | grep -qE 'INTERP|DYNAMIC'; then wrong "$tool is not static"; fi
  done
  none_wrong
}

# complete_in_bash WORD...: what bash offers for the last word of that command line.
complete_in_bash() {
  bash -u -c '
    source <("$1" completion bash)
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    "_${1//-/_}"
    printf "%s\n" "${COMPREPLY[@]}"' bash "$@" | grep . || :
}

completes_its_options() {
  local -a offered listed
  mapfile -t offered < <(complete_in_bash "$@" --)
  mapfile -t listed < <("$@" --help | grep -oE '^ +(-[A-Za-z],)?--[a-z0-9-]+( FILE)?(, (-[A-Za-z],)?--[a-z-]+)?' | grep -oE -- '--[a-z0-9-]+')
  [ "${#listed[@]}" -gt 2 ] && [ "${offered[*]}" = "${listed[*]}" ] || return 1
  [ "$(complete_in_bash "$@" --print-c)" = --print-config ] || return 1
  run -0 "$1" completion bash
}

# bats test_tags=slow
@test "completion in bash offers the options of --help" {
  for_each completes_its_options
}

# offered_words TOOL [SUBCOMMAND]: for each of its options with a value, on standard input: the words
# that bash offers, in a folder without files, one "OPTION WORD" per line.
offered_words() {
  cd "$T/empty" && bash -u -c '
    source <("$1" completion bash)
    while read -r option; do
      COMP_WORDS=("$@" "$option" "") COMP_CWORD=$(($# + 1)) COMPREPLY=()
      "_${1//-/_}"
      for word in "${COMPREPLY[@]}"; do echo "$option $word"; done
    done' bash "$@"
}

completes_words_that_are_taken() {
  local option word
  while read -r option word; do
    "$@" "$option" "$word" --print-config >"$T/out" 2>&1 || { cat "$T/out"; return 1; }
    words=$((words + 1))
  done < <("$@" --help | grep -oE '^  (-[A-Za-z],)?--[a-z-]+ [A-Z]' | grep -oE -- '--[a-z-]+' |
    offered_words "$@")
}

# bats test_tags=slow
@test "completion in bash offers words that the options take" {
  local words=0
  mkdir "$T/empty"
  for_each completes_words_that_are_taken
  [ "$words" -ge 20 ]
}

@test "completion in bash knows subcommands, values, files, folders and commands" {
  mkdir "$T/folder" "$T/folder/below"
  touch "$T/folder/model.toml" "$T/folder/my file"
  cd "$T/folder"
  [ "$(complete_in_bash gms-lock "")" = $'acquire\nowner\nstatus\ncompletion' ]
  [ "$(complete_in_bash gms-lock a)" = acquire ]
  [ "$(complete_in_bash gms-lock completion "")" = $'bash\nzsh\nfish' ]
  [ "$(complete_in_bash gms-lock acquire "")" = "" ]
  [ "$(complete_in_bash gms-lock acquire --lock "")" = "" ]
  [ "$(complete_in_bash fo-shadow --lock status "")" = $'status\nswitchover\ncompletion' ]
  [ "$(complete_in_bash fo-shadow --engine s)" = sglang ]
  [ "$(complete_in_bash fo-shadow --engine = s)" = sglang ]
  [ "$(complete_in_bash fo-shadow --engine =)" = "$(complete_in_bash fo-shadow --engine "")" ]
  [ "$(complete_in_bash gms-probe engine --state active,s)" = active,standby ]
  [ "$(complete_in_bash gms-stat --driver s)" = sim ]
  [ "$(complete_in_bash gms-stat --config m | sort)" = $'model.toml\nmy file' ]
  [ "$(complete_in_bash gms-load --snapshot "")" = below ]
  [ "$(complete_in_bash gms-save "")" = below ]
  [ "$(complete_in_bash gms-load model)" = model.toml ]
  [[ $'\n'"$(complete_in_bash gms-lock acquire -- ech)"$'\n' == *$'\necho\n'* ]]
  [ "$(complete_in_bash gms-lock acquire --exec -- cat mod)" = model.toml ]
  [ "$(complete_in_bash gms-lock acquire -- cat --)" = "" ]
}

complains_of_unknown_shell() {
  if [ $# -gt 1 ]; then return 0; fi
  observe "$1" completion --help
  [ "$status" -eq 0 ] && [[ "$output" == "Usage: $1 completion bash|zsh|fish"* ]] || return 1
  # These tools take a file argument, so "completion SHELL" may be the name of a file.
  if [[ "$1" == gms-load || "$1" == gms-save ]]; then return 0; fi
  observe "$1" completion tcsh
  [ "$status" -eq 64 ] && [ "$output" = "" ] && [ "$stderr" = "$1: error: completion 'tcsh': expected bash, zsh or fish
Try '$1 --help'" ] || return 1
  observe "$1" completion
  [ "$status" -eq 64 ] && [ "${stderr_lines[0]}" = "$1: error: completion: expected bash, zsh or fish" ]
}

@test "completion for an unknown shell is 64" {
  for_each complains_of_unknown_shell
}

@test "a folder may have the name completion" {
  mkdir "$T/completion"
  cd "$T"
  run -0 gms-save completion --print-config
  run -0 gms-load completion --print-config
}

@test "completion in fish offers the options of --help" {
  need fish
  local tool
  for tool in $(all_tools); do
    "$tool" completion fish >"$T/$tool.fish"
    fish --no-config --no-execute "$T/$tool.fish"
    run fish --no-config -c "source $T/$tool.fish; complete -C '$tool --'"
    [[ "$output" == *--help$'\t'* && "$output" == *--version$'\t'* ]]
  done
  run fish --no-config -c "source $T/gms-lock.fish; complete -C 'gms-lock acquire --gpu'"
  [[ "$output" == --gpu-free$'\t'* ]]
  run fish --no-config -c "source $T/fo-shadow.fish; complete -C 'fo-shadow --engine sg'"
  [[ "$output" == sglang$'\t'* ]]
  mkdir -p "$T/folder/below"
  touch "$T/folder/belongs"
  cd "$T/folder"
  run fish --no-config -c "source $T/gms-save.fish; complete -C 'gms-save be'"
  [[ "$output" == below/* && "$output" != *belongs* ]]
  run fish --no-config -c "source $T/gms-load.fish; complete -C 'gms-load be'"
  [[ "$output" == *below/* && "$output" == *belongs* ]]
  run fish --no-config -c "source $T/gms-lock.fish; complete -C 'gms-lock acquire -- ech'"
  [[ "$output" == *echo* ]]
}

# complete_in_zsh WORD...: what zsh offers for the last word of that command line, in a terminal.
complete_in_zsh() {
  timeout 60 zsh -f "$FO_ROOT/bats/complete.zsh" "$1" "$*"
}

# bats test_tags=slow
@test "completion in zsh offers subcommands, options and values" {
  need zsh
  local tool
  for tool in $(all_tools); do
    "$tool" completion zsh >"$T/$tool.zsh"
    zsh -n "$T/$tool.zsh"
    [[ $(complete_in_zsh "$tool" --vers) == *--version* ]]
  done
  [[ $(complete_in_zsh gms-lock "") == *acquire*owner*status* ]]
  [[ $(complete_in_zsh gms-lock acquire --gpu) == *--gpu-free* ]]
  [[ $(complete_in_zsh fo-shadow --engine sg) == *sglang* ]]
  [[ $(complete_in_zsh fo-shadow -- ech) == *echo* ]]
  [[ $(complete_in_zsh gms-stat --driver si) == *sim* ]]
  [[ $(complete_in_zsh gms-probe engine --state active,st) == *standby* ]]
  mkdir -p "$T/folder/below"
  touch "$T/folder/belongs"
  cd "$T/folder"
  [[ $(complete_in_zsh gms-stat --config be) == *belongs* ]]
  [[ $(complete_in_zsh gms-save be) == *below* && $(complete_in_zsh gms-save be) != *belongs* ]]
}

# --- log lines of daemons -------------------------------------------------------------------------

@test "log lines of daemons have a time, except in a journal, and are JSON on request" {
  local tool=(gms-serve --socket-dir "$T/absent")
  unset FO_LOG_FORMAT
  ends_with 73 "${tool[@]}"
  [[ $stderr =~ ^20[0-9-]+T[0-9:]+\.[0-9]{3}Z\ gms-serve:\ error:\  ]]
  FO_LOG_FORMAT=json ends_with 73 "${tool[@]}"
  [ "$(jq -r '[.tool, .level] | join(" ")' <<<"$stderr")" = "gms-serve error" ]
  FO_LOG_FORMAT=json ends_with 73 "${tool[@]}" --log-format text
  [[ $stderr == "gms-serve: error: "* ]]
  # systemd identifies its journal's descriptor by this variable.
  # shellcheck disable=SC2016  # for the shell in there
  ends_with 73 bash -c 'exec 2>"$0"; JOURNAL_STREAM=$(stat -c %d:%i "$0") exec "$@"' "$T/journal" "${tool[@]}"
  [[ $(<"$T/journal") == "gms-serve: error: "* ]]
  ends_with 64 gms-serve --log-format xml
  # Other tools do not have the option.
  ends_with 64 gms-stat --log-format text
}
