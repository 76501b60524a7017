#!/usr/bin/env bats
# fo-plan: what its page promises. The formulas are tested by plan_test.

load test_helper

CAPACITY=(capacity --ttft 500ms --tpot 30ms --tokens 250 --kv-tokens 500000 --sequence 2048 --slots 64)

# --- verbs ----------------------------------------------------------------------------------------

@test "mtbf prints the time between failures, and the published one" {
  ends_with 0 fo-plan mtbf --gpus 1024 --afr 3% --tp 8
  [ "${#lines[@]}" -eq 2 ]
  [ "${lines[0]}" = "One of 1024 GPUs fails every 285.2 h (11.88 days), MTBF = 8760 h / (gpus * afr); of their 128 groups of 8, 0.08414 fail per day, each with a chance of 6.573e-04 = 1 - (1 - afr/365)^tp." ]
  [[ ${lines[1]} == *"Llama 3 405B on 16384 H100 in 54 days"*" 419 unplanned stops"*" are 0.11 per GPU and year"*" one silent corruption in 147456 GPU-days." ]]
  run -0 fo-plan mtbf --gpus 1024 --afr 0.03 --at-least 285h
  run -1 fo-plan mtbf --gpus 1024 --afr 0.03 --at-least 286h
}

@test "spares prints how many are needed, or whether some suffice" {
  local spares=(spares --groups 128 --afr 3% --repair 72h --shortfall 0.1%)
  ends_with 0 fo-plan "${spares[@]}"
  [[ $output == "128 groups of 8 GPUs need 3 spare groups (24 GPUs) "*" = 0.2525; with 3 spare groups the chance is 1.385e-04." ]]
  run -0 fo-plan "${spares[@]}" --spares 3
  run -1 fo-plan "${spares[@]}" --spares 2
  run -1 fo-plan "${spares[@]}" --spares 0
}

@test "capacity prints the rate of replicas, and the replicas for a rate" {
  ends_with 0 fo-plan "${CAPACITY[@]}" --replicas 3
  [ "$output" = "The rate of 3 replicas is 24 requests/s = replicas * concurrency / W (Little's law), with 64 requests at a time in each and W = ttft + tokens * tpot = 8 s." ]
  ends_with 0 fo-plan "${CAPACITY[@]}" --rate 50
  [[ $output == "The rate of 7 replicas is 56 requests/s "*"; a rate of 50 requests/s needs 7 replicas." ]]
  run -0 fo-plan "${CAPACITY[@]}" --rate 48 --replicas 6
  run -1 fo-plan "${CAPACITY[@]}" --rate 50 --replicas 6
  run -0 fo-plan "${CAPACITY[@]}" --measured 1:12ms,16:30ms,32:31ms --json
  [ "$(jq .results.concurrency <<<"$output")" -eq 16 ]
  ends_with 1 fo-plan "${CAPACITY[@]}" --measured 1:40ms --rate 1
  [[ $output == *"; no number of replicas carries 1 requests/s." ]]
  run -1 fo-plan "${CAPACITY[@]}" --measured 1:40ms --rate 1 --json
  [ "$(jq -c '.results | [.carried_rate, .replicas_needed]' <<<"$output")" = '[0,null]' ]
}

@test "degrade prints the level, and what it becomes" {
  ends_with 0 fo-plan degrade --ratio 1
  [[ $output == "At ratio 1 the level is 0: "*"level 1 is entered below 1 "* ]]
  ends_with 1 fo-plan degrade --ratio 0.6
  [ "$output" = "At ratio 0.6 the level is 2: concurrency 0.75, premium admitted, standard admitted, best_effort refused, deadlines times 1; it is entered below 0.75, and left after 10s above 0.8 (table of levels by capacity / demand)." ]
  ends_with 1 fo-plan degrade --ratio 0.6 --level 4
  [[ $output == "At ratio 0.6 the level is 4: "*"; if this ratio lasts, level 2 after 20 s "* ]]
  run -1 fo-plan degrade --ratio 0.04 --json
  [ "$(jq -c '.results | [.next_level, .premium_share, .deadline_factor]' <<<"$output")" = '[4,0,2]' ]
}

@test "migrate compares transfer and replay" {
  local migrate=(migrate --tokens 2048 --bandwidth 63GB --prefill 5000)
  ends_with 0 fo-plan "${migrate[@]}"
  [[ $output == "The transfer of 2048 tokens takes 1.332 ms "*" their replay 409.6 ms "*"; transfer is faster at every length; "* ]]
  ends_with 0 fo-plan "${migrate[@]}" --setup 20ms
  [[ $output == *"; replay is faster below 100.3 tokens; "* ]]
  run -0 fo-plan "${migrate[@]}" --requests 23 --targets 15 --within 820ms
  run -1 fo-plan "${migrate[@]}" --requests 23 --targets 15 --within 819ms
  run -0 fo-plan migrate --tokens 2048 --bandwidth 1MB --prefill 5000 --json
  [ "$(jq -c '.results.crossover_tokens' <<<"$output")" = null ]
}

@test "canary prints false drains, times of detection and the cost of questions" {
  ends_with 0 fo-plan canary --false-result 0.1% --workers 1000 --transient 2ms --vote 500ms
  [ "$output" = "The false drains of 1000 workers are 0.00288 per day = workers * 86400 s / interval * p^k; drift is detected within 92 s = k * interval + 2 s, a mismatch within 32.5 s = interval + 2 s + vote; a fault of 0.002 s is detected with a chance of 6.667e-05 = transient / interval." ]
  run -0 fo-plan canary --false-result 0 --prompt 484 --interval 25s
  [[ $output == *"; a worker computes 1500 tokens per minute for them = 60 s / interval * 1.25 * (prompt + answer)." ]]
  run -0 fo-plan canary --false-result 0 --prompt 484 --interval 25s --prefill 4840 --tpot 25ms
  [[ $output == *"(prompt + answer), in 0.5 s each = prompt / prefill + answer * tpot, and a share of 0.025 of its time = 1.25 * that / interval." ]]
  run -0 fo-plan canary --false-result 1% --workers 1000 --max-drains 3
  run -1 fo-plan canary --false-result 1% --workers 1000 --max-drains 2
  run -0 fo-plan canary --false-result 0
}

@test "figures reproduces the right ones and corrects the wrong ones" {
  ends_with 0 fo-plan figures
  [ "$(grep -c '^right: ' <<<"$output")" -eq 8 ]
  [ "$(grep -c '^wrong: ' <<<"$output")" -eq 14 ]
  [[ $output == *"  computed: 285 h, 11.9 days (MTBF = 8760 h / (gpus * afr))"* ]]
  [[ $output == *"  corrected: 0.0117, 0.047, 0.186, 0.746, 2.98 and 5.97 ms "* ]]
  ends_with 0 fo-plan figures --json
  [ "$(jq -c '[.version, .verb, (.figures | length), .figures[0].right]' <<<"$output")" = '[1,"figures",22,true]' ]
}

# --- JSON and configuration -----------------------------------------------------------------------

@test "--json prints inputs that --config reads back" {
  ends_with 0 fo-plan mtbf --gpus 1024 --afr 3% --json
  [ "$(jq -c 'keys_unsorted' <<<"$output")" = '["version","verb","formula","inputs","results","met"]' ]
  [ "$(jq -c '[.version, .verb, .inputs, .met]' <<<"$output")" = '[1,"mtbf",{"gpus":1024,"afr":"3%","tp":8},null]' ]
  jq .inputs <<<"$output" >"$T/inputs.json"
  diff <(echo "$output") <(fo-plan mtbf --json --config "$T/inputs.json")
  diff <(echo "$output") <(fo-plan mtbf --json --config - <"$T/inputs.json")
  run -0 fo-plan mtbf --config "$T/inputs.json" --gpus 2048 --json
  [ "$(jq .inputs.gpus <<<"$output")" -eq 2048 ]
  run -0 fo-plan "${CAPACITY[@]}" --measured 1:12ms,64:25ms --rate 3.5 --json
  diff <(echo "$output") <(jq .inputs <<<"$output" | fo-plan capacity --json --config -)
}

@test "no result has the name of a parameter" {
  local line
  while read -r line; do
    # shellcheck disable=SC2086  # several words
    run fo-plan $line --json
    [ "$status" -le 1 ]
    [ "$(jq -c '(.inputs | keys | map(gsub("-"; "_"))) as $inputs | .results | keys - (keys - $inputs)' <<<"$output")" = '[]' ]
  done <<END
mtbf --gpus 8 --afr 3% --at-least 1h
spares --groups 1 --afr 3% --repair 1h --shortfall 1% --spares 1
${CAPACITY[@]} --replicas 1 --rate 1 --measured 1:1ms
degrade --ratio 1 --level 1
migrate --tokens 1 --bandwidth 1GB --prefill 1 --within 1s
canary --false-result 1% --transient 1s --max-drains 1 --prompt 100 --prefill 5000 --tpot 20ms
END
}

@test "parameters come from TOML, JSON and the environment" {
  printf 'gpus = 1024\nafr = 0.03\ntp = 8\n' >"$T/plan.toml"
  run -0 fo-plan mtbf --config "$T/plan.toml" --json
  [ "$(jq -c .inputs <<<"$output")" = '{"gpus":1024,"afr":"0.03","tp":8}' ]
  FO_PLAN_GPUS=16 run -0 fo-plan mtbf --config - --json <"$T/plan.toml"
  [ "$(jq .results.groups <<<"$output")" -eq 2 ]
  fails 78 "read configuration '-': afr: 'many': expected a fraction such as 0.03 or 3%" \
    fo-plan mtbf --config - <<<'{"gpus": 8, "afr": "many"}'
  fails 78 "read configuration '-': not JSON" fo-plan mtbf --config - <<<'{"gpus": 8'
  FO_PLAN_AFR=x fails 78 "read FO_PLAN_AFR: 'x': expected a fraction such as 0.03 or 3%" fo-plan mtbf --gpus 8
}

# --- tables ---------------------------------------------------------------------------------------

@test "--sweep prints a table, --csv as a file for others" {
  ends_with 0 fo-plan mtbf --afr 3% --sweep gpus=8:24:8
  [ "$output" = "\
gpus  mtbf_hours  gpu_failures_per_day  groups  group_failure_chance_per_day  group_failures_per_day
   8       36500           0.000657534       1                   0.000657345             0.000657345
  16       18250            0.00131507       2                   0.000657345              0.00131469
  24     12166.7             0.0019726       3                   0.000657345              0.00197204" ]
  ends_with 0 fo-plan migrate --tokens 512 --bandwidth 63GB --prefill 5000 --csv --sweep setup=0s:100ms:50ms
  [ "${lines[0]}" = setup_s,replay_s,transfer_s,crossover_tokens,last_replay_s,last_transfer_s ]
  [[ ${lines[1]} == 0,0.1024,0.000332*,,0.1024,0.000332* ]]
  [[ ${lines[3]} == 0.1,0.1024,0.1003*,501.6*,0.1024,0.1003* ]]
  [ "${#lines[@]}" -eq 4 ]
  ends_with 0 fo-plan mtbf --afr 3% --sweep gpus=8:24:8 --json
  [ "$(jq -c '[.inputs, [.rows[].gpus], .rows[1].groups, .rows[1].met]' <<<"$output")" = '[{"afr":"3%","tp":8},[8,16,24],2,null]' ]
}

@test "a table meets its target if all rows do" {
  run -0 fo-plan spares --groups 128 --repair 72h --shortfall 0.1% --spares 4 --sweep afr=1%:7%:2%
  [[ ${lines[4]} == "0.07 "*" yes" ]]
  run -1 fo-plan spares --groups 128 --repair 72h --shortfall 0.1% --spares 4 --sweep afr=1%:9%:2%
  [[ ${lines[5]} == "0.09 "*" no" ]]
}

@test "a table has 100,000 rows at most" {
  run -0 fo-plan degrade --level 0 --sweep ratio=1:100000:1 --csv
  [ "${#lines[@]}" -eq 100001 ]
  fails 64 "--sweep 'ratio=0:100000:1': more than 100000 rows" fo-plan degrade --sweep ratio=0:100000:1
  ends_with 64 fo-plan degrade --sweep ratio=0:1:1e-300
}

# A gnuplot that prints its script.
stub_gnuplot() {
  mkdir "$T/stubs"
  printf '#!/bin/sh\n%s\n' "$1" >"$T/stubs/gnuplot"
  chmod +x "$T/stubs/gnuplot"
  PATH=$T/stubs:$PATH
}

PLOT=(mtbf --afr 3% --sweep "gpus=8:24:8" --plot)

@test "--plot gives gnuplot the table, and writes what it prints" {
  # shellcheck disable=SC2016  # for the stub
  stub_gnuplot 'cat "$2"'
  ends_with 0 fo-plan "${PLOT[@]}" "$T/x.svg"
  [ "${#lines[@]}" -eq 4 ]
  grep -qx '16 18250' "$T/x.svg"
  grep -q "set xlabel 'gpus'" "$T/x.svg"
  fails 73 "write '$T/none/x.svg': No such file or directory" fo-plan "${PLOT[@]}" "$T/none/x.svg"
}

@test "--plot without gnuplot, or if it fails, is 69 and changes no file" {
  echo old >"$T/x.svg"
  stub_gnuplot 'echo "<svg"; exit 3'
  fails 69 "draw '$T/x.svg': gnuplot ended with status 3" fo-plan "${PLOT[@]}" "$T/x.svg"
  fails 69 "draw '$T/x.svg': run 'gnuplot': No such file or directory" env PATH="$FO_BIN" fo-plan "${PLOT[@]}" "$T/x.svg"
  [ "$(ls "$T")" = $'stubs\nx.svg' ]
  [ "$(<"$T/x.svg")" = old ]
}

@test "--plot draws an SVG" {
  need_gnuplot
  ends_with 0 fo-plan "${PLOT[@]}" "$T/x.svg"
  [ "$stderr" = "" ]
  grep -q '<svg' "$T/x.svg"
  grep -q '</svg>' "$T/x.svg"
}

# --- errors ---------------------------------------------------------------------------------------

@test "bad command lines are usage errors" {
  usage_errors fo-plan "" "mtbf" "mtbf --gpus 8" "mtbf --gpus x --afr 3%" "mtbf --gpus 8.5 --afr 3%" \
    "mtbf --gpus -8 --afr 3%" "mtbf --gpus 8 --afr nan" "mtbf --gpus 8 --afr inf" \
    "mtbf --gpus 8 --afr -0.1" "mtbf --gpus 8 --afr 1e999" "mtbf --gpus 8 --afr 3" \
    "mtbf --gpus 8 --afr 0" "mtbf --gpus 0 --afr 3%" "mtbf --gpus 8 --afr 3% --tp 0" \
    "mtbf --gpus 8 --afr 3% --tp 16" "mtbf --gpus 9007199254740992 --afr 3%" \
    "mtbf --gpus 99999999999999999999 --afr 3%" "mtbf --gpus 8 --afr 3% --at-least 5" \
    "spares --groups 1 --afr 3% --repair 0 --shortfall 1%" \
    "spares --groups 1 --afr 3% --repair 1h --shortfall 0" \
    "spares --groups 1 --afr 3% --repair 1h --shortfall 1" \
    "spares --groups 999999999999 --tp 999999999999 --afr 1 --repair 72h --shortfall 1%" \
    "capacity --ttft 1s --tpot 0 --tokens 1 --kv-tokens 1 --sequence 1" \
    "capacity --ttft 1s --tpot 1s --tokens 0 --kv-tokens 1 --sequence 1" \
    "capacity --ttft 1s --tpot 1s --tokens 1 --kv-tokens 1 --sequence 0" \
    "capacity --ttft 1s --tpot 1s --tokens 1 --kv-tokens 1 --sequence 1 --measured 1" \
    "capacity --ttft 1s --tpot 1s --tokens 1 --kv-tokens 1 --sequence 1 --measured 0:1s" \
    "capacity --ttft 1s --tpot 1s --tokens 1 --kv-tokens 1 --sequence 1 --rate 0" \
    "degrade --ratio -1" "degrade --ratio 1 --level 5" \
    "migrate --tokens 1 --bandwidth 0 --prefill 1" "migrate --tokens 1 --bandwidth 1GB --prefill 0" \
    "migrate --tokens 1 --bandwidth 1GB --prefill 1 --targets 0" \
    "canary --false-result 101%" "canary --false-result 1% --interval 0" \
    "canary --false-result 1% --in-a-row 0" "canary --false-result 1% --workers 0" \
    "figures --csv" "figures extra" "mtbf --gpus 8 --afr 3% --csv" \
    "mtbf --gpus 8 --afr 3% --plot x.svg" "mtbf --afr 3% --sweep gpus=8:16:8 --csv --json" \
    "mtbf --afr 3% --sweep gpus" "mtbf --afr 3% --sweep gpus=8:16" "mtbf --afr 3% --sweep gpus=8:16:0" \
    "mtbf --afr 3% --sweep gpus=16:8:8" "mtbf --afr 3% --sweep gpus=8:16:0.5" \
    "mtbf --afr 3% --sweep gpus=8:16:8:1" "mtbf --gpus 8 --sweep afr=0:nan:1" \
    "mtbf --gpus 8 --afr 3% --sweep tp=1:16:1" "capacity --sweep measured=1:2:1"
}

@test "a usage error names the option or the value, and the reason" {
  fails 64 "afr '3': expected 1e-15 to 1" fo-plan mtbf --gpus 8 --afr 3
  fails 64 "--afr is required" fo-plan mtbf --gpus 8
  fails 64 "--gpus: '-8': expected a whole number" fo-plan mtbf --gpus -8 --afr 3%
  fails 64 "--sweep 'groups=1:2:1': mtbf has no 'groups'; it has gpus, afr, tp, at-least" \
    fo-plan mtbf --gpus 8 --sweep groups=1:2:1
  while read -r reason options; do
    # shellcheck disable=SC2086
    fails 64 "${reason//_/ }" fo-plan canary --false-result 0 $options
  done <<END
--answer_needs_--prompt --answer 8
--answer_needs_--prompt --sweep answer=1:8:1
--prefill_needs_--prompt --prefill 5000 --tpot 20ms
--prefill_needs_--tpot --prompt 100 --prefill 5000
--tpot_needs_--prompt --tpot 20ms
--tpot_needs_--prefill --prompt 100 --tpot 20ms
END
  run -0 fo-plan canary --false-result 0 --sweep prompt=100:200:100 --prefill 5000 --tpot 20ms
  fo-plan canary --false-result 0 --print-config >"$T/config.toml"
  run -0 fo-plan canary --config "$T/config.toml"
}

@test "a full standard output is 74" {
  full_stdout fo-plan figures
  full_stdout fo-plan degrade --sweep ratio=0:1:0.01 --csv
}
