#!/usr/bin/env bats
# fo-canary xid: the GPU errors of the kernel's log.

# shellcheck disable=SC2154  # run sets output and stderr
load test_helper

# xid [OPTION...]: prints bus, code and class of what it finds.
xid() { fo-canary xid "$@" | jq -r '"\(.bus_id) \(.xid) \(.class)"'; }

log_lines() {
  cat <<'END'
[    0.000000] Linux version 6.8.0
[  100.000001] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01
[  101.000000] NVRM: Xid (0000:03:00): 13, 0003 00000000 00008297 00001098
[  102.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1122, GPU has fallen off the bus.
Feb 14 05:03:41 gpu-1 kernel: NVRM: Xid (PCI:0000:52:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.
[171167.620236] NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)
[171167.620236] NVRM: Xid (PCI:0009:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 02 (0x00000004 0x00000001)
[171167.621162] NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)
[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
END
}

@test "the errors of a file, with their class" {
  log_lines >"$T/log"
  xid --from "$T/log" >"$T/found"
  diff "$T/found" - <<'END'
0000:03:00.0 13 application
0000:3b:00.0 79 fatal
0000:52:00.0 63 ignored
0009:01:00.0 149 fatal
0009:01:00.0 145 reported
0009:01:00.0 154 fatal
0000:b3:00.0 79 fatal
END
}

@test "a line has what the driver says, and advice" {
  ends_with 0 fo-canary xid --from - \
    <<<"[  102.500000] NVRM: Xid (PCI:0000:3b:00): 31, pid=1122, name=python3, MMU Fault"
  [ "${#lines[@]}" -eq 1 ]
  [ -z "$stderr" ]
  jq -e '.pid == 1122 and .process == "python3" and .text == "MMU Fault" and .uptime == 102.5 and
    .name == "memory page fault" and (.advice | startswith("Nothing, if"))' <<<"$output"
}

@test "--follow reads what is appended, and goes on in a new file and after a truncation" {
  log_lines | head -n 3 >"$T/log"
  start_bg follow fo-canary xid --from "$T/log" --follow
  wait_for "grep -q '\"xid\":13' $T/follow.out"
  printf '[  102.000000] NVRM: Xid (PCI:0000:3b:00): 48, pid=1, na' >>"$T/log"
  echo 'me=a, DBE' >>"$T/log"
  wait_for "grep -q '\"xid\":48' $T/follow.out"
  mv "$T/log" "$T/log.1"
  echo 'NVRM: Xid (PCI:0000:3b:00): 64, a long line' >"$T/log"
  wait_for "grep -q '\"xid\":64' $T/follow.out"
  # Shorter, because a file that has its old size again has not visibly been truncated.
  : >"$T/log"
  echo 'NVRM: Xid (PCI:0000:3b:00): 95, a' >>"$T/log"
  wait_for "grep -q '\"xid\":95' $T/follow.out"
  terminate "$BG_PID" 143
  [ "$(wc -l <"$T/follow.out")" -eq 4 ]
  [ ! -s "$T/follow.err" ]
}

@test "--follow of what can't be followed is a usage error" {
  mkfifo "$T/pipe"
  local from
  for from in - "$T/pipe" "$T" /dev/null; do
    ends_with 64 timeout 30 fo-canary xid --from "$from" --follow </dev/null
    [[ ${stderr_lines[0]} == "fo-canary: error: --follow: "*" is neither a file nor the kernel's log" ]]
  done
}

@test "the kernel's own log is followed" {
  need_root
  [ -w /dev/kmsg ] || skip_because root "the kernel's log is not writable here"
  start_bg kernel fo-canary xid --follow
  echo "NVRM: Xid (PCI:0000:3b:00): 79, a test of failover $T" >/dev/kmsg
  wait_for "grep -q 'a test of failover $T' $T/kernel.out"
  [ "$(grep -F "a test of failover $T" "$T/kernel.out" | jq -r '"\(.bus_id) \(.xid) \(.class)"')" = "0000:3b:00.0 79 fatal" ]
  terminate "$BG_PID" 143
}

@test "a file that can't be read, and an output that can't be written" {
  ends_with 66 fo-canary xid --from "$T/none"
  [ "$stderr" = "fo-canary: error: open '$T/none': No such file or directory" ]
  ends_with 66 fo-canary xid --from "$T/none" --follow
  log_lines >"$T/log"
  ends_with 74 sh -c "fo-canary xid --from $T/log >/dev/full"
}

@test "a file without errors prints nothing" {
  head -c 100000 /dev/urandom >"$T/log"
  ends_with 0 fo-canary xid --from "$T/log"
  [ "$output$stderr" = "" ]
}
