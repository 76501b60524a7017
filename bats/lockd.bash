# The lock server of a test, on $S.

# start_lockd [OPTION]...: ready; its TCP address, if any, is in $T/ready. Sets BG_PID.
start_lockd() {
  rm -f "$T/ready"
  start_bg lockd gms-lockd --socket "$S" --ready-fd 9 "$@" 9>"$T/ready"
  wait_for "[ -s $T/ready ]"
}

# lockd_knows_it_free: the server to come knows of a lock that was free, so that it waits for nobody.
lockd_knows_it_free() {
  echo '{"generation":0,"granted_at":null,"holder":null,"processes":[]}' >"$S.state"
}
