#!/usr/bin/env bats
# Every tool has a page, which agrees with its --help, and both are well-formed.

load test_helper

setup() {
  cd "$FO_ROOT" || return
  PATH+=:$FO_BUILD/libexec/fo
}
teardown() { :; }

# all_programs: prints the tools, and the helper program that is not in the path.
all_programs() {
  all_tools
  ls "$FO_BUILD/libexec/fo"
}

# page_of TOOL: prints the path of its page; daemons are in section 8.
page_of() {
  local page
  for page in "man/$1.1" "man/$1.8"; do
    if [ -f "$page" ]; then
      echo "$page"
      return
    fi
  done
  return 1
}

# help_of TOOL: prints its --help and that of its subcommands.
help_of() {
  local sub
  "$1" --help
  for sub in $(subcommands_of "$1"); do "$1" "$sub" --help; done
}

# options_of_help TOOL: prints the long options that --help lists.
options_of_help() {
  help_of "$1" | grep -oE '^ +(-[A-Za-z],)?--[a-z][a-z0-9-]*( FILE)?(, (-[A-Za-z],)?--[a-z-]+)?' | grep -oE -- '--[a-z0-9-]+' | sort -u
}

# options_of_page PAGE: prints the long options that have an entry.
options_of_page() {
  grep -E '^\.It .*Fl ' "$1" | grep -oE 'Fl -[a-z][a-z0-9-]*' | sed 's/^Fl -/--/' | sort -u
}

@test "every page is clean mdoc" {
  need mandoc
  run mandoc -T lint -W warning man/*.[1-9]
  [ "$output" = "" ]
  [ "$status" -eq 0 ]
}

@test "no heading or item begins with a word that mdoc reads as a macro" {
  run grep -nE '^\.(Sh|Ss|It) (An|At|Do|In|No|So) ' man/*.[1-9]
  [ "$output" = "" ]
}

@test "every tool has a page with every section" {
  local tool page section
  for tool in $(all_programs); do
    page=$(page_of "$tool") || { wrong "$tool: no page"; continue; }
    for section in NAME SYNOPSIS DESCRIPTION OPTIONS ENVIRONMENT FILES "EXIT STATUS" EXAMPLES "SEE ALSO"; do
      grep -qxF ".Sh $section" "$page" || wrong "$page: no section $section"
    done
    grep -qE "^\.Xr fo-exit-status 7" "$page" || wrong "$page: no reference to fo-exit-status(7)"
  done
  none_wrong
}

@test "pages refer only to existing pages" {
  local name section
  while read -r name section; do
    if [[ "$name" == gms-* || "$name" == fo-* || "$name" == failover ]] && [ ! -f "man/$name.$section" ]; then
      wrong "$name($section): referred to but not there"
    fi
  done < <(sed -n 's/^\.Xr \([^ ]*\) \([1-9]\).*/\1 \2/p' man/*.[1-9] | sort -u)
  none_wrong
}

@test "pages and --help name the same options" {
  local tool page
  for tool in $(all_programs); do
    page=$(page_of "$tool") || continue
    diff <(options_of_help "$tool") <(options_of_page "$page") || wrong "$tool: < only in --help, > only in $page"
  done
  none_wrong
}

# bats test_tags=slow
@test "--help fits a screen and ends with --help and --version" {
  local tool sub text
  for tool in $(all_programs); do
    for sub in "" $(subcommands_of "$tool"); do
      text=$("$tool" ${sub:+"$sub"} --help)
      if [ "$(wc -l <<<"$text")" -gt 52 ]; then wrong "$tool $sub --help: $(wc -l <<<"$text") lines"; fi
      if [ "$(wc -L <<<"$text")" -gt 110 ]; then wrong "$tool $sub --help: $(wc -L <<<"$text") columns"; fi
      if [ "$(grep -E '^ +-' <<<"$text" | tail -n 1 | grep -oE -- '--[a-z]+' | tr '\n' ' ')" != "--help --version " ]; then
        wrong "$tool $sub --help: --help and --version are not last"
      fi
    done
  done
  none_wrong
}

# variables_of_help TOOL: prints the variables in --help: those of options, and the rest at its end.
variables_of_help() {
  help_of "$1" | sed -nE 's/.*env: ([A-Z_]+)\).*/\1/p; s/^Environment: //p; s/^  ([A-Z_*]+( [A-Z_*]+)*)$/\1/p' | by_name
}

# variables_of_page PAGE: prints the variables that have an entry, except those for a command.
variables_of_page() {
  sed -n '/^\.Sh ENVIRONMENT/,/^\.Sh FILES/s/^\.It Ev //p' "$1" | tr -d , |
    sed -E 's/FAILOVER_(GENERATION|LOCK_ID|LOCK_FD)//g' | by_name
}

# by_name: prints one name per line, and families as their prefix.
by_name() {
  tr ' ' '\n' | grep . | sed -E 's/^(DYN|GMS_SIM|KUBERNETES_SERVICE|VLLM|WATCHDOG)_.*/\1_*/' | sort -u
}

@test "pages and --help name the same variables" {
  local tool page
  for tool in $(all_programs); do
    page=$(page_of "$tool") || continue
    diff <(variables_of_help "$tool") <(variables_of_page "$page") || wrong "$tool: < only in --help, > only in $page"
  done
  none_wrong
}

# variables_of_options TOOL: prints the variables of options for which --help names none.
variables_of_options() {
  local tool=$1 sub prefix=${1//-/_}_
  for sub in "" $(subcommands_of "$tool"); do
    "$tool" ${sub:+"$sub"} --print-config --json 2>/dev/null >"$T/options" || continue
    "$tool" ${sub:+"$sub"} --help | awk '
      match($0, /^ +(-[A-Za-z],)?--[a-z0-9-]+/) { option = $0; sub(/^ +(-[A-Za-z],)?--/, "", option); sub(/[^a-z0-9-].*/, "", option) }
      /env: / { print option }' | sort -u >"$T/own"
    jq -r '.options | keys[]' "$T/options" | sort -u | comm -23 - "$T/own"
  done | cat - <(echo config) | tr a-z- A-Z_ | sort -u | sed "s/^/${prefix^^}/"
}

# bats test_tags=slow
@test "pages list the variable of each option" {
  local tool page
  fo_setup
  for tool in $(all_programs); do
    page=$(page_of "$tool") || continue
    if ! diff <(variables_of_options "$tool") \
      <(sed -n '/^\.Sh ENVIRONMENT/,/^\.Sh FILES/s/^\.Ev //p' "$page" | tr -d ' .' | tr ',' '\n' | grep . | sort -u); then
      wrong "$tool: < has an option, > only in $page"
    fi
  done
  fo_teardown
  none_wrong
}

@test "every exit status in a page is in fo-exit-status(7)" {
  local page status
  for page in man/*.[18]; do
    for status in $(sed -n '/^\.Sh EXIT STATUS/,/^\.Sh EXAMPLES/s/^\.It \([0-9][0-9]*\)$/\1/p' "$page"); do
      grep -qE "^\.It .*\b$status\b" man/fo-exit-status.7 || wrong "$page: status $status"
    done
  done
  none_wrong
}

@test "pictures are up to date with their sources" {
  need fossil
  local text
  for text in man/pictures/*.pikchr; do
    cmp <(fossil pikchr "$text") "${text%.pikchr}.svg" || wrong "$text"
  done
  none_wrong
}
