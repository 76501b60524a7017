#!/usr/bin/env bats
# The project's rules that a compiler does not check: which library may include which, and where
# third-party libraries, dlopen and shells are allowed.

load test_helper

setup() { cd "$FO_ROOT" || return; }
teardown() { :; }

# allowed_for LIBRARY: prints the other libraries that it may include from.
allowed_for() {
  case $1 in
    base) ;;
    simcuda) echo cuda ;; # one header: see below
    text | json | metrics | cuda | plan) echo base ;;
    os | yaml) echo base text ;;
    cli) echo base text os json ;;
    loop) echo base text os ;;
    device) echo base text os json ;;
    net) echo base text os loop ;;
    http) echo base text os json metrics loop net ;;
    etcd | kube) echo base text os json metrics loop net http ;;
    gms) echo base text os json metrics loop net http cuda ;;
    weights) echo base text os json cuda gms ;;
    lock) echo base text os json metrics loop net http etcd kube device ;;
    engine) echo base text os json metrics loop net http etcd kube cuda device gms lock ;;
    refengine) echo base text os json metrics loop net http cuda gms ;;
    pod) echo base text json yaml ;;
    fleet) echo base text os json yaml metrics loop net http etcd kube cuda device gms weights lock pod ;;
    route | canary) echo base text os json yaml metrics loop net http etcd kube cuda device gms weights lock pod plan fleet ;;
    *) return 1 ;;
  esac
}

# matches_outside PATTERN FOLDER...: prints C++ lines that match, outside these folders. none_outside
# fails if there are any.
matches_outside() {
  local pattern=$1 folder
  local -a skipped=()
  shift
  for folder in "$@"; do skipped+=(":!$folder"); done
  sources "${skipped[@]}" | xargs -r grep -nHE -- "$pattern"
}

none_outside() {
  run matches_outside "$@"
  [ "$output" = "" ]
}

# sources: prints the C++ files of this checkout, also those not yet added.
sources() { git ls-files -co --exclude-standard -- 'lib/*.h' 'lib/*.cc' 'cmd/*.h' 'cmd/*.cc' "$@"; }

@test "libraries include only libraries above them" {
  local library folder included
  for folder in lib/*/; do
    library=$(basename "$folder")
    allowed=" $(allowed_for "$library") $library " || { wrong "lib/$library: not a library of this project"; continue; }
    while IFS= read -r included; do
      if [ -d "lib/$included" ] && [[ "$allowed" != *" $included "* ]]; then
        wrong "$library must not know $included: $(grep -rn "#include \"$included/" "$folder")"
      fi
    done < <(grep -rhoE '#include "[a-z0-9_]+/' "$folder" | sed 's/.*"//; s/\///' | sort -u)
  done
  none_wrong
}

@test "libraries are linked in the same order" {
  local library folder linked
  for folder in lib/*/; do
    library=$(basename "$folder")
    allowed=" $(allowed_for "$library") $library asio flags headers library "
    while read -r linked; do
      if [[ "$allowed" != *" ${linked#fo_} "* ]]; then wrong "lib/$library links $linked"; fi
    done < <(grep -oE '\bfo_[a-z]+\b' "$folder/CMakeLists.txt")
  done
  none_wrong
}

@test "no library includes from cmd or tests" {
  none_outside '#include "(\.\.|cmd/|tests/)' tests
}

@test "simcuda includes nothing but the C++ library, the system and the driver's interface" {
  run grep -rnE '#include <(boost|fmt|CLI|toml|nlohmann|openssl|msgpuck|gtest)' lib/simcuda
  [ "$output" = "" ]
  run bash -c "grep -rn '#include \"' lib/simcuda | grep -vE '#include \"(simcuda/|cuda/abi\.h\")'"
  [ "$output" = "" ]
  run grep -nE '\bfo_cuda\b' lib/simcuda/CMakeLists.txt
  [ "$output" = "" ]
}

@test "only simcuda knows its files" {
  none_outside 'GMS_SIM_DIR|gms-sim-|"mem-|/book"' lib/simcuda
}

@test "CLI11 and toml++ stay in cli and cmd" {
  none_outside '#include <(CLI/|toml)' lib/cli cmd
}

@test "no public header includes Beast, CLI11 apart from cli's, or all of nlohmann/json" {
  run grep -rnE --include='*.h' '#include <(boost/beast|nlohmann/json\.hpp)' lib cmd
  [ "$output" = "" ]
}

@test "dlopen stays in cuda" {
  none_outside '\bdl(m?open|sym)[[:space:]]*\(' lib/cuda
}

@test "no program runs a shell" {
  none_outside '\b(std::|::)?(system|popen)[[:space:]]*\('
}

@test "pidfd calls and random numbers do not tie programs to a newer glibc or a device" {
  none_outside '(^|[^_a-z.>])(::)?pidfd_(open|send_signal|getfd)[[:space:]]*\(' lib/os
  none_outside 'std::random_device'
}

@test "only lib/os clears CLOEXEC" {
  none_outside 'F_SETFD,[[:space:]]*(0|[a-z])' lib/os
}

# riddles FILE...: string literals of C++ in words that CONTRIBUTING's glossary replaces.
riddles() {
  sed -E 's,^[[:space:]]*//.*,,; /#include/d' -- "$@" | grep -oE '"([^"\\]|\\.)*"' | grep -E \
    -e '\<(somebody|whoever|anew|strangers?|keepers?|deaf|whom|amiss|trouble)\>' \
    -e '\<(is|are|that is) none\>|\<(is|are) no [a-z]|\<number of one\>|\<there twice\>' \
    -e '\<wants? [^t]|\<say (--|[0-9]|a|at|it|name)\>|\<is told\>|\<hear (from|of)\>|\<heard of\>' \
    -e '\<(come|came) back\>|\<(let|lets) go\>|\<(give|gives|gave|given) .*\<up\>|\<(gave|given) back\>' \
    -e '\<(for want of|to be had|not to be seen|what is left|a turn that|no more than there)\>'
}

@test "messages use the words of the glossary" {
  printf '%s\n' '// What somebody says is no message.' 'fail("the lock is free");' >"$BATS_TEST_TMPDIR/plain.cc"
  run riddles "$BATS_TEST_TMPDIR/plain.cc"
  [ "$output" = "" ]
  local words
  for words in 'x is not the number of one' 'took a turn that is none' 'want a number' 'somebody has it'; do
    printf '  fail("%s");\n' "$words" >"$BATS_TEST_TMPDIR/riddle.cc"
    run riddles "$BATS_TEST_TMPDIR/riddle.cc"
    [ "$output" = "\"$words\"" ]
  done
  mapfile -t files < <(sources)
  run riddles "${files[@]}"
  [ "$output" = "" ]
}

@test "mains are thin" {
  local main
  for main in cmd/*/main.cc; do
    if [ "$(wc -l <"$main")" -ge 120 ]; then wrong "$main: $(wc -l <"$main") lines"; fi
    grep -q 'cli::run(' "$main" || wrong "$main: does not go through cli::run"
  done
  none_wrong
}

@test "every header has #pragma once" {
  answers 1 "" bash -c "git ls-files -co --exclude-standard -- '*.h' | xargs grep -L '^#pragma once$' | grep ."
}

@test "headers begin with a description" {
  local file first
  while IFS= read -r file; do
    IFS= read -r first <"$file"
    if [[ "$first" != "// "* ]]; then wrong "$file: no head comment"; fi
  done < <(git ls-files -co --exclude-standard -- 'lib/*.h')
  none_wrong
}

@test "no source contains a path of a developer's machine" {
  run -1 git grep -nE --untracked '/(work|home)/[a-z]' -- lib cmd tests bats man packaging ':!bats/layering.bats'
}

@test "no tracked file contains conflict markers" {
  answers 1 "" git grep -nE '^(<{7}|>{7}) '
}

# bats test_tags=slow
@test "shellcheck accepts the scripts" {
  need shellcheck
  git ls-files -co --exclude-standard -- packaging .ci bats tests |
    xargs awk 'FNR == 1 && /^#!.*[\/ ](ba)?sh$/ { print FILENAME } { nextfile }' | xargs -r shellcheck -x
}

# bats test_tags=slow
@test "shellcheck accepts the Bats files" {
  need shellcheck
  shellcheck -x -s bash bats/*.bash
  # For shellcheck, the variables of run look unset, and each test is a subshell.
  shellcheck -x -s bats -S warning -e SC2154,SC2030,SC2031 bats/*.bats
}
