#!/usr/bin/env bats
# fo-canary rules: Prometheus accepts the rules, their tests pass, and each change of a rule fails
# its tests.

# shellcheck disable=SC2154  # run sets output and stderr
load test_helper
load examples

# print_both [OPTION...]: writes the rules and their tests into $T.
print_both() {
  fo-canary rules "$@" >"$T/fo-rules.yaml"
  fo-canary rules --tests "$@" >"$T/fo-tests.yaml"
}

# bats test_tags=slow
@test "promtool accepts the rules, and their tests pass" {
  need_promtool
  local options
  for options in "" "--for-seconds 0" "--for-seconds 20" "--for-seconds 3600"; do
    # shellcheck disable=SC2086
    print_both $options
    run -0 promtool check rules "$T/fo-rules.yaml"
    run -0 promtool test rules "$T/fo-tests.yaml"
  done
}

@test "each rule has two tests" {
  print_both
  local name count=0
  while read -r name; do
    grep -qxe "- name: $name fires" "$T/fo-tests.yaml"
    grep -qxe "- name: $name does not fire" "$T/fo-tests.yaml"
    count=$((count + 1))
  done < <(sed -n 's/^ *- alert: //p' "$T/fo-rules.yaml")
  [ "$count" -ge 15 ]
}

@test "each rule names its section of fo-runbook(7), and there are no other sections" {
  fo-canary rules >"$T/rules"
  diff <(sed -n 's/^ *- alert: //p' "$T/rules" | sort) <(sed -n 's/^\.Ss //p' "$FO_ROOT/man/fo-runbook.7" | sort)
  local line name=
  while read -r line; do
    case $line in
      "- alert: "*) name=${line#*: } ;;
      "runbook: "*) [[ $line == *" (see $name in fo-runbook(7))"* ]] || { echo "$name: $line"; return 1; } ;;
    esac
  done <"$T/rules"
}

@test "the commands of the rules and of fo-runbook(7) are valid" {
  PATH=$FO_BUILD/libexec/fo:$PATH
  local command bad=0 count=0
  local -a words
  while read -r command; do
    count=$((count + 1))
    read -r -a words < <(sed "s/\bID\b/$(printf %032d 0)/g; s/\bURL\b/http:\/\/127.0.0.1:1/g; s/\bURI\b/dir:\/x/g" <<<"$command")
    # A command line is parsed before the options are printed.
    "${words[@]}" --print-config >"$T/out" 2>&1 || { echo "$command: $(cat "$T/out")"; bad=1; }
    if [ "${words[1]}" = ctl ]; then
      grep -qE "^\.It (.* )?Cm ${words[2]}( |\$)" "$FO_ROOT/man/fo-route.1" || { echo "$command: no such action"; bad=1; }
    fi
  done < <({
    fo-canary rules | sed -n 's/ (see .*//; s/^ *runbook: "*//p' | grep -oE '\b(fo|gms)-[a-z]+ [^;,]+'
    calls man/fo-runbook.7
    grep -oE 'fo-gpu [a-z ]+' "$FO_ROOT/man/fo-runbook.7"
  } | sort -u)
  [ "$count" -gt 20 ]
  [ "$bad" -eq 0 ]
}

# fails_with NUMBER SCRIPT: the tests fail if sed changes the rule of this number.
fails_with() {
  sed -i.whole -E "$2" "$T/rule.$1"
  if cmp -s "$T/rule.$1" "$T/rule.$1.whole"; then
    rm "$T/rule.$1.whole"
    return
  fi
  cat "$T/head" "$T/rule.$1" >"$T/fo-rules.yaml"
  if promtool test rules "$T/test.$1" >"$T/out" 2>&1; then
    echo "passes with $2: $(cat "$T/rule.$1")"
    return 1
  fi
  mv "$T/rule.$1.whole" "$T/rule.$1"
}

# bats test_tags=slow
@test "a changed rule fails the tests" {
  need_promtool
  print_both
  # One group is enough here: "head" and one file for each rule.
  printf 'groups:\n- name: all\n  rules:\n' >"$T/head"
  grep -vE '^(groups:|- name:|  rules:)' "$T/fo-rules.yaml" |
    csplit -s -z -n 2 -f "$T/rule." - '/^  - alert:/' '{*}'
  local file number name
  for file in "$T"/rule.??; do
    number=${file##*.}
    name=$(sed -n 's/^  - alert: //p' "$file")
    awk -v name="$name" '/^- name: / { own = $3 == name } /^tests:/ { own = 1 } own || !tests
      /^tests:/ { tests = 1 }' "$T/fo-tests.yaml" >"$T/test.$number"
    cat "$T/head" "$file" >"$T/fo-rules.yaml"
    promtool test rules "$T/test.$number"
    fails_with "$number" '/expr:/s/ > (0\.5|0\.05|0\.2|0\.01|10|0)$/ > 1e9/; /expr:/s/ (>=|==) [0-9]+/ > 1e9/'
    fails_with "$number" '/expr:/s/ > [0-9.]+$/ >= 0/'
    fails_with "$number" '/expr:/s/ > 0 or / > 1e9 or /; /expr:/s/ == 0 or / == 1e9 or /'
    fails_with "$number" '/expr:/s/ >= 3$/ >= 2/'
    fails_with "$number" '/expr:/s/ == 0 / != 0 /; /expr:/s/ > (sum [^>]*|[0-9.]+)$/ < \1/'
    fails_with "$number" 's/^(    for: ).*/\11s/'
    fails_with "$number" 's/^(    for: ).*/\19999s/'
    fails_with "$number" 's/severity: .*/severity: other/'
    fails_with "$number" 's/summary: .*/summary: other/'
    fails_with "$number" "/expr:/s/=~?'[^']*'/='other'/"
  done
}

@test "--for-seconds is in place of each time, and needs a number" {
  fo-canary rules --for-seconds 7 >"$T/rules"
  [ "$(grep -c ' for: ' "$T/rules")" -ge 8 ]
  [ "$(grep ' for: ' "$T/rules" | sort -u)" = "    for: 7s" ]
  run -1 grep ' for: ' <(fo-canary rules --for-seconds 0)
  usage_errors fo-canary "rules --for-seconds x" "rules --for-seconds -1" "rules --for-seconds 86401" "rules more"
}

@test "rules that can't be written are 74" {
  ends_with 74 sh -c 'fo-canary rules >/dev/full'
}
