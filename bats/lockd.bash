# Starts the lock server of a test, on $S.

# start_lockd [OPTION]...: returns once it is ready; $T/ready has its TCP address. Sets BG_PID.
start_lockd() {
  rm -f "$T/ready"
  start_bg lockd gms-lockd --socket "$S" --ready-fd 9 "$@" 9>"$T/ready"
  wait_for "[ -s $T/ready ]"
}

# lockd_knows_it_free: writes the state of a free lock, so that the next server waits for no holder.
lockd_knows_it_free() {
  echo '{"generation":0,"granted_at":null,"holder":null,"processes":[]}' >"$S.state"
}
