# A real etcd for tests.

# need_etcd: skips if it is not installed. Otherwise sets PORT and PEER_PORT for start_etcd, and
# etcdctl's variables.
need_etcd() {
  if ! command -v etcd >/dev/null || ! command -v etcdctl >/dev/null; then
    skip_because etcd "etcd is not installed"
  fi
  pick_port
  PEER_PORT=$PORT
  pick_port
  export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=127.0.0.1:$PORT
}

# etcdctl ARGUMENT...: the program itself gives up after 5 s.
etcdctl() { command etcdctl --command-timeout=60s "$@"; }

# start_etcd [SCHEME [OPTION...]]: starts etcd at $PORT, with the data in $T/etcd. Sets ETCD.
start_etcd() {
  local scheme=${1:-http} peer=http://127.0.0.1:$PEER_PORT
  local client=$scheme://127.0.0.1:$PORT
  shift $(($# > 0 ? 1 : 0))
  start_bg etcd etcd --data-dir "$T/etcd" --listen-client-urls "$client" \
    --advertise-client-urls "$client" --listen-peer-urls "$peer" \
    --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" \
    --heartbeat-interval 10 --election-timeout 100 --unsafe-no-fsync --logger zap --log-level warn \
    --bcrypt-cost 4 "$@"
  ETCD=$BG_PID
  wait_for "curl -sf ${CURL_TLS:-} $client/health"
}

# enable_auth PREFIX: from now on, only the user engine can use the keys there, whose password is in
# $T/password.
enable_auth() {
  local command
  echo secret >"$T/password"
  for command in "user add root:rootpw" "user grant-role root root" "user add engine:secret" "role add user" \
    "role grant-permission user readwrite --prefix $1" "user grant-role engine user" "auth enable"; do
    # shellcheck disable=SC2086
    etcdctl $command >/dev/null 3>&-
  done
}

# end_etcd: kills it, if it was started.
end_etcd() {
  if [ -n "${ETCD:-}" ]; then kill -KILL "$ETCD" 2>/dev/null || :; fi
}
